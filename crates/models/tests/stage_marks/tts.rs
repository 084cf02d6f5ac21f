//! The stages of a synthesis, recorded.

use laptime_models::{
    Dtype, cpu,
    tts::{Choice, Sampling, SpeechOptions, Synthesizer, TtsConfig, TtsOptions, TtsWeights},
};
use laptime_trace::Trace;

/// All spans with their fields, indented by dots.
fn spans(trace: &Trace) -> Vec<String> {
    let mut depths: Vec<usize> = Vec::new();
    let mut told = Vec::new();
    for span in trace.spans() {
        let depth = span.parent.map_or(0, |parent| depths[parent.index()] + 1);
        depths.push(depth);
        if span.name != "allocate" {
            // The source location of a sync is left out.
            let counts = span.fields.iter().filter(|(name, _)| ["positions", "frame", "frames"].contains(name));
            let fields: Vec<String> = counts.map(|(name, value)| format!(" {name}={value}")).collect();
            told.push(format!("{}{}{}", ".".repeat(depth), span.name, fields.concat()));
        }
    }
    told
}

#[test]
fn a_synthesis_marks_its_stages_with_frames() {
    let _alone = crate::alone();
    let config = TtsConfig::from_preset("tiny").unwrap();
    let tokenizer = config.tokenizer(None).unwrap();
    let tts = cpu::qwen_tts(config, &TtsWeights::synthetic(1), TtsOptions::new(Dtype::F32, 40), 1).unwrap();
    let talker = Choice::Drawn { temperature: 0.9, top_k: 50, top_p: 0.9 };
    let sampling = Sampling { talker, is_endless: true, ..Sampling::default() };
    let options = SpeechOptions { sampling, most_frames: 2, ..SpeechOptions::default() };
    let mut synthesizer = Synthesizer::new(tts, tokenizer, options);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pftrace");
    let recording = laptime_trace::record_to(&path).unwrap();
    synthesizer.synthesize_with_timing("Hi.", "ryan", "english", None).unwrap();
    recording.finish().unwrap();
    assert_eq!(
        spans(&laptime_trace::read(&path).unwrap()),
        [
            "synthesize",
            ".prefill positions=10",
            ".sampling frame=0",
            "..top_k",
            "..top_p",
            ".generate_frames",
            "..frame frame=0",
            "...code_predictor frame=0",
            "...talker_step frame=0",
            "...sampling frame=1",
            "....top_k",
            "....top_p",
            "...read_frame",
            "..frame frame=1",
            "...code_predictor frame=1",
            "...read_frame",
            ".decode frames=2",
            "..read_audio",
        ]
    );
}
