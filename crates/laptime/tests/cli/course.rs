//! Training through the program: the command lines of a course, its files, and its study of warm-ups.

use laptime_trace::run::{CaseResult, Run, read_results};
use serde_json::Value;

use crate::common::Place;

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

const SMALL: &str = "--context-length 16 --batch-size 2 --threads 1 --warmup-steps 1 --measure-steps 3";

/// The rows of a file of comma-separated values without quotes, by column.
fn column(text: &str, name: &str) -> Vec<String> {
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let at = lines.next().unwrap().iter().position(|column| column == name).unwrap_or_else(|| panic!("no {name}"));
    lines.map(|row| row[at].clone()).collect()
}

#[test]
fn every_pass_of_training_is_measured_with_its_loss() {
    let place = Place::new();
    let line = format!("bench model --model-size tiny --pass-type forward,backward,forward_backward,step {SMALL}");
    let printed = place.laptime(words(&format!("{line} --format jsonl --out run")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let rows: Vec<Value> = printed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let tests: Vec<&str> = rows.iter().map(|row| row["test"].as_str().unwrap()).collect();
    assert_eq!(tests, ["forward16", "backward16", "forward_backward16", "step16"]);
    assert!(rows[0]["loss"].is_null());
    assert!(rows[1..].iter().all(|row| row["loss"].as_f64().unwrap() > 0.0));
    let flops: Vec<f64> = rows.iter().map(|row| row["gflop"].as_f64().unwrap()).collect();
    assert!((flops[1] / flops[0] - 2.0).abs() < 1e-6 && (flops[3] / flops[0] - 3.0).abs() < 1e-6, "{flops:?}");
    let results = read_results(&place.path("run/results.jsonl")).unwrap().results;
    let losses: Vec<f64> =
        results[3].measured().unwrap().metric("loss").unwrap().values.iter().flatten().copied().collect();
    assert!(losses.len() == 3 && losses[2] < losses[0], "the same batch is learnt: {losses:?}");
}

#[test]
fn backward_is_compared_with_the_forward_of_the_same_case() {
    let place = Place::new();
    let line =
        format!("bench model --model-size tiny --pass-type forward,backward {SMALL} --compat --context-length 8,16");
    let printed = place.laptime(words(&line.replacen("--context-length 16 ", "", 1)));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert_eq!(printed.out.matches("Backward over forward: ").count(), 2, "{}", printed.out);
    assert!(printed.out.contains("(tiny, context length 16, batch size 2)"), "{}", printed.out);
}

#[test]
fn separate_passes_have_a_table_of_their_own_with_their_ratio() {
    let place = Place::new();
    let line = format!("bench model --model-size tiny --pass-type forward,backward {SMALL} --kit-files --out run");
    let printed = place.laptime(words(&line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.err.contains("results/profiling_benchmarking_separate.csv"), "{}", printed.err);
    let csv = String::from_utf8(place.read("results/profiling_benchmarking_separate.csv")).unwrap();
    let course = "model_size,context_length,batch_size,forward_mean_ms,forward_std_ms,backward_mean_ms,backward_std_ms,ratio,error,";
    assert!(csv.starts_with(course) && csv.lines().count() == 2, "{csv}");
    let number = |name: &str| column(&csv, name)[0].parse::<f64>().unwrap();
    assert!((number("ratio") * number("forward_mean_ms") / number("backward_mean_ms") - 1.0).abs() < 1e-4, "{csv}");
    assert_eq!(csv.as_bytes(), place.read("run/profiling_benchmarking_separate.csv"));
}

#[test]
fn the_cs336_output_file_has_the_table_and_iterations_stay_synchronised() {
    let place = Place::new();
    let line = format!("bench model --model-sizes tiny {SMALL} --no-sync --output results/mine.csv --out run");
    let printed = place.laptime(words(&line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.err.contains("note: `--no-sync` has no effect") && printed.err.contains("results/mine.csv"));
    assert_eq!(place.read("results/mine.csv"), place.read("run/profiling_benchmarking_direct.csv"));
    let printed =
        place.laptime(words("bench matmul --size 8 --threads 1 --iterations 2 --warmup 0 --output matmul.csv"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let csv = String::from_utf8(place.read("matmul.csv")).unwrap();
    assert!(csv.contains("median_ms") && csv.lines().count() == 2, "{csv}");
}

#[test]
fn a_run_writes_the_files_of_cs336_and_nano_xyz() {
    let place = Place::new();
    let line = format!("bench model --model-sizes tiny --pass-type forward,forward_backward,step {SMALL} --out run");
    let printed = place.laptime(words(&line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(!place.path("results").exists() && !place.path("profiling").exists());
    let csv = String::from_utf8(place.read("run/profiling_benchmarking_direct.csv")).unwrap();
    let course = "model_size,context_length,batch_size,warmup_steps,measure_steps,pass_type,num_params,mean_time_ms,std_time_ms,cv_percent,error,";
    assert!(csv.starts_with(course), "{csv}");
    assert_eq!(column(&csv, "pass_type"), ["forward", "forward_backward", "step"]);
    assert!(column(&csv, "error").iter().all(String::is_empty));
    assert_eq!((&*column(&csv, "warmup_steps")[0], &*column(&csv, "measure_steps")[0]), ("1", "3"));
    assert!(column(&csv, "cv_percent").iter().all(|percent| percent.parse::<f64>().unwrap() > 0.0));
    let md = String::from_utf8(place.read("run/profiling_benchmarking_direct.md")).unwrap();
    assert_eq!(md.lines().next().unwrap().matches('|').count(), 6, "five columns: {md}");
    let profile: Value = serde_json::from_slice(&place.read("run/model_profile.json")).unwrap();
    let [inference, training] = profile["results"].as_array().unwrap().as_slice() else { panic!("{profile}") };
    assert_eq!(inference["mode"], "inference");
    assert_eq!(inference["output_shape"], serde_json::json!([2, 16, 512]));
    assert!(training["latency_ms"].as_f64().unwrap() > 0.0 && training["step_ms"].as_f64().unwrap() > 0.0);
    assert!(training["loss"] == training["total_loss"] && training["loss"].as_f64().unwrap() > 0.0);
    assert_eq!(profile["model_sizes"]["tiny"]["total_parameters"], 131_456);
    assert_eq!(profile["metadata"], serde_json::json!({ "device": "cpu", "batch_size": 2, "profile_training": true }));
}

#[test]
fn isolated_runs_write_the_file_of_the_original_for_fresh_processes() {
    let place = Place::new();
    let printed =
        place.laptime(words(&format!("bench model --model-sizes tiny {SMALL} --isolate --kit-files --out run")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.err.contains("results/profiling_benchmarking_run_benchmarks.csv"), "{}", printed.err);
    let inside = place.read("run/profiling_benchmarking_run_benchmarks.csv");
    assert_eq!(inside, place.read("results/profiling_benchmarking_run_benchmarks.csv"));
    assert_eq!(place.read("run/model_profile.json"), place.read("profiling/results/model_profile.json"));
}

#[test]
fn a_step_that_does_not_fit_is_oom_and_an_invalid_one_a_runtime_error() {
    let place = Place::new();
    let printed =
        place.laptime(words("bench model --model-size tiny --context-length 513 --iterations 1 --warmup 0 --out run"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let csv = String::from_utf8(place.read("run/profiling_benchmarking_direct.csv")).unwrap();
    assert!(csv.contains(",forward_backward,131456,,,,runtime_error,"), "{csv}");
    assert!(csv.contains("513 tokens exceed the context of `tiny` (512)"), "{csv}");
    let huge = "bench model --model-size 2.7B --batch-size 100000 --iterations 1 --warmup 0 --device cpu --out huge";
    let printed = place.laptime(words(huge));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let csv = String::from_utf8(place.read("huge/profiling_benchmarking_direct.csv")).unwrap();
    assert_eq!((column(&csv, "error"), column(&csv, "num_params")), (vec!["OOM".into()], vec!["3406809600".into()]));
    let profile: Value = serde_json::from_slice(&place.read("huge/model_profile.json")).unwrap();
    assert_eq!(profile["model_sizes"]["2.7B"]["total_parameters"], 3_406_809_600_u64);
}

#[test]
fn passes_with_a_cache_write_no_cs336_file() {
    let place = Place::new();
    let printed = place.laptime(words("bench model --test pp8 --threads 1 --iterations 2 --warmup 0 --out run"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(!place.path("run/profiling_benchmarking_direct.csv").exists());
}

#[test]
fn numbers_of_warm_up_iterations_are_compared() {
    let place = Place::new();
    let line = "warmup model --model-size tiny --context-length 16 --batch-size 1 --threads 1 --warmups 0,5,1 --measure-steps 6 --runs 2";
    let printed = place.laptime(words(&format!("{line} --format jsonl --kit-files --out run")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let rows: Vec<Value> = printed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<i64> = rows.iter().map(|row| row["warmup_steps"].as_i64().unwrap()).collect();
    assert_eq!(numbers, [0, 1, 5]);
    assert!(rows.iter().all(|row| row["n"] == 12 && row["processes"] == 2 && row["pass_type"] == "forward_backward"));
    assert_eq!((&rows[2]["from_5_ms"], &rows[2]["from_5"]), (&0.into(), &0.into()));
    let csv = String::from_utf8(place.read("results/profiling_benchmarking_warmup_comparison.csv")).unwrap();
    assert!(csv.starts_with("warmup_steps,mean_time_ms,std_time_ms,cv_percent,from_5_ms,from_5,"), "{csv}");
    let results = read_results(&place.path("run/warmup-5/results.jsonl")).unwrap().results;
    assert!(results.iter().all(|result| result.measured().unwrap().warmup_ns.len() == 5));
    let losses = |result: &CaseResult| result.measured().unwrap().warmup_metrics.last().unwrap().clone();
    assert!(results.iter().map(losses).all(|loss| loss.name == "loss" && loss.values.iter().flatten().count() == 5));
    assert!(Run::read(&place.path("run/warmup-0")).unwrap().settings.cold);
    let laps = String::from_utf8(place.read("run/warmup_laps.csv")).unwrap();
    assert!(laps.starts_with("warmup_steps,run,step,time_ms,counts,"), "{laps}");
    assert_eq!(laps.lines().count(), 1 + 2 * (6 + 7 + 11));
}

#[test]
fn a_warm_up_study_breaks_down_the_cold_start() {
    let place = Place::new();
    let line = "warmup model --model-size tiny --context-length 32 --batch-size 1 --threads 2 --warmups 0 --measure-steps 8 --runs 1";
    let printed = place.laptime(words(&format!("{line} --output mine.csv --out run --verbose")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    for part in ["weights", "allocate", "threads", "A fresh process took ", "No autotuning: "] {
        assert!(printed.out.contains(part), "{part} is not in {}", printed.out);
    }
    let message: Value = serde_json::from_slice(&place.read("run/cold_start.json")).unwrap();
    let rows = message["cold_start"].as_array().unwrap();
    let sum = |key: &str| rows.iter().rev().skip(1).filter_map(|row| row[key].as_f64()).sum::<f64>();
    let all = rows.last().unwrap();
    assert_eq!(all["part"], "all");
    for key in ["before_ms", "first_iteration_ms"] {
        assert!((sum(key) - all[key].as_f64().unwrap()).abs() < 1e-6, "{key}: {message}");
    }
    let trace = laptime_trace::read(place.path("run/warmup-0/traces/case-0-run-0.pftrace")).unwrap();
    assert_eq!(trace.spans().filter(|span| span.name == "iteration").count(), 8);
    assert!(trace.spans().next().unwrap().name == "open_device", "the trace begins with the process");
    let csv = String::from_utf8(place.read("mine.csv")).unwrap();
    assert_eq!(csv.as_bytes(), place.read("run/profiling_benchmarking_warmup_comparison.csv"));
    assert!(column(&csv, "cold_before_ms")[0].parse::<f64>().unwrap() > 0.0, "{csv}");
}

#[test]
fn a_profile_of_a_step_has_its_three_stages_and_its_memory() {
    let place = Place::new();
    let line =
        "profile model --preset tiny --pass-type step --seq-len 16 --threads 1 --iterations 4 --depth layer --out run";
    let printed = place.laptime(words(line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    for stage in ["forward", "backward", "optimizer", "attention", "ffn", "loss"] {
        assert!(printed.out.contains(stage), "{stage} is not in {}", printed.out);
    }
    let trace = laptime_trace::read(place.path("run/trace.pftrace")).unwrap();
    let names: Vec<String> = trace.tracks().map(|(_, track)| trace.name(track.name).to_owned()).collect();
    for value in ["weights_memory", "gradients_memory", "optimizer_memory", "activations_memory"] {
        assert!(names.iter().any(|name| name.contains(value)), "{value} is not in {names:?}");
    }
}
