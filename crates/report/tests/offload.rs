//! Offloaded layers as tables and as the blocks of a console, compared with the files in `tests/data`.
//!
//! `LAPTIME_BLESS=1 cargo test -p laptime-report` writes the files anew.

#[allow(dead_code, reason = "other tests use more of it")]
mod blessed;
#[path = "../../../tests/made/offload.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod made;

use blessed::{compare, compare_others, compare_text};
use laptime_analyze::{Offload, OffloadFacts, Rates, Sizes, Thresholds, offload};
use laptime_report::{
    offload_text::{
        Generation, LayerLine, OffloadConfiguration, benchmark_comparison, generation_summary, offload_configuration,
        profiling_summary, share,
    },
    tables,
};
use laptime_trace::run::{Build, Environment, Gpu, Machine};
use made::{Made, Streaming};

/// Eight layers whose copies take six times as long as they compute.
fn slow_link() -> Offload {
    let sizes = Sizes {
        layers: 28,
        gpu_layers: 20,
        layer_bytes: 466_100_000,
        layer_flops: 932_000_000,
        forwards: 2,
        wraps: true,
        prefetches: true,
        diffusion_bytes: 13_386_000_000,
        other_bytes: 2_000_000_000,
        ..Sizes::default()
    };
    let facts = OffloadFacts {
        mode: Some("wrap".into()),
        dtype: Some("bfloat16".into()),
        link_kind: Some("pinned".into()),
        link_gbps: Some(16.0),
        audio_ns: Some(133.333e6),
        sizes: Some(sizes),
        rates: Some(Rates { link: 16e9, memory: 900e9, flops: 80e12 }),
        ..OffloadFacts::default()
    };
    let made = Made { layers: 8, copy: 30_000, bytes: 466_100_000, ..Made::default() };
    offload(&made.trace(), facts, Thresholds::default()).expect("layers are offloaded")
}

#[test]
fn the_diagnosis_of_a_slow_link_looks_right() {
    let table = tables::offload_findings(&slow_link());
    compare_text("diagnose", &table, 80);
    compare_text("diagnose", &table, 140);
    compare_others("diagnose", &table);
}

#[test]
fn layers_look_right() {
    let table = tables::offload_layers(&slow_link());
    compare_text("diagnose_layers", &table, 80);
    compare_text("diagnose_layers", &table, 140);
    compare_others("diagnose_layers", &table);
}

#[test]
fn the_parts_of_a_token_look_right() {
    let table = tables::offload_tokens(&slow_link());
    compare_text("diagnose_tokens", &table, 80);
    compare_others("diagnose_tokens", &table);
}

#[test]
fn a_healthy_run_is_told_as_such() {
    let healthy = offload(&Made::default().trace(), OffloadFacts::default(), Thresholds::default()).unwrap();
    let table = tables::offload_findings(&healthy);
    assert_eq!((table.rows.len(), table.notes.len()), (0, 1));
    assert!(table.notes[0].starts_with("Nothing holds it up"), "{:?}", table.notes);
    let made = Made { streaming: Streaming::Prefetch, ..Made::default() };
    let normal = offload(&made.trace(), OffloadFacts::default(), Thresholds::default()).unwrap();
    assert_eq!(tables::offload_findings(&normal).notes[0], "Nothing is bad.");
}

#[test]
fn the_summary_of_a_token_is_the_one_that_users_know() {
    let line =
        |layer, pre: f64, post: f64, is_async| LayerLine { layer, pre_ns: 1e6 * pre, post_ns: 1e6 * post, is_async };
    let mut layers = vec![line(0, 45.23, 0.12, true), line(1, 42.18, 0.1, true), line(2, 43.55, 0.11, true)];
    layers.push(line(3, 350.42, 0.09, false));
    layers.extend((4..8).map(|layer| line(layer, 41.0, 0.1, true)));
    let told = profiling_summary(10, &layers, &Thresholds::default(), None, None);
    assert!(
        told.contains("Async usage: 7/8 layers (87%)\n  Layer  0: Pre= 45.23ms  Post=  0.12ms  [ASYNC]\n"),
        "{told}"
    );
    assert!(told.contains("  Layer  3: Pre=350.42ms  Post=  0.09ms  [SYNC]  <-- PROBLEM!\n"), "{told}");
    compare("offload_profiling_summary.txt", &told);
}

#[test]
fn a_layer_is_a_problem_beyond_its_limits_alone() {
    let told = |pre: f64, post: f64| {
        let line = LayerLine { layer: 1, pre_ns: 1e6 * pre, post_ns: 1e6 * post, is_async: true };
        line.told(&Thresholds::default()).ends_with("  <-- PROBLEM!")
    };
    assert_eq!([told(300.0, 0.0), told(300.1, 0.0), told(0.0, 200.0), told(0.0, 200.1)], [false, true, false, true]);
}

#[test]
fn the_configuration_and_the_summaries_look_right() {
    let configuration = OffloadConfiguration {
        enabled: true,
        gpu_layers: 20,
        layers: 28,
        pin_memory: true,
        prefetch: true,
        async_transfer: true,
        cache_clear_interval: Some(50),
        is_gpu: true,
        mode: "wrap".into(),
        emulated_gbps: None,
        predicted: Some(10_500 << 20),
        budget: Some(24 << 30),
    };
    compare("offload_configuration.txt", &offload_configuration(&configuration));
    let offloaded = Generation {
        name: "20 GPU layers".into(),
        seconds: 65.0,
        audio_seconds: Some(50.0),
        prefilled: 412,
        generated: 375,
        is_gpu: true,
        memory: Some(10 << 30),
        memory_of: Some(24 << 30),
        predicted: Some(10_500 << 20),
        emulated_gbps: None,
        layers: Some((20, 8)),
        exposed_ns: Some(21e9),
        copy_ns: Some(30e6),
    };
    compare("offload_generation_summary.txt", &generation_summary(&offloaded));
    let resident = Generation {
        name: "no offload".into(),
        seconds: 44.0,
        audio_seconds: Some(50.0),
        is_gpu: true,
        memory: Some(14 << 30),
        ..Generation::default()
    };
    let told = benchmark_comparison(&[resident, offloaded]);
    assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
    compare("offload_benchmark_comparison.txt", &told);
}

#[test]
fn the_block_to_share_has_three_layers_and_the_machine() {
    let gpu = Gpu { name: "NVIDIA GeForce RTX 4090".into(), driver: Some("580.65".into()) };
    let machine =
        Machine { cpu: Some("AMD Ryzen 9".into()), os: "Linux".into(), gpus: vec![gpu], ..Machine::default() };
    let build =
        Build { version: "0.1.0".into(), commit: "abc1234".into(), profile: "release".into(), ..Build::default() };
    let environment = Environment { machine, build, ..Environment::default() };
    let told = share(&slow_link(), Some(120e6), Some(&environment));
    assert_eq!(told.matches("  Layer ").count(), 3);
    compare("offload_share.txt", &told);
}
