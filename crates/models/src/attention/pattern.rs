//! The pattern of sparse attention: a window, global tokens and random columns.

use super::{draw::distinct, kept::Rule};

/// Rows that share one draw of random columns.
pub const SHARED_ROWS: usize = 64;

/// The patterns that have a name: name, window, global, random.
pub const PRESETS: [(&str, [usize; 3]); 3] =
    [("tiny", [256, 32, 16]), ("small", [512, 64, 32]), ("medium", [1024, 128, 64])];

/// Which rows a draw of random columns is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Random {
    /// Each row has a draw of its own, as in the Nano kit.
    PerRow,
    /// [`SHARED_ROWS`] rows share one, so that a tile of them can be gathered.
    PerBlock,
}

/// Query i keeps key j if they are no further apart than half the window, if one of them is among the first `global`
/// tokens, or if j is among the row's random columns; and, if it is causal, j does not come after i.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// Keys around a query: half of them before it, half behind it.
    pub window: usize,
    /// Tokens at the beginning that see and are seen by all.
    pub global: usize,
    /// Random columns of a row, drawn from what the row may see; they may fall into the window.
    pub random: usize,
    /// Whether a query sees only what does not come after it.
    pub is_causal: bool,
    /// Which rows a draw is for.
    pub shared: Random,
    /// What random columns start from.
    pub seed: u64,
}

impl Pattern {
    /// A pattern by its name: causal, with columns shared by blocks.
    pub fn preset(name: &str) -> Option<Self> {
        let [window, global, random] = PRESETS.iter().find(|(known, _)| *known == name)?.1;
        Some(Self { window, global, random, is_causal: true, shared: Random::PerBlock, seed: 0 })
    }

    /// The name of these numbers, if they have one.
    pub fn name(&self) -> Option<&'static str> {
        let numbers = [self.window, self.global, self.random];
        PRESETS.iter().find(|(_, known)| *known == numbers).map(|(name, _)| *name)
    }

    /// Its rule: everything but the random columns.
    pub fn rule(&self) -> Rule {
        let narrow = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        Rule { is_causal: self.is_causal, half_window: Some(narrow(self.window / 2)), global: narrow(self.global) }
    }

    /// The random columns of a row, in order. A causal row draws from those before it; rows that share a draw, from those
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_those_of_the_kit_and_know_their_names() {
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
    fn rows_of_a_block_share_their_columns_and_come_after_them() {
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
    fn columns_of_a_pattern_that_is_not_causal_are_of_the_whole_length() {
        let both = Pattern { is_causal: false, random: 190, ..Pattern::preset("tiny").unwrap() };
        assert_eq!(columns(&both, 0).len(), 190);
        assert!(columns(&both, 0).iter().any(|&column| column > 150));
    }
}
