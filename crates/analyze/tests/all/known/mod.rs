//! Known answers: simulated programs with planted faults, and with changes that are then made.

mod critical_path;
mod findings;
mod simulated;
