//! Questions asked of a trace or of the results of a run: one pure function each, one answer type each.
//!
//! Nothing here reads a file, a clock or an environment, and nothing here formats: an answer is plain data. Only a
//! doubt says itself, in a sentence.

mod ab;
mod by_case;
mod cases;
mod compare;
mod device_time;
mod differences;
mod doctor;
mod doubt;
mod doubts;
mod figures;
mod intervals;
mod limits;
mod overhead;
mod overview;
mod stages;
mod timings;
mod top;
mod units;
mod warmup;

pub use self::{
    ab::{Ab, ab},
    by_case::{CaseId, Trouble, TroubleKind},
    cases::{CaseFigures, Cases, Course, MeasuredFigures, MetricFigures, StateFigures, cases},
    compare::{Compared, ComparedCase, Comparing, NotCompared, Pair, RunResults, Tally, Which, compare, metrics},
    differences::{Difference, differences},
    doctor::{Check, Doctor, GpuHealth, Level, Patient, doctor},
    doubt::Doubt,
    doubts::{Told, doubts},
    figures::Figures,
    limits::{Bound, Limits},
    overhead::{MOST_OVERHEAD, Overhead, overhead},
    overview::{Overview, Waits, overview},
    stages::{Per, Stage, Stages, stages},
    timings::{TimedStage, TimingFigures, Timings, timings},
    top::{Operation, OperationKind, Top, top},
    warmup::{Advice, Answer, Averaged, WarmUp, WarmUpProcess, WarmUps, warmup},
};
