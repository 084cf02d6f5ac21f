//! The dimensions of a decoder, and the kernel variants for them.

use super::{TensorTuning, product::shared_limit};
use crate::launch::*;

/// The dimensions of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepSizes {
    /// Sequences.
    pub batch: u32,
    /// The hidden size.
    pub hidden: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// The head size.
    pub head_dim: u32,
    /// The feed-forward width.
    pub ffn: u32,
    /// The vocabulary size.
    pub vocab: u32,
    /// The capacity of the cache in positions.
    pub capacity: u32,
}

impl StepSizes {
    /// The width of the packed QKV projection.
    pub fn qkv(&self) -> u32 {
        self.heads.saturating_add(self.kv_heads.saturating_mul(2)).saturating_mul(self.head_dim)
    }

    /// The total width of all query heads.
    pub fn attended(&self) -> u32 {
        self.heads.saturating_mul(self.head_dim)
    }

    /// Query heads that share a key and value head.
    pub(super) fn group(&self) -> u32 {
        self.heads / self.kv_heads.max(1)
    }

    /// The size of the keys, or of the values, of one layer's cache.
    pub fn cache(&self) -> u64 {
        let heads = u64::from(self.batch) * u64::from(self.kv_heads);
        heads.saturating_mul(u64::from(self.capacity) * u64::from(self.head_dim))
    }

    pub(super) fn check(&self) -> Done {
        let all =
            [self.batch, self.hidden, self.heads, self.kv_heads, self.head_dim, self.ffn, self.vocab, self.capacity];
        let expect = |holds, otherwise| expect("preparing a step", holds, otherwise);
        expect(all.iter().all(|size| *size > 0), "a size is zero")?;
        expect(self.batch <= 65_535, "the batch is too large")?;
        expect(
            self.heads.is_multiple_of(self.kv_heads),
            "the number of query heads must be a multiple of the number of key and value heads",
        )?;
        expect(self.head_dim.is_multiple_of(2) && self.head_dim <= 256, "the head size is odd or above 256")?;
        let rows = (u64::from(self.heads) + 2 * u64::from(self.kv_heads)) * u64::from(self.head_dim);
        expect(rows < 1 << 31 && self.ffn < 1 << 30 && self.vocab < 1 << 31, "a size is too large")
    }
}

/// The kernel variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Warps per block of the kernels that read weights; there is one such block per multiprocessor.
    pub warps: u32,
    /// Copies in flight per warp, of 1 KiB each.
    pub depth: u32,
    /// The variant of attention.
    pub attention: AttentionTuning,
    /// The variant for tensor cores, if they are used. It replaces warps and depth.
    pub tensor: Option<TensorTuning>,
}

/// The variant of the attention kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionTuning {
    /// Query heads per block: 1, 2, 4 or 8.
    pub heads: u32,
    /// Blocks that split the positions of a key and value head: a power of two up to 16.
    pub splits: u32,
    /// Warps per block.
    pub warps: u32,
    /// Whether it uses tensor cores.
    pub on_tensor_cores: bool,
}

/// The shared memory per block that allows many copies in flight.
pub(super) const MUCH_SHARED: u32 = 200 << 10;
/// From this capacity on, attention is expected to take longer than the kernels around it.
const LONG: u32 = 4096;
/// The maximum number of query heads per block.
const MAX_HEADS: u32 = 8;
/// The maximum number of splits; not every GPU supports clusters of more than 8 blocks.
const MAX_SPLITS: u32 = 16;

/// The limits of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub multiprocessors: u32,
    pub has_clusters: bool,
    /// Whether there are tensor cores for the dtype.
    pub has_tensor_cores: bool,
    pub shared_limit: u32,
}

impl Tuning {
    /// The fastest variant on an H200, or one that fits a device with less shared memory.
    pub fn of<T: Element>(device: &Device, sizes: &StepSizes) -> Result<Self, CudaError> {
        sizes.check()?;
        let limits = Limits {
            multiprocessors: device.facts().multiprocessors.max(1),
            has_clusters: device.is_hopper_or_later(),
            has_tensor_cores: size_of::<T>() == 2 && device.facts().capability.0 >= 8,
            shared_limit: shared_limit(device)?,
        };
        Ok(Self::chosen(sizes, limits))
    }

    fn chosen(sizes: &StepSizes, limits: Limits) -> Self {
        let attention = AttentionTuning::chosen(sizes, limits);
        let (warps, depth) = match attention.heads {
            _ if limits.shared_limit < MUCH_SHARED => (8, 4),
            // The registers of an attention block must fit next to two blocks of the products.
            1 | 2 => (16, 5),
            _ => (12, 6),
        };
        Self { warps, depth, attention, tensor: TensorTuning::chosen(sizes, limits) }
    }

    pub(super) fn check(&self) -> Done {
        let right = (1..=32).contains(&self.warps) && (1..=64).contains(&self.depth);
        expect("preparing a step", right, "the limits are 1 to 32 warps and 1 to 64 copies in flight")?;
        let right = self.tensor.is_none_or(TensorTuning::is_valid);
        expect("preparing a step", right, "the variant for tensor cores is not supported")?;
        let AttentionTuning { heads, splits, warps, .. } = self.attention;
        let right = [1, 2, 4, 8].contains(&heads) && [1, 2, 4, 8, 16].contains(&splits) && (1..=32).contains(&warps);
        expect("preparing a step", right, "attention supports up to 8 heads per block and 16 splits")
    }
}

impl AttentionTuning {
    /// One head per block, for any dtype and size.
    pub const PLAIN: Self = Self { heads: 1, splits: 1, warps: 8, on_tensor_cores: false };

    fn chosen(sizes: &StepSizes, limits: Limits) -> Self {
        let heads_of_cache = u64::from(sizes.batch) * u64::from(sizes.kv_heads);
        // With few short contexts, it matters more how early the kernels around attention can start.
        let is_small = sizes.capacity < LONG && heads_of_cache * 8 <= u64::from(limits.multiprocessors);
        match limits.has_tensor_cores && [64, 128].contains(&sizes.head_dim) && !is_small {
            true => Self::for_tensor_cores(sizes, limits),
            false => Self::without_tensor_cores(sizes, limits),
        }
    }

    /// At most as many blocks as the device runs at once.
    fn for_tensor_cores(sizes: &StepSizes, limits: Limits) -> Self {
        let heads = sizes.group().clamp(1, MAX_HEADS).next_power_of_two();
        let blocks = u64::from(sizes.batch) * u64::from(sizes.kv_heads) * u64::from(sizes.group().div_ceil(heads));
        let available = u64::from(limits.multiprocessors);
        let limit = if limits.has_clusters { MAX_SPLITS } else { 1 };
        let mut splits = 1;
        while splits < limit && blocks * u64::from(splits) * 2 <= available {
            splits *= 2;
        }
        Self { heads, splits, warps: 8, on_tensor_cores: true }
    }

    fn without_tensor_cores(sizes: &StepSizes, limits: Limits) -> Self {
        let splits = if limits.has_clusters { 8 } else { 1 };
        let clusters = limits.multiprocessors / splits;
        let group = sizes.group();
        let needed = |heads: u32| u64::from(sizes.batch) * u64::from(sizes.kv_heads) * u64::from(group.div_ceil(heads));
        // With eight heads, no registers are left for the kernels around them to overlap.
        let mut heads = group.clamp(1, 4).next_power_of_two();
        // Blocks with fewer heads finish sooner, but their clusters delay the kernels around them.
        while sizes.capacity >= LONG && heads > 1 && needed(heads / 2) <= u64::from(clusters) {
            heads /= 2;
        }
        Self { heads, splits, ..Self::PLAIN }
    }

    /// The maximum number of registers per thread, so that two blocks of the kernels around it fit next to one of these.
    pub(super) fn max_registers(&self) -> u32 {
        match self.heads {
            _ if self.on_tensor_cores => 128,
            1 | 2 => 96,
            4 => 128,
            _ => 255,
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
