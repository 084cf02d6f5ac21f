//! Training: forward, backward and AdamW updates on any device.
//!
//! Backward is written out block by block, so its stages can be marked and its memory predicted. Tests compare it with
//! candle's autograd.

pub(crate) mod buffers;
mod memory;
pub(crate) mod ops;
mod trainer;
mod work;

pub use self::{memory::TrainMemory, work::BackwardWork};
pub(crate) use self::{
    memory::{Ledger, TrainSizes},
    trainer::ModelTrainer,
};
use crate::error::{ensure, fit};
use crate::synthetic::{Fill, key};
use crate::{Activation, Attention, Config, Done, Dtype, Marks, ModelError, TensorSpec, Tokens};

/// Options of a trainer. All memory of a training step is allocated once, for these sizes.
#[derive(Debug, Clone)]
pub struct TrainOptions {
    /// The dtype of weights, activations, gradients and moments. Sums are accumulated in f32.
    pub dtype: Dtype,
    /// The attention algorithm.
    pub attention: Attention,
    /// Sequences that run together.
    pub batch: usize,
    /// Tokens per sequence.
    pub tokens: usize,
    /// Which stages are marked, and on which lane.
    pub marks: Marks,
    /// The optimizer. Without one, parameters are never updated and there are no moments.
    pub adamw: Option<AdamW>,
}

impl TrainOptions {
    /// Naive attention, no marks, and AdamW with its defaults.
    pub fn new(dtype: Dtype, batch: usize, tokens: usize) -> Self {
        let (marks, adamw) = (Marks::default(), Some(AdamW::default()));
        Self { dtype, attention: Attention::Naive, batch, tokens, marks, adamw }
    }

    /// Refuses invalid configurations, empty or too long batches, and unsupported models and dtypes.
    pub fn check(&self, config: &Config) -> Done {
        config.check()?;
        ensure!(self.batch > 0 && self.tokens > 0, "the batch is empty");
        fit(self.tokens, &config.name, config.context)?;
        let Config { activation, post_norms, zero_centred_norms, scaled_embedding, window, .. } = config;
        let has_gradients = *activation == Activation::Silu && window.is_none();
        ensure!(
            has_gradients && !post_norms && !zero_centred_norms && !scaled_embedding,
            "`{}` cannot be trained: the gradients of {} models are not implemented",
            config.name,
            config.family.word()
        );
        self.dtype.refuse_quantised("training")?;
        ensure!(self.dtype != Dtype::F16, "f16 gradients underflow without loss scaling: train in bf16 or f32");
        Ok(())
    }

    /// Refuses a batch of other sizes, and IDs outside the vocabulary.
    pub fn check_batch(&self, config: &Config, tokens: &Tokens, targets: &[u32]) -> Done {
        tokens.check(config)?;
        let (batch, length) = (tokens.batch, tokens.length());
        let fits = batch == self.batch && length == self.tokens;
        ensure!(fits, "expected {} sequences of {} tokens, got {batch} of {length}", self.batch, self.tokens);
        let (count, ids) = (targets.len(), tokens.ids.len());
        ensure!(count == ids, "expected a target for each of {ids} tokens, got {count}");
        Tokens { ids: targets.to_vec(), batch }.check(config)
    }
}

/// The settings of AdamW, with the names and defaults of `torch.optim.AdamW`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// The learning rate.
    pub lr: f64,
    /// The decay rates of both moments.
    pub betas: (f64, f64),
    /// Added to the root of the second moment.
    pub eps: f64,
    /// The weight decay, as a share of the learning rate.
    pub weight_decay: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        Self { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.01 }
    }
}

/// A model with its weights, gradients and optimizer state on a device.
///
/// [`Trainer::forward`], [`Trainer::backward`] and [`Trainer::update`] enqueue work and allocate nothing; [`Trainer::loss`] and
/// reading tensors wait for the device.
///
/// The caller marks the three as the stages `forward`, `backward` and `optimizer`. Inside, at [`Depth::Layer`], forward
/// marks `embed`, `layer` (with `layer = i`) around `attention` and `ffn`, `head` and `loss`; backward marks `head`,
/// `layer` around `ffn` and `attention`, and `embed`; [`Depth::Ops`] adds the operations. After each of the three, and at
/// [`Depth::Layer`] after each layer, [`TrainMemory::record`] records the memory as values.
///
/// [`Depth::Layer`]: laptime_trace::run::Depth::Layer
/// [`Depth::Ops`]: laptime_trace::run::Depth::Ops
pub trait Trainer {
    /// The configuration of the model.
    fn config(&self) -> &Config;

    /// The options it was created with.
    fn options(&self) -> &TrainOptions;

    /// Runs a batch and keeps what backward needs. The loss is the mean cross-entropy over all positions, with a target for
    /// each token.
    fn forward(&mut self, tokens: &Tokens, targets: &[u32]) -> Done;

    /// Computes the gradients of every parameter from what the last forward kept, which it consumes. Refused without a
    /// forward since the last backward.
    fn backward(&mut self) -> Done;

    /// Updates every parameter. Refused before the first backward, and without an optimizer.
    fn update(&mut self) -> Done;

    /// The number of updates.
    fn updates(&self) -> u64;

    /// The loss of the last forward. Waits for the device. Refused before the first forward.
    fn loss(&mut self) -> Result<f32, ModelError>;

    /// The gradient of a tensor of the checkpoint. Waits for the device. Refused before the first backward.
    fn gradient(&mut self, tensor: &TensorSpec) -> Result<Vec<f32>, ModelError>;

    /// The current value of a tensor of the checkpoint. Waits for the device.
    fn parameter(&mut self, tensor: &TensorSpec) -> Result<Vec<f32>, ModelError>;

    /// The memory in use.
    fn memory(&self) -> TrainMemory;
}

/// Random tokens, and the next token of each as its target.
pub fn random_batch(config: &Config, batch: usize, tokens: usize, seed: u64) -> Result<(Tokens, Vec<u32>), ModelError> {
    let too_many = || ModelError::Refused(format!("{batch} sequences of {tokens} tokens are too many"));
    let length = tokens.checked_add(1).ok_or_else(too_many)?;
    let count = batch.checked_mul(length).filter(|count| *count <= u32::MAX as usize).ok_or_else(too_many)?;
    let fill = Fill::Random { key: key(seed, "tokens"), amplitude: 0.5 };
    let last = config.vocab.saturating_sub(1);
    let id = |at: u64| (((f64::from(fill.at(at)) + 0.5) * config.vocab as f64) as usize).min(last) as u32;
    let ids: Vec<u32> = (0..count as u64).map(id).collect();
    let part = |from: usize| ids.chunks(length).flat_map(|ids| &ids[from..][..tokens]).copied().collect();
    let batch = Tokens { ids: part(0), batch };
    batch.check(config)?;
    Ok((batch, part(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl Fn(&mut TrainOptions)) -> String {
        let mut options = TrainOptions::new(Dtype::F32, 2, 8);
        change(&mut options);
        options.check(&Config::from_preset("tiny").unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn invalid_options_are_refused_with_the_reason() {
        assert_eq!(refusal(|options| options.batch = 0), "the batch is empty");
        assert_eq!(refusal(|options| options.tokens = 0), "the batch is empty");
        assert_eq!(refusal(|options| options.tokens = 513), "513 tokens do not fit: `tiny` has 512");
        assert!(refusal(|options| options.dtype = Dtype::F16).contains("train in bf16 or f32"));
    }

    #[test]
    fn a_batch_of_other_sizes_or_targets_is_refused() {
        let (config, options) = (Config::from_preset("tiny").unwrap(), TrainOptions::new(Dtype::F32, 2, 2));
        let tokens = Tokens { ids: vec![1, 2, 3, 4], batch: 2 };
        let check = |tokens: &Tokens, targets: &[u32]| options.check_batch(&config, tokens, targets);
        assert!(check(&tokens, &[1, 2, 3, 4]).is_ok());
        let refusal = |tokens: &Tokens, targets: &[u32]| check(tokens, targets).unwrap_err().to_string();
        assert_eq!(refusal(&tokens, &[1, 2, 3]), "expected a target for each of 4 tokens, got 3");
        assert_eq!(refusal(&tokens, &[1, 2, 3, 512]), "token 512 is outside the vocabulary of `tiny` (512)");
        let one = Tokens::one(vec![1, 2, 3, 4]);
        assert_eq!(refusal(&one, &[0; 4]), "expected 2 sequences of 2 tokens, got 1 of 4");
    }

    #[test]
    fn the_target_of_a_token_is_the_next_one() {
        let config = Config::from_preset("tiny").unwrap();
        let (tokens, targets) = random_batch(&config, 3, 7, 1).unwrap();
        assert_eq!((tokens.batch, tokens.ids.len(), targets.len()), (3, 21, 21));
        for (ids, targets) in tokens.ids.chunks(7).zip(targets.chunks(7)) {
            assert_eq!(ids[1..], targets[..6]);
        }
        assert_ne!(random_batch(&config, 3, 7, 2).unwrap().0, tokens);
    }

    #[test]
    fn tokens_are_spread_over_the_vocabulary() {
        let config = Config::from_preset("tiny").unwrap();
        let (tokens, _) = random_batch(&config, 4, 500, 0).unwrap();
        let low = tokens.ids.iter().filter(|id| **id < 256).count();
        assert!((800..1200).contains(&low), "{low} of 2000 are in the lower half");
        assert!(tokens.ids.iter().all(|id| *id < 512));
    }

    #[test]
    fn empty_and_huge_batches_are_refused() {
        let config = Config::from_preset("tiny").unwrap();
        for (batch, tokens) in [(0, 5), (5, 0), (usize::MAX, 2), (1, usize::MAX), (1 << 30, 1 << 30)] {
            assert!(random_batch(&config, batch, tokens, 0).is_err(), "{batch} {tokens}");
        }
    }
}
