//! Offloaded layers as tables and as the blocks of a console, compared with the files in `tests/data`.
//!
//! `LAPTIME_BLESS=1 cargo test -p laptime-report` writes the files anew.

use crate::blessed::{compare, compare_others, compare_text};
use crate::generated::{OffloadTrace as Fixture, Streaming};
use laptime_analyze::{ExperimentLimits, Offload, OffloadFacts, Rates, Sizes, Thresholds, Trial, experiment, offload};
use laptime_report::{
    offload_text::{
        Generation, LayerLine, OffloadConfiguration, benchmark_comparison, expected_timing, generation_summary,
        offload_configuration, profiling_summary, share, time_breakdown,
    },
    tables::{self, TrialRow},
};
use laptime_trace::run::{Build, Environment, Gpu, Machine};

/// Eight layers whose copies take six times as long as their compute.
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
    let made = Fixture { layers: 8, copy: 30_000, bytes: 466_100_000, ..Fixture::default() };
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
fn a_healthy_run_has_no_bottleneck() {
    let healthy = offload(&Fixture::default().trace(), OffloadFacts::default(), Thresholds::default()).unwrap();
    let table = tables::offload_findings(&healthy);
    assert_eq!((table.rows.len(), table.notes.len()), (0, 1));
    assert!(table.notes[0].starts_with("No bottleneck found: "), "{:?}", table.notes);
    let made = Fixture { streaming: Streaming::Prefetch, ..Fixture::default() };
    let normal = offload(&made.trace(), OffloadFacts::default(), Thresholds::default()).unwrap();
    assert_eq!(tables::offload_findings(&normal).notes[0], "No bottleneck found.");
}

#[test]
fn the_token_summary_matches_the_vibevoice_output() {
    let line =
        |layer, pre: f64, post: f64, is_async| LayerLine { layer, pre_ns: 1e6 * pre, post_ns: 1e6 * post, is_async };
    let mut layers = vec![line(0, 45.23, 0.12, true), line(1, 42.18, 0.1, true), line(2, 43.55, 0.11, true)];
    layers.push(line(3, 350.42, 0.09, false));
    layers.extend((4..8).map(|layer| line(layer, 41.0, 0.1, true)));
    let text = profiling_summary(10, &layers, &Thresholds::default(), None, None);
    assert!(
        text.contains("Async usage: 7/8 layers (87%)\n  Layer  0: Pre= 45.23ms  Post=  0.12ms  [ASYNC]\n"),
        "{text}"
    );
    assert!(text.contains("  Layer  3: Pre=350.42ms  Post=  0.09ms  [SYNC]  <-- PROBLEM!\n"), "{text}");
    compare("offload_profiling_summary.txt", &text);
}

#[test]
fn a_layer_is_a_problem_only_beyond_its_limits() {
    let text = |pre: f64, post: f64| {
        let line = LayerLine { layer: 1, pre_ns: 1e6 * pre, post_ns: 1e6 * post, is_async: true };
        line.line(&Thresholds::default()).ends_with("  <-- PROBLEM!")
    };
    assert_eq!([text(300.0, 0.0), text(300.1, 0.0), text(0.0, 200.0), text(0.0, 200.1)], [false, true, false, true]);
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
        iterations: 1,
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
    let text = benchmark_comparison(&[resident, offloaded]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    compare("offload_benchmark_comparison.txt", &text);
}

#[test]
fn without_a_gpu_the_text_mentions_a_file_instead() {
    let configuration = OffloadConfiguration {
        enabled: true,
        gpu_layers: 2,
        layers: 4,
        prefetch: true,
        async_transfer: true,
        mode: "wrap".into(),
        emulated_gbps: Some(0.5),
        predicted: Some(31 << 20),
        budget: Some(20 << 30),
        ..OffloadConfiguration::default()
    };
    let resident = OffloadConfiguration { enabled: false, gpu_layers: 4, ..configuration.clone() };
    let row = |name: &str, seconds, stay: u64| Generation {
        name: name.into(),
        seconds,
        audio_seconds: Some(2.0),
        prefilled: 405,
        generated: 15,
        memory: Some(30 << 20),
        predicted: Some(31 << 20),
        emulated_gbps: (stay < 4).then_some(0.5),
        layers: Some((stay, 4 - stay)),
        exposed_ns: (stay < 4).then_some(2e8),
        copy_ns: (stay < 4).then_some(4e6),
        ..Generation::default()
    };
    let rows = [row("no offload", 1.0, 4), row("2 layers in memory, wrap", 1.5, 2)];
    let token = profiling_summary(15, &[], &Thresholds::default(), Some(12.5e6), None);
    let text = [
        offload_configuration(&configuration),
        offload_configuration(&resident),
        generation_summary(&rows[1]),
        benchmark_comparison(&rows),
        token,
    ]
    .concat();
    assert!(!text.contains("GPU") && !text.contains("VRAM") && text.lines().all(|line| line.len() <= 80), "{text}");
    compare("offload_without_gpu.txt", &text);
}

#[test]
fn measured_times_are_next_to_expected_times_and_the_lower_bound() {
    let answer = slow_link();
    compare("offload_expected.txt", &expected_timing(&answer.expected.unwrap()));
    compare("offload_time_breakdown.txt", &time_breakdown(&answer));
    let plain = OffloadFacts { link_kind: Some("emulated".into()), link_gbps: Some(0.5), ..OffloadFacts::default() };
    let text = time_breakdown(&offload(&Fixture::default().trace(), plain, Thresholds::default()).unwrap());
    assert!(text.contains("Link: emulated, 0.5 GB/s") && text.lines().all(|line| line.len() <= 80), "{text}");
    compare("offload_time_breakdown_emulated.txt", &text);
}

#[test]
fn an_experiment_shows_its_ratios() {
    let trial = |layers, token: f64, exposed: Option<f64>| Trial {
        layers,
        token_ns: 1e6 * token,
        exposed_ns: exposed.map(|ms| 1e6 * ms),
        copied_ns: exposed.map(|ms| 1.1e6 * ms),
    };
    let (some, all, more) = (trial(20, 400.0, Some(290.0)), trial(28, 100.0, None), trial(24, 250.0, Some(140.0)));
    let row = |name, trial: Option<Trial>, layers| TrialRow {
        name,
        layers,
        reason: trial.is_none().then(|| "it does not fit, it needs 18.7 GiB and there are 9.5".to_owned()),
        trial,
    };
    let answer = experiment(&some, Some(&all), Some(&more), ExperimentLimits::default());
    let rows = [row("as asked", Some(some), 20), row("no offload", Some(all), 28), row("more layers", Some(more), 24)];
    let table = tables::experiment(&rows, &answer, None);
    compare_text("experiment", &table, 80);
    compare_text("experiment", &table, 140);
    compare_others("experiment", &table);
    let answer = experiment(&some, None, Some(&more), ExperimentLimits::default());
    let rows = [row("as asked", Some(some), 20), row("no offload", None, 28), row("more layers", Some(more), 24)];
    let table = tables::experiment(&rows, &answer, Some(0.5));
    assert!(table.notes[0].starts_with("`no offload` could not run: it does not fit"), "{:?}", table.notes);
    compare_text("experiment_without_baseline", &table, 80);
}

#[test]
fn the_shareable_block_has_three_layers_and_the_machine() {
    let gpu = Gpu { name: "NVIDIA GeForce RTX 4090".into(), driver: Some("580.65".into()) };
    let machine =
        Machine { cpu: Some("AMD Ryzen 9".into()), os: "Linux".into(), gpus: vec![gpu], ..Machine::default() };
    let build =
        Build { version: "0.1.0".into(), commit: "abc1234".into(), profile: "release".into(), ..Build::default() };
    let environment = Environment { machine, build, ..Environment::default() };
    let text = share(&slow_link(), Some(120e6), Some(&environment));
    assert_eq!(text.matches("  Layer ").count(), 6, "three layers, for each of two forward passes");
    assert_eq!(text.matches("transformer_negative").count(), 3);
    compare("offload_share.txt", &text);
}
