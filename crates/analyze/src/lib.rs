//! Questions asked of a trace: one pure function each, one answer type each.
//!
//! Nothing here reads a file, a clock or an environment, and nothing here formats: an answer is plain data.

mod device_time;
mod doctor;
mod intervals;
mod overview;
mod stages;
mod top;

pub use self::{
    doctor::{Check, Doctor, Level, Patient, doctor},
    overview::{Overview, Waits, overview},
    stages::{Per, Stage, Stages, stages},
    top::{Operation, OperationKind, Top, top},
};
