//! What brings latents to the width of the language model.

use super::super::{cache::zeros, crew::Crew, linear::Linear, model::Source, number::Number, steps::Norm};
use crate::{ModelError, vibevoice::ConnectorTensors};

/// What is added under the root of the norms of connectors, as in the published classes.
const CONNECTOR_EPS: f32 = 1e-6;

/// What brings latents to the width of the language model.
pub struct Connector<T> {
    enter: Linear<T>,
    norm: Vec<f32>,
    leave: Linear<T>,
}

impl<T: Number> Connector<T> {
    /// Puts the weights into memory.
    pub fn load(tensors: &ConnectorTensors, source: Source<'_>) -> Result<Self, ModelError> {
        Ok(Self {
            enter: Linear::load(&tensors.enter, source)?,
            norm: source.rounded::<T>(&[&tensors.norm])?,
            leave: Linear::load(&tensors.leave, source)?,
        })
    }

    /// The rows of latents.
    pub fn run(&self, crew: &Crew, latents: &[T]) -> Result<Vec<T>, ModelError> {
        let hidden = self.norm.len();
        let rows = latents.len() / (self.enter.weight.len() / hidden);
        let (mut inner, mut normed) = (zeros(rows * hidden)?, zeros(rows * hidden)?);
        self.enter.run(crew, rows, latents, &mut inner);
        Norm { weight: &self.norm, eps: CONNECTOR_EPS }.rows(crew, 1, &inner, &mut normed);
        self.leave.run(crew, rows, &normed, &mut inner);
        Ok(inner)
    }
}
