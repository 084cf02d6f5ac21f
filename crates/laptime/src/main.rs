//! The program. Everything is in the library, so that other programs can use it with their own workloads.

use std::process::ExitCode;

#[global_allocator]
static HEAP: laptime::CountingHeap = laptime::CountingHeap;

fn main() -> ExitCode {
    laptime::main_with(Vec::new())
}
