//! `laptime bench attention` and what goes with it, through the program.

use laptime_trace::run::{Run, read_results};
use serde_json::Value;

use crate::common::{Place, assert_golden};

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

const SMALL: &str =
    "bench attention --seq-lens 96,200 --heads 2 --head-dim 16 --threads 1 --iterations 6 --warmup 0 --device cpu";

fn rows(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_command_lines_of_the_original_and_ours_give_their_cases() {
    let place = Place::new();
    place.write("mask.txt", "10\n11\n");
    let axes = [
        "attention",
        "seq_len",
        "batch_size",
        "dtype",
        "pattern",
        "window",
        "global",
        "random",
        "random_per",
        "causal",
    ];
    let mut message = String::new();
    for line in [
        "bench attention --seq_lens 1024 4096 --attention_types dense sparse",
        "bench attention --seq_lens 1024 4096 8192 --attention_types dense sparse --batch_size 1 --device auto --output profiling/results/attention_profile.json",
        "bench attention --seq_lens 512 1024 --attention_types dense sparse --output_dir profiling/results",
        "bench attention --seq-lens 512-16384*2 --attention-types dense,sparse --batch-size 1,4",
        "bench attention",
        "bench attention --attention sparse --pattern tiny,small,medium --seq-len 4096 --no-causal",
        "bench attention --attention sparse --window 256,1024 --global 0 --random 8 --random-per row --seq-len small --causal false",
        "bench attention --attention block-sparse,sliding-window --block-mask mask.txt --seq-len 128 --dtype float32,bf16",
        "profile attention --attention sparse --seq-len 512",
        "warmup attention --attention sparse --seq-len 512",
    ] {
        let printed = place.laptime(words(&format!("{line} --dry-run --format jsonl"))).done();
        message.push_str(&format!("laptime {line}\n"));
        for row in rows(&printed) {
            let cell = |axis: &&str| row[*axis].as_str().map_or_else(|| row[*axis].to_string(), str::to_owned);
            message.push_str(&format!("  {}\n", axes.iter().map(cell).collect::<Vec<_>>().join(" ")));
        }
    }
    assert_golden("attention/dry-run.txt", &message);
    assert!(!place.path("runs").exists() && !place.path("profiling").exists());
}

#[test]
fn attention_is_measured_with_the_documented_names() {
    let place = Place::new();
    let line =
        format!("{SMALL} --attention naive,dense,sparse --window 20 --global 2 --random 3 --format jsonl --out run");
    let printed = place.laptime(words(&line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let rows = rows(&printed.out);
    assert_eq!(rows.len(), 6);
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_else(|| panic!("{key}")).to_owned();
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key}"));
    let [naive, dense, sparse] = &rows[..3] else { panic!("{}", printed.out) };
    assert_eq!([naive, dense, sparse].map(|row| text(row, "attention")), ["naive", "dense", "sparse"]);
    assert_eq!((text(sparse, "dtype"), text(sparse, "pattern")), ("f32".to_owned(), "custom".to_owned()));
    assert_eq!((number(sparse, "seq_len"), number(sparse, "batch_size")), (96.0, 1.0));
    for key in ["median_ms", "median_lo_ms", "peak_mib", "connections", "flops", "dense_flops", "tflop_s", "gflop"] {
        assert!(number(sparse, key) > 0.0, "{key}");
    }
    assert!(naive["build_ms"].is_null() && number(sparse, "build_ms") > 0.0);
    assert_eq!((number(dense, "sparsity"), number(dense, "connections")), (0.0, 96.0 * 97.0 / 2.0));
    assert!((0.5..0.9).contains(&number(sparse, "sparsity")) && number(sparse, "mass_kept") < 1.0);
    assert!(number(sparse, "output_error") > 0.1 && number(dense, "output_error") < 1e-5);
    assert!(
        number(sparse, "flops") >= number(sparse, "gflop") * 1e9 && number(dense, "flops") < number(naive, "flops")
    );
    assert_eq!(number(sparse, "dense_flops"), number(dense, "gflop") * 1e9);
    assert!(text(sparse, "kernel").contains("tiles"), "{}", text(sparse, "kernel"));
    assert!(sparse.as_object().unwrap().values().all(|value| !value.is_array() && !value.is_object()));
    // What `auto` stood for is kept, so that the run can go on.
    let run = Run::read(&place.path("run")).unwrap();
    assert!(run.cases.iter().all(|case| case.text("dtype").unwrap() == "f32"));
}

#[test]
fn a_run_of_attention_is_resumed_and_refuses_another_plan() {
    let place = Place::new();
    assert_eq!(place.laptime(words(&format!("{SMALL} --out run"))).status, Some(0));
    let results = String::from_utf8(place.read("run/results.jsonl")).unwrap();
    let first = results.lines().next().unwrap();
    place.write("run/results.jsonl", format!("{first}\n"));
    assert_eq!(place.laptime(words(&format!("{SMALL} --resume run"))).status, Some(0));
    assert_eq!(read_results(&place.path("run/results.jsonl")).unwrap().results.len(), 4);
    let other = place.laptime(words("bench attention --seq-lens 97 --resume run")).failed();
    assert!(other.contains("its axes have different values"), "{other}");
}

#[test]
fn a_run_writes_the_profile_of_the_original_where_requested() {
    let place = Place::new();
    let line = format!(
        "{SMALL} --attention_types dense sparse --compat --kit-files --output own/profile.json --output_dir kept --out run"
    );
    let printed = place.laptime(words(&line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let read = |name: &str| -> Value { serde_json::from_slice(&place.read(name)).unwrap() };
    let profile = read("run/attention_profile.json");
    for name in ["profiling/results/attention_profile.json", "own/profile.json", "kept/attention_profile.json"] {
        assert_eq!(read(name), profile, "{name}");
        assert!(printed.err.contains(&name.to_string()), "{}", printed.err);
    }
    assert_eq!((&profile["metadata"]["device"], &profile["metadata"]["batch_size"]), (&"cpu".into(), &1.into()));
    assert_eq!(profile["metadata"]["config"]["window"], 512);
    let records = profile["results"].as_array().unwrap();
    assert_eq!(records.len(), 4);
    for key in [
        "latency_ms",
        "peak_memory_mb",
        "output_shape",
        "attention_type",
        "flops",
        "seq_len",
        "batch_size",
        "n_heads",
        "head_dim",
        "sparsity_ratio",
        "connections",
    ] {
        assert!(!records[3][key].is_null(), "{key}");
    }
    assert_eq!(records[3]["output_shape"], serde_json::json!([1, 2, 200, 16]));
    let lines: Vec<&str> =
        printed.out.lines().filter(|line| line.starts_with("    + ") || line.starts_with("  Sequence")).collect();
    assert_eq!((lines.len(), lines[0]), (6, "  Sequence length 96, batch size 1:"));
    assert!(lines[1].starts_with("    + dense: ") && lines[1].ends_with(" MB"), "{}", lines[1]);
}

#[test]
fn invalid_cases_are_rows_in_bench_and_errors_in_profile() {
    let place = Place::new();
    let line = "bench attention --attention naive,dense --seq-lens 64 --heads 2,4000000 --kv-heads 2 --iterations 2 --threads 1 --device cpu --out run";
    let printed = place.laptime(words(line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.out.contains("out_of_memory"), "{}", printed.out);
    let profile: Value = serde_json::from_slice(&place.read("run/attention_profile.json")).unwrap();
    let errors: Vec<&Value> = profile["results"].as_array().unwrap().iter().map(|record| &record["error"]).collect();
    assert_eq!(errors.iter().filter(|error| **error == "out_of_memory").count(), 2, "{errors:?}");
    assert!(printed.err.contains("`--fit batch` finds the largest value that fits"), "{}", printed.err);
}

#[test]
fn unsupported_attention_is_an_error_with_a_hint() {
    let place = Place::new();
    place.write("mask.txt", "10\n1\n");
    for (line, error, hint) in [
        (
            "bench attention --attention flash",
            "takes one of naive, dense, sparse, sliding-window, block-sparse",
            "laptime list",
        ),
        ("bench attention --pattern large", "takes one of tiny, small, medium, custom", "laptime list"),
        ("bench attention --block-mask mask.txt", "applies to no requested attention", "block-sparse"),
        ("bench attention --attention block-sparse --block-mask mask.txt", "row 2 has 1 blocks", "one row per line"),
        ("bench attention --seq-lens 9999999", "whole numbers from 1 to 2097151", "laptime list"),
        ("bench attention --windw 5", "has no axis `windw`", "did you mean `window`?"),
        ("bench matmul --output a.json", "`matmul` cannot write `--output a.json`", "`.csv`"),
        ("bench model --window 5", "`window` applies to no requested attention", "--attention dense,sparse"),
    ] {
        let message = place.laptime(words(line)).failed();
        assert!(message.contains(error), "{line}: {message}");
        assert!(message.split_once("\nhint: ").unwrap().1.contains(hint), "{line}: {message}");
    }
}

#[test]
fn a_profile_separates_building_the_pattern_from_computing() {
    let place = Place::new();
    let line = "profile attention --attention sparse --seq-len 128 --heads 2 --threads 1 --iterations 2 --warmup 1 --device cpu --out run";
    let printed = place.laptime(words(line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.out.contains("\ncompute ") && printed.out.contains("build pattern "), "{}", printed.out);
    let stages = place.laptime(["stages", "run", "--all"]).done();
    assert!(stages.contains("\nbuild_pattern ") && stages.contains("── compute "), "{stages}");
    let result = &read_results(&place.path("run/results.jsonl")).unwrap().results[0];
    assert_eq!(result.case.text("dtype").unwrap(), "f32");
}

#[test]
fn two_patterns_are_compared_interleaved() {
    let place = Place::new();
    let one = "attention --attention sparse --seq-len 128 --heads 2 --threads 1 --iterations 2 --device cpu";
    let line = ["ab", "--a", one, "--b", &format!("{one} --window 16"), "--runs", "2", "--out", "run"];
    let printed = place.laptime(line);
    assert!(matches!(printed.status, Some(0 | 1)), "{}", printed.err);
    let results = read_results(&place.path("run/results.jsonl")).unwrap().results;
    assert_eq!(results.iter().filter(|result| result.measured().is_some()).count(), 4);
}

#[test]
fn whole_models_attend_sparsely_and_say_what_does_not_apply() {
    let place = Place::new();
    let line = "bench model --preset tiny --attention dense,sparse --test forward64,tg4 --window 8 --global 1 --random 0 --threads 1 --iterations 2 --warmup 0 --format jsonl";
    let printed = place.laptime(words(line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let rows = rows(&printed.out);
    let message: Vec<String> = rows
        .iter()
        .map(|row| {
            format!("{} {} {} {}", row["test"], row["attention"], row["outcome"], row["pattern"]).replace('"', "")
        })
        .collect();
    assert_eq!(
        message,
        [
            "forward64 dense measured custom",
            "forward64 sparse measured custom",
            "tg4 dense measured custom",
            "tg4 sparse skipped custom"
        ]
    );
    assert!(rows[1]["gflop"].as_f64().unwrap() < rows[0]["gflop"].as_f64().unwrap());
    assert!(rows[1]["sparsity"].as_f64().unwrap() > 0.5 && rows[0]["sparsity"].is_null());
    assert!(rows[3]["reason"].as_str().unwrap().contains("`forward` and `prefill`"));
}
