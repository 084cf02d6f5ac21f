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
mod stack;
mod steps;
mod streamed;
pub(crate) mod tiles;
mod train;
mod tts;
mod turned;
pub(crate) mod vectors;
mod vibevoice;

use half::{bf16, f16};

use self::engine::CpuPasses;
pub use self::{
    fuser::{fuser, needed_fuser_bytes},
    memory::{Pass, most_resident_layers, needed_bytes},
    product::settle,
    train::{needed_train_bytes, trainer},
    tts::{needed_tts_bytes, qwen_tts},
    vibevoice::{needed_vibevoice_bytes, vibevoice},
};
use crate::{Config, Decoder, Dtype, GraphMode, ModelError, Options, Weights, decoder::generic::GenericDecoder};

/// Loads a decoder into memory. Passes run on this many threads, including the caller's.
pub fn decoder(
    config: Config,
    weights: &Weights,
    options: Options,
    threads: usize,
) -> Result<Box<dyn Decoder>, ModelError> {
    options.check(&config)?;
    refuse_graph(options.graph)?;
    Ok(match options.dtype {
        Dtype::F32 => Box::new(GenericDecoder::new(CpuPasses::<f32>::new(config, options, threads, weights)?)),
        Dtype::Bf16 => Box::new(GenericDecoder::new(CpuPasses::<bf16>::new(config, options, threads, weights)?)),
        Dtype::F16 => Box::new(GenericDecoder::new(CpuPasses::<f16>::new(config, options, threads, weights)?)),
    })
}

/// Refuses a graph, which a CPU does not have.
fn refuse_graph(graph: GraphMode) -> Result<(), ModelError> {
    match graph {
        GraphMode::On => Err(ModelError::Refused("there are no graphs on a CPU: leave `--graph on` out".to_owned())),
        GraphMode::Auto | GraphMode::Off => Ok(()),
    }
}
