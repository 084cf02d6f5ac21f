//! The `laptime` program. Everything is in the library, for other programs with workloads of their own.

use std::process::ExitCode;

#[global_allocator]
static HEAP: laptime::CountingHeap = laptime::CountingHeap;

fn main() -> ExitCode {
    laptime::main_with(Vec::new())
}
