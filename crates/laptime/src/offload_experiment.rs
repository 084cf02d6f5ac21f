//! The experiment.
