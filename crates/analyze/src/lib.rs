//! Questions asked of a trace or of the results of a run: one pure function each, one answer type each.
//!
//! Nothing here reads a file, a clock or an environment, and nothing here formats: an answer is plain data. Only a
//! doubt says itself, in a sentence.

mod ab;
mod by_case;
mod cases;
mod compare;
mod device_time;
mod devices;
mod differences;
mod doctor;
mod doubt;
mod doubts;
mod figures;
mod finding;
mod fleet;
mod group;
mod host;
mod intervals;
mod lap_unit;
mod laps;
mod limits;
mod overhead;
mod overview;
mod repeats;
mod stage_figures;
mod stages;
mod top;
mod units;
mod warmup;

pub use self::{
    ab::{Ab, ab},
    by_case::{CaseId, Trouble, TroubleKind},
    cases::{CaseFigures, Cases, Course, MeasuredFigures, MetricFigures, cases},
    compare::{Compared, ComparedCase, Comparing, NotCompared, Pair, RunResults, Tally, Which, compare, metrics},
    differences::{Difference, differences},
    doctor::{Check, Doctor, Level, Patient, doctor},
    doubt::Doubt,
    doubts::{Told, doubts},
    figures::Figures,
    finding::Finding,
    fleet::{Figure, Fleet, FleetRow, LEAST_TRACES, ODD_DISTANCE, ODD_SHARE, Odd, Unit},
    group::Group,
    lap_unit::{LapSource, LapTime, LapUnit, NoLaps, counted},
    laps::{
        EXPLAINED, LEAST_LAPS, Lap, LapFigures, Laps, MOST_COLD, Part, PartDifference, SLOW_DISTANCE, SLOW_SHARE,
        SlowLap, Trend, laps,
    },
    limits::{Bound, Limits},
    overhead::{MOST_OVERHEAD, Overhead, overhead},
    overview::{Overview, Waits, overview},
    stage_figures::{STAGE_FIGURES, stage_figures},
    stages::{Per, Stage, Stages, stages},
    top::{GroupTime, Operation, OperationKind, Top, top},
    warmup::{Advice, Answer, Averaged, WarmUp, WarmUpProcess, WarmUps, warmup},
};
