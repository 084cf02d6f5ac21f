//! What stages have to do, counted as the work of a pass is (`work.rs`).
//!
//! Of the embedding only the row that is looked up is read, and of the head four rows. The diffusion head reads its weights
//! once a step for both streams; its time embeddings are computed before the first token. Of tokenizers every convolution and
//! product is counted, activations and norms are not.

use super::{
    ConnectorTensors, TokenizerConfig, VibeVoiceConfig,
    tensors::{TokenizerTensors, Way},
};
use crate::{Attention, Dtype, Stage, StageWork, TensorSpec, tts::Counted};

/// A stage of a token, or of what comes before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VibeVoiceStage {
    /// A voice, through the acoustic encoder.
    VoiceEncode,
    /// The prompt, through the language model.
    Prefill,
    /// A token, through the language model that knows the script.
    TransformerPositive,
    /// A token, through the one that does not.
    TransformerNegative,
    /// Noise made a latent.
    Diffusion,
    /// A latent made audio.
    AudioDecode,
    /// Audio heard.
    SemanticEncode,
}

impl VibeVoiceStage {
    /// All of them, in the order of a reading.
    pub const ALL: [Self; 7] = [
        Self::VoiceEncode,
        Self::Prefill,
        Self::TransformerPositive,
        Self::TransformerNegative,
        Self::Diffusion,
        Self::AudioDecode,
        Self::SemanticEncode,
    ];

    /// The name by which a stage is marked.
    pub const fn word(self) -> &'static str {
        match self {
            Self::VoiceEncode => "voice_encode",
            Self::Prefill => "prefill",
            Self::TransformerPositive => "transformer_positive",
            Self::TransformerNegative => "transformer_negative",
            Self::Diffusion => "diffusion",
            Self::AudioDecode => "audio_decode",
            Self::SemanticEncode => "semantic_encode",
        }
    }
}

/// Rows that the diffusion head runs at once: one of each stream.
const STREAMS: u64 = 2;

impl VibeVoiceConfig {
    /// The work of encoding a voice of this many tokens.
    pub fn voice_encode_work(&self, tokens: usize, dtype: Dtype) -> StageWork {
        let encoder = tokenizer_work(&self.acoustic_encoder_tensors(), &self.acoustic, Way::Encoder, tokens, dtype);
        let [connector, _] = self.connector_tensors();
        encoder.plus(connector_work(&connector, tokens as u64, dtype))
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
        let tensors = self.head_tensors();
        let mut once = Counted::new(dtype);
        once.product(&tensors.condition, STREAMS);
        let mut step = Counted::new(dtype);
        // Both streams begin a step with the same row.
        step.product(&tensors.enter, 1);
        for layer in &tensors.layers {
            step.read(&layer.norm);
            let products: [&TensorSpec; 4] = [&layer.adapt, &layer.gate_up[0], &layer.gate_up[1], &layer.down];
            products.into_iter().for_each(|spec| step.product(spec, STREAMS));
        }
        step.product(&tensors.last_adapt, STREAMS);
        step.product(&tensors.leave, STREAMS);
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
        tokenizer_work(&self.acoustic_decoder_tensors(), &self.acoustic, Way::Decoder, tokens, dtype)
    }

    /// The work of hearing the audio of this many tokens at once.
    pub fn semantic_encode_work(&self, tokens: usize, dtype: Dtype) -> StageWork {
        tokenizer_work(&self.semantic_encoder_tensors(), &self.semantic, Way::Encoder, tokens, dtype)
    }

    /// The work of both connectors on one row each.
    pub fn connect_work(&self, dtype: Dtype) -> StageWork {
        let works = self.connector_tensors().map(|connector| connector_work(&connector, 1, dtype));
        works.into_iter().fold(StageWork::default(), StageWork::plus)
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

fn connector_work(tensors: &ConnectorTensors, rows: u64, dtype: Dtype) -> StageWork {
    let mut work = Counted::new(dtype);
    work.linear(&tensors.enter, rows);
    work.read(&tensors.norm);
    work.linear(&tensors.leave, rows);
    work.work
}

fn tokenizer_work(
    tensors: &TokenizerTensors,
    config: &TokenizerConfig,
    way: Way,
    tokens: usize,
    dtype: Dtype,
) -> StageWork {
    let mut work = Counted::new(dtype);
    let ratios: Vec<u64> = match way {
        Way::Encoder => config.ratios.iter().map(|ratio| *ratio as u64).collect(),
        Way::Decoder => config.ratios.iter().rev().map(|ratio| *ratio as u64).collect(),
    };
    let tokens = tokens as u64;
    let mut rows = if way == Way::Encoder { tokens.saturating_mul(config.hop() as u64) } else { tokens };
    for (at, stage) in tensors.stages.iter().enumerate() {
        let ratio = at.checked_sub(1).and_then(|at| ratios.get(at)).copied().unwrap_or(1).max(1);
        // Rows that come out of what shortens, rows that go into what lengthens.
        let counted = if way == Way::Encoder { rows / ratio } else { rows };
        work.conv(&stage.enter, counted);
        rows = if way == Way::Encoder { counted } else { rows.saturating_mul(ratio) };
        for block in &stage.blocks {
            work.conv(&block.mixer, rows);
            work.linear(&block.up, rows);
            work.linear(&block.down, rows);
            [&block.norm, &block.scale, &block.ffn_norm, &block.ffn_scale].into_iter().for_each(|spec| work.read(spec));
        }
    }
    work.conv(&tensors.head, rows);
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
        let decoder: u64 = config.acoustic_decoder_tensors().all().iter().map(|spec| spec.count() as u64).sum();
        assert_eq!(config.audio_decode_work(1, Dtype::F32).weight_bytes, 4 * decoder);
        let token = config.token_work([100, 10], 10, Dtype::Bf16);
        assert!(token.flops > config.diffusion_work(10, Dtype::Bf16).flops && token.kv_read > 0);
    }
}
