//! Attention of one new token over a layer's cache.

use super::{ATTENTION, AttentionTuning, State, Step, StepSizes};
use crate::{
    launch::*,
    nn::{Pairing, Rotation, of_window},
};

/// The inputs of a layer's attention in addition to the token.
#[derive(Debug)]
pub struct Attention<'a, T> {
    /// The norm weight of query heads.
    pub query_norm: Option<&'a Buffer<T>>,
    /// The norm weight of key heads.
    pub key_norm: Option<&'a Buffer<T>>,
    /// Added to the mean square of a head.
    pub epsilon: f32,
    /// The RoPE tables.
    pub rotation: Rotation<'a>,
    /// Whether it is limited to the window of [`Step::with_window`].
    pub is_windowed: bool,
}

#[derive(Debug)]
pub(super) struct AttentionKernel {
    kernel: Kernel,
    pub tuning: AttentionTuning,
}

const DOING: &str = "computing attention";
/// The largest cluster that every GPU with clusters can run.
const PORTABLE_SPLITS: u32 = 8;

impl AttentionKernel {
    pub fn load<T: Element>(
        device: &Device,
        cache: &Cache,
        sizes: &StepSizes,
        tuning: AttentionTuning,
        window: Option<u32>,
    ) -> Result<Self, CudaError> {
        let module = Request::typed::<T>(ATTENTION, &options(sizes.head_dim, window, tuning)).load(device, cache)?;
        let attention = Self { kernel: module.step_kernel("attention_step")?, tuning };
        attention.kernel.allow_shared_bytes(shared_bytes(tuning, sizes.head_dim))?;
        if tuning.splits > PORTABLE_SPLITS {
            attention.kernel.allow_large_clusters()?;
            if attention.kernel.clusters_at_once(attention.shape(sizes, sizes.batch))? == 0 {
                let tuning = AttentionTuning { splits: PORTABLE_SPLITS, ..tuning };
                return Self::load::<T>(device, cache, sizes, tuning, window);
            }
        }
        Ok(attention)
    }

    fn shape(&self, sizes: &StepSizes, rows: u32) -> Shape {
        let AttentionTuning { heads, splits, warps, .. } = self.tuning;
        let grid = [splits, sizes.kv_heads * sizes.group().div_ceil(heads), rows];
        Shape::new(grid, [warps * 32, 1, 1]).with_shared(shared_bytes(self.tuning, sizes.head_dim))
    }
}

pub(super) fn options(head_dim: u32, window: Option<u32>, tuning: AttentionTuning) -> Vec<String> {
    let AttentionTuning { heads, splits, warps, on_tensor_cores } = tuning;
    let sizes = [("HEADS", heads), ("SPLITS", splits), ("WARPS", warps), ("MAX_REGISTERS", tuning.max_registers())];
    let sizes = sizes.iter().map(|(name, value)| format!("-D{name}={value}"));
    let tensor = on_tensor_cores.then(|| "-DON_TENSOR_CORES".to_owned());
    of_window(head_dim, window).into_iter().chain(sizes).chain(tensor).collect()
}

/// The kernel's `Shared`: queries, the new key and value, and the partial results of each warp and of each block of a cluster.
fn shared_bytes(AttentionTuning { heads, splits, warps, .. }: AttentionTuning, head_dim: u32) -> u32 {
    let partial = head_dim.next_multiple_of(4) + 4;
    let token = ((heads + 2) * head_dim).next_multiple_of(4);
    4 * (token + (warps + splits) * heads * partial)
}

/// The sequences whose attention is computed.
#[derive(Debug, Clone, Copy)]
pub enum StepRows<'a> {
    /// All sequences, at the state's position.
    All(&'a State),
    /// One row, with its own position and cache `[kv_heads, capacity, head_dim]`.
    One(u32, &'a Buffer<u32>),
}

impl<T: Element> Step<T> {
    /// Attention of one token of each sequence. `qkv` `[batch, (heads + 2 kv_heads) * head_dim]` has its queries, keys and
    /// values; keys and values are added to the cache `[batch, kv_heads, capacity, head_dim]` at the position, and the
    /// queries see all positions up to it. The result goes to `out` `[batch, heads * head_dim]`.
    ///
    /// A position beyond the cache or the RoPE tables gives NaN and writes nothing to the cache.
    pub fn attention(
        &self,
        stream: &Stream,
        qkv: &Buffer<T>,
        attention: &Attention<'_, T>,
        rows: StepRows<'_>,
        [keys, values]: [&mut Buffer<T>; 2],
        out: &mut Buffer<T>,
    ) -> Done {
        let (first, count, position, is_valid) = match rows {
            StepRows::All(state) => (0, self.sizes.batch, &state.position, state.batch == self.sizes.batch),
            StepRows::One(row, position) => (row, 1, position, row < self.sizes.batch),
        };
        let launch = Launch::new(stream, DOING).require(is_valid, "the step has a different number of sequences");
        let (sizes, rotation) = (&self.sizes, attention.rotation);
        let cached = sizes.cache() / u64::from(sizes.batch) * u64::from(count);
        let launch = launch.fits(qkv, area(sizes.batch, sizes.qkv())).fits(&*out, area(sizes.batch, sizes.attended()));
        launch.check()?;
        let begin = |width: u32| first as usize * width as usize;
        let positions = rotation.cosines.length() / (sizes.head_dim as usize / 2);
        let launch = launch
            .read(qkv.slice(begin(sizes.qkv())..qkv.length())?, 0_u32)
            .read(attention.query_norm, sizes.head_dim)
            .read(attention.key_norm, sizes.head_dim)
            .with_all([attention.epsilon, 1.0 / (sizes.head_dim as f32).sqrt()])
            .read(rotation.cosines, 0_u32)
            .read(rotation.sines, rotation.cosines.length() as u64)
            .with(blocks(positions))
            .with(rotation.pairing == Pairing::Pairs)
            .read(position, 1_u32)
            .write(keys, cached)
            .write(values, cached)
            .with_all([sizes.capacity, sizes.heads, sizes.kv_heads])
            .write(out.slice_mut(begin(sizes.attended())..out.length())?, 0_u32)
            .with_timestamp();
        let windowed = self.windowed.as_ref().filter(|_| attention.is_windowed);
        let launch = launch.require(!attention.is_windowed || windowed.is_some(), "the step has no window");
        let kernel = windowed.unwrap_or(&self.attention);
        launch.run_early(&kernel.kernel, kernel.shape(sizes, count), self.overlaps)
    }
}
