//! A program with one workload that ends in every bad way. Its cases are numbered, and what happens in one is an axis.

#[cfg(feature = "cuda")]
mod gpu;

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use laptime::bench::{AxisSpec, Case, Cost, Device, Prepared, Take, Takes, Workload};

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

/// Set to a number, the process kills itself at that call of a take.
const KILL_AT: &str = "HARD_CASES_KILL_AT";

/// Set to a number, the process that was started by hand gets Ctrl-C at that call of a take.
const INTERRUPT_AT: &str = "HARD_CASES_INTERRUPT_AT";

/// Bytes that no process can have.
const MORE_THAN_THERE_IS: usize = 1 << 60;

static CALLS: AtomicU64 = AtomicU64::new(0);

struct Hard;

const ENDS: &[&str] = &["well", "error", "panic", "abort", "exit", "kill", "hang", "wrong", "noise", "memory"];

impl Workload for Hard {
    fn name(&self) -> &'static str {
        "hard"
    }

    fn about(&self) -> &'static str {
        "ends as it is told"
    }

    fn axes(&self) -> Vec<AxisSpec> {
        vec![
            AxisSpec {
                name: "number",
                about: "tells cases apart",
                takes: Takes::Int { least: 0, most: i64::MAX },
                default: vec![0.into()],
                cost: Cost::Low,
            },
            AxisSpec {
                name: "end",
                about: "how a take ends",
                takes: Takes::OneOf(ENDS),
                default: vec!["well".into()],
                cost: Cost::Low,
            },
        ]
    }

    fn prepare<'a>(&'a self, case: &Case, _: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        Ok(Prepared::Ready(Box::new(HardTake { end: case.text("end")?.to_owned() })))
    }
}

struct HardTake {
    end: String,
}

impl Take for HardTake {
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
            "error" => anyhow::bail!("it was told to fail"),
            "panic" => panic!("it was told to panic"),
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

/// As a terminal does when somebody presses Ctrl-C; a fresh process passes it on to its parent.
fn interrupt() {
    let is_child = std::env::var_os("LAPTIME_WORKER").is_some();
    let parent = rustix::process::getppid().filter(|_| is_child);
    let pid = parent.unwrap_or_else(rustix::process::getpid);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("both belong to the same user");
}

/// As the kernel does when memory is short: nothing of ours runs afterwards.
fn kill_this_process() {
    let killed = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    killed.expect("a process may kill itself");
}
