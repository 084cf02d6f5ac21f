//! The input of commands: requests, runs, traces and source files.

pub mod choice;
pub mod near;
pub mod request;
pub mod run_input;
pub mod source_files;
pub mod trace_input;
