//! A model that is ready to be trained: what of a step is timed, and its check.

use anyhow::ensure;
use laptime_bench::{AxisValue, Device, Fact, Iteration, Nanos, Work};
use laptime_models::{Config, ModelError, TensorSpec, Tokens, Trainer, random_batch};
use laptime_probe::{Lane, stage};

use super::spec::{Spec, Training, facts, training_facts, work};
use crate::backend::{Loaded, into_error};

/// A model that is ready to be trained. Every iteration runs the same batch.
pub struct TrainIteration<'a> {
    spec: Spec,
    part: Training,
    made: Loaded<dyn Trainer + 'a>,
    lane: Option<&'a Lane>,
    tokens: Tokens,
    targets: Vec<u32>,
    steps: u64,
    /// The loss of the check, if its step was the first.
    check_loss: Option<f64>,
}

impl<'a> TrainIteration<'a> {
    pub fn new(
        spec: Spec,
        part: Training,
        made: Loaded<dyn Trainer + 'a>,
        device: &'a dyn Device,
    ) -> anyhow::Result<Self> {
        let batch = random_batch(made.model.config(), spec.batch, spec.test.tokens, spec.seed);
        let (tokens, targets) = batch.map_err(into_error)?;
        Ok(Self { spec, part, made, lane: device.lane(), tokens, targets, steps: 0, check_loss: None })
    }

    fn forward(&mut self) -> Result<(), ModelError> {
        let _stage = stage!("forward", on = self.lane, tokens = self.spec.test.tokens);
        self.made.model.forward(&self.tokens, &self.targets)
    }

    fn backward(&mut self) -> Result<(), ModelError> {
        let _stage = stage!("backward", on = self.lane, tokens = self.spec.test.tokens);
        self.made.model.backward()
    }

    fn update(&mut self) -> Result<(), ModelError> {
        let _stage = stage!("optimizer", on = self.lane);
        self.made.model.update()
    }

    /// Gradients must be finite numbers, and not all of them 0.
    fn check_gradients(&mut self) -> anyhow::Result<()> {
        let mut has_some = false;
        for tensor in checked_tensors(self.made.model.config()) {
            let gradient = self.made.model.gradient(&tensor).map_err(into_error)?;
            check_finite("the gradient of tensor", &tensor, &gradient)?;
            has_some |= gradient.iter().any(|number| *number != 0.0);
        }
        ensure!(has_some, "every gradient is 0");
        Ok(())
    }

    /// An update must leave finite numbers.
    fn check_parameters(&mut self) -> anyhow::Result<()> {
        for tensor in checked_tensors(self.made.model.config()) {
            let numbers = self.made.model.parameter(&tensor).map_err(into_error)?;
            check_finite("after an update tensor", &tensor, &numbers)?;
        }
        Ok(())
    }
}

/// The checked tensors: both ends of the model and its first and last layer. All gradients pass through them.
fn checked_tensors(config: &Config) -> Vec<TensorSpec> {
    let mut tensors = vec![config.embedding_tensor(), config.final_norm_tensor()];
    tensors.extend(config.head_tensor());
    let last = config.layers.saturating_sub(1);
    tensors.extend(config.layer_tensors(0));
    if last > 0 {
        tensors.extend(config.layer_tensors(last));
    }
    tensors
}

fn check_finite(what: &str, tensor: &TensorSpec, numbers: &[f32]) -> anyhow::Result<()> {
    match numbers.iter().find(|number| !number.is_finite()) {
        Some(number) => anyhow::bail!("{what} `{}` holds {number}", tensor.name),
        None => Ok(()),
    }
}

impl Iteration for TrainIteration<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.ready()?;
        self.run()?;
        let loss = self.made.model.loss().map_err(into_error)?;
        ensure!(loss.is_finite(), "the loss is {loss}: the weights may contain NaN or infinity");
        self.check_loss = (self.steps == 1).then_some(f64::from(loss));
        self.check_gradients()?;
        if self.part == Training::Step { self.check_parameters() } else { Ok(()) }
    }

    fn ready(&mut self) -> anyhow::Result<()> {
        match self.part {
            Training::Backward => self.forward().map_err(into_error),
            Training::ForwardBackward | Training::Step => Ok(()),
        }
    }

    fn run(&mut self) -> anyhow::Result<()> {
        if self.part != Training::Backward {
            self.forward().map_err(into_error)?;
        }
        self.backward().map_err(into_error)?;
        if self.part == Training::Step {
            self.update().map_err(into_error)?;
        }
        self.steps += 1;
        Ok(())
    }

    fn readings(&mut self, wall: Nanos) -> Vec<Option<f64>> {
        let tokens = self.spec.batch as f64 * self.spec.test.tokens as f64;
        let rate = (wall.0 > 0).then(|| tokens * 1e9 / wall.0 as f64);
        let loss = self.made.model.loss().ok().map(f64::from);
        vec![rate, None, None, loss]
    }

    fn work(&self) -> Option<Work> {
        Some(work(self.made.model.config(), &self.spec))
    }

    fn facts(&self) -> Vec<Fact> {
        let mut facts = facts(self.made.model.config(), &self.spec);
        facts.extend(training_facts(self.made.model.config(), self.made.model.options()));
        facts.push(Fact::new("weights", self.made.weights));
        // A curve of losses begins with the first update, which is that of the check.
        let check_loss = self.check_loss.filter(|_| self.part == Training::Step);
        facts.extend(check_loss.map(|loss| Fact::new("check_loss", AxisValue::Float(loss))));
        facts
    }
}
