//! The decoder on the CPU.
//!
//! Passes work on slices that are kept from one pass to the next. Linear layers and attention have kernels of our own;
//! training and stored scores use those of the crate `gemm`.

pub(crate) mod attention;
pub(crate) mod blocks;
pub(crate) mod cache;
mod conv;
pub(crate) mod crew;
mod engine;
mod fuser;
mod halves;
pub(crate) mod memory;
mod model;
pub(crate) mod number;
mod panels;
mod pass;
mod product;
mod rows;
mod stack;
mod steps;
mod streamed;
pub(crate) mod tiles;
mod train;
mod tts;
pub(crate) mod vectors;
mod vibevoice;

use self::engine::CpuPasses;
pub use self::{
    fuser::{fuser, needed_fuser_bytes},
    memory::{Pass, needed_bytes},
    product::{settle, workspace_bytes},
    train::{needed_train_bytes, trainer},
    tts::{needed_tts_bytes, qwen_tts},
    vibevoice::{needed_vibevoice_bytes, vibevoice},
};
use crate::{Config, Decoder, Done, GraphMode, ModelError, Options, Weights, dtype::typed};

/// Loads a decoder into memory. Passes run on this many threads, including the caller's.
pub fn decoder(
    config: Config,
    weights: &Weights,
    options: Options,
    threads: usize,
) -> Result<Box<dyn Decoder>, ModelError> {
    options.check(&config)?;
    refuse_graph(options.graph)?;
    Ok(typed!(options.dtype, |T| Box::new(CpuPasses::<T>::new(config, options, threads, weights)?)))
}

fn refuse_graph(graph: GraphMode) -> Done {
    match graph {
        GraphMode::On => Err(ModelError::Refused("there are no graphs on a CPU: leave `--graph on` out".to_owned())),
        GraphMode::Auto | GraphMode::Off => Ok(()),
    }
}
