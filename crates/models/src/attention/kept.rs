//! Which pairs of a query and a key are kept.

use super::{BlockMask, Pattern};
use crate::words::words;

/// What can be said of a pair by its places alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Whether a query sees only what does not come after it.
    pub is_causal: bool,
    /// How far apart query and key may be; none if that does not matter.
    pub half_window: Option<u32>,
    /// Tokens at the beginning that see and are seen by all.
    pub global: u32,
}

impl Rule {
    /// All pairs, or all that causality allows.
    pub const fn all(is_causal: bool) -> Self {
        Self { is_causal, half_window: None, global: 0 }
    }

    /// Whether it keeps a pair.
    pub fn allows(&self, row: usize, column: usize) -> bool {
        let is_near = self.half_window.is_none_or(|half| row.abs_diff(column) <= half as usize);
        let is_global = row.min(column) < self.global as usize;
        (!self.is_causal || column <= row) && (is_near || is_global)
    }

    /// The columns below `length` that a row keeps: up to one end, and from a beginning to another end. The second never
    /// begins before the first ends.
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
    /// All that causality allows.
    All {
        /// Whether a query sees only what does not come after it.
        is_causal: bool,
    },
    /// A window, global tokens and random columns.
    Pattern(Pattern),
    /// Blocks; none for the built-in mask.
    Blocks {
        /// The blocks.
        mask: Option<BlockMask>,
        /// Whether a query sees only what does not come after it.
        is_causal: bool,
    },
}

impl Kept {
    /// What a kind of attention keeps of these choices.
    pub fn of(kind: Kind, pattern: Pattern, mask: Option<BlockMask>) -> Self {
        let is_causal = pattern.is_causal;
        match kind {
            Kind::Naive | Kind::Dense => Self::All { is_causal },
            Kind::Sparse => Self::Pattern(pattern),
            Kind::SlidingWindow => Self::Pattern(Pattern { global: 0, random: 0, ..pattern }),
            Kind::BlockSparse => Self::Blocks { mask, is_causal },
        }
    }

    /// What can be said by places alone: what is not in tiles of this rule is in gathered columns.
    pub fn rule(&self) -> Rule {
        match self {
            Self::All { is_causal } | Self::Blocks { is_causal, .. } => Rule::all(*is_causal),
            Self::Pattern(pattern) => pattern.rule(),
        }
    }

    /// Why it makes no sense at a length, if it does not.
    pub fn refusal(&self, length: usize) -> Option<String> {
        match self {
            Self::Blocks { mask: Some(mask), .. } if mask.block(length).is_none() => {
                let side = mask.side();
                Some(format!("a mask of {side} x {side} blocks needs a length that {side} divides, not {length}"))
            }
            _ => None,
        }
    }

    /// Pairs that could be kept: N (N + 1) / 2 if it is causal, else N squared.
    pub fn allowed(&self, length: usize) -> u64 {
        let length = length as u64;
        match self.rule().is_causal {
            true => length.saturating_mul(length.saturating_add(1)) / 2,
            false => length.saturating_mul(length),
        }
    }

    /// Says of every key of a row whether it is kept, as it is defined: by one pair after the other.
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
    mask: BlockMask,
    pub(super) block: usize,
}

impl Blocks {
    /// Those of a mask. At a length that the mask does not fit, nothing is kept.
    pub(super) fn of(kept: &Kept, length: usize) -> Self {
        match kept {
            Kept::Blocks { mask: Some(mask), .. } => {
                Self { mask: mask.clone(), block: mask.block(length).unwrap_or(usize::MAX) }
            }
            _ => Self { mask: BlockMask::built_in(length), block: BlockMask::built_in_block() },
        }
    }

    pub(super) fn keeps(&self, row: usize, column: usize) -> bool {
        self.keeps_block(row / self.block, column / self.block)
    }

    pub(super) fn keeps_block(&self, row: usize, column: usize) -> bool {
        self.mask.keeps(row, column)
    }
}

words! {
    /// How attention is computed, and of which pairs.
    pub enum Kind ("attention") {
        /// Scores of all pairs are stored, then weighted: three steps.
        Naive = "naive",
        /// All pairs, in one fused step that never stores the scores.
        Dense = "dense",
        /// A window, global tokens and random columns, in the same step.
        Sparse = "sparse",
        /// A window alone.
        SlidingWindow = "sliding-window",
        /// Blocks of pairs that a mask names.
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
    fn a_window_and_global_tokens_are_kept_as_they_are_defined() {
        let causal = ["1.....", "11....", "111...", "1111..", "1.111.", "1..111"];
        assert_eq!(told(&Kept::Pattern(PATTERN), 6), causal);
        let both = Pattern { is_causal: false, window: 2, ..PATTERN };
        assert_eq!(told(&Kept::Pattern(both), 5), ["11111", "111..", "1111.", "1.111", "1..11"]);
        let window = Kept::of(Kind::SlidingWindow, Pattern { window: 2, ..PATTERN }, None);
        assert_eq!(told(&window, 4), ["1...", "11..", ".11.", "..11"]);
    }

    #[test]
    fn random_columns_are_kept_beside_the_window() {
        let kept = Kept::Pattern(Pattern { window: 0, global: 0, random: 2, ..PATTERN });
        let counts: Vec<usize> =
            (0..20).map(|row| kept.row(20, row).into_iter().filter(|kept| *kept).count()).collect();
        assert_eq!(counts[..4], [1, 2, 3, 3]);
        assert!(counts[3..].iter().all(|count| *count == 3));
    }

    #[test]
    fn blocks_are_cut_by_causality_and_refuse_other_lengths() {
        let mask = BlockMask::parse("10\n11").unwrap();
        let kept = Kept::Blocks { mask: Some(mask), is_causal: true };
        assert_eq!(told(&kept, 4), ["1...", "11..", "111.", "1111"]);
        let refusal = kept.refusal(5).unwrap();
        assert_eq!(refusal, "a mask of 2 x 2 blocks needs a length that 2 divides, not 5");
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
    fn every_kind_is_read_back_from_its_word() {
        assert!(Kind::ALL.into_iter().all(|kind| kind.word().parse::<Kind>().unwrap() == kind));
        let error = "flash".parse::<Kind>().unwrap_err().to_string();
        assert!(error.starts_with("there is no attention `flash`, expected one of naive, dense,"), "{error}");
    }
}
