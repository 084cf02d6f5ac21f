//! The work of a pass: FLOPs and the bytes it must move, counted by `decoder/count.rs`.
//!
//! A multiply-add is two FLOPs. Norms, RoPE, softmax and activation functions are not counted, as usual. Weights are read
//! once per pass, and only the embeddings of the tokens. Keys and values of earlier positions are read, those of this pass are
//! written. Activations are not counted: a perfect pass would keep them on the chip.

use laptime_trace::run::{Traffic, Work};

use crate::{Attention, Config, Dtype, decoder::count::PassCount, tensors::product, words::words};

words! {
    /// A stage of a pass, by the name of its mark.
    pub enum Stage {
        /// The embedding.
        Embed = "embed",
        /// The query, key and value projections of all layers, with their norms.
        Qkv = "qkv",
        /// Scores, and the weighted sums of values.
        Attention = "attention",
        /// The output projection of attention.
        OProj = "output",
        /// The FFNs, with their norms.
        Ffn = "ffn",
        /// The final norm and the logits.
        Head = "head",
    }
}

/// The work of a stage in all layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StageWork {
    /// FLOPs.
    pub flops: u64,
    /// Bytes of weights read.
    pub weight_bytes: u64,
    /// Bytes of keys and values read.
    pub kv_read: u64,
    /// Bytes of keys and values written.
    pub kv_written: u64,
}

impl StageWork {
    /// The sum of two.
    pub fn plus(self, other: Self) -> Self {
        Self {
            flops: self.flops.saturating_add(other.flops),
            weight_bytes: self.weight_bytes.saturating_add(other.weight_bytes),
            kv_read: self.kv_read.saturating_add(other.kv_read),
            kv_written: self.kv_written.saturating_add(other.kv_written),
        }
    }

    /// In the form of results.
    pub fn work(self, dtype: Dtype) -> Work {
        Work {
            flops: self.flops,
            dtype: dtype.activations().word().to_owned(),
            bytes: self.bytes_read(),
            traffic: Traffic::Read,
        }
    }

    /// Bytes read: weights, keys and values.
    pub fn bytes_read(self) -> u64 {
        self.weight_bytes.saturating_add(self.kv_read)
    }
}

/// The work of a pass, by stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassWork {
    dtype: Dtype,
    stages: [StageWork; Stage::ALL.len()],
}

impl PassWork {
    pub(crate) fn new(dtype: Dtype, stages: [StageWork; Stage::ALL.len()]) -> Self {
        Self { dtype, stages }
    }

    /// The work of a stage.
    pub fn stage(&self, stage: Stage) -> StageWork {
        self.stages[stage as usize]
    }

    /// The work of all stages.
    pub fn total(&self) -> StageWork {
        self.stages.into_iter().fold(StageWork::default(), StageWork::plus)
    }

    /// The work of a stage in the form of results.
    pub fn work_of(&self, stage: Stage) -> Work {
        self.stage(stage).work(self.dtype)
    }

    /// The work of the pass in the form of results.
    pub fn work(&self) -> Work {
        self.total().work(self.dtype)
    }

    /// The same pass with attention over this many pairs per head.
    pub fn with_pairs(&self, config: &Config, batch: usize, pairs: u64) -> Self {
        let of_pair = product(&[4, config.layers, batch, config.heads, config.head_dim]);
        let flops = of_pair.saturating_mul(pairs);
        let mut work = *self;
        work.stages[Stage::Attention as usize].flops = flops;
        work
    }

    /// The sum of two passes.
    pub fn plus(&self, other: &Self) -> Self {
        let stages = std::array::from_fn(|stage| self.stages[stage].plus(other.stages[stage]));
        Self { dtype: self.dtype, stages }
    }
}

/// The sizes of a pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass {
    pub batch: usize,
    pub tokens: usize,
    pub start: usize,
    /// Positions per sequence with logits; 0 for no head.
    pub logits: usize,
    /// Whether keys and values are cached.
    pub is_cached: bool,
    pub attention: Attention,
}

impl Config {
    /// The work of [`forward`](crate::Decoder::forward): logits of every position, without a cache.
    pub fn forward_work(&self, batch: usize, tokens: usize, attention: Attention, dtype: Dtype) -> PassWork {
        self.pass_work(Pass { batch, tokens, start: 0, logits: tokens, is_cached: false, attention }, dtype)
    }

    /// The work of [`prefill`](crate::Decoder::prefill) after `start` positions.
    pub fn prefill_work(
        &self,
        batch: usize,
        tokens: usize,
        start: usize,
        attention: Attention,
        dtype: Dtype,
    ) -> PassWork {
        self.pass_work(Pass { batch, tokens, start, logits: 1, is_cached: true, attention }, dtype)
    }

    /// The work of [`step`](crate::Decoder::step) after `position` positions. One query sees every key in any algorithm.
    pub fn step_work(&self, batch: usize, position: usize, dtype: Dtype) -> PassWork {
        self.prefill_work(batch, 1, position, Attention::Dense, dtype)
    }

    pub(crate) fn pass_work(&self, pass: Pass, dtype: Dtype) -> PassWork {
        PassWork::new(dtype, PassCount::new(self, pass, dtype).forward())
    }
}

impl Pass {
    /// Pairs of queries and keys computed per head: all for naive attention, as in CS336 assignment 2, and only visible ones for
    /// fused attention.
    pub fn pairs(&self, window: Option<usize>) -> u64 {
        let (tokens, start) = (self.tokens as u64, self.start as u64);
        let triangle = |side: u64| (u128::from(side) * (u128::from(side) + 1) / 2).try_into().unwrap_or(u64::MAX);
        match (self.attention, window.map(|window| window as u64)) {
            (Attention::Naive, _) => tokens.saturating_mul(start.saturating_add(tokens)),
            (Attention::Dense, None) => tokens.saturating_mul(start).saturating_add(triangle(tokens)),
            (Attention::Dense, Some(window)) => {
                // Each query that does not fill the window sees one key more than the previous one.
                let growing = window.saturating_sub(start.saturating_add(1)).min(tokens);
                let grown = growing.saturating_mul(start).saturating_add(triangle(growing));
                (tokens - growing).saturating_mul(window).saturating_add(grown)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn forward_flops_of_cs336_models_match_the_formula() {
        for config in Config::presets().into_iter().filter(|config| config.family == crate::Family::Course) {
            let (b, n) = (4_u64, 512_u64);
            let [d, ffn, layers, vocab] =
                [config.hidden, config.ffn, config.layers, config.vocab].map(|size| size as u64);
            let formula = 2 * b * n * (layers * (4 * d * d + 3 * d * ffn) + d * vocab) + 4 * b * layers * n * n * d;
            let work = config.forward_work(4, 512, Attention::Naive, Dtype::F32);
            assert_eq!(work.total().flops, formula, "{}", config.name);
            assert_eq!(work.total().kv_read + work.total().kv_written, 0);
        }
    }

    #[test]
    fn a_step_reads_every_weight_once_and_the_cache() {
        let config = Config::from_preset("Qwen3-0.6B").unwrap();
        let total = config.step_work(1, 512, Dtype::Bf16).total();
        // The head is the embedding, so one row of it is read twice.
        assert_eq!(total.weight_bytes, 2 * (596_049_920 + 1024));
        assert_eq!((total.kv_read, total.kv_written), (512 * 114_688, 114_688));
        let untied = Config::from_preset("Qwen3-8B").unwrap();
        let unread = 151_936 * 4096 - 4096;
        assert_eq!(untied.step_work(1, 0, Dtype::Bf16).total().weight_bytes, 2 * (8_190_735_360 - unread));
    }

    #[test]
    fn a_step_of_a_small_model_is_limited_by_memory() {
        let step = Config::from_preset("Qwen3-0.6B").unwrap().step_work(1, 512, Dtype::Bf16);
        assert_eq!(step.total().bytes_read(), 2 * 596_050_944 + 512 * 114_688);
        assert!(step.total().bytes_read() as f64 / 4.5e12 > step.total().flops as f64 / 8e14);
        assert_eq!(step.work().bytes, step.total().bytes_read());
    }

    #[test]
    fn fused_attention_computes_half_of_the_pairs_and_the_diagonal() {
        let config = Config::from_preset("tiny").unwrap();
        let flops = |attention| config.prefill_work(1, 8, 4, attention, Dtype::F32).stage(Stage::Attention).flops;
        let a_pair = 4 * 2 * 4 * 16;
        assert_eq!(flops(Attention::Naive), a_pair * 8 * 12);
        assert_eq!(flops(Attention::Dense), a_pair * (8 * 4 + 36));
    }

    #[test]
    fn dropped_pairs_are_not_counted() {
        let config = Config::from_preset("tiny").unwrap();
        let dense = config.forward_work(3, 8, Attention::Dense, Dtype::F32);
        assert_eq!(dense.with_pairs(&config, 3, 36), dense);
        let fewer = dense.with_pairs(&config, 3, 18);
        assert_eq!(2 * fewer.stage(Stage::Attention).flops, dense.stage(Stage::Attention).flops);
        assert_eq!(fewer.stage(Stage::Ffn), dense.stage(Stage::Ffn));
    }

    #[test]
    fn prefill_computes_logits_of_one_position() {
        let config = Config::from_preset("tiny").unwrap();
        let head = |work: PassWork| work.stage(Stage::Head).flops;
        assert_eq!(head(config.prefill_work(3, 10, 0, Attention::Dense, Dtype::F32)), 2 * 3 * 64 * 512);
        assert_eq!(head(config.forward_work(3, 10, Attention::Dense, Dtype::F32)), 2 * 30 * 64 * 512);
    }

    #[test]
    fn a_layer_with_a_window_computes_and_reads_visible_keys() {
        let config = Config::from_preset("tiny-gemma3").unwrap();
        let (window, a_pair) = (32, 4 * 4 * 16);
        for (tokens, start) in [(8, 0), (1, 31), (1, 32), (40, 0), (40, 20), (5, 200)] {
            let positions = start + 1..=start + tokens;
            let seen: usize = positions.map(|keys| keys + keys.min(window)).sum();
            let work = config.prefill_work(1, tokens, start, Attention::Dense, Dtype::F32).stage(Stage::Attention);
            assert_eq!(work.flops, (a_pair * seen) as u64, "{tokens} behind {start}");
            let a_position = config.kv_bytes_per_token(Dtype::F32) as usize / 2;
            let read = (start + start.min(window - 1)) * a_position;
            assert_eq!((work.kv_read, work.kv_written), (read as u64, (2 * tokens * a_position) as u64));
        }
        let total = config.step_work(1, 0, Dtype::F32).total();
        assert_eq!(total.weight_bytes, 4 * (config.parameters() + 64));
    }

    proptest! {
        #[test]
        fn a_prompt_in_two_parts_has_the_operations_of_one_but_for_the_extra_logits(
            first in 1_usize..600, second in 1_usize..600, batch in 1_usize..5,
        ) {
            let config = Config::from_preset("Qwen2.5-0.5B").unwrap();
            let prefill = |tokens, start| config.prefill_work(batch, tokens, start, Attention::Dense, Dtype::Bf16);
            let (whole, head) = (prefill(first + second, 0), prefill(1, 0).stage(Stage::Head).flops);
            let parts = prefill(first, 0).plus(&prefill(second, first));
            prop_assert_eq!(whole.total().flops + head, parts.total().flops);
            prop_assert_eq!(whole.total().kv_written, parts.total().kv_written);
        }

        #[test]
        fn huge_sizes_saturate(batch in any::<usize>(), tokens in any::<usize>(), start in any::<usize>()) {
            let config = Config::from_preset("Qwen3-8B").unwrap();
            let total = config.prefill_work(batch, tokens, start, Attention::Naive, Dtype::F32).total();
            prop_assert!(total.weight_bytes > 0);
        }
    }
}
