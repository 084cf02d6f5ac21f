//! The codec decoder on a GPU: codes in, samples out, all of it on the device.

use std::mem;

use laptime_cuda::{
    Blas, Buffer, Cache, CudaError, Device, Sizes, Slice,
    nn::{Attention, Codebooks, Gate, Signal, Snake},
};

use super::{
    super::{
        pass::{Buffers as PassBuffers, KeysValuesIn, Pass, PassRows, PromptRows, Turns, head_sizes},
        room::{Head, PassSizes},
        size,
        sparse::Sparse,
        weights::Number,
    },
    codec_weights::{BlockWeights, CodecWeights, ConvWeights, NextWeights},
    context, decoder_options,
    weights::{LinearWeights, TtsGpuWeights},
};
use crate::{
    ModelError, Options,
    decoder::layers::run_resident,
    tts::{CHUNK_FRAMES, CONTEXT_FRAMES, CodecConfig, NEXT_WIDENING, SpeakOptions},
};

/// What is added under the root of the norms of ConvNeXt blocks, as in the official classes.
const NEXT_EPS: f32 = 1e-6;

/// Bytes for the columns of convolutions: more are gathered in parts.
pub const COLUMN_BYTES: usize = 64 << 20;

/// The codec decoder's buffers, and what its transformer needs.
pub struct Codec<T> {
    config: CodecConfig,
    options: Options,
    attention: Attention<T>,
    sparse: Sparse<T>,
    turns: Turns,
    start: Buffer<u32>,
    buffers: Option<Buffers<T>>,
}

/// What decoding computes in, for this many frames at most.
struct Buffers<T> {
    frames: usize,
    /// What blocks add to.
    stream: Buffer<T>,
    second: Buffer<T>,
    wide: Buffer<T>,
    columns: Buffer<T>,
    samples: Buffer<f32>,
}

/// What a part of the codec is run with.
struct Run<'a, T> {
    device: &'a Device,
    blas: &'a Blas,
    weights: &'a TtsGpuWeights<T>,
}

impl<T: Number> Codec<T> {
    pub fn new(device: &Device, config: &CodecConfig, options: &SpeakOptions) -> Result<Self, ModelError> {
        let most = CHUNK_FRAMES + CONTEXT_FRAMES;
        let transformer = &config.transformer;
        Ok(Self {
            options: decoder_options(options, most, Some(config.kept())),
            attention: Attention::load(device, &Cache::of_user(), size(transformer.head_dim)?)?,
            sparse: Sparse::load(device, transformer, config.kept())?,
            turns: Turns::new(device, transformer, most)?,
            start: device.upload(&[0])?,
            buffers: None,
            config: config.clone(),
        })
    }

    /// The samples of frames of codes.
    pub fn decode(
        &mut self,
        device: &Device,
        blas: &Blas,
        weights: &TtsGpuWeights<T>,
        codes: Slice<'_, u32>,
    ) -> Result<Slice<'_, f32>, ModelError> {
        let frames = codes.length() / self.config.groups;
        self.sparse.lay_out(device, frames, &self.options.marks)?;
        if self.buffers.as_ref().is_none_or(|buffers| buffers.frames < frames) {
            self.buffers = None;
            self.buffers = Some(Buffers::new(device, &self.config, frames)?);
        }
        let run = Run { device, blas, weights };
        if let Some(mut buffers) = self.buffers.take() {
            let done = self.run(&run, codes, frames, &mut buffers);
            self.buffers = Some(buffers);
            done?;
        }
        let samples = frames * self.config.frame_samples();
        let Some(buffers) = &self.buffers else { return Err(nothing()) };
        Ok(buffers.samples.slice(0..samples)?)
    }

    fn run(
        &self,
        run: &Run<'_, T>,
        codes: Slice<'_, u32>,
        frames: usize,
        buffers: &mut Buffers<T>,
    ) -> Result<(), CudaError> {
        let codec = &run.weights.codec;
        self.quantised(run, codes, frames, buffers)?;
        let mut rows = buffers.conv(run, &codec.input, None, frames)?;
        buffers.conv(run, &codec.enter, None, rows)?;
        self.transform(run, frames, buffers)?;
        buffers.conv(run, &codec.leave, None, rows)?;
        for next in &codec.next {
            rows = buffers.next(run, next, rows)?;
        }
        rows = buffers.conv(run, &codec.first, None, rows)?;
        for block in &codec.blocks {
            rows = buffers.block(run, block, rows)?;
        }
        buffers.last(run, codec, rows)
    }

    /// Looks the vectors of all codes up, and brings them to the width of codes.
    fn quantised(
        &self,
        run: &Run<'_, T>,
        codes: Slice<'_, u32>,
        frames: usize,
        buffers: &mut Buffers<T>,
    ) -> Result<(), CudaError> {
        let (codec, width) = (&self.config, self.config.vector_width());
        let books = Codebooks {
            rows: run.weights.codec.books.all(),
            groups: size(codec.groups)?,
            size: size(codec.codebook)?,
            width: size(width)?,
        };
        run.weights.rows.code_rows(run.device.stream(), codes, &books, &mut buffers.second, size(frames)?)?;
        let sizes = Sizes { m: size(frames)?, n: size(codec.code_width)?, k: size(2 * width)?, b_is_transposed: true };
        let factors = [buffers.second.all(), run.weights.codec.projection.all()];
        run.blas.multiply_slices(factors, buffers.stream.all_mut(), sizes)
    }

    /// The transformer and its norm, from the stream to the stream.
    fn transform(&self, run: &Run<'_, T>, frames: usize, buffers: &mut Buffers<T>) -> Result<(), CudaError> {
        let (config, stream) = (&self.config.transformer, run.device.stream());
        let sizes = PassSizes::new(config, &self.options, frames, frames, Head::Last);
        let sizes = PassSizes { logits: 0, ..sizes };
        let mut of_pass = PassBuffers::new(run.device, sizes)?;
        let kept = frames * config.kv_heads * config.head_dim;
        let mut scratch = [run.device.allocate(kept)?, run.device.allocate(kept)?];
        let numbers = frames * config.hidden;
        of_pass.x.all_mut().copy_from(stream, buffers.stream.slice(0..numbers)?)?;
        let prompt = PromptRows {
            attention: &self.attention,
            blocks: self.sparse.layout.as_ref().map(|layout| (&self.sparse.attention, layout)),
            kind: self.options.attention,
            start: &self.start,
            heads: head_sizes(config, 1, frames, frames)?,
            keys: size(frames)?,
            head: Head::All,
            cache: KeysValuesIn::Scratch(&mut scratch),
        };
        let context = context(run.device, run.blas, &run.weights.operations, (config, &self.options, &self.turns));
        let mut pass = Pass { context, buffers: &mut of_pass, rows: PassRows::Prompt(prompt) };
        run_resident(&mut pass, 0, &run.weights.codec.layers, |_| Ok(()))?;
        let (norm, shape) = (&run.weights.codec.norm, [size(frames)?, size(config.hidden)?]);
        let epsilon = config.norm_eps as f32;
        run.weights.operations.rms_norm(stream, &of_pass.x, norm, &mut buffers.stream, shape, epsilon)
    }
}

impl<T: Number> Buffers<T> {
    fn new(device: &Device, config: &CodecConfig, frames: usize) -> Result<Self, CudaError> {
        let Widest { stream, wide } = Widest::of(config);
        let columns = COLUMN_BYTES / size_of::<T>();
        Ok(Self {
            frames,
            stream: device.allocate(stream.saturating_mul(frames))?,
            second: device.allocate(stream.saturating_mul(frames))?,
            wide: device.allocate(wide.saturating_mul(frames))?,
            columns: device.allocate(columns)?,
            samples: device.allocate(config.frame_samples().saturating_mul(frames))?,
        })
    }

    /// Convolves the stream; says how many positions it has behind that.
    fn conv(
        &mut self,
        run: &Run<'_, T>,
        conv: &ConvWeights<T>,
        snake: Option<&Snake>,
        rows: usize,
    ) -> Result<usize, CudaError> {
        let (of, length) = (&conv.of, size(rows)?);
        let signal = Signal { x: self.stream.all(), length, snake };
        let room = (false, &mut self.columns);
        let kernels = &run.weights.convolutions;
        kernels.convolve(run.blas, run.device.stream(), of, &signal, &conv.packed, &mut self.second, room)?;
        mem::swap(&mut self.stream, &mut self.second);
        Ok(of.length(length) as usize)
    }

    /// A block that lengthens, and a ConvNeXt block behind it.
    fn next(&mut self, run: &Run<'_, T>, next: &NextWeights<T>, rows: usize) -> Result<usize, CudaError> {
        let rows = self.conv(run, &next.lengthen, None, rows)?;
        let (stream, weights) = (run.device.stream(), run.weights);
        let (length, width, inner) = (size(rows)?, size(next.scale.length())?, size(next.up.bias.length())?);
        let signal = Signal { x: self.stream.all(), length, snake: None };
        let channels = (next.depthwise.weight.all(), Some(next.depthwise.bias.all()));
        weights.convolutions.depthwise(stream, &next.depthwise.of, &signal, channels, &mut self.wide)?;
        let norm = [next.norm.weight.all(), next.norm.bias.all()];
        weights.rows.layer_norm(stream, &self.wide, norm, &mut self.second, [length, width], NEXT_EPS)?;
        multiply(run, &next.up, &self.second, &mut self.wide, [length, inner, width])?;
        let bias = Some(next.up.bias.all());
        weights.rows.bias_gate(stream, &mut self.wide, bias, [length, inner], Gate::Gelu)?;
        multiply(run, &next.down, &self.wide, &mut self.second, [length, width, inner])?;
        let added = (self.second.all(), Some(next.down.bias.all()));
        weights.rows.add_scaled(stream, &mut self.stream, added, next.scale.all(), [length, width])?;
        Ok(rows)
    }

    /// A block that lengthens, and residual units behind it.
    fn block(&mut self, run: &Run<'_, T>, block: &BlockWeights<T>, rows: usize) -> Result<usize, CudaError> {
        let rows = self.conv(run, &block.lengthen, Some(&block.snake), rows)?;
        let (stream, length, kernels) = (run.device.stream(), size(rows)?, &run.weights.convolutions);
        for unit in &block.units {
            let signal = Signal { x: self.stream.all(), length, snake: Some(&unit.snake) };
            let (wide, narrow) = (&unit.wide, &unit.narrow);
            let room = (false, &mut self.columns);
            kernels.convolve(run.blas, stream, &wide.of, &signal, &wide.packed, &mut self.second, room)?;
            let signal = Signal { x: self.second.all(), length, snake: Some(&unit.snake_between) };
            let room = (true, &mut self.columns);
            kernels.convolve(run.blas, stream, &narrow.of, &signal, &narrow.packed, &mut self.stream, room)?;
        }
        Ok(rows)
    }

    /// The samples, between -1 and 1.
    fn last(&mut self, run: &Run<'_, T>, codec: &CodecWeights<T>, rows: usize) -> Result<(), CudaError> {
        let signal = Signal { x: self.stream.all(), length: size(rows)?, snake: Some(&codec.snake) };
        let weights = (codec.last.weight.all(), Some(codec.last.bias.all()));
        let kernels = &run.weights.convolutions;
        kernels.to_one(run.device.stream(), &codec.last.of, &signal, weights, &mut self.samples, 1.0)
    }
}

fn multiply<T: Number>(
    run: &Run<'_, T>,
    linear: &LinearWeights<T>,
    from: &Buffer<T>,
    to: &mut Buffer<T>,
    [m, n, k]: [u32; 3],
) -> Result<(), CudaError> {
    run.blas.multiply([from, &linear.weight], to, Sizes { m, n, k, b_is_transposed: true })
}

fn nothing() -> ModelError {
    ModelError::Refused("there are no frames to decode".to_owned())
}

/// Numbers of a frame where the signal is widest.
pub struct Widest {
    /// Of what blocks add to.
    pub stream: usize,
    /// Inside a ConvNeXt block.
    pub wide: usize,
}

impl Widest {
    pub fn of(config: &CodecConfig) -> Self {
        let lengthened = config.ratios.iter().fold(1_usize, |all, ratio| all.saturating_mul(*ratio));
        let around = lengthened.saturating_mul(config.latent);
        let mut stream = around.max(config.code_width).max(config.transformer.hidden);
        let mut rows = lengthened;
        stream = stream.max(rows.saturating_mul(config.channels));
        for (at, rate) in config.rates.iter().enumerate() {
            rows = rows.saturating_mul(*rate);
            stream = stream.max(rows.saturating_mul(config.channels_behind(at + 1)));
        }
        Self { stream, wide: around.saturating_mul(NEXT_WIDENING) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tts::TtsConfig;

    #[test]
    fn a_signal_is_widest_where_it_is_longest() {
        let codec = TtsConfig::from_preset("0.6b").unwrap().codec;
        let Widest { stream, wide } = Widest::of(&codec);
        assert_eq!((stream, wide), (1920 * 96, 4 * 1024 * 4));
    }
}
