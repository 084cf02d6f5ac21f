//! Qwen3-TTS on the CPU against the official package, with a tiny model.

use std::collections::HashSet;

use crate::common::{distance, folder};
use laptime_models::{
    Dtype, cpu,
    tts::{
        Prompt, QwenTts, Sampling, TextFeed, TtsConfig, TtsOptions, TtsWeights, keep_top_k, keep_top_p, penalise,
        weights_of,
    },
};
use serde::Deserialize;

/// Tolerance of f32 logits and samples.
const WITHIN: f32 = 1e-4;

#[derive(Deserialize)]
struct Expected {
    cases: Vec<Case>,
    audio: Audio,
    sampling: Vec<Sampled>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    speaker: Option<String>,
    language: String,
    whole: bool,
    /// The tokens of the text in its template.
    ids: Vec<u32>,
    codes: Vec<Vec<u32>>,
    ends: bool,
    /// The hidden states of the talker, by step.
    hidden: Vec<Vec<f32>>,
    first_logits: Vec<f32>,
    /// The first logits, by step.
    logits: Vec<Vec<f32>>,
}

#[derive(Deserialize)]
struct Audio {
    codes: Vec<Vec<u32>>,
    samples: Vec<f32>,
    frames_40_to_44: Vec<f32>,
    frames_3_to_7: Vec<f32>,
}

#[derive(Deserialize)]
struct Sampled {
    temperature: f32,
    top_k: usize,
    top_p: f64,
    penalty: f32,
    logits: Vec<f32>,
    before: Vec<usize>,
    never: Vec<usize>,
    kept: Vec<usize>,
    shares: Vec<f64>,
}

fn expected() -> Expected {
    let text = std::fs::read_to_string(folder("tts").join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn config() -> TtsConfig {
    TtsConfig::from_folder(&folder("tts")).unwrap()
}

fn tts(dtype: Dtype) -> QwenTts<'static> {
    let config = config();
    let weights = TtsWeights::open(&folder("tts"), &config).unwrap();
    weights.check_finite(&config).unwrap();
    cpu::qwen_tts(config, &weights, TtsOptions::new(dtype, 128), 2).unwrap()
}

impl Case {
    fn prompt(&self) -> Prompt {
        let config = config();
        let tokenizer = config.tokenizer(Some(&folder("tts"))).unwrap();
        let feed = if self.whole { TextFeed::Whole } else { TextFeed::ByFrame };
        Prompt::new(&config, &tokenizer, &self.text, self.speaker.as_deref(), &self.language, feed).unwrap()
    }
}

#[test]
fn text_tokens_equal_those_of_the_official_tokenizer() {
    let config = config();
    let tokenizer = config.tokenizer(Some(&folder("tts"))).unwrap();
    for case in expected().cases {
        let text = format!("<|im_start|>assistant\n{}<|im_end|>\n<|im_start|>assistant\n", case.text);
        assert_eq!(tokenizer.encode(&text).unwrap(), case.ids, "{}", case.text);
        let said = &case.ids[3..case.ids.len() - 5];
        assert_eq!(tokenizer.decode(said).unwrap(), case.text);
    }
}

#[test]
fn logits_and_codes_equal_the_expected_ones() {
    let mut tts = tts(Dtype::F32);
    for case in expected().cases {
        let text = &case.text;
        // One more than there are frames of codes: the last token is sampled only.
        let most = case.codes.len() + usize::from(!case.ends);
        tts.begin(&case.prompt(), &Sampling::likeliest(), most.max(case.hidden.len())).unwrap();
        assert!(distance(&tts.logits().unwrap(), &case.first_logits) < WITHIN, "{text}");
        for (at, codes) in case.codes.iter().enumerate() {
            let off = distance(&tts.hidden().unwrap(), &case.hidden[at]);
            assert!(off < WITHIN, "{text}, frame {at}: {off}");
            let told = case.logits[at].len();
            let off = distance(&tts.logits().unwrap()[..told], &case.logits[at]);
            assert!(off < WITHIN, "{text}, frame {at}: {off}");
            let frame = tts.frame().unwrap();
            assert_eq!(tts.codes(at..at + 1).unwrap(), *codes, "{text}, frame {at}");
            assert_eq!((frame.index, frame.token), (at, codes[0]));
            assert_eq!(frame.is_end, case.ends && at + 1 == case.codes.len(), "{text}, frame {at}");
        }
        assert_eq!(tts.frames(), case.codes.len());
    }
}

#[test]
fn samples_equal_the_expected_ones_whole_and_in_chunks() {
    let audio = expected().audio;
    let mut tts = tts(Dtype::F32);
    tts.set_codes(&audio.codes.concat()).unwrap();
    let samples = tts.decode(0..audio.codes.len()).unwrap();
    assert!(distance(&samples, &audio.samples) < WITHIN, "{}", distance(&samples, &audio.samples));
    assert!(distance(&tts.decode(40..44).unwrap(), &audio.frames_40_to_44) < WITHIN);
    assert!(distance(&tts.decode(3..7).unwrap(), &audio.frames_3_to_7) < WITHIN);
}

#[test]
fn half_precision_is_close_to_the_expected_values() {
    let expected = expected();
    for (dtype, within) in [(Dtype::F16, 0.01), (Dtype::Bf16, 0.08)] {
        let mut tts = tts(dtype);
        let case = &expected.cases[0];
        tts.begin(&case.prompt(), &Sampling::likeliest(), 8).unwrap();
        let spread = case.first_logits.iter().fold(0.0, |most: f32, logit| most.max(logit.abs()));
        let off = distance(&tts.logits().unwrap(), &case.first_logits) / spread;
        assert!(off < within, "{dtype}: {off}");
        tts.set_codes(&expected.audio.codes[..40].concat()).unwrap();
        let samples = tts.decode(0..40).unwrap();
        let off = distance(&samples, &expected.audio.samples[..samples.len()]);
        assert!(off < within, "{dtype}: {off}");
    }
}

#[test]
fn scores_are_filtered_as_in_transformers() {
    for (at, case) in expected().sampling.into_iter().enumerate() {
        let mut scores = case.logits.clone();
        let before: HashSet<usize> = case.before.into_iter().collect();
        let chosen: Vec<bool> = (0..scores.len()).map(|id| before.contains(&id)).collect();
        penalise(&mut scores, &chosen, case.penalty);
        case.never.iter().for_each(|id| scores[*id] = f32::NEG_INFINITY);
        scores.iter_mut().for_each(|score| *score /= case.temperature);
        keep_top_k(&mut scores, case.top_k);
        let mut weights = weights_of(&scores);
        keep_top_p(&scores, &mut weights, case.top_p);
        let kept: Vec<usize> = (0..weights.len()).filter(|id| weights[*id] > 0).collect();
        assert_eq!(kept, case.kept, "case {at}");
        let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        for (id, share) in kept.into_iter().zip(case.shares) {
            assert!((f64::from(weights[id]) / total - share).abs() < 1e-6, "case {at}, id {id}");
        }
    }
}
