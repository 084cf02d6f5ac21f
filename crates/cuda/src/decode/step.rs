//! The kernels of a step, with the checks that make them safe to call.
#![allow(unsafe_code)]

use cudarc::driver::sys;

use super::{LINEAR, State, TOKEN, attention::AttentionKernel, tiles::Tiles};
use crate::{
    blas::Element,
    cache::Cache,
    context::driver,
    device::Device,
    error::CudaError,
    kernel::{Argument, Kernel, Shape},
    kernels::expect,
    memory::Buffer,
    nvrtc,
    stream::Stream,
};

/// The sizes of a decoder, as a step needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepSizes {
    /// Sequences that take a step together.
    pub batch: u32,
    /// Numbers of the vector that goes from layer to layer.
    pub hidden: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Numbers of a head.
    pub head_dim: u32,
    /// Numbers inside the feed-forward part.
    pub ffn: u32,
    /// Tokens there are.
    pub vocab: u32,
    /// Positions that a cache has room for.
    pub capacity: u32,
}

impl StepSizes {
    /// Rows of the packed projection to queries, keys and values.
    pub fn qkv(&self) -> u32 {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Numbers that all query heads give together.
    pub fn attended(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Numbers of the keys, or of the values, of one layer's cache.
    pub fn cache(&self) -> u64 {
        u64::from(self.batch) * u64::from(self.kv_heads) * u64::from(self.capacity) * u64::from(self.head_dim)
    }

    fn check(&self) -> Result<(), CudaError> {
        let all =
            [self.batch, self.hidden, self.heads, self.kv_heads, self.head_dim, self.ffn, self.vocab, self.capacity];
        let expect = |holds, otherwise| expect("preparing a step", holds, otherwise);
        expect(all.iter().all(|size| *size > 0), "a size is zero")?;
        expect(self.batch <= 65_535, "the batch is too large")?;
        expect(self.heads.is_multiple_of(self.kv_heads), "the query heads are no multiple of the key and value heads")?;
        expect(self.head_dim.is_multiple_of(2) && self.head_dim <= 256, "the size of a head is odd or above 256")?;
        let rows = (u64::from(self.heads) + 2 * u64::from(self.kv_heads)) * u64::from(self.head_dim);
        expect(rows < 1 << 31 && self.ffn < 1 << 30 && self.vocab < 1 << 31, "a size is too large")
    }
}

/// How the kernels that read weights are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Warps a block; there is one block a multiprocessor.
    pub warps: u32,
    /// Copies that a warp has under way, of 1 KiB each.
    pub depth: u32,
}

impl Default for Tuning {
    /// What was fastest on an H200.
    fn default() -> Self {
        Self { warps: 16, depth: 5 }
    }
}

/// A norm by the root of the mean square.
#[derive(Debug)]
pub struct Norm<'a, T> {
    /// What each number is multiplied with after.
    pub weight: &'a Buffer<T>,
    /// What is added to the mean square.
    pub epsilon: f32,
}

/// Weights `[rows, width]`, with what is added to their product.
#[derive(Debug)]
pub struct Linear<'a, T> {
    /// The weights.
    pub weight: &'a Buffer<T>,
    /// One number a row.
    pub bias: Option<&'a Buffer<T>>,
}

/// The two forms of a product: fast, and for any width.
#[derive(Debug)]
struct Product {
    name: &'static str,
    fast: Kernel,
    any: Kernel,
    has_norm: bool,
    /// Rows of weights for each row of the result.
    rows_each: u32,
}

/// The kernels of one token's step, for one decoder on one device. `T` is the type of weights and activations.
#[derive(Debug)]
pub struct Step<T> {
    pub(super) sizes: StepSizes,
    pub(super) attention: AttentionKernel<T>,
    norm_linear: Product,
    linear_add: Product,
    norm_gate_up: Product,
    embed: Kernel,
    argmax: Kernel,
    tuning: Tuning,
    /// Vectors that a block multiplies with what it reads.
    vectors: u32,
    multiprocessors: u32,
    shared_limit: u32,
    pub(super) overlaps: bool,
}

/// Threads a block of the kernels at both ends of a step.
const THREADS: u32 = 256;
/// The most vectors that a block multiplies at once.
const MOST_VECTORS: u32 = 8;

/// What a product's text is compiled with, beside the type.
pub(super) fn linear_options(vectors: u32, tuning: Tuning) -> Vec<String> {
    vec![format!("-DBATCH={vectors}"), format!("-DWARPS={}", tuning.warps), format!("-DDEPTH={}", tuning.depth)]
}

impl<T: Element> Step<T> {
    /// Compiles what a step of such sizes needs, or finds it in the cache.
    pub fn load(device: &Device, cache: &Cache, sizes: StepSizes) -> Result<Self, CudaError> {
        Self::load_tuned(device, cache, sizes, Tuning::default())
    }

    /// The same with kernels built in another way, for finding out which is fastest.
    pub fn load_tuned(device: &Device, cache: &Cache, sizes: StepSizes, tuning: Tuning) -> Result<Self, CudaError> {
        sizes.check()?;
        let right = (1..=32).contains(&tuning.warps) && (1..=64).contains(&tuning.depth);
        expect("preparing a step", right, "there are 1 to 32 warps and 1 to 64 copies under way")?;
        let shared_limit = shared_limit(device)?;
        let vectors = vectors_that_fit::<T>(&sizes, tuning, shared_limit);
        let module = |source, mut further: Vec<String>| {
            further.insert(0, T::OPTION.to_owned());
            nvrtc::load(device, cache, source, &further).map(|(module, _)| module)
        };
        let (linear, token) = (module(LINEAR, linear_options(vectors, tuning))?, module(TOKEN, Vec::new())?);
        let product = |name: &'static str, any, rows_each| -> Result<Product, CudaError> {
            let (fast, any) = (linear.kernel(name)?, linear.kernel(any)?);
            for kernel in [&fast, &any] {
                kernel.allow_shared_bytes(shared_limit)?;
                kernel.prefer_shared_memory()?;
            }
            Ok(Product { name, fast, any, has_norm: name != "linear_add", rows_each })
        };
        let end = |name| -> Result<Kernel, CudaError> {
            let kernel = token.kernel(name)?;
            kernel.prefer_shared_memory()?;
            Ok(kernel)
        };
        let overlaps = device.facts().capability.0 >= 9;
        Ok(Self {
            sizes,
            attention: AttentionKernel::load(device, cache, &sizes)?,
            norm_linear: product("norm_linear", "any_norm_linear", 1)?,
            linear_add: product("linear_add", "any_linear_add", 1)?,
            norm_gate_up: product("norm_gate_up", "any_norm_gate_up", 2)?,
            embed: end("embed_step")?,
            argmax: end("argmax_step")?,
            tuning,
            vectors,
            multiprocessors: device.facts().multiprocessors.max(1),
            shared_limit,
            overlaps,
        })
    }

    /// The sizes it was made for.
    pub fn sizes(&self) -> StepSizes {
        self.sizes
    }

    /// Whether kernels begin while those before them still run.
    pub fn overlaps(&self) -> bool {
        self.overlaps
    }

    /// The same step with one kernel after another, to be compared with.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.overlaps = false;
        self
    }

    /// Puts the row of each sequence's token into `x` `[batch, hidden]`; a token beyond the vocabulary gives NaN.
    ///
    /// Waits, on the device, for all that is on the stream.
    pub fn embed(&self, stream: &Stream, state: &State, table: &Buffer<T>, x: &mut Buffer<T>) -> Result<(), CudaError> {
        let StepSizes { batch, hidden, vocab, .. } = self.sizes;
        let holds = |buffer: &Buffer<T>, rows| buffer.length() as u64 >= u64::from(rows) * u64::from(hidden);
        expect("embedding", state.batch == batch, "the state is of another number of sequences")?;
        expect("embedding", holds(table, vocab) && holds(x, batch), "a buffer is too small")?;
        let arguments: [Argument; 5] = [(&state.token).into(), table.into(), x.into(), hidden.into(), vocab.into()];
        // SAFETY: the kernel stays within the sizes, and the buffers are at least as large.
        unsafe { self.embed.launch(stream, Shape::line(batch, THREADS), &arguments) }
    }

    /// Multiplies weights `[rows, width]` with the normed `x` `[batch, width]` into `out` `[batch, rows]`.
    pub fn norm_linear(
        &self,
        stream: &Stream,
        x: &Buffer<T>,
        norm: &Norm<'_, T>,
        linear: &Linear<'_, T>,
        out: &mut Buffer<T>,
        sizes: [u32; 2],
    ) -> Result<(), CudaError> {
        self.multiply(&self.norm_linear, stream, x, Some(norm), linear, out, sizes)
    }

    /// Adds the product of weights `[rows, width]` with `a` `[batch, width]` to `x` `[batch, rows]`.
    pub fn linear_add(
        &self,
        stream: &Stream,
        a: &Buffer<T>,
        linear: &Linear<'_, T>,
        x: &mut Buffer<T>,
        sizes: [u32; 2],
    ) -> Result<(), CudaError> {
        self.multiply(&self.linear_add, stream, a, None, linear, x, sizes)
    }

    /// Puts `silu(gate) * up` into `out` `[batch, ffn]`: both are products with the normed `x` `[batch, width]`, of the
    /// weights `[2 * ffn, width]`, the gate's first.
    pub fn norm_gate_up(
        &self,
        stream: &Stream,
        x: &Buffer<T>,
        norm: &Norm<'_, T>,
        linear: &Linear<'_, T>,
        out: &mut Buffer<T>,
        sizes: [u32; 2],
    ) -> Result<(), CudaError> {
        self.multiply(&self.norm_gate_up, stream, x, Some(norm), linear, out, sizes)
    }

    /// Chooses the largest logit of each sequence, `[batch, vocab]`, as its next token, keeps it, and goes on to the next
    /// position. The first of equals is chosen; NaN never is, and where all are NaN it is token 0.
    pub fn argmax(&self, stream: &Stream, logits: &Buffer<T>, state: &mut State) -> Result<(), CudaError> {
        let StepSizes { batch, vocab, .. } = self.sizes;
        let fits = logits.length() as u64 >= u64::from(batch) * u64::from(vocab);
        expect("choosing a token", state.batch == batch, "the state is of another number of sequences")?;
        expect("choosing a token", fits && batch <= THREADS, "the logits are too few, or the sequences too many")?;
        let blocks = vocab.div_ceil(THREADS * 8).clamp(1, self.multiprocessors);
        let shape = Shape { grid: [blocks, batch, 1], block: [THREADS, 1, 1], shared_bytes: 0 };
        let arguments: [Argument; 9] = [
            logits.into(),
            vocab.into(),
            (&mut state.best).into(),
            (&mut state.done).into(),
            (&mut state.token).into(),
            (&mut state.position).into(),
            (&mut state.count).into(),
            (&mut state.chosen).into(),
            state.room.into(),
        ];
        // SAFETY: the kernel stays within the sizes, and the buffers are at least as large.
        unsafe { self.launch(&self.argmax, stream, shape, &arguments) }
    }

    #[allow(clippy::too_many_arguments)]
    fn multiply(
        &self,
        product: &Product,
        stream: &Stream,
        x: &Buffer<T>,
        norm: Option<&Norm<'_, T>>,
        linear: &Linear<'_, T>,
        out: &mut Buffer<T>,
        [rows, width]: [u32; 2],
    ) -> Result<(), CudaError> {
        let batch = self.sizes.batch;
        let holds = |buffer: &Buffer<T>, rows: u32, columns: u32| {
            buffer.length() as u64 >= u64::from(rows) * u64::from(columns)
        };
        let all_rows = rows.saturating_mul(product.rows_each);
        let fits = holds(x, batch, width)
            && holds(out, batch, rows)
            && holds(linear.weight, all_rows, width)
            && norm.is_none_or(|norm| holds(norm.weight, 1, width))
            && linear.bias.is_none_or(|bias| holds(bias, 1, all_rows));
        let sensible = rows > 0 && width > 0 && width < 1 << 24 && all_rows < 1 << 31;
        expect(product.name, sensible, "a size is zero or too large")?;
        expect(product.name, fits, "a buffer is too small")?;
        let (kernel, tiles, shape) = self.deal(product, rows, width)?;
        let optional = |buffer: Option<&Buffer<T>>| buffer.map_or(Argument::from(0_u64), Argument::from);
        let arguments: [Argument; 11] = [
            x.into(),
            optional(norm.map(|norm| norm.weight)),
            norm.map_or(0.0, |norm| norm.epsilon).into(),
            linear.weight.into(),
            optional(linear.bias),
            out.into(),
            batch.into(),
            rows.into(),
            width.into(),
            tiles.segments.into(),
            tiles.segment.into(),
        ];
        // SAFETY: the kernel stays within the sizes, the buffers are at least as large, and their rows are aligned where
        // the fast form is chosen.
        unsafe { self.launch(kernel, stream, shape, &arguments) }
    }

    /// Which kernel does a product, how its rows are dealt, and with how many threads.
    fn deal<'a>(&self, product: &'a Product, rows: u32, width: u32) -> Result<(&'a Kernel, Tiles, Shape), CudaError> {
        let pairs = if product.rows_each == 2 { rows } else { rows.div_ceil(2) };
        let blocks = pairs.min(self.multiprocessors);
        let chunks = width.div_ceil(chunk::<T>());
        let is_aligned = (width as usize * size_of::<T>()).is_multiple_of(16);
        let each = pairs.div_ceil(blocks);
        let bytes = |tiles: Tiles| {
            let is_kept = is_aligned && (tiles.segments > 1 || !product.has_norm);
            let parts = if is_kept { each.saturating_mul(tiles.segments) } else { 0 };
            shared_bytes::<T>(self.tuning, self.vectors, tiles, product.has_norm, parts)
        };
        let (even, whole) = (Tiles::even(each, chunks, self.tuning.warps), Tiles::whole(chunks));
        let tiles = if is_aligned && bytes(even) <= self.shared_limit { even } else { whole };
        // Room for two blocks and not three: so a kernel that begins early has one block on each multiprocessor, as the
        // one before it has, and not three on some.
        let shared_bytes = bytes(tiles).max(self.shared_limit / 3 + 1);
        expect(product.name, shared_bytes <= self.shared_limit, "the vectors do not fit the shared memory of a block")?;
        let grid = [blocks, self.sizes.batch.div_ceil(self.vectors), 1];
        let kernel = if is_aligned { &product.fast } else { &product.any };
        Ok((kernel, tiles, Shape { grid, block: [self.tuning.warps * 32, 1, 1], shared_bytes }))
    }

    /// # Safety
    ///
    /// As for [`Kernel::launch`]; the kernels of a step wait for the one before them.
    pub(super) unsafe fn launch(
        &self,
        kernel: &Kernel,
        stream: &Stream,
        shape: Shape,
        arguments: &[Argument],
    ) -> Result<(), CudaError> {
        // SAFETY: as the caller says.
        unsafe {
            if self.overlaps {
                kernel.launch_early(stream, shape, arguments)
            } else {
                kernel.launch(stream, shape, arguments)
            }
        }
    }
}

/// Numbers that a warp takes at once: 16 bytes a lane.
fn chunk<T>() -> u32 {
    32 * 16 / size_of::<T>().max(1) as u32
}

/// Shared memory of a block, as the kernels lay it out.
fn shared_bytes<T>(tuning: Tuning, vectors: u32, tiles: Tiles, has_norm: bool, parts: u32) -> u32 {
    let ring = tuning.warps * tuning.depth * 1024;
    let numbers = tiles.padded(chunk::<T>()).saturating_mul(vectors + u32::from(has_norm));
    let sums = vectors * tuning.warps + parts.saturating_mul(2 * vectors);
    ring.saturating_add(numbers.saturating_mul(size_of::<T>() as u32)).saturating_add(sums.saturating_mul(4))
}

/// How many vectors a block can multiply at once, of the widest that the sizes speak of.
fn vectors_that_fit<T>(sizes: &StepSizes, tuning: Tuning, limit: u32) -> u32 {
    let wide = |width: u32| Tiles::whole(width.div_ceil(chunk::<T>()).saturating_add(1));
    let (normed, plain) = (wide(sizes.hidden), wide(sizes.ffn.max(sizes.attended())));
    // Parts need some room too.
    let bytes = |vectors, tiles, has_norm| shared_bytes::<T>(tuning, vectors, tiles, has_norm, 64);
    let mut vectors = sizes.batch.clamp(1, MOST_VECTORS).next_power_of_two();
    while vectors > 1 && bytes(vectors, normed, true).max(bytes(vectors, plain, false)) > limit {
        vectors /= 2;
    }
    vectors
}

fn shared_limit(device: &Device) -> Result<u32, CudaError> {
    let mut bytes = 0;
    let most = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    let asked = device.context().device;
    driver!("asking for a block's shared memory", cuDeviceGetAttribute(&mut bytes, most, asked))?;
    Ok(bytes.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    const QWEN3_4B: StepSizes = StepSizes {
        batch: 1,
        hidden: 2560,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        ffn: 9728,
        vocab: 151_936,
        capacity: 4096,
    };
    const H200_LIMIT: u32 = 227 << 10;

    #[test]
    fn a_block_takes_a_power_of_two_of_vectors_that_fit() {
        let vectors = |batch, tuning| vectors_that_fit::<bf16>(&StepSizes { batch, ..QWEN3_4B }, tuning, H200_LIMIT);
        let tuning = Tuning { warps: 8, depth: 8 };
        assert_eq!([1, 2, 3, 4, 5, 8, 9].map(|batch| vectors(batch, tuning)), [1, 2, 4, 4, 8, 8, 8]);
        assert_eq!(vectors(8, Tuning { depth: 4, ..tuning }), 8);
        assert_eq!(vectors_that_fit::<f32>(&StepSizes { batch: 8, ..QWEN3_4B }, tuning, H200_LIMIT), 4);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let check = |sizes: StepSizes| sizes.check().map_err(|error| error.to_string());
        assert_eq!(check(QWEN3_4B), Ok(()));
        for wrong in [
            StepSizes { batch: 0, ..QWEN3_4B },
            StepSizes { kv_heads: 5, ..QWEN3_4B },
            StepSizes { head_dim: 63, ..QWEN3_4B },
            StepSizes { head_dim: 258, ..QWEN3_4B },
            StepSizes { heads: u32::MAX, kv_heads: 1, ..QWEN3_4B },
        ] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_pair_of_chunks_is_a_kibibyte_of_the_ring() {
        assert_eq!((chunk::<f32>(), chunk::<bf16>()), (128, 256));
    }
}
