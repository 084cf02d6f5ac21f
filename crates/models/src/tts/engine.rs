//! Qwen3-TTS with its weights on a device: what can be asked of it, written once for every device.

use std::{ops::Range, sync::Arc};

use laptime_probe::sync_point;

use super::ops::{FramePart, SamplingPart, TtsOps, prefill};
use super::{Choice, Prompt, Sampling, TtsConfig, chunks, tensors::LoadedWeights};
use crate::{
    CacheCapacity, Done, Dtype, GraphMode, Marks, ModelError, Options, attention::Kept, error::ensure,
    marks::stage_mark,
};

/// How a model is loaded.
#[derive(Debug, Clone)]
pub struct TtsOptions {
    /// Dtype of weights, activations and caches.
    pub dtype: Dtype,
    /// Capacity of the talker's cache: the positions of the prompt, and one per frame.
    pub capacity: usize,
    /// Whether a frame is replayed as graphs.
    pub graph: GraphMode,
    /// Which stages are marked, and where.
    pub marks: Marks,
}

impl TtsOptions {
    /// Options for a dtype and this many positions, with defaults for the rest.
    pub fn new(dtype: Dtype, capacity: usize) -> Self {
        Self { dtype, capacity, graph: GraphMode::default(), marks: Marks::default() }
    }

    pub(crate) fn check(&self, config: &TtsConfig) -> Done {
        config.check()?;
        self.dtype.refuse_quantised("text to speech")?;
        let (tokens, capacity) = (self.capacity, config.talker.context);
        match tokens == 0 || tokens > capacity {
            true => Err(ModelError::TooLong { tokens, what: config.name.clone(), capacity }),
            false => Ok(()),
        }
    }

    pub(crate) fn decoder(&self, capacity: CacheCapacity, kept: Option<Kept>) -> Options {
        Options { kept, marks: self.marks.clone(), ..Options::new(self.dtype, capacity) }
    }
}

/// A generated frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Its index, from 0.
    pub index: usize,
    /// Its semantic code.
    pub token: u32,
    /// Whether it is the last: the end was sampled behind it, or the maximum was reached.
    pub is_end: bool,
}

/// Qwen3-TTS on a device.
///
/// [`QwenTts::begin`], then [`QwenTts::frame`] until a frame is the last, then [`QwenTts::decode`] of all of them; to
/// play the audio sooner, decode frames as soon as they are generated.
///
/// Stages are marked at every depth: `prefill` with `positions`; `code_predictor`, `talker_step` and `sampling`, with
/// `top_k` and `top_p` in it where they are used, each with `frame`; `decode` with `frames`. Reads from the device are
/// sync points: `read_frame` once per frame, `read_codes`, `read_audio`.
pub trait QwenTts {
    /// The configuration.
    fn config(&self) -> &TtsConfig;

    /// The options it was loaded with.
    fn options(&self) -> &TtsOptions;

    /// Runs a prompt through the talker and samples the first semantic code. Forgets all earlier frames. Refuses what
    /// [`Prompt::check`] does.
    fn begin(&mut self, prompt: &Prompt, sampling: &Sampling, most_frames: usize) -> Done;

    /// Generates the next frame: the predictor samples its other codes, the talker runs a step on all of them and the
    /// text that comes next, and the semantic code behind it is sampled. One read from the device tells whether it is
    /// the last frame; there is none behind that.
    fn frame(&mut self) -> Result<Frame, ModelError>;

    /// The number of frames since [`QwenTts::begin`].
    fn frames(&self) -> usize;

    /// The codes of some frames, frame by frame, `groups` of each. Waits for the device.
    fn codes(&mut self, frames: Range<usize>) -> Result<Vec<u32>, ModelError>;

    /// The samples of some frames, between -1 and 1, decoded in [`chunks`](super::chunks). Waits for the device.
    fn decode(&mut self, frames: Range<usize>) -> Result<Vec<f32>, ModelError>;

    /// Replaces the generated codes, so that others can be decoded: `groups` of each frame.
    fn set_codes(&mut self, codes: &[u32]) -> Done;

    /// The talker's logits of the last position that it ran, as they are before sampling. Waits for the device.
    fn logits(&mut self) -> Result<Vec<f32>, ModelError>;

    /// The talker's normed hidden state at the last position that it ran: the input of the predictor. Waits for the
    /// device.
    fn hidden(&mut self) -> Result<Vec<f32>, ModelError>;

    /// Waits for the device.
    fn wait(&mut self) -> Done;

    /// Forgets the prompt and all frames.
    fn reset(&mut self) -> Done;
}

/// Qwen3-TTS over the operations of one device. These come first: they may hold graphs with addresses of the weights.
pub struct Engine<O: TtsOps> {
    ops: O,
    weights: LoadedWeights<O::Parts>,
    config: Arc<TtsConfig>,
    options: TtsOptions,
    speech: Speech,
}

#[derive(Default)]
struct Speech {
    sampling: Sampling,
    most_frames: usize,
    made: usize,
    /// The semantic code of the next frame, once the host knows it.
    token: Option<u32>,
    has_next: bool,
    has_begun: bool,
}

impl<O: TtsOps> Engine<O> {
    pub fn new(config: Arc<TtsConfig>, options: TtsOptions, weights: LoadedWeights<O::Parts>, ops: O) -> Self {
        Self { ops, weights, config, options, speech: Speech::default() }
    }

    fn run(&mut self, part: FramePart) -> Done {
        let (marks, frame) = (&self.options.marks, self.speech.made);
        let replay = self.ops.replay_number(part)?;
        let _stage = match part {
            FramePart::CodePredictor => {
                stage_mark!(marks, Pipeline, "code_predictor", frame = frame, replay = replay)
            }
            FramePart::TalkerStep => stage_mark!(marks, Pipeline, "talker_step", frame = frame, replay = replay),
        };
        if !self.ops.replay(part)? {
            part.run(&mut self.ops, &self.weights)?;
        }
        Ok(())
    }

    fn sample(&mut self, frame: usize) -> Done {
        let marks = &self.options.marks;
        let _stage = stage_mark!(marks, Pipeline, "sampling", frame = frame);
        let (has_top_k, has_top_p) = match self.speech.sampling.talker {
            Choice::Likeliest => (false, false),
            Choice::Drawn { top_k, top_p, .. } => (top_k > 0, top_p < 1.0),
        };
        {
            // Penalties are applied here in any case.
            let _stage = has_top_k.then(|| stage_mark!(marks, Pipeline, "top_k"));
            self.ops.sample(SamplingPart::TopK, frame)?;
        }
        if has_top_p {
            let _stage = stage_mark!(marks, Pipeline, "top_p");
            self.ops.sample(SamplingPart::TopP, frame)?;
        }
        self.ops.sample(SamplingPart::Draw, frame)
    }

    fn check_begun(&self) -> Done {
        ensure!(self.speech.has_begun, "the talker has run no prompt");
        Ok(())
    }
}

impl<O: TtsOps> QwenTts for Engine<O> {
    fn config(&self) -> &TtsConfig {
        &self.config
    }

    fn options(&self) -> &TtsOptions {
        &self.options
    }

    fn begin(&mut self, prompt: &Prompt, sampling: &Sampling, most_frames: usize) -> Done {
        sampling.check()?;
        prompt.check(&self.config, most_frames, self.options.capacity)?;
        self.reset()?;
        self.ops.begin(&self.weights, prompt, sampling)?;
        self.speech = Speech { sampling: *sampling, most_frames, ..Speech::default() };
        {
            let positions = prompt.positions.len();
            let _stage = stage_mark!(self.options.marks, Pipeline, "prefill", positions = positions);
            prefill(&mut self.ops, &self.weights, prompt)?;
        }
        self.sample(0)?;
        self.speech.has_begun = true;
        self.speech.has_next = true;
        Ok(())
    }

    fn frame(&mut self) -> Result<Frame, ModelError> {
        let reason = if self.speech.has_begun { "the last frame was made" } else { "nothing was begun" };
        ensure!(self.speech.has_next, "there is no next frame: {reason}");
        let index = self.speech.made;
        // After a failure there is nothing to continue from.
        self.speech.has_next = false;
        self.run(FramePart::CodePredictor)?;
        let is_last = index + 1 >= self.speech.most_frames;
        if !is_last {
            self.run(FramePart::TalkerStep)?;
            self.sample(index + 1)?;
        }
        sync_point!("read_frame", self.ops.wait())?;
        let token = self.speech.token.unwrap_or_else(|| self.ops.drawn(0).0);
        if !is_last {
            let (next, is_end) = self.ops.drawn(index + 1);
            (self.speech.token, self.speech.has_next) = (Some(next), !is_end);
        }
        self.speech.made = index + 1;
        Ok(Frame { index, token, is_end: !self.speech.has_next })
    }

    fn frames(&self) -> usize {
        self.speech.made
    }

    fn codes(&mut self, frames: Range<usize>) -> Result<Vec<u32>, ModelError> {
        check_frames(&frames, self.speech.made)?;
        sync_point!("read_codes", self.ops.codes(frames))
    }

    fn decode(&mut self, frames: Range<usize>) -> Result<Vec<f32>, ModelError> {
        check_frames(&frames, self.speech.made)?;
        let _stage = stage_mark!(self.options.marks, Pipeline, "decode", frames = frames.len());
        let length = self.config.codec.frame_samples();
        let mut samples = Vec::new();
        for chunk in chunks(frames) {
            let kept = chunk.context * length..chunk.frames.len() * length;
            self.ops.decode(&self.weights, chunk.frames)?;
            sync_point!("read_audio", self.ops.read_samples(kept, &mut samples))?;
        }
        Ok(samples)
    }

    fn set_codes(&mut self, codes: &[u32]) -> Done {
        let frames = check_codes(&self.config, codes)?;
        self.reset()?;
        self.ops.set_codes(codes)?;
        self.speech.made = frames;
        Ok(())
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        self.check_begun()?;
        self.ops.logits()
    }

    fn hidden(&mut self) -> Result<Vec<f32>, ModelError> {
        self.check_begun()?;
        self.ops.hidden(&self.weights)
    }

    fn wait(&mut self) -> Done {
        self.ops.wait()
    }

    fn reset(&mut self) -> Done {
        self.ops.reset()?;
        self.speech = Speech::default();
        Ok(())
    }
}

fn check_frames(frames: &Range<usize>, made: usize) -> Done {
    let Range { start, end } = *frames;
    ensure!((start..=made).contains(&end), "frames {start} to {end} were not made: there are {made}");
    Ok(())
}

fn check_codes(config: &TtsConfig, codes: &[u32]) -> Result<usize, ModelError> {
    let (count, groups) = (codes.len(), config.groups);
    ensure!(count.is_multiple_of(groups), "{count} codes make no frames of {groups}");
    match codes.iter().find(|code| **code as usize >= config.codec.codebook) {
        Some(code) => {
            Err(ModelError::Refused(format!("code {code} is beyond the {} of a codebook", config.codec.codebook)))
        }
        None => Ok(codes.len() / config.groups),
    }
}
