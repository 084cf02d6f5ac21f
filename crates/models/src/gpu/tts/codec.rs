//! The operations of the codec decoder on a GPU.

use std::{mem, slice::from_mut};

use laptime_cuda::nn::{Activation, Attention, Codebooks, Signal, Snake};
use laptime_cuda::{Buffer, Cache, CudaError, Device, Slice};

use super::super::audio::{ConvWeights, Kit};
use super::super::memory::{Head, PassSizes};
use super::super::pass::{Buffers as PassBuffers, DeviceRope, Pass, PassRows, PromptRows};
use super::super::{size, sparse::Sparse, weights::Number};
use super::GpuParts;
use crate::tts::{
    CHUNK_FRAMES, CONTEXT_FRAMES, CodecConfig, CodecOps, CodecSizes, CodecWeights, Flow, NEXT_EPS, NextWeights,
    TtsConfig, TtsOptions,
};
use crate::{CacheCapacity, Done, ModelError, Options, decoder::layers::run_resident, marks::stage_mark};

/// Memory for the columns of convolutions. Larger ones are gathered in parts.
pub const COLUMN_BYTES: usize = 64 << 20;

pub struct Codec<T> {
    config: CodecConfig,
    sizes: CodecSizes,
    options: Options,
    attention: Attention<T>,
    sparse: Sparse<T>,
    rope: DeviceRope,
    start: Buffer<u32>,
}

pub struct Buffers<T> {
    frames: usize,
    hidden: Buffer<T>,
    second: Buffer<T>,
    inner: Buffer<T>,
    columns: Buffer<T>,
    pub samples: Buffer<f32>,
}

pub struct Chunk<'c, T> {
    pub kit: &'c Kit<'c, T>,
    pub codec: &'c Codec<T>,
    pub buffers: &'c mut Buffers<T>,
    pub codes: Slice<'c, u32>,
}

impl<T: Number> Codec<T> {
    pub fn new(device: &Device, config: &TtsConfig, options: &TtsOptions) -> Result<Self, ModelError> {
        let most = CHUNK_FRAMES + CONTEXT_FRAMES;
        let (codec, transformer) = (&config.codec, &config.codec.transformer);
        Ok(Self {
            sizes: CodecSizes::new(config),
            options: options.decoder(CacheCapacity::Static(most), Some(codec.kept())),
            attention: Attention::load(device, &Cache::of_user(), size(transformer.head_dim)?, None)?,
            sparse: Sparse::load(device, transformer, codec.kept())?,
            rope: DeviceRope::new(device, transformer, most)?,
            start: device.upload(&[0])?,
            config: codec.clone(),
        })
    }

    pub fn fit<'b>(
        &mut self,
        device: &Device,
        frames: usize,
        buffers: &'b mut Option<Buffers<T>>,
    ) -> Result<&'b mut Buffers<T>, ModelError> {
        self.sparse.lay_out(device, frames, &self.options.marks)?;
        if buffers.as_ref().is_some_and(|buffers| buffers.frames < frames) {
            *buffers = None;
        }
        Ok(match buffers {
            Some(buffers) => buffers,
            none => none.insert(Buffers::new(device, &self.sizes, self.config.frame_samples(), frames)?),
        })
    }
}

impl<T: Number> Buffers<T> {
    fn new(device: &Device, sizes: &CodecSizes, frame: usize, frames: usize) -> Result<Self, CudaError> {
        Ok(Self {
            frames,
            hidden: device.allocate(sizes.hidden.saturating_mul(frames))?,
            second: device.allocate(sizes.hidden.saturating_mul(frames))?,
            inner: device.allocate(sizes.inner.saturating_mul(frames))?,
            columns: device.allocate(COLUMN_BYTES / size_of::<T>())?,
            samples: device.allocate(frame.saturating_mul(frames))?,
        })
    }
}

type Weights<T> = CodecWeights<GpuParts<T>>;

impl<T: Number> CodecOps for Chunk<'_, T> {
    type Parts = GpuParts<T>;

    fn look_up(&mut self, weights: &Weights<T>, frames: usize) -> Done {
        let (codec, width) = (&self.codec.config, self.codec.config.vector_width());
        let books = Codebooks {
            rows: weights.codebooks.all(),
            groups: size(codec.groups)?,
            size: size(codec.codebook)?,
            width: size(width)?,
        };
        let Buffers { hidden, second, .. } = &mut *self.buffers;
        self.kit.rows.embed_codes(self.kit.device.stream(), self.codes, &books, &mut *second, size(frames)?)?;
        self.kit.product(&*second, &weights.projection, hidden, [size(frames)?, size(codec.code_width)?])
    }

    fn conv(
        &mut self,
        conv: &ConvWeights<T>,
        snake: Option<&Snake>,
        rows: usize,
        flow: Flow,
    ) -> Result<usize, ModelError> {
        let (Kit { device, blas, convolutions, .. }, length) = (self.kit, size(rows)?);
        let Buffers { hidden, second, columns, .. } = &mut *self.buffers;
        let (from, to, is_added) = match flow {
            Flow::Hidden | Flow::Inner => (&*hidden, &mut *second, false),
            Flow::Add => (&*second, &mut *hidden, true),
        };
        let (signal, columns) = (Signal { x: from.all(), length, snake }, (is_added, columns));
        convolutions.convolve(blas, device.stream(), &conv.of, &signal, &conv.weight, to, columns)?;
        if flow == Flow::Hidden {
            mem::swap(hidden, second);
        }
        Ok(conv.of.length(length) as usize)
    }

    fn transformer(&mut self, weights: &Weights<T>, frames: usize) -> Done {
        let Kit { device, operations, .. } = self.kit;
        let Codec { options, attention, sparse, rope, start, .. } = self.codec;
        let (config, marks, stream) = (&self.codec.config.transformer, &options.marks, device.stream());
        let mut sizes = PassSizes::new(config, options, frames, frames, Head::Last);
        sizes.parts.logits = 0;
        let mut of_pass = PassBuffers::new(device, sizes)?;
        let kept = frames * config.kv_heads * config.head_dim;
        let mut scratch = [device.allocate(kept)?, device.allocate(kept)?];
        of_pass.parts.x.all_mut().copy_from(stream, self.buffers.hidden.slice(0..frames * config.hidden)?)?;
        let sizes = (config, frames, frames);
        let blocks = sparse.parts();
        let prompt = PromptRows::of_sequence(attention, options.attention, start, sizes, from_mut(&mut scratch))?;
        let prompt = PromptRows { blocks, head: Head::All, ..prompt };
        let context = self.kit.context(config, marks, rope);
        let mut pass = Pass { context, buffers: &mut of_pass, rows: PassRows::Prompt(prompt) };
        run_resident(&mut pass, 0, &weights.body.layers)?;
        let _stage = stage_mark!(marks, Layer, "head");
        let _op = stage_mark!(marks, Ops, "norm");
        let (shape, epsilon) = ([size(frames)?, size(config.hidden)?], config.norm_eps as f32);
        let (x, hidden) = (&of_pass.parts.x, &mut self.buffers.hidden);
        Ok(operations.rms_norm(stream, x, &weights.body.norm, hidden, shape, epsilon)?)
    }

    fn next_block(&mut self, next: &NextWeights<GpuParts<T>>, rows: usize) -> Done {
        let (kit, Buffers { hidden, second, inner, .. }) = (self.kit, &mut *self.buffers);
        let (rows, width, wide) = (size(rows)?, size(next.scale.length())?, size(next.up.bias.length())?);
        let (stream, shape) = (kit.device.stream(), [rows, width]);
        let signal = Signal { x: hidden.all(), length: rows, snake: None };
        let channels = (next.depthwise.weight.all(), next.depthwise.bias.as_ref().map(Buffer::all));
        kit.convolutions.depthwise(stream, &next.depthwise.of, &signal, channels, &mut *inner)?;
        let norm = [next.norm[0].all(), next.norm[1].all()];
        kit.rows.layer_norm(stream, &*inner, norm, &mut *second, shape, NEXT_EPS)?;
        kit.product(&*second, &next.up.weight, &mut *inner, [rows, wide])?;
        kit.rows.bias_activation(stream, &mut *inner, Some(next.up.bias.all()), [rows, wide], Activation::Gelu)?;
        kit.product(&*inner, &next.down.weight, &mut *second, shape)?;
        let added = (second.all(), Some(next.down.bias.all()));
        Ok(kit.rows.add_scaled(stream, hidden, added, next.scale.all(), shape)?)
    }

    fn to_samples(&mut self, weights: &Weights<T>, rows: usize) -> Done {
        let Buffers { hidden, samples, .. } = &mut *self.buffers;
        let signal = Signal { x: hidden.all(), length: size(rows)?, snake: Some(&weights.snake) };
        let last = (weights.last.weight.all(), weights.last.bias.as_ref().map(Buffer::all));
        Ok(self.kit.convolutions.to_one(self.kit.device.stream(), &weights.last.of, &signal, last, samples, 1.0)?)
    }
}
