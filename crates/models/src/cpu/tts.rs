//! Qwen3-TTS on the CPU.

mod ops;

use std::{marker::PhantomData, slice::from_ref, sync::Arc};

use laptime_probe::stage;

use self::ops::{CpuOps, gathered};
use super::conv::{Conv, Depthwise, Linear};
use super::memory::{SMALL_BYTES, product_bytes};
use super::{attention::Span, crew::Crew, model::Loader, panels::panel_bytes, pass::Sizes, refuse_graph};
use super::{cache::zeros, number::Number, steps::Snake};
use crate::tensors::{product, sum};
use crate::tts::{
    CodecSizes, ConvTensors, DeviceNeeds, LoadedWeights, Parts, QwenTts, TtsConfig, TtsLoad, TtsOps, TtsOptions,
    TtsWeights, codebook, needed_bytes, together,
};
use crate::{Attention, Config, Done, ModelError, Role, TensorSpec, attention::CPU_TILING, dtype::typed};

/// Loads Qwen3-TTS into memory. It runs on this many threads, including the caller's.
pub fn qwen_tts(
    config: TtsConfig,
    weights: &TtsWeights,
    options: TtsOptions,
    threads: usize,
) -> Result<QwenTts<'static>, ModelError> {
    options.check(&config)?;
    refuse_graph(options.graph)?;
    let _stage = stage!("weights");
    let (config, crew) = (Arc::new(config), Crew::new(threads)?);
    let ops: Box<dyn TtsOps> = typed!(options.dtype, |T| {
        let weights = LoadedWeights::load(&config, &mut Loader::<T>::new(Some(weights), &crew))?;
        Box::new(CpuOps::new(&config, &options, weights, crew)?)
    });
    Ok(QwenTts::new(config, options, ops))
}

/// Peak heap bytes for prompts of this many text tokens, including the positions before the first frame, and this many
/// frames.
pub fn needed_tts_bytes(config: &TtsConfig, options: &TtsOptions, [text, frames]: [usize; 2], threads: usize) -> u64 {
    let (decoded, codec, sizes) = (together(frames), &config.codec, CodecSizes::new(config));
    let pass = |config: &Config, rows: usize, logits: usize| {
        Sizes::new(config, Attention::Dense, &Span::new(config, 1, rows, 0), logits).numbers()
    };
    let wide = |config: &Config| config.hidden.max(config.ffn).max(config.heads.saturating_mul(config.head_dim));
    let of_decoders = [(text, &config.talker), (1, &config.predictor), (decoded, &codec.transformer)];
    let products =
        of_decoders.map(|(rows, config)| [rows, wide(config)]).into_iter().chain([[text, config.text_width]]);
    let convs =
        sizes.convs.iter().map(|&[rows, inputs, taps]| [rows.saturating_mul(decoded), inputs.saturating_mul(taps)]);
    let panels = products.chain(convs).map(|[rows, depth]| panel_bytes(options.dtype, rows, depth, threads)).max();
    let thread = product_bytes(panels.unwrap_or(0));
    let books = product(&[codec.codebook, codec.groups, codec.vector_width()]);
    let numbers = |numbers: u64| numbers.saturating_mul(options.dtype.bytes());
    let device = DeviceNeeds {
        kept: sum([
            numbers(sum([pass(&config.talker, text, 1), pass(&config.predictor, 2, 1)])),
            // Codebooks are in f32.
            books.saturating_mul(4),
            SMALL_BYTES,
        ]),
        // Codebooks exist twice while they are computed.
        loading: books.saturating_mul(4),
        codec: sum([
            numbers(pass(&codec.transformer, decoded, 0)),
            numbers(product(&[decoded, sizes.hidden.max(sizes.inner)])),
            numbers(gathered(&sizes, decoded) as u64),
            // The audio may exist twice while it grows.
            product(&[codec.frame_samples(), frames, 4 * 2]),
            thread.saturating_mul(threads.max(1) as u64),
        ]),
        // The rows of text exist twice while they are split.
        prefill: numbers(product(&[text, config.talker.hidden])),
        chunk: 0,
        positions: [text.saturating_add(frames), decoded],
        tiling: CPU_TILING,
    };
    needed_bytes(config, options, [text, frames], &sizes, device)
}

/// Matrices are stored in the dtype, vectors in f32 rounded to it.
pub struct CpuParts<T>(PhantomData<T>);

impl<T> Parts for CpuParts<T> {
    type Matrix = Vec<T>;
    type Vector = Vec<f32>;
    type Conv = Conv<T>;
    type Depthwise = Depthwise;
    type Snake = Snake;
    type Bridge = Linear<T>;
}

impl<T: Number> TtsLoad for Loader<'_, T> {
    type Parts = CpuParts<T>;

    fn conv(&mut self, tensors: &ConvTensors, step: usize) -> Result<Conv<T>, ModelError> {
        let ConvTensors { weight, bias } = tensors;
        let (kernel, bias) = (self.stacked(from_ref(weight))?, self.rounded(from_ref(bias))?);
        Ok(match weight.role {
            Role::Lengthen => Conv::transposed(&kernel, weight.shape[0], &bias, step),
            _ => Conv::new(&kernel, weight.shape[1], bias, step),
        })
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<Depthwise, ModelError> {
        Ok(Depthwise::new(&self.rounded(from_ref(&tensors.weight))?, self.rounded(from_ref(&tensors.bias))?))
    }

    fn snake(&mut self, [alpha, beta]: &[TensorSpec; 2]) -> Result<Snake, ModelError> {
        Ok(Snake::new(&self.rounded(from_ref(alpha))?, &self.rounded(from_ref(beta))?))
    }

    fn codebooks(&mut self, tensors: &[[TensorSpec; 2]]) -> Result<Vec<f32>, ModelError> {
        let mut all = zeros(tensors.iter().map(|[sums, _]| sums.count()).sum())?;
        let (mut rest, Some(weights)) = (all.as_mut_slice(), self.weights) else { return Ok(all) };
        for tensors in tensors {
            let (these, others) = rest.split_at_mut(tensors[0].count());
            rest = others;
            these.iter_mut().zip(codebook(weights, tensors)?).for_each(|(to, number)| *to = T::narrow(number).wide());
        }
        Ok(all)
    }

    fn side_by_side(&mut self, [first, second]: &[TensorSpec; 2]) -> Result<Vec<T>, ModelError> {
        let (left, right) = (first.shape[1], second.shape[1]);
        let (first, second) = (self.stacked(from_ref(first))?, self.stacked(from_ref(second))?);
        let rows = first.chunks(left).zip(second.chunks(right));
        Ok(rows.flat_map(|(left, right)| left.iter().chain(right)).copied().collect())
    }

    fn scale_rows(&mut self, matrix: &mut Vec<T>, scale: &TensorSpec) -> Done {
        let scale = self.rounded(from_ref(scale))?;
        let width = matrix.len() / scale.len();
        for (row, scale) in matrix.chunks_mut(width).zip(scale) {
            row.iter_mut().for_each(|number| *number = T::narrow(number.wide() * scale));
        }
        Ok(())
    }

    fn bridge(&mut self, linear: Linear<T>, _: [&Vec<T>; 2]) -> Result<Linear<T>, ModelError> {
        Ok(linear)
    }
}
