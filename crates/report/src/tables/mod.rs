//! Answers as tables: one file a question, named like the question.

mod axes;
mod cases;
mod compare;
mod overview;
mod stages;
mod top;
mod troubles;
mod warmup;

pub use self::{cases::cases, compare::compare, stages::stages, top::top, warmup::warmup};
