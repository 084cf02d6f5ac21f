//! `profile`, `warmup`, `ab`, `doctor`, `list`, `completions` and `man`, through the program.

use serde_json::Value;

use crate::common::{Place, assert_golden};

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

const VERDICTS: [&str; 4] = ["faster", "slower", "same", "unclear"];

#[test]
fn a_profile_prints_its_overhead_and_its_files() {
    let place = Place::new();
    let printed = place.laptime(words("profile matmul --size 16 --threads 1 --iterations 20 --out run"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    for expected in ["\nOne iteration: ", " (median of 20).\n", "\nRecording overhead: "] {
        assert!(printed.out.contains(expected), "{expected}: {}", printed.out);
    }
    let overhead = printed.out.lines().find(|line| line.starts_with("Recording overhead: ")).unwrap();
    assert!(overhead.contains(" to ") && overhead.ends_with(" %)."), "its interval: {overhead}");
    let saved = "\nSaved to run (report.html, trace.pftrace, trace.json, flamegraph.svg, stages.tsv, results.jsonl)\n";
    assert!(printed.err.contains(saved), "{}", printed.err);
    let stages = place.laptime(["stages", "run", "--all"]).done();
    assert!(stages.contains("\niteration (lap) ") && stages.contains("\nopen_device "), "{stages}");
    for file in ["run.json", "results.jsonl", "trace.pftrace", "trace.json", "flamegraph.svg", "stages.tsv", "top.json"]
    {
        assert!(place.path("run").join(file).metadata().unwrap().len() > 0, "{file}");
    }
    let trace = laptime_trace::read(place.path("run/trace.pftrace")).unwrap();
    let count = |name: &str| trace.spans().filter(|span| span.name == name).count();
    assert_eq!((count("iteration"), count("prepare"), count("check"), count("warm_up")), (20, 1, 1, 3));
    let facts = json(&place.laptime(words("profile matmul --size 16 --threads 1 --iterations 20 --format json")).out);
    assert!(facts["overhead"].is_f64() && facts["overhead_lo"].as_f64() <= facts["overhead_hi"].as_f64(), "{facts}");
    assert_eq!(facts["overhead_pairs"], 20, "{facts}");
}

#[test]
fn a_profile_that_cannot_begin_leaves_nothing_behind() {
    let place = Place::new();
    for arguments in ["--device nowhere", "--size 8,16", "--timing events --device cpu", "--device nowhere --out mine"]
    {
        let arguments = words("profile matmul --quiet").into_iter().chain(words(arguments));
        place.laptime(arguments).failed();
        assert_eq!(std::fs::read_dir(place.path("")).unwrap().count(), 0);
    }
}

#[test]
fn a_profile_begins_with_the_device_that_is_opened() {
    let place = Place::new();
    let printed = place.laptime(words("profile matmul --size 8 --device cpu --iterations 2 --quiet --out run"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let trace = laptime_trace::read(place.path("run/trace.pftrace")).unwrap();
    let opened: Vec<_> = trace.spans().filter(|span| span.name == "open_device").collect();
    assert_eq!(opened.len(), 1);
    assert_eq!(trace.spans().next().unwrap().name, "open_device");
}

#[test]
fn a_profile_of_a_chain_shows_its_stages_and_their_sync() {
    let place = Place::new();
    let printed = place.laptime(words(
        "profile chain --device cpu --small 8 --large 16 --threads 1 --iterations 6 --timing host --out run",
    ));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    for stage in ["small", "large", "read_back", "read_result (sync)"] {
        assert!(printed.out.contains(stage), "{stage}: {}", printed.out);
    }
    let pairs = String::from_utf8(place.read("run/overhead.tsv")).unwrap();
    assert!(
        pairs.starts_with("recorded_ns\tunrecorded_ns\ttiming\n") && pairs.trim_end().ends_with("\thost"),
        "{pairs}"
    );
}

#[test]
fn timings_are_compared_in_one_table_and_refused_where_only_one_is_possible() {
    let place = Place::new();
    let chain = "chain --device cpu --small 8 --large 16 --threads 1 --iterations 6";
    let printed = place.laptime(words(&format!("profile {chain} --timing host,host --format json")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let rows: Vec<Value> = json(&printed.out)["timings"].as_array().unwrap().clone();
    let stages: Vec<&str> = rows.iter().filter_map(|row| row["stage"].as_str()).collect();
    assert_eq!(stages, ["iteration", "iteration", "small", "large", "read_back", "iteration"], "{}", printed.out);
    assert!(rows[0]["timing"] == "none" && rows[1]["overhead"].is_f64() && rows[1]["device_ms"].is_null());
    let printed = place.laptime(words(&format!("bench {chain} --timing host,host")));
    assert_eq!(printed.status, Some(2));
    assert!(
        printed.err.contains("`--timing` takes one value here") && printed.err.contains("laptime profile chain"),
        "{}",
        printed.err
    );
}

#[test]
fn a_warm_up_study_has_a_row_for_each_fresh_process() {
    let place = Place::new();
    let printed = place.laptime(words("warmup matmul --size 16 --threads 1 --iterations 20 --runs 2 --format json"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let answer = json(&printed.out);
    let rows = answer["warmups"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["run"].as_u64()).collect::<Vec<_>>(), [Some(0), Some(1)]);
}

#[test]
fn two_commands_are_compared_interleaved() {
    let place = Place::new();
    let printed = place
        .command()
        .args(["ab", "--a", "true", "--b", "sleep 0.2", "--runs", "4", "--format", "json", "--out", "run"])
        .output()
        .unwrap();
    // Which verdict it is depends on the machine's load; the exit status follows it.
    let answer = json(&String::from_utf8(printed.stdout).unwrap());
    let verdict = answer["verdict"].as_str().unwrap();
    assert!(VERDICTS.contains(&verdict), "{answer}");
    let status = i32::from(verdict == "slower");
    assert_eq!(printed.status.code(), Some(status), "{verdict}: {}", String::from_utf8_lossy(&printed.stderr));
    let lines = String::from_utf8(place.read("run/results.jsonl")).unwrap();
    let variants: Vec<Value> = lines.lines().map(|line| json(line)["case"]["variant"].clone()).collect();
    assert_eq!((variants.len(), variants.iter().filter(|variant| *variant == "a").count()), (8, 4));
}

#[test]
fn background_processes_of_a_command_are_not_waited_for() {
    let place = Place::new();
    // The loop in the background holds standard error open until the test ends it.
    place.write("go_on", "");
    let left = "(while [ -e go_on ]; do sleep 0.05; done) & true";
    let printed =
        place.command().args(["ab", "--a", left, "--b", "true", "--runs", "3", "--out", "run"]).output().unwrap();
    std::fs::remove_file(place.path("go_on")).unwrap();
    assert!(matches!(printed.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&printed.stderr));
}

#[test]
fn a_row_of_b_has_the_verdict_in_every_format_for_machines() {
    let place = Place::new();
    let arguments = ["ab", "--a", "true", "--b", "sleep 0.1", "--runs", "4", "--format", "csv"];
    let out = place.laptime(arguments).out;
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split(',').collect()).collect();
    let at = rows[0].iter().position(|key| *key == "verdict").unwrap();
    assert!(rows[1][at].is_empty() && VERDICTS.contains(&rows[2][at]), "{out}");
    assert!(place.path("runs").read_dir().unwrap().all(|run| run.unwrap().path().join("run.json").is_file()));
}

#[test]
fn two_variants_of_a_workload_run_in_fresh_processes() {
    let place = Place::new();
    let variant = "matmul --size 8 --threads 1 --iterations 3 --warmup 0";
    let arguments = ["ab", "--a", variant, "--b", variant, "--runs", "3", "--format", "json", "--out", "run"];
    let printed = place.command().args(arguments).output().unwrap();
    assert!(matches!(printed.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&printed.stderr));
    let read = laptime_trace::run::read_results(&place.path("run/results.jsonl")).unwrap();
    let mut runs: Vec<u32> = read.results.iter().map(|result| result.run).collect();
    runs.sort_unstable();
    assert_eq!(runs, [0, 0, 1, 1, 2, 2]);
}

#[test]
fn a_variant_that_takes_too_long_is_stopped_with_an_error() {
    let place = Place::new();
    let ab = |b: &str| {
        let limits = ["--runs", "3", "--timeout", "300ms", "--out", b];
        place.laptime([&["ab", "--a", "true", "--b", b][..], &limits].concat()).failed()
    };
    let message = ab("sleep 1000");
    assert!(message.contains("variant `b` did not end within 0.3 s and was stopped"), "{message}");
    let message = ab("matmul --size 4096 --threads 1");
    assert!(message.contains("variant `b` was not measured: no result within 0.3 s"), "{message}");
}

#[test]
fn a_failing_variant_is_reported_with_its_stderr() {
    let place = Place::new();
    let ab = |a: &str| place.laptime(["ab", "--a", a, "--b", "true", "--runs", "3"]).failed();
    let message = ab("echo no such file >&2; exit 7");
    assert!(
        message.contains("variant `a` failed (exit status: 7)") && message.contains("caused by: no such file"),
        "{message}"
    );
    assert!(ab("matmul --size 1,2").contains("variant `a` has 2 cases"));
    assert!(ab("matmul --sise 1").contains("has no axis `sise`"));
    assert!(ab(" ").contains("variant `a` is empty"));
}

#[test]
fn the_doctor_answers_in_every_format() {
    let place = Place::new();
    let printed = place.laptime(["doctor", "--format", "json"]);
    assert_eq!(printed.err, "");
    let answer = json(&printed.out);
    let is_fit = answer["notes"].to_string().contains("can be measured on this machine");
    assert_eq!(printed.status, Some(if is_fit { 0 } else { 1 }), "{}", printed.out);
    let checks: Vec<&str> =
        answer["checks"].as_array().unwrap().iter().filter_map(|row| row["check"].as_str()).collect();
    for check in ["build", "governor", "load", "clock", "memory", "GPU", "peaks"] {
        assert!(checks.contains(&check), "{check} is not in {checks:?}");
    }
}

#[test]
fn the_list_shows_workloads_with_their_axes() {
    let place = Place::new();
    let workloads = json(&place.laptime(["list", "--format", "json"]).done());
    assert_eq!(workloads["workloads"][0]["axes"], "size, dtype, threads");
    let axes = json(&place.laptime(["list", "copy", "--format", "json"]).done());
    let names: Vec<&str> = axes["axes"].as_array().unwrap().iter().filter_map(|axis| axis["name"].as_str()).collect();
    assert_eq!(names, ["op", "size", "dtype", "threads"]);
    let list = place.laptime(["list"]).done();
    assert!(list.contains("Devices: `cpu`"), "{list}");
    // Which devices there are is the machine's.
    let lines: Vec<&str> = list.lines().filter(|line| !line.starts_with("Devices: ")).collect();
    assert_golden("bench/list.txt", &(lines.join("\n") + "\n"));
}

#[test]
fn the_list_of_models_shows_dimensions_and_sizes() {
    let place = Place::new();
    assert_golden("bench/models.txt", &place.laptime(["list", "models"]).done());
    let models = json(&place.laptime(["list", "models", "--format", "json"]).done());
    let named = |name: &str| models["models"].as_array().unwrap().iter().find(|model| model["model"] == name).unwrap();
    let qwen = named("Qwen3-0.6B");
    assert_eq!((&qwen["parameters"], &qwen["kv_token_bytes"]), (&json("596049920"), &json("114688")));
    assert_eq!((&qwen["heads"], &qwen["kv_heads"], &qwen["dtype"]), (&json("16"), &json("8"), &json("\"bf16\"")));
    assert_eq!(named("2.7B")["weight_bytes"], json("13627238400"));
    let lines = place.laptime(["list", "models", "--format", "csv"]).done();
    assert_eq!(lines.lines().count(), 24, "{lines}");
}

#[test]
fn completions_know_the_axes_of_workloads() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = place.laptime(["completions", shell]).done();
        assert!(script.contains("max-time") && script.contains("dtype"), "{shell}");
    }
    let script = place.laptime(["completions", "bash"]).done();
    let list = script.split("laptime__subcmd__list)").nth(1).or_else(|| script.split("laptime__list)").nth(1)).unwrap();
    let words = list.lines().find(|line| line.contains("opts=")).unwrap();
    assert!(words.contains("matmul") && words.contains("models"), "{words}");
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let place = Place::new();
    assert!(place.laptime(["man"]).done().contains(".SH SYNOPSIS"));
    let printed = place.laptime(["man", "--out", "man1"]);
    assert_eq!(printed.status, Some(0));
    for command in ["laptime", "laptime bench", "laptime bench tts", "laptime doctor", "laptime audit syncs"] {
        let page = String::from_utf8(place.read(&format!("man1/{}.1", command.replace(' ', "-")))).unwrap();
        let synopsis = page.split(".SH SYNOPSIS\n").nth(1).unwrap_or_else(|| panic!("{command}: {page}"));
        assert!(synopsis.starts_with(&format!("\\fB{command}\\fR ")), "{command}: {synopsis}");
    }
}

#[test]
fn flags_for_files_are_only_in_the_help_of_their_workloads() {
    let place = Place::new();
    for (command, flag, workload, other) in [
        ("bench", "--compat-files", "model", "matmul"),
        ("bench", "--wav", "tts", "model"),
        ("bench", "--stream-to", "tts", "c2c"),
        ("profile", "--compat-files", "tts", "model"),
        ("profile", "--output-dir", "offload", "tts"),
    ] {
        let help = |words: &[&str]| place.laptime([&[command], words, &["--help"]].concat()).done();
        assert!(help(&[workload]).contains(flag), "{command} {workload} {flag}");
        assert!(!help(&[other]).contains(flag) && !help(&[]).contains(flag), "{command} {other} {flag}");
    }
    // A plan may name the workload, so they are read before it is known.
    place.write("plan.toml", "workload = \"tts\"\n");
    let printed = place.laptime(["bench", "--plan", "plan.toml", "--wav", "a.wav", "--dry-run"]);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
}

#[test]
fn help_of_every_command_has_a_worked_example() {
    let place = Place::new();
    for command in ["tour", "bench", "profile", "warmup", "ab", "peaks", "doctor", "list", "compare", "stages", "top"] {
        let help = place.laptime([command, "--help"]).done();
        assert!(help.contains("Example") && help.contains(&format!("laptime {command}")), "{help}");
    }
}
