//! Training on the CPU.

mod adamw;
mod attention;
mod backward;
mod forward;
mod steps;
#[cfg(test)]
mod tests;

use half::bf16;
use laptime_probe::stage;

use self::forward::Setup;
use self::steps::{Places, Sums, sums_bytes};
use super::memory::{SMALL_BYTES, blocks_bytes, thread_bytes};
use super::{attention::Span, cache::zeros, crew::Crew, model::Loader, number::Number};
use crate::tensors::{product, sum};
use crate::train::buffers::{Kept, Scratch};
use crate::train::{ModelTrainer, ops::TrainState};
use crate::{Attention, Config, Dtype, ModelError, TrainOptions, TrainSizes, Trainer, Weights, rope::RopeTable};

/// Loads a model into memory for training. Passes run on this many threads, including the caller's.
pub fn trainer(
    config: Config,
    weights: &Weights,
    options: TrainOptions,
    threads: usize,
) -> Result<Box<dyn Trainer>, ModelError> {
    options.check(&config)?;
    match options.dtype {
        Dtype::F32 => typed::<f32>(config, weights, options, threads),
        Dtype::Bf16 | Dtype::F16 | Dtype::Fp8 => typed::<bf16>(config, weights, options, threads),
    }
}

struct CpuTraining<T> {
    setup: Setup,
    ids: Vec<u32>,
    targets: Vec<u32>,
    kept: Kept<Vec<T>, Vec<f32>>,
    scratch: Scratch<Vec<T>>,
    heads: Vec<T>,
    d_norms: Vec<f32>,
    sums: Sums,
    places: Places,
}

fn typed<T: Number>(
    config: Config,
    weights: &Weights,
    options: TrainOptions,
    threads: usize,
) -> Result<Box<dyn Trainer>, ModelError> {
    let crew = Crew::new(threads)?;
    let load = |weights| Loader::<T>::new(weights, &crew).model(&config);
    let (parameters, gradients) = (load(Some(weights))?, load(None)?);
    let moments = options.adamw.map(|_| Ok::<_, ModelError>([load(None)?, load(None)?])).transpose()?;
    let state = TrainState { parameters, gradients, moments };
    let mut table = RopeTable::new(&config);
    table.reach(options.tokens);
    let sizes = TrainSizes::new(&config, &options);
    let _stage = stage!("allocate");
    let ops = CpuTraining {
        ids: Vec::new(),
        targets: Vec::new(),
        kept: Kept::new(&sizes, config.layers, zeros::<T>, zeros)?,
        scratch: sizes.scratch().try_map(zeros)?,
        heads: zeros(sizes.qkv)?,
        d_norms: zeros(if config.qk_norm { 2 * config.head_dim } else { 0 })?,
        sums: Sums::default(),
        places: Places::default(),
        setup: Setup { span: Span::new(&config, options.batch, options.tokens, 0), table, config, options, crew },
    };
    Ok(Box::new(ModelTrainer::new(ops, state)))
}

/// The most heap bytes of a trainer.
pub fn needed_train_bytes(config: &Config, options: &TrainOptions, threads: usize) -> u64 {
    let widest =
        [config.hidden, config.ffn.saturating_mul(2), config.heads.saturating_mul(3).saturating_mul(config.head_dim)];
    let sums = widest.into_iter().map(sums_bytes).max().unwrap_or(0);
    let rows = options.batch.saturating_mul(options.tokens);
    let heads = match options.attention {
        // The gradients of the keys of a head are summed in f32.
        Attention::Naive => product(&[options.tokens, config.head_dim, 4]),
        Attention::Dense => attention::tile_bytes(options.tokens, config.head_dim),
    };
    let thread =
        thread_bytes(config, options.dtype, rows, threads).max(blocks_bytes(options.dtype)).saturating_add(heads);
    sum([SMALL_BYTES, config.train_need(options).total(), sums, thread.saturating_mul(threads.max(1) as u64)])
}
