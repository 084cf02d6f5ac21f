//! The memory of a layout, before it is built.

use super::{BlockMask, Kept, Layout, Pattern, Random, SHARED_ROWS, Tiling, kept::Blocks, layout::words};

impl Layout {
    /// The most bytes of a layout while it is built.
    pub fn most_bytes(kept: &Kept, length: usize, tiling: Tiling) -> u64 {
        let Tiling { rows, keys } = tiling;
        let (blocks, tiles) = (length.div_ceil(rows.max(1) as usize), length.div_ceil(keys.max(1) as usize));
        let (tiles, columns, mask) = match kept {
            Kept::All { is_causal: true } => (blocks.saturating_mul(tiles + 2) / 2 + blocks, 0, 0),
            Kept::All { .. } => (blocks.saturating_mul(tiles), 0, 0),
            Kept::Pattern(pattern) => pattern_counts(pattern, length, tiling),
            Kept::Blocks { .. } => mask_counts(kept, length, tiling),
        };
        let column = 4 + 8 * words(tiling) as u64;
        let lists = (tiles as u64).saturating_mul(4).saturating_add((columns as u64).saturating_mul(column));
        // A list exists twice while it grows, and may end up half empty.
        lists.saturating_add(8 * (blocks as u64 + 1)).saturating_mul(3).saturating_add(mask as u64)
    }
}

fn pattern_counts(pattern: &Pattern, length: usize, tiling: Tiling) -> (usize, usize, usize) {
    let (rows, keys) = (tiling.rows.max(1) as usize, tiling.keys.max(1) as usize);
    let (blocks, all) = (length.div_ceil(rows), length.div_ceil(keys));
    let near = (pattern.window.saturating_add(rows) / keys).saturating_add(pattern.global / keys).saturating_add(4);
    // Blocks with a global token.
    let seeing = if pattern.is_causal { 0 } else { blocks.min(pattern.global.div_ceil(rows)) };
    let tiles = blocks.saturating_mul(near.min(all)).saturating_add(seeing.saturating_mul(all));
    let draws = match pattern.shared {
        Random::PerRow => length,
        Random::PerBlock => blocks.saturating_mul(rows / SHARED_ROWS + 1),
    };
    (tiles, draws.saturating_mul(pattern.random.min(length)), 0)
}

/// The largest side of a mask whose blocks are counted one by one.
const MOST_SIDE: usize = 4096;

fn mask_counts(kept: &Kept, length: usize, tiling: Tiling) -> (usize, usize, usize) {
    let (rows, keys) = (tiling.rows.max(1) as usize, tiling.keys.max(1) as usize);
    let block = match kept {
        Kept::Blocks { mask: Some(mask), .. } => mask.block(length).unwrap_or(1),
        _ => BlockMask::built_in_block(),
    };
    let (blocks, all, side) = (length.div_ceil(rows), length.div_ceil(keys), length.div_ceil(block));
    let mask = side.saturating_mul(side).saturating_mul(2);
    let is_whole = block.is_multiple_of(rows) && block.is_multiple_of(keys);
    if is_whole || side > MOST_SIDE {
        return (blocks.saturating_mul(all), if is_whole { 0 } else { blocks.saturating_mul(length) }, mask);
    }
    // Tiles that a mask keeps partly are gathered.
    let (of_mask, rule) = (Blocks::of(kept, length), kept.rule());
    let (mut tiles, mut columns) = (0, 0);
    for from in (0..length).step_by(rows) {
        let last = (from + rows).min(length);
        for key in (0..if rule.is_causal { last } else { length }).step_by(keys) {
            let (kept, all) = of_mask.count(rule, from..last, key..(key + keys).min(length));
            tiles += usize::from(kept > 0);
            columns += if kept > 0 && kept < all { keys } else { 0 };
        }
    }
    (tiles, columns, mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_layout_takes_more_than_was_said(
            window in 0_usize..600, global in 0_usize..300, random in 0_usize..40, is_causal: bool, per_row: bool,
            length in 0_usize..1500, rows in prop::sample::select(vec![32_u32, 64, 128]), is_masked: bool,
        ) {
            let shared = if per_row { Random::PerRow } else { Random::PerBlock };
            let pattern = Pattern { window, global, random, is_causal, shared, seed: 1 };
            let tiling = Tiling { rows, keys: 64 };
            let masked = Kept::Blocks { mask: None, is_causal };
            for kept in [Kept::All { is_causal }, if is_masked { masked } else { Kept::Pattern(pattern) }] {
                let bytes = Layout::build(&kept, length, tiling).bytes();
                prop_assert!(bytes <= Layout::most_bytes(&kept, length, tiling), "{:?}", kept);
            }
        }
    }

    #[test]
    fn huge_predictions_saturate() {
        let tiling = Tiling { rows: 64, keys: 64 };
        for is_causal in [true, false] {
            assert!(Layout::most_bytes(&Kept::All { is_causal }, usize::MAX, tiling) > 1 << 60);
            let pattern = Pattern { is_causal, random: usize::MAX, ..Pattern::preset("small").unwrap() };
            assert!(Layout::most_bytes(&Kept::Pattern(pattern), usize::MAX, tiling) > 1 << 60);
        }
    }
}
