//! Answers as tables: one file a question, named like the question.

mod doctor;
mod overview;
mod stages;
mod top;

pub use self::{doctor::doctor, stages::stages, top::top};
