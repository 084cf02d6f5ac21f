//! Predicted work and memory. Work is counted by operations that compute nothing.
//!
//! Of the embedding only the row that is looked up is read, and of the head four rows. The diffusion head reads its weights
//! once per step for both streams, but its adaptations once for all steps; its time embeddings are computed before the first
//! token. In tokenizers, activations and norms are not counted.

use super::ops::{run_diffusion, run_tokenizer};
use super::tensors::{Connector, DiffusionHead, HeadLayer, Kinds, Mixer, Tokenizer, VoiceLoad, Weights};
use super::{
    ConvShape, DiffusionOps, Done, Rows, STREAMS, TokenizerOps, TokenizerShape, VibeVoiceConfig, VibeVoiceOptions,
};
use crate::decoder::count::{Counted, Specs};
use crate::tensors::{product, sum};
use crate::tts::{ConvTensors, Loaded, TtsLoad};
use crate::{Attention, Dtype, ModelError, StageWork, TensorSpec, work::Pass};

/// Counts work. Its weights are their own descriptions.
pub struct Count {
    counted: Counted,
    steps: usize,
}

impl Kinds for Count {
    type Matrix = Vec<TensorSpec>;
    type Vector = Vec<TensorSpec>;
    type Conv = (ConvTensors, ConvShape);
    type Depthwise = ConvTensors;
}

impl VoiceLoad<Count> for Specs {
    fn conv(&mut self, tensors: &ConvTensors, shape: ConvShape) -> Loaded<(ConvTensors, ConvShape), Self> {
        Ok((TtsLoad::depthwise(self, tensors)?, shape))
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Loaded<ConvTensors, Self> {
        TtsLoad::depthwise(self, tensors)
    }
}

impl Count {
    /// The work of `run`, with this many diffusion steps.
    fn of(dtype: Dtype, steps: usize, run: impl FnOnce(&mut Self) -> Done) -> StageWork {
        let mut count = Self { counted: Counted::new(dtype), steps };
        // Counting cannot fail.
        let _ = run(&mut count);
        count.counted.work
    }

    fn tokenizer(&mut self, of: &Tokenizer<Self>, tokens: usize) -> Done {
        let mut rows = self.flow(&of.shape, tokens)?;
        run_tokenizer(self, of, &mut rows, tokens)
    }

    fn connector(&mut self, of: &Connector<Self>, rows: usize) -> Done {
        self.counted.layer(&of.enter, rows);
        self.counted.read(&of.norm);
        self.counted.layer(&of.leave, rows);
        Ok(())
    }

    fn product(&mut self, weight: &[TensorSpec], rows: usize) -> Done {
        self.counted.product(weight, rows as u64);
        Ok(())
    }
}

impl TokenizerOps for Count {
    /// Rows of the next convolution.
    type Flow = usize;

    const TOGETHER: usize = usize::MAX;

    fn flow(&self, shape: &TokenizerShape, tokens: usize) -> Result<usize, ModelError> {
        Ok(tokens.saturating_mul(shape.entering))
    }

    fn forget(&mut self, _: &mut usize) -> Done {
        Ok(())
    }

    fn enter(&mut self, _: &mut usize, _: &[f32]) -> Done {
        Ok(())
    }

    fn convolve(&mut self, rows: &mut usize, _: usize, (conv, shape): &(ConvTensors, ConvShape), _: usize) -> Done {
        self.counted.conv(conv, shape.product_rows(*rows) as u64);
        *rows = shape.rows(*rows);
        Ok(())
    }

    fn add_norm(&mut self, _: &mut usize, _: Rows, done: Option<&Mixer<Self>>, next: Option<&Mixer<Self>>) -> Done {
        self.counted.read(done.iter().flat_map(|block| &block.ffn_scale));
        self.counted.read(next.iter().flat_map(|block| &block.norm));
        Ok(())
    }

    fn block(&mut self, _: &mut usize, Rows { rows, .. }: Rows, block: &Mixer<Self>) -> Done {
        self.counted.conv(&block.mixer, rows as u64);
        self.counted.read([&block.scale, &block.ffn_norm].into_iter().flatten());
        self.counted.layer(&block.up, rows);
        self.counted.layer(&block.down, rows);
        Ok(())
    }

    fn leave(&mut self, _: &usize, _: &TokenizerShape, _: usize) -> Result<Vec<f32>, ModelError> {
        Ok(Vec::new())
    }
}

impl DiffusionOps for Count {
    fn steps(&self) -> usize {
        self.steps
    }

    fn condition(&mut self, head: &DiffusionHead<Self>) -> Done {
        self.product(&head.condition, STREAMS)?;
        let rows = STREAMS.saturating_mul(self.steps);
        head.adapts().try_for_each(|weight| self.product(weight, rows))
    }

    /// Both streams start a step with the same row.
    fn begin_step(&mut self, _: usize, enter: &Vec<TensorSpec>) -> Done {
        self.product(enter, 1)
    }

    fn layer(&mut self, _: usize, _: usize, weights: &HeadLayer<Self>) -> Done {
        self.counted.read(&weights.norm);
        self.product(&weights.gate_up, STREAMS)?;
        self.product(&weights.down, STREAMS)
    }

    fn velocity(&mut self, _: usize, leave: &Vec<TensorSpec>) -> Done {
        self.product(leave, STREAMS)
    }

    fn end_steps(&mut self, _: &mut usize, _: [f32; 2]) -> Done {
        Ok(())
    }
}

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

    /// The work of a step of the positive stream after this many positions.
    pub fn positive_work(&self, position: usize, dtype: Dtype) -> StageWork {
        self.stepped_decoder().step_work(1, position, dtype).total()
    }

    /// The work of a step of the negative stream, without the head, after this many positions.
    pub fn negative_work(&self, position: usize, dtype: Dtype) -> StageWork {
        let attention = Attention::Dense;
        let pass = Pass { batch: 1, tokens: 1, start: position, logits: 0, is_cached: true, attention };
        self.stepped_decoder().pass_work(pass, dtype).total()
    }

    /// The work of generating a latent in this many steps.
    pub fn diffusion_work(&self, steps: usize, dtype: Dtype) -> StageWork {
        let head = &self.specs().0.diffusion_head;
        Count::of(dtype, steps, |count| run_diffusion(count, head, &mut 0, [1.0, 0.0]))
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

    /// The work of a token of audio after this many positions of either stream, with this many diffusion steps.
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

/// The sizes of a generation, to predict its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadingSizes {
    /// Positions of the prompt.
    pub positions: usize,
    /// Positions that are audio of voices.
    pub voices: usize,
    /// Generated tokens.
    pub tokens: usize,
    /// Diffusion steps.
    pub steps: usize,
}

/// The needs of a device.
pub(crate) struct Own {
    pub weights: u64,
    /// Bytes only while weights are loaded.
    pub loading: u64,
    pub capacities: [usize; 2],
    pub numbers: u64,
    pub bytes: u64,
}

pub(crate) fn needed_bytes(
    config: &VibeVoiceConfig,
    options: &VibeVoiceOptions,
    reading: &ReadingSizes,
    own: &Own,
) -> u64 {
    let [capacity, negative] = own.capacities.map(|capacity| capacity.min(config.decoder.context));
    let numbers = diffusion_numbers(config, reading.steps).saturating_add(own.numbers);
    let rope = product(&[capacity.max(negative), config.decoder.head_dim, size_of::<f32>()]);
    let runs = sum([numbers.saturating_mul(options.dtype.bytes()), rope, own.bytes]);
    sum([own.weights, config.cache_bytes(capacity, negative, options.dtype), runs.max(own.loading)])
}

/// The size of the head's buffers on any device: times, conditioning and adaptations of all steps, and two hidden rows with
/// the inner states of a layer.
fn diffusion_numbers(config: &VibeVoiceConfig, steps: usize) -> u64 {
    let [hidden, ffn, layers] = [config.decoder.hidden, config.head.ffn, config.head.layers].map(|size| size as u64);
    let per_step = layers.saturating_mul(3).saturating_add(3).saturating_mul(STREAMS as u64).saturating_add(1);
    let of_steps = hidden.saturating_mul(per_step).saturating_mul(steps as u64);
    of_steps.saturating_add(hidden.saturating_mul(2).saturating_add(ffn).saturating_mul(STREAMS as u64))
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
    fn work_grows_with_latents_but_weights_are_read_once() {
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
