//! Qwen3-TTS on a device, written once for every device.

use std::{ops::Range, sync::Arc};

use laptime_probe::sync_point;

use super::ops::{FramePart, SamplingPart, TtsOps};
use super::{Choice, Prompt, Sampling, TtsConfig, chunks};
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
    /// Whether frames are replayed as graphs.
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
        let is_fine = (1..=capacity).contains(&tokens);
        is_fine.then_some(()).ok_or_else(|| ModelError::TooLong { tokens, what: config.name.clone(), capacity })
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
    /// Whether it is the last: the end was sampled next, or this is the maximum.
    pub is_end: bool,
}

/// Qwen3-TTS on a device.
///
/// Call [`QwenTts::begin`], then [`QwenTts::frame`] until a frame is the last, then [`QwenTts::decode`] for all frames, or
/// for some of them as soon as they are generated.
///
/// Stages are marked at every depth: `prefill` with `positions`; `code_predictor`, `talker_step` and `sampling`, with
/// `top_k` and `top_p` in it where they are used, each with `frame`; `decode` with `frames`. Reads from the device are
/// sync points: `read_frame` once per frame, `read_codes`, `read_audio`.
pub struct QwenTts<'a> {
    ops: Box<dyn TtsOps + 'a>,
    config: Arc<TtsConfig>,
    options: TtsOptions,
    speech: Speech,
}

#[derive(Default)]
struct Speech {
    sampling: Sampling,
    most_frames: usize,
    frames: usize,
    /// The semantic code of the next frame, once the host has read it.
    token: Option<u32>,
    has_next: bool,
    has_begun: bool,
}

impl<'a> QwenTts<'a> {
    pub(crate) fn new(config: Arc<TtsConfig>, options: TtsOptions, ops: Box<dyn TtsOps + 'a>) -> Self {
        Self { ops, config, options, speech: Speech::default() }
    }

    fn run(&mut self, part: FramePart) -> Done {
        let (marks, frame) = (&self.options.marks, self.speech.frames);
        let replay = self.ops.replay_number(part)?;
        let _stage = match part {
            FramePart::CodePredictor => {
                stage_mark!(marks, Pipeline, "code_predictor", frame = frame, replay = replay)
            }
            FramePart::TalkerStep => stage_mark!(marks, Pipeline, "talker_step", frame = frame, replay = replay),
        };
        if !self.ops.replay(part)? {
            part.run(&mut *self.ops, self.config.predicted())?;
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
            // Penalties are applied here even without top-k.
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
        ensure!(self.speech.has_begun, "no prompt has run yet");
        Ok(())
    }

    /// The configuration.
    pub fn config(&self) -> &TtsConfig {
        &self.config
    }

    /// The options it was loaded with.
    pub fn options(&self) -> &TtsOptions {
        &self.options
    }

    /// Runs a prompt through the talker and samples the first semantic code. Forgets all earlier frames.
    pub fn begin(&mut self, prompt: &Prompt, sampling: &Sampling, most_frames: usize) -> Done {
        sampling.check()?;
        prompt.check(&self.config, most_frames, self.options.capacity)?;
        self.reset()?;
        self.ops.begin(prompt, sampling)?;
        self.speech = Speech { sampling: *sampling, most_frames, ..Speech::default() };
        {
            let positions = prompt.positions.len();
            let _stage = stage_mark!(self.options.marks, Pipeline, "prefill", positions = positions);
            self.ops.prefill(prompt)?;
        }
        self.sample(0)?;
        self.speech.has_begun = true;
        self.speech.has_next = true;
        Ok(())
    }

    /// Generates the next frame: the code predictor samples its other codes, the talker runs a step on all of them and
    /// the next text token, and the next semantic code is sampled. Reads from the device once.
    pub fn frame(&mut self) -> Result<Frame, ModelError> {
        let reason = if self.speech.has_begun { "the last one was generated" } else { "no prompt has run yet" };
        ensure!(self.speech.has_next, "there is no next frame: {reason}");
        let index = self.speech.frames;
        // A failed frame cannot be continued.
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
        self.speech.frames = index + 1;
        Ok(Frame { index, token, is_end: !self.speech.has_next })
    }

    /// Frames since [`QwenTts::begin`].
    pub fn frames(&self) -> usize {
        self.speech.frames
    }

    /// The codes of some frames, `[frames, groups]`. Waits for the device.
    pub fn codes(&mut self, frames: Range<usize>) -> Result<Vec<u32>, ModelError> {
        check_frames(&frames, self.speech.frames)?;
        sync_point!("read_codes", self.ops.codes(frames))
    }

    /// The samples of some frames, between -1 and 1. Waits for the device.
    pub fn decode(&mut self, frames: Range<usize>) -> Result<Vec<f32>, ModelError> {
        check_frames(&frames, self.speech.frames)?;
        let _stage = stage_mark!(self.options.marks, Pipeline, "decode", frames = frames.len());
        let length = self.config.codec.frame_samples();
        let mut samples = Vec::new();
        for chunk in chunks(frames) {
            let kept = chunk.context * length..chunk.frames.len() * length;
            self.ops.decode(chunk.frames)?;
            sync_point!("read_audio", self.ops.read_samples(kept, &mut samples))?;
        }
        Ok(samples)
    }

    /// Replaces the generated codes, `[frames, groups]`, to decode others.
    pub fn set_codes(&mut self, codes: &[u32]) -> Done {
        let (count, groups, book) = (codes.len(), self.config.groups, self.config.codec.codebook);
        ensure!(count.is_multiple_of(groups), "{count} codes are not whole frames of {groups}");
        let largest = codes.iter().copied().max().unwrap_or_default();
        ensure!((largest as usize) < book, "code {largest} is outside the codebook of {book}");
        self.reset()?;
        self.ops.set_codes(codes)?;
        self.speech.frames = count / groups;
        Ok(())
    }

    /// The talker's logits at its last position, before sampling. Waits for the device.
    pub fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        self.check_begun()?;
        self.ops.logits()
    }

    /// The talker's normed hidden state at its last position: the input of the code predictor. Waits for the device.
    pub fn hidden(&mut self) -> Result<Vec<f32>, ModelError> {
        self.check_begun()?;
        self.ops.hidden()
    }

    /// Waits for the device.
    pub fn wait(&mut self) -> Done {
        self.ops.wait()
    }

    /// Forgets the prompt and all frames.
    pub fn reset(&mut self) -> Done {
        self.ops.reset()?;
        self.speech = Speech::default();
        Ok(())
    }
}

fn check_frames(Range { start, end }: &Range<usize>, generated: usize) -> Done {
    ensure!((*start..=generated).contains(end), "frames {start} to {end} do not exist: {generated} were generated");
    Ok(())
}
