//! Attention of one new token over a layer's cache.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::{ATTENTION, State, Step, StepSizes, Tuning};
use crate::{
    blas::Element,
    cache::Cache,
    device::Device,
    error::CudaError,
    kernel::{Argument, Kernel, Shape},
    kernels::expect,
    memory::Buffer,
    nvrtc,
    stream::Stream,
};

/// The RoPE tables.
#[derive(Debug, Clone, Copy)]
pub struct Rotation<'a> {
    /// Cosines, `[positions, head_dim / 2]`.
    pub cosines: &'a Buffer<f32>,
    /// Sines, `[positions, head_dim / 2]`.
    pub sines: &'a Buffer<f32>,
    /// Whether neighbouring elements are rotated together (2i with 2i + 1), instead of the two halves (i with i +
    /// head_dim / 2).
    pub in_pairs: bool,
}

/// The inputs of a layer's attention in addition to the token.
#[derive(Debug)]
pub struct Attention<'a, T> {
    /// The norm weight of each query head.
    pub query_norm: Option<&'a Buffer<T>>,
    /// The norm weight of each key head.
    pub key_norm: Option<&'a Buffer<T>>,
    /// The epsilon that is added to the mean square of a head.
    pub epsilon: f32,
    /// The RoPE tables.
    pub rotation: Rotation<'a>,
}

/// The kernel, for one size of heads.
#[derive(Debug)]
pub(super) struct AttentionKernel<T> {
    kernel: Kernel,
    /// Query heads per block.
    together: u32,
    /// Blocks that share the positions of a head.
    splits: u32,
    of: PhantomData<T>,
}

const WARPS: u32 = 8;
const THREADS: u32 = WARPS * 32;

/// The compiler options in addition to the dtype.
pub(super) fn options(head_dim: u32) -> Vec<String> {
    vec![format!("-DHEAD_DIM={head_dim}")]
}

impl<T: Element> AttentionKernel<T> {
    pub fn load(device: &Device, cache: &Cache, sizes: &StepSizes, tuning: Tuning) -> Result<Self, CudaError> {
        let mut all = options(sizes.head_dim);
        all.insert(0, T::OPTION.to_owned());
        let (module, _) = nvrtc::load(device, cache, ATTENTION, &all)?;
        let splits = splits(device);
        let together = tuning.heads;
        let kernel = module.kernel(&format!("attention_step_{together}"))?;
        kernel.allow_shared_bytes(shared_bytes(together, sizes.head_dim, splits))?;
        kernel.prefer_shared_memory()?;
        Ok(Self { kernel, together, splits, of: PhantomData })
    }

    fn shape(&self, sizes: &StepSizes, rows: u32) -> Shape {
        let bundles = (sizes.heads / sizes.kv_heads).div_ceil(self.together);
        let grid = [self.splits, sizes.kv_heads * bundles, rows];
        Shape { grid, block: [THREADS, 1, 1], shared_bytes: shared_bytes(self.together, sizes.head_dim, self.splits) }
    }
}

/// Blocks that share the positions of a head, as in the kernel source: clusters need compute capability 9.0.
pub(super) fn splits(device: &Device) -> u32 {
    if device.facts().capability.0 >= 9 { 8 } else { 1 }
}

/// The kernel's `Shared`: queries, the new key and value, and the parts of each warp and of each block of a cluster.
fn shared_bytes(together: u32, head_dim: u32, splits: u32) -> u32 {
    let part = head_dim.next_multiple_of(4) + 4;
    let token = ((together + 2) * head_dim).next_multiple_of(4);
    4 * (token + (WARPS + splits) * together * part)
}

/// The rows of a step whose tokens are looked at together.
#[derive(Clone, Copy)]
struct Rows {
    first: u32,
    count: u32,
}

impl<T: Element> Step<T> {
    /// Attention of one token of each sequence. `qkv` `[batch, (heads + 2 kv_heads) * head_dim]` holds its queries, keys
    /// and values; the keys and values join the cache `[batch, kv_heads, capacity, head_dim]` at the state's position,
    /// and the queries look at all positions up to it. The result goes to `out` `[batch, heads * head_dim]`.
    ///
    /// A position beyond the cache or the RoPE tables gives NaN and writes nothing to the cache.
    pub fn attention(
        &self,
        stream: &Stream,
        qkv: &Buffer<T>,
        attention: &Attention<'_, T>,
        state: &State,
        [keys, values]: [&mut Buffer<T>; 2],
        out: &mut Buffer<T>,
    ) -> Result<(), CudaError> {
        expect("attention", state.batch == self.sizes.batch, "the state has a different number of sequences")?;
        let rows = Rows { first: 0, count: self.sizes.batch };
        self.attend(stream, rows, [qkv, &*out], attention, &state.position, [keys, values])
    }

    /// The same of one sequence alone, whose cache `[kv_heads, capacity, head_dim]` and position are its own: one row of
    /// `qkv` goes to the same row of `out`.
    #[allow(clippy::too_many_arguments)]
    pub fn attention_of_row(
        &self,
        stream: &Stream,
        row: u32,
        qkv: &Buffer<T>,
        attention: &Attention<'_, T>,
        position: &Buffer<u32>,
        [keys, values]: [&mut Buffer<T>; 2],
        out: &mut Buffer<T>,
    ) -> Result<(), CudaError> {
        expect("attention", row < self.sizes.batch, "there is no such sequence")?;
        let rows = Rows { first: row, count: 1 };
        self.attend(stream, rows, [qkv, &*out], attention, position, [keys, values])
    }

    /// `out` is written, as are keys and values.
    fn attend(
        &self,
        stream: &Stream,
        rows: Rows,
        [qkv, out]: [&Buffer<T>; 2],
        attention: &Attention<'_, T>,
        position: &Buffer<u32>,
        [keys, values]: [&mut Buffer<T>; 2],
    ) -> Result<(), CudaError> {
        let (sizes, rotation) = (&self.sizes, attention.rotation);
        let each =
            |buffer: &Buffer<T>, numbers: u32| buffer.length() as u64 >= u64::from(sizes.batch) * u64::from(numbers);
        let cached = sizes.cache() / u64::from(sizes.batch) * u64::from(rows.count);
        let norms = [attention.query_norm, attention.key_norm];
        let fits = each(qkv, sizes.qkv())
            && each(out, sizes.attended())
            && [&*keys, &*values].iter().all(|cache| cache.length() as u64 >= cached)
            && norms.iter().flatten().all(|norm| norm.length() >= sizes.head_dim as usize)
            && rotation.sines.length() >= rotation.cosines.length()
            && position.length() > 0;
        expect("attention", fits, "a buffer is too small")?;
        let shape = self.attention.shape(sizes, rows.count);
        expect("attention", shape.grid[1] <= 65_535, "there are too many heads")?;
        let positions = rotation.cosines.length() / (sizes.head_dim as usize / 2);
        let optional = |buffer: Option<&Buffer<T>>| buffer.map_or(Argument::from(0_u64), Argument::from);
        let from = |buffer: &Buffer<T>, width: u32| {
            let begin = rows.first as usize * width as usize;
            buffer.slice(begin..buffer.length()).map(Argument::from)
        };
        let arguments: [Argument; 16] = [
            from(qkv, sizes.qkv())?,
            optional(attention.query_norm),
            optional(attention.key_norm),
            attention.epsilon.into(),
            (1.0 / (sizes.head_dim as f32).sqrt()).into(),
            rotation.cosines.into(),
            rotation.sines.into(),
            u32::try_from(positions).unwrap_or(u32::MAX).into(),
            u32::from(rotation.in_pairs).into(),
            position.into(),
            keys.into(),
            values.into(),
            sizes.capacity.into(),
            sizes.heads.into(),
            sizes.kv_heads.into(),
            from(out, sizes.attended())?,
        ];
        // SAFETY: the kernel stays within the sizes, and the buffers are at least as large.
        unsafe { self.launch(&self.attention.kernel, stream, shape, &arguments) }
    }
}
