//! The sizes of a decoder, and how kernels are built for them.

use super::{Together, product::shared_limit};
use crate::launch::*;

/// The sizes of a decoder, as a step needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepSizes {
    /// Sequences in a step.
    pub batch: u32,
    /// The hidden size.
    pub hidden: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// The head size.
    pub head_dim: u32,
    /// The width of the feed-forward part.
    pub ffn: u32,
    /// The vocabulary size.
    pub vocab: u32,
    /// The capacity of the cache in positions.
    pub capacity: u32,
}

impl StepSizes {
    /// Rows of the packed projection to queries, keys and values.
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
        expect(self.heads.is_multiple_of(self.kv_heads), "the query heads are no multiple of the key and value heads")?;
        expect(self.head_dim.is_multiple_of(2) && self.head_dim <= 256, "the size of a head is odd or above 256")?;
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
    /// How attention is distributed.
    pub attention: Spread,
    /// How several vectors are multiplied on tensor cores, if they are. It takes the place of warps and depth.
    pub together: Option<Together>,
}

/// How the attention of a step is distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// Query heads per block: 1, 2, 4 or 8.
    pub heads: u32,
    /// Blocks that share the positions of a key and value head: a power of two up to 16.
    pub splits: u32,
    /// Warps per block.
    pub warps: u32,
    /// Whether products of queries and keys, and of weights and values, are those of tensor cores.
    pub on_tensor_cores: bool,
}

/// The shared memory per block that allows deep copies.
pub(super) const MUCH_SHARED: u32 = 200 << 10;
/// From this capacity on, the cache is meant for contexts whose attention takes longer than the kernels around it.
const LONG: u32 = 4096;
/// The most query heads per block.
const MOST_HEADS: u32 = 8;
/// The most blocks that share the positions of a head; a cluster of more than 8 is not possible on every GPU.
const MOST_SPLITS: u32 = 16;

/// What a device has for a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Means {
    pub multiprocessors: u32,
    pub has_clusters: bool,
    /// Whether there are tensor cores for the step's dtype.
    pub has_tensor_cores: bool,
    pub shared_limit: u32,
}

impl Tuning {
    /// The fastest variant on an H200, or one that fits a device with less shared memory.
    pub fn of<T: Element>(device: &Device, sizes: &StepSizes) -> Result<Self, CudaError> {
        sizes.check()?;
        let means = Means {
            multiprocessors: device.facts().multiprocessors.max(1),
            has_clusters: device.is_hopper_or_later(),
            has_tensor_cores: size_of::<T>() == 2 && device.facts().capability.0 >= 8,
            shared_limit: shared_limit(device)?,
        };
        Ok(Self::chosen(sizes, means))
    }

    fn chosen(sizes: &StepSizes, means: Means) -> Self {
        let attention = Spread::chosen(sizes, means);
        let (warps, depth) = match attention.heads {
            _ if means.shared_limit < MUCH_SHARED => (8, 4),
            // The registers of an attention block must fit next to two of the weight kernels.
            1 | 2 => (16, 5),
            _ => (12, 6),
        };
        Self { warps, depth, attention, together: Together::chosen(sizes, means) }
    }

    pub(super) fn check(&self) -> Done {
        let right = (1..=32).contains(&self.warps) && (1..=64).contains(&self.depth);
        expect("preparing a step", right, "the limits are 1 to 32 warps and 1 to 64 copies in flight")?;
        let right = self.together.is_none_or(Together::is_sensible);
        expect("preparing a step", right, "8, 16 or 32 vectors are multiplied together")?;
        let Spread { heads, splits, warps, .. } = self.attention;
        let right = [1, 2, 4, 8].contains(&heads) && [1, 2, 4, 8, 16].contains(&splits) && (1..=32).contains(&warps);
        expect("preparing a step", right, "a block of attention takes up to 8 heads, and up to 16 share a head")
    }
}

impl Spread {
    /// One head per block, of any type and size.
    pub const PLAIN: Self = Self { heads: 1, splits: 1, warps: 8, on_tensor_cores: false };

    fn chosen(sizes: &StepSizes, means: Means) -> Self {
        let heads_of_cache = u64::from(sizes.batch) * u64::from(sizes.kv_heads);
        // A few short contexts are soon read, and then it counts how early the kernels around them can begin.
        let is_small = sizes.capacity < LONG && heads_of_cache * 8 <= u64::from(means.multiprocessors);
        match means.has_tensor_cores && [64, 128].contains(&sizes.head_dim) && !is_small {
            true => Self::on_tensor_cores(sizes, means),
            false => Self::by_numbers(sizes, means),
        }
    }

    /// As many blocks as the device can run at once, and no more.
    fn on_tensor_cores(sizes: &StepSizes, means: Means) -> Self {
        let heads = sizes.group().clamp(1, MOST_HEADS).next_power_of_two();
        let blocks = u64::from(sizes.batch) * u64::from(sizes.kv_heads) * u64::from(sizes.group().div_ceil(heads));
        let available = u64::from(means.multiprocessors);
        let most = if means.has_clusters { MOST_SPLITS } else { 1 };
        let mut splits = 1;
        while splits < most && blocks * u64::from(splits) * 2 <= available {
            splits *= 2;
        }
        Self { heads, splits, warps: 8, on_tensor_cores: true }
    }

    fn by_numbers(sizes: &StepSizes, means: Means) -> Self {
        let splits = if means.has_clusters { 8 } else { 1 };
        let clusters = means.multiprocessors / splits;
        let group = sizes.group();
        let needed = |heads: u32| u64::from(sizes.batch) * u64::from(sizes.kv_heads) * u64::from(group.div_ceil(heads));
        // Eight heads use all registers of a multiprocessor, so that the kernels around them cannot overlap.
        let mut heads = group.clamp(1, 4).next_power_of_two();
        // Blocks with few heads finish sooner; their clusters delay the kernels around them.
        while sizes.capacity >= LONG && heads > 1 && needed(heads / 2) <= u64::from(clusters) {
            heads /= 2;
        }
        Self { heads, splits, ..Self::PLAIN }
    }

    /// The most registers per thread: two blocks of the kernels around it shall fit next to one of these.
    pub(super) fn registers(&self) -> u32 {
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
