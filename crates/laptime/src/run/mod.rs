//! A run: its folder, its processes, its progress and its results.

pub mod estimate;
pub mod fresh_process;
pub mod keeper;
pub mod kept_peaks;
pub mod moment;
pub mod run_folder;
pub mod session;
pub mod shell;
pub mod stdout_guard;
