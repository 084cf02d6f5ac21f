//! The parent side of fresh processes. If a child crashes, is killed or hangs, its case is recorded as failed and the
//! sweep continues.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::Context;
use laptime_trace::run::{Case, CaseResult, Outcome};

use crate::process::{FOREVER, LastLines, in_own_group, kill_group};
use crate::trouble::chained;
use crate::worker::{MARK, Message, OUT_OF_MEMORY_STATUS, STOP, WORKER};
use crate::{cold::EmptyCaches, interrupt::Interrupt, job::Job, launch::Launch, sink::Sink, sweep::Swept};

/// Fresh processes of a program that calls [`serve_if_requested`](crate::serve_if_requested).
#[derive(Debug, Clone)]
pub struct Children {
    launch: Launch,
}

/// The number of lines of a child's standard error that are stored with a failed case.
const KEPT_LINES: usize = 12;

impl Children {
    /// Fresh processes of this program.
    pub fn of_this_program() -> Self {
        Self { launch: Launch::of_this_program() }
    }

    /// Measures the cases of a job, each in a separate process if the settings require it, otherwise all in one
    /// process. If a process dies, its current case has failed and the remaining cases go to the next process.
    pub fn run(&self, job: &Job, interrupt: &Interrupt, sink: &mut dyn Sink) -> anyhow::Result<Swept> {
        let mut left = job.cases.as_slice();
        while !left.is_empty() {
            if interrupt.is_requested() {
                return Ok(Swept::Interrupted);
            }
            let part = if job.settings.isolate { &left[..1] } else { left };
            let (done, ended) = self.run_one(&job.with_cases(part.to_vec()), interrupt, sink)?;
            left = &left[done..];
            // A process that lost its device has sent its last result; the next process measures the remaining cases.
            if done == part.len() || (ended.has_lost_device && done > 0) {
                continue;
            }
            if interrupt.is_requested() {
                return Ok(Swept::Interrupted);
            }
            sink.result(unfinished(job, &left[0], &ended))?;
            left = &left[1..];
        }
        Ok(if interrupt.is_requested() { Swept::Interrupted } else { Swept::Whole })
    }

    /// Starts one process. Returns the number of cases with a result and how the process ended.
    fn run_one(&self, job: &Job, interrupt: &Interrupt, sink: &mut dyn Sink) -> anyhow::Result<(usize, Ended)> {
        let mut child = Started::new(&self.launch, job)?;
        interrupt.on_ask({
            let events = child.wake.clone();
            // Sending fails if the child has already exited, and then no one needs to be woken.
            move || drop(events.send(Event::Asked))
        });
        let (mut done, mut has_lost_device) = (0, false);
        let why = loop {
            match child.next(job.settings.timeout_ns) {
                Event::Message(Message::Begin(at)) => {
                    if let Some(case) = job.cases.get(at) {
                        sink.begin(case, job.run);
                    }
                }
                Event::Message(Message::Result(result)) => {
                    done += 1;
                    sink.result(*result)?;
                }
                Event::Message(Message::Lost) => has_lost_device = true,
                Event::Message(Message::CannotStart(errors)) => {
                    return Err(chained(errors, "cannot start a fresh process"));
                }
                Event::Asked => child.ask_to_stop(),
                Event::Closed => break None,
                Event::TimedOut => break Some(child.kill(job.settings.timeout_ns)),
            }
        };
        let ended = Ended { has_lost_device, ..child.end(why)? };
        Ok((done, ended))
    }
}

/// The result of a case whose process died while measuring it.
fn unfinished(job: &Job, case: &Case, ended: &Ended) -> CaseResult {
    let outcome = if ended.is_out_of_memory() {
        Outcome::OutOfMemory { needed_bytes: None, available_bytes: None }
    } else {
        Outcome::Failed { errors: ended.errors(), wall_ns: Vec::new() }
    };
    CaseResult::new(&job.workload, &job.device, case.clone(), job.run, &job.environment, outcome)
}

enum Event {
    Message(Message),
    Asked,
    Closed,
    TimedOut,
}

/// A running child.
struct Started {
    child: Child,
    input: Option<ChildStdin>,
    events: Receiver<Event>,
    wake: Sender<Event>,
    has_ended: bool,
    complaints: Option<LastLines>,
    /// Closed when the child exits.
    _caches: Option<EmptyCaches>,
}

impl Started {
    fn new(launch: &Launch, job: &Job) -> anyhow::Result<Self> {
        let mut command = Command::new(&launch.program);
        command.args(&launch.arguments);
        command.env(WORKER, "1").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Compiled kernels are cached across processes; a cold process must not find them.
        let caches =
            job.settings.cold.then(EmptyCaches::new).transpose().context("cannot create an empty cache folder")?;
        caches.iter().for_each(|caches| caches.give_to(&mut command));
        // Only the parent handles Ctrl-C. It asks the child to stop after the current iteration.
        in_own_group(&mut command);
        let mut child = command.spawn().context("cannot start a fresh process of this program")?;
        let (wake, events) = channel();
        if let Some(output) = child.stdout.take() {
            let events = wake.clone();
            std::thread::spawn(move || listen(output, &events));
        }
        let complaints = child.stderr.take().map(|errors| LastLines::of(errors, KEPT_LINES));
        let mut input = child.stdin.take();
        if let Some(input) = &mut input {
            let text = serde_json::to_string(job)?;
            // If the child died immediately, its exit status explains why.
            let _ = writeln!(input, "{text}");
        }
        Ok(Self { child, input, events, wake, has_ended: false, complaints, _caches: caches })
    }

    fn next(&self, timeout_ns: Option<u64>) -> Event {
        let wait = timeout_ns.map_or(FOREVER, Duration::from_nanos);
        match self.events.recv_timeout(wait) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => Event::TimedOut,
            Err(RecvTimeoutError::Disconnected) => Event::Closed,
        }
    }

    fn ask_to_stop(&mut self) {
        if let Some(input) = &mut self.input {
            // If writing fails, the child has already exited.
            let _ = writeln!(input, "{STOP}");
        }
    }

    fn kill(&mut self, timeout_ns: Option<u64>) -> String {
        kill_group(&mut self.child);
        let seconds = Duration::from_nanos(timeout_ns.unwrap_or(0)).as_secs_f64();
        format!("no result within {seconds} s; the process was stopped")
    }

    fn end(mut self, why: Option<String>) -> anyhow::Result<Ended> {
        drop(self.input.take());
        let status = self.child.wait().context("cannot wait for a fresh process")?;
        self.has_ended = true;
        let complaints = self.complaints.take().map(LastLines::take).unwrap_or_default();
        Ok(Ended { why, status, complaints, has_lost_device: false })
    }
}

/// No child may outlive an early return with an error.
impl Drop for Started {
    fn drop(&mut self) {
        // After `wait`, the process id may belong to another process.
        if !self.has_ended {
            kill_group(&mut self.child);
            let _ = self.child.wait();
        }
    }
}

fn listen(output: impl Read, events: &Sender<Event>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    // Skips output printed by the workload itself without storing it, however long its lines are.
    while output.skip_until(MARK as u8).is_ok_and(|length| length > 0)
        && output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0)
    {
        let message = serde_json::from_slice(&line).ok();
        if let Some(message) = message
            && events.send(Event::Message(message)).is_err()
        {
            return;
        }
        line.clear();
    }
    // Sending fails once the child has been given up.
    let _ = events.send(Event::Closed);
}

/// How a child ended.
struct Ended {
    why: Option<String>,
    status: ExitStatus,
    complaints: Vec<String>,
    has_lost_device: bool,
}

impl Ended {
    /// Whether an allocation failed, as reported by the exit status or by the standard library's last message.
    fn is_out_of_memory(&self) -> bool {
        let is_refusal = |line: &String| line.starts_with("memory allocation of ") && line.ends_with(" bytes failed");
        let has_refusal = !self.status.success() && self.complaints.iter().any(is_refusal);
        self.status.code() == Some(OUT_OF_MEMORY_STATUS.into()) || has_refusal
    }

    fn errors(&self) -> Vec<String> {
        let why = self.why.clone().unwrap_or_else(|| format!("the process {}", exit_words(self.status)));
        std::iter::once(why).chain(self.complaints.iter().cloned()).collect()
    }
}

fn exit_words(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return match signal {
            6 => "was aborted (signal 6, SIGABRT)".to_owned(),
            9 => {
                "was killed (signal 9, SIGKILL), by the kernel because memory ran out or by another process".to_owned()
            }
            11 => "crashed (signal 11, SIGSEGV)".to_owned(),
            other => format!("was terminated by signal {other}"),
        };
    }
    match status.code() {
        Some(code) => format!("exited with status {code} before the case was done"),
        None => "exited before the case was done".to_owned(),
    }
}
