//! The stages of tokens, recorded.

use laptime_models::{
    Dtype, Offload, StreamMode, cpu,
    vibevoice::{Guidance, Script, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights, Voice, VoicePrompt},
};
use laptime_trace::{Trace, Value};

/// All spans with their counters, indented by dots.
fn spans(trace: &Trace) -> Vec<String> {
    let mut depths: Vec<usize> = Vec::new();
    let mut told = Vec::new();
    for span in trace.spans() {
        let depth = span.parent.map_or(0, |parent| depths[parent.index()] + 1);
        depths.push(depth);
        if span.name.starts_with("layer") || ["allocate", "start_threads"].contains(&span.name) {
            continue;
        }
        let counts = span.fields.iter().filter(|(name, _)| ["voice", "token", "steps"].contains(name));
        let fields: Vec<String> = counts.map(|(name, value)| format!(" {name}={value}")).collect();
        told.push(format!("{}{}{}", ".".repeat(depth), span.name, fields.concat()));
    }
    told
}

/// A generation of two tokens by the preset `tiny`.
fn recorded(mode: Option<StreamMode>) -> Trace {
    let home = tempfile::tempdir().unwrap();
    let config = VibeVoiceConfig::from_preset("tiny").unwrap();
    let voices = [Voice::new(vec![0.1; 3200]).unwrap()];
    let script = Script::parse("Speaker 1: Hi.").unwrap();
    let prompt = VoicePrompt::new(&config, &config.tokenizer(None).unwrap(), &script, &voices).unwrap();
    let offload = mode.map(|mode| Offload::new(mode, 2, home.path()));
    let options = VibeVoiceOptions { offload, ..VibeVoiceOptions::new(Dtype::F32, prompt.ids.len(), 2) };
    let mut model = cpu::vibevoice(config, &VibeVoiceWeights::synthetic(1), options, 1).unwrap();
    let guidance = Guidance { is_endless: true, ..Guidance::default() };
    let path = home.path().join("trace.pftrace");
    let recording = laptime_trace::record_to(&path).unwrap();
    model.begin(&prompt, &guidance, 2).unwrap();
    while !model.token().unwrap().is_end {}
    drop(model);
    recording.finish().unwrap();
    laptime_trace::read(&path).unwrap()
}

/// The stages after the language model in a token of audio.
fn behind(token: usize) -> Vec<String> {
    let of = |stage: &str| format!("{stage} token={token}");
    let diffusion = format!("{} steps=10", of("diffusion"));
    vec![diffusion, of("audio_decode"), of("semantic_encode")]
}

fn reading(tokens: [&[&str]; 2]) -> Vec<String> {
    let begins = ["voice_encode voice=0", "prefill"].map(str::to_owned);
    let tokens = tokens
        .into_iter()
        .enumerate()
        .flat_map(|(token, stages)| stages.iter().map(|stage| (*stage).to_owned()).chain(behind(token)));
    begins.into_iter().chain(tokens).collect()
}

/// The same with offloaded layers: the resident part of every pass is a separate stage.
fn with_resident(stages: Vec<String>) -> Vec<String> {
    let resident = |stage: &String| {
        let is_pass = stage == "prefill" || stage.starts_with("transformer");
        is_pass.then(|| ".resident".to_owned())
    };
    stages
        .into_iter()
        .flat_map(|stage| {
            let inner = resident(&stage);
            [Some(stage), inner]
        })
        .flatten()
        .collect()
}

#[test]
fn tokens_mark_the_documented_stages_in_order() {
    let _alone = crate::alone();
    let first = ["read_token", "transformer_negative token=0"];
    let apart = ["transformer_positive token=1", "read_token", "transformer_negative token=1"];
    assert_eq!(spans(&recorded(None)), reading([&first, &apart]));
    assert_eq!(spans(&recorded(Some(StreamMode::Wrap))), with_resident(reading([&first, &apart])));

    let batched = recorded(Some(StreamMode::Batched));
    assert_eq!(spans(&batched), with_resident(reading([&first, &["transformer token=1", "read_token"]])));
    // The prompt, the negative stream alone, both together: two layers each.
    let turns = batched.spans().filter(|span| span.name == "layer_wait");
    let passes: Vec<_> = turns.map(|span| span.fields.get("forward").map(|value| value.to_string())).collect();
    assert_eq!(passes, ["0", "0", "1", "1", "2", "2"].map(|pass| Some(pass.to_owned())));
    assert!(
        batched.spans().all(|span| span.name != "layer" || span.fields.get("offloaded") == Some(Value::Bool(true)))
    );
}
