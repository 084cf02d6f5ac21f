//! What candle has in two kinds: fast, and such that gradients pass through.

use candle_core::{D, Result, Tensor};
use candle_nn::{ops, rotary_emb};

use super::pass::Positions;
use crate::RopeLayout;

/// Which of candle's twins are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operations {
    /// One loop each. They drop gradients and say nothing.
    Fast,
    /// Made of small operations that gradients pass through.
    Differentiable,
}

impl Operations {
    /// Norms the rows of something contiguous.
    pub fn norm(self, x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
        match self {
            Self::Fast => ops::rms_norm(x, weight, eps as f32),
            Self::Differentiable => ops::rms_norm_slow(x, weight, eps as f32),
        }
    }

    /// Makes every row add up to one.
    pub fn softmax(self, x: &Tensor) -> Result<Tensor> {
        match self {
            Self::Fast => ops::softmax_last_dim(x),
            Self::Differentiable => ops::softmax(x, D::Minus1),
        }
    }

    /// Turns heads, `[batch, heads, tokens, head_dim]` and contiguous, as far as their positions say.
    pub fn rotate(self, x: &Tensor, positions: &Positions, layout: RopeLayout) -> Result<Tensor> {
        let (cosines, sines) = (&positions.cosines, &positions.sines);
        match (self, layout) {
            (Self::Fast, RopeLayout::Halves) => rotary_emb::rope(x, cosines, sines),
            (Self::Fast, RopeLayout::Pairs) => rotary_emb::rope_i(x, cosines, sines),
            (Self::Differentiable, RopeLayout::Halves) => rotary_emb::rope_slow(x, cosines, sines),
            (Self::Differentiable, RopeLayout::Pairs) => rotary_emb::rope_i_slow(x, cosines, sines),
        }
    }
}
