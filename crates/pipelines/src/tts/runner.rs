//! One synthesis, at once or in chunks, with the times of its parts.

use std::ops::ControlFlow;

use laptime_bench::{Device, Nanos};
use laptime_models::{
    ModelError, tool_range,
    tts::{Audio, Frame},
};
use laptime_probe::{lap, stage};

use super::{
    make::{Loaded, make},
    playback::Ready,
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

/// Receives audio chunk by chunk, and may stop the generation.
pub type Listener<'a> = &'a mut dyn FnMut(&[f32]) -> ControlFlow<()>;

/// The result of a synthesis.
#[derive(Debug, Clone, Default)]
pub struct Spoken {
    /// The audio.
    pub samples: Vec<f32>,
    /// The time of the prompt, until the first code was sampled and read.
    pub prefill_ns: u64,
    /// The time of each frame, without its audio.
    pub frames_ns: Vec<u64>,
    /// The time of all frames, without their audio.
    pub generation_ns: u64,
    /// The time of the audio decoder.
    pub decode_ns: u64,
    /// When frames could be played, if the audio was streamed.
    pub ready: Vec<Ready>,
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

    /// Says the text once to a listener, who has each chunk as soon as it is made and may break off; all at once if it is
    /// not streamed.
    pub fn speak_to(&mut self, listener: Listener<'_>) -> Result<Spoken, ModelError> {
        let _range = tool_range("synthesize");
        let _stage = stage!("synthesize", on = self.device.lane());
        let (mut spoken, start) = (Spoken::default(), self.device.now());
        let sampling = self.speech.sampling(&self.spec);
        self.made.model.begin(&self.speech.prompt, &sampling, self.speech.frames)?;
        self.made.model.wait()?;
        spoken.prefill_ns = self.since(start);
        match self.spec.streaming {
            true => self.stream(&mut spoken, start, listener)?,
            false => {
                self.generate_then_decode(&mut spoken)?;
                let _ = listener(&spoken.samples);
            }
        }
        Ok(spoken)
    }

    fn generate_then_decode(&mut self, spoken: &mut Spoken) -> Result<(), ModelError> {
        let start = self.device.now();
        {
            let _range = tool_range("generate_frames");
            let _stage = stage!("generate_frames", on = self.device.lane());
            while !self.frame(spoken)?.is_end {}
            self.made.model.wait()?;
        }
        spoken.generation_ns = self.since(start);
        let start = self.device.now();
        spoken.samples = self.made.model.decode(0..self.made.model.frames())?;
        spoken.decode_ns = self.since(start);
        Ok(())
    }

    fn stream(&mut self, spoken: &mut Spoken, start: Nanos, listener: Listener<'_>) -> Result<(), ModelError> {
        let _range = tool_range("generate_frames");
        let _stage = stage!("generate_frames", on = self.device.lane());
        let (mut taken, mut is_heard) = (0, true);
        loop {
            let frame = self.frame(spoken)?;
            let made = frame.index + 1;
            if made - taken >= self.spec.chunk_frames || frame.is_end {
                let begun = self.device.now();
                let chunk = self.made.model.decode(taken..made)?;
                spoken.decode_ns += self.since(begun);
                spoken.ready.push(Ready { frames: made, at_ns: self.since(start) });
                is_heard = listener(&chunk).is_continue();
                spoken.samples.extend(chunk);
                taken = made;
            }
            if frame.is_end || !is_heard {
                spoken.generation_ns = spoken.frames_ns.iter().sum();
                return Ok(());
            }
        }
    }

    /// Generates the next frame, as a lap.
    fn frame(&mut self, spoken: &mut Spoken) -> Result<Frame, ModelError> {
        let start = self.device.now();
        let frame = {
            let _range = tool_range("frame");
            let _lap = lap!("frame", on = self.device.lane(), frame = self.made.model.frames());
            self.made.model.frame()?
        };
        spoken.frames_ns.push(self.since(start));
        Ok(frame)
    }

    fn since(&self, start: Nanos) -> u64 {
        self.device.now().saturating_sub(start).0
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
