//! `laptime report`, through the program: generated runs, profiles of Nano XYZ, and invalid input.

use std::{collections::BTreeMap, path::Path};

use crate::common::{Place, assert_golden, data};

/// The charts that there is something to draw of in the made-up runs.
const CHARTS: [&str; 7] = [
    "attention_latency",
    "attention_memory",
    "attention_efficiency",
    "model_performance",
    "crossover",
    "warmup_laps",
    "roofline",
];

fn runs() -> [String; 3] {
    ["attention", "model", "warmup"].map(|name| data(&format!("report/{name}")).display().to_string())
}

/// Writes a report of some runs; returns the standard output.
fn report(place: &Place, runs: &[String], out: &str) -> String {
    let words = ["report".to_owned()].into_iter().chain(runs.iter().cloned()).chain(["--out".into(), out.into()]);
    let printed = place.laptime(words);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    printed.out
}

/// The files of a folder by name.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap()))
        .collect()
}

fn text(place: &Place, name: &str) -> String {
    String::from_utf8(place.read(name)).unwrap()
}

#[test]
fn a_report_of_runs_has_every_chart_table_and_finding() {
    let place = Place::new();
    let printed = report(&place, &runs(), "report");
    assert_golden("report/expected/findings.txt", &printed);
    for name in [
        "profiling_report.md",
        "attention_summary.csv",
        "attention_summary.md",
        "model_summary.csv",
        "model_summary.md",
    ] {
        assert_golden(&format!("report/expected/{name}"), &text(&place, &format!("report/{name}")));
    }
    let made = files(&place.path("report"));
    for chart in CHARTS {
        for ending in [".svg", ".png", "-dark.svg", "-dark.png"] {
            let file = made.get(&format!("{chart}{ending}")).unwrap_or_else(|| panic!("no {chart}{ending}"));
            assert!(file.starts_with(if ending.ends_with("png") { b"\x89PNG" } else { b"<svg" }), "{chart}{ending}");
        }
    }
    assert_eq!(made.len(), 4 * CHARTS.len() + 6);
    let page = text(&place, "report/report.html");
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg") && page.contains("crossover"));
}

#[test]
fn reports_from_a_folder_and_from_its_profile_agree() {
    let place = Place::new();
    std::fs::create_dir(place.path("apart")).unwrap();
    for (command, profile) in [
        ("bench attention --seq-len 32,64,128 --attention dense,sparse --iterations 6", "attention_profile.json"),
        ("bench model --preset tiny --seq-len 16,32 --iterations 6 --pass-type forward,step", "model_profile.json"),
    ] {
        let words = format!("{command} --warmup 1 --device cpu --quiet --out run-{profile}");
        let printed = place.laptime(words.split(' '));
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        place.write(&format!("apart/{profile}"), text(&place, &format!("run-{profile}/{profile}")));
        report(&place, &[format!("run-{profile}")], "of-folder");
        report(&place, &[format!("apart/{profile}")], "of-profile");
        let whole =
            |of: &str| text(&place, &format!("{of}/profiling_report.md")).replace(&format!("run-{profile}"), profile);
        assert_eq!(whole("of-folder"), whole("of-profile"));
    }
}

#[test]
fn the_same_runs_give_the_same_bytes() {
    let place = Place::new();
    report(&place, &runs(), "one");
    report(&place, &runs(), "other");
    assert!(files(&place.path("one")) == files(&place.path("other")));
    report(&place, &runs(), "one");
    assert!(files(&place.path("one")) == files(&place.path("other")), "and so when it is made again in its place");
}

#[test]
fn a_folder_of_runs_is_read_run_by_run() {
    let place = Place::new();
    report(&place, &[data("report").display().to_string()], "whole");
    report(&place, &runs(), "each");
    assert!(files(&place.path("whole")) == files(&place.path("each")));
}

#[test]
fn cases_that_were_not_measured_have_no_files_and_sentences() {
    let place = Place::new();
    report(&place, &runs()[2..], "report");
    let names: Vec<String> = files(&place.path("report")).into_keys().collect();
    let charts = ["warmup_laps-dark.png", "warmup_laps-dark.svg", "warmup_laps.png", "warmup_laps.svg"];
    let expected: Vec<&str> = ["profiling_report.md", "report.html"].into_iter().chain(charts).collect();
    assert_eq!(names, expected);
    let message = text(&place, "report/profiling_report.md");
    assert!(!message.contains("crossover") && !message.contains("## Tables"), "{message}");
}

#[test]
fn runs_of_one_workload_are_labelled_by_what_differs() {
    let place = Place::new();
    for (name, commit) in [("old", "1111111"), ("new", "2222222")] {
        std::fs::create_dir(place.path(name)).unwrap();
        let run = std::fs::read_to_string(data("report/attention/run.json")).unwrap();
        place.write(&format!("{name}/run.json"), run.replace("77c53e8", commit));
        place.write(&format!("{name}/results.jsonl"), std::fs::read(data("report/attention/results.jsonl")).unwrap());
    }
    report(&place, &["old".to_owned(), "new".to_owned()], "report");
    let message = text(&place, "report/profiling_report.md");
    assert!(
        message.contains("**`attention` (commit 1111111)**") && message.contains("**`attention` (commit 2222222)**"),
        "{message}"
    );
    let summary = text(&place, "report/attention_summary.csv");
    assert!(summary.contains("\nsparse,") && summary.contains(",commit 2222222,512-4096,"), "{summary}");
    let chart = text(&place, "report/attention_latency.svg");
    assert!(chart.contains("commit 1111111"), "the legend tells them apart");
}

const ATTENTION: &str = r#"{"metadata": {"device": "cuda", "batch_size": 1, "config": {}}, "results": [
    {"latency_ms": 2.0, "peak_memory_mb": 10.0, "output_shape": [1, 16, 512, 64], "attention_type": "dense", "flops": 33554432,
     "seq_len": 512, "batch_size": 1, "n_heads": 16, "head_dim": 64},
    {"latency_ms": 9.0, "peak_memory_mb": 40.0, "attention_type": "dense", "flops": 134217728, "seq_len": 1024, "batch_size": 1, "n_heads": 16, "head_dim": 64},
    {"latency_ms": 3.0, "peak_memory_mb": 11.0, "attention_type": "sparse", "flops": 1, "seq_len": 512, "batch_size": 1, "n_heads": 16, "head_dim": 64,
     "sparsity_ratio": 0.25, "connections": 65536},
    {"latency_ms": 6.0, "peak_memory_mb": 20.0, "attention_type": "sparse", "flops": 1, "seq_len": 1024, "batch_size": 1, "n_heads": 16, "head_dim": 64,
     "sparsity_ratio": 0.125, "connections": 131072},
    {"seq_len": 2048, "attention_type": "dense", "error": "CUDA out of memory"}]}"#;

const MODEL: &str = r#"{"metadata": {"device": "cuda", "batch_size": 1, "profile_training": true},
    "model_sizes": {"decoder_tiny": {"total_parameters": 50931712, "trainable_parameters": 50931712, "parameter_memory_mb": 194.0}},
    "results": [{"latency_ms": 5.0, "peak_memory_mb": 300.0, "output_shape": [1, 256, 50257], "mode": "inference", "preset": "decoder_tiny", "seq_len": 256, "batch_size": 1},
    {"latency_ms": 15.0, "peak_memory_mb": 900.0, "loss": 10.9, "total_loss": 10.9, "mode": "training", "preset": "decoder_tiny", "seq_len": 256, "batch_size": 1}]}"#;

#[test]
fn profiles_of_nano_xyz_are_read_and_corrected() {
    let place = Place::new();
    std::fs::create_dir(place.path("results")).unwrap();
    place.write("results/attention_profile.json", ATTENTION);
    place.write("results/model_profile.json", MODEL);
    let printed = place.laptime(["report", "--input_dir", "results", "--output_dir", "reports"]);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let attention = text(&place, "reports/attention_summary.csv");
    let columns = "Attention Type,Avg Latency (ms),Avg Memory (MB),Max Memory (MB),Avg Sparsity,";
    assert!(attention.starts_with(columns), "{attention}");
    assert!(attention.contains("\ndense,5.5,25,40,,"), "{attention}");
    assert!(attention.contains("\nsparse,4.5,15.5,20,0.8125,"), "the share left out, not the share kept: {attention}");
    let model = text(&place, "reports/model_summary.csv");
    let columns = "Preset,Parameters,Model Memory (MB),Avg Inference Latency (ms),Avg Training Latency (ms),Avg Inference Memory (MB),Avg Training Memory (MB),";
    assert!(model.starts_with(columns), "{model}");
    assert!(model.contains("\ndecoder_tiny,50931712,194,5,15,300,900,"), "{model}");
    let message = text(&place, "reports/profiling_report.md");
    // A single time per case, as in Nano XYZ, has no interval.
    let unclear =
        "The difference in time between `sparse` and `dense` is unclear at every measured length (512 to 1024 tokens).";
    assert!(message.contains(unclear), "{message}");
    assert!(message.contains("`sparse` is smaller in memory than `dense` from 557 tokens on"), "{message}");
    assert!(message.contains("`attention=dense seq_len=2048` ran out of memory."), "{message}");
    assert!(place.path("reports/attention_efficiency.png").is_file());
}

#[test]
fn a_path_that_is_not_a_run_is_refused_with_a_hint() {
    let place = Place::new();
    place.write("notes.txt", "no run");
    std::fs::create_dir(place.path("empty")).unwrap();
    for (run, message) in [
        ("nowhere", "error: there is no `nowhere`"),
        ("notes.txt", "error: cannot read trace `notes.txt`"),
        ("empty", "error: `empty` contains no run"),
    ] {
        let failed = place.laptime(["report", run, "--out", "report"]).failed();
        assert!(failed.starts_with(message), "{failed}");
        assert!(!place.path("report").exists());
    }
    let failed = place.laptime(["report", &runs()[0], "--out", "notes.txt"]).failed();
    assert!(failed.starts_with("error: `notes.txt` is a file; a report needs a folder"), "{failed}");
}

#[test]
fn damage_is_reported_with_the_file() {
    let place = Place::new();
    for folder in ["profile", "results"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    place.write("profile/attention_profile.json", "{\"results\": [");
    let failed = place.laptime(["report", "profile"]).failed();
    assert!(failed.starts_with("error: `profile/attention_profile.json` is not a profile"), "{failed}");
    place.write("profile/attention_profile.json", "{\"results\": []}");
    let failed = place.laptime(["report", "profile"]).failed();
    assert!(failed.starts_with("error: `profile/attention_profile.json` has no results"), "{failed}");
    place.write("results/results.jsonl", "{\"schema\":1}\n");
    let failed = place.laptime(["report", "results"]).failed();
    assert!(failed.contains("`results/results.jsonl`, line 1, is not a run record"), "{failed}");
}

#[test]
fn files_of_an_earlier_report_give_a_warning() {
    let place = Place::new();
    report(&place, &runs(), "report");
    let printed = place.laptime(["report", &runs()[2], "--out", "report"]);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(
        printed.err.contains("files of an earlier report are still in `report`, such as `attention_latency.svg`"),
        "{}",
        printed.err
    );
}

/// A small trace with a kernel, in the format of torch.profiler.
const TRACE: &str = r#"{"traceEvents": [
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0, "dur": 5, "pid": 1, "tid": 1, "args": {"correlation": 1}},
    {"ph": "X", "cat": "kernel", "name": "gemm<&>", "ts": 10, "dur": 90, "pid": 0, "tid": 7, "args": {"correlation": 1, "device": 0, "stream": 7}}
]}"#;

#[test]
fn the_page_of_a_trace_is_next_to_it_or_where_it_was_asked_for() {
    let place = Place::new();
    place.write("it.json", TRACE);
    let printed = place.laptime(["report", "it.json"]);
    assert_eq!((printed.status, printed.err.as_str()), (Some(0), "Page: it.report.html\n"));
    let page = text(&place, "it.report.html");
    assert!(page.contains("<title>it.json</title>") && page.contains("gemm&lt;&amp;&gt;"), "{}", &page[..2000]);
    assert_eq!(page.matches("<script").count(), 2, "the data and the script");
    for out in ["own.html", "folder"] {
        report(&place, &["it.json".to_owned()], out);
    }
    for other in ["own.html", "folder/it.report.html"] {
        assert!(text(&place, other) == page, "{other}");
    }
}

#[test]
fn two_inputs_do_not_fit_one_page() {
    let place = Place::new();
    place.write("a.json", TRACE);
    place.write("b.json", TRACE);
    let failed = place.laptime(["report", "a.json", "b.json", "--out", "one.html"]).failed();
    assert!(failed.contains("`--out` names one page") && failed.contains("hint: name a folder"), "{failed}");
    report(&place, &["a.json".to_owned(), "b.json".to_owned()], ".");
    assert!(place.path("a.report.html").is_file() && place.path("b.report.html").is_file());
}

#[test]
fn a_trace_that_cannot_be_read_leaves_no_page() {
    let place = Place::new();
    place.write("it.json", "{\"traceEvents\": [");
    let printed = place.laptime(["report", "it.json"]);
    let is_error = printed.status == Some(2) && printed.err.starts_with("error: ");
    assert!(is_error || printed.err.contains("warning: "), "{}", printed.err);
    assert_eq!(is_error, !place.path("it.report.html").exists());
}

#[test]
fn two_traces_are_compared_on_a_page() {
    let place = Place::new();
    place.write("a.json", TRACE);
    place.write("b.json", TRACE.replace("\"dur\": 90", "\"dur\": 180"));
    place.laptime(["compare", "a.json", "b.json", "--out", "both.html"]).done();
    let page = text(&place, "both.html");
    for part in ["<h2>Verdict</h2>", "<h2>Waterfall</h2>", "class=\"slower\"", "gemm&lt;&amp;&gt;"] {
        assert!(page.contains(part), "{part}");
    }
}
