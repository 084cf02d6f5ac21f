//! Tensors, buffer sizes, work and memory, predicted from the definition that loads and computes.
//!
//! Only the rows of embeddings and codebooks that are looked up are counted. Weights are read once per pass, so fifteen
//! times per frame by the code predictor. In the codec, activations and norms are not counted.

use std::{convert::Infallible, ops::Range, slice::from_ref};

use super::ops::{CodecOps, Flow, decode};
use super::tensors::{
    CodecWeights, ConvTensors, Linear, LinearOf, NextWeights, Parts, PredictorWeights, Table, TalkerWeights, TtsLoad,
};
use super::{CHUNK_FRAMES, CONTEXT_FRAMES, CodecConfig, Part, TtsConfig, TtsOptions, chunks};
use crate::attention::{Layout, Tiling};
use crate::decoder::count::{Counted, Specs};
use crate::decoder::weights::Load;
use crate::tensors::{product, sum};
use crate::{Attention, Done, Dtype, HasTensors, ModelError, PassWork, Role, Stage, StageWork, TensorSpec, work::Pass};

impl Parts for Specs {
    type Matrix = Vec<TensorSpec>;
    type Vector = Vec<TensorSpec>;
    /// With its dilation, or with its stride if it is transposed.
    type Conv = (ConvTensors, usize);
    type Depthwise = ConvTensors;
    type Snake = Vec<TensorSpec>;
    type Bridge = LinearOf<Self>;
}

impl TtsLoad for Specs {
    type Parts = Self;

    fn conv(&mut self, tensors: &ConvTensors, step: usize) -> Result<(ConvTensors, usize), Infallible> {
        Ok((self.depthwise(tensors)?, step))
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<ConvTensors, Infallible> {
        self.0.extend([tensors.weight.clone(), tensors.bias.clone()]);
        Ok(tensors.clone())
    }

    fn snake(&mut self, tensors: &[TensorSpec; 2]) -> Result<Vec<TensorSpec>, Infallible> {
        self.matrix(tensors)
    }

    fn codebooks(&mut self, tensors: &[[TensorSpec; 2]]) -> Result<Vec<TensorSpec>, Infallible> {
        self.matrix(tensors.as_flattened())
    }

    fn side_by_side(&mut self, tensors: &[TensorSpec; 2]) -> Result<Vec<TensorSpec>, Infallible> {
        self.matrix(tensors)
    }

    fn scale_rows(&mut self, _: &mut Vec<TensorSpec>, scale: &TensorSpec) -> Result<(), Infallible> {
        self.matrix(from_ref(scale)).map(drop)
    }

    fn bridge(&mut self, linear: LinearOf<Self>, _: [&Vec<TensorSpec>; 2]) -> Result<LinearOf<Self>, Infallible> {
        Ok(linear)
    }
}

impl TtsConfig {
    fn codec_specs(&self) -> (CodecWeights<Specs>, Vec<TensorSpec>) {
        let mut loader = Specs::default();
        let Ok(codec) = Table { config: self, loader: &mut loader }.codec();
        (codec, loader.0)
    }

    fn talker_specs(&self) -> (TalkerWeights<Specs>, PredictorWeights<Specs>, Vec<TensorSpec>) {
        let mut loader = Specs::default();
        let mut table = Table { config: self, loader: &mut loader };
        let Ok(talker) = table.talker();
        let Ok(predictor) = table.predictor(&talker);
        (talker, predictor, loader.0)
    }

    /// The tensors of `model.safetensors`.
    pub(crate) fn talker_file_tensors(&self) -> Vec<TensorSpec> {
        self.talker_specs().2
    }

    /// The tensors of `speech_tokenizer/model.safetensors` that the decoder needs.
    pub(crate) fn codec_file_tensors(&self) -> Vec<TensorSpec> {
        self.codec_specs().1
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodecSizes {
    pub hidden: usize,
    pub inner: usize,
    /// Rows, inputs and taps of each convolution.
    pub convs: Vec<[usize; 3]>,
}

impl CodecSizes {
    pub fn new(config: &TtsConfig) -> Self {
        CodecCount::run(config, &config.codec_specs().0, 1, Dtype::F32).sizes
    }
}

struct CodecCount<'a> {
    config: &'a CodecConfig,
    /// Everything but the layers of the transformer.
    counted: Counted,
    sizes: CodecSizes,
}

impl<'a> CodecCount<'a> {
    fn run(config: &'a TtsConfig, weights: &CodecWeights<Specs>, frames: usize, dtype: Dtype) -> Self {
        let mut count = Self { config: &config.codec, counted: Counted::new(dtype), sizes: CodecSizes::default() };
        // Counting cannot fail.
        let _ = decode(&mut count, weights, frames);
        count
    }

    fn hidden(&mut self, rows: usize, width: usize) {
        self.sizes.hidden = self.sizes.hidden.max(rows.saturating_mul(width));
    }
}

impl CodecOps for CodecCount<'_> {
    type Parts = Specs;

    fn look_up(&mut self, weights: &CodecWeights<Specs>, frames: usize) -> Done {
        self.counted.read_numbers(&[frames, self.config.groups, self.config.vector_width()]);
        self.counted.product(&weights.projection, frames as u64);
        self.hidden(frames, self.config.code_width);
        Ok(())
    }

    fn conv(
        &mut self,
        (tensors, step): &(ConvTensors, usize),
        snake: Option<&Vec<TensorSpec>>,
        rows: usize,
        _: Flow,
    ) -> Result<usize, ModelError> {
        let side = |at: usize| tensors.weight.shape.get(at).copied().unwrap_or(1);
        let [inputs, outputs, taps, stride] = match tensors.weight.role {
            Role::Lengthen => [side(0), side(1), side(2).div_ceil((*step).max(1)), *step],
            _ => [side(1), side(0), side(2), 1],
        };
        self.counted.read(snake.into_iter().flatten());
        self.counted.conv(tensors, rows as u64);
        self.sizes.convs.push([rows, inputs, taps]);
        let rows = rows.saturating_mul(stride);
        self.hidden(rows, outputs);
        Ok(rows)
    }

    fn transformer(&mut self, _: &CodecWeights<Specs>, frames: usize) -> Done {
        let transformer = &self.config.transformer;
        self.counted.read_numbers(&[2, transformer.layers, transformer.hidden]);
        self.hidden(frames, transformer.hidden);
        Ok(())
    }

    fn next_block(&mut self, next: &NextWeights<Specs>, rows: usize) -> Done {
        self.counted.conv(&next.depthwise, rows as u64);
        self.counted.read(next.norm.iter().flatten());
        self.counted.layer(&next.up, rows);
        self.counted.layer(&next.down, rows);
        self.counted.read(&next.scale);
        let inner = next.up.bias.iter().map(TensorSpec::count).sum();
        self.sizes.inner = self.sizes.inner.max(rows.saturating_mul(inner));
        // A product is a convolution with one tap.
        self.sizes.convs.extend([[rows, self.config.latent, 1], [rows, inner, 1]]);
        Ok(())
    }

    fn to_samples(&mut self, weights: &CodecWeights<Specs>, rows: usize) -> Done {
        self.conv(&weights.last, Some(&weights.snake), rows, Flow::Hidden).map(drop)
    }
}

impl TtsConfig {
    /// The work of each stage of a synthesis, by stage name: for a prompt of this many positions and following tokens, and
    /// this many frames, decoded at once or in chunks.
    pub fn stage_work(
        &self,
        [positions, following]: [usize; 2],
        frames: usize,
        chunk: Option<usize>,
        dtype: Dtype,
    ) -> [(&'static str, StageWork); 5] {
        let all = |works: &mut dyn Iterator<Item = StageWork>| works.fold(StageWork::default(), StageWork::plus);
        let (predictor, sampling) = (self.code_predictor_work(dtype), self.sampling_work());
        // The talker does not run after the last frame.
        let steps = &mut (1..frames).map(|frame| self.talker_step_work(positions + frame - 1, dtype));
        let chunk = chunk.unwrap_or(frames).max(1);
        let starts = (0..frames).step_by(chunk);
        let decode = &mut starts.map(|at| self.decode_work(at..at.saturating_add(chunk).min(frames), dtype));
        [
            ("prefill", self.prefill_work(positions, following, dtype)),
            ("code_predictor", all(&mut (0..frames).map(|_| predictor))),
            ("talker_step", all(steps)),
            ("sampling", all(&mut (0..frames).map(|_| sampling))),
            ("decode", all(decode)),
        ]
    }

    /// Following tokens and the padding are projected with the prompt.
    pub(crate) fn prefill_work(&self, positions: usize, following: usize, dtype: Dtype) -> StageWork {
        let pass = self.talker.prefill_work(1, positions, 0, Attention::Dense, dtype);
        pass.total().plus(self.text_work(positions.saturating_add(following).saturating_add(1), dtype))
    }

    /// The work of a talker step after this many positions.
    pub fn talker_step_work(&self, position: usize, dtype: Dtype) -> StageWork {
        let pass = self.talker.step_work(1, position, dtype);
        // The step counts one embedding row; a frame sums one per code.
        let rows = bytes((self.predicted() as u64).saturating_mul(self.talker.hidden as u64), dtype);
        pass.total().plus(StageWork { weight_bytes: rows, ..StageWork::default() })
    }

    /// The work of the code predictor for a frame.
    pub fn code_predictor_work(&self, dtype: Dtype) -> StageWork {
        let first = self.predictor.prefill_work(1, 2, 0, Attention::Dense, dtype);
        let steps = (2..=self.predicted()).map(|position| self.predictor.step_work(1, position, dtype));
        let passes = steps.fold(first, |all, step| all.plus(&step));
        let rows = 1 + self.predicted() as u64;
        without_embedding(&passes).plus(self.bridge_work(rows, dtype))
    }

    /// The work of sampling a semantic code: reads its logits and two masks. Comparisons are not counted.
    pub fn sampling_work(&self) -> StageWork {
        let read = (self.talker.vocab as u64).saturating_mul(4 + 1 + 1);
        StageWork { kv_read: read, ..StageWork::default() }
    }

    /// The work of decoding some frames and their context.
    pub fn decode_work(&self, frames: Range<usize>, dtype: Dtype) -> StageWork {
        let (weights, _) = self.codec_specs();
        let chunk = |frames: usize| {
            let counted = CodecCount::run(self, &weights, frames, dtype).counted;
            counted.work.plus(self.transformer_work(frames, dtype))
        };
        chunks(frames).map(|frames| chunk(frames.frames.len())).fold(StageWork::default(), StageWork::plus)
    }

    fn text_work(&self, rows: usize, dtype: Dtype) -> StageWork {
        let (talker, ..) = self.talker_specs();
        let mut work = Counted::new(dtype);
        work.read_numbers(&[rows, self.text_width]);
        work.layer(&talker.text_up, rows);
        work.layer(&talker.text_down, rows);
        work.work
    }

    fn bridge_work(&self, rows: u64, dtype: Dtype) -> StageWork {
        let mut work = Counted::new(dtype);
        work.read_numbers(&[rows as usize, self.talker.hidden]);
        if let Some(bridge) = self.talker_specs().1.bridge {
            // The first two rows run together, the others one by one.
            work.layer(&bridge, 2);
            (2..rows).for_each(|_| work.layer(&bridge, 1));
        }
        work.work
    }

    fn transformer_work(&self, frames: usize, dtype: Dtype) -> StageWork {
        let config = self.part(Part::Codec);
        let window = self.codec.window.min(frames) as u64;
        let pairs = window * (window + 1) / 2 + (frames as u64).saturating_sub(window).saturating_mul(window);
        let pass =
            Pass { batch: 1, tokens: frames, start: 0, logits: 0, is_cached: false, attention: Attention::Dense };
        without_embedding(&config.pass_work(pass, dtype).with_pairs(config, 1, pairs))
    }
}

fn without_embedding(pass: &PassWork) -> StageWork {
    let all = pass.total();
    StageWork { weight_bytes: all.weight_bytes - pass.stage(Stage::Embed).weight_bytes, ..all }
}

fn bytes(numbers: u64, dtype: Dtype) -> u64 {
    numbers.saturating_mul(dtype.bytes())
}

impl Counted {
    pub(crate) fn layer(&mut self, linear: &Linear<Vec<TensorSpec>>, rows: usize) {
        self.product(&linear.weight, rows as u64);
        self.read(&linear.bias);
    }

    /// `rows` counts outputs, or inputs of a transposed convolution.
    pub(crate) fn conv(&mut self, conv: &ConvTensors, rows: u64) {
        self.product([&conv.weight], rows);
        self.read([&conv.bias]);
    }
}

/// The needs of a device. First weights are loaded; then prompts and chunks of audio alternate.
pub struct DeviceNeeds {
    /// Bytes for as long as the model lives.
    pub kept: u64,
    /// Bytes until the weights are loaded.
    pub loading: u64,
    /// Bytes of the codec from its first chunk on.
    pub codec: u64,
    /// Bytes during a prompt.
    pub prefill: u64,
    /// Bytes during a chunk.
    pub chunk: u64,
    /// Positions of the RoPE tables of the talker and of the codec.
    pub positions: [usize; 2],
    /// The tiles of block attention.
    pub tiling: Tiling,
}

pub fn together(frames: usize) -> usize {
    frames.min(CHUNK_FRAMES + CONTEXT_FRAMES)
}

/// The peak for prompts of this many text tokens, including the positions before the first frame, and this many frames.
pub fn needed_bytes(
    config: &TtsConfig,
    options: &TtsOptions,
    [text, frames]: [usize; 2],
    sizes: &CodecSizes,
    device: DeviceNeeds,
) -> u64 {
    let (decoded, [positions, codec_positions]) = (together(frames), device.positions);
    let numbers = |numbers: u64| numbers.saturating_mul(options.dtype.bytes());
    let kept = sum([
        numbers(config.parameters()),
        config.cache_bytes(options.capacity, options.dtype),
        product(&[config.talker.head_dim, positions, 4]),
        product(&[config.predictor.head_dim, config.groups, 4]),
        product(&[config.codec.transformer.head_dim, codec_positions, 4]),
        // The list of codes may exist twice while it grows.
        product(&[config.groups, options.capacity.max(frames), 4 * 2]),
        device.kept,
    ]);
    // The largest tensor exists twice while it is packed.
    let largest = config.codec_file_tensors().iter().map(|spec| product(&spec.shape)).max().unwrap_or(0);
    let loading = numbers(largest).saturating_add(device.loading);
    let codec = sum([
        numbers(product(&[decoded, sizes.hidden, 2])),
        Layout::most_bytes(&config.codec.kept(), decoded, device.tiling),
        device.codec,
    ]);
    // Text: embeddings, inner states, and rows of the talker's width.
    let rows = sum([product(&[text, config.text_width, 2]), product(&[text, config.talker.hidden])]);
    let prefill = numbers(rows).saturating_add(device.prefill);
    kept.saturating_add(loading.max(codec.saturating_add(prefill.max(device.chunk))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_states_are_largest_where_they_are_longest() {
        let sizes = CodecSizes::new(&TtsConfig::from_preset("0.6b").unwrap());
        assert_eq!((sizes.hidden, sizes.inner), (1920 * 96, 4 * 1024 * 4));
    }

    fn config() -> TtsConfig {
        TtsConfig::from_preset("0.6b").unwrap()
    }

    #[test]
    fn a_frame_reads_the_talker_once_and_the_predictor_fifteen_times() {
        let config = config();
        let step = config.talker_step_work(0, Dtype::Bf16);
        // Layers and norm, head, and sixteen rows of codes.
        assert_eq!(step.weight_bytes, 2 * (440_467_456 + 3072 * 1024 + 16 * 1024));
        let predictor = config.code_predictor_work(Dtype::Bf16);
        assert_eq!(predictor.weight_bytes, 2 * (15 * 78_655_744 + 15 * 2048 * 1024 + 16 * 1024));
        let wide = TtsConfig::from_preset("1.7b").unwrap().code_predictor_work(Dtype::Bf16);
        let bridge = 15 * (2048 * 1024 + 1024) + 16 * 1024;
        assert_eq!(wide.weight_bytes, predictor.weight_bytes + 2 * bridge);
        let matrices = |norms: u64, body: u64| 2 * (body - norms);
        let norms = 28 * (2 * 1024 + 2 * 128) + 1024;
        assert_eq!(step.flops, matrices(norms, 440_467_456) + 2 * 3072 * 1024 + 4 * 28 * 2048);
        let text = 2048 * 2048 + 2048 + 2048 * 1024 + 1024;
        let prefill = config.prefill_work(10, 4, Dtype::Bf16);
        assert_eq!(prefill.weight_bytes, 2 * (440_467_456 + 3072 * 1024 + 10 * 1024 + text + 15 * 2048));
    }

    #[test]
    fn a_decoded_frame_has_the_work_of_its_convolutions() {
        let config = config();
        let work = |frames| config.decode_work(frames, Dtype::F32);
        let one = work(0..1);
        let per_unit = |channels: u64| 3 * 8 * channels * channels;
        let blocks = 2 * 1536 * 768 * 8 * 4
            + per_unit(768) * 32
            + 2 * 768 * 384 * 5 * 32
            + per_unit(384) * 160
            + 2 * 384 * 192 * 4 * 160
            + per_unit(192) * 640
            + 2 * 192 * 96 * 3 * 640
            + per_unit(96) * 1920;
        let next = (1 + 2) * 2 * 1024 * 1024 + (2 + 4) * (7 * 1024 + 8 * 1024 * 1024);
        let front = 2 * 512 * 256 + 3 * 512 * 1024 + 2 * 1024 * 512;
        let layers = 8 * (4 * 512 * 1024 + 3 * 512 * 1024 + 2 * 1024);
        let ends = 7 * 1024 * 1536 * 4 + 7 * 96 * 1920;
        assert_eq!(one.flops, 2 * (blocks + next + front + layers + ends));
        assert_eq!(work(0..300).weight_bytes, one.weight_bytes + 299 * 16 * 256 * 4);
        assert!(work(300..400).flops > work(0..100).flops, "what comes before is decoded too");
        assert_eq!(work(5..5), StageWork::default());
        assert!(one.weight_bytes < crate::tensors::checked_count(&config.codec_file_tensors()).unwrap() * 4);
    }
}
