//! The trainer on the CPU, on the products and steps of the decoder.

mod adamw;
mod attention;
mod backward;
mod buffers;
mod engine;
mod forward;
mod memory;
mod positions;
mod steps;
#[cfg(test)]
mod tests;

use half::bf16;

use self::engine::Engine;
pub use self::memory::needed_train_bytes;
use crate::{Config, Dtype, ModelError, TrainOptions, Trainer, Weights};

/// Loads a decoder into memory, with all that training needs. Passes run on this many threads, including the caller's.
pub fn trainer(
    config: Config,
    weights: &Weights,
    options: TrainOptions,
    threads: usize,
) -> Result<Box<dyn Trainer>, ModelError> {
    options.check(&config)?;
    Ok(match options.dtype {
        Dtype::F32 => Box::new(Engine::<f32>::new(config, weights, options, threads)?),
        Dtype::Bf16 | Dtype::F16 => Box::new(Engine::<bf16>::new(config, weights, options, threads)?),
    })
}
