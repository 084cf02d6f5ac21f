//! Made-up results with known answers.

// Each test file uses some of it.
#![allow(dead_code)]

use laptime_trace::run::{
    Better, Build, Case, CaseResult, Depth, Environment, Machine, Measured, Metric, Outcome, Run, SCHEMA, Settings,
    Stop, StopReason, Timing, WarmUp,
};

pub fn case(size: i64) -> Case {
    Case::new(vec![("size".into(), size.into()), ("dtype".into(), "f32".into())])
}

pub fn result(size: i64, run: u32, outcome: Outcome) -> CaseResult {
    CaseResult::new("matmul", "cpu", case(size), run, "", outcome)
}

/// A process with these takes, which ended as asked.
pub fn took(wall_ns: Vec<u64>) -> Measured {
    Measured { stopped: StopReason::Takes(wall_ns.len()), wall_ns, ..Measured::default() }
}

pub fn measured(size: i64, run: u32, wall_ns: Vec<u64>) -> CaseResult {
    result(size, run, Outcome::Measured(took(wall_ns)))
}

/// Takes around a time that no test finds fault with: spread by 1 % without a trend.
pub fn steady(around: u64, count: usize) -> Vec<u64> {
    (0..count as u64).map(|take| around + around * (take * 7 % 11) / 1000).collect()
}

/// Processes around a time, each shifted by a share of itself.
pub fn processes(size: i64, around: u64, shifts: &[f64]) -> Vec<CaseResult> {
    let shifted =
        |(run, shift): (usize, &f64)| measured(size, run as u32, steady((around as f64 * (1.0 + shift)) as u64, 20));
    shifts.iter().enumerate().map(shifted).collect()
}

pub const QUIET: [f64; 6] = [-0.002, -0.001, 0.0, 0.0005, 0.001, 0.002];

/// The same results with the rate that follows from each time.
pub fn with_rate(mut results: Vec<CaseResult>) -> Vec<CaseResult> {
    for result in &mut results {
        if let Outcome::Measured(measured) = &mut result.outcome {
            let values = measured.wall_ns.iter().map(|&nanos| Some(1e9 / nanos as f64)).collect();
            measured.metrics.push(Metric { name: "tok_s".into(), better: Better::Higher, values });
        }
    }
    results
}

pub fn settings() -> Settings {
    Settings {
        warmup: WarmUp::Takes(1),
        stop: Stop::Takes(20),
        runs: 5,
        isolate: false,
        timeout_ns: None,
        cold: false,
        timing: Timing::Host,
        l2: None,
        depth: Depth::Pipeline,
    }
}

pub fn environment() -> Environment {
    Environment {
        machine: Machine { cpus: 4, memory_bytes: Some(16 << 30), os: "Linux".into(), ..Machine::default() },
        build: Build { opt_level: "3".into(), profile: "release".into(), ..Build::default() },
        load: Some(0.3),
        available_bytes: None,
    }
}

pub fn run() -> Run {
    Run {
        schema: SCHEMA,
        command: Vec::new(),
        started: String::new(),
        workload: "matmul".into(),
        device: "cpu".into(),
        axes: Vec::new(),
        cases: Vec::new(),
        settings: settings(),
        environment_fingerprint: String::new(),
        environment: environment(),
        peaks: None,
    }
}
