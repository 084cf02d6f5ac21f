//! The decoder on the CPU.
//!
//! Passes reuse their buffers. Linear layers and attention have our own kernels; training and stored scores use `gemm`.

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
use crate::{Config, Decoder, Done, GraphMode, ModelError, Options, Weights, dtype::typed, error::ensure};

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
    ensure!(graph != GraphMode::On, "the CPU has no graphs: remove `--graph on`");
    Ok(())
}
