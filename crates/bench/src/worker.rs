//! The child side of a fresh process: a job arrives on standard input, results go to standard output.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use laptime_trace::run::{Case, CaseResult};
use serde::{Deserialize, Serialize};

use crate::job::{Job, Registry};
use crate::sweep::{Swept, here};
use crate::{cold::touch_memory, interrupt::Interrupt, sink::Sink};

/// Set in a child process.
pub(crate) const WORKER: &str = "LAPTIME_WORKER";

/// The exit status of a fresh process that ran out of memory, so that its case is out of memory rather than failed.
pub const OUT_OF_MEMORY_STATUS: u8 = 112;

/// Starts each message, so that output printed by the workload is not mistaken for one (a record separator).
pub(crate) const MARK: char = '\u{1e}';

/// The line that asks a child to stop after the current iteration.
pub(crate) const STOP: &str = "stop";

/// A message from a child to its parent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// A case begins: its index in the job.
    Begin(usize),
    /// A case is done.
    Result(Box<CaseResult>),
    /// The process lost its device; the remaining cases need another process.
    Lost,
    /// The workload or device does not exist here, so no case can be measured.
    CannotStart(Vec<String>),
}

/// Runs as a fresh process if this process was started as one; otherwise returns `None`.
///
/// A program with custom workloads calls this first in `main`, so that cases can be measured in separate processes:
///
/// ```no_run
/// # fn registry() -> laptime_bench::Registry { todo!() }
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     let registry = registry();
///     if let Some(served) = laptime_bench::serve_if_requested(&registry) {
///         return served;
///     }
///     // … the program itself, which may call `laptime_bench::sweep` with `isolate`.
///     ExitCode::SUCCESS
/// }
/// ```
pub fn serve_if_requested(registry: &Registry) -> Option<ExitCode> {
    status_if_requested(registry).map(ExitCode::from)
}

/// The same, with the exit status as a number.
pub fn status_if_requested(registry: &Registry) -> Option<u8> {
    is_fresh_process().then(|| u8::from(serve(registry).is_err()))
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
    let mut sink = MessageSink { interrupt, begun: 0 };
    // A case is measured even if its trace cannot be written; the reader of the trace reports that it is missing.
    let recording = job.trace.as_ref().and_then(|path| laptime_trace::record_to(path).ok());
    let swept = here(registry, &job, None, &mut sink);
    touch_memory();
    drop(recording);
    match swept {
        Ok(Swept::Lost { .. }) => send(&Message::Lost),
        Ok(_) => Ok(()),
        Err(error) => send(&Message::CannotStart(error.chain().map(ToString::to_string).collect())),
    }
}

/// Waits for a stop request. If the parent is gone, this process exits: nobody would read its results.
fn listen(interrupt: Interrupt) {
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if line == STOP {
                interrupt.ask();
            }
        }
        #[allow(clippy::exit, reason = "a child without a parent has no one to report to")]
        std::process::exit(1);
    });
}

/// Reports cases to the parent, but not iterations: waking the parent would disturb the next iteration.
struct MessageSink {
    interrupt: Interrupt,
    begun: usize,
}

impl Sink for MessageSink {
    fn begin(&mut self, _: &Case, _: u32) {
        // The listening thread notices if the parent is gone.
        let _ = send(&Message::Begin(self.begun));
        self.begun += 1;
    }

    fn result(&mut self, result: CaseResult) -> anyhow::Result<()> {
        send(&Message::Result(Box::new(result)))
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.is_requested()
    }
}

fn send(message: &Message) -> anyhow::Result<()> {
    let text = serde_json::to_string(message)?;
    let mut out = io::stdout().lock();
    writeln!(out, "{MARK}{text}")?;
    out.flush()?;
    Ok(())
}
