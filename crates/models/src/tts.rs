//! Text to speech as Qwen3-TTS does it: text in, 24 kHz audio out.
//!
//! A *talker*, a decoder, makes one *frame* a step: 80 ms of audio. Of each frame it chooses the first of 16 codes, the
//! *semantic* one; a small decoder, the *code predictor*, chooses the other 15 one after another; and the *codec decoder*
//! turns frames of codes into a waveform. [`TtsConfig`] says what a model is, [`TtsWeights`] where its numbers come from,
//! [`Prompt`] the input of the talker, [`Sampling`] how codes are chosen, [`QwenTts`] what can be asked of it on a device,
//! and [`Synthesizer`] runs one from text to [`Audio`].

mod audio;
mod codec;
mod config;
mod config_json;
mod count;
mod engine;
mod memory;
mod ops;
mod presets;
mod prompt;
mod sampling;
mod settings;
mod synthesizer;
mod tensors;
mod voices;
mod weights;
mod work;

pub use self::{
    audio::{Audio, WavStream},
    codec::{CHUNK_FRAMES, CONTEXT_FRAMES, Chunk, CodecConfig, chunks},
    config::{Part, TokenIds, TtsConfig},
    engine::{Frame, QwenTts, TtsOptions},
    prompt::{Position, Prompt, TextFeed},
    sampling::{Suppressed, draw, keep_top_k, keep_top_p, penalise, random_bits, sample, weights_of},
    settings::{Choice, Sampling},
    synthesizer::{Listener, Ready, SpeechOptions, Spoken, Synthesizer, Timing, speak},
    voices::{Language, Speaker},
    weights::TtsWeights,
};
pub(crate) use self::{
    count::CodecSizes,
    engine::Engine,
    memory::{DeviceNeeds, needed_bytes, together},
    ops::{CodecOps, Flow, FramePart, NEXT_EPS, SamplingPart, TtsOps, decode},
    sampling::{pick, weigh},
    tensors::{
        CodecWeights, ConvTensors, Linear, LoadNamed, Loaded, LoadedWeights, NextWeights, Parts, TtsLoad, codebook,
    },
};
