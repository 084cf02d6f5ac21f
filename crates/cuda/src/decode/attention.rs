//! Attention of one new token over a layer's cache.

use super::{ATTENTION, Spread, State, Step, StepSizes};
use crate::{
    launch::*,
    nn::{Pairing, Rotation, of_window},
};

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
    /// Whether a query sees only the window of [`Step::with_window`].
    pub is_windowed: bool,
}

#[derive(Debug)]
pub(super) struct AttentionKernel {
    kernel: Kernel,
    pub spread: Spread,
}

const DOING: &str = "attention";
/// The largest cluster that every GPU with clusters can run.
const PORTABLE_SPLITS: u32 = 8;

impl AttentionKernel {
    pub fn load<T: Element>(
        device: &Device,
        cache: &Cache,
        sizes: &StepSizes,
        spread: Spread,
        window: Option<u32>,
    ) -> Result<Self, CudaError> {
        let module = Request::typed::<T>(ATTENTION, &options(sizes.head_dim, window, spread)).load(device, cache)?;
        let attention = Self { kernel: module.step_kernel("attention_step")?, spread };
        attention.kernel.allow_shared_bytes(shared_bytes(spread, sizes.head_dim))?;
        if spread.splits > PORTABLE_SPLITS {
            attention.kernel.allow_large_clusters()?;
            if attention.kernel.clusters_at_once(attention.shape(sizes, sizes.batch))? == 0 {
                return Self::load::<T>(device, cache, sizes, Spread { splits: PORTABLE_SPLITS, ..spread }, window);
            }
        }
        Ok(attention)
    }

    fn shape(&self, sizes: &StepSizes, rows: u32) -> Shape {
        let Spread { heads, splits, warps, .. } = self.spread;
        let grid = [splits, sizes.kv_heads * sizes.group().div_ceil(heads), rows];
        Shape { grid, block: [warps * 32, 1, 1], shared_bytes: shared_bytes(self.spread, sizes.head_dim) }
    }
}

/// The compiler options, in addition to the dtype.
pub(super) fn options(head_dim: u32, window: Option<u32>, spread: Spread) -> Vec<String> {
    let Spread { heads, splits, warps, on_tensor_cores } = spread;
    let sizes = [("TOGETHER", heads), ("SPLITS", splits), ("WARPS", warps), ("REGISTERS", spread.registers())];
    let sizes = sizes.iter().map(|(name, value)| format!("-D{name}={value}"));
    let tensor = on_tensor_cores.then(|| "-DON_TENSOR_CORES".to_owned());
    of_window(head_dim, window).into_iter().chain(sizes).chain(tensor).collect()
}

/// The kernel's `Shared`: queries, the new key and value, and the parts of each warp and of each block of a cluster.
fn shared_bytes(Spread { heads, splits, warps, .. }: Spread, head_dim: u32) -> u32 {
    let part = head_dim.next_multiple_of(4) + 4;
    let token = ((heads + 2) * head_dim).next_multiple_of(4);
    4 * (token + (warps + splits) * heads * part)
}

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
    ) -> Done {
        let rows = Rows { first: 0, count: self.sizes.batch };
        let launch = Launch::new(stream, DOING)
            .require(state.batch == self.sizes.batch, "the state has a different number of sequences");
        self.attend(launch, rows, (qkv, out), attention, &state.position, [keys, values])
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
    ) -> Done {
        let launch = Launch::new(stream, DOING).require(row < self.sizes.batch, "there is no such sequence");
        self.attend(launch, Rows { first: row, count: 1 }, (qkv, out), attention, position, [keys, values])
    }

    fn attend(
        &self,
        launch: Launch<'_>,
        rows: Rows,
        (qkv, out): (&Buffer<T>, &mut Buffer<T>),
        attention: &Attention<'_, T>,
        position: &Buffer<u32>,
        [keys, values]: [&mut Buffer<T>; 2],
    ) -> Done {
        let (sizes, rotation) = (&self.sizes, attention.rotation);
        let cached = sizes.cache() / u64::from(sizes.batch) * u64::from(rows.count);
        let launch = launch.fits(qkv, area(sizes.batch, sizes.qkv())).fits(&*out, area(sizes.batch, sizes.attended()));
        launch.check()?;
        let begin = |width: u32| rows.first as usize * width as usize;
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
            .with_border();
        let windowed = self.windowed.as_ref().filter(|_| attention.is_windowed);
        let launch = launch.require(!attention.is_windowed || windowed.is_some(), "the step has no window");
        let kernel = windowed.unwrap_or(&self.attention);
        launch.run_early(&kernel.kernel, kernel.shape(sizes, rows.count), self.overlaps)
    }
}
