//! `laptime diagnose`, through the program, on runs with a known bottleneck.

use laptime_trace::{
    Nanos, TraceBuilder,
    run::{Case, CaseResult, Fact, Measured, Outcome},
};

use crate::common::{Place, Printed, assert_golden, data};

#[path = "../../../../tests/generated/offload.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod generated;

use generated::{OffloadTrace, Streaming};

/// Four layers whose copies take six times as long as they compute.
fn slow_link() -> OffloadTrace {
    OffloadTrace { tokens: 3, forwards: 1, copy: 30_000, ..OffloadTrace::default() }
}

fn with(made: OffloadTrace) -> Place {
    let place = Place::new();
    laptime_trace::write(&made.trace(), place.path("trace.json")).unwrap();
    place
}

/// The same as the folder of a run that says what it is.
fn folder(made: OffloadTrace) -> Place {
    let place = Place::new();
    std::fs::create_dir(place.path("run")).unwrap();
    laptime_trace::write(&made.trace(), place.path("run/trace.json")).unwrap();
    let facts = vec![
        Fact::new("mode", "wrap"),
        Fact::new("link_kind", "pinned"),
        Fact::new("link_gbps", laptime_trace::run::AxisValue::Float(3.4)),
        Fact::new("audio_ms", laptime_trace::run::AxisValue::Float(133.3)),
    ];
    let measured = Measured { wall_ns: vec![1_000_000], facts, ..Measured::default() };
    let result = CaseResult::new("offload", "cuda:0", Case::default(), 0, "", Outcome::Measured(measured));
    place.write("run/results.jsonl", serde_json::to_string(&result).unwrap() + "\n");
    place
}

#[test]
fn the_trace_of_the_page_is_the_one_of_these_tests() {
    let place = with(slow_link());
    assert_golden("diagnose/slow_link.json", &String::from_utf8(place.read("trace.json")).unwrap());
}

#[test]
fn a_diagnosis_looks_right_at_80_and_at_140_columns() {
    let place = with(slow_link());
    for width in ["80", "140"] {
        for (name, flag) in [("diagnose", None), ("layers", Some("--layers")), ("tokens", Some("--tokens"))] {
            let output = place.command().env("COLUMNS", width).args(["diagnose", "trace.json"]).args(flag).output();
            let printed = Printed::from(output.unwrap()).done();
            let limit = width.parse().unwrap();
            assert!(printed.lines().all(|line| line.chars().count() <= limit), "{printed}");
            assert_golden(&format!("diagnose/{name}_{width}.txt"), &printed);
        }
    }
}

#[test]
fn a_run_reports_its_link_rate_and_the_audio_per_token() {
    let place = folder(slow_link());
    let printed = place.laptime(["diagnose", "run", "--format", "json"]).done();
    assert!(
        printed.contains("\"link-bound\"") && printed.contains("\"rtf\"") && printed.contains("\"wrap\""),
        "{printed}"
    );
    let share = place.laptime(["diagnose", "run", "--share"]).done();
    assert_golden("diagnose/share.txt", &share);
}

#[test]
fn a_finding_fails_the_command_only_with_the_flag() {
    let place = with(slow_link());
    place.laptime(["diagnose", "trace.json"]).done();
    let strict = place.command().args(["diagnose", "trace.json", "--fail-on-finding"]).output().unwrap();
    assert_eq!(strict.status.code(), Some(1));
    let healthy = with(OffloadTrace::default());
    healthy.laptime(["diagnose", "trace.json", "--fail-on-finding"]).done();
}

#[test]
fn limits_can_be_set() {
    let place = with(OffloadTrace { streaming: Streaming::Prefetch, ..OffloadTrace::default() });
    let printed = place.laptime(["diagnose", "trace.json", "--format", "csv"]).done();
    assert!(printed.contains("first-layer-not-prefetched"), "{printed}");
    let loose = place.laptime(["diagnose", "trace.json", "--async-good", "75"]).done();
    assert!(loose.contains("No bottleneck found"), "{loose}");
}

#[test]
fn any_other_trace_is_diagnosed_too() {
    let place = Place::new();
    let trace = data("kineto/cuda_graph.json");
    let output = place.command().env("COLUMNS", "80").arg("diagnose").arg(&trace).output().unwrap();
    assert_golden("diagnose/other_80.txt", &Printed::from(output).done());
    let message = place.laptime(["diagnose".as_ref(), trace.as_os_str(), "--layers".as_ref()]).failed();
    assert!(message.contains("has no offloaded layers"), "{message}");
}

#[test]
fn a_folder_without_a_run_is_an_error_with_a_hint() {
    let place = Place::new();
    std::fs::create_dir(place.path("empty")).unwrap();
    let message = place.laptime(["diagnose", "empty"]).failed();
    assert!(message.contains("contains no run") && message.contains("results.jsonl"), "{message}");
}

#[test]
fn a_trace_of_the_host_only_gives_a_hint() {
    let place = Place::new();
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    builder.span(main, Nanos(0), Nanos(10), "load", "");
    laptime_trace::write(&builder.build().unwrap(), place.path("host.json")).unwrap();
    let printed = place.laptime(["diagnose", "host.json"]).done();
    assert!(printed.contains("`laptime stages`"), "{printed}");
}

/// Ten steps that each end in a sync after which the device is idle.
fn syncing(place: &Place) {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let stream = builder.stream(1, 7, "stream 7");
    for step in 0..10_u64 {
        let at = 1_000_000 * step;
        let call = builder.span(main, Nanos(at), Nanos(5_000), "cudaLaunchKernel", "cuda_runtime");
        let kernel = builder.span(stream, Nanos(at + 10_000), Nanos(500_000), "gemm", "kernel");
        builder.flow(call, kernel);
        builder.span(main, Nanos(at + 6_000), Nanos(506_000), "cudaStreamSynchronize", "cuda_runtime");
    }
    laptime_trace::write(&builder.build().unwrap(), place.path("sync.json")).unwrap();
}

#[test]
fn a_denied_finding_and_one_over_its_budget_exit_with_1_and_are_named() {
    let place = Place::new();
    syncing(&place);
    let gate = |flags: &[&str]| {
        let output = place.command().args(["diagnose", "sync.json"]).args(flags).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, message) = gate(&["--deny", "data-loading,sync-in-loop"]);
    assert!(status == Some(1) && message.contains("`sync-in-loop` is denied: Device"), "{message}");
    let (status, message) = gate(&["--budget", "sync-in-loop=10%"]);
    assert!(
        status == Some(1) && message.contains("`sync-in-loop` is over budget: ") && message.contains("10.0 %"),
        "{message}"
    );
    let (status, message) = gate(&["--budget", "sync-in-loop=2"]);
    assert!(status == Some(1) && message.contains("budget 2.000 ms"), "{message}");
    for flags in [["--deny", "data-loading"], ["--budget", "sync-in-loop=99%"], ["--budget", "sync-in-loop=900ms"]] {
        assert_eq!(gate(&flags), (Some(0), String::new()), "{flags:?}");
    }
    // An old name means the finding that replaced it, and a threshold can hide it.
    assert_eq!(gate(&["--deny", "sync-bound"]).0, Some(1));
    assert_eq!(gate(&["--deny", "sync-in-loop", "--threshold", "sync-in-loop=90"]).0, Some(0));
    for flags in [["--deny", "sync-in-lop"], ["--budget", "sync-in-loop"], ["--threshold", "sync-in-loop=200"]] {
        let (status, message) = gate(&flags);
        assert!(status == Some(2) && message.contains("hint: "), "{message}");
    }
}

#[test]
fn json_has_evidence_with_times_a_gain_with_its_reasoning_and_fixes_per_framework() {
    let place = Place::new();
    syncing(&place);
    let printed = place.laptime(["diagnose", "sync.json", "--format", "json"]).done();
    let answer: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let first = &answer["findings"][0];
    assert_eq!((first["id"].as_str(), first["severity"].as_str()), (Some("sync-in-loop"), Some("bad")), "{printed}");
    let span = &first["evidence"][0];
    assert_eq!((span["track"].as_str(), span["name"].as_str()), (Some("main"), Some("cudaStreamSynchronize")));
    assert!(span["start_ns"].as_u64() < span["end_ns"].as_u64(), "{span}");
    let gain = &first["gain"];
    assert!(gain["ns"].as_f64() > Some(4e6) && gain["reasoning"].as_str().unwrap().contains("replayed"), "{gain}");
    let frameworks: Vec<_> = first["fixes"].as_array().unwrap().iter().map(|fix| fix["framework"].as_str()).collect();
    assert_eq!(frameworks, [Some("any"), Some("PyTorch"), Some("JAX"), Some("candle")]);
    let explained = place.laptime(["explain", "sync-in-loop"]).done();
    assert!(explained.contains("PyTorch: ") && explained.contains("--threshold sync-in-loop="), "{explained}");
}
