//! A model with its weights on a device: what can be asked of it, whatever the device.

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

/// How a decoder is made ready.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number type of weights, activations and cache.
    pub dtype: Dtype,
    /// How attention is computed.
    pub attention: Attention,
    /// The pairs that attention keeps, in the fused step and from the first token on; none for all of them.
    pub kept: Option<Kept>,
    /// Sequences that run together.
    pub batch: usize,
    /// The capacity of the cache.
    pub capacity: CacheCapacity,
    /// Whether a decode step is replayed as a graph.
    pub graph: GraphMode,
    /// Which stages are marked, and where.
    pub marks: Marks,
    /// How layers are offloaded; none if all are resident.
    pub offload: Option<Offload>,
}

impl Options {
    /// Options of one sequence with dense attention, without graphs, marks or offloading.
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

    /// Refuses a configuration that makes no model, and what no device computes.
    pub(crate) fn check(&self, config: &Config) -> Done {
        config.check()?;
        ensure!(self.batch > 0, "a batch has at least one sequence");
        ensure!(
            config.window.is_none() || self.kept.is_none(),
            "`{}` has layers with a sliding window, which sparse attention lacks: use `--attention dense`",
            config.name
        );
        Ok(())
    }
}

/// The capacity of a KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheCapacity {
    /// It grows with what is put in, up to the model's context.
    Growing,
    /// It is allocated once for this many positions.
    Static(usize),
}

/// Whether a decode step is replayed as a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GraphMode {
    /// Where that is possible.
    #[default]
    Auto,
    /// Or it is an error.
    On,
    /// Never.
    Off,
}

/// What came of [`GraphMode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replay {
    /// Steps are replays of a graph of this many nodes.
    Graph {
        /// Kernels and copies of a step.
        nodes: usize,
    },
    /// Steps are launched kernel by kernel, as asked.
    Launches,
    /// Steps are launched one by one, though a graph was wanted, for this reason.
    FellBack(String),
}

/// Which stages are marked, and where.
#[derive(Debug, Clone, Default)]
pub struct Marks {
    /// How deep: passes alone, layers, or every operation.
    pub depth: Depth,
    /// The lane of the device, if it has one.
    pub lane: Option<Lane>,
    /// Whether the embedding of a prompt is a stage of its own at any depth, and by which name.
    pub embedding: EmbeddingStage,
    /// What names the stages instead of recording them, while a pass is captured as a graph.
    pub names: Option<Arc<dyn StageNames>>,
}

/// How the embedding of a prompt is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EmbeddingStage {
    /// As `embed`, from the depth of layers on.
    #[default]
    Usual,
    /// As `base_embedding`, where there is more than one token: in the model that another cache is fused into.
    Base,
    /// As `teacher_embedding`, where there is more than one token: in the model whose cache is fused.
    Teacher,
}

/// Tokens of several sequences of one length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// The ids, sequence by sequence.
    pub ids: Vec<u32>,
    /// Sequences.
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

    /// Refuses what no model can run: no tokens, uneven sequences, ids beyond the vocabulary.
    pub fn check(&self, config: &Config) -> Done {
        let refuse = |reason: String| Err(ModelError::Refused(reason));
        if self.batch == 0 || self.ids.is_empty() {
            return refuse("there are no tokens to run".to_owned());
        }
        if !self.ids.len().is_multiple_of(self.batch) {
            return refuse(format!("{} tokens do not make {} sequences of one length", self.ids.len(), self.batch));
        }
        match self.ids.iter().find(|id| **id as usize >= config.vocab) {
            Some(id) => refuse(format!("token {id} is beyond the {} of `{}`", config.vocab, config.name)),
            None => Ok(()),
        }
    }

    /// Refuses what [`Tokens::check`] does, and another number of sequences than a decoder has.
    pub(crate) fn check_batch(&self, config: &Config, batch: usize) -> Done {
        self.check(config)?;
        let (got, noun) = (self.batch, if batch == 1 { "sequence" } else { "sequences" });
        ensure!(got == batch, "expected {batch} {noun}, got {got}");
        Ok(())
    }
}

/// Keys and values of one layer, as numbers: `[batch, kv_heads, length, head_dim]` each, row by row.
#[derive(Debug, Clone, PartialEq)]
pub struct KeysValues {
    /// Positions that are in it.
    pub length: usize,
    /// The keys, after norm and rotation.
    pub keys: Vec<f32>,
    /// The values.
    pub values: Vec<f32>,
}

/// What a decoder's device answers without a check.
pub trait DecoderBackend {
    /// What the model is.
    fn config(&self) -> &Config;

    /// How it was made ready.
    fn options(&self) -> &Options;

    /// The number of the replay that the next step is, for the field [`REPLAY`](laptime_trace::replays::REPLAY) of the span
    /// around the step: [`Trace::with_replays`](laptime_trace::Trace::with_replays) puts the stages inside it there. None
    /// if nothing records, or if the step is no replay with stages.
    fn next_replay(&mut self) -> Result<Option<u64>, ModelError> {
        Ok(None)
    }

    /// The same of a prefill of this many tokens per sequence, for the span around it.
    fn next_prefill_replay(&mut self, _tokens: usize) -> Result<Option<u64>, ModelError> {
        Ok(None)
    }

    /// How steps run.
    fn replay(&self) -> Replay {
        Replay::Launches
    }

    /// How the last prompt ran, or will if it is repeated.
    fn prompt_replay(&self) -> Replay {
        Replay::Launches
    }

    /// How layers are offloaded; none if all are resident.
    fn offloading(&self) -> Option<Offloading> {
        None
    }

    /// The finished visits of offloaded layers since the last call, in order. Does not wait for the device.
    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        Ok(Vec::new())
    }

    /// The cache where it lies on a GPU, for what works on it there; none if it does not.
    #[cfg(feature = "cuda")]
    fn device_cache(&mut self) -> Option<crate::gpu::DeviceCache<'_>> {
        None
    }
}

/// A model with its weights and its KV cache on a device.
///
/// Passes put work on the device and do not wait for it; [`Decoder::logits`], [`Decoder::sampled`] and reading the cache
/// do.
pub trait Decoder: DecoderBackend {
    /// Logits of every position, without the cache: what a training step or a course's benchmark calls forward.
    fn forward(&mut self, tokens: &Tokens) -> Done;

    /// Runs tokens behind what the cache holds. The logits are those of the last position of each sequence, and the
    /// most likely token is chosen from them.
    fn prefill(&mut self, tokens: &Tokens) -> Done;

    /// Runs the tokens that were chosen last behind what the cache holds, and chooses the next ones. Nothing of it
    /// passes by the host.
    fn step(&mut self) -> Done;

    /// Puts these in place of the tokens that were chosen last: what the next step runs.
    fn set_next(&mut self, ids: &[u32]) -> Done;

    /// The tokens that were chosen last, one a sequence. Waits for the device.
    fn sampled(&mut self) -> Result<Vec<u32>, ModelError>;

    /// The logits of the last pass, row by row: every position after [`Decoder::forward`], one a sequence otherwise.
    /// Waits for the device.
    fn logits(&mut self) -> Result<Vec<f32>, ModelError>;

    /// Looks at the same logits row by row, without a copy of them all on the host if it is the device. Waits for the
    /// device.
    fn inspect_logits(&mut self, row: &mut dyn FnMut(&[f32])) -> Done {
        let (logits, vocab) = (self.logits()?, self.config().vocab.max(1));
        logits.chunks(vocab).for_each(row);
        Ok(())
    }

    /// How many positions the cache holds.
    fn length(&self) -> usize;

    /// Lets the cache hold only its first positions, or none.
    fn truncate(&mut self, length: usize) -> Done;

    /// Reads a layer of the cache. Waits for the device.
    fn read_cache(&mut self, layer: usize) -> Result<KeysValues, ModelError> {
        self.read_positions(layer, 0..self.length())
    }

    /// Reads some positions of a layer of the cache. Waits for the device.
    fn read_positions(&mut self, layer: usize, positions: Range<usize>) -> Result<KeysValues, ModelError>;

    /// Overwrites positions of a layer of the cache, from `start` on; positions behind its end lengthen it once every
    /// layer has them, by [`Decoder::set_length`].
    fn write_cache(&mut self, layer: usize, start: usize, values: &KeysValues) -> Done;

    /// Says how many positions the cache holds, after every layer was written.
    fn set_length(&mut self, length: usize) -> Done;
}
