//! The command line as a library: your program gets every command for its own workloads.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use laptime::bench::Workload;
//! # struct Sorting;
//! # fn sorting() -> Box<dyn Workload> { todo!() }
//!
//! #[global_allocator]
//! static HEAP: laptime::CountingHeap = laptime::CountingHeap; // optional, for peak memory
//!
//! fn main() -> ExitCode {
//!     laptime::main_with(vec![sorting()])
//! }
//! ```
//!
//! `list`, `bench`, `profile`, `warmup` and `ab` of that program then know your workloads as well as the built-in ones;
//! see `examples/custom_workload`. [`benchmark`] times a function without a command line; see
//! `examples/course_benchmark`.

mod app;
mod benchmark;
mod cli;
mod commands;
mod input;
pub mod library;
mod output;
mod run;

use std::{panic::AssertUnwindSafe, process::ExitCode};

pub use self::benchmark::{Benchmark, Timings, benchmark};
pub use laptime_bench as bench;
use laptime_bench::{Launch, Workload};
use laptime_pipelines::extras::Extras;
pub use laptime_pipelines::{CountingHeap, extras};

use crate::app::App;
use crate::input::{choice, near, request, run_input, source_files, trace_input};
use crate::output::{absent, failure, http, progress, screen};
use crate::run::{estimate, fresh_process, keeper, kept_peaks, run_folder, session, shell, stdout_guard};

/// The exit status of an error.
const ERROR: u8 = 2;

/// Runs the command line with your workloads in addition to the built-in ones, and returns the exit status.
///
/// Call this first in `main`: commands start this program again as a worker process, which is detected here.
pub fn main_with(workloads: Vec<Box<dyn Workload>>) -> ExitCode {
    main_with_extras(workloads, Vec::new())
}

/// Like [`main_with`], with [`Extras`] of your workloads: flags, checks, files and summaries.
pub fn main_with_extras(workloads: Vec<Box<dyn Workload>>, extras: Vec<Box<dyn Extras>>) -> ExitCode {
    ExitCode::from(run(workloads, extras))
}

/// Runs the command line inside an interpreter, and returns the exit status.
pub fn main_of_module(launch: Launch) -> u8 {
    launch.set();
    run(Vec::new(), Vec::new())
}

fn run(workloads: Vec<Box<dyn Workload>>, extras: Vec<Box<dyn Extras>>) -> u8 {
    std::panic::set_hook(Box::new(|panic| {
        // A panic of a workload is reported as the outcome of its case.
        if !laptime_bench::is_measuring() {
            failure::print_panic(panic, &mut screen::stderr());
        }
    }));
    // The hook has printed it.
    std::panic::catch_unwind(AssertUnwindSafe(|| run_program(workloads, extras))).unwrap_or(ERROR)
}

fn run_program(workloads: Vec<Box<dyn Workload>>, extras: Vec<Box<dyn Extras>>) -> u8 {
    let status = if laptime_bench::is_fresh_process() { laptime_bench::OUT_OF_MEMORY_STATUS } else { ERROR };
    laptime_pipelines::heap::exit_when_out_of_memory(status);
    let app = App::new(workloads, extras);
    if let Some(served) = laptime_bench::status_if_requested(&app.registry) {
        return served;
    }
    cli::run(&app, Launch::of_this_program().words.into_iter())
}
