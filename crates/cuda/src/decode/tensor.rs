//! Products of weights with several vectors on tensor cores.

use super::{StepSizes, sizes::Limits};
use crate::kernel::Shape;

/// The variant of the tensor core kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorTuning {
    /// Vectors per block: 8, 16 or 32.
    pub vectors: u32,
    /// Blocks that split the width of LINEAR_ADD (split-K): 1, 2, 4 or 8.
    pub splits: u32,
    /// Warps per block.
    pub warps: u32,
    /// Copies in flight per warp, of 2 KiB each.
    pub depth: u32,
}

/// The dimensions of a product.
#[derive(Debug, Clone, Copy)]
pub(super) struct Product {
    /// Pairs of rows.
    pub pairs: u32,
    pub width: u32,
    pub has_norm: bool,
}

/// With more vectors than this, cuBLAS is faster.
const MAX_VECTORS: u32 = 8;
/// Elements of a row per step of a warp.
const STEP: u32 = 64;
/// Pairs of rows per tile.
const TILE: u32 = 8;
/// Elements in 16 bytes; widths must be multiples of it.
const VECTOR: u32 = 8;
const ELEMENT_BYTES: u32 = 2;
const SPLITS: u32 = 8;
const WARPS: u32 = 8;

impl TensorTuning {
    /// The variant for these dimensions; none if other kernels are faster, or if shared memory is too small.
    pub(super) fn chosen(sizes: &StepSizes, limits: Limits) -> Option<Self> {
        let widths = [sizes.hidden, sizes.ffn, sizes.attended()];
        let is_possible = limits.has_tensor_cores && limits.has_clusters && (2..=MAX_VECTORS).contains(&sizes.batch);
        if !is_possible || widths.iter().any(|width| !width.is_multiple_of(VECTOR)) {
            return None;
        }
        let vectors = sizes.batch.next_power_of_two().max(8);
        let tried = |depth| Self { vectors, splits: SPLITS, warps: WARPS, depth };
        let fits = |variant: &Self, limit| variant.largest(sizes, limits.multiprocessors) <= limit;
        // If two blocks fit, the next kernel loads its weights while this one runs.
        let twice = (2..=4).rev().map(tried).find(|variant| fits(variant, limits.shared_limit / 2));
        twice.or_else(|| (2..=6).rev().map(tried).find(|variant| fits(variant, limits.shared_limit)))
    }

    pub(super) fn is_valid(self) -> bool {
        let Self { vectors, splits, warps, depth } = self;
        [8, 16, 32].contains(&vectors)
            && [1, 2, 4, 8].contains(&splits)
            && (1..=16).contains(&warps)
            && (1..=16).contains(&depth)
    }

    /// The maximum shared memory of a step's blocks.
    fn largest(self, sizes: &StepSizes, multiprocessors: u32) -> u32 {
        let added = |width| Product { pairs: sizes.hidden.div_ceil(2), width, has_norm: false };
        let normed = Product { pairs: sizes.ffn, width: sizes.hidden, has_norm: true };
        let all = [normed, added(sizes.ffn), added(sizes.attended())];
        all.into_iter().map(|product| self.shape(product, sizes.batch, multiprocessors).shared_bytes).max().unwrap_or(0)
    }

    /// The launch configuration of a product.
    pub(super) fn shape(self, product: Product, batch: u32, multiprocessors: u32) -> Shape {
        let splits = if product.has_norm { 1 } else { self.splits };
        // Clusters are within groups of 16 or 18 multiprocessors.
        let usable = if splits > 1 { (multiprocessors & !15).max(splits) } else { multiprocessors };
        let owners = (usable / splits).clamp(1, product.pairs.max(1));
        let shared_bytes = self.shared_bytes(product, splits, product.pairs.div_ceil(owners).div_ceil(TILE));
        let grid = [owners * splits, batch.div_ceil(self.vectors), 1];
        Shape::new(grid, [self.warps * 32, 1, 1]).with_shared(shared_bytes)
    }

    /// The kernel's `Buffers`.
    fn shared_bytes(self, product: Product, splits: u32, tiles: u32) -> u32 {
        let Self { vectors, warps, depth, .. } = self;
        let row = product.width.div_ceil(STEP).div_ceil(splits) * STEP + STEP / 2;
        let piece = 2 * TILE * if vectors == 8 { 8 } else { vectors + 8 } * 4;
        let ring = warps * depth * 2048;
        let x = vectors.saturating_mul(row) * ELEMENT_BYTES;
        if product.has_norm {
            return ring + (x + row * ELEMENT_BYTES).max(2 * warps * piece);
        }
        let pieces = (warps + tiles).saturating_mul(piece);
        // From all blocks of the cluster, the sums that this one writes, two per pair.
        let others = tiles.saturating_mul(TILE * vectors * 8);
        ring.saturating_add(x).saturating_add(pieces).saturating_add(others)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::sizes::tests::{H200, QWEN3_4B},
        *,
    };

    fn chosen(batch: u32, sizes: StepSizes) -> Option<TensorTuning> {
        TensorTuning::chosen(&StepSizes { batch, ..sizes }, H200)
    }

    #[test]
    fn two_to_eight_vectors_use_tensor_cores() {
        let vectors = [1, 2, 8, 9].map(|batch| chosen(batch, QWEN3_4B).map(|variant| variant.vectors));
        assert_eq!(vectors, [None, Some(8), Some(8), None]);
    }

    #[test]
    fn two_blocks_with_eight_vectors_fit() {
        let tensor = chosen(8, QWEN3_4B).map(|variant| (variant.largest(&QWEN3_4B, 132), variant.depth));
        assert!(tensor.is_some_and(|(bytes, depth)| bytes <= H200.shared_limit / 2 && depth == 4), "{tensor:?}");
    }

    #[test]
    fn odd_widths_large_vectors_and_older_gpus_use_other_kernels() {
        assert_eq!(chosen(8, StepSizes { hidden: 2562, ..QWEN3_4B }), None);
        assert_eq!(chosen(8, StepSizes { hidden: 1 << 15, ..QWEN3_4B }), None);
        assert_eq!(
            TensorTuning::chosen(&StepSizes { batch: 8, ..QWEN3_4B }, Limits { has_clusters: false, ..H200 }),
            None
        );
    }

    #[test]
    fn clusters_split_the_multiprocessors() {
        let tensor = TensorTuning { vectors: 8, splits: 8, warps: 8, depth: 4 };
        let added = Product { pairs: 1280, width: 9728, has_norm: false };
        assert_eq!(tensor.shape(added, 8, 132).grid, [128, 1, 1]);
        assert_eq!(tensor.shape(Product { has_norm: true, ..added }, 9, 132).grid, [132, 2, 1]);
        assert_eq!(tensor.shape(Product { pairs: 3, ..added }, 1, 132).grid, [24, 1, 1]);
    }
}
