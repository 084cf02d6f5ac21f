//! Which pairs of queries and keys are kept.

use super::{BlockMask, Pattern};
use crate::words::words;

/// A rule on the positions of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Whether a query sees only keys up to its own position.
    pub is_causal: bool,
    /// The largest distance between query and key, if it is limited.
    pub half_window: Option<u32>,
    /// Tokens at the beginning that attend to all and are attended to by all.
    pub global: u32,
}

impl Rule {
    /// All pairs, or all causal ones.
    pub const fn all(is_causal: bool) -> Self {
        Self { is_causal, half_window: None, global: 0 }
    }

    /// Whether it keeps a pair.
    pub fn allows(&self, row: usize, column: usize) -> bool {
        let is_near = self.half_window.is_none_or(|half| row.abs_diff(column) <= half as usize);
        let is_global = row.min(column) < self.global as usize;
        (!self.is_causal || column <= row) && (is_near || is_global)
    }

    /// The columns below `length` that a row keeps: up to an end, and a second range that starts at or after it.
    pub fn columns(&self, row: usize, length: usize) -> (usize, [usize; 2]) {
        let most = if self.is_causal { length.min(row.saturating_add(1)) } else { length };
        let (half, global) = (self.half_window.map_or(usize::MAX, |half| half as usize), self.global as usize);
        if half == usize::MAX || row < global {
            return (most, [most, most]);
        }
        let end = global.min(most);
        let from = row.saturating_sub(half).max(end).min(most);
        (end, [from, row.saturating_add(half).saturating_add(1).min(most).max(from)])
    }
}

/// Which pairs are kept, at any length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// All pairs, or all causal ones.
    All {
        /// Whether a query sees only keys up to its own position.
        is_causal: bool,
    },
    /// A window, global tokens and random columns.
    Pattern(Pattern),
    /// A block mask.
    Blocks {
        /// The mask, or none for the built-in one.
        mask: Option<BlockMask>,
        /// Whether a query sees only keys up to its own position.
        is_causal: bool,
    },
}

impl Kept {
    /// The pairs that a kind of attention keeps.
    pub fn of(kind: Kind, pattern: Pattern, mask: Option<BlockMask>) -> Self {
        let is_causal = pattern.is_causal;
        match kind {
            Kind::Naive | Kind::Dense => Self::All { is_causal },
            Kind::Sparse => Self::Pattern(pattern),
            Kind::SlidingWindow => Self::Pattern(Pattern { global: 0, random: 0, ..pattern }),
            Kind::BlockSparse => Self::Blocks { mask, is_causal },
        }
    }

    /// The rule for tiles. Other kept pairs are in gathered columns.
    pub fn rule(&self) -> Rule {
        match self {
            Self::All { is_causal } | Self::Blocks { is_causal, .. } => Rule::all(*is_causal),
            Self::Pattern(pattern) => pattern.rule(),
        }
    }

    /// Why it is invalid at a length, if it is.
    pub fn refusal(&self, length: usize) -> Option<String> {
        match self {
            Self::Blocks { mask: Some(mask), .. } if mask.block(length).is_none() => {
                let side = mask.side();
                Some(format!("a mask of {side} x {side} blocks needs a length divisible by {side}, not {length}"))
            }
            _ => None,
        }
    }

    /// The number of possible pairs: N (N + 1) / 2 if causal, else N squared.
    pub fn allowed(&self, length: usize) -> u64 {
        let length = length as u64;
        match self.rule().is_causal {
            true => length.saturating_mul(length.saturating_add(1)) / 2,
            false => length.saturating_mul(length),
        }
    }

    /// Whether each key of a row is kept, by definition.
    pub fn row(&self, length: usize, row: usize) -> Vec<bool> {
        let rule = self.rule();
        let allowed = |column: usize| rule.allows(row, column);
        match self {
            Self::All { .. } => (0..length).map(allowed).collect(),
            Self::Pattern(pattern) => {
                let mut kept: Vec<bool> = (0..length).map(allowed).collect();
                let mut columns = Vec::new();
                pattern.random_columns(length, row, &mut columns);
                for column in columns.into_iter().map(|column| column as usize) {
                    kept[column] |= !pattern.is_causal || column <= row;
                }
                kept
            }
            Self::Blocks { .. } => {
                let blocks = Blocks::of(self, length);
                (0..length).map(|column| allowed(column) && blocks.keeps(row, column)).collect()
            }
        }
    }
}

pub(super) struct Blocks {
    pub(super) mask: BlockMask,
    pub(super) block: usize,
}

impl Blocks {
    /// The blocks of a mask. At a length that does not fit the mask, nothing is kept.
    pub(super) fn of(kept: &Kept, length: usize) -> Self {
        match kept {
            Kept::Blocks { mask: Some(mask), .. } => {
                Self { mask: mask.clone(), block: mask.block(length).unwrap_or(usize::MAX) }
            }
            _ => Self { mask: BlockMask::built_in(length), block: BlockMask::built_in_block() },
        }
    }

    pub(super) fn keeps(&self, row: usize, column: usize) -> bool {
        self.mask.keeps(row / self.block, column / self.block)
    }
}

words! {
    /// The kind of attention.
    pub enum Kind ("attention") {
        /// Stored scores of all pairs, softmax, and a second product.
        Naive = "naive",
        /// All pairs, fused: scores are never stored.
        Dense = "dense",
        /// A window, global tokens and random columns, fused.
        Sparse = "sparse",
        /// A window.
        SlidingWindow = "sliding-window",
        /// The blocks of a mask.
        BlockSparse = "block-sparse",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::Random;
    use proptest::prelude::*;

    const PATTERN: Pattern =
        Pattern { window: 4, global: 1, random: 0, is_causal: true, shared: Random::PerRow, seed: 0 };

    fn told(kept: &Kept, length: usize) -> Vec<String> {
        let row = |row| kept.row(length, row).into_iter().map(|kept| if kept { '1' } else { '.' }).collect();
        (0..length).map(row).collect()
    }

    #[test]
    fn windows_and_global_tokens_match_the_definition() {
        let causal = ["1.....", "11....", "111...", "1111..", "1.111.", "1..111"];
        assert_eq!(told(&Kept::Pattern(PATTERN), 6), causal);
        let both = Pattern { is_causal: false, window: 2, ..PATTERN };
        assert_eq!(told(&Kept::Pattern(both), 5), ["11111", "111..", "1111.", "1.111", "1..11"]);
        let window = Kept::of(Kind::SlidingWindow, Pattern { window: 2, ..PATTERN }, None);
        assert_eq!(told(&window, 4), ["1...", "11..", ".11.", "..11"]);
    }

    #[test]
    fn random_columns_are_kept_in_addition_to_the_window() {
        let kept = Kept::Pattern(Pattern { window: 0, global: 0, random: 2, ..PATTERN });
        let counts: Vec<usize> =
            (0..20).map(|row| kept.row(20, row).into_iter().filter(|kept| *kept).count()).collect();
        assert_eq!(counts[..4], [1, 2, 3, 3]);
        assert!(counts[3..].iter().all(|count| *count == 3));
    }

    #[test]
    fn blocks_respect_causality_and_refuse_other_lengths() {
        let mask = BlockMask::parse("10\n11").unwrap();
        let kept = Kept::Blocks { mask: Some(mask), is_causal: true };
        assert_eq!(told(&kept, 4), ["1...", "11..", "111.", "1111"]);
        let refusal = kept.refusal(5).unwrap();
        assert_eq!(refusal, "a mask of 2 x 2 blocks needs a length divisible by 2, not 5");
        assert_eq!((kept.refusal(6), kept.allowed(6)), (None, 21));
        assert_eq!(Kept::All { is_causal: false }.allowed(6), 36);
    }

    proptest! {
        #[test]
        fn the_columns_of_a_rule_are_those_that_it_allows(
            is_causal: bool, half in proptest::option::of(0_u32..40), global in 0_u32..50, row in 0_usize..64, length in 1_usize..64,
        ) {
            let rule = Rule { is_causal, half_window: half, global };
            let (end, [from, to]) = rule.columns(row, length);
            prop_assert!(end <= from && from <= to && to <= length);
            for column in 0..length {
                let told = column < end || (from..to).contains(&column);
                prop_assert_eq!(told, rule.allows(row, column), "{}", column);
            }
        }
    }

    #[test]
    fn every_kind_parses_from_its_word() {
        assert!(Kind::ALL.into_iter().all(|kind| kind.word().parse::<Kind>().unwrap() == kind));
        let error = "flash".parse::<Kind>().unwrap_err().to_string();
        assert!(error.starts_with("there is no attention `flash`, expected one of naive, dense,"), "{error}");
    }
}
