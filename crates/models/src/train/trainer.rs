//! The trainer of every device.

use super::Ledger;
use super::ops::{TrainDevice, TrainState, TrainStateOf, run_backward, run_forward};
use crate::decoder::{layers::Ops, weights::Parameters};
use crate::{Config, Done, ModelError, TensorSpec, Tokens, TrainMemory, TrainOptions, Trainer, error::ensure};

pub struct ModelTrainer<O: TrainDevice> {
    /// The first field, so it is dropped first: the device finishes before the parameters are freed.
    ops: O,
    state: TrainStateOf<O>,
    ledger: Ledger,
    /// Whether a forward pass has run, whether its activations are kept, and whether there are gradients.
    has_loss: bool,
    has_activations: bool,
    has_gradients: bool,
    updates: u64,
}

impl<O: TrainDevice> ModelTrainer<O> {
    pub fn new(ops: O, state: TrainStateOf<O>) -> Self {
        let ledger = Ledger::new(ops.config(), ops.options());
        Self { ops, state, ledger, has_loss: false, has_activations: false, has_gradients: false, updates: 0 }
    }

    fn check_gradients(&self) -> Done {
        ensure!(self.has_gradients, "there are no gradients before a backward pass");
        Ok(())
    }

    fn read(
        &self,
        parameters: &Parameters<<O as Ops>::Matrix, <O as Ops>::Vector>,
        tensor: &TensorSpec,
    ) -> Result<Vec<f32>, ModelError> {
        let (part, range) = parameters.find(self.ops.config(), tensor)?;
        self.ops.read(part, range)
    }
}

impl<O: TrainDevice> Trainer for ModelTrainer<O> {
    fn config(&self) -> &Config {
        self.ops.config()
    }

    fn options(&self) -> &TrainOptions {
        self.ops.options()
    }

    fn forward(&mut self, tokens: &Tokens, targets: &[u32]) -> Done {
        self.options().check_batch(self.config(), tokens, targets)?;
        self.ops.start(&tokens.ids, targets)?;
        self.ledger.forward_begins();
        run_forward(&mut self.ops, &self.state.parameters, &mut self.ledger)?;
        self.ledger.forward_ends();
        (self.has_loss, self.has_activations) = (true, true);
        Ok(())
    }

    fn backward(&mut self) -> Done {
        ensure!(self.has_activations, "backward needs a forward pass first");
        let TrainState { parameters, gradients, .. } = &mut self.state;
        run_backward(&mut self.ops, parameters, gradients, &mut self.ledger)?;
        self.ledger.backward_ends();
        (self.has_activations, self.has_gradients) = (false, true);
        Ok(())
    }

    fn update(&mut self) -> Done {
        self.check_gradients()?;
        ensure!(self.state.moments.is_some(), "the trainer has no optimizer");
        self.updates += 1;
        self.ops.update(&mut self.state, self.updates)?;
        self.ledger.update_ends();
        Ok(())
    }

    fn updates(&self) -> u64 {
        self.updates
    }

    fn loss(&mut self) -> Result<f32, ModelError> {
        ensure!(self.has_loss, "there is no loss before a forward pass");
        self.ops.loss()
    }

    fn gradient(&mut self, tensor: &TensorSpec) -> Result<Vec<f32>, ModelError> {
        self.check_gradients()?;
        self.read(&self.state.gradients, tensor)
    }

    fn parameter(&mut self, tensor: &TensorSpec) -> Result<Vec<f32>, ModelError> {
        self.read(&self.state.parameters, tensor)
    }

    fn memory(&self) -> TrainMemory {
        self.ledger.now
    }
}
