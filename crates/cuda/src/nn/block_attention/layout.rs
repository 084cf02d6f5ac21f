//! Layouts of block-sparse attention: tiles of keys, and gathered columns.

use std::cmp::Reverse;

use crate::launch::*;

const DOING: &str = "creating a block layout";
/// No window; the kernels have the same constant.
const NO_WINDOW: u32 = u32::MAX;

/// The tile sizes of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// Queries per block, a multiple of 64.
    pub rows: u32,
    /// Keys per tile.
    pub keys: u32,
}

/// The tiling of all kernels.
pub const TILING: Tiling = Tiling { rows: 128, keys: 64 };

impl Tiling {
    /// The number of blocks for this number of queries.
    pub fn blocks(&self, length: u32) -> usize {
        length.div_ceil(self.rows.max(1)) as usize
    }

    /// The number of tiles for this number of keys.
    pub fn tiles(&self, length: u32) -> u32 {
        length.div_ceil(self.keys.max(1))
    }

    /// 64-bit words of a column's row mask.
    pub fn row_words(&self) -> usize {
        (self.rows as usize).div_ceil(64)
    }
}

/// The masking rule of partial tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Whether a query sees no later keys.
    pub is_causal: bool,
    /// The maximum distance of query and key, if limited.
    pub half_window: Option<u32>,
    /// The number of global tokens at the beginning, which see and are seen by all.
    pub global: u32,
}

impl Rule {
    /// Whether a query sees a key.
    pub fn allows(&self, row: u32, key: u32) -> bool {
        let is_near = self.half_window.is_none_or(|half| row.abs_diff(key) <= half);
        (!self.is_causal || key <= row) && (is_near || row.min(key) < self.global)
    }
}

/// The tiles and columns of each block of queries. A pair of query and key must not be in both.
#[derive(Debug, Clone, Copy)]
pub struct LayoutParts<'a> {
    /// The first tile of each block, and the end.
    pub tile_starts: &'a [u32],
    /// Twice the index of a tile of keys, plus one if it is partial and masked by the rule. Ascending in each block.
    pub tiles: &'a [u32],
    /// The first column of each block, and the end.
    pub column_starts: &'a [u32],
    /// The gathered keys, ascending in each block.
    pub columns: &'a [u32],
    /// A bit for each row of the block that sees the column: [`Tiling::row_words`] words per column.
    pub column_rows: &'a [u64],
}

/// A layout on a device.
#[derive(Debug)]
pub struct BlockLayout {
    length: u32,
    rule: Rule,
    blocks: u32,
    pub(super) works: Buffer<[u32; 8]>,
    /// None if every block takes its tiles in order.
    pub(super) tiles: Option<Buffer<u32>>,
    pub(super) columns: Buffer<u32>,
    pub(super) column_rows: Buffer<u64>,
}

impl BlockLayout {
    /// Checks a layout for this number of queries and keys, and uploads it.
    pub fn new(
        device: &Device,
        length: u32,
        rule: Rule,
        tiling: Tiling,
        parts: &LayoutParts<'_>,
    ) -> Result<Self, CudaError> {
        check(length, tiling, parts)?;
        let works = works_of(parts, tiling);
        Ok(Self {
            length,
            rule,
            blocks: works.len() as u32,
            works: device.upload(&works)?,
            tiles: Some(device.upload(parts.tiles)?),
            columns: device.upload(parts.columns)?,
            column_rows: device.upload(parts.column_rows)?,
        })
    }

    /// A layout of all pairs, or of all causal pairs. It has no list of tiles, which would grow with the square of the
    /// length: the kernels compute them.
    pub fn dense(device: &Device, length: u32, tiling: Tiling, is_causal: bool) -> Result<Self, CudaError> {
        expect(DOING, tiling == TILING, "this tiling is not supported")?;
        let works = dense_works(length, tiling, is_causal);
        Ok(Self {
            length,
            rule: Rule { is_causal, half_window: None, global: 0 },
            blocks: works.len() as u32,
            works: device.upload(&works)?,
            tiles: None,
            columns: device.allocate(0)?,
            column_rows: device.allocate(0)?,
        })
    }

    /// The number of queries and of keys.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// The masking rule of its partial tiles.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// Its size on the device in bytes.
    pub fn bytes(&self) -> usize {
        let lists = self.columns.bytes() + self.column_rows.bytes();
        self.works.bytes() + self.tiles.as_ref().map_or(0, Buffer::bytes) + lists
    }

    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The rule as kernel arguments.
    pub(super) fn rule_words(&self) -> [u32; 3] {
        rule_words(self.rule, self.length)
    }
}

/// A window that no pair exceeds is dropped, so that the kernels' sums cannot overflow.
fn rule_words(rule: Rule, length: u32) -> [u32; 3] {
    let half = rule.half_window.filter(|half| *half < length).unwrap_or(NO_WINDOW);
    [u32::from(rule.is_causal), half, rule.global.min(length)]
}

fn check(length: u32, tiling: Tiling, parts: &LayoutParts<'_>) -> Done {
    expect(DOING, tiling == TILING, "this tiling is not supported")?;
    expect(DOING, length < 1 << 21, "too many tokens")?;
    let is_list = |starts: &[u32], count: usize| {
        let begins = starts.len() == tiling.blocks(length) + 1 && starts[0] == 0;
        begins && starts.is_sorted() && starts.last().is_some_and(|end| *end as usize == count)
    };
    expect(DOING, is_list(parts.tile_starts, parts.tiles.len()), "the tile starts do not match the blocks")?;
    expect(DOING, is_list(parts.column_starts, parts.columns.len()), "the column starts do not match the blocks")?;
    let words = parts.columns.len().saturating_mul(tiling.row_words());
    expect(DOING, parts.column_rows.len() == words, "the number of column masks differs from the columns")?;
    let is_ascending = |starts: &[u32], values: &[u32], divisor: u32| {
        let mut blocks = starts.windows(2).map(|block| &values[block[0] as usize..block[1] as usize]);
        blocks.all(|block| block.is_sorted_by(|one, next| one / divisor < next / divisor))
    };
    expect(DOING, is_ascending(parts.tile_starts, parts.tiles, 2), "the tiles of a block are not ascending")?;
    expect(DOING, is_ascending(parts.column_starts, parts.columns, 1), "the columns of a block are not ascending")?;
    let tiles = tiling.tiles(length);
    let whole = length / tiling.keys;
    let is_within = |word: &u32| if word % 2 == 1 { word / 2 < tiles } else { word / 2 < whole };
    expect(DOING, parts.tiles.iter().all(is_within), "a tile is beyond the end, or a full one extends beyond it")?;
    expect(DOING, parts.columns.iter().all(|column| *column < length), "a column is beyond the end")
}

/// The kernels' `Work` of each block.
fn works_of(parts: &LayoutParts<'_>, tiling: Tiling) -> Vec<[u32; 8]> {
    let starts = parts.tile_starts.windows(2).zip(parts.column_starts.windows(2)).enumerate();
    let work = |(block, (tiles, columns)): (usize, (&[u32], &[u32]))| {
        let count = tiles[1] - tiles[0];
        let word = |at: u32| if at < count { parts.tiles[(tiles[0] + at) as usize] } else { 0 };
        [block as u32, tiles[0], count, columns[0], columns[1] - columns[0], word(0), word(1), 0]
    };
    heaviest_first(starts.map(work).collect(), tiling)
}

fn dense_works(length: u32, tiling: Tiling, is_causal: bool) -> Vec<[u32; 8]> {
    let work = |block: u32| {
        let first_row = block * tiling.rows;
        let end = if is_causal { length.min(first_row + tiling.rows) } else { length };
        let word = |tile: u32| {
            let last = (tile + 1) * tiling.keys;
            tile << 1 | u32::from(last > length || (is_causal && last > first_row + 1))
        };
        [block, 0, tiling.tiles(end), 0, 0, word(0), word(1), 0]
    };
    heaviest_first((0..tiling.blocks(length) as u32).map(work).collect(), tiling)
}

/// The blocks with the most work start first, so that none of them finishes late.
fn heaviest_first(mut works: Vec<[u32; 8]>, tiling: Tiling) -> Vec<[u32; 8]> {
    works.sort_by_key(|work| Reverse(work[2] + work[4].div_ceil(tiling.keys)));
    works
}

#[cfg(test)]
mod tests;
