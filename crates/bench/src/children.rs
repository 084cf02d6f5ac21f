//! The parent's side of fresh processes: a crash, a kill by the kernel or a hang of one is a row, and the sweep goes on.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    time::Duration,
};

use anyhow::Context;
use laptime_trace::run::{Case, CaseResult, Outcome};

use crate::{
    cold::EmptyCaches,
    interrupt::Interrupt,
    job::Job,
    process::{in_own_group, kill_group, last_lines},
    sink::Sink,
    sweep::Swept,
    worker::{MARK, Message, OUT_OF_MEMORY_STATUS, STOP, WORKER},
};

/// Fresh processes of a program that calls [`serve_if_asked`](crate::serve_if_asked).
#[derive(Debug, Clone)]
pub struct Children {
    program: PathBuf,
}

/// Lines of a child's standard error that a failed row keeps.
const KEPT_LINES: usize = 12;

/// How long the last words of a child that has ended are waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// The longest time to wait where none was asked for: a century.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

impl Children {
    /// Fresh processes of this very program, even if its file was replaced meanwhile.
    pub fn of_this_program() -> Self {
        let linux = cfg!(target_os = "linux").then(|| PathBuf::from("/proc/self/exe"));
        Self { program: linux.unwrap_or_else(|| std::env::current_exe().unwrap_or_default()) }
    }

    /// Measures the cases of a job: each in a process of its own if the settings say so, else all in one. If a
    /// process dies, the case it was at has failed, and the rest goes to the next process.
    pub fn run(&self, job: &Job, interrupt: &Interrupt, sink: &mut dyn Sink) -> anyhow::Result<Swept> {
        let mut left = job.cases.as_slice();
        while !left.is_empty() {
            if interrupt.is_asked() {
                return Ok(Swept::Interrupted);
            }
            let part = if job.settings.isolate { &left[..1] } else { left };
            let (done, ended) = self.run_one(&job.with_cases(part.to_vec()), interrupt, sink)?;
            left = &left[done..];
            // A process that lost its device has told its last case, and leaves the others to the next.
            if done == part.len() || (ended.has_lost_device && done > 0) {
                continue;
            }
            if interrupt.is_asked() {
                return Ok(Swept::Interrupted);
            }
            sink.result(unfinished(job, &left[0], &ended))?;
            left = &left[1..];
        }
        Ok(if interrupt.is_asked() { Swept::Interrupted } else { Swept::Whole })
    }

    /// Starts one process; returns how many cases have a result, and how the process ended.
    fn run_one(&self, job: &Job, interrupt: &Interrupt, sink: &mut dyn Sink) -> anyhow::Result<(usize, Ended)> {
        let mut child = Started::new(&self.program, job)?;
        interrupt.on_ask({
            let events = child.wake.clone();
            // The receiver is gone when the child is: nobody to wake.
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
                Event::Message(Message::CannotStart(errors)) => return Err(chained(errors)),
                Event::Asked => child.ask_to_stop(),
                Event::Closed => break None,
                Event::TimedOut => break Some(child.kill(job.settings.timeout_ns)),
            }
        };
        let ended = Ended { has_lost_device, ..child.end(why)? };
        Ok((done, ended))
    }
}

/// The result of a case whose process ended in the middle of it.
fn unfinished(job: &Job, case: &Case, ended: &Ended) -> CaseResult {
    let outcome = if ended.is_out_of_memory() {
        Outcome::OutOfMemory { needed_bytes: None, available_bytes: None }
    } else {
        Outcome::Failed { errors: ended.errors(), wall_ns: Vec::new() }
    };
    CaseResult::new(&job.workload, &job.device, case.clone(), job.run, &job.environment, outcome)
}

/// Makes an error of a chain that came as text.
fn chained(errors: Vec<String>) -> anyhow::Error {
    let mut errors = errors.into_iter().rev();
    let root = anyhow::anyhow!(errors.next().unwrap_or_else(|| "a fresh process could not start".to_owned()));
    errors.fold(root, |error, cause| error.context(cause))
}

enum Event {
    Message(Message),
    Asked,
    Closed,
    TimedOut,
}

/// A child at work.
struct Started {
    child: Child,
    input: Option<ChildStdin>,
    events: Receiver<Event>,
    wake: Sender<Event>,
    has_ended: bool,
    complaints: Option<Receiver<Vec<String>>>,
    /// Goes when the child is gone.
    _caches: Option<EmptyCaches>,
}

impl Started {
    fn new(program: &PathBuf, job: &Job) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.env(WORKER, "1").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Compiled kernels are kept from process to process; a cold one is not to find them.
        let caches = job.settings.cold.then(EmptyCaches::new).transpose().context("cannot make an empty cache")?;
        caches.iter().for_each(|caches| caches.give_to(&mut command));
        // Ctrl-C is for the parent, which asks its child to stop after the current take.
        in_own_group(&mut command);
        let mut child = command.spawn().context("cannot start a fresh process of this program")?;
        let (wake, events) = channel();
        if let Some(output) = child.stdout.take() {
            let events = wake.clone();
            std::thread::spawn(move || listen(output, &events));
        }
        let complaints = child.stderr.take().map(|errors| {
            let (told, complaints) = channel();
            // Nobody listens any more once the child was given up.
            std::thread::spawn(move || drop(told.send(last_lines(errors, KEPT_LINES))));
            complaints
        });
        let mut input = child.stdin.take();
        if let Some(input) = &mut input {
            let text = serde_json::to_string(job)?;
            // A child that died at once is told by how it ended.
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
            // One that no longer listens has ended.
            let _ = writeln!(input, "{STOP}");
        }
    }

    fn kill(&mut self, timeout_ns: Option<u64>) -> String {
        kill_group(&mut self.child);
        let seconds = Duration::from_nanos(timeout_ns.unwrap_or(0)).as_secs_f64();
        format!("it gave no result within {seconds} s and was stopped")
    }

    fn end(mut self, why: Option<String>) -> anyhow::Result<Ended> {
        drop(self.input.take());
        let status = self.child.wait().context("cannot wait for a fresh process")?;
        self.has_ended = true;
        // A process that the workload left behind may hold the pipe open for ever.
        let complaints = self.complaints.take().and_then(|told| told.recv_timeout(PATIENCE).ok()).unwrap_or_default();
        Ok(Ended { why, status, complaints, has_lost_device: false })
    }
}

/// An error on the way out must not leave a child behind.
impl Drop for Started {
    fn drop(&mut self) {
        // Once waited for, its number may be another's.
        if !self.has_ended {
            kill_group(&mut self.child);
            let _ = self.child.wait();
        }
    }
}

fn listen(output: impl Read, events: &Sender<Event>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    // What the workload itself prints is passed over and not kept, however long its lines are.
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
    // Nobody waits for a child that was given up.
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
    /// Whether an allocation failed: the process says so by its status, or Rust's standard library by its last words.
    fn is_out_of_memory(&self) -> bool {
        let is_refusal = |line: &String| line.starts_with("memory allocation of ") && line.ends_with(" bytes failed");
        let has_refusal = !self.status.success() && self.complaints.iter().any(is_refusal);
        self.status.code() == Some(OUT_OF_MEMORY_STATUS.into()) || has_refusal
    }

    fn errors(&self) -> Vec<String> {
        let why = self.why.clone().unwrap_or_else(|| format!("its process {}", told(self.status)));
        std::iter::once(why).chain(self.complaints.iter().cloned()).collect()
    }
}

fn told(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return match signal {
            6 => "was aborted (signal 6, SIGABRT)".to_owned(),
            9 => "was killed (signal 9, SIGKILL): by the kernel for want of memory, or by somebody".to_owned(),
            11 => "crashed (signal 11, SIGSEGV)".to_owned(),
            other => format!("was ended by signal {other}"),
        };
    }
    match status.code() {
        Some(code) => format!("ended with status {code} before the case was done"),
        None => "ended before the case was done".to_owned(),
    }
}
