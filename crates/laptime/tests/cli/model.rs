//! `laptime bench model` and `laptime profile model`, through the program.

use std::path::{Path, PathBuf};

use laptime_trace::run::{Outcome, Run, read_results};
use serde_json::Value;

use crate::common::{Place, assert_golden};

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// A checkpoint of the tests.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures").join(name)
}

fn copy_fixture(place: &Place, name: &str, to: &str) {
    std::fs::create_dir(place.path(to)).unwrap();
    for entry in std::fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, place.path(to).join(path.file_name().unwrap())).unwrap();
    }
}

const TINY: &str = "bench model --preset tiny --threads 1 --iterations 3 --warmup 0";

#[test]
fn the_command_lines_of_the_original_tools_give_their_cases() {
    let place = Place::new();
    let axes = ["model", "test", "batch_size", "dtype", "attention", "reduced"];
    let mut message = String::new();
    for line in [
        "bench model --model-size small",
        "bench model --model-size small --context-length 512 --batch-size 4 --warmup-steps 5 --measure-steps 10 --pass-type forward --device cpu",
        "bench model --model-sizes small medium large --context-length 512 --batch-size 4 --warmup-steps 5 --measure-steps 10",
        "bench model --model-size small --context-length 512 --batch-size 4 --warmup-steps 5 --measure-steps 10 --pass-type forward_backward --device cpu",
        "bench model --model-size small --pass-type forward,backward",
        "bench model --model-size small --pass-type step",
        "bench model --model-sizes small medium large --isolate --timeout 600s --kit-files",
        "bench model --model-size small --warmup-steps 5 --measure-steps 10",
        "bench model --model-sizes small medium large --warmup-steps 5 --measure-steps 10",
        "bench model --model-sizes small medium large --output results/profiling_benchmarking_direct.csv",
        "bench model --model-size small --pass-type forward_backward --no-sync --device cpu",
        "warmup model --model-size small --measure-steps 10 --output results/profiling_benchmarking_warmup_comparison.csv",
        "bench model --model-sizes xl 2.7B --reduced",
        "warmup model --model-size small --measure-steps 10",
        "bench model --presets decoder_tiny decoder_small --seq_lens 512 1024 2048 --batch_size 1 --device auto --no_training",
        "bench model --presets decoder_tiny --seq_lens 256 512 --no_training",
        "bench model --presets decoder_tiny --seq_lens 256 --pass-type forward,forward_backward,training --kit-files",
        "bench model",
        "bench model --preset Qwen3-0.6B",
        "bench model --preset QWEN3-0.6B --test pp512,tg128@d4096 --dtype bfloat16",
        "bench model --model-size tiny --context-length small --dtype float32,bfloat16",
    ] {
        let printed = place.laptime(words(&format!("{line} --dry-run --format jsonl"))).done();
        message.push_str(&format!("laptime {line}\n"));
        for row in printed.lines() {
            let row: Value = serde_json::from_str(row).unwrap();
            let cell = |axis: &&str| row[*axis].as_str().map_or_else(|| row[*axis].to_string(), str::to_owned);
            message.push_str(&format!("  {}\n", axes.iter().map(cell).collect::<Vec<_>>().join(" ")));
        }
    }
    assert_golden("model/dry-run.txt", &message);
    assert!(!place.path("runs").exists());
}

#[test]
fn a_flag_of_an_original_tool_without_effect_gives_a_note() {
    let place = Place::new();
    let printed = place.laptime(words(&format!("{TINY} --test forward8 --device cpu --no-sync --out run")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.err.contains("note: `--no-sync` has no effect"), "{}", printed.err);
}

#[test]
fn a_plan_accepts_all_names_of_the_model_axis() {
    let place = Place::new();
    place.write(
        "plan.toml",
        "workload = 'model'\nmeasure-steps = 3\nwarmup-steps = 1\n[axes]\npresets = ['decoder_small']\nattention_type = 'naive'\nseq-lens = 'small'\n",
    );
    let printed = place.laptime(words("bench --plan plan.toml --dry-run --format csv")).done();
    let rows: Vec<&str> = printed.lines().collect();
    assert!(rows[0].starts_with("model,test,pass_type,seq_len,cache_tokens,batch_size,dtype,attention,"), "{printed}");
    assert!(rows[1].starts_with("decoder_small,forward256,forward,256,0,1,f32,naive,"), "{printed}");
    assert_eq!(rows.len(), 3);
    let flagged = place.laptime(words("bench model --plan plan.toml --model-size tiny --dry-run --format csv")).done();
    assert!(
        flagged.lines().nth(1).unwrap().starts_with("tiny,forward_backward256,forward_backward,256,0,4,f32,naive,"),
        "{flagged}"
    );
}

#[test]
fn a_model_is_measured_with_the_documented_names() {
    let place = Place::new();
    let printed = place.laptime(words(&format!("{TINY} --test pp16,tg8@d4 --format jsonl --out run")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let rows: Vec<Value> = printed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [prefill, decode] = rows.as_slice() else { panic!("{}", printed.out) };
    for key in
        ["model", "attention", "seq_len", "batch_size", "dtype", "pass_type", "device", "outcome", "n", "median_ms"]
    {
        assert!(!prefill[key].is_null(), "{key}");
    }
    assert_eq!((prefill["test"].as_str(), decode["test"].as_str()), (Some("pp16"), Some("tg8@d4")));
    assert!(prefill["tok_s"].as_f64().unwrap() > 0.0 && prefill["ttft_ms"].as_f64().unwrap() > 0.0);
    assert!(prefill["tpot_ms"].is_null() && decode["ttft_ms"].is_null());
    let tpot = decode["median_ms"].as_f64().unwrap() / 8.0;
    assert!((decode["tpot_ms"].as_f64().unwrap() / tpot - 1.0).abs() < 1e-3);
    assert!(prefill["peak_mib"].as_f64().unwrap() > 0.0);
    assert_eq!((&decode["weights"], &decode["steps"]), (&"synthetic".into(), &"launches".into()));
    assert!(prefill["parameters"].as_i64().unwrap() > 100_000 && prefill["gflop"].as_f64().unwrap() > 0.0);
    assert!(prefill.as_object().unwrap().values().all(|value| !value.is_array() && !value.is_object()));
}

#[test]
fn markdown_has_the_columns_that_llama_bench_made_known() {
    let place = Place::new();
    let printed = place.laptime(words(&format!("{TINY} --test pp16,tg8@d4 --format md")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let header: Vec<&str> = printed.out.lines().next().unwrap().split('|').map(str::trim).collect();
    assert_eq!(header, ["", "model", "size", "params", "backend", "threads", "test", "t/s", ""]);
    assert!(printed.out.contains("tg8 @ d4") && printed.out.contains(" ± "), "{}", printed.out);
}

#[test]
fn a_cs336_size_ends_with_the_lines_of_its_script() {
    let place = Place::new();
    let line =
        "bench model --model-size tiny --context-length 16 --measure-steps 4 --warmup-steps 1 --threads 1 --compat";
    let printed = place.laptime(words(line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    for part in [
        "Batch size: 4, context length: 16",
        "Parameters: ",
        "Mean time: ",
        " ms (",
        "Std dev: ",
        "Coefficient of variation: ",
    ] {
        assert!(printed.out.contains(part), "{part} is not in {}", printed.out);
    }
}

#[test]
fn a_run_of_selected_cases_is_resumed_with_these_cases() {
    let place = Place::new();
    let line = format!("{TINY} --test pp16,tg8 --out run");
    assert_eq!(place.laptime(words(&line)).status, Some(0));
    assert_eq!(Run::read(&place.path("run")).unwrap().cases.len(), 2);
    let results = String::from_utf8(place.read("run/results.jsonl")).unwrap();
    let first = results.lines().next().unwrap();
    place.write("run/results.jsonl", format!("{first}\n"));
    let printed = place.laptime(words("bench --resume run"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let read = read_results(&place.path("run/results.jsonl")).unwrap();
    let tests: Vec<String> = read.results.iter().map(|result| result.case.get("test").unwrap().to_string()).collect();
    assert_eq!(tests, ["pp16", "tg8"]);
    let other = place.laptime(words("bench model --preset tiny --threads 1 --test pp17 --resume run")).failed();
    assert!(other.contains("its axes have different values"), "{other}");
}

#[test]
fn the_weights_of_a_folder_are_measured() {
    let place = Place::new();
    copy_fixture(&place, "qwen3", "checkpoint");
    let line = "bench model --model-dir checkpoint --test pp8,tg4 --threads 1 --iterations 2 --warmup 0 --format jsonl";
    let printed = place.laptime(words(line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert_eq!(printed.out.lines().count(), 2);
    assert!(printed.out.lines().all(|row| row.contains("\"weights\":\"folder\"")), "{}", printed.out);
}

#[test]
fn an_impossible_case_of_a_model_is_an_error_with_a_hint() {
    let place = Place::new();
    std::fs::create_dir(place.path("empty")).unwrap();
    for (line, error, hint) in [
        ("bench model --batch-size 0", "axis `batch_size` takes whole numbers from 1", "laptime list"),
        ("bench model --preset qwen3-0.5b", "there is no model `qwen3-0.5b`", "did you mean `Qwen3-0.6B`?"),
        ("bench model --preset encoder_decoder_tiny", "is an encoder-decoder", "laptime list models"),
        ("bench model --model-dir empty", "has no `config.json`", "name a folder"),
        ("bench model --model-dir nowhere", "cannot open", "check the name"),
        ("bench model --test 512", "`512` is not a test", "ppN"),
        ("bench model --test pp512 --seq-len 3", "both select the pass", "leave out the other flag"),
        ("bench model --pass-type sideways", "takes one of forward, prefill, decode, backward,", "laptime list"),
        ("bench model --dtype f8", "takes one of f32, bf16, f16, fp8, not `f8`", "laptime list"),
        ("bench model --contxt 5", "has no axis `contxt`", "its axes are model, test"),
        ("bench model --fit layers", "has no axis `layers` to fit", "it has batch, context"),
        ("bench matmul --fit batch", "has no axis `batch` to fit", "it has none"),
        (
            "profile model --preset tiny --test pp8 --device cpu --timing host,events",
            "does not support timing `events`",
            "`--timing host`",
        ),
        ("profile model --test pp8,tg2", "a profile records one case, not 2", "these have several: test"),
    ] {
        let message = place.laptime(words(line)).failed();
        assert!(message.contains(error), "{line}: {message}");
        assert!(message.split_once("\nhint: ").unwrap().1.contains(hint), "{line}: {message}");
    }
}

#[test]
fn a_profile_of_a_model_records_decoding_unless_a_test_is_named() {
    let place = Place::new();
    let line = "profile model --preset tiny --depth layer --iterations 1 --warmup 0 --threads 1 --device cpu --out run";
    let printed = place.laptime(words(line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.err.contains("Recording `test=tg128`; `--test` selects another."), "{}", printed.err);
    assert!(printed.out.contains("ffn"), "{}", printed.out);
}

#[test]
fn a_folder_with_only_a_config_runs_with_synthetic_weights_and_a_note() {
    let place = Place::new();
    std::fs::create_dir(place.path("mine")).unwrap();
    let config =
        r#"{"model_type": "nano", "n_layer": 1, "n_head": 2, "n_embd": 64, "block_size": 512, "vocab_size": 99}"#;
    place.write("mine/config.json", config);
    let printed =
        place.laptime(words("bench model --model ./mine --test pp8 --iterations 1 --warmup 0 --device cpu --out run"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(
        printed.err.contains("note: `./mine` has a config.json and no weights; synthetic weights are used"),
        "{}",
        printed.err
    );
}

#[test]
fn a_case_that_cannot_run_is_a_row_with_its_reason() {
    let place = Place::new();
    let printed = place.laptime(words(&format!("{TINY} --test pp600,tg512,pp8 --graph on,auto --out run")));
    let outcomes = |run: &str| -> Vec<Outcome> {
        let read = read_results(&place.path(run).join("results.jsonl")).unwrap();
        read.results.into_iter().map(|result| result.outcome).collect()
    };
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let words_of: Vec<&str> = outcomes("run").iter().map(Outcome::word).collect();
    assert_eq!(words_of.iter().filter(|word| **word == "measured").count(), 1, "{words_of:?}");
    assert!(printed.out.contains("600 tokens exceed the context of `tiny` (512)"), "{}", printed.out);
    assert!(printed.out.contains("has no graphs"), "{}", printed.out);
    let huge = "bench model --preset tiny --test pp512 --batch-size 4000000000 --out huge";
    let printed = place.laptime(words(huge));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(matches!(outcomes("huge")[0], Outcome::OutOfMemory { needed_bytes: Some(_), .. }));
    assert!(printed.err.contains("`--fit batch` finds the largest value that fits"), "{}", printed.err);
}

#[test]
fn damaged_weights_are_failed_cases() {
    let place = Place::new();
    copy_fixture(&place, "qwen3", "cut");
    let weights = place.read("cut/model.safetensors");
    place.write("cut/model.safetensors", &weights[..weights.len() / 2]);
    copy_fixture(&place, "qwen3", "nan");
    let mut weights = place.read("nan/model.safetensors");
    let end = weights.len();
    weights[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    place.write("nan/model.safetensors", &weights);
    for (folder, message) in [("cut", "model.safetensors"), ("nan", "not finite")] {
        let printed = place.laptime(words(&format!("bench model --model-dir {folder} --test pp4 --threads 1")));
        assert_eq!(printed.status, Some(1), "{}", printed.err);
        assert!(printed.out.contains("failed") && printed.out.contains(message), "{folder}: {}", printed.out);
    }
}

#[test]
fn the_largest_context_that_fits_is_found() {
    let place = Place::new();
    let printed = place.laptime(words(&format!("{TINY} --pass-type prefill --fit context --out run")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(
        printed.out.contains("The largest `seq_len` that fits is 512: 513 exceeds the limit of the model."),
        "{}",
        printed.out
    );
    let read = read_results(&place.path("run/results.jsonl")).unwrap();
    assert_eq!(read.results.last().unwrap().case.get("test").unwrap().to_string(), "pp512");
}

/// The address space is limited, which no prediction knows of: tries fail, and smaller ones follow.
#[test]
#[cfg(target_os = "linux")]
fn a_case_that_does_not_fit_despite_its_prediction_is_tried_smaller() {
    let place = Place::new();
    let mut command = std::process::Command::new("sh");
    let laptime = format!("ulimit -v 350000; exec {} ", env!("CARGO_BIN_EXE_laptime"));
    let line = "bench model --preset tiny --test pp8 --fit batch --iterations 1 --warmup 0 --threads 1 --out run";
    command.arg("-c").arg(laptime + line).current_dir(place.path("")).env("LAPTIME_HOME", place.path(""));
    let printed = crate::common::Printed::from(command.output().unwrap());
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.out.contains("The largest `batch_size` that fits is "), "{}", printed.out);
    assert!(printed.out.contains(" did not fit, although it was predicted to need "), "{}", printed.out);
    let read = read_results(&place.path("run/results.jsonl")).unwrap();
    let outcomes: Vec<&str> = read.results.iter().map(|result| result.outcome.word()).collect();
    assert!(outcomes.contains(&"out_of_memory") && outcomes.contains(&"measured"), "{outcomes:?}");
}

#[test]
fn a_profile_has_the_requested_depth() {
    let place = Place::new();
    let stages = |depth: &str| {
        let line = format!(
            "profile model --preset tiny --test tg4 --threads 1 --iterations 2 --warmup 1 --depth {depth} --device cpu --out {depth}"
        );
        let printed = place.laptime(words(&line));
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        assert!(printed.out.contains("verhead"), "{}", printed.out);
        printed.out
    };
    let pipeline = stages("pipeline");
    assert!(pipeline.contains("token") && !pipeline.contains("layer"), "{pipeline}");
    let layer = stages("layer");
    assert!(layer.contains("layer") && layer.contains("attention") && !layer.contains("softmax"), "{layer}");
    let ops = stages("ops");
    assert!(ops.contains("qkv") && ops.contains("swiglu"), "{ops}");
}
