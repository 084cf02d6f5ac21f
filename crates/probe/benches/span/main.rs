//! The cost of a span: ours compared with other libraries, interleaved in one run.
//!
//! `tracing` has one subscriber per process, so every sample is a fresh process of this binary. The samples of a round
//! are shuffled; a result is the median over the rounds. `--rounds N` changes their number, `--check` turns an exceeded
//! limit into an error.

mod budget;
mod disk;
mod sample;
mod table;
mod variant;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    process::{Command, ExitCode},
};

use sample::{Measured, Sample};

const ROUNDS: usize = 11;

/// The measurements of every sample, one per round.
type Figures = BTreeMap<Sample, Vec<Measured>>;

fn main() -> io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [flag, sample] = arguments.as_slice()
        && flag == "--sample"
    {
        let sample: Sample = sample.parse().map_err(io::Error::other)?;
        writeln!(io::stdout(), "{}", sample.measure())?;
        return Ok(ExitCode::SUCCESS);
    }
    let rounds = rounds(&arguments).unwrap_or(ROUNDS);
    let figures = run(rounds)?;
    let table = table::Table::new(&figures);
    let budgets = budget::judge(&table)?;
    write!(io::stdout(), "{}{table}\n{}", heading(rounds), budget::Budgets(&budgets))?;
    let broken = budgets.iter().any(|budget| !budget.holds());
    let check = arguments.iter().any(|argument| argument == "--check");
    Ok(if broken && check { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn rounds(arguments: &[String]) -> Option<usize> {
    let at = arguments.iter().position(|argument| argument == "--rounds")?;
    arguments.get(at + 1)?.parse().ok()
}

fn run(rounds: usize) -> io::Result<Figures> {
    let mut figures = Figures::new();
    let mut samples = Sample::all();
    let mut random = Random(0x5eed);
    for round in 1..=rounds {
        write!(io::stderr(), "\rround {round} of {rounds}, {} processes each ", samples.len())?;
        random.shuffle(&mut samples);
        for sample in &samples {
            figures.entry(*sample).or_default().push(in_fresh_process(sample)?);
        }
    }
    writeln!(io::stderr())?;
    Ok(figures)
}

fn in_fresh_process(sample: &Sample) -> io::Result<Measured> {
    let output = Command::new(std::env::current_exe()?).args(["--sample", &sample.to_string()]).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("sample {sample}: {}", String::from_utf8_lossy(&output.stderr))));
    }
    String::from_utf8_lossy(&output.stdout).trim().parse().map_err(io::Error::other)
}

fn heading(rounds: usize) -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let clock = laptime_probe::clock_name();
    format!(
        "{}, {cores} cores, clock {clock}; medians of {rounds} rounds\n\n",
        model.map_or("unknown processor", |(_, name)| name)
    )
}

/// A small random number generator (xorshift), so that the order is the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, (self.next() % (at as u64 + 1)) as usize);
        }
    }
}
