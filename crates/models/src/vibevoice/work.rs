//! What stages have to do, counted as the work of a pass is (`work.rs`).
//!
//! Of the embedding only the row that is looked up is read, and of the head four rows. The diffusion head reads its weights
//! once a step for both streams; its time embeddings are computed before the first token. Of tokenizers every convolution and
//! product is counted, activations and norms are not.

use super::tensors::{Connector, Tokenizer, Weights};
use super::{VibeVoiceConfig, diffusion_head::STREAMS};
use crate::tts::{Counted, Specs};
use crate::{Attention, Dtype, Stage, StageWork};

impl VibeVoiceConfig {
    /// The work of encoding a voice of this many tokens.
    pub fn voice_encode_work(&self, tokens: usize, dtype: Dtype) -> StageWork {
        let encoder = tokenizer_work(&self.specs().0.acoustic_encoder, tokens, dtype);
        encoder.plus(connector_work(&self.specs().0.acoustic_connector, tokens, dtype))
    }

    /// The work of running a prompt of this many positions.
    pub fn prefill_work(&self, positions: usize, dtype: Dtype) -> StageWork {
        self.stepped_decoder().prefill_work(1, positions, 0, Attention::Dense, dtype).total()
    }

    /// The work of a step of the positive stream behind this many positions.
    pub fn positive_work(&self, position: usize, dtype: Dtype) -> StageWork {
        self.stepped_decoder().step_work(1, position, dtype).total()
    }

    /// The work of a step of the negative stream behind this many positions: it needs no head.
    pub fn negative_work(&self, position: usize, dtype: Dtype) -> StageWork {
        let pass = self.stepped_decoder().step_work(1, position, dtype);
        let (all, head) = (pass.total(), pass.stage(Stage::Head));
        let norm = (self.decoder.hidden as u64).saturating_mul(dtype.bytes());
        let weight_bytes = all.weight_bytes.saturating_sub(head.weight_bytes).saturating_add(norm);
        StageWork { flops: all.flops.saturating_sub(head.flops), weight_bytes, ..all }
    }

    /// The work of making a latent in this many steps.
    pub fn diffusion_work(&self, steps: usize, dtype: Dtype) -> StageWork {
        let (tensors, streams) = (self.specs().0.diffusion_head, STREAMS as u64);
        let mut once = Counted::new(dtype);
        tensors.condition.iter().for_each(|spec| once.product(spec, streams));
        let mut step = Counted::new(dtype);
        // Both streams begin a step with the same row.
        tensors.enter.iter().for_each(|spec| step.product(spec, 1));
        for layer in &tensors.layers {
            step.read_all(&layer.norm);
            let products = [&layer.adapt, &layer.gate_up, &layer.down].into_iter().flatten();
            products.for_each(|spec| step.product(spec, streams));
        }
        tensors.adapt.iter().chain(&tensors.leave).for_each(|spec| step.product(spec, streams));
        let steps = steps as u64;
        let StageWork { flops, weight_bytes, .. } = step.work;
        once.work.plus(StageWork {
            flops: flops.saturating_mul(steps),
            weight_bytes: weight_bytes.saturating_mul(steps),
            ..StageWork::default()
        })
    }

    /// The work of making audio of this many latents at once.
    pub fn audio_decode_work(&self, tokens: usize, dtype: Dtype) -> StageWork {
        tokenizer_work(&self.specs().0.acoustic_decoder, tokens, dtype)
    }

    /// The work of hearing the audio of this many tokens at once.
    pub fn semantic_encode_work(&self, tokens: usize, dtype: Dtype) -> StageWork {
        tokenizer_work(&self.specs().0.semantic_encoder, tokens, dtype)
    }

    /// The work of both connectors on one row each.
    pub fn connect_work(&self, dtype: Dtype) -> StageWork {
        let Weights { acoustic_connector, semantic_connector, .. } = self.specs().0;
        connector_work(&acoustic_connector, 1, dtype).plus(connector_work(&semantic_connector, 1, dtype))
    }

    /// The work of a token of audio, behind this many positions of either stream and in this many steps.
    pub fn token_work(&self, [positive, negative]: [usize; 2], steps: usize, dtype: Dtype) -> StageWork {
        let parts = [
            self.positive_work(positive, dtype),
            self.negative_work(negative, dtype),
            self.diffusion_work(steps, dtype),
            self.audio_decode_work(1, dtype),
            self.semantic_encode_work(1, dtype),
            self.connect_work(dtype),
        ];
        parts.into_iter().fold(StageWork::default(), StageWork::plus)
    }
}

fn connector_work(tensors: &Connector<Specs>, rows: usize, dtype: Dtype) -> StageWork {
    let mut work = Counted::new(dtype);
    work.layer(&tensors.enter, rows);
    work.read_all(&tensors.norm);
    work.layer(&tensors.leave, rows);
    work.work
}

fn tokenizer_work(tokenizer: &Tokenizer<Specs>, tokens: usize, dtype: Dtype) -> StageWork {
    let mut work = Counted::new(dtype);
    let mut rows = tokens.saturating_mul(tokenizer.shape.entering);
    for (stage, shape) in tokenizer.stages.iter().zip(&tokenizer.shape.stages) {
        work.conv(&stage.enter, shape.enter.looks(rows) as u64);
        rows = shape.enter.rows(rows);
        for block in &stage.blocks {
            work.conv(&block.mixer, rows as u64);
            work.layer(&block.up, rows);
            work.layer(&block.down, rows);
            work.read_all(&[&block.norm[..], &block.scale, &block.ffn_norm, &block.ffn_scale].concat());
        }
    }
    work.conv(&tokenizer.head, rows as u64);
    work.work
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_the_language_model_twice_and_the_head_once_a_step() {
        let config = VibeVoiceConfig::from_preset("7b").unwrap();
        let body: u64 = 28 * 233_057_792 + 3584;
        let positive = config.positive_work(0, Dtype::Bf16);
        assert_eq!(positive.weight_bytes, 2 * (body + 4 * 3584 + 3584));
        let negative = config.negative_work(0, Dtype::Bf16);
        assert_eq!(negative.weight_bytes, 2 * (body + 3584));
        let steps = |steps| config.diffusion_work(steps, Dtype::Bf16).weight_bytes;
        let (condition, time) = (3584 * 3584, 256 * 3584 + 3584 * 3584);
        let a_step = 669_333_504 - condition - time;
        assert_eq!((steps(10), steps(20)), (2 * (condition + 10 * a_step), 2 * (condition + 20 * a_step)));
    }

    #[test]
    fn a_latent_more_is_as_much_work_again_and_reads_nothing_more() {
        let config = VibeVoiceConfig::from_preset("1.5b").unwrap();
        for work in [VibeVoiceConfig::audio_decode_work, VibeVoiceConfig::semantic_encode_work] {
            let (one, two) = (work(&config, 1, Dtype::F32), work(&config, 2, Dtype::F32));
            assert_eq!((two.flops, two.weight_bytes), (2 * one.flops, one.weight_bytes));
        }
        let mut decoder = Specs::default();
        let name = "model.audio_tower.decoder";
        let Ok(_) = Tokenizer::<Specs>::load(&mut decoder, name, &config.acoustic, super::super::plan::Way::Decoder);
        let decoder: u64 = decoder.0.iter().map(|spec| spec.count() as u64).sum();
        assert_eq!(config.audio_decode_work(1, Dtype::F32).weight_bytes, 4 * decoder);
        let token = config.token_work([100, 10], 10, Dtype::Bf16);
        assert!(token.flops > config.diffusion_work(10, Dtype::Bf16).flops && token.kv_read > 0);
    }
}
