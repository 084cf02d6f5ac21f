//! The child's side of a fresh process: a job comes in on standard input, results go out on standard output.

use std::{
    io::{self, BufRead, Write},
    process::ExitCode,
};

use laptime_trace::run::{Case, CaseResult};
use serde::{Deserialize, Serialize};

use crate::{
    cold::touch_memory,
    interrupt::Interrupt,
    job::{Job, Registry},
    sink::Sink,
    sweep::{Swept, here},
};

/// Set in a child, so that it knows what it is.
pub(crate) const WORKER: &str = "LAPTIME_WORKER";

/// What a fresh process exits with when memory ended, so that its case is out of memory and not failed.
pub const OUT_OF_MEMORY_STATUS: u8 = 112;

/// Begins each message, so that what a workload prints itself is no message (a record separator).
pub(crate) const MARK: char = '\u{1e}';

/// The line that asks a child to stop after the current take.
pub(crate) const STOP: &str = "stop";

/// What a child tells its parent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// A case begins: its place in the job.
    Begin(usize),
    /// A case is done.
    Result(Box<CaseResult>),
    /// The device is lost to this process: the cases that are left need another one.
    Lost,
    /// There is no such workload or device here: no case can be measured.
    CannotStart(Vec<String>),
}

/// Serves as a fresh process, if this process was started as one; `None` if it was not.
///
/// A program that measures workloads of its own calls this first thing in its `main`, so that cases can be measured in
/// processes of their own:
///
/// ```no_run
/// # fn registry() -> laptime_bench::Registry { todo!() }
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     let registry = registry();
///     if let Some(served) = laptime_bench::serve_if_asked(&registry) {
///         return served;
///     }
///     // … the program itself, which may call `laptime_bench::sweep` with `isolate`.
///     ExitCode::SUCCESS
/// }
/// ```
pub fn serve_if_asked(registry: &Registry) -> Option<ExitCode> {
    is_fresh_process().then(|| serve(registry).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

/// Whether this process was started to measure cases for another one.
pub fn is_fresh_process() -> bool {
    std::env::var_os(WORKER).is_some()
}

fn serve(registry: &Registry) -> anyhow::Result<()> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let job: Job = serde_json::from_str(&line)?;
    let interrupt = Interrupt::new();
    listen(interrupt.clone());
    let mut sink = Teller { interrupt, begun: 0 };
    // Without its trace a case is still measured; whoever looks for the trace says that it is not there.
    let recording = job.trace.as_ref().and_then(|path| laptime_trace::record_to(path).ok());
    let swept = here(registry, &job, None, &mut sink);
    touch_memory();
    drop(recording);
    match swept {
        Ok(Swept::Lost { .. }) => tell(&Message::Lost),
        Ok(_) => Ok(()),
        Err(error) => tell(&Message::CannotStart(error.chain().map(ToString::to_string).collect())),
    }
}

/// Waits for the wish to stop. If the parent is gone, so is this process: nobody would read what it measures.
fn listen(interrupt: Interrupt) {
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if line == STOP {
                interrupt.ask();
            }
        }
        #[allow(clippy::exit, reason = "a child without a parent has nobody left to answer to")]
        std::process::exit(1);
    });
}

/// Tells the parent of cases, and not of takes: a parent that wakes up disturbs the take that follows.
struct Teller {
    interrupt: Interrupt,
    begun: usize,
}

impl Sink for Teller {
    fn begin(&mut self, _: &Case, _: u32) {
        // A parent that is gone is noticed by the thread that listens.
        let _ = tell(&Message::Begin(self.begun));
        self.begun += 1;
    }

    fn take(&mut self, _: u64, _: bool) {}

    fn result(&mut self, result: CaseResult) -> anyhow::Result<()> {
        tell(&Message::Result(Box::new(result)))
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.is_asked()
    }
}

fn tell(message: &Message) -> anyhow::Result<()> {
    let text = serde_json::to_string(message)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{MARK}{text}")?;
    out.flush()?;
    Ok(())
}
