//! The kinds of attention, by the words that users give.

use std::{fmt, str::FromStr};

/// How attention is computed, and of which pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Scores of all pairs are stored, then weighted: three steps.
    Naive,
    /// All pairs, in one fused step that never stores the scores.
    Dense,
    /// A window, global tokens and random columns, in the same step.
    Sparse,
    /// A window alone.
    SlidingWindow,
    /// Blocks of pairs that a mask names.
    BlockSparse,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Naive, Self::Dense, Self::Sparse, Self::SlidingWindow, Self::BlockSparse];

    /// The words of all of them.
    pub const WORDS: &[&str] = &["naive", "dense", "sparse", "sliding-window", "block-sparse"];

    /// The word by which users give it.
    pub const fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A word that names no kind of attention.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no attention `{word}`, expected one of {}", Kind::WORDS.join(", "))]
pub struct NoKind {
    word: String,
}

impl FromStr for Kind {
    type Err = NoKind;

    fn from_str(word: &str) -> Result<Self, NoKind> {
        Self::ALL.into_iter().find(|kind| kind.word() == word).ok_or_else(|| NoKind { word: word.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_back_from_its_word() {
        assert!(Kind::ALL.into_iter().all(|kind| kind.word().parse() == Ok(kind)));
        let error = "flash".parse::<Kind>().unwrap_err().to_string();
        assert!(error.starts_with("there is no attention `flash`, expected one of naive, dense,"), "{error}");
    }
}
