//! The workload on the CPU: cases of a request, refusals, and results of an iteration.

use std::path::Path;

use laptime_bench::{AxisValue, Case, Device, Iteration, Nanos, PlanError, Prepared, Simulated, Workload};
use laptime_models::tts::Audio;

use super::TextToSpeech;
use crate::difference::largest_difference;

/// The cases of these flags and values.
fn settled(given: &[(&str, &str)]) -> Result<Vec<Case>, PlanError> {
    let given: Vec<(String, Vec<String>)> =
        given.iter().map(|(name, word)| ((*name).to_owned(), vec![(*word).to_owned()])).collect();
    Ok(TextToSpeech.plan(&given)?.cases())
}

fn refused(given: &[(&str, &str)]) -> String {
    settled(given).unwrap_err().to_string()
}

/// The first case of the tiny model.
fn tiny(rest: &[(&str, &str)]) -> Case {
    let given = [&[("preset", "tiny"), ("threads", "1")], rest].concat();
    settled(&given).unwrap().remove(0)
}

fn ready(case: &Case, act: impl FnOnce(&mut dyn Iteration)) {
    match TextToSpeech.prepare(case, &Simulated::new()).unwrap() {
        Prepared::Ready(mut iteration) => act(&mut *iteration),
        Prepared::DoesNotApply(reason) => panic!("{reason}"),
        Prepared::DoesNotFit { .. } => panic!("memory is unlimited"),
    }
}

fn fact(iteration: &dyn Iteration, name: &str) -> AxisValue {
    iteration.facts().into_iter().find(|fact| fact.name == name).unwrap_or_else(|| panic!("no {name}")).value
}

fn reading(iteration: &mut dyn Iteration, name: &str) -> Option<f64> {
    let at = TextToSpeech.metrics().iter().position(|metric| metric.name == name).unwrap();
    iteration.readings(Nanos(1_000_000_000))[at]
}

fn fixture() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures/tts").display().to_string()
}

fn speak(case: &Case, device: &dyn Device) -> Audio {
    let mut runner = TextToSpeech::runner(case, device).unwrap();
    let spoken = runner.speak().unwrap();
    runner.audio(spoken.samples)
}

#[test]
fn by_default_three_texts_get_frames_from_their_words() {
    let cases = settled(&[]).unwrap();
    let shown = |axis: &str| cases.iter().map(|case| case.get(axis).unwrap().to_string()).collect::<Vec<_>>();
    assert_eq!(shown("label"), ["short", "medium", "long"]);
    assert_eq!(shown("frames"), ["59", "239", "518"]);
    assert_eq!(shown("model"), ["auto"; 3]);
    assert!(cases.iter().all(|case| case.get("text").is_none() && case.get("text_file").is_none()));
}

#[test]
fn auto_is_tiny_on_a_cpu_with_the_dtype_of_the_model() {
    let on = |case: &Case| {
        let case = TextToSpeech.on_device(case, &Simulated::new());
        [case.text("model").unwrap().to_owned(), case.text("dtype").unwrap().to_owned()]
    };
    assert_eq!(on(&settled(&[]).unwrap()[0]), ["tiny", "f32"]);
    assert_eq!(on(&settled(&[("preset", "1.7B")]).unwrap()[0]), ["Qwen3-TTS-1.7B", "bf16"]);
    let folder = settled(&[("model_dir", &fixture()), ("label", "short"), ("dtype", "bf16")]).unwrap();
    assert_eq!(on(&folder[0]), [fixture(), "bf16".to_owned()]);
}

#[test]
fn an_own_text_is_one_case_with_a_label() {
    let case = tiny(&[("text", "Well, well, well.")]);
    assert_eq!((case.text("label").unwrap(), case.text("text").unwrap()), ("text", "Well, well, well."));
    assert_eq!(case.size("frames").unwrap(), 14);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("greeting.txt");
    std::fs::write(&file, "Good morning, all.\n").unwrap();
    let file = file.display().to_string();
    let case = tiny(&[("text_file", &file), ("frames", "3")]);
    assert_eq!((case.text("label").unwrap(), case.size("frames").unwrap()), ("greeting", 3));
    let both = refused(&[("text", "a"), ("label", "short")]);
    assert_eq!(both, "give only one of `text`, `text_file` and `label`");
    let missing = refused(&[("text_file", "nowhere.txt")]);
    assert!(missing.starts_with("cannot read the text of `nowhere.txt`"), "{missing}");
}

#[test]
fn invalid_texts_are_refused_before_anything_is_measured() {
    assert_eq!(refused(&[("text", " ")]), "the text is empty");
    let long = refused(&[("text", &"word ".repeat(20_000))]);
    assert!(long.contains("positions of the talker") && long.ends_with("split the text"), "{long}");
    let speaker = refused(&[("speaker", "bob")]);
    assert!(speaker.starts_with("there is no speaker `bob`") && speaker.contains("ryan"), "{speaker}");
    let language = refused(&[("language", "klingon")]);
    assert!(language.starts_with("there is no language `klingon`") && language.contains("english"), "{language}");
    assert!(refused(&[("preset", "7b")]).starts_with("there is no text-to-speech model `7b`"));
    assert!(refused(&[("temperature", "0")]).starts_with("the temperature is 0, expected"));
    assert_eq!(refused(&[("voice", "ryan")]), "workload `tts` has no axis `voice`");
    assert!(refused(&[("label", "huge")]).contains("one of short, medium, long"));
}

#[test]
fn a_length_that_is_too_long_is_a_row_if_others_fit() {
    let cases = settled(&[("preset", "tiny"), ("label", "short"), ("frames", "8,100000")]).unwrap();
    let Prepared::DoesNotApply(reason) = TextToSpeech.prepare(&cases[1], &Simulated::new()).unwrap() else {
        panic!("100000 frames are too many")
    };
    assert!(reason.contains("do not fit"), "{reason}");
}

#[test]
fn an_iteration_generates_the_requested_frames_and_reports_its_parts() {
    ready(&tiny(&[("label", "short"), ("frames", "12")]), |iteration| {
        iteration.check().unwrap();
        iteration.ready().unwrap();
        iteration.run().unwrap();
        assert_eq!((fact(iteration, "frames_made"), fact(iteration, "words")), (12.into(), 13.into()));
        assert_eq!(fact(iteration, "audio_s"), AxisValue::Float(0.96));
        let rtf = reading(iteration, "rtf").unwrap();
        assert!((rtf - 1.0 / 0.96).abs() < 1e-9, "an iteration of a second: {rtf}");
        assert_eq!((reading(iteration, "tok_s"), reading(iteration, "ttfa_ms")), (Some(12.0), None));
        assert_eq!((reading(iteration, "late_frames"), reading(iteration, "buffer_ms")), (None, None));
        assert!(reading(iteration, "frame_p99_ms").is_some() && reading(iteration, "prefill_ms").is_some());
    });
}

#[test]
fn streaming_tells_when_audio_could_be_played() {
    ready(&tiny(&[("label", "short"), ("frames", "9"), ("streaming", "true"), ("chunk_frames", "4")]), |iteration| {
        iteration.check().unwrap();
        iteration.run().unwrap();
        assert_eq!(fact(iteration, "frames_made"), 9.into());
        // The clock of the simulated device does not advance, so everything is ready at once.
        let readings = ["ttfa_ms", "late_frames", "buffer_ms"].map(|name| reading(iteration, name));
        assert_eq!(readings, [Some(0.0), Some(0.0), Some(0.0)]);
    });
}

#[test]
fn streamed_audio_equals_audio_decoded_at_once() {
    let device = Simulated::new();
    let audio = |streaming: &str| {
        let case = tiny(&[("label", "short"), ("frames", "64"), ("streaming", streaming)]);
        speak(&case, &device)
    };
    let (at_once, streamed) = (audio("false"), audio("true"));
    assert_eq!(at_once.samples.len(), 64 * 1920);
    assert!(at_once.samples.iter().any(|sample| *sample != 0.0), "silence is alike whatever is computed");
    let apart = largest_difference(&at_once.samples, &streamed.samples);
    assert!(apart < 1e-4, "{apart}");
}

#[test]
fn every_iteration_gives_the_same_audio_and_another_seed_does_not() {
    let device = Simulated::new();
    let audio = |seed: &str| speak(&tiny(&[("frames", "3"), ("seed", seed)]), &device);
    assert_eq!(audio("1"), audio("1"));
    assert_ne!(audio("1"), audio("2"));
}

#[test]
fn a_checkpoint_generates_at_most_the_requested_frames() {
    let case = settled(&[("model_dir", &fixture()), ("label", "short"), ("frames", "6"), ("threads", "1")]).unwrap();
    ready(&case[0], |iteration| {
        iteration.check().unwrap();
        let AxisValue::Int(frames) = fact(iteration, "frames_made") else { panic!("frames are counted") };
        assert!((1..=6).contains(&frames), "{frames}");
        assert_eq!(fact(iteration, "weights"), "folder".into());
        assert!(iteration.work().is_none(), "nobody knows how many frames there will be");
    });
}

#[test]
fn a_checkpoint_of_another_size_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str| {
        let to = folder.path().join(name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(Path::new(&fixture()).join(name), to).unwrap();
    };
    let parts = ["model.safetensors", "vocab.json", "merges.txt", "tokenizer_config.json"];
    let codec = ["speech_tokenizer/config.json", "speech_tokenizer/model.safetensors"];
    parts.into_iter().chain(codec).for_each(copy);
    let config = std::fs::read_to_string(Path::new(&fixture()).join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    let layers = &mut config["talker_config"]["num_hidden_layers"];
    *layers = (layers.as_i64().unwrap() + 1).into();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let path = folder.path().display().to_string();
    let error = refused(&[("model_dir", &path), ("label", "short")]);
    assert!(error.contains("do not fit") && error.contains("layers"), "{error}");
}

#[test]
fn a_case_that_does_not_fit_is_reported_and_not_run() {
    let device = Simulated::with_memory(1 << 30);
    let case = &settled(&[("preset", "0.6b"), ("label", "short")]).unwrap()[0];
    let Prepared::DoesNotFit { needed, .. } = TextToSpeech.prepare(case, &device).unwrap() else {
        panic!("a billion parameters do not fit")
    };
    // 0.9 billion parameters in bf16, those of the codec among them, and buffers.
    assert!((1_800_000_000..4_000_000_000).contains(&needed), "{needed}");
    assert_eq!(TextToSpeech.parse(case, &device).unwrap().predicted_bytes(), Some(needed));
    assert!(device.available_bytes().unwrap() < needed);
}

#[test]
fn graphs_do_not_apply_on_a_cpu() {
    let case = tiny(&[("label", "short"), ("graph", "on")]);
    let Prepared::DoesNotApply(reason) = TextToSpeech.prepare(&case, &Simulated::new()).unwrap() else {
        panic!("there are no graphs")
    };
    assert_eq!(reason, "device `simulated` has no graphs");
}

#[test]
fn the_work_of_stages_adds_up_to_that_of_an_iteration() {
    let case = tiny(&[("label", "short"), ("frames", "20")]);
    let stages = TextToSpeech::stage_work(&case);
    let names: Vec<&str> = stages.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["prefill", "code_predictor", "talker_step", "sampling", "decode"]);
    ready(&case, |iteration| {
        let whole = iteration.work().unwrap();
        assert_eq!(whole.flops, stages.iter().map(|(_, work)| work.flops).sum::<u64>());
        assert_eq!(whole.bytes, stages.iter().map(|(_, work)| work.bytes).sum::<u64>());
    });
    let streamed = tiny(&[("label", "short"), ("frames", "20"), ("streaming", "true"), ("chunk_frames", "5")]);
    let decode = |case: &Case| TextToSpeech::stage_work(case).pop().unwrap().1.flops;
    assert!(decode(&streamed) > decode(&case), "frames before a chunk are decoded again with it");
}

#[test]
fn every_iteration_reports_all_metrics() {
    ready(&tiny(&[("label", "short"), ("frames", "2")]), |iteration| {
        iteration.run().unwrap();
        assert_eq!(iteration.readings(Nanos(1)).len(), TextToSpeech.metrics().len());
    });
}
