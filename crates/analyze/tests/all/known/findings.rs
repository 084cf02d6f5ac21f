//! Findings of simulated programs: every fault alone, in pairs, and healthy programs, in several shapes.

use std::collections::{BTreeMap, BTreeSet};

use laptime_analyze::{Bottleneck, Severity, diagnose};
use laptime_trace::{
    Nanos, Trace, TraceBuilder,
    activity::category,
    run::{Bandwidth, PeakFlops, Peaks, SCHEMA, Traffic},
};

use super::simulated::{Change, Op, Random, run};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// What is planted. The word is the id of the finding.
const FAULTS: [&str; 19] = [
    "allocation-in-loop",
    "cold-start",
    "compute-bound",
    "data-loading",
    "device-copies",
    "exposed-communication",
    "exposed-copy",
    "host-starved",
    "interpreter-contention",
    "launch-bound",
    "low-occupancy",
    "memory-bound",
    "pageable-copy",
    "profiler-overhead",
    "rank-skew",
    "slow-laps",
    "sync-in-loop",
    "throttled",
    "tiny-kernels",
];

/// The shape of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Kernels of 50 to 400 µs.
    Training,
    /// Kernels of 15 to 40 µs, launched one by one.
    Decoding,
    /// A graph of kernels per step.
    Graphs,
    /// Training with a second stream whose copies are hidden.
    Streams,
    /// Training on two devices.
    Devices,
}

const SHAPES: [Shape; 5] = [Shape::Training, Shape::Decoding, Shape::Graphs, Shape::Streams, Shape::Devices];

/// Faults that make no sense in a shape, or that change it.
fn fits(shape: Shape, fault: &str) -> bool {
    match fault {
        "exposed-communication" | "rank-skew" => shape == Shape::Devices,
        "launch-bound" | "tiny-kernels" => shape == Shape::Decoding,
        "low-occupancy" | "throttled" | "compute-bound" | "memory-bound" => shape == Shape::Training,
        "cold-start" | "slow-laps" => shape != Shape::Devices,
        _ => true,
    }
}

struct Program {
    ops: Vec<Op>,
    /// The kernel time of a step on each stream.
    step: u64,
}

/// A program of 14 to 24 steps.
fn program(shape: Shape, faults: &[&str], random: &mut Random) -> Vec<Op> {
    let has = |fault: &str| faults.contains(&fault);
    let steps = random.within(14, 24);
    let (kernels, kernel, call) = match shape {
        Shape::Graphs => (random.within(40, 100), random.within(12, 40) * US, 5 * US),
        Shape::Decoding if has("tiny-kernels") => {
            (random.within(80, 160), random.within(2, 5) * US, random.within(6, 9) * US)
        }
        Shape::Decoding if has("launch-bound") => {
            (random.within(60, 150), random.within(14, 30) * US, random.within(40, 70) * US)
        }
        Shape::Decoding => (random.within(50, 120), random.within(15, 40) * US, 5 * US),
        _ => (random.within(15, 50), random.within(60, 400) * US, 5 * US),
    };
    // Launching takes longer than running.
    let step = kernels * kernel.max(call);
    let devices = if shape == Shape::Devices { 2 } else { 1 };
    let mut program = Program { ops: Vec::new(), step };
    // The queue is filled before the steps begin, as a real loop does after its first steps.
    for stream in 0..devices {
        program.ops.push(kernel_op(stream, 2 * MS, "gemm", 5 * US, None));
    }
    let python = random.within(5, 40) * US;
    for at in 0..steps {
        program.ops.push(Op::Step);
        program.before(at, faults, random);
        if shape == Shape::Streams {
            let (time, name) = (random.around(step / 5), "Memcpy HtoD (Pinned -> Device)");
            program.ops.push(Op::Copy { stream: 1, time, name, bytes: 1 << 26 });
        }
        program.kernels(shape, (kernels, kernel, call), (at, steps), faults, random);
        program.after(at, shape, faults, random);
        program.ops.push(Op::Host { time: random.around(python), name: "step", category: category::PYTHON });
    }
    program.ops.push(Op::Sync { name: "cudaDeviceSynchronize" });
    program.ops
}

fn kernel_op(stream: usize, time: u64, name: &'static str, call: u64, grid: Option<u64>) -> Op {
    Op::Kernel { stream, time, name, call, grid }
}

impl Program {
    /// A share of the kernel time of a step, from 20 to 60 %.
    fn share(&self, random: &mut Random) -> u64 {
        self.step * random.within(20, 60) / 100
    }

    fn before(&mut self, at: u64, faults: &[&str], random: &mut Random) {
        let has = |fault: &str| faults.contains(&fault);
        if has("cold-start") && at == 0 {
            let time = 10 * self.step;
            self.ops.push(Op::Host { time, name: "cuModuleLoadData", category: category::DRIVER });
        }
        if has("data-loading") {
            let time = self.step + self.share(random);
            self.ops.push(Op::Load { time });
        }
        if has("pageable-copy") {
            let (time, name) = (self.share(random), "Memcpy HtoD (Pageable -> Device)");
            self.ops.push(Op::Copy { stream: 0, time, name, bytes: 1 << 25 });
        }
        if has("exposed-copy") {
            let (time, name) = (self.share(random), "Memcpy HtoD (Pinned -> Device)");
            self.ops.push(Op::Copy { stream: 0, time, name, bytes: 1 << 25 });
        }
        if has("device-copies") {
            let (time, name) = (self.share(random), "Memcpy DtoD (Device -> Device)");
            self.ops.push(Op::Copy { stream: 0, time, name, bytes: 1 << 28 });
        }
    }

    fn kernels(
        &mut self,
        shape: Shape,
        (kernels, kernel, call): (u64, u64, u64),
        (at, steps): (u64, u64),
        faults: &[&str],
        random: &mut Random,
    ) {
        let has = |fault: &str| faults.contains(&fault);
        if shape == Shape::Graphs {
            let times = (0..kernels).map(|_| random.around(kernel)).collect();
            self.ops.push(Op::Graph { stream: 0, times, pause: 500 });
            return;
        }
        let slower = if has("throttled") { 100 + 40 * at / steps } else { 100 };
        let grid = if has("low-occupancy") { random.within(8, 40) } else { 1024 };
        for _ in 0..kernels {
            let time = random.around(kernel) * slower / 100;
            match () {
                () if has("compute-bound") => self.product(time, 4096, 4096),
                () if has("memory-bound") => self.product(time, 8, 8192),
                () => {
                    let late = if has("rank-skew") { 130 } else { 100 };
                    self.ops.push(kernel_op(0, time, "gemm", call, Some(grid)));
                    if shape == Shape::Devices {
                        self.ops.push(kernel_op(1, random.around(kernel) * late / 100, "gemm", call, Some(grid)));
                    }
                }
            }
        }
    }

    /// A product of (m, k) and (k, n) that takes about this long on the simulated device.
    fn product(&mut self, time: u64, m: u64, k: u64) {
        // 1 PFLOP/s and 4 TB/s; products reach 80 % of one of them.
        let n = match m {
            8 => (time as f64 * 4_000.0 * 0.8 / 2.0 / k as f64) as u64,
            _ => (time as f64 * 1e6 * 0.8 / 2.0 / (m * k) as f64) as u64,
        };
        self.ops.push(Op::Product { stream: 0, time, shapes: [[m, k], [k, n.max(1)]] });
    }

    fn after(&mut self, at: u64, shape: Shape, faults: &[&str], random: &mut Random) {
        let has = |fault: &str| faults.contains(&fault);
        if has("slow-laps") && at % 7 == 5 {
            let time = 2 * self.step + self.share(random);
            self.ops.push(kernel_op(0, time, "evaluate", 5 * US, None));
        }
        if has("exposed-communication") || has("rank-skew") {
            let time = if has("exposed-communication") { self.share(random) } else { 20 * US };
            self.ops.push(Op::Collective { time });
        }
        if has("sync-in-loop") {
            self.ops.push(Op::Sync { name: "cudaStreamSynchronize" });
            let time = self.share(random);
            self.ops.push(Op::Host { time, name: "logging.py(3): log", category: category::PYTHON });
        }
        let hidden = if shape == Shape::Devices { 2 } else { 1 };
        if has("host-starved") {
            let time = hidden * self.step + self.share(random).max(300 * US);
            self.ops.push(Op::Host { time, name: "tokenizer.py(9): encode", category: category::PYTHON });
        }
        if has("interpreter-contention") {
            let time = hidden * self.step + self.share(random).max(300 * US);
            self.ops.push(Op::Rival { time });
            self.ops.push(Op::Host { time, name: "train.py(9): step", category: category::PYTHON });
        }
        if has("profiler-overhead") {
            let time = hidden * self.step + self.share(random).max(300 * US);
            self.ops.push(Op::Host { time, name: "Activity Buffer Request", category: category::OVERHEAD });
        }
        if has("allocation-in-loop") {
            let time = self.share(random);
            self.ops.push(Op::Reallocate { time });
        }
    }
}

fn peaks() -> Peaks {
    Peaks {
        schema: SCHEMA,
        machine: String::new(),
        device: "gpu".into(),
        measured: String::new(),
        flops: vec![PeakFlops { dtype: "bf16".into(), flops_s: 1e15, median: None, size: 1, threads: 1 }],
        bandwidth: vec![Bandwidth { traffic: Traffic::Read, bytes_s: 4e12, median: None, bytes: 1, threads: 1 }],
        gpu: None,
    }
}

fn found(trace: &Trace) -> Vec<Bottleneck> {
    diagnose(Some(trace), &[], Some(&peaks())).findings
}

fn ids(findings: &[Bottleneck]) -> BTreeSet<&'static str> {
    findings.iter().map(|found| found.finding.rule).collect()
}

/// A healthy program, each fault alone in each shape that it fits, and pairs; with noise.
fn planted() -> Vec<(Shape, Vec<&'static str>, u64)> {
    let mut random = Random(2026);
    let mut found = Vec::new();
    for round in 0..10 {
        for shape in SHAPES {
            found.push((shape, vec![], random.next()));
        }
        for (at, fault) in FAULTS.into_iter().enumerate() {
            let shapes: Vec<Shape> = SHAPES.into_iter().filter(|shape| fits(*shape, fault)).collect();
            let shape = shapes[(round + at) % shapes.len()];
            found.push((shape, vec![fault], random.next()));
        }
        for (one, two) in PAIRS {
            let shapes: Vec<Shape> =
                SHAPES.into_iter().filter(|shape| fits(*shape, one) && fits(*shape, two)).collect();
            found.push((shapes[round % shapes.len()], vec![one, two], random.next()));
        }
    }
    found
}

/// Faults that do not hide each other.
const PAIRS: [(&str, &str); 8] = [
    ("data-loading", "exposed-copy"),
    ("exposed-copy", "sync-in-loop"),
    ("pageable-copy", "device-copies"),
    ("cold-start", "sync-in-loop"),
    ("exposed-communication", "device-copies"),
    ("slow-laps", "exposed-copy"),
    ("low-occupancy", "host-starved"),
    ("allocation-in-loop", "device-copies"),
];

#[test]
fn planted_faults_are_found_first_and_healthy_programs_have_no_findings() {
    let mut missed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut wrong: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let (mut hits, mut reported, mut all, mut count) = (0, 0, 0, 0);
    let (mut single, mut first) = (0, 0);
    for (shape, faults, seed) in planted() {
        count += 1;
        let devices: &[usize] = if shape == Shape::Devices { &[0, 1] } else { &[0, 0] };
        let (trace, _) = run(devices, &program(shape, &faults, &mut Random(seed)), Change::default());
        let findings = found(&trace);
        let seen = ids(&findings);
        let what = format!("{shape:?} {faults:?} -> {seen:?}");
        if faults.is_empty() {
            let bad: Vec<_> = findings.iter().filter(|found| found.severity == Severity::Bad).collect();
            assert!(bad.is_empty(), "a healthy program: {what}");
        }
        (all, reported) = (all + faults.len(), reported + seen.len());
        if let [fault] = faults.as_slice() {
            single += 1;
            first += u32::from(findings.first().is_some_and(|found| found.finding.rule == *fault));
        }
        for fault in &faults {
            if seen.contains(fault) {
                hits += 1;
            } else {
                missed.entry(fault).or_default().push(what.clone());
            }
        }
        for id in seen.iter().filter(|id| !faults.contains(id)) {
            wrong.entry(id).or_default().push(what.clone());
        }
        let sum: f64 = findings.iter().filter_map(|found| found.gain_ns).sum();
        let (first, last) = trace.bounds().unwrap();
        assert!(sum <= last.saturating_sub(first).0 as f64, "{what}: {sum}");
    }
    let [precision, recall] = [reported, all].map(|of| f64::from(hits) / of as f64);
    assert!(count >= 300, "{count} programs");
    assert!(f64::from(first) >= 0.95 * f64::from(single), "{first} of {single} single faults are the first finding");
    assert!(
        precision >= 0.95 && recall >= 0.95,
        "precision {precision}, recall {recall}\nmissed {missed:#?}\nwrong {wrong:#?}"
    );
}

#[test]
fn the_gain_of_a_fault_equals_the_time_saved_without_it() {
    for (fault, change) in [
        ("sync-in-loop", Change { without_sync: true, ..Change::default() }),
        ("data-loading", Change { without_loading: true, ..Change::default() }),
        ("exposed-copy", Change { hide_copies: true, ..Change::default() }),
    ] {
        for seed in 0..10 {
            let program = program(Shape::Training, &[fault], &mut Random(seed));
            let (trace, before) = run(&[0, 0], &program, Change::default());
            let (_, after) = run(&[0, 0], &program, change);
            let gain = found(&trace)[0].gain_ns.unwrap();
            let saved = (before - after) as f64;
            assert!((gain - saved).abs() <= 0.3 * saved, "{fault} {seed}: {gain} estimated, {saved} saved");
        }
    }
}

#[test]
fn work_without_launches_and_dropped_events_are_reported() {
    let program: Vec<Op> = (0..40).map(|_| Op::Unlaunched { stream: 0, time: 200 * US, pause: 150 * US }).collect();
    let (mut trace, _) = run(&[0, 0], &program, Change::default());
    trace.lost = 12;
    let findings = found(&trace);
    assert_eq!(ids(&findings), BTreeSet::from(["dropped-events", "unexplained-idle"]));
}

#[test]
fn one_stage_with_most_of_a_thread_without_devices_is_reported() {
    let of = |attention: u64| {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        for token in 0..20 {
            builder.span(main, Nanos(token * MS), Nanos(MS), "token", laptime_trace::LAP);
            builder.span(main, Nanos(token * MS), Nanos(attention), "attention", "");
            builder.span(main, Nanos(token * MS + attention), Nanos(MS / 5), "mlp", "");
        }
        ids(&found(&builder.build().unwrap()))
    };
    assert_eq!(of(7 * MS / 10), BTreeSet::from(["dominant-stage"]));
    assert_eq!(of(3 * MS / 10), BTreeSet::new());
}
