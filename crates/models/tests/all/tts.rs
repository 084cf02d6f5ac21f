//! Qwen3-TTS on the CPU with synthetic weights, and refusals.

use std::{collections::BTreeMap, fs, ops::ControlFlow, path::Path};

use crate::common::{distance, folder};
use laptime_models::{
    Dtype, GraphMode, ModelError, cpu,
    tts::{Choice, Prompt, QwenTts, Sampling, SpeechOptions, Synthesizer, TextFeed, TtsConfig, TtsOptions, TtsWeights},
};
use safetensors::{SafeTensors, tensor::TensorView};

fn tiny() -> TtsConfig {
    TtsConfig::from_preset("tiny").unwrap()
}

fn tts(dtype: Dtype, threads: usize) -> QwenTts<'static> {
    cpu::qwen_tts(tiny(), &TtsWeights::synthetic(1), TtsOptions::new(dtype, 200), threads).unwrap()
}

fn prompt(text: &str) -> Prompt {
    let config = tiny();
    Prompt::new(&config, &config.tokenizer(None).unwrap(), text, Some("ryan"), "english", TextFeed::ByFrame).unwrap()
}

fn endless(seed: u64) -> Sampling {
    Sampling { is_endless: true, seed, ..Sampling::default() }
}

/// The codes and samples of this many frames.
fn said(tts: &mut QwenTts<'_>, sampling: &Sampling, frames: usize) -> (Vec<u32>, Vec<f32>) {
    tts.begin(&prompt("It rains."), sampling, frames).unwrap();
    while !tts.frame().unwrap().is_end {}
    let made = tts.frames();
    (tts.codes(0..made).unwrap(), tts.decode(0..made).unwrap())
}

#[test]
fn endless_sampling_generates_the_requested_frames_and_audio_within_bounds() {
    for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
        let (codes, samples) = said(&mut tts(dtype, 2), &endless(42), 20);
        assert_eq!((codes.len(), samples.len()), (20 * 16, 20 * 1920));
        assert!(samples.iter().all(|sample| sample.is_finite() && sample.abs() <= 1.0));
        let loudness = (samples.iter().map(|sample| sample * sample).sum::<f32>() / samples.len() as f32).sqrt();
        assert!((0.02..0.5).contains(&loudness), "{dtype}: {loudness}");
        let cut = samples.iter().filter(|sample| sample.abs() == 1.0).count();
        assert!(cut < samples.len() / 20, "{dtype}: {cut} samples are cut");
    }
}

#[test]
fn codes_depend_on_the_seed_alone() {
    let mut one = tts(Dtype::F32, 1);
    let (codes, samples) = said(&mut one, &endless(42), 12);
    assert_eq!(said(&mut one, &endless(42), 12), (codes.clone(), samples.clone()), "a second time");
    let (threaded, near) = said(&mut tts(Dtype::F32, 2), &endless(42), 12);
    assert_eq!(threaded, codes, "on two threads");
    assert!(distance(&near, &samples) < 1e-5);
    assert_ne!(said(&mut one, &endless(43), 12).0, codes);
}

#[test]
fn the_repetition_penalty_avoids_repeated_codes() {
    let different = |penalty: f32| {
        let sampling = Sampling { repetition_penalty: penalty, is_endless: true, ..Sampling::likeliest() };
        let (codes, _) = said(&mut tts(Dtype::F32, 1), &sampling, 30);
        codes.chunks(16).map(|frame| frame[0]).collect::<std::collections::HashSet<_>>().len()
    };
    assert!(different(3.0) > different(1.0), "{} and {}", different(3.0), different(1.0));
}

#[test]
fn sampling_the_end_ends_the_generation() {
    // Only the end and one code are likely.
    let hot = Choice::Drawn { temperature: 1000.0, top_k: 0, top_p: 1.0 };
    let mut tts = tts(Dtype::F32, 1);
    let mut lengths = Vec::new();
    for seed in 0..25 {
        let sampling = Sampling { talker: hot, seed, ..Sampling::default() };
        tts.begin(&prompt("a"), &sampling, 40).unwrap();
        while !tts.frame().unwrap().is_end {}
        lengths.push(tts.frames());
        let error = tts.frame().unwrap_err().to_string();
        assert_eq!(error, "there is no next frame: the last one was generated");
    }
    assert!(lengths.iter().all(|length| (2..=40).contains(length)));
    assert!(lengths.iter().any(|length| *length < 40), "one of 129 ids is the end");
    assert!(lengths.contains(&40));
}

#[test]
fn chunks_are_streamed_in_order_and_a_listener_may_stop() {
    let config = tiny();
    let tokenizer = config.tokenizer(None).unwrap();
    let options = SpeechOptions { sampling: endless(5), most_frames: 11, ..SpeechOptions::default() };
    let mut synthesizer = Synthesizer::new(tts(Dtype::F32, 2), tokenizer, options);
    let prompt = prompt("Streams run.");
    let mut chunks: Vec<Vec<f32>> = Vec::new();
    let made = synthesizer.stream(&prompt, &options, 4, &mut |samples| {
        chunks.push(samples.to_vec());
        ControlFlow::Continue(())
    });
    assert_eq!(made.unwrap(), 11);
    assert_eq!(chunks.iter().map(Vec::len).collect::<Vec<_>>(), [4 * 1920, 4 * 1920, 3 * 1920]);
    // The first chunks are decoded with all frames before them, so they equal those of the whole.
    let whole = synthesizer.model().decode(0..11).unwrap();
    assert!(distance(&chunks.concat(), &whole) < 1e-5);
    let stopped = synthesizer.stream(&prompt, &options, 4, &mut |_| ControlFlow::Break(())).unwrap();
    assert_eq!(stopped, 4);
    assert!(synthesizer.stream(&prompt, &options, 0, &mut |_| ControlFlow::Continue(())).is_err());
}

#[test]
fn invalid_prompts_are_refused_before_anything_runs() {
    let mut tts = tts(Dtype::F32, 1);
    assert_eq!(tts.frame().unwrap_err().to_string(), "there is no next frame: no prompt has run yet");
    let refused = |error: ModelError| error.to_string();
    let long = tts.begin(&prompt("a"), &endless(1), 191).unwrap_err();
    assert_eq!(refused(long), "201 tokens do not fit: `the cache` has 200");
    let text = prompt(&"x".repeat(100_000));
    let error = refused(tts.begin(&text, &endless(1), 10).unwrap_err());
    assert_eq!(error, "the text needs 100010 positions of the talker, but `tiny` has 4096: split the text");
    let cold = Sampling { talker: Choice::Drawn { temperature: -1.0, top_k: 0, top_p: 1.0 }, ..endless(1) };
    assert!(refused(tts.begin(&prompt("a"), &cold, 4).unwrap_err()).contains("temperature"));
    tts.begin(&prompt("a"), &endless(1), 2).unwrap();
    tts.frame().unwrap();
    let error = refused(tts.decode(0..2).unwrap_err());
    assert_eq!(error, "frames 0 to 2 do not exist: 1 were generated");
    assert!(tts.codes(1..1).unwrap().is_empty() && tts.decode(1..1).unwrap().is_empty());
    tts.reset().unwrap();
    assert_eq!(tts.frames(), 0);
    assert!(refused(tts.set_codes(&[1; 17]).unwrap_err()).contains("17 codes are not whole frames of 16"));
    assert!(refused(tts.set_codes(&[128; 16]).unwrap_err()).contains("code 128 is outside the codebook of 128"));
    let options = TtsOptions { graph: GraphMode::On, ..TtsOptions::new(Dtype::F32, 200) };
    let graph = cpu::qwen_tts(tiny(), &TtsWeights::synthetic(1), options, 1).err().unwrap();
    assert!(refused(graph).contains("the CPU has no graphs"));
}

/// A copy of the fixture.
fn copied() -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir(copy.path().join("speech_tokenizer")).unwrap();
    for file in
        ["config.json", "model.safetensors", "speech_tokenizer/config.json", "speech_tokenizer/model.safetensors"]
    {
        fs::copy(folder("tts").join(file), copy.path().join(file)).unwrap();
    }
    copy
}

/// Rewrites a file without some of its tensors.
fn leave_out(path: &Path, is_left_out: impl Fn(&str) -> bool) {
    let bytes = fs::read(path).unwrap();
    let read = SafeTensors::deserialize(&bytes).unwrap();
    let kept: BTreeMap<&str, TensorView<'_>> = read.iter().filter(|(name, _)| !is_left_out(name)).collect();
    let written = safetensors::serialize(kept, None).unwrap();
    fs::write(path, written).unwrap();
}

fn open(folder: &Path) -> Result<TtsWeights, ModelError> {
    TtsWeights::open(folder, &TtsConfig::from_folder(folder)?)
}

#[test]
fn missing_tensors_are_named_with_their_file() {
    let copy = copied();
    leave_out(&copy.path().join("model.safetensors"), |name| name == "talker.codec_head.weight");
    let error = open(copy.path()).unwrap_err().to_string();
    assert!(error.ends_with("1 tensor is missing (`talker.codec_head.weight`)"), "{error}");
    let copy = copied();
    leave_out(&copy.path().join("speech_tokenizer/model.safetensors"), |name| name.ends_with(".gamma"));
    let error = open(copy.path()).unwrap_err().to_string();
    assert!(error.contains("speech_tokenizer` do not fit") && error.contains("decoder.upsample.0.1.gamma"), "{error}");
}

#[test]
fn a_checkpoint_of_another_size_is_refused() {
    let error = TtsWeights::open(&folder("tts"), &tiny()).unwrap_err();
    let told = error.to_string();
    assert!(told.contains("do not fit `tiny`") && told.contains("missing") && told.contains("misshapen"), "{told}");
    assert!(error.hint().unwrap().contains("must belong to the same model"));
}

#[test]
fn truncated_and_missing_files_are_named() {
    let copy = copied();
    let path = copy.path().join("speech_tokenizer/model.safetensors");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 7]).unwrap();
    let error = open(copy.path()).unwrap_err().to_string();
    assert!(error.contains("truncated"), "{error}");
    fs::remove_file(&path).unwrap();
    assert!(matches!(open(copy.path()).unwrap_err(), ModelError::NoWeights { .. }));
    fs::remove_file(copy.path().join("speech_tokenizer/config.json")).unwrap();
    let error = TtsConfig::from_folder(copy.path()).unwrap_err().to_string();
    assert!(error.ends_with("speech_tokenizer` has no `config.json`"), "{error}");
    assert!(matches!(TtsConfig::from_folder(Path::new("/nowhere")).unwrap_err(), ModelError::Open { .. }));
}

#[test]
fn a_folder_without_a_tokenizer_is_refused_with_a_hint() {
    let config = TtsConfig::from_folder(&folder("tts")).unwrap();
    let copy = copied();
    let tokenizer = config.tokenizer(Some(copy.path())).unwrap();
    assert!(tokenizer.is_bytes());
    let prompt = Prompt::new(&config, &tokenizer, "hi", None, "auto", TextFeed::ByFrame).unwrap();
    prompt.check(&config, 10, 64).unwrap();
    assert_eq!(prompt.following, [u32::from(b'i'), config.ids.text_eos]);
}
