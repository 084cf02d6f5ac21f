//! `laptime bench tts`, `laptime profile tts` and what goes with them, through the program.

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use laptime_trace::run::read_results;
use serde_json::Value;

use crate::common::{Place, Printed, assert_golden};

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

const SMALL: &str = "bench tts --preset tiny --label short --frames 4 --threads 1 --device cpu";

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/tts")
}

fn run_folder(place: &Place) -> PathBuf {
    std::fs::read_dir(place.path("runs")).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn the_command_lines_of_the_original_and_ours_give_their_cases() {
    let place = Place::new();
    place.write("hello.txt", "Hello there, you two.\n");
    std::fs::create_dir_all(place.path("test_data/model/speech_tokenizer")).unwrap();
    for file in ["config.json", "model.safetensors", "vocab.json", "merges.txt", "tokenizer_config.json"] {
        std::fs::copy(fixture().join(file), place.path("test_data/model").join(file)).unwrap();
    }
    for file in ["speech_tokenizer/config.json", "speech_tokenizer/model.safetensors"] {
        std::fs::copy(fixture().join(file), place.path("test_data/model").join(file)).unwrap();
    }
    let axes = ["model", "label", "speaker", "language", "frames", "streaming", "chunk_frames", "seed"];
    let mut message = String::new();
    for line in [
        "bench tts --model-dir test_data/model",
        "bench tts --model-dir test_data/model --iterations 3 --warmup 2",
        "bench tts --device auto --model-dir test_data/model --warmup 1 --iterations 3 --seed 42 --json-output results.json",
        "bench tts --model-dir test_data/model --device cpu --streaming",
        "bench tts --model-dir test_data/model --labels short,medium --streaming --json-output results.json",
        "bench tts",
        "bench tts --preset 0.6b,1.7b --label short --chunk-frames 4,10 --streaming",
        "bench tts --preset tiny --text-file hello.txt --speaker vivian --language auto --greedy",
        "bench tts --preset tiny --text Hello, you two. --temperature 0.7 --top-k 20 --top-p 1 --repetition-penalty 1.1",
        "bench tts --preset Qwen3-TTS-12Hz-1.7B-CustomVoice --labels long --frames 100 --wav long.wav",
        "profile tts --preset tiny --label short",
        "warmup tts --preset tiny --label short",
    ] {
        let printed = place.laptime(words(&format!("{line} --dry-run --format jsonl"))).done();
        message.push_str(&format!("laptime {line}\n"));
        for row in printed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let cell = |axis: &&str| row[*axis].as_str().map_or_else(|| row[*axis].to_string(), str::to_owned);
            message.push_str(&format!("  {}\n", axes.iter().map(cell).collect::<Vec<_>>().join(" ")));
        }
    }
    assert_golden("tts/dry-run.txt", &message);
    assert!(!place.path("runs").exists() && !place.path("results.json").exists());
}

/// The line with the columns, and what is above it.
fn table(out: &str) -> (Vec<&str>, String) {
    let above: Vec<&str> = out.lines().take_while(|line| !line.starts_with("Label")).collect();
    let header = out.lines().find(|line| line.starts_with("Label")).unwrap_or_else(|| panic!("{out}"));
    let columns = header.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
    (columns, above.join("\n"))
}

#[test]
fn the_table_has_the_columns_of_the_original_and_the_header_its_lines() {
    let place = Place::new();
    let printed = place.command().env("COLUMNS", "250").args(words(SMALL)).arg("--compat").output().unwrap();
    let printed = Printed::from(printed);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let (columns, above) = table(&printed.out);
    let kit = "Label,Words,Wall (ms),±,Audio (s),RTF,Tok/s,Mem (MB),Prefill,Generate,Decode";
    assert_eq!(columns[..11].join(","), kit);
    assert!(columns[11..].contains(&"p99 (ms)"), "{columns:?}");
    assert_eq!(above, "Device: cpu\nModel: tiny (f32)\nConfig: 1 warmup, 3 iterations, seed 42\n");
    let row = printed.out.lines().find(|line| line.starts_with("short")).unwrap();
    assert!(row.contains("ms (") && row.contains("%)") && row.contains("0.320"), "{row}");
    let results = read_results(&run_folder(&place).join("results.jsonl")).unwrap().results;
    let measured = results[0].measured().unwrap();
    assert_eq!((measured.warmup_ns.len(), measured.wall_ns.len()), (1, 3));
}

#[test]
fn streaming_has_the_columns_of_the_original_and_counts_late_frames() {
    let place = Place::new();
    let arguments = words("--streaming --chunk-frames 2 --iterations 2 --compat");
    let printed = place.command().env("COLUMNS", "250").args(words(SMALL)).args(arguments).output().unwrap();
    let printed = Printed::from(printed);
    let (columns, above) = table(&printed.out);
    assert_eq!(columns[..8].join(","), "Label,Words,Wall (ms),Audio (s),RTF,TTFA (ms),Tok/s,Mem (MB)");
    assert!(columns.contains(&"late") && columns.contains(&"buffer (ms)"), "{columns:?}");
    assert!(above.contains("Mode: streaming (measuring TTFA)"), "{above}");
    let record: Value =
        serde_json::from_slice(&std::fs::read(run_folder(&place).join("e2e_bench.json")).unwrap()).unwrap();
    assert!(record["results"][0]["ttfa_ms"].is_f64() && record["results"][0]["stages"].is_null(), "{record}");
}

/// Times and memory are another each time.
fn without_times(value: &mut Value, key: &str) {
    let varies = ["_ms", "_mb", "_per_sec", "rtf"].iter().any(|ending| key.ends_with(ending));
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(key, value)| without_times(value, key)),
        Value::Array(items) => items.iter_mut().for_each(|item| without_times(item, key)),
        Value::Number(_) if varies => *value = "a number".into(),
        _ => {}
    }
}

#[test]
fn the_record_has_the_keys_of_the_original_and_the_audio_its_samples() {
    let place = Place::new();
    let printed =
        place.laptime(words(&format!("{SMALL} --json-output out/r.json --wav out/it.wav --iterations 2 --warmup 0")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.err.contains("out/r.json") && printed.err.contains("out/it.wav"), "{}", printed.err);
    let mut record: Value = serde_json::from_slice(&place.read("out/r.json")).unwrap();
    assert_eq!(std::fs::read(run_folder(&place).join("e2e_bench.json")).unwrap(), place.read("out/r.json"));
    without_times(&mut record, "");
    assert_golden("tts/e2e_bench.json", &(serde_json::to_string_pretty(&record).unwrap() + "\n"));
    let wav = place.read("out/it.wav");
    assert_eq!((wav.len(), &wav[..4], &wav[8..12]), (44 + 4 * 1920 * 2, &b"RIFF"[..], &b"WAVE"[..]));
}

#[test]
fn several_texts_are_several_files() {
    let place = Place::new();
    let line =
        "bench tts --preset tiny --labels short,medium --frames 2 --iterations 1 --warmup 0 --threads 1 --device cpu";
    let printed = place.laptime(words(&format!("{line} --wav it.wav --format jsonl")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(place.path("it-short.wav").exists() && place.path("it-medium.wav").exists());
    let rows: Vec<Value> = printed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 2);
    for key in ["rtf", "rtfx", "tok_s", "prefill_ms", "generation_ms", "decode_ms", "frame_p95_ms", "audio_s"] {
        assert!(rows[0][key].is_number(), "{key}: {}", rows[0]);
    }
    assert!(rows[0]["ttfa_ms"].is_null() && rows[0]["late_frames"].is_null(), "{}", rows[0]);
}

#[test]
fn invalid_text_is_one_error_with_a_hint() {
    let place = Place::new();
    let failed = |more: &[&str]| place.laptime([&words("bench tts --device cpu"), more].concat()).failed();
    assert!(failed(&["--text", " "]).starts_with("error: the text is empty"));
    let long = failed(&["--text", &"many words ".repeat(9_000)]);
    assert!(long.contains("positions of the talker"), "{long}");
    let speaker = failed(&["--speaker", "bob"]);
    assert!(speaker.contains("no speaker `bob`") && speaker.contains("serena, vivian"), "{speaker}");
    let language = failed(&["--language", "klingon"]);
    assert!(language.contains("no language `klingon`") && language.contains("english"), "{language}");
    assert!(failed(&["--model-dir", "nowhere"]).contains("nowhere"));
    let other = place.laptime(words("bench matmul --size 8 --wav it.wav")).failed();
    assert!(other.contains("`--wav` is a flag of `tts`, not of `matmul`"), "{other}");
    assert!(!place.path("runs").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_loses_the_audio_and_keeps_the_results() {
    let place = Place::new();
    let printed = place.laptime(words(&format!("{SMALL} --iterations 2 --warmup 0 --wav /dev/full")));
    assert_eq!(printed.status, Some(2), "{}", printed.err);
    assert!(printed.err.contains("error: the results were saved, but not the audio"), "{}", printed.err);
    assert!(
        printed.err.contains("cannot write `/dev/full`") && printed.err.contains("\nhint: free some space"),
        "{}",
        printed.err
    );
    assert_eq!(read_results(&run_folder(&place).join("results.jsonl")).unwrap().results.len(), 1);
    assert!(run_folder(&place).join("e2e_bench.json").exists());
}

const STREAMED: &str = "--streaming --chunk-frames 2 --iterations 1 --warmup 0";

#[test]
fn audio_is_handed_on_while_it_is_made() {
    let place = Place::new();
    let printed = place.laptime(words(&format!("{SMALL} {STREAMED} --wav whole.wav --stream-to streamed.wav")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.err.contains("streamed.wav"), "{}", printed.err);
    assert_eq!(place.read("streamed.wav"), place.read("whole.wav"));
    let piped = place.command().args(words(&format!("{SMALL} {STREAMED} --stream-to -"))).output().unwrap();
    assert_eq!(piped.status.code(), Some(0));
    let (message, whole) = (String::from_utf8_lossy(&piped.stderr), place.read("whole.wav"));
    assert!(message.contains("TTFA (ms)") && message.contains("Saved to "), "{message}");
    assert_eq!((piped.stdout.len(), &piped.stdout[40..44]), (whole.len(), &[255; 4][..]));
    assert_eq!(piped.stdout[44..], whole[44..]);
}

#[test]
fn a_reader_that_closes_the_pipe_is_reported_and_nothing_is_lost() {
    let place = Place::new();
    let line = SMALL.replace("--frames 4", "--frames 40");
    let mut running = place
        .command()
        .args(words(&format!("{line} {STREAMED} --stream-to -")))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 1_000];
    running.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let printed = running.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&printed.stderr);
    assert_eq!(printed.status.code(), Some(0), "{message}");
    assert_eq!(message.matches("The reader of standard output stopped: it read ").count(), 1, "{message}");
    assert!(!message.contains("error") && message.contains("Saved to "), "{message}");
    assert_eq!(read_results(&run_folder(&place).join("results.jsonl")).unwrap().results.len(), 1);
}

#[test]
fn audio_that_cannot_be_handed_on_is_refused_before_anything_is_measured() {
    let place = Place::new();
    let whole = place.laptime(words(&format!("{SMALL} --stream-to -"))).failed();
    assert!(whole.contains("`--stream-to` writes audio while it is generated, and needs `--streaming`"), "{whole}");
    assert!(whole.contains("hint: add `--streaming`"), "{whole}");
    let line = "bench tts --preset tiny --device cpu --streaming --stream-to -";
    let several = place.laptime(words(line)).failed();
    assert!(several.contains("standard output can take the audio of one case, and there are 3"), "{several}");
    assert!(!place.path("runs").exists());
    let full = place.laptime(words(&format!("{SMALL} {STREAMED} --stream-to /dev/full")));
    assert_eq!(full.status, Some(2), "{}", full.err);
    assert!(full.err.contains("error: the results were saved, but not the audio"), "{}", full.err);
}

#[test]
fn a_profile_writes_audio_to_a_file_or_into_a_folder() {
    let place = Place::new();
    std::fs::create_dir(place.path("folder")).unwrap();
    let line = format!("{} --iterations 1 --warmup 0", SMALL.replace("bench", "profile"));
    for (wav, file) in [("one.wav", "one.wav"), ("folder", "folder/short.wav"), ("new/", "new/short.wav")] {
        let printed = place.laptime(words(&format!("{line} --wav {wav}")));
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        assert!(printed.err.contains(&file.to_string()), "{}", printed.err);
        assert_eq!(place.read(file).len(), 44 + 4 * 1920 * 2);
    }
    let other = place.laptime(words("profile matmul --size 8 --wav it.wav")).failed();
    assert!(other.contains("`--wav` is a flag of `tts`, not of `matmul`"), "{other}");
}

#[test]
fn a_checkpoint_of_another_size_is_refused_before_loading() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("other/speech_tokenizer")).unwrap();
    for file in ["model.safetensors", "speech_tokenizer/config.json", "speech_tokenizer/model.safetensors"] {
        std::fs::copy(fixture().join(file), place.path("other").join(file)).unwrap();
    }
    let config = std::fs::read_to_string(fixture().join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["talker_config"]["intermediate_size"] = 96.into();
    place.write("other/config.json", config.to_string());
    let printed = place.laptime(words("bench tts --model-dir other --device cpu --frames 2")).failed();
    assert!(printed.contains("talker.model.layers.0.mlp.down_proj.weight"), "{printed}");
    let both = place.laptime(words(&format!("bench tts --preset 0.6b --model-dir {}", fixture().display()))).failed();
    assert!(both.contains("is not `0.6b`: it has a talker of 2 layers of width 32"), "{both}");
    assert!(both.contains("`0.6b` has a talker of 28 layers of width 1024"), "{both}");
    assert!(both.contains("hint: leave out `--preset`"), "{both}");
    assert!(!place.path("runs").exists());
}

#[test]
fn a_profile_has_the_tree_of_the_original_and_a_small_trace() {
    let place = Place::new();
    let line = SMALL.replace("bench", "profile").replace("--frames 4", "--frames 24");
    let printed = place.laptime(words(&format!("{line} --iterations 1 --warmup 0 --kit-files")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let bytes = printed.out.lines().find_map(|line| line.strip_prefix("trace.json: ")).unwrap();
    let bytes: u64 = bytes.split(' ').next().unwrap().parse().unwrap();
    assert!((100..=1024).contains(&bytes), "{bytes} bytes a frame");
    assert!(place.path("trace.json").exists() && place.path("flamegraph.svg").exists());
    let stages = place.laptime(["stages", "trace.json", "--format", "jsonl"]);
    let paths: Vec<String> = (stages.out.lines())
        .filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["path"].as_str().map(str::to_owned))
        .collect();
    let frame = "iteration/synthesize/generate_frames/frame";
    for path in ["iteration/synthesize/prefill".to_owned(), "iteration/synthesize/decode".to_owned()].into_iter().chain(
        ["code_predictor", "talker_step", "sampling", "sampling/top_k", "sampling/top_p"]
            .map(|one| format!("{frame}/{one}")),
    ) {
        assert!(paths.contains(&path), "{path} is not among {paths:?}");
    }
}

/// `make` in a folder of its own, with this program.
fn make(place: &Place, arguments: &[&str]) -> Printed {
    let makefile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Makefile");
    let program = format!("LAPTIME={}", env!("CARGO_BIN_EXE_laptime"));
    let command = Command::new("make")
        .arg("--file")
        .arg(makefile)
        .args(["--no-print-directory", &program])
        .args(arguments)
        .current_dir(place.path(""))
        .env("LAPTIME_HOME", place.path(""))
        .env_remove("MAKEFLAGS")
        .output();
    Printed::from(command.unwrap())
}

#[test]
fn make_writes_the_files_of_the_original_into_the_working_folder() {
    let place = Place::new();
    let printed = make(&place, &["profile-chrome", "FLAGS=--preset tiny --frames 4 --device cpu --quiet"]);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(place.path("trace.json").exists());
    let place = Place::new();
    let folder = format!("MODEL_DIR={}", fixture().display());
    let printed = make(&place, &["profile-flamegraph", &folder, "FLAGS=--frames 4 --device cpu --quiet"]);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(place.path("flamegraph.svg").exists());
}

#[test]
fn make_without_nsys_is_one_line_with_a_hint() {
    if std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|place| place.join("nsys").exists()))
    {
        return;
    }
    let printed = make(&Place::new(), &["profile-nsys"]);
    assert_eq!(printed.status, Some(2));
    assert!(
        printed.err.starts_with("nsys is missing: install Nsight Systems, or run `make profile-chrome`\n"),
        "{}",
        printed.err
    );
}
