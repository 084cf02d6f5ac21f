//! Block masks of sparse attention.

use std::sync::Arc;

use serde_json::Value;

/// Rows and columns of a block of the built-in mask.
const BLOCK: usize = 64;

/// The distance in blocks that the built-in mask keeps.
const NEAR: usize = 3;

/// The built-in mask keeps every this many columns of blocks.
const EVERY: usize = 8;

/// A description of the built-in mask.
pub const BUILT_IN_MASK: &str =
    "blocks of 64: its own, the three before and after it, and every eighth from the first on";

/// A square matrix of blocks that are kept or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockMask {
    side: usize,
    kept: Arc<[bool]>,
}

impl BlockMask {
    /// Parses a mask: a line per row of `0` and `1`, with optional spaces or commas, or JSON: a list of lists of 0 and 1 or of
    /// booleans.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rows = if text.trim_start().starts_with('[') { json_rows(text)? } else { text_rows(text)? };
        let side = rows.len();
        if side == 0 {
            return Err("the mask is empty".to_owned());
        }
        if let Some((at, row)) = rows.iter().enumerate().find(|(_, row)| row.len() != side) {
            return Err(format!("row {} has {} blocks, expected {side}", at + 1, row.len()));
        }
        Ok(Self { side, kept: rows.concat().into() })
    }

    /// The default mask for a length: see [`BUILT_IN_MASK`].
    pub fn built_in(length: usize) -> Self {
        let side = length.div_ceil(BLOCK).max(1);
        let kept = |row: usize, column: usize| row.abs_diff(column) <= NEAR || column.is_multiple_of(EVERY);
        let all = (0..side * side).map(|at| kept(at / side, at % side));
        Self { side, kept: all.collect() }
    }

    /// The number of rows and columns of blocks.
    pub fn side(&self) -> usize {
        self.side
    }

    /// The side of a block at this length, or none if the length is not a multiple of the number of blocks.
    pub fn block(&self, length: usize) -> Option<usize> {
        length.is_multiple_of(self.side).then(|| length / self.side).filter(|&block| block > 0)
    }

    /// The side of a block of the built-in mask. Its last block may be smaller.
    pub(super) const fn built_in_block() -> usize {
        BLOCK
    }

    /// Whether a block is kept. Blocks outside the mask are not.
    pub fn keeps(&self, row: usize, column: usize) -> bool {
        column < self.side && self.kept.get(row.saturating_mul(self.side).saturating_add(column)) == Some(&true)
    }
}

fn text_rows(text: &str) -> Result<Vec<Vec<bool>>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let block = |(at, letter): (usize, char)| match letter {
        '0' => Ok(false),
        '1' => Ok(true),
        other => Err(format!("line {}: `{other}` is neither 0 nor 1", at + 1)),
    };
    let row = |(at, line): (usize, &str)| {
        let letters = line.chars().filter(|letter| !letter.is_whitespace() && *letter != ',');
        letters.map(|letter| block((at, letter))).collect()
    };
    lines.map(row).collect()
}

fn json_rows(text: &str) -> Result<Vec<Vec<bool>>, String> {
    let rows: Result<Vec<Vec<Value>>, _> = serde_json::from_str(text);
    let rows = rows.map_err(|error| format!("expected a list of lists of 0 and 1: {error}"))?;
    let block = |block: Value| match block.as_bool().map(f64::from).or(block.as_f64()) {
        Some(0.0) => Ok(false),
        Some(1.0) => Ok(true),
        _ => Err(format!("`{block}` is neither 0 nor 1")),
    };
    rows.into_iter().map(|row| row.into_iter().map(block).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn masks_are_parsed_from_lines_and_json() {
        let mask = BlockMask::parse("10\n\n1 1\n").unwrap();
        assert_eq!(mask, BlockMask::parse("[[1, 0], [true, 1.0]]").unwrap());
        assert_eq!(mask, BlockMask::parse("1,0\n1,1").unwrap());
        assert_eq!(
            [(0, 0), (0, 1), (1, 0), (2, 0), (0, 2)].map(|(r, c)| mask.keeps(r, c)),
            [true, false, true, false, false]
        );
    }

    #[test]
    fn invalid_masks_are_refused() {
        let refusal = |text: &str| BlockMask::parse(text).unwrap_err().to_string();
        assert_eq!(refusal("10\n1"), "row 2 has 1 blocks, expected 2");
        assert_eq!(refusal("10\n1x"), "line 2: `x` is neither 0 nor 1");
        assert_eq!(refusal(" \n"), "the mask is empty");
        assert_eq!(refusal("[[0.5]]"), "`0.5` is neither 0 nor 1");
        assert!(refusal("[[1, 0]").starts_with("expected a list of lists of 0 and 1: "));
    }

    #[test]
    fn the_side_of_a_block_is_length_over_rows() {
        let mask = BlockMask::parse("10\n11").unwrap();
        assert_eq!([mask.block(128), mask.block(7), mask.block(0)], [Some(64), None, None]);
    }

    #[test]
    fn the_built_in_mask_keeps_near_blocks_and_every_eighth() {
        let mask = BlockMask::built_in(64 * 40 - 1);
        assert_eq!(mask.side(), 40);
        let kept: Vec<usize> = (0..40).filter(|&column| mask.keeps(20, column)).collect();
        assert_eq!(kept, [0, 8, 16, 17, 18, 19, 20, 21, 22, 23, 24, 32]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\[\\]01, \nx]{0,40}") {
            let _ = BlockMask::parse(&text);
        }
    }
}
