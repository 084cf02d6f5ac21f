//! `laptime critical-path`, through the program.

use laptime_trace::{Nanos, TraceBuilder};

use crate::common::{Place, Printed};

/// Ten steps: a kernel of 500 µs, a sync, and 400 µs of host code.
fn syncing(place: &Place) {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let stream = builder.stream(1, 7, "stream 7");
    for step in 0..10_u64 {
        let at = 1_000_000 * step;
        let call = builder.span(main, Nanos(at), Nanos(5_000), "cudaLaunchKernel", "cuda_runtime");
        let kernel = builder.span(stream, Nanos(at + 10_000), Nanos(500_000), "ampere_gemm", "kernel");
        builder.flow(call, kernel);
        builder.span(main, Nanos(at + 6_000), Nanos(506_000), "cudaStreamSynchronize", "cuda_runtime");
    }
    laptime_trace::write(&builder.build().unwrap(), place.path("sync.json")).unwrap();
}

fn json(printed: &str) -> serde_json::Value {
    serde_json::from_str(printed).unwrap()
}

#[test]
fn the_path_has_a_row_per_kind_and_they_add_up() {
    let place = Place::new();
    syncing(&place);
    let answer = json(&place.laptime(["critical-path", "sync.json", "--format", "json"]).done());
    let rows = answer["path"].as_array().unwrap();
    assert_eq!(rows[0]["kind"], "kernel: matmul");
    let sum: f64 = rows.iter().map(|row| row["time_ms"].as_f64().unwrap()).sum();
    assert!((sum - answer["length_ms"].as_f64().unwrap()).abs() < 1e-6, "{answer}");
    assert!(rows.iter().any(|row| row["kind"] == "host code"), "{answer}");
}

#[test]
fn changes_are_predicted_with_their_assumptions() {
    let place = Place::new();
    syncing(&place);
    let predicted = |flags: &[&str]| {
        let output = place.command().args(["critical-path", "sync.json", "--format", "json"]).args(flags).output();
        let answer = json(&Printed::from(output.unwrap()).done());
        assert!(answer["notes"].to_string().contains("Assumes: "), "{answer}");
        answer["predicted_ms"].as_f64().unwrap()
    };
    // Without syncs the kernels run one after another: 10 × 0.5 ms; with faster kernels each step saves 0.25 ms.
    let without = predicted(&["--without", "sync"]);
    assert!((5.0..5.3).contains(&without), "{without}");
    let faster = predicted(&["--faster", "matmul=2x"]);
    assert!((7.0..7.1).contains(&faster), "{faster}");
}

#[test]
fn a_name_that_matches_nothing_and_a_bad_factor_are_refused_with_a_hint() {
    let place = Place::new();
    syncing(&place);
    let message = place.laptime(["critical-path", "sync.json", "--faster", "softmax=2x"]).failed();
    assert!(message.contains("no kernel or copy matches `softmax`") && message.contains("`attention`"), "{message}");
    for word in ["matmul", "matmul=0", "matmul=fast"] {
        let message = place.laptime(["critical-path", "sync.json", "--faster", word]).failed();
        assert!(message.contains("--faster matmul=2x"), "{message}");
    }
}
