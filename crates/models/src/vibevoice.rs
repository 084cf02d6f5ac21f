//! VibeVoice: a script of several speakers and a sample of each voice in, 24 kHz audio out.
//!
//! A language model generates one *token* per step. A token of audio stands for 133 ms: the model runs once more without the
//! script (the *negative* stream), a *diffusion head* makes a latent from the hidden states of both streams, the *acoustic
//! decoder* turns the latent into samples, and the *semantic encoder* encodes these for the next step.
//!
//! [`VibeVoiceConfig`] describes a model, [`VibeVoiceWeights`] the source of its weights, [`Script`], [`Voice`] and
//! [`VoicePrompt`] its input, [`Guidance`] the diffusion, and [`VibeVoice`] is the model on a device. Every part is written
//! once over the operations of a `Backend`, which the CPU and CUDA implement.

mod backend;
mod config;
mod config_json;
mod count;
mod diffusion_head;
mod engine;
mod memory;
mod model;
mod plan;
mod presets;
mod prompt;
mod script;
mod solver;
mod tensors;
mod tokenizer;
mod voice;
mod weights;
mod work;

pub(crate) use self::{
    backend::{Backend, CONNECTOR_EPS, Part, Read, Side},
    diffusion_head::{DiffusionOps, STREAMS},
    engine::Engine,
    memory::{Own, needed_bytes},
    plan::{BEHIND, ConvShape, List, Plan, TokenizerShape},
    solver::SolverStep,
    tensors::{Connector, DiffusionHead, HeadLayer, Kinds, Mixer, VoiceLoad},
    tokenizer::{Rows, TokenizerOps},
};
pub use self::{
    config::{HeadConfig, SpecialIds, TokenizerConfig, VibeVoiceConfig},
    memory::ReadingSizes,
    model::{Guidance, Noise, SpokenToken, VibeVoice, VibeVoiceOptions, normal},
    prompt::VoicePrompt,
    script::{Line, Script},
    solver::{Solver, TRAINED_STEPS},
    voice::{SYNTHETIC_SECONDS, Voice},
    weights::VibeVoiceWeights,
};
pub(crate) use crate::Done;
