//! Which pairs of queries and keys are computed: tiles of them, and columns that are gathered.

use std::cmp::Reverse;

use crate::launch::*;

const DOING: &str = "laying out blocks";
/// Says that there is no window; the kernels have the same number.
const NO_WINDOW: u32 = u32::MAX;

/// How queries and keys are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// Queries of a block, a multiple of 64.
    pub rows: u32,
    /// Keys of a tile.
    pub keys: u32,
}

/// The tiling that the kernels have, whatever the size of heads and the type of numbers.
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

    /// Words of 64 bits that say which rows of a block keep a column.
    pub fn row_words(&self) -> usize {
        (self.rows as usize).div_ceil(64)
    }
}

/// Which pairs a partial tile keeps.
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
    /// Whether it keeps a pair.
    pub fn allows(&self, row: u32, key: u32) -> bool {
        let is_near = self.half_window.is_none_or(|half| row.abs_diff(key) <= half);
        (!self.is_causal || key <= row) && (is_near || row.min(key) < self.global)
    }
}

/// What is computed, block of queries by block.
///
/// Each pair must be kept once: what a tile keeps, no column keeps again.
#[derive(Debug, Clone, Copy)]
pub struct LayoutParts<'a> {
    /// Where the tiles of each block begin, and the end.
    pub tile_starts: &'a [u32],
    /// Twice the number of a tile of keys, and one more if it is partial: kept by the rule, and else whole. Ascending in
    /// each block.
    pub tiles: &'a [u32],
    /// Where the columns of each block begin, and the end.
    pub column_starts: &'a [u32],
    /// Keys that are gathered, ascending in each block.
    pub columns: &'a [u32],
    /// Which rows of the block keep a column, a bit each: as many words a column as [`Tiling::row_words`] says.
    pub column_rows: &'a [u64],
}

/// A layout on a device.
#[derive(Debug)]
pub struct BlockLayout {
    length: u32,
    rule: Rule,
    blocks: u32,
    pub(super) works: Buffer<[u32; 8]>,
    /// Nothing where every block takes its tiles in turn.
    pub(super) tiles: Option<Buffer<u32>>,
    pub(super) columns: Buffer<u32>,
    pub(super) column_rows: Buffer<u64>,
}

impl BlockLayout {
    /// Checks a layout for this number of queries and keys, and uploads it to a device.
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

    /// A layout of all pairs, or of all that causality allows. It has no list of tiles, which would grow with the square
    /// of the length: the kernels know them.
    pub fn dense(device: &Device, length: u32, tiling: Tiling, is_causal: bool) -> Result<Self, CudaError> {
        expect(DOING, tiling == TILING, "there are no kernels for this tiling")?;
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

    /// How many queries and keys it is for.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Which pairs its partial tiles keep.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// Bytes that it takes on the device.
    pub fn bytes(&self) -> usize {
        let lists = self.columns.bytes() + self.column_rows.bytes();
        self.works.bytes() + self.tiles.as_ref().map_or(0, Buffer::bytes) + lists
    }

    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Causality, window and global tokens as the kernels take them.
    pub(super) fn rule_words(&self) -> [u32; 3] {
        rule_words(self.rule, self.length)
    }
}

/// A window that no pair exceeds is none, so that nothing the kernels add to it can overflow.
fn rule_words(rule: Rule, length: u32) -> [u32; 3] {
    let half = rule.half_window.filter(|half| *half < length).unwrap_or(NO_WINDOW);
    [u32::from(rule.is_causal), half, rule.global.min(length)]
}

fn check(length: u32, tiling: Tiling, parts: &LayoutParts<'_>) -> Done {
    expect(DOING, tiling == TILING, "there are no kernels for this tiling")?;
    expect(DOING, length < 1 << 21, "too many tokens")?;
    let is_list = |starts: &[u32], count: usize| {
        let begins = starts.len() == tiling.blocks(length) + 1 && starts[0] == 0;
        begins && starts.is_sorted() && starts.last().is_some_and(|end| *end as usize == count)
    };
    expect(DOING, is_list(parts.tile_starts, parts.tiles.len()), "the starts of tiles do not fit the blocks")?;
    expect(DOING, is_list(parts.column_starts, parts.columns.len()), "the starts of columns do not fit the blocks")?;
    let words = parts.columns.len().saturating_mul(tiling.row_words());
    expect(DOING, parts.column_rows.len() == words, "the rows of columns are not as many as the columns")?;
    let is_ascending = |starts: &[u32], values: &[u32], divisor: u32| {
        let mut blocks = starts.windows(2).map(|block| &values[block[0] as usize..block[1] as usize]);
        blocks.all(|block| block.is_sorted_by(|one, next| one / divisor < next / divisor))
    };
    expect(DOING, is_ascending(parts.tile_starts, parts.tiles, 2), "the tiles of a block do not ascend")?;
    expect(DOING, is_ascending(parts.column_starts, parts.columns, 1), "the columns of a block do not ascend")?;
    let tiles = tiling.tiles(length);
    let whole = length / tiling.keys;
    let is_within = |word: &u32| if word % 2 == 1 { word / 2 < tiles } else { word / 2 < whole };
    expect(DOING, parts.tiles.iter().all(is_within), "a tile is beyond the end, or a whole one reaches there")?;
    expect(DOING, parts.columns.iter().all(|column| *column < length), "a column is beyond the end")
}

/// The blocks, those with the most work first, so that none begins late: each with its tiles and columns.
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

fn heaviest_first(mut works: Vec<[u32; 8]>, tiling: Tiling) -> Vec<[u32; 8]> {
    works.sort_by_key(|work| Reverse(work[2] + work[4].div_ceil(tiling.keys)));
    works
}

#[cfg(test)]
mod tests;
