//! How products of weights with several vectors are done on tensor cores.

use super::{StepSizes, sizes::Means};
use crate::kernel::Shape;

/// The variant of the kernels that multiply weights with several vectors on tensor cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Together {
    /// Vectors per block: 8, 16 or 32.
    pub vectors: u32,
    /// Blocks that share the width of a product that is added: 1, 2, 4 or 8.
    pub splits: u32,
    /// Warps per block.
    pub warps: u32,
    /// Copies in flight per warp, of 2 KiB each.
    pub depth: u32,
}

/// A product, as far as its launch depends on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Product {
    /// Pairs of rows that are finished together.
    pub pairs: u32,
    pub width: u32,
    pub has_norm: bool,
}

/// The most vectors: with more of them, cuBLAS is faster.
const MOST_TOGETHER: u32 = 8;
/// Numbers of a row that a warp takes at once.
const STEP: u32 = 64;
/// Pairs of rows of a tile.
const TILE: u32 = 8;
/// The numbers of 16 bytes, which widths are whole multiples of.
const GROUP: u32 = 8;
const NUMBER_BYTES: u32 = 2;
const SPLITS: u32 = 8;
const WARPS: u32 = 8;

impl Together {
    /// The variant for these sizes, unless another way is better or memory is too small.
    pub(super) fn chosen(sizes: &StepSizes, means: Means) -> Option<Self> {
        let widths = [sizes.hidden, sizes.ffn, sizes.attended()];
        let is_possible = means.has_tensor_cores && means.has_clusters && (2..=MOST_TOGETHER).contains(&sizes.batch);
        if !is_possible || widths.iter().any(|width| !width.is_multiple_of(GROUP)) {
            return None;
        }
        let vectors = sizes.batch.next_power_of_two().max(8);
        let tried = |depth| Self { vectors, splits: SPLITS, warps: WARPS, depth };
        let fits = |together: &Self, limit| together.largest(sizes, means.multiprocessors) <= limit;
        // If two blocks fit, the next kernel fetches its weights while this one runs.
        let twice = (2..=4).rev().map(tried).find(|together| fits(together, means.shared_limit / 2));
        twice.or_else(|| (2..=6).rev().map(tried).find(|together| fits(together, means.shared_limit)))
    }

    pub(super) fn is_sensible(self) -> bool {
        let Self { vectors, splits, warps, depth } = self;
        [8, 16, 32].contains(&vectors)
            && [1, 2, 4, 8].contains(&splits)
            && (1..=16).contains(&warps)
            && (1..=16).contains(&depth)
    }

    /// The shared memory of the largest block of a step.
    fn largest(self, sizes: &StepSizes, multiprocessors: u32) -> u32 {
        let added = |width| Product { pairs: sizes.hidden.div_ceil(2), width, has_norm: false };
        let normed = Product { pairs: sizes.ffn, width: sizes.hidden, has_norm: true };
        let all = [normed, added(sizes.ffn), added(sizes.attended())];
        all.into_iter().map(|product| self.shape(product, sizes.batch, multiprocessors).shared_bytes).max().unwrap_or(0)
    }

    /// The launch of a product with this number of vectors.
    pub(super) fn shape(self, product: Product, batch: u32, multiprocessors: u32) -> Shape {
        let splits = if product.has_norm { 1 } else { self.splits };
        // Clusters lie in groups of 16 or 18 multiprocessors.
        let usable = if splits > 1 { (multiprocessors & !15).max(splits) } else { multiprocessors };
        let owners = (usable / splits).clamp(1, product.pairs.max(1));
        let shared_bytes = self.shared_bytes(product, splits, product.pairs.div_ceil(owners).div_ceil(TILE));
        let grid = [owners * splits, batch.div_ceil(self.vectors), 1];
        Shape { grid, block: [self.warps * 32, 1, 1], shared_bytes }
    }

    /// The kernel's `Room`.
    fn shared_bytes(self, product: Product, splits: u32, tiles: u32) -> u32 {
        let Self { vectors, warps, depth, .. } = self;
        let row = product.width.div_ceil(STEP).div_ceil(splits) * STEP + STEP / 2;
        let piece = 2 * TILE * if vectors == 8 { 8 } else { vectors + 8 } * 4;
        let ring = warps * depth * 2048;
        let x = vectors.saturating_mul(row) * NUMBER_BYTES;
        if product.has_norm {
            return ring + (x + row * NUMBER_BYTES).max(2 * warps * piece);
        }
        let pieces = (warps + tiles).saturating_mul(piece);
        // Each block of a cluster receives its share of all sums, two of each pair, from all.
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

    fn chosen(batch: u32, sizes: StepSizes) -> Option<Together> {
        Together::chosen(&StepSizes { batch, ..sizes }, H200)
    }

    #[test]
    fn from_two_to_eight_vectors_are_multiplied_together() {
        let vectors = [1, 2, 8, 9].map(|batch| chosen(batch, QWEN3_4B).map(|together| together.vectors));
        assert_eq!(vectors, [None, Some(8), Some(8), None]);
    }

    #[test]
    fn two_blocks_find_room_with_eight_vectors() {
        let together = chosen(8, QWEN3_4B).map(|together| (together.largest(&QWEN3_4B, 132), together.depth));
        assert!(together.is_some_and(|(bytes, depth)| bytes <= H200.shared_limit / 2 && depth == 4), "{together:?}");
    }

    #[test]
    fn odd_widths_vectors_without_room_and_older_gpus_take_another_way() {
        assert_eq!(chosen(8, StepSizes { hidden: 2562, ..QWEN3_4B }), None);
        assert_eq!(chosen(8, StepSizes { hidden: 1 << 15, ..QWEN3_4B }), None);
        assert_eq!(Together::chosen(&StepSizes { batch: 8, ..QWEN3_4B }, Means { has_clusters: false, ..H200 }), None);
    }

    #[test]
    fn clusters_divide_the_multiprocessors() {
        let together = Together { vectors: 8, splits: 8, warps: 8, depth: 4 };
        let added = Product { pairs: 1280, width: 9728, has_norm: false };
        assert_eq!(together.shape(added, 8, 132).grid, [128, 1, 1]);
        assert_eq!(together.shape(Product { has_norm: true, ..added }, 9, 132).grid, [132, 2, 1]);
        assert_eq!(together.shape(Product { pairs: 3, ..added }, 1, 132).grid, [24, 1, 1]);
    }
}
