//! The work of backward and of an update, counted by the operations of training.
//!
//! Each product of forward has two in backward, for the gradients of input and weights, so backward has twice the FLOPs. The
//! scores of attention are recomputed; these FLOPs (half of attention's in forward) are counted separately.

use laptime_trace::run::{Traffic, Work};

use crate::{Attention, Config, Dtype, PassWork, decoder::count::PassCount, work::Pass};

/// The work of backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackwardWork {
    /// The work of the gradients, by stage. The weights are read again.
    pub pass: PassWork,
    /// FLOPs of recomputed scores.
    pub recomputed_flops: u64,
    /// Bytes of gradients written.
    pub gradient_bytes: u64,
    dtype: Dtype,
}

impl BackwardWork {
    /// Its work in the form of results: that of the gradients, weights read and gradients written.
    pub fn work(&self) -> Work {
        let read = self.pass.total().bytes_read();
        let (dtype, bytes) = (self.dtype.word().to_owned(), read.saturating_add(self.gradient_bytes));
        Work { flops: self.pass.total().flops, dtype, bytes, traffic: Traffic::Copy }
    }
}

impl Config {
    /// The work of [`backward`](crate::Trainer::backward).
    pub fn backward_work(&self, batch: usize, tokens: usize, attention: Attention, dtype: Dtype) -> BackwardWork {
        let pass = Pass { batch, tokens, start: 0, logits: tokens, is_cached: false, attention };
        let mut count = PassCount::new(self, pass, dtype);
        let pass = PassWork::new(dtype, count.backward());
        let (recomputed_flops, gradient_bytes) = (count.recomputed_flops, count.gradients.work.weight_bytes);
        BackwardWork { pass, recomputed_flops, gradient_bytes, dtype }
    }

    /// The work of [`update`](crate::Trainer::update): parameters, gradients and both moments are read, parameters and moments
    /// written. Element-wise FLOPs are not counted, as elsewhere.
    pub fn update_work(&self, dtype: Dtype) -> Work {
        let (dtype, bytes) = (dtype.word().to_owned(), self.weight_bytes(dtype).saturating_mul(4 + 3));
        Work { flops: 0, dtype, bytes, traffic: Traffic::Copy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stage;

    #[test]
    fn backward_has_twice_the_flops_of_forward() {
        for config in Config::presets() {
            for attention in [Attention::Naive, Attention::Dense] {
                let forward = config.forward_work(2, 64, attention, Dtype::F32);
                let backward = config.backward_work(2, 64, attention, Dtype::F32);
                for stage in Stage::ALL {
                    assert_eq!(backward.pass.stage(stage).flops, 2 * forward.stage(stage).flops, "{}", config.name);
                }
            }
        }
    }

    #[test]
    fn attention_recomputes_its_scores() {
        let config = Config::from_preset("small").unwrap();
        let dense = config.backward_work(4, 512, Attention::Dense, Dtype::Bf16);
        // Two operations a number of a head, for each pair that a query may see.
        assert_eq!(dense.recomputed_flops, 12 * 4 * 768 * 2 * (512 * 513 / 2));
        let naive = config.backward_work(4, 512, Attention::Naive, Dtype::Bf16);
        assert_eq!(2 * naive.recomputed_flops, naive.pass.stage(Stage::Attention).flops / 2);
    }

    #[test]
    fn an_update_reads_four_numbers_per_parameter_and_writes_three() {
        let config = Config::from_preset("tiny").unwrap();
        let update = config.update_work(Dtype::Bf16);
        assert_eq!(update.bytes, 14 * config.parameters());
        let backward = config.backward_work(1, 8, Attention::Naive, Dtype::F32).work();
        assert_eq!(backward.bytes, 8 * config.parameters(), "the head reads the embedding, which is tied");
    }
}
