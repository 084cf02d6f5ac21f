//! Training on a GPU.
#![allow(unsafe_code)]

mod backward;
mod forward;

use std::sync::Arc;

use half::bf16;
use laptime_cuda::nn::{AdamW, Attention, AttentionGradients, Gradients, HeadSizes, Operations, Parameter, Rates};
use laptime_cuda::{Blas, Buffer, Cache, CudaError, Device, nvrtc::compile_ahead};

use super::pass::{DeviceRope, head_sizes};
use super::weights::{GpuWeights, Number, zeros};
use super::{memory::widest_sum, size};
use crate::train::buffers::{Kept, Scratch};
use crate::train::{ModelTrainer, ops::TrainState};
use crate::{Config, Dtype, ModelError, TrainOptions, TrainSizes, Trainer, Weights};

/// Loads a model on a device for training.
pub fn trainer<'a>(
    device: &'a Device,
    config: &Config,
    weights: &Weights,
    options: TrainOptions,
) -> Result<Box<dyn Trainer + 'a>, ModelError> {
    options.check(config)?;
    match options.dtype {
        Dtype::F32 => typed::<f32>(device, config, weights, options),
        Dtype::Bf16 | Dtype::F16 | Dtype::Fp8 => typed::<bf16>(device, config, weights, options),
    }
}

struct GpuTraining<'a, T> {
    device: &'a Device,
    config: Arc<Config>,
    options: TrainOptions,
    operations: Operations<T>,
    gradients: Gradients<T>,
    blas: Blas,
    attention: Attention<T>,
    attention_gradients: AttentionGradients<T>,
    /// None if parameters are never updated.
    adamw: Option<(AdamW<T>, Rates)>,
    rope: DeviceRope,
    sizes: HeadSizes,
    rows: usize,
    ids: Buffer<u32>,
    targets: Buffer<u32>,
    /// Zero: every sequence starts at the first position.
    start: Buffer<u32>,
    loss: Buffer<f32>,
    kept: Kept<Buffer<T>, Buffer<f32>>,
    scratch: Scratch<Buffer<T>>,
    heads: Heads<T>,
    d_heads: Heads<T>,
    /// The output of attention by head, then its gradient.
    by_head: Buffer<T>,
    /// A value per row for the backward pass of fused attention.
    dots: Buffer<f32>,
    /// Partial sums in f32, and counts, for the operation that needs most.
    sums: Buffer<f32>,
    counts: Buffer<u32>,
}

/// Queries, keys and values.
type Heads<T> = [Buffer<T>; 3];

impl From<crate::AdamW> for Rates {
    fn from(crate::AdamW { lr, betas, eps, weight_decay }: crate::AdamW) -> Self {
        Self {
            learning_rate: lr as f32,
            betas: [betas.0 as f32, betas.1 as f32],
            epsilon: eps as f32,
            weight_decay: weight_decay as f32,
        }
    }
}

fn typed<'a, T: Number>(
    device: &'a Device,
    config: &Config,
    weights: &Weights,
    options: TrainOptions,
) -> Result<Box<dyn Trainer + 'a>, ModelError> {
    let (cache, head_dim) = (Cache::of_user(), size(config.head_dim)?);
    let backward = Gradients::<T>::requests().chain(AttentionGradients::<T>::requests(device, head_dim));
    compile_ahead(device, &cache, backward);
    let GpuWeights { parameters, operations, .. } = GpuWeights::<T>::load(device, config, weights)?;
    let gradients = zeros(device, config)?;
    let moments =
        options.adamw.map(|_| Ok::<_, CudaError>([zeros(device, config)?, zeros(device, config)?])).transpose()?;
    let mut state = TrainState { parameters, gradients, moments };
    let adamw = match options.adamw {
        Some(rates) => Some((AdamW::new(device, &cache, &all_parameters(&mut state))?, rates.into())),
        None => None,
    };
    let gradients = Gradients::load(device, &cache)?;
    let sizes = TrainSizes::new(config, &options);
    let keys = sizes.rows.saturating_mul(config.kv_heads.saturating_mul(config.head_dim));
    let heads =
        || Ok::<_, CudaError>([device.allocate(sizes.attended)?, device.allocate(keys)?, device.allocate(keys)?]);
    let widest = size(widest_sum(config))?;
    let mut start = device.allocate(1)?;
    start.set_all(device.stream(), 0)?;
    let ops = GpuTraining {
        blas: Blas::new(device)?,
        attention: Attention::load(device, &cache, head_dim, None)?,
        attention_gradients: AttentionGradients::load(device, &cache, head_dim)?,
        adamw,
        rope: DeviceRope::new(device, config, options.tokens)?,
        sizes: head_sizes(config, options.batch, options.tokens, options.tokens)?,
        rows: sizes.rows,
        ids: device.allocate(sizes.rows)?,
        targets: device.allocate(sizes.rows)?,
        start,
        loss: device.allocate(1)?,
        kept: Kept::new(&sizes, config.layers, |numbers| device.allocate(numbers), |floats| device.allocate(floats))?,
        scratch: sizes.scratch().try_map(|numbers| device.allocate(numbers))?,
        heads: heads()?,
        d_heads: heads()?,
        by_head: device.allocate(sizes.attended)?,
        dots: device.allocate(sizes.row_sums)?,
        sums: device.allocate(gradients.scratch_length(widest))?,
        counts: device.allocate(gradients.embed_scratch_length(size(config.vocab)?))?,
        device,
        config: Arc::new(config.clone()),
        options,
        operations,
        gradients,
    };
    Ok(Box::new(ModelTrainer::new(ops, state)))
}

impl<T> Drop for GpuTraining<'_, T> {
    fn drop(&mut self) {
        // Enqueued work uses memory that is freed now. A stream that failed runs nothing more.
        let _ = self.device.stream().synchronise();
    }
}

fn all_parameters<T: Number>(state: &mut TrainState<Buffer<T>, Buffer<T>>) -> Vec<Parameter<'_, T>> {
    let TrainState { parameters, gradients, moments: Some([first, second]) } = state else { return Vec::new() };
    let moments = first.parts_mut().zip(second.parts_mut());
    let all = parameters.parts_mut().zip(gradients.parts()).zip(moments);
    all.map(|((value, gradient), (first, second))| Parameter {
        value: value.into_inner().all_mut(),
        gradient: gradient.into_inner().all(),
        first: first.into_inner().all_mut(),
        second: second.into_inner().all_mut(),
    })
    .collect()
}
