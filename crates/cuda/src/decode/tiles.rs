//! The tiles of a product, which are distributed to the warps of a block.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tiles {
    /// Segments per row.
    pub segments: u32,
    /// Chunks per segment: a chunk is one step of a warp.
    pub segment: u32,
}

/// The maximum number of segments per row: each costs additional sums.
const MAX_SEGMENTS: u32 = 16;

impl Tiles {
    pub fn whole(chunks: u32) -> Self {
        Self { segments: 1, segment: chunks.max(1) }
    }

    /// The split that minimises the work of the busiest warp of a block with this number of row pairs. With many rows, the
    /// warps are balanced without a split.
    pub fn even(pairs: u32, chunks: u32, warps: u32) -> Self {
        if pairs >= 4 * warps {
            return Self::whole(chunks);
        }
        let longest = |tiles: &Self| (pairs * tiles.segments).div_ceil(warps) * tiles.segment;
        let splits = (1..=MAX_SEGMENTS.min(chunks.max(1))).map(|segments| {
            let segment = chunks.div_ceil(segments).max(1);
            Self { segments: chunks.div_ceil(segment).max(1), segment }
        });
        splits.min_by_key(|tiles| (longest(tiles), tiles.segments)).unwrap_or(Self::whole(chunks))
    }

    /// The length of a vector with its zero padding.
    pub fn padded(self, chunk: u32) -> u32 {
        self.segments.saturating_mul(self.segment).saturating_mul(chunk)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sixteen_pairs_of_short_rows_give_eight_warps_two_each() {
        assert_eq!(Tiles::even(16, 4, 8), Tiles { segments: 1, segment: 4 });
    }

    #[test]
    fn four_pairs_of_long_rows_are_split_until_every_warp_has_some() {
        assert_eq!(Tiles::even(4, 8, 8), Tiles { segments: 2, segment: 4 });
        assert_eq!(Tiles::even(4, 12, 8), Tiles { segments: 2, segment: 6 });
        assert_eq!(Tiles::even(3, 16, 8), Tiles { segments: 8, segment: 2 });
    }

    #[test]
    fn many_rows_are_not_split() {
        assert_eq!(Tiles::even(32, 100, 8), Tiles::whole(100));
    }

    proptest! {
        #[test]
        fn every_chunk_is_in_a_segment_and_no_segment_is_empty(pairs in 0_u32..500, chunks in 1_u32..500, warps in 1_u32..33) {
            let tiles = Tiles::even(pairs, chunks, warps);
            prop_assert!(tiles.segments * tiles.segment >= chunks);
            prop_assert!((tiles.segments - 1) * tiles.segment < chunks);
        }
    }
}
