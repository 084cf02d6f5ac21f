//! The kinds of attention, by the words that users give.

use crate::words::words;

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

    #[test]
    fn every_kind_is_read_back_from_its_word() {
        assert!(Kind::ALL.into_iter().all(|kind| kind.word().parse::<Kind>().unwrap() == kind));
        let error = "flash".parse::<Kind>().unwrap_err().to_string();
        assert!(error.starts_with("there is no attention `flash`, expected one of naive, dense,"), "{error}");
    }
}
