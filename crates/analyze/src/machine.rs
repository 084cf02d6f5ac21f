//! Analyses of a machine: its fitness for measuring, and its limits.

pub(crate) mod doctor;
pub(crate) mod limits;
