//! `laptime profile c2c` and `laptime bench c2c`, through the program.

use serde_json::Value;

use crate::common::{Place, assert_golden};

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

const TINY: &str = "--preset tiny --prompt-tokens 12 --max-new-tokens 4 --threads 1 --device cpu";

/// Text with every number that is a time made `#`.
fn without_times(text: &str) -> String {
    let is_time = |word: &str| word.contains('.') && word.parse::<f64>().is_ok();
    let line = |line: &str| {
        let words = line.split('\t').map(|word| if is_time(word) { "#" } else { word });
        words.collect::<Vec<_>>().join("\t")
    };
    text.lines().map(|one| line(one) + "\n").collect()
}

/// A record with every number but counts made `#`.
fn shape(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => Value::from("#"),
        Value::Array(values) => values.iter().map(shape).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), shape(value))).collect(),
        other => other.clone(),
    }
}

#[test]
fn a_profile_writes_the_files_of_the_original_and_prints_its_summary() {
    let place = Place::new();
    let printed = place.laptime(words(&format!("profile c2c {TINY} --iterations 2 --out run --compat --compat-files")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    for expected in ["Timing Summary", "First Token", "Calls: teacher 1, projector 2", "teacher model: tiny-qwen2"] {
        assert!(printed.out.contains(expected), "{expected}: {}", printed.out);
    }
    let read = |name: &str| String::from_utf8(place.read(name)).unwrap();
    assert_golden("c2c/demo_timing_data.tsv", &without_times(&read("run/demo_timing_data.tsv")));
    let mut record: Value = serde_json::from_str(read("run/demo_timing_data.jsonl").trim_end()).unwrap();
    // Which token is likeliest is a matter of rounding.
    assert_eq!(record["response"].as_str().unwrap().split(' ').count(), 4, "{record}");
    record["response"] = Value::from("#");
    let shown = serde_json::to_string_pretty(&shape(&record)).unwrap() + "\n";
    assert_golden("c2c/demo_timing_data.json", &shown);
    let stats: Value = serde_json::from_str(&read("run/demo_profiler_stats.json")).unwrap();
    let names: Vec<&str> =
        stats["top_10_cpu_ops"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names.len(), 10, "{stats}");
    assert!(!names.contains(&"load_weights"), "{stats}");
    assert_eq!(stats["top_10_cuda_ops"], Value::Array(Vec::new()));
    let trace = laptime_trace::read(place.path("run/demo_profiler_trace.json")).unwrap();
    assert_eq!(trace.spans().filter(|span| span.name == "iteration").count(), 1);
    assert!(trace.spans().any(|span| span.name == "fuse_input"));
    assert!(!place.path("run/operations.pftrace").exists());
}

#[test]
fn records_are_appended_to_the_file_of_the_original() {
    let place = Place::new();
    for out in ["one", "two"] {
        let line = format!("profile c2c {TINY} --iterations 1 --fuse by-layer --kit-files --out {out}");
        assert_eq!(place.laptime(words(&line)).status, Some(0));
    }
    let records = String::from_utf8(place.read("demo_timing_data.jsonl")).unwrap();
    assert_eq!(records.lines().count(), 2);
    assert!(place.path("demo_profiler_stats.json").exists());
}

#[test]
fn a_sweep_over_lengths_has_a_row_each_and_a_plan_names_the_pair() {
    let place = Place::new();
    place.write(
        "plan.toml",
        "workload = \"c2c\"\n[axes]\nbase_model = \"tiny\"\nteacher_model = \"tiny-llama\"\nprompt_tokens = [8, 16]\nmax_new_tokens = 2\nthreads = 1\n",
    );
    let printed = place.laptime(words("bench --plan plan.toml --iterations 2 --warmup 0 --device cpu --format jsonl"));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let rows: Vec<Value> = printed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 2, "{}", printed.out);
    assert!(rows.iter().all(|row| row["outcome"] == "measured"), "{}", printed.out);
}

#[test]
fn a_prompt_that_cannot_be_run_is_an_error_with_a_hint() {
    let place = Place::new();
    let failed = |line: &str| place.laptime(words(line)).failed();
    assert!(failed("profile c2c --preset tiny --prompt-tokens 600").contains("exceeds the context of `tiny` (512)"));
    assert!(failed("profile c2c --base-model tiny --teacher-model nobody").contains("there is no model `nobody`"));
}

/// A folder of the models' fixtures.
fn fixture(name: &str) -> String {
    format!("{}/../models/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn caches_are_compared_with_text_in_a_sentence() {
    let place = Place::new();
    let line = "bench c2c --preset tiny --prompt-tokens 16 --against text --text-tokens 1,32 --threads 1 --device cpu \
                --iterations 8 --warmup 1";
    let printed = place.laptime(words(line));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    for expected in ["text tokens", "text/C2C", "alone/C2C"] {
        assert!(printed.out.contains(expected), "{expected}: {}", printed.out);
    }
    // Which of the two is faster is for the machine to say.
    let sentences = ["C2C is ", "C2C and text swap", "the difference in time between C2C and text"];
    let answers = printed.out.lines().filter(|line| sentences.iter().any(|sentence| line.starts_with(sentence)));
    assert_eq!(answers.count(), 1, "{}", printed.out);
    let printed = place.laptime(words(&format!("{line} --format jsonl")));
    let rows: Vec<Value> = printed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 2, "{}", printed.out);
    for row in rows {
        for metric in ["ttft_ms", "text_ttft_ms", "alone_ttft_ms", "text_over_c2c", "alone_over_c2c"] {
            assert!(row[metric].is_number(), "{metric}: {row}");
        }
    }
}

#[test]
fn two_streams_on_a_cpu_give_a_note() {
    let place = Place::new();
    let printed = place.laptime(words(&format!("profile c2c {TINY} --iterations 1 --overlap")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.err.contains("`cpu` has no second stream for the second prompt"), "{}", printed.err);
}

#[test]
fn a_fused_response_is_labelled() {
    let place = Place::new();
    let printed = place.laptime(words(&format!("profile c2c {TINY} --iterations 1 --include-response --compat")));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.out.contains("Projector of new tokens (in Decode)"), "{}", printed.out);
}

#[test]
fn a_pair_on_a_cpu_needs_no_other_flags() {
    for command in ["profile c2c --preset tiny", "profile c2c --device cpu"] {
        let place = Place::new();
        let printed = place.laptime(words(&format!("{command} --iterations 1 --warmup 0 --max-new-tokens 2 --compat")));
        assert_eq!(printed.status, Some(0), "{command}: {}", printed.err);
        assert!(printed.out.contains("Base model: tiny, teacher model: tiny-qwen2"), "{}", printed.out);
    }
}

#[test]
fn a_fuser_for_other_models_is_refused_with_both_sides_named() {
    let place = Place::new();
    let (short, fuser) = (fixture("c2c/short"), fixture("c2c/short_Fuser"));
    let failed = |line: &str| place.laptime(words(line)).failed();
    let other = failed(&format!("profile c2c --preset tiny --prompt-tokens 8 --fuser-checkpoint {fuser}"));
    assert!(other.contains("fuser") && other.contains("`tiny`"), "{other}");
    let turned = failed(&format!(
        "profile c2c --base-model {short} --teacher-model {short} --prompt-tokens 8 --fuser-checkpoint {fuser}"
    ));
    assert!(turned.contains("fuser"), "{turned}");
    let none = failed("profile c2c --preset tiny --prompt-tokens 8 --fuser-checkpoint ./nowhere");
    assert!(none.contains("nowhere"), "{none}");
}

#[test]
fn tokenizers_that_cannot_be_aligned_are_refused() {
    let place = Place::new();
    std::fs::create_dir(place.path("words")).unwrap();
    place.write("words/config.json", std::fs::read(fixture("c2c/short/config.json")).unwrap());
    place.write("words/model.safetensors", std::fs::read(fixture("c2c/short/model.safetensors")).unwrap());
    let tokenizer = r#"{"version":"1.0","added_tokens":[],"pre_tokenizer":{"type":"Whitespace"},
        "model":{"type":"WordLevel","vocab":{"hello":0,"you":1},"unk_token":"you"}}"#;
    place.write("words/tokenizer.json", tokenizer);
    let line = "profile c2c --base-model tiny --teacher-model ./words --prompt hello --dtype f32";
    let message = place.laptime(words(line)).failed();
    assert!(message.contains("no chat template can be rendered"), "{message}");
}
