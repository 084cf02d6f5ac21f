//! A trainer for tests that counts its calls; its loss falls by one with each update.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use laptime_models::{Config, ModelError, TensorSpec, Tokens, TrainMemory, TrainOptions, Trainer};

use super::scripted::{Calls, Fault};

pub struct ScriptedTrainer {
    pub config: Config,
    pub options: TrainOptions,
    pub fault: Fault,
    pub calls: Arc<Calls>,
}

impl Trainer for ScriptedTrainer {
    fn config(&self) -> &Config {
        &self.config
    }

    fn options(&self) -> &TrainOptions {
        &self.options
    }

    fn forward(&mut self, tokens: &Tokens, targets: &[u32]) -> Result<(), ModelError> {
        self.options.check_batch(&self.config, tokens, targets)?;
        self.calls.forward.fetch_add(1, Relaxed);
        Ok(())
    }

    fn backward(&mut self) -> Result<(), ModelError> {
        self.calls.backward.fetch_add(1, Relaxed);
        Ok(())
    }

    fn update(&mut self) -> Result<(), ModelError> {
        self.calls.update.fetch_add(1, Relaxed);
        Ok(())
    }

    fn updates(&self) -> u64 {
        self.calls.update.load(Relaxed)
    }

    fn loss(&mut self) -> Result<f32, ModelError> {
        Ok(if self.fault == Fault::Nan { f32::NAN } else { 100.0 - self.updates() as f32 })
    }

    fn gradient(&mut self, tensor: &TensorSpec) -> Result<Vec<f32>, ModelError> {
        let number = match self.fault {
            Fault::Gradient if tensor.name.ends_with("mlp.up_proj.weight") => f32::INFINITY,
            Fault::NoGradient => 0.0,
            _ => 0.5,
        };
        Ok(vec![number; 2])
    }

    fn parameter(&mut self, _: &TensorSpec) -> Result<Vec<f32>, ModelError> {
        Ok(vec![if self.fault == Fault::Update { f32::NAN } else { 1.0 }])
    }

    fn memory(&self) -> TrainMemory {
        TrainMemory::default()
    }
}
