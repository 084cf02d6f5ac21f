//! What forward keeps for backward, and what both compute in.

use super::{
    super::{cache::zeros, number::Number},
    steps::{Places, Sums},
};
use crate::{ModelError, TrainSizes, train::Ledger};

/// All that passes write beside gradients.
pub struct Buffers<T> {
    pub kept: Kept<T>,
    pub scratch: Scratch<T>,
    pub ledger: Ledger,
}

/// What forward keeps of a layer.
pub struct LayerKept<T> {
    /// What the layer was given.
    pub input: Vec<T>,
    /// Queries, keys and values as they were projected, with their bias.
    pub qkv: Vec<T>,
    /// The logarithm of the sum of powers of each row of fused attention.
    pub row_sums: Vec<f32>,
    /// What attention gave.
    pub attended: Vec<T>,
    /// What the feed-forward part was given.
    pub middle: Vec<T>,
    /// Gate and up as they were projected, with their bias; then their gradients.
    pub gate_up: Vec<T>,
}

/// What forward keeps.
pub struct Kept<T> {
    pub layers: Vec<LayerKept<T>>,
    /// What the last layer gave.
    pub last: Vec<T>,
    /// The gradients of logits.
    pub logits: Vec<T>,
    /// The loss of each row.
    pub losses: Vec<f32>,
}

impl<T: Number> Kept<T> {
    pub fn new(sizes: &TrainSizes, layers: usize) -> Result<Self, ModelError> {
        let layer = |_| {
            Ok(LayerKept {
                input: zeros(sizes.stream)?,
                qkv: zeros(sizes.qkv)?,
                row_sums: zeros(sizes.row_sums)?,
                attended: zeros(sizes.attended)?,
                middle: zeros(sizes.stream)?,
                gate_up: zeros(sizes.gate_up)?,
            })
        };
        Ok(Self {
            layers: (0..layers).map(layer).collect::<Result<_, ModelError>>()?,
            last: zeros(sizes.stream)?,
            logits: zeros(sizes.logits)?,
            losses: zeros(sizes.rows)?,
        })
    }
}

/// What operations compute in, whatever the layer.
pub struct Scratch<T> {
    /// What a norm gives.
    pub normed: Vec<T>,
    /// Queries, keys and values after norm and rotation.
    pub heads: Vec<T>,
    /// What goes through the gates, or its gradient.
    pub activated: Vec<T>,
    /// The gradient of the stream.
    pub d_stream: Vec<T>,
    pub d_normed: Vec<T>,
    /// The gradients of heads, then of what was projected.
    pub d_heads: Vec<T>,
    pub d_attended: Vec<T>,
    /// The weights of naive attention.
    pub weights: Vec<T>,
    pub d_scores: Vec<T>,
    /// Gradients of the norms of queries and of keys.
    pub d_norms: Vec<f32>,
    pub sums: Sums,
    pub places: Places,
}

impl<T: Number> Scratch<T> {
    pub fn new(sizes: &TrainSizes, norms: usize) -> Result<Self, ModelError> {
        Ok(Self {
            normed: zeros(sizes.stream)?,
            heads: zeros(sizes.qkv)?,
            activated: zeros(sizes.activated)?,
            d_stream: zeros(sizes.stream)?,
            d_normed: zeros(sizes.stream)?,
            d_heads: zeros(sizes.qkv)?,
            d_attended: zeros(sizes.attended)?,
            weights: zeros(sizes.scores)?,
            d_scores: zeros(sizes.scores)?,
            d_norms: zeros(norms)?,
            sums: Sums::default(),
            places: Places::default(),
        })
    }
}
