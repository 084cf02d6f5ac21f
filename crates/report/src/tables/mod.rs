//! Answers as tables: one file per question, named after it.

mod ab;
mod against;
mod audit;
mod axes;
mod cases;
mod cold_start;
mod compare;
mod course;
mod critical_path;
mod crossover;
mod diagnose;
mod doctor;
mod fleet;
mod gaps;
mod iteration;
mod laps;
mod models;
mod overhead;
mod overlap;
mod overview;
mod peaks;
mod ranks;
mod scaling;
mod speech;
mod stages;
mod syncs;
mod timings;
mod top;
mod topics;
mod troubles;
mod warmup;
mod warmup_study;
mod waterfall;

pub(crate) use self::scaling::lengths;
pub use self::{
    ab::ab,
    against::against_text,
    audit::{ExtraSites, audit},
    cases::cases,
    cold_start::cold_start,
    compare::compare,
    course::{RequestedSteps, course, course_separate, course_summary},
    critical_path::critical_path,
    crossover::crossovers,
    diagnose::{TrialRow, diagnosis, experiment, offload_findings, offload_layers, offload_tokens},
    doctor::doctor,
    fleet::fleet,
    gaps::{gap_list, gaps},
    iteration::iteration,
    laps::{each_lap, laps},
    models::models,
    overhead::add_overhead,
    overlap::overlap,
    peaks::peaks,
    ranks::{RanksBy, ranks},
    scaling::scaling,
    speech::speech,
    stages::{StageLimits, stages, stages_within},
    syncs::{syncs, waits},
    timings::timings,
    top::{Ranking, Side, Sort, groups, top},
    topics::{finding_rules, topics},
    warmup::warmup,
    warmup_study::{warmup_laps, warmup_study},
    waterfall::waterfall,
};
