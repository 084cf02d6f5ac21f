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
use crate::{Config, Dtype, ModelError, TensorSpec, Tokens, TrainMemory, TrainOptions, Trainer, Weights};

/// A trainer on the CPU.
pub struct CpuTrainer {
    /// One for each number type.
    engine: Box<dyn Trainer>,
}

impl CpuTrainer {
    /// Puts a model's weights into memory, with room for all that training needs; passes run on so many threads, of
    /// which the caller is one.
    pub fn new(config: Config, weights: &Weights, options: TrainOptions, threads: usize) -> Result<Self, ModelError> {
        options.check(&config)?;
        let engine: Box<dyn Trainer> = match options.dtype {
            Dtype::F32 => Box::new(Engine::<f32>::new(config, weights, options, threads)?),
            Dtype::Bf16 | Dtype::F16 => Box::new(Engine::<bf16>::new(config, weights, options, threads)?),
        };
        Ok(Self { engine })
    }
}

impl Trainer for CpuTrainer {
    fn config(&self) -> &Config {
        self.engine.config()
    }

    fn options(&self) -> &TrainOptions {
        self.engine.options()
    }

    fn forward(&mut self, tokens: &Tokens, targets: &[u32]) -> Result<(), ModelError> {
        self.engine.forward(tokens, targets)
    }

    fn backward(&mut self) -> Result<(), ModelError> {
        self.engine.backward()
    }

    fn update(&mut self) -> Result<(), ModelError> {
        self.engine.update()
    }

    fn updates(&self) -> u64 {
        self.engine.updates()
    }

    fn loss(&mut self) -> Result<f32, ModelError> {
        self.engine.loss()
    }

    fn gradient(&mut self, tensor: &TensorSpec) -> Result<Vec<f32>, ModelError> {
        self.engine.gradient(tensor)
    }

    fn parameter(&mut self, tensor: &TensorSpec) -> Result<Vec<f32>, ModelError> {
        self.engine.parameter(tensor)
    }

    fn memory(&self) -> TrainMemory {
        self.engine.memory()
    }
}
