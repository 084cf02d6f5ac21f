//! A model that learns on a device: forward, backward and an update of every parameter, whatever the device.
//!
//! Backward is written out block by block, so that its stages can be marked and its memory predicted. Tests compare it
//! with candle's autograd.

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

/// How a trainer is made ready. Everything that a step needs is allocated for these sizes, once.
#[derive(Debug, Clone)]
pub struct TrainOptions {
    /// Number type of weights, activations, gradients and moments. Sums are added in f32.
    pub dtype: Dtype,
    /// How attention is computed.
    pub attention: Attention,
    /// Sequences that run together.
    pub batch: usize,
    /// Tokens of each sequence.
    pub tokens: usize,
    /// Which stages are marked, and where.
    pub marks: Marks,
    /// How parameters are updated; none if they never are, and then there are no moments.
    pub adamw: Option<AdamW>,
}

impl TrainOptions {
    /// Options for a batch in a dtype, with defaults for the rest: naive attention, no marks, the defaults of AdamW.
    pub fn new(dtype: Dtype, batch: usize, tokens: usize) -> Self {
        let (marks, adamw) = (Marks::default(), Some(AdamW::default()));
        Self { dtype, attention: Attention::Naive, batch, tokens, marks, adamw }
    }

    /// Refuses what no trainer can do: a configuration that makes no model, no tokens, more of them than the model has
    /// positions, numbers too narrow for gradients.
    pub fn check(&self, config: &Config) -> Done {
        config.check()?;
        ensure!(self.batch > 0 && self.tokens > 0, "a batch has at least one sequence of one token");
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
        match self.dtype {
            Dtype::F16 => Err(ModelError::Refused(
                "gradients in f16 vanish unless the loss is scaled: train in bf16 or f32".to_owned(),
            )),
            Dtype::F32 | Dtype::Bf16 | Dtype::Fp8 => Ok(()),
        }
    }

    /// Refuses a batch that is not of these sizes, or that has ids beyond the vocabulary.
    pub fn check_batch(&self, config: &Config, tokens: &Tokens, targets: &[u32]) -> Done {
        tokens.check(config)?;
        let (batch, length) = (tokens.batch, tokens.length());
        if batch != self.batch || length != self.tokens {
            let Self { batch: batches, tokens, .. } = self;
            let reason =
                format!("{batch} sequences of {length} tokens are not the {batches} of {tokens} of the trainer");
            return Err(ModelError::Refused(reason));
        }
        let (count, ids) = (targets.len(), tokens.ids.len());
        ensure!(count == ids, "{count} targets are not one for each of {ids} tokens");
        Tokens { ids: targets.to_vec(), batch }.check(config)
    }
}

/// The settings of AdamW, under the names that `torch.optim.AdamW` gives them and with its defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// The learning rate.
    pub lr: f64,
    /// How much of the first and of the second moment is kept in a step.
    pub betas: (f64, f64),
    /// What is added to the root of the second moment.
    pub eps: f64,
    /// The share of the learning rate by which parameters shrink in a step, apart from their gradients.
    pub weight_decay: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        Self { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.01 }
    }
}

/// A model with its weights, gradients and optimizer state on a device.
///
/// [`Trainer::forward`], [`Trainer::backward`] and [`Trainer::update`] put work on the device and do not wait for it;
/// [`Trainer::loss`] and reading tensors do. Memory of the device is allocated when
/// a trainer is made, and not by these three.
///
/// The caller marks the three as the stages `forward`, `backward` and `optimizer`. Inside, at [`Depth::Layer`], forward
/// marks `embed`, `layer` (with `layer = i`) around `attention` and `ffn`, `head` and `loss`; backward marks `head`,
/// `layer` around `ffn` and `attention`, and `embed`; at [`Depth::Ops`] the operations too. At the end of each of the
/// three, and at [`Depth::Layer`] of each layer, [`TrainMemory::record`] leaves the memory as values.
///
/// [`Depth::Layer`]: laptime_trace::run::Depth::Layer
/// [`Depth::Ops`]: laptime_trace::run::Depth::Ops
pub trait Trainer {
    /// What the model is.
    fn config(&self) -> &Config;

    /// How it was made ready.
    fn options(&self) -> &TrainOptions;

    /// Runs a batch of the sizes that the options say and keeps what backward needs. The loss is the mean over all
    /// positions of the cross-entropy between logits and targets, one for each token.
    fn forward(&mut self, tokens: &Tokens, targets: &[u32]) -> Done;

    /// Writes the gradient of the last forward's loss over the gradients of every parameter. It uses up what forward
    /// kept: refused unless a forward was run since the last backward.
    fn backward(&mut self) -> Done;

    /// Updates every parameter by AdamW and its gradient. Refused before the first backward, and of a trainer that was
    /// made without an optimizer.
    fn update(&mut self) -> Done;

    /// How many updates were made.
    fn updates(&self) -> u64;

    /// The loss of the last forward. Waits for the device; refused before the first forward.
    fn loss(&mut self) -> Result<f32, ModelError>;

    /// The gradient of a tensor of the checkpoint, row by row, as the last backward left it. Waits for the device;
    /// refused before the first backward.
    fn gradient(&mut self, tensor: &TensorSpec) -> Result<Vec<f32>, ModelError>;

    /// A tensor of the checkpoint as it is now, row by row. Waits for the device.
    fn parameter(&mut self, tensor: &TensorSpec) -> Result<Vec<f32>, ModelError>;

    /// What its memory holds now.
    fn memory(&self) -> TrainMemory;
}

/// Random tokens and the targets of each: the token behind it, and of the last a random one too.
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
    fn options_that_no_trainer_can_have_are_refused_in_words() {
        assert_eq!(refusal(|options| options.batch = 0), "a batch has at least one sequence of one token");
        assert_eq!(refusal(|options| options.tokens = 0), "a batch has at least one sequence of one token");
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
        assert_eq!(refusal(&tokens, &[1, 2, 3]), "3 targets are not one for each of 4 tokens");
        assert_eq!(refusal(&tokens, &[1, 2, 3, 512]), "token 512 is beyond the 512 of `tiny`");
        let one = Tokens::one(vec![1, 2, 3, 4]);
        assert_eq!(refusal(&one, &[0; 4]), "1 sequences of 4 tokens are not the 2 of 2 of the trainer");
    }

    #[test]
    fn the_target_of_a_token_is_the_one_behind_it() {
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
    fn a_batch_of_nothing_or_of_too_much_is_refused() {
        let config = Config::from_preset("tiny").unwrap();
        for (batch, tokens) in [(0, 5), (5, 0), (usize::MAX, 2), (1, usize::MAX), (1 << 30, 1 << 30)] {
            assert!(random_batch(&config, batch, tokens, 0).is_err(), "{batch} {tokens}");
        }
    }
}
