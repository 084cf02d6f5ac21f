//! The workload without a program around it.
