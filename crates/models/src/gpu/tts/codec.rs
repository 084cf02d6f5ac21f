//! The operations of the codec decoder on a GPU.

use std::mem;

use laptime_cuda::{
    Buffer, Cache, CudaError, Device, Sizes, Slice,
    nn::{Attention, Codebooks, Gate, Signal, Snake},
};

use super::{
    super::{
        pass::{Buffers as PassBuffers, Context, KeysValuesIn, Pass, PassRows, PromptRows, Turns, head_sizes},
        room::{Head, PassSizes},
        size,
        sparse::Sparse,
        weights::Number,
    },
    load::{ConvWeights, GpuParts, Kit},
};
use crate::{
    ModelError, Options, Room,
    decoder::layers::run_resident,
    marks::stage_mark,
    tts::{
        CHUNK_FRAMES, CONTEXT_FRAMES, CodecConfig, CodecOps, CodecSizes, CodecWeights, Linear, NEXT_EPS, NextWeights,
        TtsConfig, TtsOptions,
    },
};

/// Bytes for the columns of convolutions: more are gathered in parts.
pub const COLUMN_BYTES: usize = 64 << 20;

/// The buffers of the codec decoder, and the kernels of its transformer.
pub struct Codec<T> {
    config: CodecConfig,
    sizes: CodecSizes,
    options: Options,
    attention: Attention<T>,
    sparse: Sparse<T>,
    turns: Turns,
    start: Buffer<u32>,
    pub buffers: Option<Buffers<T>>,
}

/// Buffers for this many frames.
pub struct Buffers<T> {
    frames: usize,
    hidden: Buffer<T>,
    second: Buffer<T>,
    inner: Buffer<T>,
    columns: Buffer<T>,
    pub samples: Buffer<f32>,
}

/// A chunk on its way through the codec decoder.
pub struct Chunk<'c, T> {
    kit: &'c Kit<'c, T>,
    config: &'c CodecConfig,
    options: &'c Options,
    attention: &'c Attention<T>,
    sparse: &'c Sparse<T>,
    turns: &'c Turns,
    start: &'c Buffer<u32>,
    buffers: &'c mut Buffers<T>,
    codes: Slice<'c, u32>,
}

impl<T: Number> Codec<T> {
    pub fn new(device: &Device, config: &TtsConfig, options: &TtsOptions) -> Result<Self, ModelError> {
        let most = CHUNK_FRAMES + CONTEXT_FRAMES;
        let (codec, transformer) = (&config.codec, &config.codec.transformer);
        Ok(Self {
            sizes: CodecSizes::new(config),
            options: options.decoder(Room::Static(most), Some(codec.kept())),
            attention: Attention::load(device, &Cache::of_user(), size(transformer.head_dim)?)?,
            sparse: Sparse::load(device, transformer, codec.kept())?,
            turns: Turns::new(device, transformer, most)?,
            start: device.upload(&[0])?,
            buffers: None,
            config: codec.clone(),
        })
    }

    /// Makes ready for frames of codes.
    pub fn chunk<'c>(&'c mut self, kit: &'c Kit<'c, T>, codes: Slice<'c, u32>) -> Result<Chunk<'c, T>, ModelError> {
        let frames = codes.length() / self.config.groups;
        self.sparse.lay_out(kit.device, frames, &self.options.marks)?;
        let Self { config, sizes, options, attention, sparse, turns, start, buffers } = self;
        if buffers.as_ref().is_some_and(|buffers| buffers.frames < frames) {
            *buffers = None;
        }
        let buffers = match buffers {
            Some(buffers) => buffers,
            none => none.insert(Buffers::new(kit.device, sizes, config.frame_samples(), frames)?),
        };
        Ok(Chunk { kit, config, options, attention, sparse, turns, start, buffers, codes })
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
type Next<T> = NextWeights<GpuParts<T>>;

impl<T: Number> Chunk<'_, T> {
    fn multiply(&mut self, linear: &Linear<Buffer<T>>, is_up: bool, [m, n, k]: [u32; 3]) -> Result<(), CudaError> {
        let Buffers { second, inner, .. } = &mut *self.buffers;
        let (from, to) = if is_up { (second, inner) } else { (inner, second) };
        self.kit.blas.multiply([&*from, &linear.weight], to, Sizes { m, n, k, b_is_transposed: true })
    }
}

/// Rows, width and inner width of a ConvNeXt block.
fn shape<T: Number>(next: &Next<T>, rows: usize) -> Result<[u32; 3], CudaError> {
    Ok([size(rows)?, size(next.scale.length())?, size(next.up.bias.length())?])
}

impl<T: Number> CodecOps for Chunk<'_, T> {
    type Parts = GpuParts<T>;
    type Error = CudaError;

    fn look_up(&mut self, weights: &Weights<T>, frames: usize) -> Result<(), CudaError> {
        let (codec, width) = (self.config, self.config.vector_width());
        let books = Codebooks {
            rows: weights.codebooks.all(),
            groups: size(codec.groups)?,
            size: size(codec.codebook)?,
            width: size(width)?,
        };
        let Buffers { hidden, second, .. } = &mut *self.buffers;
        self.kit.rows.code_rows(self.kit.device.stream(), self.codes, &books, &mut *second, size(frames)?)?;
        let sizes = Sizes { m: size(frames)?, n: size(codec.code_width)?, k: size(2 * width)?, b_is_transposed: true };
        self.kit.blas.multiply_slices([second.all(), weights.projection.all()], hidden.all_mut(), sizes)
    }

    fn conv(&mut self, conv: &ConvWeights<T>, snake: Option<&Snake>, rows: usize) -> Result<usize, CudaError> {
        let Buffers { hidden, second, columns, .. } = &mut *self.buffers;
        let signal = Signal { x: hidden.all(), length: size(rows)?, snake };
        let Kit { device, blas, convolutions, .. } = self.kit;
        convolutions.convolve(
            blas,
            device.stream(),
            &conv.of,
            &signal,
            &conv.packed,
            &mut *second,
            (false, columns),
        )?;
        mem::swap(hidden, second);
        Ok(conv.of.length(size(rows)?) as usize)
    }

    fn transformer(&mut self, weights: &Weights<T>, frames: usize) -> Result<(), CudaError> {
        let Kit { device, blas, operations, .. } = self.kit;
        let (config, marks, stream) = (&self.config.transformer, &self.options.marks, device.stream());
        let sizes = PassSizes { logits: 0, ..PassSizes::new(config, self.options, frames, frames, Head::Last) };
        let mut of_pass = PassBuffers::new(device, sizes)?;
        let kept = frames * config.kv_heads * config.head_dim;
        let mut scratch = [device.allocate(kept)?, device.allocate(kept)?];
        of_pass.x.all_mut().copy_from(stream, self.buffers.hidden.slice(0..frames * config.hidden)?)?;
        let prompt = PromptRows {
            attention: self.attention,
            blocks: self.sparse.layout.as_ref().map(|layout| (&self.sparse.attention, layout)),
            kind: self.options.attention,
            start: self.start,
            heads: head_sizes(config, 1, frames, frames)?,
            keys: size(frames)?,
            head: Head::All,
            cache: KeysValuesIn::Scratch(&mut scratch),
        };
        let context = Context { stream, blas, config, marks, operations, turns: self.turns };
        let mut pass = Pass { context, buffers: &mut of_pass, rows: PassRows::Prompt(prompt) };
        run_resident(&mut pass, 0, &weights.body.layers, |_| Ok(()))?;
        let _stage = stage_mark!(marks, Layer, "head");
        let _op = stage_mark!(marks, Ops, "norm");
        let (shape, epsilon) = ([size(frames)?, size(config.hidden)?], config.norm_eps as f32);
        operations.rms_norm(stream, &of_pass.x, &weights.body.norm, &mut self.buffers.hidden, shape, epsilon)
    }

    fn depthwise_norm(&mut self, next: &Next<T>, rows: usize) -> Result<(), CudaError> {
        let ([length, width, _], stream) = (shape(next, rows)?, self.kit.device.stream());
        let Buffers { hidden, second, inner, .. } = &mut *self.buffers;
        let signal = Signal { x: hidden.all(), length, snake: None };
        let channels = (next.depthwise.weight.all(), Some(next.depthwise.bias.all()));
        self.kit.convolutions.depthwise(stream, &next.depthwise.of, &signal, channels, &mut *inner)?;
        let norm = [next.norm[0].all(), next.norm[1].all()];
        self.kit.rows.layer_norm(stream, &*inner, norm, second, [length, width], NEXT_EPS)
    }

    fn up_gelu(&mut self, next: &Next<T>, rows: usize) -> Result<(), CudaError> {
        let [length, width, inner] = shape(next, rows)?;
        self.multiply(&next.up, true, [length, inner, width])?;
        let (stream, bias) = (self.kit.device.stream(), Some(next.up.bias.all()));
        self.kit.rows.bias_gate(stream, &mut self.buffers.inner, bias, [length, inner], Gate::Gelu)
    }

    fn down_add(&mut self, next: &Next<T>, rows: usize) -> Result<(), CudaError> {
        let [length, width, inner] = shape(next, rows)?;
        self.multiply(&next.down, false, [length, width, inner])?;
        let Buffers { hidden, second, .. } = &mut *self.buffers;
        let added = (second.all(), Some(next.down.bias.all()));
        self.kit.rows.add_scaled(self.kit.device.stream(), hidden, added, next.scale.all(), [length, width])
    }

    fn conv_inner(&mut self, conv: &ConvWeights<T>, snake: &Snake, rows: usize) -> Result<(), CudaError> {
        let Kit { device, blas, convolutions, .. } = self.kit;
        let Buffers { hidden, second, columns, .. } = &mut *self.buffers;
        let signal = Signal { x: hidden.all(), length: size(rows)?, snake: Some(snake) };
        convolutions.convolve(blas, device.stream(), &conv.of, &signal, &conv.packed, second, (false, columns))
    }

    fn conv_add(&mut self, conv: &ConvWeights<T>, snake: &Snake, rows: usize) -> Result<(), CudaError> {
        let Kit { device, blas, convolutions, .. } = self.kit;
        let Buffers { hidden, second, columns, .. } = &mut *self.buffers;
        let signal = Signal { x: second.all(), length: size(rows)?, snake: Some(snake) };
        convolutions.convolve(blas, device.stream(), &conv.of, &signal, &conv.packed, hidden, (true, columns))
    }

    fn to_samples(&mut self, weights: &Weights<T>, rows: usize) -> Result<(), CudaError> {
        let Buffers { hidden, samples, .. } = &mut *self.buffers;
        let signal = Signal { x: hidden.all(), length: size(rows)?, snake: Some(&weights.snake) };
        let last = (weights.last.weight.all(), Some(weights.last.bias.all()));
        self.kit.convolutions.to_one(self.kit.device.stream(), &weights.last.of, &signal, last, samples, 1.0)
    }
}
