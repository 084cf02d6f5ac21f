//! The decoder on the CPU.
//!
//! Passes work on slices that are kept from one pass to the next. Products use the kernels of the crate `gemm`; the
//! other operations are loops of our own.

pub(crate) mod attention;
pub(crate) mod blocks;
pub(crate) mod cache;
mod conv;
pub(crate) mod crew;
mod engine;
mod fuser;
mod linear;
mod memory;
mod model;
pub(crate) mod number;
mod pass;
mod product;
mod rows;
mod speech;
mod stack;
mod steps;
mod streamed;
pub(crate) mod tiles;
mod train;
mod tts;
mod turned;
pub(crate) mod vectors;

use std::ops::Range;

use half::{bf16, f16};

use self::engine::Engine;
pub use self::{
    fuser::{CpuFuser, needed_fuser_bytes},
    memory::{Pass, most_resident_layers, needed_bytes},
    product::settle,
    speech::{CpuVoicing, most_resident_speech_layers, needed_speech_bytes},
    train::{CpuTrainer, needed_train_bytes},
    tts::{CpuSpeaking, needed_tts_bytes},
};
use crate::{
    Config, Decoder, Dtype, GraphMode, KeysValues, LayerVisit, ModelError, Offloading, Options, Replay, Tokens, Weights,
};

/// A decoder on the CPU.
pub struct CpuDecoder {
    /// One for each number type.
    engine: Box<dyn Decoder>,
}

impl CpuDecoder {
    /// Puts a model's weights into memory; passes run on so many threads, of which the caller is one.
    pub fn new(config: Config, weights: &Weights, options: Options, threads: usize) -> Result<Self, ModelError> {
        config.check()?;
        if options.batch == 0 {
            return Err(ModelError::Refused("a batch has at least one sequence".to_owned()));
        }
        if options.graph == GraphMode::On {
            return Err(ModelError::Refused("there are no graphs on a CPU: leave `--graph on` out".to_owned()));
        }
        let engine: Box<dyn Decoder> = match options.dtype {
            Dtype::F32 => Box::new(Engine::<f32>::new(config, options, threads, weights)?),
            Dtype::Bf16 => Box::new(Engine::<bf16>::new(config, options, threads, weights)?),
            Dtype::F16 => Box::new(Engine::<f16>::new(config, options, threads, weights)?),
        };
        Ok(Self { engine })
    }
}

impl Decoder for CpuDecoder {
    fn config(&self) -> &Config {
        self.engine.config()
    }

    fn options(&self) -> &Options {
        self.engine.options()
    }

    fn forward(&mut self, tokens: &Tokens) -> Result<(), ModelError> {
        self.engine.forward(tokens)
    }

    fn prefill(&mut self, tokens: &Tokens) -> Result<(), ModelError> {
        self.engine.prefill(tokens)
    }

    fn step(&mut self) -> Result<(), ModelError> {
        self.engine.step()
    }

    fn choose(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.engine.choose(ids)
    }

    fn chosen(&mut self) -> Result<Vec<u32>, ModelError> {
        self.engine.chosen()
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        self.engine.logits()
    }

    fn look(&mut self, row: &mut dyn FnMut(&[f32])) -> Result<(), ModelError> {
        self.engine.look(row)
    }

    fn length(&self) -> usize {
        self.engine.length()
    }

    fn truncate(&mut self, length: usize) -> Result<(), ModelError> {
        self.engine.truncate(length)
    }

    fn read_cache(&mut self, layer: usize) -> Result<KeysValues, ModelError> {
        self.engine.read_cache(layer)
    }

    fn read_positions(&mut self, layer: usize, positions: Range<usize>) -> Result<KeysValues, ModelError> {
        self.engine.read_positions(layer, positions)
    }

    fn write_cache(&mut self, layer: usize, start: usize, values: &KeysValues) -> Result<(), ModelError> {
        self.engine.write_cache(layer, start, values)
    }

    fn set_length(&mut self, length: usize) -> Result<(), ModelError> {
        self.engine.set_length(length)
    }

    fn replay(&self) -> Replay {
        self.engine.replay()
    }

    fn offloading(&self) -> Option<Offloading> {
        self.engine.offloading()
    }

    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        self.engine.layer_visits()
    }
}
