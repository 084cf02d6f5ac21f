//! Speech as VibeVoice does it: a script of several speakers and a sample of each voice in, 24 kHz audio out.
//!
//! A language model says one *token* a step. A token of audio stands for 133 ms of it: the model runs once more without the
//! script (the *negative* stream), a *diffusion head* makes a latent of what both leave, an *acoustic decoder* makes samples
//! of the latent, and a *semantic encoder* hears them, so that the next step goes on from what was spoken. [`VibeVoiceConfig`]
//! says what a model is, [`VibeVoiceWeights`] where its numbers come from, [`Script`] and [`Voice`] its input,
//! [`VoicePrompt`] how, [`Guidance`] how latents are made, and [`VibeVoice`] what can be asked of it on a device.

mod config;
mod config_json;
mod model;
mod names;
mod noise;
mod parameters;
mod presets;
mod prompt;
mod reader;
mod script;
mod solver;
mod tensors;
mod voice;
mod weights;
mod work;

pub(crate) use self::model::no_token;
pub use self::{
    config::{HeadConfig, SpecialIds, TokenizerConfig, VibeVoiceConfig},
    model::{Guidance, Noise, SpokenToken, VibeVoice, VibeVoiceOptions},
    noise::normal,
    prompt::VoicePrompt,
    reader::{ReadTiming, Reader},
    script::{Line, Script},
    solver::{Solver, SolverStep, TRAINED_STEPS, time_frequencies},
    tensors::{ConnectorTensors, HeadLayerTensors, HeadTensors, MixerTensors, StageTensors, TokenizerTensors, Way},
    voice::{SYNTHETIC_SECONDS, Voice},
    weights::VibeVoiceWeights,
    work::VibeVoiceStage,
};
