//! Answers as tables: one file a question, named like the question.

mod ab;
mod axes;
mod cases;
mod compare;
mod doctor;
mod overhead;
mod overview;
mod peaks;
mod stages;
mod timings;
mod top;
mod troubles;
mod warmup;

pub use self::{
    ab::ab, cases::cases, compare::compare, doctor::doctor, overhead::add_overhead, peaks::peaks, stages::stages,
    timings::timings, top::top, warmup::warmup,
};
