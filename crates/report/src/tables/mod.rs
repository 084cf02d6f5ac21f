//! Answers as tables: one file a question, named like the question.

mod ab;
mod axes;
mod cases;
mod compare;
mod doctor;
mod fleet;
mod gaps;
mod overhead;
mod overlap;
mod overview;
mod peaks;
mod stages;
mod syncs;
mod top;
mod troubles;
mod warmup;
mod waterfall;

pub use self::{
    ab::ab, cases::cases, compare::compare, doctor::doctor, fleet::fleet, gaps::gap_list, gaps::gaps,
    overhead::add_overhead, peaks::peaks, stages::stages, top::top, warmup::warmup, waterfall::waterfall,
};
pub use self::{
    overlap::overlap,
    syncs::{syncs, waits},
};
