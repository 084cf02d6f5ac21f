//! `laptime profile offload`, `laptime bench offload` and the experiment, through the program.

use std::{
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, ChildStderr, Command, Stdio},
};

use laptime_trace::run::{CaseResult, read_results};
use serde_json::Value;

use crate::common::{Place, Printed, assert_golden};

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// A layer takes 40 ms over this link, so that nothing else matters.
const SLOW: &str = "--preset tiny --device cpu --threads 1 --steps 1 --link-gbps 0.005";

fn run_folder(place: &Place) -> PathBuf {
    std::fs::read_dir(place.path("runs")).unwrap().next().unwrap().unwrap().path()
}

fn results(place: &Place) -> Vec<CaseResult> {
    read_results(&run_folder(place).join("results.jsonl")).unwrap().results
}

#[test]
fn the_command_lines_of_the_original_and_ours_give_their_cases() {
    let place = Place::new();
    place.write("2p.txt", "Speaker 1: Hello.\nSpeaker 2: Hi.\n");
    let voice = laptime_models::tts::Audio { samples: vec![0.1; 4800], rate: 24_000 };
    ["a.wav", "b.wav"].iter().for_each(|name| voice.write_wav(&place.path(name)).unwrap());
    let script = "--txt_path 2p.txt --voice_files a.wav b.wav";
    let axes = ["model", "pipeline", "gpu_layers", "dtype", "mode", "max_tokens", "cache_clear_interval", "cfg_scale"];
    let mut message = String::new();
    for line in [
        &format!("profile offload {script} --dtype bfloat16 --num-gpu-layers 20 --profile --preset 7b"),
        &format!("profile offload {script} --preset 7b --no-offload --profile"),
        &format!("profile offload {script} --preset 7b --auto --cache-clear-interval 0 --cfg_scale 1.5"),
        &format!("bench offload {script} --preset 1.5b --benchmark --preset consumer"),
        &format!("bench offload {script} --preset tiny --offload-preset light,extreme --seed 7"),
        "bench offload --preset tiny --mode sync,pinned,prefetch,wrap,batched --link-gbps 0.5",
        "bench offload --pipeline lm --model qwen2.5-7b --num-gpu-layers 20 --max-tokens 50",
        "profile offload --output_dir outputs_offloading",
        "warmup offload --preset tiny",
    ] {
        let printed = place.laptime(words(&format!("{line} --dry-run --format jsonl"))).done();
        message.push_str(&format!("laptime {line}\n"));
        for row in printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let cell = |axis: &&str| row[*axis].as_str().map_or_else(|| row[*axis].to_string(), str::to_owned);
            message.push_str(&format!("  {}\n", axes.iter().map(cell).collect::<Vec<_>>().join(" ")));
        }
    }
    assert_golden("offload/dry-run.txt", &message);
    assert!(!place.path("runs").exists());
}

/// Figures are another each time; words and places are not.
fn without_figures(text: &str) -> String {
    let mut message = String::new();
    for line in text.lines() {
        let line: String = line.chars().map(|letter| if letter.is_ascii_digit() { '9' } else { letter }).collect();
        let words: Vec<&str> =
            line.split_whitespace().map(|word| if word.contains("9.9") { "9.9" } else { word }).collect();
        message.push_str(&words.join(" "));
        message.push('\n');
    }
    message
}

/// The blocks of a profile, from the configuration on, without the table of stages.
fn blocks(out: &str) -> String {
    let is_rule = |line: &str| line.starts_with("====");
    let lines: Vec<&str> = out.lines().collect();
    let mut message = String::new();
    let mut at = 0;
    while at < lines.len() {
        if is_rule(lines[at]) {
            let end = (at + 3..lines.len()).find(|end| is_rule(lines[*end]) || lines[*end].starts_with("stage "));
            let end = end.unwrap_or(lines.len());
            lines[at..end].iter().for_each(|line| message.push_str(&format!("{line}\n")));
            at = end;
        } else {
            at += 1;
        }
    }
    message
}

#[test]
fn a_profile_prints_its_configuration_layers_and_generation() {
    let place = Place::new();
    let line = format!("profile offload {SLOW} --max-tokens 3 --iterations 1 --warmup 0 --quiet --benchmark --compat");
    let printed = place.laptime(words(&line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert_golden("offload/profile.txt", &without_figures(&blocks(&printed.out)));
    let titles =
        ["OFFLOAD CONFIGURATION", "PROFILING SUMMARY - Token 3", "GENERATION SUMMARY - 2 layers in memory, wrap"];
    for title in titles.iter().chain(&["TIME BREAKDOWN (per token)", "BENCHMARK COMPARISON"]) {
        assert!(
            printed.out.contains(&format!("\n{title}\n")) || printed.out.contains(title),
            "{title}: {}",
            printed.out
        );
    }
    assert!(printed.out.contains("Async usage: 2/2 layers (100%)"), "{}", printed.out);
    assert_eq!(printed.out.matches("emulated").count(), 5, "{}", printed.out);
    assert!(!printed.out.contains("GPU") && !printed.out.contains("VRAM"), "there is no GPU: {}", printed.out);
    let wav = run_folder(&place).join("offload_2layers/built_in_generated.wav");
    assert_eq!(std::fs::metadata(wav).unwrap().len(), 44 + 3 * 3200 * 2);
    let results = results(&place);
    let measured = results[0].measured().unwrap();
    let fact = |name: &str| measured.fact(name).map(ToString::to_string);
    assert_eq!(fact("link_kind").as_deref(), Some("emulated"));
    assert!(fact("baseline_ms").is_some_and(|ms| ms.parse::<f64>().unwrap() > 0.0));
}

#[test]
fn the_live_summary_comes_every_ten_tokens_and_machines_get_none() {
    let place = Place::new();
    let line = "profile offload --preset tiny --device cpu --threads 1 --steps 1 --max-tokens 20 --iterations 1 --warmup 0 --compat";
    let printed = place.laptime(words(line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    for token in [10, 20] {
        assert!(printed.err.contains(&format!("PROFILING SUMMARY - Token {token}\n")), "{}", printed.err);
    }
    assert!(printed.err.contains("  Layer  0: Pre="), "{}", printed.err);
    assert!(printed.err.contains("Saved to runs/"), "{}", printed.err);
    let printed = place.laptime(words(&format!("{line} --format jsonl --out run --output_dir elsewhere")));
    assert!(!printed.out.contains("SUMMARY") && !printed.err.contains("SUMMARY"), "{}{}", printed.out, printed.err);
    assert!(printed.out.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{}", printed.out);
    assert!(place.path("elsewhere/offload_2layers/built_in_generated.wav").exists());
}

#[test]
fn a_benchmark_compares_modes_with_the_run_without_offloading() {
    let place = Place::new();
    let line = format!(
        "bench offload {SLOW} --mode sync,wrap,batched --max-tokens 2 --iterations 1 --warmup 0 --benchmark --compat"
    );
    let printed = place.laptime(words(&line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert_golden("offload/bench.txt", &without_figures(&blocks(&printed.out)));
    // The mode, the layers that stay, passes a token in which layers are copied, and the copies that are asked for ahead.
    let message = |result: &CaseResult| {
        let measured = result.measured().unwrap();
        let fact = |name: &str| measured.fact(name).map_or_else(String::new, ToString::to_string);
        let ahead = measured.metric("async_share").unwrap().values[0];
        (fact("mode"), fact("gpu_layers"), fact("streams"), ahead)
    };
    let found: Vec<_> = results(&place).iter().map(message).collect();
    let expected = [
        ("", "4", "2", None),
        ("sync", "2", "2", Some(0.0)),
        ("wrap", "2", "2", Some(1.0)),
        ("batched", "2", "1", Some(1.0)),
    ];
    assert_eq!(found, expected.map(|(mode, stay, passes, ahead)| (mode.into(), stay.into(), passes.into(), ahead)));
}

#[test]
fn every_mode_is_diagnosed_from_its_own_recording() {
    // Which finding is the first depends on the load of the machine; given times decide it in the tests of the analysis.
    let known = ["async-not-running", "link-bound", "codec-limit", "compute-limit", "release-blocks"];
    for mode in ["sync", "pinned", "prefetch", "wrap", "batched"] {
        let place = Place::new();
        let line =
            format!("profile offload {SLOW} --mode {mode} --max-tokens 4 --iterations 1 --warmup 0 --quiet --out run");
        assert_eq!(place.laptime(words(&line)).status, Some(0), "{mode}");
        let printed = place.laptime(words("diagnose run --format json")).done();
        let message: Value = serde_json::from_str(&printed).unwrap();
        let rules: Vec<&str> =
            message["findings"].as_array().unwrap().iter().filter_map(|row| row["id"].as_str()).collect();
        assert!(rules.iter().any(|rule| known.contains(rule)), "{mode}: {rules:?}");
        assert!(printed.contains("emulated"), "{printed}");
        let tokens = place.laptime(words("diagnose run --tokens")).done();
        assert!(tokens.contains("layers: wait"), "{tokens}");
        let share = place.laptime(words("diagnose run --share")).done();
        assert!(share.contains("of 0.005 emulated") && share.contains("link emulated"), "{share}");
    }
}

#[test]
fn an_experiment_concludes_from_three_runs() {
    let place = Place::new();
    let flags = format!("{SLOW} --max-tokens 2 --iterations 1 --warmup 0 --num-gpu-layers 1");
    let printed = place.laptime(words(&format!("diagnose --experiment {flags} --format json"))).done();
    let message: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(message["conclusion"], "works, needs more GPU layers", "{printed}");
    let layers: Vec<u64> =
        message["experiment"].as_array().unwrap().iter().filter_map(|row| row["gpu_layers"].as_u64()).collect();
    assert_eq!(layers, [1, 4, 3]);
    assert!(message["overhead"].is_f64() && message["with_more"].is_f64(), "{printed}");
    let text =
        place.command().env("COLUMNS", "80").args(words(&format!("diagnose --experiment {flags}"))).output().unwrap();
    assert_golden("offload/experiment.txt", &without_figures(&Printed::from(text).done()));
    assert!(!place.path("runs").exists());
    let nothing = place.laptime(words("diagnose --experiment --preset tiny --no-offload --device cpu")).failed();
    assert!(nothing.contains("all 4 layers are on the device, so there is nothing to compare"), "{nothing}");
    let other = place.laptime(words("diagnose --experiment nowhere")).failed();
    assert!(other.contains("nowhere"), "{other}");
}

#[test]
fn an_experiment_takes_the_case_of_a_run() {
    let place = Place::new();
    let line =
        format!("profile offload {SLOW} --max-tokens 2 --iterations 1 --warmup 0 --quiet --out run --num-gpu-layers 3");
    assert_eq!(place.laptime(words(&line)).status, Some(0));
    let printed = place.laptime(words("diagnose run --format json --experiment")).done();
    let message: Value = serde_json::from_str(&printed).unwrap();
    // One layer is offloaded, so the only run with more layers on the GPU is the one with all of them. What two runs that
    // differ by one layer conclude depends on how busy the machine is.
    let layers: Vec<u64> =
        message["experiment"].as_array().unwrap().iter().filter_map(|row| row["gpu_layers"].as_u64()).collect();
    assert_eq!(layers, [3, 4], "{printed}");
}

#[test]
fn an_invalid_run_is_one_error_with_a_hint() {
    let place = Place::new();
    place.write("it.txt", "Hello.\n");
    place.write("two.txt", "Speaker 1: Hello.\nSpeaker 2: Hi.\n");
    place.write("it.wav", "this is no WAV");
    for (flags, reason) in [
        ("--num-gpu-layers 5", "cannot keep 5 layers on the device: the model has 4"),
        ("--memory-budget 1MiB", "a memory budget of 1MiB is too small: the model needs "),
        ("--auto --no-offload", "`--auto` and `--no-offload` both set the number of layers on the device"),
        ("--dtype float8_e4m3fn", "weights in `float8_e4m3fn` are not supported"),
        ("--txt_path nowhere.txt", "cannot read `nowhere.txt`"),
        ("--voice_files nowhere.wav", "cannot read `nowhere.wav`"),
        ("--txt_path it.txt", "`it.txt`: line 1 has no speaker"),
        ("--txt_path two.txt --voice_files it.wav", "`it.wav`"),
        ("--max-tokens 100000", "do not fit"),
        ("--mode async", "axis `mode` takes one of sync, pinned, prefetch, wrap, batched, not `async`"),
    ] {
        for command in ["profile", "bench"] {
            let line = format!("{command} offload --preset tiny --device cpu {flags}");
            let message = place.laptime(words(&line)).failed();
            assert!(message.contains(reason), "{line}: {message}");
        }
    }
    let other = place.laptime(words("profile matmul --size 8 --output-dir here")).failed();
    assert!(other.contains("`--output-dir` is a flag of `offload`, not of `matmul`"), "{other}");
    assert!(!place.path("runs").exists());
}

#[test]
fn a_full_disk_for_the_layers_fails_the_case() {
    let place = Place::new();
    let line = "profile offload --preset tiny --device cpu --iterations 1 --warmup 0 --quiet";
    let printed =
        Printed::from(place.command().env("TMPDIR", place.path("nowhere")).args(words(line)).output().unwrap());
    assert_eq!(printed.status, Some(1), "{}", printed.err);
    assert!(
        printed.err.contains("the case failed: cannot write `") && printed.err.contains("nowhere"),
        "{}",
        printed.err
    );
}

/// Begins a long generation and reads until its first summary is there.
fn begun(place: &Place) -> (Child, BufReader<ChildStderr>) {
    std::fs::create_dir(place.path("slow")).unwrap();
    let line = format!("profile offload {SLOW} --max-tokens 100 --iterations 1 --warmup 0 --out run --compat");
    let mut command = place.command();
    command.env("TMPDIR", place.path("slow")).args(words(&line)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut message = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("PROFILING SUMMARY - Token") {
        line.clear();
        assert!(message.read_line(&mut line).unwrap() > 0, "it ended before its first summary");
    }
    (child, message)
}

fn ended((child, mut message): (Child, BufReader<ChildStderr>)) -> Printed {
    let mut err = String::new();
    message.read_to_string(&mut err).unwrap();
    let output = child.wait_with_output().unwrap();
    Printed { err, ..Printed::from(output) }
}

/// Seconds of audio in the summary, and in the file.
fn audio(place: &Place, out: &str) -> (f64, f64) {
    let message = out.lines().find_map(|line| line.strip_prefix("Audio duration: ")).unwrap_or_else(|| panic!("{out}"));
    let wav = place.read("run/offload_2layers/built_in_generated.wav");
    (message.trim_end_matches(" s").parse().unwrap(), (wav.len() - 44) as f64 / 48_000.0)
}

#[cfg(unix)]
#[test]
fn ctrl_c_still_prints_the_summary_and_writes_the_audio_so_far() {
    let place = Place::new();
    let begun = begun(&place);
    let killed = Command::new("kill").args(["-INT", &begun.0.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let printed = ended(begun);
    assert_eq!(printed.status, Some(2), "{}", printed.err);
    assert!(printed.err.contains("error: interrupted after 1 pair\n"), "{}", printed.err);
    assert!(
        printed.out.contains("GENERATION SUMMARY - ") && printed.out.contains("PROFILING SUMMARY - "),
        "{}",
        printed.out
    );
    let (message, file) = audio(&place, &printed.out);
    assert!((message - file).abs() < 0.01 && (0.13..13.4).contains(&file), "{message} {file}");
}

#[test]
fn a_layer_file_that_is_cut_off_fails_the_case_and_the_audio_so_far_is_kept() {
    let place = Place::new();
    let begun = begun(&place);
    // The file has no name; the program has it open.
    let mut open = std::fs::read_dir(format!("/proc/{}/fd", begun.0.id())).unwrap().map(|entry| entry.unwrap().path());
    let is_layers = |link: &PathBuf| std::fs::read_link(link).is_ok_and(|file| file.starts_with(place.path("slow")));
    let file = open.find(is_layers).unwrap();
    std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(1000).unwrap();
    let printed = ended(begun);
    assert_eq!(printed.status, Some(1), "{}", printed.err);
    assert!(
        printed.err.contains("the case failed: ") && printed.err.contains("truncated: 1000 of "),
        "{}",
        printed.err
    );
    let (message, file) = audio(&place, &printed.out);
    assert!((message - file).abs() < 0.01 && file >= 0.13, "{message} {file}");
}
