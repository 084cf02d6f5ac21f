//! A mask that says block by block what is kept.

use std::sync::Arc;

/// Rows and columns of a block of the built-in mask.
const BLOCK: usize = 64;

/// Blocks before a block of queries that the built-in mask keeps.
const NEAR: usize = 3;

/// The built-in mask keeps one block out of this many.
const EVERY: usize = 8;

/// What the built-in mask keeps, in words.
pub const BUILT_IN_MASK: &str =
    "blocks of 64: its own, the three before and after it, and every eighth from the first on";

/// Blocks of pairs that are kept: as many rows of blocks as columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockMask {
    side: usize,
    kept: Arc<[bool]>,
}

impl BlockMask {
    /// Reads a mask, or says why a text is none: one line per row of `0` and `1`, with or without spaces or commas between them, or the same as JSON:
    /// a list of lists of 0 and 1 or of false and true.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.trim_start().starts_with('[') {
            true => Self::of_rows(json_rows(text)?),
            false => Self::of_rows(text_rows(text)?),
        }
    }

    fn of_rows(rows: Vec<Vec<bool>>) -> Result<Self, String> {
        let side = rows.len();
        if side == 0 {
            return Err("a mask has at least one row".to_owned());
        }
        if let Some((at, row)) = rows.iter().enumerate().find(|(_, row)| row.len() != side) {
            return Err(format!("row {} has {} blocks, and there are {side} rows", at + 1, row.len()));
        }
        Ok(Self { side, kept: rows.concat().into() })
    }

    /// The mask for a length that nobody gave one for: see [`BUILT_IN_MASK`].
    pub fn built_in(length: usize) -> Self {
        let side = length.div_ceil(BLOCK).max(1);
        let kept = |row: usize, column: usize| row.abs_diff(column) <= NEAR || column.is_multiple_of(EVERY);
        let all = (0..side * side).map(|at| kept(at / side, at % side));
        Self { side, kept: all.collect() }
    }

    /// Rows of blocks, and columns.
    pub fn side(&self) -> usize {
        self.side
    }

    /// Rows and columns of a block at this length; none if the length is no multiple of the side.
    pub fn block(&self, length: usize) -> Option<usize> {
        length.is_multiple_of(self.side).then(|| length / self.side).filter(|&block| block > 0)
    }

    /// Rows and columns of a block of the built-in mask, whose last block may be smaller.
    pub(super) const fn built_in_block() -> usize {
        BLOCK
    }

    /// Whether a block is kept; what is beyond the mask is not.
    pub fn keeps(&self, row: usize, column: usize) -> bool {
        column < self.side && self.kept.get(row.saturating_mul(self.side).saturating_add(column)) == Some(&true)
    }
}

fn text_rows(text: &str) -> Result<Vec<Vec<bool>>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let block = |(at, letter): (usize, char)| match letter {
        '0' => Ok(false),
        '1' => Ok(true),
        other => Err(format!("line {}: `{other}` is no 0 and no 1", at + 1)),
    };
    let row = |(at, line): (usize, &str)| {
        let letters = line.chars().filter(|letter| !letter.is_whitespace() && *letter != ',');
        letters.map(|letter| block((at, letter))).collect()
    };
    lines.map(row).collect()
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum JsonBlock {
    Number(f64),
    Yes(bool),
}

fn json_rows(text: &str) -> Result<Vec<Vec<bool>>, String> {
    let rows: Result<Vec<Vec<JsonBlock>>, _> = serde_json::from_str(text);
    let rows = rows.map_err(|error| format!("no list of lists of 0 and 1: {error}"))?;
    let block = |block: JsonBlock| match block {
        JsonBlock::Yes(yes) => Ok(yes),
        JsonBlock::Number(0.0) => Ok(false),
        JsonBlock::Number(1.0) => Ok(true),
        JsonBlock::Number(other) => Err(format!("`{other}` is no 0 and no 1")),
    };
    rows.into_iter().map(|row| row.into_iter().map(block).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_mask_is_read_from_lines_and_from_json() {
        let mask = BlockMask::parse("10\n\n1 1\n").unwrap();
        assert_eq!(mask, BlockMask::parse("[[1, 0], [true, 1.0]]").unwrap());
        assert_eq!(mask, BlockMask::parse("1,0\n1,1").unwrap());
        assert_eq!(
            [(0, 0), (0, 1), (1, 0), (2, 0), (0, 2)].map(|(r, c)| mask.keeps(r, c)),
            [true, false, true, false, false]
        );
    }

    #[test]
    fn what_is_no_mask_is_refused() {
        let refusal = |text: &str| BlockMask::parse(text).unwrap_err().to_string();
        assert_eq!(refusal("10\n1"), "row 2 has 1 blocks, and there are 2 rows");
        assert_eq!(refusal("10\n1x"), "line 2: `x` is no 0 and no 1");
        assert_eq!(refusal(" \n"), "a mask has at least one row");
        assert_eq!(refusal("[[0.5]]"), "`0.5` is no 0 and no 1");
        assert!(refusal("[[1, 0]").starts_with("no list of lists of 0 and 1: "));
    }

    #[test]
    fn a_block_is_the_length_over_the_rows() {
        let mask = BlockMask::parse("10\n11").unwrap();
        assert_eq!([mask.block(128), mask.block(7), mask.block(0)], [Some(64), None, None]);
    }

    #[test]
    fn the_built_in_mask_keeps_what_is_near_and_every_eighth() {
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
