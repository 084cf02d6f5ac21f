//! Runs: folders, processes and results.

pub mod estimate;
pub mod fresh_process;
pub mod keeper;
pub mod kept_peaks;
pub mod run_folder;
pub mod session;
pub mod shell;
pub mod stdout_guard;
