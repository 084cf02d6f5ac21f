//! What stages have to do, counted as the work of a pass is (`work.rs`).
//!
//! Of the embedding only the row that is looked up is read, and of the head four rows. The diffusion head reads its weights
//! once per step for both streams, but for its adaptations, which are computed for all steps at once; its time embeddings are
//! computed before the first token. Of tokenizers every convolution and product is counted, activations and norms are not.

use super::{VibeVoiceConfig, count::Count, diffusion_head, tensors::Weights};
use crate::{Attention, Dtype, StageWork, work::Pass};

impl VibeVoiceConfig {
    /// The work of encoding a voice of this many tokens.
    pub fn voice_encode_work(&self, tokens: usize, dtype: Dtype) -> StageWork {
        let Weights { acoustic_encoder, acoustic_connector, .. } = &self.specs().0;
        Count::of(dtype, 0, |count| {
            count.tokenizer(acoustic_encoder, tokens)?;
            count.connector(acoustic_connector, tokens)
        })
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
        let attention = Attention::Dense;
        let pass = Pass { batch: 1, tokens: 1, start: position, logits: 0, is_cached: true, attention };
        self.stepped_decoder().pass_work(pass, dtype).total()
    }

    /// The work of generating a latent in this many steps.
    pub fn diffusion_work(&self, steps: usize, dtype: Dtype) -> StageWork {
        let head = &self.specs().0.diffusion_head;
        Count::of(dtype, steps, |count| diffusion_head::run(count, head, &mut 0, [1.0, 0.0]))
    }

    /// The work of decoding the audio of this many latents at once.
    pub fn audio_decode_work(&self, tokens: usize, dtype: Dtype) -> StageWork {
        Count::of(dtype, 0, |count| count.tokenizer(&self.specs().0.acoustic_decoder, tokens))
    }

    /// The work of encoding the audio of this many tokens at once.
    pub fn semantic_encode_work(&self, tokens: usize, dtype: Dtype) -> StageWork {
        Count::of(dtype, 0, |count| count.tokenizer(&self.specs().0.semantic_encoder, tokens))
    }

    /// The work of both connectors on one row each.
    pub fn connect_work(&self, dtype: Dtype) -> StageWork {
        let Weights { acoustic_connector, semantic_connector, .. } = &self.specs().0;
        let connectors = [acoustic_connector, semantic_connector];
        Count::of(dtype, 0, |count| connectors.into_iter().try_for_each(|connector| count.connector(connector, 1)))
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
        // The adaptations of four layers and of the last norm are computed for all steps at once.
        let adapt = (4 * 3 + 2) * 3584 * 3584;
        let (once, a_step) = (condition + adapt, 669_333_504 - condition - time - adapt);
        assert_eq!((steps(10), steps(20)), (2 * (once + 10 * a_step), 2 * (once + 20 * a_step)));
    }

    #[test]
    fn a_latent_more_is_as_much_work_again_and_reads_nothing_more() {
        let config = VibeVoiceConfig::from_preset("1.5b").unwrap();
        for work in [VibeVoiceConfig::audio_decode_work, VibeVoiceConfig::semantic_encode_work] {
            let (one, two) = (work(&config, 1, Dtype::F32), work(&config, 2, Dtype::F32));
            assert_eq!((two.flops, two.weight_bytes), (2 * one.flops, one.weight_bytes));
        }
        let decoder = config.specs().1.into_iter().filter(|spec| spec.name.starts_with("model.audio_tower.decoder"));
        let decoder: u64 = decoder.map(|spec| spec.count() as u64).sum();
        assert_eq!(config.audio_decode_work(1, Dtype::F32).weight_bytes, 4 * decoder);
        let token = config.token_work([100, 10], 10, Dtype::Bf16);
        assert!(token.flops > config.diffusion_work(10, Dtype::Bf16).flops && token.kv_read > 0);
    }
}
