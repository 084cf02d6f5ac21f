//! Samples the Python stacks of the program from outside.
//!
//! The recorder reads the stacks from the memory of the processes at 100 Hz, without stopping them. A stack that changes
//! while it is read gives no sample.

mod elf;
mod layout;
mod lines;
mod reader;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use std::{fs, io, path::Path, sync::Arc, thread};

use laptime_capture::control::{Control, RecordingMode};
use laptime_capture::monotonic_nanos;

use self::reader::{Interpreter, Symbols};
use super::{observer::Observer, socket::parent};

const PERIOD: Duration = Duration::from_millis(10);
/// How often to look for new processes.
const RESCAN: Duration = Duration::from_millis(500);
const MOST_PROCESSES: usize = 32;
/// Some hundred megabytes.
const MOST_SAMPLES: usize = 8_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub host_ns: u64,
    pub pid: u32,
    pub thread: u32,
    /// Index in [`Samples::stacks`].
    pub stack: u32,
}

/// A line of Python code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Line {
    pub file: Arc<str>,
    pub function: Arc<str>,
    pub number: u32,
}

#[derive(Debug, Default)]
pub struct Samples {
    /// In order of time.
    pub samples: Vec<Sample>,
    /// Distinct stacks, innermost line first.
    pub stacks: Vec<Vec<Line>>,
    /// Why nothing could be read.
    pub problem: Option<String>,
    pub dropped: u64,
}

/// Starts to sample a process and its descendants. Drops samples older than `keep`.
pub fn start(root: u32, control: Control, keep: Option<Duration>) -> Observer<Samples> {
    Observer::start(move |is_done| {
        let mut sampling = Sampling { root, keep, ..Sampling::default() };
        let mut next = Instant::now();
        while !is_done() {
            let begin = Instant::now();
            if control.mode() != RecordingMode::Nothing {
                sampling.sample();
            }
            // Use at most a fifth of a core; with many processes the rate drops.
            next = (next + PERIOD).max(Instant::now() + 4 * begin.elapsed());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        sampling.found
    })
}

#[derive(Default)]
struct Sampling {
    root: u32,
    keep: Option<Duration>,
    found: Samples,
    numbers: HashMap<Vec<Line>, u32>,
    processes: BTreeMap<u32, Watched>,
    symbols: Symbols,
    scanned: Option<Instant>,
}

struct Watched {
    /// The executable, which changes with `exec`.
    program: Option<std::path::PathBuf>,
    interpreter: Option<Interpreter>,
    /// Failed attempts to find Python, which a new process may not have loaded yet.
    attempts: u32,
}

impl Sampling {
    fn sample(&mut self) {
        if self.scanned.is_none_or(|scanned| scanned.elapsed() >= RESCAN) {
            self.find_processes();
        }
        let now = monotonic_nanos();
        let mut gone = Vec::new();
        for (&pid, watched) in &mut self.processes {
            let Some(interpreter) = &mut watched.interpreter else { continue };
            match interpreter.stacks() {
                Ok(stacks) => {
                    for (thread, stack) in stacks {
                        self.found.add(Sample { host_ns: now, pid, thread, stack: 0 }, stack, &mut self.numbers);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.found.problem =
                        Some("the system does not permit reading the program's memory (ptrace)".to_owned());
                    gone.push(pid);
                }
                // The process ended, or its stack changed while it was read.
                Err(_) if !Path::new("/proc").join(pid.to_string()).exists() => gone.push(pid),
                Err(_) => {}
            }
        }
        gone.iter().for_each(|pid| drop(self.processes.remove(pid)));
        if let Some(keep) = self.keep {
            let oldest = now.saturating_sub(keep.as_nanos() as u64);
            let old = self.found.samples.partition_point(|sample| sample.host_ns < oldest);
            // Not at each sample.
            if old > 10_000 {
                self.found.samples.drain(..old);
            }
        }
    }

    /// Finds the processes that run Python.
    fn find_processes(&mut self) {
        const MOST_ATTEMPTS: u32 = 40;
        self.scanned = Some(Instant::now());
        let alive = descendants(self.root);
        self.processes.retain(|pid, _| alive.contains(pid));
        for pid in alive.into_iter().take(MOST_PROCESSES) {
            let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
            let watched =
                self.processes.entry(pid).or_insert_with(|| Watched { program: None, interpreter: None, attempts: 0 });
            if watched.program != program {
                *watched = Watched { program, interpreter: None, attempts: 0 };
            }
            if watched.interpreter.is_none() && watched.attempts < MOST_ATTEMPTS {
                watched.attempts += 1;
                watched.interpreter = Interpreter::find(pid, &mut self.symbols);
            }
        }
    }
}

impl Samples {
    fn add(&mut self, sample: Sample, stack: Vec<Line>, numbers: &mut HashMap<Vec<Line>, u32>) {
        if self.samples.len() >= MOST_SAMPLES {
            self.dropped += 1;
            return;
        }
        let number = match numbers.get(&stack) {
            Some(&number) => number,
            None => {
                let number = self.stacks.len() as u32;
                self.stacks.push(stack.clone());
                numbers.insert(stack, number);
                number
            }
        };
        self.samples.push(Sample { stack: number, ..sample });
    }
}

/// A process and its descendants.
fn descendants(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && let Some(parent) = parent(pid)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&pid) = found.get(at) {
        found.extend(children.get(&pid).into_iter().flatten());
        at += 1;
    }
    found
}
