//! Answers as tables: one file a question, named like the question.

mod axes;
mod cases;
mod compare;
mod doctor;
mod overview;
mod stages;
mod top;
mod troubles;
mod warmup;

pub use self::{cases::cases, compare::compare, doctor::doctor, stages::stages, top::top, warmup::warmup};
