//! Qwen3-TTS: text in, 24 kHz audio out.
//!
//! A decoder, the *talker*, generates one *frame* per step: 80 ms of audio. It samples the first of the frame's 16 codes,
//! the *semantic* code. A small decoder, the *code predictor*, samples the other 15 one after another, and the *codec
//! decoder* turns frames of codes into audio. [`TtsConfig`] describes a model, [`TtsWeights`] are its weights, [`Prompt`]
//! is the talker's input, [`QwenTts`] is a model on a device, and [`Synthesizer`] goes from text to [`Audio`].

mod audio;
mod codec;
mod config;
mod config_json;
mod count;
mod engine;
mod ops;
mod presets;
mod prompt;
mod sampling;
mod settings;
mod synthesizer;
mod tensors;
mod voices;
mod weights;

pub use self::{
    audio::{Audio, WavStream},
    codec::{CONTEXT_FRAMES, CodecConfig},
    config::{TokenIds, TtsConfig},
    engine::{Frame, QwenTts, TtsOptions},
    prompt::{Position, Prompt, TextFeed},
    sampling::{draw, keep_top_k, keep_top_p, penalise, random_bits, sample, weights_of},
    settings::{Choice, Sampling},
    synthesizer::{Listener, Ready, SpeechOptions, Spoken, Synthesizer, Timing, speak},
    voices::{Language, Speaker},
    weights::TtsWeights,
};
pub(crate) use self::{
    codec::{CHUNK_FRAMES, chunks},
    config::Part,
    count::{CodecSizes, DeviceNeeds, needed_bytes, together},
    ops::{CodecOps, Flow, FramePart, NEXT_EPS, SamplingPart, TtsOps, decode},
    sampling::{pick, suppressed, weigh},
    tensors::{
        CodecWeights, ConvTensors, Linear, LoadNamed, Loaded, LoadedWeights, NextWeights, Parts, TtsLoad, codebook,
    },
};
