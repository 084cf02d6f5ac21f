//! The fixture `speech`: a tiny model, and what is expected of it.

#![allow(dead_code, reason = "each test uses what it needs")]

use laptime_models::{
    Dtype, Offload, cpu,
    vibevoice::{Guidance, Noise, VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights, Voice, VoicePrompt},
};
use serde::Deserialize;

use super::folder;

#[derive(Deserialize)]
pub struct Expected {
    pub scale: f32,
    pub cases: Vec<Case>,
    pub tokenizers: Tokenizers,
}

#[derive(Deserialize)]
pub struct Case {
    pub steps: usize,
    pub ids: Vec<u32>,
    /// Samples of voices, before they are made as loud as models are used to.
    pub voices: Vec<Vec<f32>>,
    pub tokens: Vec<u32>,
    /// What each token of audio begins with.
    pub noise: Vec<Vec<f32>>,
    /// What the positive stream leaves, of every token, and the logits of what may be chosen.
    pub hidden: Vec<Vec<f32>>,
    pub logits: Vec<Vec<f32>>,
    /// Of every token of audio.
    pub negative: Vec<Vec<f32>>,
    pub latents: Vec<Vec<f32>>,
    pub audio: Vec<Vec<f32>>,
    pub semantic: Vec<Vec<f32>>,
}

#[derive(Deserialize)]
pub struct Tokenizers {
    pub audio: Vec<f32>,
    pub acoustic: Vec<f32>,
    pub semantic: Vec<f32>,
    pub latents: Vec<f32>,
    pub decoded: Vec<f32>,
}

pub fn expected() -> Expected {
    let text = std::fs::read_to_string(folder("speech").join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

pub fn config() -> VibeVoiceConfig {
    VibeVoiceConfig::from_folder(&folder("speech")).unwrap()
}

/// The model, with layers that stay or do not.
pub fn model(dtype: Dtype, offload: Option<Offload>) -> Box<dyn VibeVoice> {
    let config = config();
    let weights = VibeVoiceWeights::open(&folder("speech"), &config).unwrap();
    weights.check_finite(&config).unwrap();
    let options = VibeVoiceOptions { offload, ..VibeVoiceOptions::new(dtype, 128, 16) };
    cpu::vibevoice(config, &weights, options, 2).unwrap()
}

impl Case {
    /// The text that it speaks.
    pub fn prompt(&self) -> VoicePrompt {
        let hop = config().token_samples();
        let voices = self.voices.iter().map(|samples| {
            let mut samples = Voice::new(samples.clone()).unwrap().samples;
            samples.resize(samples.len().next_multiple_of(hop), 0.0);
            samples
        });
        VoicePrompt { ids: self.ids.clone(), voices: voices.collect() }
    }

    /// How latents are made.
    pub fn guidance(&self, scale: f32) -> Guidance {
        let noise = Noise::Given(self.noise.concat());
        Guidance { steps: self.steps, scale, noise, varies_voices: false, is_endless: false }
    }
}
