//! A text-to-speech model with its weights on a device: what can be asked of it, whatever the device.

use std::ops::Range;

use super::{Prompt, Sampling, TtsConfig};
use crate::{Dtype, GraphMode, Marks, ModelError};

/// How a model is made ready.
#[derive(Debug, Clone)]
pub struct SpeakOptions {
    /// Number type of weights, activations and caches.
    pub dtype: Dtype,
    /// Positions that the talker's cache has room for: those of the prompt, and one a frame.
    pub room: usize,
    /// Whether a frame is replayed as graphs.
    pub graph: GraphMode,
    /// Which stages are marked, and where.
    pub marks: Marks,
}

impl SpeakOptions {
    /// Options for a dtype and this many positions, with defaults for the rest.
    pub fn new(dtype: Dtype, room: usize) -> Self {
        Self { dtype, room, graph: GraphMode::default(), marks: Marks::default() }
    }
}

/// What is known of a frame when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Which one it is, from 0.
    pub index: usize,
    /// Its semantic code.
    pub token: u32,
    /// Whether it is the last: the end was chosen behind it, or as many were made as were asked for.
    pub is_end: bool,
}

/// A text-to-speech model on a device.
///
/// [`Speaking::begin`], then [`Speaking::frame`] until a frame is the last, then [`Speaking::decode`] of all of them; or,
/// to hear it sooner, of some as soon as they are made.
///
/// Stages are marked at every depth: `prefill` with `positions`; `code_predictor`, `talker_step` and `sampling`, with
/// `top_k` and `top_p` in it where they are done, each with `frame`; `decode` with `frames`. What reads from the device
/// is a sync point: `read_frame` once a frame, `read_codes`, `read_audio`.
pub trait Speaking {
    /// What the model is.
    fn config(&self) -> &TtsConfig;

    /// How it was made ready.
    fn options(&self) -> &SpeakOptions;

    /// Runs a prompt through the talker and chooses the first semantic code. At most this many frames will be made. What
    /// was made before is forgotten. Refuses what [`Prompt::check`] does.
    fn begin(&mut self, prompt: &Prompt, sampling: &Sampling, most_frames: usize) -> Result<(), ModelError>;

    /// Makes the next frame: the predictor chooses its other codes, the talker runs a step on all of them and the text
    /// that comes next, and the semantic code behind it is chosen. One read from the device says whether it is the last.
    /// Refuses to go on behind the last.
    fn frame(&mut self) -> Result<Frame, ModelError>;

    /// Frames that were made since [`Speaking::begin`].
    fn frames(&self) -> usize;

    /// The codes of some frames, frame by frame, `groups` of each. Waits for the device.
    fn codes(&mut self, frames: Range<usize>) -> Result<Vec<u32>, ModelError>;

    /// The samples of some frames, between -1 and 1, decoded as [`chunks`](super::chunks) says. Waits for the device.
    fn decode(&mut self, frames: Range<usize>) -> Result<Vec<f32>, ModelError>;

    /// Puts codes in place of those that were made, so that they can be decoded: `groups` of each frame.
    fn set_codes(&mut self, codes: &[u32]) -> Result<(), ModelError>;

    /// The talker's logits of the last position that it ran, before anything is done to them. Waits for the device.
    fn logits(&mut self) -> Result<Vec<f32>, ModelError>;

    /// The talker's normed stream at the last position that it ran: what the predictor hears. Waits for the device.
    fn hidden(&mut self) -> Result<Vec<f32>, ModelError>;

    /// Waits until all that was asked of the device is done.
    fn wait(&mut self) -> Result<(), ModelError>;

    /// Forgets the prompt and all frames.
    fn reset(&mut self) -> Result<(), ModelError>;
}

/// Refuses frames that were not made.
pub(crate) fn check_frames(frames: &Range<usize>, made: usize) -> Result<(), ModelError> {
    match frames.start <= frames.end && frames.end <= made {
        true => Ok(()),
        false => {
            let Range { start, end } = frames;
            Err(ModelError::Refused(format!("frames {start} to {end} were not made: there are {made}")))
        }
    }
}

/// Refuses codes that are none, and says how many frames they are.
pub(crate) fn check_codes(config: &TtsConfig, codes: &[u32]) -> Result<usize, ModelError> {
    if !codes.len().is_multiple_of(config.groups) {
        let (count, groups) = (codes.len(), config.groups);
        return Err(ModelError::Refused(format!("{count} codes make no frames of {groups}")));
    }
    match codes.iter().find(|code| **code as usize >= config.codec.codebook) {
        Some(code) => {
            Err(ModelError::Refused(format!("code {code} is beyond the {} of a codebook", config.codec.codebook)))
        }
        None => Ok(codes.len() / config.groups),
    }
}

/// What is said when a frame is asked for and there is none to come.
pub(crate) fn no_frame(has_begun: bool) -> ModelError {
    let reason = if has_begun { "the last frame was made" } else { "nothing was begun" };
    ModelError::Refused(format!("there is no next frame: {reason}"))
}
