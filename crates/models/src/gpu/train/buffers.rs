//! What forward keeps for backward, and what both compute in.

use laptime_cuda::{Buffer, CudaError, Device, nn::Gradients};

use crate::{
    Config, TrainSizes,
    gpu::{room::qkv_width, size, weights::Number},
};

/// What forward keeps.
#[derive(Debug)]
pub struct Kept<T> {
    pub layers: Vec<KeptLayer<T>>,
    /// The input of the last norm.
    pub x: Buffer<T>,
    /// The logits, and then their gradient.
    pub logits: Buffer<T>,
    /// The loss of each position.
    pub losses: Buffer<f32>,
    /// Their mean.
    pub loss: Buffer<f32>,
}

/// What forward keeps of a layer.
#[derive(Debug)]
pub struct KeptLayer<T> {
    /// The input of the norm before attention.
    pub x: Buffer<T>,
    /// Queries, keys and values as they were projected.
    pub qkv: Buffer<T>,
    /// The logarithm of the sum of powers of each row of fused attention; none of naive.
    pub logarithms: Buffer<f32>,
    /// What attention gave.
    pub attended: Buffer<T>,
    /// The input of the norm before the feed-forward part.
    pub middle: Buffer<T>,
    /// Gates and what they let through, and then their gradients.
    pub gate_up: Buffer<T>,
}

impl<T: Number> Kept<T> {
    pub fn new(device: &Device, config: &Config, sizes: &TrainSizes) -> Result<Self, CudaError> {
        let layer = |_| KeptLayer::new(device, sizes);
        Ok(Self {
            layers: (0..config.layers).map(layer).collect::<Result<_, CudaError>>()?,
            x: device.allocate(sizes.stream)?,
            logits: device.allocate(sizes.logits)?,
            losses: device.allocate(sizes.rows)?,
            loss: device.allocate(1)?,
        })
    }
}

impl<T: Number> KeptLayer<T> {
    fn new(device: &Device, sizes: &TrainSizes) -> Result<Self, CudaError> {
        Ok(Self {
            x: device.allocate(sizes.stream)?,
            qkv: device.allocate(sizes.qkv)?,
            logarithms: device.allocate(sizes.row_sums)?,
            attended: device.allocate(sizes.attended)?,
            middle: device.allocate(sizes.stream)?,
            gate_up: device.allocate(sizes.gate_up)?,
        })
    }
}

/// What forward and backward compute in, whatever the layer.
#[derive(Debug)]
pub struct Scratch<T> {
    pub normed: Buffer<T>,
    /// The gradient of the residual stream.
    pub dx: Buffer<T>,
    /// The gradient of what was normed.
    pub d_normed: Buffer<T>,
    /// Queries by head, after bias, norm and RoPE; keys and values in the same way.
    pub queries: Buffer<T>,
    pub keys: Buffer<T>,
    pub values: Buffer<T>,
    /// Their gradients.
    pub d_queries: Buffer<T>,
    pub d_keys: Buffer<T>,
    pub d_values: Buffer<T>,
    /// The gradient of the packed product.
    pub d_qkv: Buffer<T>,
    /// The weights of naive attention; none of fused.
    pub probabilities: Buffer<T>,
    /// Their gradient, and then that of the scores.
    pub d_scores: Buffer<T>,
    /// A number a row that the backward of fused attention needs.
    pub dots: Buffer<f32>,
    /// What attention gives by head, and its gradient.
    pub by_head: Buffer<T>,
    /// The gradient of what attention gave.
    pub d_attended: Buffer<T>,
    pub activated: Buffer<T>,
    pub d_activated: Buffer<T>,
    /// Partial sums in f32, and counts: as many as the operation that needs most.
    pub sums: Buffer<f32>,
    pub counts: Buffer<u32>,
}

impl<T: Number> Scratch<T> {
    pub fn new(
        device: &Device,
        config: &Config,
        sizes: &TrainSizes,
        operations: &Gradients<T>,
    ) -> Result<Self, CudaError> {
        let numbers = |count: usize| device.allocate::<T>(count);
        let keys = sizes.rows.saturating_mul(config.kv_heads.saturating_mul(config.head_dim));
        let widest = [config.hidden, 2 * config.ffn, qkv_width(config), 2 * config.head_dim];
        let widest = size(widest.into_iter().max().unwrap_or(0))?;
        Ok(Self {
            normed: numbers(sizes.stream)?,
            dx: numbers(sizes.stream)?,
            d_normed: numbers(sizes.stream)?,
            queries: numbers(sizes.attended)?,
            keys: numbers(keys)?,
            values: numbers(keys)?,
            d_queries: numbers(sizes.attended)?,
            d_keys: numbers(keys)?,
            d_values: numbers(keys)?,
            d_qkv: numbers(sizes.qkv)?,
            probabilities: numbers(sizes.scores)?,
            d_scores: numbers(sizes.scores)?,
            dots: device.allocate(sizes.row_sums)?,
            by_head: numbers(sizes.attended)?,
            d_attended: numbers(sizes.attended)?,
            activated: numbers(sizes.activated)?,
            d_activated: numbers(sizes.activated)?,
            sums: device.allocate(operations.scratch_length(widest))?,
            counts: device.allocate(operations.embed_scratch_length(size(config.vocab)?))?,
        })
    }
}
