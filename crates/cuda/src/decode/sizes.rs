//! The sizes of a decoder, and how kernels are built for them.

use super::{attention::splits, product::shared_limit};
use crate::launch::{CudaError, Device, Done, expect};

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
    /// Query heads per attention block: 1, 2, 4 or 8.
    pub heads: u32,
}

/// The shared memory per block that allows deep copies.
pub(super) const MUCH_SHARED: u32 = 200 << 10;
/// From this capacity on, the cache is meant for contexts whose attention takes longer than the kernels around it.
const LONG: u32 = 4096;

impl Tuning {
    /// The fastest variant on an H200, or one that fits a device with less shared memory.
    pub fn of(device: &Device, sizes: &StepSizes) -> Result<Self, CudaError> {
        sizes.check()?;
        let blocks = device.facts().multiprocessors / splits(device);
        Ok(Self::chosen(sizes, blocks, shared_limit(device)?))
    }

    /// `clusters` is the number that the device can run at once with one block per multiprocessor.
    fn chosen(sizes: &StepSizes, clusters: u32, shared_limit: u32) -> Self {
        let group = sizes.heads / sizes.kv_heads;
        let needed = |heads: u32| u64::from(sizes.batch) * u64::from(sizes.kv_heads) * u64::from(group.div_ceil(heads));
        // Eight heads use all registers of a multiprocessor, so that the kernels around them cannot overlap.
        let mut heads = group.clamp(1, 4).next_power_of_two();
        // Blocks with few heads finish sooner; their clusters delay the kernels around them.
        while sizes.capacity >= LONG && heads > 1 && needed(heads / 2) <= u64::from(clusters) {
            heads /= 2;
        }
        match heads {
            _ if shared_limit < MUCH_SHARED => Self { warps: 8, depth: 4, heads },
            // The registers of an attention block must fit next to two of the weight kernels.
            1 | 2 => Self { warps: 16, depth: 5, heads },
            _ => Self { warps: 12, depth: 6, heads },
        }
    }

    pub(super) fn check(&self) -> Done {
        let right = (1..=32).contains(&self.warps) && (1..=64).contains(&self.depth);
        expect("preparing a step", right, "the limits are 1 to 32 warps and 1 to 64 copies in flight")?;
        expect("preparing a step", [1, 2, 4, 8].contains(&self.heads), "a block takes 1, 2, 4 or 8 heads")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub const QWEN3_4B: StepSizes = StepSizes {
        batch: 1,
        hidden: 2560,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        ffn: 9728,
        vocab: 151_936,
        capacity: 4096,
    };

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
    fn a_block_of_attention_takes_four_heads_of_a_key_unless_contexts_are_long() {
        let heads = |capacity, heads| {
            let sizes = StepSizes { capacity, heads, ..QWEN3_4B };
            Tuning::chosen(&sizes, 16, 227 << 10).heads
        };
        assert_eq!([8, 16, 32, 56, 128].map(|all| heads(1024, all)), [1, 2, 4, 4, 4]);
        assert_eq!([8, 16, 32, 56, 128].map(|all| heads(4096, all)), [1, 1, 2, 4, 4]);
    }

    #[test]
    fn blocks_are_smaller_where_attention_needs_registers_or_memory_is_short() {
        let warps = |heads, limit| {
            let sizes = StepSizes { capacity: 1024, heads, ..QWEN3_4B };
            Tuning::chosen(&sizes, 16, limit).warps
        };
        assert_eq!((warps(16, 227 << 10), warps(32, 227 << 10), warps(16, 99 << 10)), (16, 12, 8));
    }
}
