//! A prompt in sections that are fused with different sharers.

use std::ops::Range;

use crate::{ModelError, error::ensure};

/// A set of sharers, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharerMask(pub u64);

impl SharerMask {
    /// No sharers: the receiver alone.
    pub const NONE: Self = Self(0);
    /// The first sharer.
    pub const FIRST: Self = Self(1);

    /// The first sharers, at most 64.
    pub fn all(sharers: usize) -> Self {
        Self(u32::try_from(sharers).ok().and_then(|count| 1_u64.checked_shl(count)).map_or(u64::MAX, |bit| bit - 1))
    }

    /// Whether it includes a sharer.
    pub fn has(self, sharer: usize) -> bool {
        u32::try_from(sharer).ok().and_then(|bit| self.0.checked_shr(bit)).is_some_and(|bits| bits & 1 == 1)
    }

    /// Whether it is empty.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The first sharer beyond this many.
    pub(super) fn beyond(self, sharers: usize) -> Option<usize> {
        let beyond = self.0 & !Self::all(sharers).0;
        (beyond != 0).then(|| beyond.trailing_zeros() as usize)
    }
}

/// Positions that run together and are then fused with the same sharers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Positions of the receiver.
    pub positions: Range<usize>,
    /// Where the same tokens begin in each sharer.
    pub sharer_starts: Vec<usize>,
    /// The sharers to fuse with.
    pub mask: SharerMask,
}

/// A prompt in the tokens of every model, and its sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The receiver's tokens.
    pub receiver: Vec<u32>,
    /// The tokens of each sharer.
    pub sharers: Vec<Vec<u32>>,
    /// All of the receiver's tokens, in order.
    pub sections: Vec<Section>,
    /// Whether sharers have other tokens than the receiver.
    pub is_aligned: bool,
}

impl Prompt {
    /// A prompt of models with the same tokens. All tokens but the last are fused.
    pub fn shared(ids: Vec<u32>, sharers: usize, mask: SharerMask) -> Result<Self, ModelError> {
        ensure!(!ids.is_empty(), "the prompt is empty");
        let sections = sections(ids.len(), sharers, mask);
        Ok(Self { sharers: vec![ids.clone(); sharers], receiver: ids, sections, is_aligned: false })
    }

    /// How many tokens a sharer must run before all its sections can be fused.
    pub fn shared_tokens(&self, sharer: usize) -> usize {
        let end =
            |section: &Section| section.sharer_starts.get(sharer).map_or(0, |start| start + section.positions.len());
        self.sections.iter().filter(|section| section.mask.has(sharer)).map(end).max().unwrap_or(0)
    }
}

/// The sections of this many tokens at the same positions of all models: all but the last one, which are fused, and the last.
pub fn sections(tokens: usize, sharers: usize, mask: SharerMask) -> Vec<Section> {
    let section =
        |positions: Range<usize>, mask| Section { sharer_starts: vec![positions.start; sharers], positions, mask };
    let last = tokens.saturating_sub(1);
    let both = [section(0..last, mask), section(last..tokens, SharerMask::NONE)];
    both.into_iter().filter(|section| !section.positions.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_the_last_token_is_fused() {
        let cut = |tokens| -> Vec<(Range<usize>, u64)> {
            let sections = sections(tokens, 2, SharerMask::all(2));
            assert!(sections.iter().all(|section| section.sharer_starts == [section.positions.start; 2]));
            sections.into_iter().map(|section| (section.positions, section.mask.0)).collect()
        };
        assert_eq!(cut(7), [(0..6, 3), (6..7, 0)]);
        assert_eq!(cut(2), [(0..1, 3), (1..2, 0)]);
        assert_eq!(cut(1), [(0..1, 0)]);
        assert_eq!(cut(0), []);
    }

    #[test]
    fn an_empty_prompt_is_refused() {
        let error = Prompt::shared(Vec::new(), 1, SharerMask::FIRST).unwrap_err();
        assert_eq!(error.to_string(), "the prompt is empty");
    }

    #[test]
    fn sharers_run_the_tokens_that_are_fused() {
        let prompt = Prompt::shared(vec![1, 2, 3], 2, SharerMask::FIRST).unwrap();
        assert_eq!((prompt.shared_tokens(0), prompt.shared_tokens(1), prompt.shared_tokens(9)), (2, 0, 0));
    }

    #[test]
    fn masks_are_sets_of_sharers() {
        let third = SharerMask(4);
        assert!(third.has(2) && !third.has(0) && !third.has(64) && !third.has(usize::MAX));
        assert_eq!((third.beyond(2), third.beyond(3)), (Some(2), None));
        assert_eq!((SharerMask::all(0), SharerMask::all(3)), (SharerMask::NONE, SharerMask(7)));
    }
}
