//! The command line, as a library: a program of your own gets every command for its own workloads.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use laptime::bench::Workload;
//! # struct Sorting;
//! # fn sorting() -> Box<dyn Workload> { todo!() }
//!
//! #[global_allocator]
//! static HEAP: laptime::CountingHeap = laptime::CountingHeap; // for peak memory; may be left out
//!
//! fn main() -> ExitCode {
//!     laptime::main_with(vec![sorting()])
//! }
//! ```
//!
//! A function is timed by [`benchmark`], without a command line; `examples/course_benchmark` uses it.
//!
//! `laptime list`, `bench`, `profile`, `warmup` and `ab` of that program then know its workloads beside the built-in
//! ones. `examples/custom_workload` is such a program.

mod absent;
mod alone;
mod app;
mod aside;
mod asked;
mod attention_profile;
mod benchmark;
mod c2c_files;
mod c2c_profile;
mod c2c_summary;
mod cli;
mod commands;
mod course;
mod estimate;
mod failure;
mod keeper;
mod kept_peaks;
mod kit_files;
mod kit_input;
mod moment;
mod near;
mod offload_experiment;
mod offload_files;
mod offload_live;
mod offload_profile;
mod output;
mod progress;
mod run_folder;
mod run_input;
mod screen;
mod session;
mod shell;
mod source_files;
mod tour;
mod trace_input;
mod tts_audio;
mod tts_files;
mod tts_header;
mod tts_profile;

use std::{panic::AssertUnwindSafe, process::ExitCode};

pub use self::benchmark::{Benchmark, Timings, benchmark};
pub use laptime_bench as bench;
use laptime_bench::Workload;
pub use laptime_pipelines::CountingHeap;

use crate::app::App;

/// The exit status of what could not be done.
const COULD_NOT: u8 = 2;

/// Runs the command line with workloads beside the built-in ones, and returns the status to exit with.
///
/// A program calls this first thing in its `main`: fresh processes that a command asks for are the same program, and
/// this is where they find out.
pub fn main_with(workloads: Vec<Box<dyn Workload>>) -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        // The panic of a workload is an outcome of its case, which tells it.
        if !laptime_bench::is_measuring() {
            failure::tell_fault(panic, &mut screen::stderr());
        }
    }));
    // The hook has told it.
    std::panic::catch_unwind(AssertUnwindSafe(|| run(workloads))).unwrap_or(ExitCode::from(COULD_NOT))
}

fn run(workloads: Vec<Box<dyn Workload>>) -> ExitCode {
    let status = if laptime_bench::is_fresh_process() { laptime_bench::OUT_OF_MEMORY_STATUS } else { COULD_NOT };
    laptime_pipelines::heap::exit_when_out_of_memory(status);
    let app = App::new(workloads);
    if let Some(served) = laptime_bench::serve_if_asked(&app.registry) {
        return served;
    }
    cli::run(&app, std::env::args_os())
}
