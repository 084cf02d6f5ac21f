//! The fixture `speech`: a tiny VibeVoice and its expected results.

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
    /// Samples of voices before normalisation.
    pub voices: Vec<Vec<f32>>,
    pub tokens: Vec<u32>,
    /// The initial noise, by token of audio.
    pub noise: Vec<Vec<f32>>,
    /// Hidden states and logits of the positive stream, by token.
    pub hidden: Vec<Vec<f32>>,
    pub logits: Vec<Vec<f32>>,
    /// By token of audio.
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

/// The model, possibly with offloaded layers.
pub fn model(dtype: Dtype, offload: Option<Offload>) -> Box<dyn VibeVoice> {
    let config = config();
    let weights = VibeVoiceWeights::open(&folder("speech"), &config).unwrap();
    weights.check_finite(&config).unwrap();
    let options = VibeVoiceOptions { offload, ..VibeVoiceOptions::new(dtype, 128, 16) };
    cpu::vibevoice(config, &weights, options, 2).unwrap()
}

impl Case {
    /// The prompt.
    pub fn prompt(&self) -> VoicePrompt {
        let hop = config().token_samples();
        let voices = self.voices.iter().map(|samples| {
            let mut samples = Voice::new(samples.clone()).unwrap().samples;
            samples.resize(samples.len().next_multiple_of(hop), 0.0);
            samples
        });
        VoicePrompt { ids: self.ids.clone(), voices: voices.collect() }
    }

    /// The diffusion settings.
    pub fn guidance(&self, scale: f32) -> Guidance {
        let noise = Noise::Given(self.noise.concat());
        Guidance { steps: self.steps, scale, noise, varies_voices: false, is_endless: false }
    }
}
