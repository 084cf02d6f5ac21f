//! Answers as tables: one file a question, named like the question.

mod overview;
mod stages;
mod top;

pub use self::{stages::stages, top::top};
