//! A prompt cut into sections: what of it is fused, and with whom.

use std::ops::Range;

use crate::{ModelError, error::ensure};

/// Which sharers are heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharerMask(u64);

impl SharerMask {
    /// Nobody: the receiver alone.
    pub const NONE: Self = Self(0);
    /// The first one.
    pub const FIRST: Self = Self(1);

    /// The first sharers, at most 64.
    pub fn all(sharers: usize) -> Self {
        Self(u32::try_from(sharers).ok().and_then(|count| 1_u64.checked_shl(count)).map_or(u64::MAX, |bit| bit - 1))
    }

    /// By the number that the original uses: -1 for nobody, else a bit for each sharer (1 the first, 2 the second, 3
    /// both). 0 stands for the receiver itself there, which makes nothing.
    pub fn from_number(number: i64) -> Result<Self, ModelError> {
        match number {
            -1 => Ok(Self::NONE),
            1.. => Ok(Self(number as u64)),
            _ => Err(ModelError::Refused(format!("{number} is no mask of sharers: -1 is nobody, 1 the first, 3 two"))),
        }
    }

    /// The number that the original uses.
    pub fn number(self) -> i64 {
        if self.is_none() { -1 } else { self.0 as i64 }
    }

    /// Whether a sharer is heard.
    pub fn has(self, sharer: usize) -> bool {
        u32::try_from(sharer).ok().and_then(|bit| self.0.checked_shr(bit)).is_some_and(|bits| bits & 1 == 1)
    }

    /// Whether nobody is heard.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(super) fn beyond(self, sharers: usize) -> Option<usize> {
        let beyond = self.0 & !Self::all(sharers).0;
        (beyond != 0).then(|| beyond.trailing_zeros() as usize)
    }
}

/// Positions that are run together, and with whom they are fused then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Positions of the receiver.
    pub positions: Range<usize>,
    /// Where the same tokens begin with each sharer.
    pub sharer_starts: Vec<usize>,
    /// Who is heard.
    pub mask: SharerMask,
}

/// A prompt in the tokens of every model, and its sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The receiver's tokens.
    pub receiver: Vec<u32>,
    /// The tokens of each sharer.
    pub sharers: Vec<Vec<u32>>,
    /// What is run together, in order: all of the receiver's tokens.
    pub sections: Vec<Section>,
    /// Whether a sharer has other tokens than the receiver.
    pub is_aligned: bool,
}

impl Prompt {
    /// A prompt of models that share their tokens: all but the last token is fused, and the last one is run plain.
    pub fn shared(ids: Vec<u32>, sharers: usize, mask: SharerMask) -> Result<Self, ModelError> {
        ensure!(!ids.is_empty(), "the prompt is empty");
        let sections = sections(ids.len(), sharers, mask);
        Ok(Self { sharers: vec![ids.clone(); sharers], receiver: ids, sections, is_aligned: false })
    }

    /// How many tokens a sharer has to run before everything that hears it can be fused.
    pub fn heard_tokens(&self, sharer: usize) -> usize {
        let heard = self.sections.iter().filter(|section| section.mask.has(sharer));
        let ends =
            heard.map(|section| section.sharer_starts.get(sharer).map_or(0, |start| start + section.positions.len()));
        ends.max().unwrap_or(0)
    }
}

/// The sections of a prompt of this many tokens, which sharers have in the same places: all but the last one, which is
/// fused, and the last one, which is not.
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
        let cut = |tokens| -> Vec<(Range<usize>, i64)> {
            let sections = sections(tokens, 2, SharerMask::all(2));
            assert!(sections.iter().all(|section| section.sharer_starts == [section.positions.start; 2]));
            sections.into_iter().map(|section| (section.positions, section.mask.number())).collect()
        };
        assert_eq!(cut(7), [(0..6, 3), (6..7, -1)]);
        assert_eq!(cut(2), [(0..1, 3), (1..2, -1)]);
        assert_eq!(cut(1), [(0..1, -1)]);
        assert_eq!(cut(0), []);
    }

    #[test]
    fn an_empty_prompt_is_refused() {
        let error = Prompt::shared(Vec::new(), 1, SharerMask::FIRST).unwrap_err();
        assert_eq!(error.to_string(), "the prompt is empty");
    }

    #[test]
    fn sharers_run_what_is_heard_of_them() {
        let prompt = Prompt::shared(vec![1, 2, 3], 2, SharerMask::FIRST).unwrap();
        assert_eq!((prompt.heard_tokens(0), prompt.heard_tokens(1), prompt.heard_tokens(9)), (2, 0, 0));
    }

    #[test]
    fn masks_are_the_numbers_of_the_original() {
        for number in [-1, 1, 2, 3, 7] {
            assert_eq!(SharerMask::from_number(number).unwrap().number(), number);
        }
        assert!(SharerMask::from_number(0).is_err() && SharerMask::from_number(-2).is_err());
        let third = SharerMask::from_number(4).unwrap();
        assert!(third.has(2) && !third.has(0) && !third.has(64) && !third.has(usize::MAX));
        assert_eq!((third.beyond(2), third.beyond(3)), (Some(2), None));
        assert_eq!((SharerMask::all(0), SharerMask::all(3).number()), (SharerMask::NONE, 7));
    }
}
