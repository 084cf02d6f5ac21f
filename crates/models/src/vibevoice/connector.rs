//! The connectors: latents to the width of the language model, written once for every device.

use super::{TokenizerOps, tensors::Connector};
use crate::ModelError;

/// The epsilon of the norms of connectors, as in the published classes.
pub const CONNECTOR_EPS: f32 = 1e-6;

/// The latents that are connected, and where the result goes.
pub enum Latents<'a, B: ConnectorOps> {
    /// The latent that was made last, to the next row of the language model.
    Acoustic,
    /// The semantic encoding of its audio, added to that row.
    Semantic(&'a B::Flow),
    /// Those of a voice, to rows of the prompt.
    Voice(&'a mut B::Voice),
}

/// The operations of connectors on one device. They only enqueue work.
pub trait ConnectorOps: TokenizerOps {
    /// The latents of a voice, and the rows of the prompt that they become.
    type Voice;

    /// Takes the latents of a voice.
    fn voice(&mut self, latents: &[f32]) -> Result<Self::Voice, ModelError>;

    /// Projects latents, and norms the result.
    fn enter_norm(&mut self, latents: &mut Latents<'_, Self>, weights: &Connector<Self>) -> Result<(), ModelError>;

    /// Projects the normed rows to where they go.
    fn connect(&mut self, latents: Latents<'_, Self>, weights: &Connector<Self>) -> Result<(), ModelError>;
}

/// Runs a connector.
pub fn run<B: ConnectorOps>(
    ops: &mut B,
    weights: &Connector<B>,
    mut latents: Latents<'_, B>,
) -> Result<(), ModelError> {
    ops.enter_norm(&mut latents, weights)?;
    ops.connect(latents, weights)
}
