//! Made-up results of realistic size, the same at every call.

use laptime_analyze::{ColdProcess, cold_start};
use laptime_trace::{
    LAP, Nanos, Trace, TraceBuilder,
    run::{
        AxisValue, Bandwidth, Better, Build, Case, CaseResult, Depth, DeviceState, Environment, Machine, Measured,
        Metric, Outcome, PeakFlops, Peaks, Run, SCHEMA, Settings, Stop, StopReason, Timing, Traffic, WarmUp, Work,
    },
};

/// A case of a workload `model` with the axes of a language model.
pub fn case(attention: &str, seq_len: i64) -> Case {
    let values: [(&str, AxisValue); 6] = [
        ("model", "tiny".into()),
        ("attention", attention.into()),
        ("seq_len", seq_len.into()),
        ("batch_size", 1.into()),
        ("dtype", "f32".into()),
        ("pass_type", "forward".into()),
    ];
    Case::new(values.into_iter().map(|(axis, value)| (axis.to_owned(), value)).collect())
}

pub fn result(case: Case, run: u32, outcome: Outcome) -> CaseResult {
    CaseResult::new("model", "cpu", case, run, "8d3f0c", outcome)
}

/// A number from 0 to 1 that looks like chance.
pub fn chance(seed: u64) -> f64 {
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
}

/// Takes around a time, spread by a share, those of a process shifted together.
pub fn takes(around_ns: f64, run: u32, count: u64, spread: f64) -> Vec<u64> {
    let process = 1.0 + 0.012 * (chance(u64::from(run) * 977 + around_ns as u64) - 0.5);
    let noise = |take: u64| 1.0 + spread * (chance(take * 31 + u64::from(run) * 7919 + around_ns as u64) - 0.5);
    (0..count).map(|take| (around_ns * process * noise(take)) as u64).collect()
}

/// A process that took these takes for so many tokens.
pub fn measured(wall_ns: Vec<u64>, tokens: f64, work: Work) -> Measured {
    let rate = |nanos: &u64| Some(tokens / (*nanos as f64 / 1e9));
    let first = |nanos: &u64| Some(*nanos as f64 / 1e6 * 0.31);
    Measured {
        prepare_ns: 41_200_000,
        check_ns: 2 * wall_ns[0],
        warmup_ns: vec![3 * wall_ns[0], wall_ns[0] + wall_ns[0] / 50],
        metrics: vec![
            Metric { name: "tok_s".into(), better: Better::Higher, values: wall_ns.iter().map(rate).collect() },
            Metric { name: "ttft_ms".into(), better: Better::Lower, values: wall_ns.iter().map(first).collect() },
        ],
        stopped: StopReason::Narrow { reach: 0.009 },
        peak_bytes: Some(118_489_088),
        peak_rss_bytes: Some(201_326_592),
        work: Some(work),
        wall_ns,
        ..Measured::default()
    }
}

pub fn work(seq_len: u64) -> Work {
    let bytes = 14_000_000 + seq_len * 4_096;
    Work { flops: seq_len * 28_000_000, dtype: "f32".into(), bytes, traffic: Traffic::Read }
}

/// Six processes of a sweep with everything that may become of a case.
pub fn sweep() -> Vec<CaseResult> {
    let mut results = Vec::new();
    for run in 0..6 {
        for (attention, seq_len, around) in
            [("dense", 128, 52.1e6), ("dense", 512, 231.4e6), ("sparse", 128, 49.8e6), ("sparse", 512, 180.2e6)]
        {
            let mut wall = takes(around, run, 20, 0.01);
            if seq_len == 512 && attention == "dense" {
                wall[7] += wall[7] * 4 / 5;
            }
            let measured = measured(wall, seq_len as f64, work(seq_len));
            results.push(result(case(attention, seq_len as i64), run, Outcome::Measured(measured)));
        }
        results.push(result(case("dense", 65_536), run, no_room()));
        let skipped = Outcome::Skipped { reason: "a sparse pattern needs more than one block".into() };
        results.push(result(case("sparse", 32), run, skipped));
    }
    let errors = vec!["the check failed".to_owned(), "logit 17 is 0.31, expected 0.29".to_owned()];
    results[15].outcome = Outcome::Failed { errors, wall_ns: vec![] };
    results
}

fn no_room() -> Outcome {
    Outcome::OutOfMemory { needed_bytes: Some(19_756_849_562), available_bytes: Some(6_335_076_762) }
}

/// Two kinds of attention over four lengths: dense grows towards N², naive keeps its scores, sparse grows as N.
pub fn kinds_over_lengths() -> Vec<CaseResult> {
    let mut results = Vec::new();
    for length in [512_u64, 1024, 2048, 4096] {
        let n = length as f64;
        let kinds = [
            ("dense", 9e3 * n + 25.0 * n * n, 4096.0 * n),
            ("naive", 9e3 * n + 31.0 * n * n, 4096.0 * n + 64.0 * n * n),
            ("sparse", 41e3 * n, 4400.0 * n),
        ];
        for (attention, around, bytes) in kinds {
            let work = Work { flops: length * 28_000_000 + length * length * 24_000, ..work(length) };
            let mut of_case = measured(takes(around, 0, 20, 0.02), n, work);
            of_case.peak_bytes = Some(bytes as u64);
            results.push(result(case(attention, length as i64), 0, Outcome::Measured(of_case)));
        }
    }
    results.push(result(case("naive", 8192), 0, no_room()));
    results
}

/// Two prompts joined through caches, each against texts of four lengths.
pub fn caches_against_texts() -> Vec<CaseResult> {
    let mut results = Vec::new();
    for (prompt, caches) in [(512_i64, 11.2), (2048, 39.4)] {
        for tokens in [1_i64, 2, 4, 16] {
            let text = 0.8 * caches + 2.3 * (tokens - 1) as f64;
            let around =
                |middle: f64| takes(middle * 1e6, tokens as u32, 20, 0.02).into_iter().map(|nanos| nanos as f64 / 1e6);
            let metric = |name: &str, values: Vec<f64>| Metric {
                name: name.into(),
                better: Better::Lower,
                values: values.into_iter().map(Some).collect(),
            };
            let (own, other): (Vec<f64>, Vec<f64>) = (around(caches).collect(), around(text).collect());
            let over = |times: &[f64]| times.iter().zip(&own).map(|(time, own)| time / own).collect();
            let alone: Vec<f64> = own.iter().map(|time| time / 5.0).collect();
            let metrics = vec![
                metric("text_over_c2c", over(&other)),
                metric("alone_over_c2c", over(&alone)),
                metric("alone_ttft_ms", alone),
                metric("text_ttft_ms", other),
                metric("ttft_ms", own.clone()),
            ];
            let measured = Measured { wall_ns: vec![1; 20], metrics, ..Measured::default() };
            let values = [("prompt_tokens", prompt.into()), ("against", "text".into()), ("text_tokens", tokens.into())];
            let case = Case::new(values.map(|(axis, value)| (axis.to_owned(), value)).to_vec());
            results.push(CaseResult::new("c2c", "cuda:0", case, 0, "", Outcome::Measured(measured)));
        }
    }
    results
}

/// One case on a GPU with a clock of its own, which held that down in three takes.
pub fn on_a_gpu() -> Vec<CaseResult> {
    let wall = takes(52.1e6, 0, 30, 0.01);
    let state = |take: usize| DeviceState {
        clock_mhz: Some(if take < 3 { 1410.0 } else { 1980.0 }),
        power_watts: Some(612.5),
        temperature_c: Some(54.0),
        throttled: if take < 3 { vec!["it draws as much power as it may".into()] } else { vec![] },
    };
    let device_ns = wall.iter().map(|&nanos| Some(nanos - nanos / 20)).collect();
    let states = (0..wall.len()).map(state).collect();
    let measured = Measured { device_ns, states, ..measured(wall, 128.0, work(128)) };
    vec![CaseResult { device: "cuda:0".into(), ..result(case("dense", 128), 0, Outcome::Measured(measured)) }]
}

/// One case, measured in one process without warm-up.
pub fn single() -> Vec<CaseResult> {
    let mut wall = takes(52.1e6, 0, 30, 0.01);
    (wall[0], wall[1]) = (183_000_000, 71_000_000);
    let measured = Measured { warmup_ns: vec![], ..measured(wall, 128.0, work(128)) };
    vec![result(case("dense", 128), 0, Outcome::Measured(measured))]
}

/// The sweep after a change: sparse attention is slower at 512, one case is gone, another fits no more.
pub fn changed_sweep() -> Vec<CaseResult> {
    let mut results = Vec::new();
    for run in 0..6 {
        for (attention, seq_len, around) in
            [("dense", 128, 52.3e6), ("dense", 512, 212.9e6), ("sparse", 512, 196.6e6), ("sparse", 2048, 702.0e6)]
        {
            let measured = measured(takes(around, run + 40, 20, 0.01), seq_len as f64, work(seq_len));
            results.push(result(case(attention, seq_len as i64), run, Outcome::Measured(measured)));
        }
        results.push(result(case("sparse", 128), run, no_room()));
        results.push(result(case("dense", 65_536), run, no_room()));
    }
    results
}

/// Three fresh processes of two cases, all takes counted: one warms up, one does so and drifts in one process.
pub fn cold() -> Vec<CaseResult> {
    let mut results = Vec::new();
    for run in 0..3 {
        for (seq_len, around) in [(128, 52.1e6), (512, 231.4e6)] {
            let mut wall = takes(around, run, 40, 0.01);
            for (take, factor) in [5.9, 1.8, 1.31, 1.12].into_iter().enumerate().take(2 + run as usize) {
                wall[take] = (around * factor) as u64;
            }
            if (seq_len, run) == (512, 2) {
                wall.iter_mut().enumerate().for_each(|(take, wall)| *wall += *wall / 100 * take as u64);
            }
            let measured = Measured { warmup_ns: vec![], ..measured(wall, 128.0, work(128)) };
            results.push(result(case("dense", seq_len), run, Outcome::Measured(measured)));
        }
    }
    results
}

/// A study of warm-ups on a GPU: 0, 1, 5 and 10 of them in two fresh processes each, and what those paid for.
pub fn study() -> (Vec<(usize, Vec<CaseResult>)>, Vec<ColdProcess>) {
    let case = case("naive", 512).with("pass_type", "forward_backward");
    let mut cold = Vec::new();
    let mut process = |number: usize, run: u32| {
        let mut takes = takes(61.3e6, run + 7 * number as u32, number as u64 + 10, 0.01);
        (takes[0], takes[1]) = (412_000_000 + 1_000_000 * u64::from(run), 66_000_000);
        cold.push(ColdProcess { case: case.clone(), start: cold_start(&cold_trace(&takes)).expect("there are takes") });
        let counted = takes.split_off(number);
        let measured = Measured { warmup_ns: takes, ..measured(counted, 2048.0, work(512)) };
        CaseResult { device: "cuda:0".into(), ..result(case.clone(), run, Outcome::Measured(measured)) }
    };
    let rows = [0, 1, 5, 10].map(|number| (number, (0..2).map(|run| process(number, run)).collect()));
    (rows.into(), cold)
}

/// The trace of a fresh process on a GPU.
fn cold_trace(takes: &[u64]) -> Trace {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let mut stage = |name: &str, start: u64, nanos: u64| {
        builder.span(main, Nanos(start), Nanos(nanos), name, "");
    };
    let ms = 1_000_000;
    stage("open_device", 0, 310 * ms);
    stage("context", 10 * ms, 250 * ms);
    stage("prepare", 312 * ms, 2_100 * ms);
    stage("load_weights", 313 * ms, 2_090 * ms);
    stage("load_library", 320 * ms, 90 * ms);
    for text in 0..26 {
        stage("compile", (420 + 60 * text) * ms, 55 * ms);
        stage("load", (475 + 60 * text) * ms, ms);
    }
    stage("allocate", 2_100 * ms, 14 * ms);
    let mut at = 2_420 * ms;
    for (take, &nanos) in takes.iter().enumerate() {
        let span = |builder: &mut TraceBuilder, start, nanos, name, category| {
            builder.span(main, Nanos(start), Nanos(nanos), name, category);
        };
        span(&mut builder, at, nanos, "take", LAP);
        span(&mut builder, at, nanos / 3, "forward", "");
        span(&mut builder, at + nanos / 3, nanos / 2, "backward", "");
        for size in 0..if take == 0 { 11 } else { 0 } {
            span(&mut builder, at + 12 * ms * size, 11 * ms, "first_product", "");
        }
        at += nanos + ms;
    }
    builder.build().expect("the spans are in order")
}

pub fn peaks() -> Peaks {
    let flops = PeakFlops { dtype: "f32".into(), flops_s: 112.3e9, median: Some(111.8e9), size: 2048, threads: 2 };
    let bandwidth =
        Bandwidth { traffic: Traffic::Read, bytes_s: 21.3e9, median: Some(21.0e9), bytes: 1 << 28, threads: 2 };
    Peaks {
        schema: SCHEMA,
        machine: "3c1a".into(),
        device: "cpu".into(),
        measured: "2026-11-14T09:12:00Z".into(),
        flops: vec![flops],
        bandwidth: vec![bandwidth],
        gpu: None,
    }
}

pub fn settings(runs: u32, warmup: usize) -> Settings {
    let stop = Stop::Interval { within: 0.02, at_least: 20, least_ns: 0, at_most_ns: 5_000_000_000 };
    Settings {
        warmup: WarmUp::Takes(warmup),
        stop,
        runs,
        isolate: false,
        timeout_ns: None,
        cold: false,
        timing: Timing::Host,
        l2: None,
        depth: Depth::Pipeline,
    }
}

pub fn environment(commit: &str) -> Environment {
    Environment {
        machine: Machine { cpu: Some("AMD EPYC 9V74".into()), cpus: 2, os: "Linux".into(), ..Machine::default() },
        build: Build { commit: commit.into(), opt_level: "3".into(), profile: "release".into(), ..Build::default() },
        load: Some(0.4),
        available_bytes: Some(6_335_076_762),
    }
}

pub fn run(commit: &str, governor: &str) -> Run {
    let mut environment = environment(commit);
    environment.machine.governor = Some(governor.into());
    Run {
        schema: SCHEMA,
        command: vec!["laptime".into(), "bench".into(), "model".into()],
        started: "2026-11-14T10:00:00Z".into(),
        workload: "model".into(),
        device: "cpu".into(),
        axes: Vec::new(),
        cases: Vec::new(),
        settings: settings(5, 2),
        environment_fingerprint: "8d3f0c".into(),
        environment,
        peaks: None,
    }
}
