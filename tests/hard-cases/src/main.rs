//! A program whose workload fails in every possible way; an axis selects how an iteration ends.

#[cfg(feature = "cuda")]
mod gpu;

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use laptime::bench::{AxisSpec, Case, Cost, Device, Iteration, Prepared, ValueKind, Workload};

#[global_allocator]
static HEAP: laptime::CountingHeap = laptime::CountingHeap;

fn main() -> ExitCode {
    let workloads: Vec<Box<dyn Workload>> = vec![
        Box::new(Hard),
        #[cfg(feature = "cuda")]
        Box::new(gpu::HardGpu),
    ];
    laptime::main_with(workloads)
}

/// The call of an iteration at which the process kills itself.
const KILL_AT: &str = "HARD_CASES_KILL_AT";

/// The call of an iteration at which the process that a user started gets Ctrl-C.
const INTERRUPT_AT: &str = "HARD_CASES_INTERRUPT_AT";

/// More bytes than any process can allocate.
const MORE_THAN_THERE_IS: usize = 1 << 60;

static CALLS: AtomicU64 = AtomicU64::new(0);

struct Hard;

const ENDS: &[&str] = &["well", "error", "panic", "abort", "exit", "kill", "hang", "wrong", "noise", "memory"];

impl Workload for Hard {
    fn name(&self) -> &'static str {
        "hard"
    }

    fn about(&self) -> &'static str {
        "ends in a chosen way"
    }

    fn axes(&self) -> Vec<AxisSpec> {
        vec![
            AxisSpec {
                name: "number",
                about: "distinguishes cases",
                kind: ValueKind::Int { least: 0, most: i64::MAX },
                default: vec![0.into()],
                cost: Cost::Low,
            },
            AxisSpec {
                name: "end",
                about: "how an iteration ends",
                kind: ValueKind::OneOf(ENDS),
                default: vec!["well".into()],
                cost: Cost::Low,
            },
        ]
    }

    fn prepare<'a>(&'a self, case: &Case, _: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        Ok(Prepared::Ready(Box::new(HardIteration { end: case.text("end")?.to_owned() })))
    }
}

struct HardIteration {
    end: String,
}

impl Iteration for HardIteration {
    fn check(&mut self) -> anyhow::Result<()> {
        anyhow::ensure!(self.end != "wrong", "the result is wrong");
        Ok(())
    }

    #[allow(clippy::exit, clippy::print_stdout, clippy::print_stderr, reason = "a workload may do all of this")]
    fn run(&mut self) -> anyhow::Result<()> {
        let call = CALLS.fetch_add(1, Relaxed) + 1;
        if std::env::var(KILL_AT).is_ok_and(|at| at == call.to_string()) {
            kill_this_process();
        }
        if std::env::var(INTERRUPT_AT).is_ok_and(|at| at == call.to_string()) {
            interrupt();
        }
        match self.end.as_str() {
            "error" => anyhow::bail!("the case asked to fail"),
            "panic" => panic!("the case asked to panic"),
            "abort" => std::process::abort(),
            "exit" => std::process::exit(3),
            "kill" => kill_this_process(),
            "hang" => loop {
                std::thread::park();
            },
            "noise" => {
                print!("a workload may print, ");
                println!("even {{\"result\": true}}");
                eprintln!("and complain");
            }
            "memory" => drop(std::hint::black_box(Vec::<u8>::with_capacity(MORE_THAN_THERE_IS))),
            _ => {}
        }
        std::hint::black_box((0..1000).sum::<u64>());
        Ok(())
    }
}

/// Sends Ctrl-C like a terminal; a fresh process sends it to its parent.
fn interrupt() {
    let is_child = std::env::var_os("LAPTIME_WORKER").is_some();
    let parent = rustix::process::getppid().filter(|_| is_child);
    let pid = parent.unwrap_or_else(rustix::process::getpid);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("both belong to the same user");
}

/// Kills the process like the kernel does when memory is short.
fn kill_this_process() {
    let killed = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    killed.expect("a process may kill itself");
}
