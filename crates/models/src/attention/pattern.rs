//! The pattern of sparse attention: a window, global tokens and random columns.

use super::Rule;

/// The number of rows that share random columns.
pub const SHARED_ROWS: usize = 64;

/// Named patterns: window, global tokens and random columns.
pub const PRESETS: [(&str, [usize; 3]); 3] =
    [("tiny", [256, 32, 16]), ("small", [512, 64, 32]), ("medium", [1024, 128, 64])];

/// Which rows share random columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Random {
    /// Each row has its own, as in Nano XYZ.
    PerRow,
    /// [`SHARED_ROWS`] rows share them, so they can be gathered as a tile.
    PerBlock,
}

/// Query i keeps key j if they are within half the window, if one is among the first `global` tokens, or if j is among the
/// random columns of the row; and, if causal, only for j <= i.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// Keys around a query: half before, half after it.
    pub window: usize,
    /// Tokens at the beginning that attend to all and are attended to by all.
    pub global: usize,
    /// Random columns per row, among the visible ones. They may fall into the window.
    pub random: usize,
    /// Whether a query sees only keys up to its own position.
    pub is_causal: bool,
    /// Which rows share random columns.
    pub shared: Random,
    /// The seed of random columns.
    pub seed: u64,
}

impl Pattern {
    /// A pattern by its name: causal, with columns shared by blocks.
    pub fn preset(name: &str) -> Option<Self> {
        let [window, global, random] = PRESETS.iter().find(|(known, _)| *known == name)?.1;
        Some(Self { window, global, random, is_causal: true, shared: Random::PerBlock, seed: 0 })
    }

    /// The name of this pattern, if it has one.
    pub fn name(&self) -> Option<&'static str> {
        let numbers = [self.window, self.global, self.random];
        PRESETS.iter().find(|(_, known)| *known == numbers).map(|(name, _)| *name)
    }

    /// Its rule, without the random columns.
    pub fn rule(&self) -> Rule {
        let narrow = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        Rule { is_causal: self.is_causal, half_window: Some(narrow(self.window / 2)), global: narrow(self.global) }
    }

    /// The random columns of a row, in order. A causal row draws from earlier columns; rows that share a draw, from those
    /// before the first of them.
    pub fn random_columns(&self, length: usize, row: usize, columns: &mut Vec<u32>) {
        let (draw, first) = match self.shared {
            Random::PerRow => (row, row),
            Random::PerBlock => (row / SHARED_ROWS, row / SHARED_ROWS * SHARED_ROWS),
        };
        let range = if self.is_causal { first } else { length };
        distinct(self.seed, draw as u64, self.random, range.min(length), columns);
    }
}

/// Draws `count` distinct numbers below `range`, in order, or all if there are fewer.
pub fn distinct(seed: u64, draw: u64, count: usize, range: usize, drawn: &mut Vec<u32>) {
    drawn.clear();
    if count >= range {
        drawn.extend(0..range as u32);
        return;
    }
    let mut state = mixed(seed ^ mixed(draw));
    // Floyd's algorithm: a number drawn before is replaced by the last in range.
    for last in range - count..range {
        let number = below(&mut state, last as u64 + 1);
        match drawn.binary_search(&number) {
            Ok(_) => drawn.push(last as u32),
            Err(place) => drawn.insert(place, number),
        }
    }
}

fn below(state: &mut u64, limit: u64) -> u32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    ((u128::from(mixed(*state)) * u128::from(limit)) >> 64) as u32
}

/// The finaliser of SplitMix64.
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn presets_match_nano_xyz_and_know_their_names() {
        let small = Pattern::preset("small").unwrap();
        assert_eq!((small.window, small.global, small.random, small.is_causal), (512, 64, 32, true));
        assert_eq!(small.rule(), Rule { is_causal: true, half_window: Some(256), global: 64 });
        assert_eq!((small.name(), Pattern { window: 510, ..small }.name()), (Some("small"), None));
        assert_eq!(Pattern::preset("large"), None);
    }

    fn columns(pattern: &Pattern, row: usize) -> Vec<u32> {
        let mut columns = Vec::new();
        pattern.random_columns(200, row, &mut columns);
        columns
    }

    #[test]
    fn rows_of_a_block_share_earlier_columns() {
        let shared = Pattern::preset("tiny").unwrap();
        assert_eq!(columns(&shared, 64), columns(&shared, 127));
        assert_ne!(columns(&shared, 64), columns(&shared, 128));
        assert!(columns(&shared, 63).is_empty(), "nothing comes before the first block");
        assert!(columns(&shared, 127).iter().all(|&column| column < 64));
        let own = Pattern { shared: Random::PerRow, ..shared };
        assert_ne!(columns(&own, 100), columns(&own, 101));
        assert_eq!(columns(&own, 3), [0, 1, 2], "there are no more before it");
    }

    #[test]
    fn columns_of_a_non_causal_pattern_cover_the_whole_length() {
        let both = Pattern { is_causal: false, random: 190, ..Pattern::preset("tiny").unwrap() };
        assert_eq!(columns(&both, 0).len(), 190);
        assert!(columns(&both, 0).iter().any(|&column| column > 150));
    }

    fn drawn(seed: u64, draw: u64, count: usize, range: usize) -> Vec<u32> {
        let mut drawn = vec![7];
        distinct(seed, draw, count, range, &mut drawn);
        drawn
    }

    #[test]
    fn draws_depend_only_on_seed_and_row() {
        assert_eq!(drawn(1, 2, 8, 1000), drawn(1, 2, 8, 1000));
        assert_ne!(drawn(1, 2, 8, 1000), drawn(1, 3, 8, 1000));
        assert_ne!(drawn(1, 2, 8, 1000), drawn(2, 2, 8, 1000));
    }

    #[test]
    fn every_column_is_drawn_about_as_often() {
        let mut counts = [0_u32; 20];
        for draw in 0..10_000 {
            drawn(0, draw, 4, 20).into_iter().for_each(|column| counts[column as usize] += 1);
        }
        // 2000 are expected, with a deviation of 40.
        assert!(counts.iter().all(|count| (1800..2200).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn columns_are_distinct_ordered_and_as_many_as_asked_for(seed: u64, draw: u64, count in 0_usize..80, range in 0_usize..200) {
            let drawn = drawn(seed, draw, count, range);
            prop_assert_eq!(drawn.len(), count.min(range));
            prop_assert!(drawn.is_sorted_by(|one, next| one < next));
            prop_assert!(drawn.iter().all(|&column| (column as usize) < range));
        }
    }
}
