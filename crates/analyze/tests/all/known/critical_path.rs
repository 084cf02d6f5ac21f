//! The critical path and its predictions, on simulated programs: the change is made, and the program runs again.

use laptime_analyze::{Changes, PathKind, critical_path};
use laptime_trace::activity::category;

use super::simulated::{Change, Op, Random, run};

const US: u64 = 1_000;

/// Training steps: data, a copy, kernels, a sync, and host code.
fn training(random: &mut Random) -> Vec<Op> {
    let (kernels, kernel) = (random.within(10, 40), random.within(50, 400) * US);
    let [loading, python] = [random.within(200, 6_000) * US, random.within(50, 3_000) * US];
    let copy = random.within(100, 3_000) * US;
    let mut program = Vec::new();
    for _ in 0..20 {
        program.push(Op::Step);
        program.push(Op::Load { time: random.around(loading) });
        program.push(Op::Copy { stream: 0, time: random.around(copy), name: PINNED, bytes: 1 << 24 });
        for at in 0..kernels {
            let name = if at % 3 == 0 { "layer_norm" } else { "ampere_gemm" };
            program.push(Op::Kernel { stream: 0, time: random.around(kernel), name, call: 5 * US, grid: None });
        }
        program.push(Op::Sync { name: "cudaStreamSynchronize" });
        program.push(Op::Host { time: random.around(python), name: "log", category: category::PYTHON });
    }
    program
}

/// Decode steps with a graph each, a copy stream that prefetches, and a sync that reads the token.
fn decoding(random: &mut Random) -> Vec<Op> {
    let (kernels, kernel, copy) = (random.within(20, 100), random.within(5, 40) * US, random.within(50, 2_000) * US);
    let python = random.within(10, 800) * US;
    let mut program = Vec::new();
    for _ in 0..30 {
        program.push(Op::Step);
        program.push(Op::Copy { stream: 1, time: random.around(copy), name: PINNED, bytes: 1 << 24 });
        program.push(Op::StreamWait { stream: 0, on: 1 });
        program.push(Op::Graph { stream: 0, times: (0..kernels).map(|_| random.around(kernel)).collect(), pause: 900 });
        program.push(Op::Sync { name: "cudaStreamSynchronize" });
        program.push(Op::Host { time: random.around(python), name: "", category: "" });
    }
    program
}

const PINNED: &str = "Memcpy HtoD (Pinned -> Device)";

fn programs() -> Vec<(Vec<Op>, &'static str)> {
    let mut random = Random(7);
    let mut found = Vec::new();
    for _ in 0..20 {
        found.push((training(&mut random), "gemm"));
        found.push((decoding(&mut random), "gemv"));
    }
    found
}

/// The length of the recorded program, and the prediction for a change next to what the changed program takes.
fn predicted(program: &[Op], change: Change, changes: &Changes) -> (f64, f64, f64) {
    let (trace, wall) = run(&[0, 0], program, Change::default());
    let (_, changed) = run(&[0, 0], program, change);
    let answer = critical_path(&trace, changes).expect("there is device work");
    let prediction = answer.prediction.expect("there are changes").length;
    (wall as f64, prediction.0 as f64, changed as f64)
}

fn check(what: &str, change: impl Fn(&'static str) -> (Change, Changes)) {
    let mut matters = 0;
    for (at, (program, kernel)) in programs().into_iter().enumerate() {
        let (change, changes) = change(kernel);
        let (wall, predicted, changed) = predicted(&program, change, &changes);
        let error = (predicted - changed).abs() / changed;
        assert!(error <= 0.1, "{what} {at}: {wall} -> {changed}, predicted {predicted}");
        matters += u64::from(changed < 0.9 * wall);
    }
    assert!(matters >= 5, "{what} changes enough programs to be a test: {matters}");
}

#[test]
fn removing_syncs_takes_the_predicted_time() {
    check("without sync", |_| {
        let changes = Changes { without_sync: true, ..Changes::default() };
        (Change { without_sync: true, ..Change::default() }, changes)
    });
}

#[test]
fn faster_kernels_take_the_predicted_time() {
    check("faster", |kernel| {
        let changes = Changes { faster: vec![(kernel.to_owned(), 2.0)], ..Changes::default() };
        (Change { faster: Some((kernel, 2)), ..Change::default() }, changes)
    });
}

#[test]
fn hiding_copies_takes_the_predicted_time() {
    check("hidden copies", |_| {
        let changes = Changes { hide_copies: true, ..Changes::default() };
        (Change { hide_copies: true, ..Change::default() }, changes)
    });
}

#[test]
fn hidden_pageable_copies_still_cost_a_short_call() {
    let kernel = Op::Kernel { stream: 0, time: 400 * US, name: "ampere_gemm", call: 5 * US, grid: None };
    let copy = Op::Staged { stream: 0, staging: 900 * US, time: 20 * US };
    let program: Vec<Op> = (0..50).flat_map(|_| [copy.clone(), kernel.clone()]).collect();
    let changes = Changes { hide_copies: true, ..Changes::default() };
    let (wall, predicted, changed) = predicted(&program, Change { hide_copies: true, ..Change::default() }, &changes);
    assert!(changed < 0.5 * wall, "{changed} of {wall}");
    assert!((predicted - changed).abs() < 0.05 * changed, "{wall} -> {changed}, predicted {predicted}");
}

#[test]
fn removing_data_loading_takes_the_predicted_time() {
    check("without loading", |_| {
        let changes = Changes { without_loading: true, ..Changes::default() };
        (Change { without_loading: true, ..Change::default() }, changes)
    });
}

#[test]
fn several_changes_together_take_the_predicted_time() {
    check("all", |kernel| {
        let changes = Changes {
            without_sync: true,
            without_loading: true,
            faster: vec![(kernel.to_owned(), 2.0)],
            ..Changes::default()
        };
        (Change { without_sync: true, without_loading: true, faster: Some((kernel, 2)), hide_copies: false }, changes)
    });
}

#[test]
fn the_parts_of_the_path_add_up_to_the_recorded_time() {
    for (at, (program, _)) in programs().into_iter().enumerate() {
        let (trace, wall) = run(&[0, 0], &program, Change::default());
        let answer = critical_path(&trace, &Changes::default()).unwrap();
        let sum: u64 = answer.kinds.iter().map(|part| part.time.0).sum();
        assert_eq!(sum, answer.length.0, "{at}: {:?}", answer.kinds);
        // Host code before the first call and after the last end is not on the path.
        assert!(
            answer.length.0 <= wall && answer.length.0 as f64 > 0.9 * wall as f64,
            "{at}: {} of {wall}",
            answer.length.0
        );
    }
}

#[test]
fn the_limiting_kind_is_most_of_the_path() {
    let kernel = |time| Op::Kernel { stream: 0, time, name: "ampere_gemm", call: 5 * US, grid: None };
    let share = |program: &[Op], is_wanted: fn(PathKind) -> bool| {
        let answer = critical_path(&run(&[0, 0], program, Change::default()).0, &Changes::default()).unwrap();
        answer.kinds.iter().filter(|part| is_wanted(part.kind)).map(|part| part.share).sum::<f64>()
    };
    let busy: Vec<Op> = (0..100).map(|_| kernel(200 * US)).collect();
    assert!(share(&busy, |kind| matches!(kind, PathKind::Kernel(_))) > 0.95);
    let host: Vec<Op> =
        (0..100).flat_map(|_| [kernel(20 * US), Op::Host { time: 200 * US, name: "", category: "" }]).collect();
    assert!(share(&host, |kind| kind == PathKind::Host) > 0.85);
}
