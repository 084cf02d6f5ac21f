//! The program: everything is in the library, so that others can have it with workloads of their own.

use std::process::ExitCode;

#[global_allocator]
static HEAP: laptime::CountingHeap = laptime::CountingHeap;

fn main() -> ExitCode {
    laptime::main_with(Vec::new())
}
