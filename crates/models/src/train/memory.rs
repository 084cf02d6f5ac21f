//! The memory of training: predicted, and in use.
//!
//! Forward keeps for each layer the inputs of both norms, the projected queries, keys and values (before norm and RoPE), the
//! log-sum-exp of each row of fused attention, the output of attention, and gate and up. Norms, RoPE, activation functions and
//! the softmax of naive attention are recomputed, so nothing grows with layers times squared length. For the head it keeps the
//! input of the final norm and the logits, which their gradients replace.

use laptime_probe::value;
use laptime_trace::run::Depth;

use crate::{Attention, Config, TrainOptions, tensors::sum};

/// Bytes in use.
///
/// A trainer allocates all memory when it is created. Of it, gradients are in use from backward to the next forward, moments
/// from the first update on, and activations from forward to backward, layer by layer. A prediction has the most of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrainMemory {
    /// Parameters.
    pub weights: u64,
    /// Gradients of parameters.
    pub gradients: u64,
    /// Both moments of parameters.
    pub optimizer: u64,
    /// Activations kept for backward.
    pub activations: u64,
    /// Scratch buffers. Only part of predictions.
    pub scratch: u64,
}

impl TrainMemory {
    /// Records it as four values of the trace.
    pub fn record(&self) {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        value!("weights_memory", mib(self.weights), unit = "MiB");
        value!("gradients_memory", mib(self.gradients), unit = "MiB");
        value!("optimizer_memory", mib(self.optimizer), unit = "MiB");
        value!("activations_memory", mib(self.activations), unit = "MiB");
    }

    /// The sum. For a prediction, all that a trainer allocates, apart from the workspaces of a device.
    pub fn total(&self) -> u64 {
        sum([self.weights, self.gradients, self.optimizer, self.activations, self.scratch])
    }
}

impl Config {
    /// The predicted memory of training.
    pub fn train_need(&self, options: &TrainOptions) -> TrainMemory {
        let (weights, sizes) = (self.weight_bytes(options.dtype), TrainSizes::new(self, options));
        TrainMemory {
            weights,
            gradients: weights,
            optimizer: if options.adamw.is_some() { weights.saturating_mul(2) } else { 0 },
            activations: sizes.activation_bytes(self.layers),
            scratch: sizes.scratch_bytes(),
        }
    }
}

/// The sizes of the buffers of a trainer, in elements.
#[derive(Clone, Copy)]
pub(crate) struct TrainSizes {
    pub rows: usize,
    pub stream: usize,
    pub qkv: usize,
    pub attended: usize,
    /// The weights of naive attention.
    pub scores: usize,
    /// The log-sum-exps of fused attention, in f32.
    pub row_sums: usize,
    pub gate_up: usize,
    pub activated: usize,
    pub logits: usize,
    /// The RoPE tables, in f32.
    pub rotation: usize,
    number_bytes: u64,
}

impl TrainSizes {
    pub fn new(config: &Config, options: &TrainOptions) -> Self {
        let rows = options.batch.saturating_mul(options.tokens);
        let of = |width: usize| rows.saturating_mul(width);
        let wide = |heads: usize| heads.saturating_mul(config.head_dim);
        let is_naive = options.attention == Attention::Naive;
        Self {
            rows,
            stream: of(config.hidden),
            qkv: of(wide(config.heads.saturating_add(config.kv_heads.saturating_mul(2)))),
            attended: of(wide(config.heads)),
            scores: if is_naive { of(config.heads).saturating_mul(options.tokens) } else { 0 },
            row_sums: if is_naive { 0 } else { of(config.heads) },
            gate_up: of(config.ffn.saturating_mul(2)),
            activated: of(config.ffn),
            logits: of(config.vocab),
            rotation: options.tokens.saturating_mul(config.head_dim),
            number_bytes: options.dtype.bytes(),
        }
    }

    pub fn layer_bytes(&self) -> u64 {
        self.bytes(self.layer().numbers(), self.row_sums)
    }

    /// Bytes kept for the head: the input of its norm, the logits, and the losses.
    pub fn head_bytes(&self) -> u64 {
        self.bytes((self.stream as u64).saturating_add(self.logits as u64), self.rows)
    }

    pub fn activation_bytes(&self, layers: usize) -> u64 {
        self.layer_bytes().saturating_mul(layers as u64).saturating_add(self.head_bytes())
    }

    /// Bytes of scratch buffers, the heads after RoPE, a value per row of fused attention, and the RoPE tables.
    pub fn scratch_bytes(&self) -> u64 {
        let numbers = self.scratch().numbers().saturating_add(self.qkv as u64);
        self.bytes(numbers, self.row_sums.saturating_add(self.rotation))
    }

    fn bytes(&self, numbers: u64, floats: usize) -> u64 {
        numbers.saturating_mul(self.number_bytes).saturating_add((floats as u64).saturating_mul(4))
    }
}

#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pub now: TrainMemory,
    is_by_layer: bool,
    layer_activations: u64,
    head_activations: u64,
    layer_weights: u64,
    head_weights: u64,
}

impl Ledger {
    pub fn new(config: &Config, options: &TrainOptions) -> Self {
        let sizes = TrainSizes::new(config, options);
        let bytes = |numbers: usize| (numbers as u64).saturating_mul(options.dtype.bytes());
        let layer = config.layer_tensors(0).iter().fold(0, |sum: usize, spec| sum.saturating_add(spec.count()));
        let head = config.vocab.saturating_mul(config.hidden).saturating_add(config.hidden);
        Self {
            now: TrainMemory { weights: config.weight_bytes(options.dtype), ..TrainMemory::default() },
            is_by_layer: options.marks.depth >= Depth::Layer,
            layer_activations: sizes.layer_bytes(),
            head_activations: sizes.head_bytes(),
            layer_weights: bytes(layer),
            head_weights: bytes(head),
        }
    }

    /// Only weights and moments of the previous step are still needed.
    pub fn forward_begins(&mut self) {
        (self.now.gradients, self.now.activations) = (0, 0);
    }

    pub fn layer_forward(&mut self) {
        self.now.activations = self.now.activations.saturating_add(self.layer_activations);
        self.record_layer();
    }

    pub fn forward_ends(&mut self) {
        self.now.activations = self.now.activations.saturating_add(self.head_activations);
        self.now.record();
    }

    pub fn head_backward(&mut self) {
        self.now.gradients = self.head_weights;
        self.now.activations = self.now.activations.saturating_sub(self.head_activations);
        self.record_layer();
    }

    pub fn layer_backward(&mut self) {
        self.now.gradients = self.now.gradients.saturating_add(self.layer_weights);
        self.now.activations = self.now.activations.saturating_sub(self.layer_activations);
        self.record_layer();
    }

    pub fn backward_ends(&mut self) {
        (self.now.gradients, self.now.activations) = (self.now.weights, 0);
        self.now.record();
    }

    pub fn update_ends(&mut self) {
        self.now.optimizer = self.now.weights.saturating_mul(2);
        self.now.record();
    }

    fn record_layer(&self) {
        if self.is_by_layer {
            self.now.record();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

    #[test]
    fn the_bytes_of_a_small_model_match_a_manual_count() {
        let config = Config::from_preset("small").unwrap();
        let need = config.train_need(&TrainOptions::new(Dtype::F32, 4, 512));
        assert_eq!(need.weights, 4 * 128_625_408);
        assert_eq!((need.gradients, need.optimizer), (need.weights, 2 * need.weights));
        let rows = 4 * 512_u64;
        let layer = rows * (2 * 768 + 3 * 768 + 768 + 2 * 3072);
        let head = rows * (768 + 10_000 + 1);
        assert_eq!(need.activations, 4 * (12 * layer + head));
        let scratch = rows * (3 * 768 + 2 * 3 * 768 + 768 + 2 * 3072) + 2 * 4 * 12 * 512 * 512 + 512 * 64;
        assert_eq!(need.scratch, 4 * scratch);
        assert_eq!(need.total(), need.weights * 4 + need.activations + need.scratch);
    }

    #[test]
    fn a_trainer_without_an_optimizer_has_no_moments() {
        let config = Config::from_preset("small").unwrap();
        let options = TrainOptions { adamw: None, ..TrainOptions::new(Dtype::F32, 4, 512) };
        assert_eq!(config.train_need(&options).optimizer, 0);
    }

    #[test]
    fn fused_attention_keeps_a_number_per_row_and_naive_attention_none() {
        let config = Config::from_preset("small").unwrap();
        let naive = TrainOptions::new(Dtype::Bf16, 4, 512);
        let dense = TrainOptions { attention: Attention::Dense, ..naive.clone() };
        let [naive, dense] = [naive, dense].map(|options| TrainSizes::new(&config, &options).layer_bytes());
        assert_eq!(dense - naive, 4 * 12 * 512 * 4);
    }

    #[test]
    fn huge_training_sizes_saturate() {
        let mut config = Config::from_preset("tiny").unwrap();
        config.ffn = usize::MAX;
        let options = TrainOptions::new(Dtype::F32, usize::MAX, usize::MAX);
        assert_eq!(config.train_need(&options).total(), u64::MAX);
    }

    #[test]
    fn a_step_uses_memory_and_leaves_gradients_and_moments() {
        let config = Config::from_preset("tiny-llama").unwrap();
        let options = TrainOptions::new(Dtype::Bf16, 2, 16);
        let (mut ledger, need) = (Ledger::new(&config, &options), config.train_need(&options));
        let start = TrainMemory { weights: need.weights, ..TrainMemory::default() };
        assert_eq!(ledger.now, start);
        for _ in 0..2 {
            ledger.forward_begins();
            (0..config.layers).for_each(|_| ledger.layer_forward());
            ledger.forward_ends();
            assert_eq!((ledger.now.activations, ledger.now.gradients), (need.activations, 0));
            ledger.head_backward();
            (0..config.layers).for_each(|_| ledger.layer_backward());
            let embedding = config.embedding_tensor().count() as u64 * 2;
            let before_embed = need.gradients - if config.tied { 0 } else { embedding };
            assert_eq!((ledger.now.activations, ledger.now.gradients), (0, before_embed));
            ledger.backward_ends();
            assert_eq!((ledger.now.activations, ledger.now.gradients), (0, need.gradients));
            ledger.update_ends();
        }
        assert_eq!(ledger.now, TrainMemory { gradients: need.gradients, optimizer: need.optimizer, ..start });
        assert_eq!(ledger.now.total(), need.weights * 4);
    }
}
