//! A text-to-speech model on a device, which generates the audio of a case at once or in chunks.

use std::ops::ControlFlow;

use laptime_bench::Device;
use laptime_models::cpu;
use laptime_models::tts::{Audio, Listener, QwenTts, SpeechOptions, Spoken, TtsOptions, speak};
use laptime_probe::stage;

use super::speech::{Spec, Speech};
use crate::backend::{Target, hinted, if_gpu, marks, tts};

pub struct Runner<'a> {
    pub speech: Speech,
    pub spec: Spec,
    pub device: &'a dyn Device,
    pub model: Box<QwenTts<'a>>,
    /// Where its weights come from.
    pub weights: &'static str,
}

impl<'a> Runner<'a> {
    pub fn new(speech: Speech, spec: Spec, device: &'a dyn Device) -> anyhow::Result<Self> {
        let _stage = stage!("load_weights", model = speech.config.name);
        let (weights, from) = speech.weights(spec.seed).map_err(hinted)?;
        weights.check_finite(&speech.config).map_err(hinted)?;
        let options = TtsOptions { marks: marks(device), ..options(&speech, &spec) };
        let model = tts(speech.config.clone(), &weights, options, Target { device, threads: spec.threads })?;
        Ok(Self { speech, spec, device, model, weights: from })
    }

    pub fn speak(&mut self) -> anyhow::Result<Spoken> {
        self.speak_to(&mut |_| ControlFlow::Continue(()))
    }

    /// Generates the audio once and passes it to a listener: in chunks if it is streamed, else at once.
    pub fn speak_to(&mut self, listener: Listener<'_>) -> anyhow::Result<Spoken> {
        let Self { speech, spec, device, model, .. } = self;
        let (sampling, most_frames) = (speech.sampling(spec), speech.frames);
        let options = SpeechOptions { sampling, most_frames, ..SpeechOptions::default() };
        let chunk = spec.streaming.then_some(spec.chunk_frames.max(1));
        Ok(speak(model, &speech.prompt, &options, chunk, &|| device.now().0, listener)?)
    }

    pub fn audio(&self, samples: Vec<f32>) -> Audio {
        Audio { samples, rate: self.speech.config.codec.sample_rate }
    }

    pub fn frame_ns(&self) -> u64 {
        (1e9 / self.speech.config.codec.frame_rate()).round() as u64
    }
}

/// Without marks.
fn options(speech: &Speech, spec: &Spec) -> TtsOptions {
    TtsOptions { graph: spec.graph, ..TtsOptions::new(speech.dtype, speech.capacity()) }
}

/// The predicted peak memory of a case: heap or GPU memory.
pub fn needed_bytes(speech: &Speech, spec: &Spec, device: &dyn Device) -> u64 {
    let (config, options) = (&speech.config, options(speech, spec));
    let text = speech.prompt.positions.len().saturating_add(speech.prompt.following.len()).saturating_add(1);
    let sizes = [text, speech.frames];
    if_gpu!(device, _gpu => laptime_models::gpu::needed_tts_bytes(config, &options, sizes));
    // The check has the audio three times: as requested, at once, and in chunks.
    let samples = (speech.frames as u64).saturating_mul(config.codec.frame_samples() as u64).saturating_mul(4 * 3);
    cpu::needed_tts_bytes(config, &options, sizes, spec.threads).saturating_add(samples)
}
