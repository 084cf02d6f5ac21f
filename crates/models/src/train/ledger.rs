//! What a trainer's memory holds as a step goes on: one account for every device.

use laptime_trace::run::Depth;

use crate::{Config, TrainMemory, TrainOptions, TrainSizes};

#[derive(Debug, Clone, Default)]
pub struct Ledger {
    now: TrainMemory,
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

    pub fn now(&self) -> TrainMemory {
        self.now
    }

    /// Forward begins: nothing of the last step is needed any more but weights and moments.
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
    fn a_step_fills_memory_and_leaves_what_outlives_it() {
        let config = Config::from_preset("tiny-llama").unwrap();
        let options = TrainOptions::new(Dtype::Bf16, 2, 16);
        let (mut ledger, need) = (Ledger::new(&config, &options), config.train_need(&options));
        let start = TrainMemory { weights: need.weights, ..TrainMemory::default() };
        assert_eq!(ledger.now(), start);
        for _ in 0..2 {
            ledger.forward_begins();
            (0..config.layers).for_each(|_| ledger.layer_forward());
            ledger.forward_ends();
            assert_eq!((ledger.now().activations, ledger.now().gradients), (need.activations, 0));
            ledger.head_backward();
            (0..config.layers).for_each(|_| ledger.layer_backward());
            let embedding = config.embedding_tensor().count() as u64 * 2;
            let before_embed = need.gradients - if config.tied { 0 } else { embedding };
            assert_eq!((ledger.now().activations, ledger.now().gradients), (0, before_embed));
            ledger.backward_ends();
            assert_eq!((ledger.now().activations, ledger.now().gradients), (0, need.gradients));
            ledger.update_ends();
        }
        assert_eq!(ledger.now(), TrainMemory { gradients: need.gradients, optimizer: need.optimizer, ..start });
        assert_eq!(ledger.now().total(), need.weights * 4);
    }
}
