//! Answers as tables: one file a question, named like the question.

mod ab;
mod axes;
mod cases;
mod compare;
mod doctor;
mod fleet;
mod laps;
mod overhead;
mod overview;
mod peaks;
mod stages;
mod top;
mod troubles;
mod warmup;

pub use self::{
    ab::ab,
    cases::cases,
    compare::compare,
    doctor::doctor,
    fleet::fleet,
    laps::{each_lap, laps},
    overhead::add_overhead,
    peaks::peaks,
    stages::stages,
    top::{Ranking, Side, Sort, groups, top},
    warmup::warmup,
};
