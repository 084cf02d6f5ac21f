//! VibeVoice: a script of several speakers and a sample of each voice in, 24 kHz audio out.
//!
//! A language model generates one *token* per step. A token of audio is 133 ms long. For it, the model also runs without the
//! script (the *negative* stream), a *diffusion head* generates a latent from the hidden states of both streams, the *acoustic
//! decoder* turns the latent into samples, and the *semantic encoder* encodes these for the next step.
//!
//! [`VibeVoiceConfig`] describes a model, [`VibeVoiceWeights`] are its weights, [`Script`], [`Voice`] and [`VoicePrompt`]
//! are its input, [`Guidance`] controls the diffusion, and [`VibeVoice`] is the model on a device. Every part is written
//! once over the operations of a `Backend`, which the CPU and CUDA implement.

mod backend;
mod config;
mod config_json;
mod count;
mod engine;
mod model;
mod ops;
mod plan;
mod presets;
mod prompt;
mod script;
mod solver;
mod tensors;
mod voice;
mod weights;

pub(crate) use self::{
    backend::{Backend, CONNECTOR_EPS, Part, Read, Side},
    count::{Own, needed_bytes},
    engine::Engine,
    ops::{DiffusionOps, Rows, STREAMS, TokenizerOps},
    plan::{BEHIND, ConvShape, List, Plan, TokenizerShape},
    solver::{Solver, SolverStep},
    tensors::{Connector, DiffusionHead, HeadLayer, Kinds, Mixer, VoiceLoad},
};
pub use self::{
    config::{HeadConfig, SpecialIds, TokenizerConfig, VibeVoiceConfig},
    count::ReadingSizes,
    model::{Guidance, Noise, SpokenToken, VibeVoice, VibeVoiceOptions, normal},
    prompt::VoicePrompt,
    script::{Line, Script},
    voice::Voice,
    weights::VibeVoiceWeights,
};
pub(crate) use crate::Done;
