//! The decoder as a user of candle would write it, and the gradients of a training step by candle's autograd.
//!
//! [`CandleDecoder`] is a second engine on the CPU, to hold ours against. [`gradients`] is what the backward passes of our
//! own are held against, and [`adamw_step`] what their optimiser is.

mod adamw;
mod cache;
mod gradients;
mod memory;
mod model;
mod operations;
mod parameters;
mod pass;

use candle_core::{D, Device, Tensor, utils};
use laptime_trace::run::Depth;

pub use self::{
    adamw::{AdamW, Moments, adamw_step},
    gradients::{Gradients, gradients, gradients_in_f64},
    memory::needed_bytes,
};
use self::{
    cache::Cache,
    memory::check_countable,
    model::Model,
    operations::Operations,
    parameters::{Parameters, type_of},
    pass::{Pass, Positions},
};
use crate::{
    Attention, Config, Decoder, GraphMode, KeysValues, ModelError, Options, Replay, Tokens, Weights, cpu,
    rope::RopeTable,
};

/// How many threads candle computes on in this process: `RAYON_NUM_THREADS`, or one for each core.
pub fn threads() -> usize {
    utils::get_num_threads()
}

/// A decoder on the CPU, of candle's own operations.
pub struct CandleDecoder {
    config: Config,
    options: Options,
    model: Model,
    table: RopeTable,
    cache: Cache,
    logits: Option<Tensor>,
    chosen: Option<Vec<u32>>,
}

impl CandleDecoder {
    /// Puts a model's weights into candle's tensors. The threads are those that candle takes, see [`threads`]; another
    /// number is refused.
    pub fn new(config: Config, weights: &Weights, options: Options, threads: usize) -> Result<Self, ModelError> {
        config.check()?;
        check_options(&options)?;
        check_threads(threads)?;
        let dtype = type_of(options.dtype);
        let model = Model::new(&config, &Parameters::load(&config, weights, dtype)?)?;
        let (table, cache) = (RopeTable::new(&config), Cache::new(&config, &options)?);
        Ok(Self { config, options, model, table, cache, logits: None, chosen: None })
    }

    /// Runs tokens of all sequences and keeps their logits.
    fn pass(&mut self, ids: &[u32], kind: cpu::Pass) -> Result<(), ModelError> {
        let (batch, is_cached) = (self.options.batch, kind == cpu::Pass::Cached);
        let start = if is_cached { self.cache.length() } else { 0 };
        let tokens = ids.len() / batch;
        let end = start.saturating_add(tokens);
        self.check_room(end, kind)?;
        self.logits = None;
        let positions = Positions::new(&mut self.table, type_of(self.options.dtype), start, tokens)?;
        let pass = Pass {
            config: &self.config,
            marks: &self.options.marks,
            model: &self.model,
            operations: Operations::Fast,
            batch,
            tokens,
            is_last_only: is_cached,
        };
        let cache = is_cached.then_some(&mut self.cache);
        // Stages stay on the caller's track: where some are marked, only operations go to candle's threads.
        let logits = match self.options.marks.depth {
            Depth::Pipeline => Device::Cpu.with_context(|| pass.run(ids, &positions, cache))?,
            _ => pass.run(ids, &positions, cache)?,
        };
        self.logits = Some(logits);
        if is_cached { self.cache.set_length(end) } else { Ok(()) }
    }

    /// Refuses a pass for which there is no room, before anything is computed.
    fn check_room(&self, tokens: usize, kind: cpu::Pass) -> Result<(), ModelError> {
        let room = self.config.context;
        if tokens > room {
            return Err(ModelError::TooLong { tokens, what: self.config.name.clone(), room });
        }
        if kind == cpu::Pass::Cached {
            self.cache.check_room(tokens)?;
        }
        check_countable(&self.config, &self.options, kind, tokens)
    }

    /// Runs tokens behind the cache and chooses the most likely ones.
    fn run_behind(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.pass(ids, cpu::Pass::Cached)?;
        let chosen = self.logits.as_ref().map(|logits| logits.argmax(D::Minus1)?.to_vec1()).transpose()?;
        self.chosen = chosen;
        Ok(())
    }

    /// Refuses tokens that are not of as many sequences as the decoder has.
    fn check(&self, tokens: &Tokens) -> Result<(), ModelError> {
        tokens.check(&self.config)?;
        match tokens.batch == self.options.batch {
            true => Ok(()),
            false => refuse(format!("{} sequences are not the {} of the decoder", tokens.batch, self.options.batch)),
        }
    }
}

impl Decoder for CandleDecoder {
    fn config(&self) -> &Config {
        &self.config
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn forward(&mut self, tokens: &Tokens) -> Result<(), ModelError> {
        self.check(tokens)?;
        self.pass(&tokens.ids, cpu::Pass::Forward)
    }

    fn prefill(&mut self, tokens: &Tokens) -> Result<(), ModelError> {
        self.check(tokens)?;
        self.run_behind(&tokens.ids)
    }

    fn step(&mut self) -> Result<(), ModelError> {
        let ids = self.chosen()?;
        self.run_behind(&ids)
    }

    fn choose(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.check(&Tokens { ids: ids.to_vec(), batch: self.options.batch })?;
        if ids.len() != self.options.batch {
            return refuse(format!("{} tokens are not one for each of {} sequences", ids.len(), self.options.batch));
        }
        self.chosen = Some(ids.to_vec());
        Ok(())
    }

    fn chosen(&mut self) -> Result<Vec<u32>, ModelError> {
        self.chosen.clone().ok_or_else(ModelError::no_token)
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        let logits = self.logits.as_ref().ok_or_else(ModelError::no_pass)?;
        Ok(logits.to_dtype(candle_core::DType::F32)?.flatten_all()?.to_vec1()?)
    }

    fn length(&self) -> usize {
        self.cache.length()
    }

    fn truncate(&mut self, length: usize) -> Result<(), ModelError> {
        self.cache.truncate(length)
    }

    fn read_cache(&mut self, layer: usize) -> Result<KeysValues, ModelError> {
        self.cache.read(layer)
    }

    fn write_cache(&mut self, layer: usize, start: usize, values: &KeysValues) -> Result<(), ModelError> {
        self.cache.write(layer, start, values)
    }

    fn set_length(&mut self, length: usize) -> Result<(), ModelError> {
        self.cache.set_length(length)
    }

    fn replay(&self) -> Replay {
        Replay::Launches
    }
}

fn check_options(options: &Options) -> Result<(), ModelError> {
    if options.batch == 0 {
        return refuse("a batch has at least one sequence".to_owned());
    }
    if options.graph == GraphMode::On {
        return refuse("there are no graphs on a CPU: leave `--graph on` out".to_owned());
    }
    if options.kept.is_some() {
        return refuse("the decoder on candle has no sparse attention".to_owned());
    }
    match options.attention {
        Attention::Naive => Ok(()),
        Attention::Dense => refuse("the decoder on candle has no fused attention: take `naive`".to_owned()),
    }
}

/// Refuses threads that candle would not take: it has one number for the process, in two environment variables.
fn check_threads(wanted: usize) -> Result<(), ModelError> {
    let (products, others) = (threads(), utils::barrier_pool().n_workers() + 1);
    if products != others {
        return refuse(format!(
            "candle multiplies on {products} threads and does all else on {others}: leave `CANDLE_NUM_THREADS` out"
        ));
    }
    match wanted == products {
        true => Ok(()),
        false => refuse(format!(
            "candle computes on {products} threads in this process and not on {wanted}: set `RAYON_NUM_THREADS={wanted}`"
        )),
    }
}

fn refuse<T>(reason: String) -> Result<T, ModelError> {
    Err(ModelError::Refused(reason))
}
