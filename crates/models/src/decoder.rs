//! The interface of a decoder on any device.

pub(crate) mod cache;
pub(crate) mod count;
pub(crate) mod generic;
pub(crate) mod layers;
pub(crate) mod weights;

use std::{ops::Range, sync::Arc};

use laptime_probe::Lane;
use laptime_trace::run::Depth;

use crate::{
    Attention, Config, Done, Dtype, LayerVisit, ModelError, Offload, Offloading, StageNames, attention::Kept,
    error::ensure,
};

/// Options of a decoder.
#[derive(Debug, Clone)]
pub struct Options {
    /// The dtype of weights, activations and cache.
    pub dtype: Dtype,
    /// The attention algorithm.
    pub attention: Attention,
    /// The pairs that sparse attention keeps. It is fused and starts at the first token.
    pub kept: Option<Kept>,
    /// Sequences that run together.
    pub batch: usize,
    /// The capacity of the cache.
    pub capacity: CacheCapacity,
    /// Whether passes are replayed as graphs.
    pub graph: GraphMode,
    /// Which stages are marked, and on which lane.
    pub marks: Marks,
    /// Offloaded layers, if any.
    pub offload: Option<Offload>,
}

impl Options {
    /// One sequence with dense attention, without graphs, marks or offloading.
    pub fn new(dtype: Dtype, capacity: CacheCapacity) -> Self {
        Self {
            dtype,
            attention: Attention::Dense,
            kept: None,
            batch: 1,
            capacity,
            graph: GraphMode::Off,
            marks: Marks::default(),
            offload: None,
        }
    }

    /// Refuses invalid configurations, and options that no device supports.
    pub(crate) fn check(&self, config: &Config) -> Done {
        config.check()?;
        ensure!(self.batch > 0, "the batch is empty");
        ensure!(
            config.window.is_none() || self.kept.is_none(),
            "sparse attention does not support the sliding window of `{}`: use `--attention dense`",
            config.name
        );
        Ok(())
    }
}

/// The capacity of a KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheCapacity {
    /// Grows as needed, up to the context of the model.
    Growing,
    /// Allocated once, for this many positions.
    Static(usize),
}

/// Whether passes are replayed as graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GraphMode {
    /// If possible.
    #[default]
    Auto,
    /// Always; it is an error if that is impossible.
    On,
    /// Never.
    Off,
}

/// How passes run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replay {
    /// As replays of a graph.
    Graph {
        /// The number of kernels and copies.
        nodes: usize,
    },
    /// Kernel by kernel, as requested.
    Launches,
    /// Kernel by kernel, because a graph was not possible for this reason.
    FellBack(String),
}

/// Which stages are marked, and on which lane.
#[derive(Debug, Clone, Default)]
pub struct Marks {
    /// Passes only, layers, or every operation.
    pub depth: Depth,
    /// The lane of the device, if it has one.
    pub lane: Option<Lane>,
    /// How the embedding of a prompt is marked.
    pub embedding: EmbeddingStage,
    /// Names the stages instead of recording them, while a pass is captured as a graph.
    pub names: Option<Arc<dyn StageNames>>,
}

/// How the embedding of a prompt is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EmbeddingStage {
    /// As `embed`, at the depth of layers.
    #[default]
    Usual,
    /// As `base_embedding` at any depth, if there are several tokens: in the receiver of a C2C fusion.
    Base,
    /// As `teacher_embedding` at any depth, if there are several tokens: in the sharer of a C2C fusion.
    Teacher,
}

/// Tokens of sequences of equal length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// The IDs, sequence by sequence.
    pub ids: Vec<u32>,
    /// The number of sequences.
    pub batch: usize,
}

impl Tokens {
    /// Tokens of one sequence.
    pub fn one(ids: Vec<u32>) -> Self {
        Self { ids, batch: 1 }
    }

    /// The length of each sequence.
    pub fn length(&self) -> usize {
        self.ids.len() / self.batch.max(1)
    }

    /// Refuses empty batches, uneven sequences and IDs outside the vocabulary.
    pub fn check(&self, config: &Config) -> Done {
        let (tokens, batch, Config { name, vocab, .. }) = (self.ids.len(), self.batch, config);
        ensure!(batch > 0 && tokens > 0, "there are no tokens to run");
        ensure!(
            tokens.is_multiple_of(batch),
            "{tokens} tokens cannot be divided into {batch} sequences of equal length"
        );
        let outside = self.ids.iter().find(|id| **id as usize >= *vocab);
        ensure!(outside.is_none(), "token {} is outside the vocabulary of `{name}` ({vocab})", outside.unwrap_or(&0));
        Ok(())
    }

    /// As [`Tokens::check`]. Also refuses another batch than that of a decoder.
    pub(crate) fn check_batch(&self, config: &Config, batch: usize) -> Done {
        self.check(config)?;
        let (got, noun) = (self.batch, if batch == 1 { "sequence" } else { "sequences" });
        ensure!(got == batch, "expected {batch} {noun}, got {got}");
        Ok(())
    }
}

/// Keys and values of one layer, `[batch, kv_heads, length, head_dim]` each.
#[derive(Debug, Clone, PartialEq)]
pub struct KeysValues {
    /// The number of positions.
    pub length: usize,
    /// The keys, after norm and RoPE.
    pub keys: Vec<f32>,
    /// The values.
    pub values: Vec<f32>,
}

/// The part of a decoder that its device implements.
pub trait DecoderBackend {
    /// The configuration of the model.
    fn config(&self) -> &Config;

    /// The options it was created with.
    fn options(&self) -> &Options;

    /// The replay number of the next step, for the field [`REPLAY`](laptime_trace::replays::REPLAY) of the span around it:
    /// [`Trace::with_replays`](laptime_trace::Trace::with_replays) adds the stages of the replay there. None if nothing
    /// records, or if the step is not a replay with stages.
    fn next_replay(&mut self) -> Result<Option<u64>, ModelError> {
        Ok(None)
    }

    /// The same for a prefill of this many tokens per sequence.
    fn next_prefill_replay(&mut self, _tokens: usize) -> Result<Option<u64>, ModelError> {
        Ok(None)
    }

    /// How steps run.
    fn replay(&self) -> Replay {
        Replay::Launches
    }

    /// How prompts run: the last one, or the next if it is the same.
    fn prompt_replay(&self) -> Replay {
        Replay::Launches
    }

    /// How layers are offloaded, if any are.
    fn offloading(&self) -> Option<Offloading> {
        None
    }

    /// The finished visits of offloaded layers since the last call, in order. Does not wait for the device.
    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        Ok(Vec::new())
    }

    /// The cache on a GPU, if it is on one.
    #[cfg(feature = "cuda")]
    fn device_cache(&mut self) -> Option<crate::gpu::DeviceCache<'_>> {
        None
    }
}

/// A model with its weights and its KV cache on a device.
///
/// Passes enqueue work and do not wait for the device. [`Decoder::logits`], [`Decoder::sampled`] and reading the cache wait.
pub trait Decoder: DecoderBackend {
    /// Computes logits of every position, without the cache, as the forward pass of training does.
    fn forward(&mut self, tokens: &Tokens) -> Done;

    /// Runs tokens after those in the cache. Computes logits of the last position of each sequence and samples the most
    /// likely token.
    fn prefill(&mut self, tokens: &Tokens) -> Done;

    /// Runs the tokens that were sampled last, and samples the next ones, without a round trip to the host.
    fn step(&mut self) -> Done;

    /// Replaces the tokens that were sampled last, which the next step runs.
    fn set_next(&mut self, ids: &[u32]) -> Done;

    /// The tokens that were sampled last, one per sequence. Waits for the device.
    fn sampled(&mut self) -> Result<Vec<u32>, ModelError>;

    /// The logits of the last pass: of every position after [`Decoder::forward`], else one row per sequence. Waits for the
    /// device.
    fn logits(&mut self) -> Result<Vec<f32>, ModelError>;

    /// Visits the same logits row by row, without a copy of all of them on the host. Waits for the device.
    fn inspect_logits(&mut self, row: &mut dyn FnMut(&[f32])) -> Done {
        let (logits, vocab) = (self.logits()?, self.config().vocab.max(1));
        logits.chunks(vocab).for_each(row);
        Ok(())
    }

    /// The number of positions in the cache.
    fn length(&self) -> usize;

    /// Keeps only the first positions of the cache.
    fn truncate(&mut self, length: usize) -> Done;

    /// Reads a layer of the cache. Waits for the device.
    fn read_cache(&mut self, layer: usize) -> Result<KeysValues, ModelError> {
        self.read_positions(layer, 0..self.length())
    }

    /// Reads some positions of a layer of the cache. Waits for the device.
    fn read_positions(&mut self, layer: usize, positions: Range<usize>) -> Result<KeysValues, ModelError>;

    /// Overwrites positions of a layer of the cache, from `start` on. To lengthen the cache, write every layer and call
    /// [`Decoder::set_length`].
    fn write_cache(&mut self, layer: usize, start: usize, values: &KeysValues) -> Done;

    /// Sets the number of positions in the cache, after every layer was written.
    fn set_length(&mut self, length: usize) -> Done;
}
