//! The sizes of a decoder, and how kernels are built for them.

use super::product::shared_limit;
use crate::{device::Device, error::CudaError, kernels::expect};

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

    pub(super) fn check(&self) -> Result<(), CudaError> {
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

/// How the kernels are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Warps a block of those that read weights; there is one such block a multiprocessor.
    pub warps: u32,
    /// Copies that each of these warps has under way, of 1 KiB each.
    pub depth: u32,
    /// The most query heads that a block of attention takes together; without it, as many as leave no multiprocessor
    /// without a block.
    pub heads: Option<u32>,
    /// Whether a kernel lets the next begin only once it has waited for the one before it, so that two are under way at
    /// once and not three.
    pub begins_late: bool,
}

impl Default for Tuning {
    /// What was fastest on an H200.
    fn default() -> Self {
        Self { warps: 16, depth: 5, heads: None, begins_late: false }
    }
}

/// Bytes of shared memory that the default asks of a device, a block.
const ENOUGH_SHARED: u32 = 200 << 10;

impl Tuning {
    /// The default, or what fits a device whose blocks have less memory.
    pub fn of(device: &Device) -> Result<Self, CudaError> {
        let small = Self { warps: 8, depth: 4, ..Self::default() };
        Ok(if shared_limit(device)? >= ENOUGH_SHARED { Self::default() } else { small })
    }

    pub(super) fn check(&self) -> Result<(), CudaError> {
        let right = (1..=32).contains(&self.warps) && (1..=64).contains(&self.depth);
        expect("preparing a step", right, "there are 1 to 32 warps and 1 to 64 copies under way")
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
}
