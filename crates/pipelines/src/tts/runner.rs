//! One synthesis, at once or in chunks, with the times of its parts.

use std::ops::ControlFlow;

use laptime_bench::Device;
use laptime_models::{
    ModelError,
    tts::{Audio, Listener, SpeechOptions, Spoken, speak},
};

use super::{
    make::{Loaded, make},
    spec::Spec,
    speech::Speech,
};

/// A prepared model with its text.
pub struct Runner<'a> {
    /// The text and the model.
    pub speech: Speech,
    /// The parameters of the case.
    pub spec: Spec,
    /// The device.
    pub device: &'a dyn Device,
    /// The model on the device.
    pub made: Loaded<'a>,
}

impl<'a> Runner<'a> {
    /// Loads the model.
    pub fn new(speech: Speech, spec: Spec, device: &'a dyn Device) -> anyhow::Result<Self> {
        let made = make(&speech, &spec, device)?;
        Ok(Self { speech, spec, device, made })
    }

    /// Generates the audio once.
    pub fn speak(&mut self) -> Result<Spoken, ModelError> {
        self.speak_to(&mut |_| ControlFlow::Continue(()))
    }

    /// Generates the audio once and passes it to a listener: in chunks if it is streamed, else at once.
    pub fn speak_to(&mut self, listener: Listener<'_>) -> Result<Spoken, ModelError> {
        let Self { speech, spec, device, made } = self;
        let (sampling, most_frames) = (speech.sampling(spec), speech.frames);
        let options = SpeechOptions { sampling, most_frames, ..SpeechOptions::default() };
        let chunk = spec.streaming.then_some(spec.chunk_frames.max(1));
        speak(&mut *made.model, &speech.prompt, &options, chunk, &|| device.now().0, listener)
    }

    /// The audio of samples.
    pub fn audio(&self, samples: Vec<f32>) -> Audio {
        Audio { samples, rate: self.speech.config.codec.sample_rate }
    }

    /// The duration of a frame.
    pub fn frame_ns(&self) -> u64 {
        (1e9 / self.speech.config.codec.frame_rate()).round() as u64
    }
}
