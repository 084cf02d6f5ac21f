//! The layout of sparse attention: for each block of queries, tiles of keys and single gathered columns.

use super::columns::{Entry, Gathering};
use super::{Kept, Rule, kept::Blocks};

/// The size of blocks and tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// Queries per block.
    pub rows: u32,
    /// Keys per tile.
    pub keys: u32,
}

/// Kept pairs in blocks of queries. Each is in exactly one tile or gathered column of its block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The number of queries and of keys.
    pub length: usize,
    /// The rule of partial tiles.
    pub rule: Rule,
    /// The size of blocks and tiles.
    pub tiling: Tiling,
    /// The start of each block in `tiles`, and the end.
    pub tile_starts: Vec<u32>,
    /// The tiles of each block in order: twice the index of the tile, plus one if it must be masked by rule and length.
    pub tiles: Vec<u32>,
    /// The start of each block in `columns`, and the end.
    pub column_starts: Vec<u32>,
    /// The gathered columns of each block, in order.
    pub columns: Vec<u32>,
    /// [`Layout::words`] words for each gathered column: a bit for each row of the block that keeps it.
    pub column_rows: Vec<u64>,
    connections: u64,
    executed: u64,
}

impl Layout {
    /// Builds a layout, in time proportional to length and kept pairs. For block masks it visits every tile.
    pub fn build(kept: &Kept, length: usize, tiling: Tiling) -> Self {
        let tiling = Tiling { rows: tiling.rows.max(1), keys: tiling.keys.max(1) };
        let mut layout = Self {
            length,
            rule: kept.rule(),
            tiling,
            tile_starts: vec![0],
            tiles: Vec::new(),
            column_starts: vec![0],
            columns: Vec::new(),
            column_rows: Vec::new(),
            connections: 0,
            executed: 0,
        };
        let blocks = matches!(kept, Kept::Blocks { .. }).then(|| Blocks::of(kept, length));
        let mut gathering = Gathering::default();
        for from in (0..length).step_by(tiling.rows as usize) {
            let block = Block { from, last: (from + tiling.rows as usize).min(length) - 1 };
            match (&blocks, kept) {
                (Some(blocks), _) => layout.add_masked(block, blocks, &mut gathering),
                (None, Kept::Pattern(pattern)) => {
                    layout.add_ruled(block);
                    gathering.draw(pattern, length, block.from..block.last + 1);
                }
                (None, _) => layout.add_ruled(block),
            }
            layout.end_block(block, &mut gathering);
        }
        layout
    }

    /// The number of blocks of queries.
    pub fn blocks(&self) -> usize {
        self.tile_starts.len() - 1
    }

    /// Words of bits per gathered column.
    pub fn words(&self) -> usize {
        words(self.tiling)
    }

    /// The number of kept pairs.
    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// The number of pairs computed if tiles and columns are computed for every query of their block.
    pub fn executed(&self) -> u64 {
        self.executed
    }

    /// The size of its lists.
    pub fn bytes(&self) -> u64 {
        let words = self.tile_starts.len() + self.tiles.len() + self.column_starts.len() + self.columns.len();
        (4 * words + 8 * self.column_rows.len()) as u64
    }

    /// The tiles of a block: the first key, and whether the tile must be masked.
    pub fn tiles_of(&self, block: usize) -> impl Iterator<Item = (usize, bool)> {
        let [from, to] = [block, block + 1].map(|at| self.tile_starts[at] as usize);
        let keys = self.tiling.keys as usize;
        self.tiles[from..to].iter().map(move |tile| ((tile >> 1) as usize * keys, tile & 1 == 1))
    }

    /// The gathered columns of a block, with the bits of the rows that keep them.
    pub fn columns_of(&self, block: usize) -> impl Iterator<Item = (usize, &[u64])> {
        let [from, to] = [block, block + 1].map(|at| self.column_starts[at] as usize);
        let words = self.words();
        let rows = self.column_rows[from * words..to * words].chunks(words);
        self.columns[from..to].iter().map(|column| *column as usize).zip(rows)
    }

    fn add_ruled(&mut self, block: Block) {
        let Block { from, last } = block;
        let (rule, length, keys) = (self.rule, self.length, self.tiling.keys as usize);
        // Global tokens come first.
        let inner = from.max(rule.global as usize).min(last);
        let (first_end, _) = rule.columns(from, length);
        let (last_end, [_, window_to]) = rule.columns(last, length);
        let (_, [window_from, _]) = rule.columns(inner, length);
        let beginning = 0..first_end.max(last_end).div_ceil(keys);
        let window =
            (window_from / keys).max(beginning.end)..if window_from < window_to { window_to.div_ceil(keys) } else { 0 };
        for tile in beginning.chain(window) {
            self.add_tile(block, tile);
        }
    }

    fn add_tile(&mut self, block: Block, tile: usize) {
        let (keys, rule) = (self.tiling.keys as usize, self.rule);
        let (from, to) = (tile * keys, (tile + 1) * keys);
        let clipped = to.min(self.length);
        let rows = block.last + 1 - block.from;
        let is_full = to <= self.length && keeps_all(&rule, block, from..to);
        self.tiles.push((tile as u32) << 1 | u32::from(!is_full));
        self.executed += (rows * (clipped - from)) as u64;
        let of_row = |row: usize| {
            let (end, window) = rule.columns(row, self.length);
            let shared = |begin: usize, end: usize| end.min(clipped).saturating_sub(begin.max(from)) as u64;
            shared(0, end) + shared(window[0], window[1])
        };
        self.connections += match is_full {
            true => (rows * keys) as u64,
            false => (block.from..=block.last).map(of_row).sum::<u64>(),
        };
    }

    /// Adds the tiles that a mask keeps entirely, and gathers the columns of those that it keeps partly.
    fn add_masked(&mut self, block: Block, blocks: &Blocks, gathering: &mut Gathering) {
        let keys = self.tiling.keys as usize;
        let end = if self.rule.is_causal { block.last + 1 } else { self.length };
        for (tile, from) in (0..end).step_by(keys).enumerate() {
            let to = (from + keys).min(self.length);
            let (kept, all) = blocks.count(self.rule, block.from..block.last + 1, from..to);
            if kept == all {
                self.add_tile(block, tile);
            } else if kept > 0 {
                gathering.mask(blocks, self.rule, block.from..block.last + 1, from..to);
            }
        }
    }

    fn end_block(&mut self, block: Block, gathering: &mut Gathering) {
        let rows = block.last + 1 - block.from;
        let words = self.words();
        for Entry { column, word, bits } in gathering.take() {
            if self.columns.len() == self.column_starts[self.column_starts.len() - 1] as usize
                || self.columns.last() != Some(&column)
            {
                self.columns.push(column);
                self.column_rows.resize(self.columns.len() * words, 0);
                self.executed += rows as u64;
            }
            let last = self.column_rows.len() - words;
            self.column_rows[last + word as usize] |= bits;
            self.connections += u64::from(bits.count_ones());
        }
        self.tile_starts.push(self.tiles.len() as u32);
        self.column_starts.push(self.columns.len() as u32);
    }
}

/// Words of bits per gathered column of a tiling.
pub(super) fn words(tiling: Tiling) -> usize {
    (tiling.rows as usize).div_ceil(64)
}

#[derive(Debug, Clone, Copy)]
struct Block {
    from: usize,
    last: usize,
}

fn keeps_all(rule: &Rule, Block { from, last }: Block, keys: std::ops::Range<usize>) -> bool {
    let global = rule.global as usize;
    if rule.is_causal && keys.end > from + 1 {
        return false;
    }
    let (Some(half), inner) = (rule.half_window, from.max(global)) else { return true };
    // Global keys and queries are kept anyway.
    let (half, first) = (half as usize, keys.start.max(global));
    inner > last
        || keys.end <= global
        || last.saturating_sub(half) <= first && keys.end - 1 <= inner.saturating_add(half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::{BlockMask, Kind, Pattern, Random};
    use proptest::prelude::*;

    const TILING: Tiling = Tiling { rows: 64, keys: 64 };

    fn small(is_causal: bool) -> Pattern {
        Pattern { is_causal, ..Pattern::preset("small").unwrap() }
    }

    /// What a layout keeps of a block's rows, pair by pair: how often.
    fn counts(layout: &Layout, block: usize) -> Vec<Vec<u8>> {
        let (rows, keys) = (layout.tiling.rows as usize, layout.tiling.keys as usize);
        let from = block * rows;
        let mut counts = vec![vec![0; layout.length]; rows.min(layout.length - from)];
        for (first, is_partial) in layout.tiles_of(block) {
            for (row, counts) in counts.iter_mut().enumerate() {
                for (column, count) in counts.iter_mut().enumerate().skip(first).take(keys) {
                    *count += u8::from(!is_partial || layout.rule.allows(from + row, column));
                }
            }
        }
        for (column, bits) in layout.columns_of(block) {
            for (row, counts) in counts.iter_mut().enumerate() {
                counts[column] += (bits[row / 64] >> (row % 64) & 1) as u8;
            }
        }
        counts
    }

    /// Checks that a layout keeps each kept pair exactly once, marks full tiles, and counts correctly.
    fn check(kept: &Kept, length: usize, tiling: Tiling) -> Result<(), TestCaseError> {
        let layout = Layout::build(kept, length, tiling);
        prop_assert_eq!(layout.blocks(), length.div_ceil(tiling.rows as usize));
        let mut connections = 0;
        for block in 0..layout.blocks() {
            let from = block * tiling.rows as usize;
            let counts = counts(&layout, block);
            for (row, counts) in counts.iter().enumerate() {
                let meant: Vec<u8> = kept.row(length, from + row).into_iter().map(u8::from).collect();
                prop_assert_eq!(counts, &meant, "row {} of {:?}", from + row, kept);
                connections += meant.iter().filter(|kept| **kept == 1).count() as u64;
            }
            prop_assert!(layout.tiles_of(block).is_sorted_by(|one, next| one.0 < next.0));
            for (first, is_partial) in layout.tiles_of(block) {
                let end = first + tiling.keys as usize;
                let mut all = (from..from + counts.len()).flat_map(|row| (first..end).map(move |column| (row, column)));
                let is_full = end <= length && all.all(|(row, column)| layout.rule.allows(row, column));
                prop_assert_eq!(is_full, !is_partial, "block {} key {}", block, first);
            }
            prop_assert!(layout.columns_of(block).is_sorted_by(|one, next| one.0 < next.0));
            prop_assert!(layout.columns_of(block).all(|(_, bits)| bits.iter().any(|bits| *bits != 0)));
        }
        prop_assert_eq!(layout.connections(), connections);
        prop_assert!(layout.executed() >= connections);
        Ok(())
    }

    #[test]
    fn a_dense_layout_has_every_tile_up_to_the_diagonal() {
        let layout = Layout::build(&Kept::All { is_causal: true }, 130, TILING);
        assert_eq!(layout.tile_starts, [0, 1, 3, 6]);
        assert_eq!(layout.tiles, [1, 0, 3, 0, 2, 5]);
        assert_eq!((layout.connections(), layout.executed()), (130 * 131 / 2, 64 * 64 * 3 + 2 * 130));
        let both = Layout::build(&Kept::All { is_causal: false }, 130, TILING);
        assert_eq!(both.tiles, [0, 2, 5, 0, 2, 5, 0, 2, 5]);
        assert_eq!((both.connections(), both.columns.len()), (130 * 130, 0));
    }

    #[test]
    fn a_window_has_its_tiles_and_the_global_ones() {
        let pattern = Pattern { window: 128, global: 10, random: 0, ..small(true) };
        let layout = Layout::build(&Kept::Pattern(pattern), 1024, TILING);
        let tiles: Vec<_> = layout.tiles_of(10).collect();
        assert_eq!(tiles, [(0, true), (576, true), (640, true)]);
        let wide = Layout::build(&Kept::Pattern(Pattern { window: 256, ..pattern }), 1024, TILING);
        assert_eq!(wide.tiles_of(10).collect::<Vec<_>>(), [(0, true), (512, true), (576, false), (640, true)]);
    }

    #[test]
    fn random_columns_are_gathered_where_no_rule_keeps_them() {
        let pattern = Pattern { window: 128, global: 0, random: 8, ..small(true) };
        let layout = Layout::build(&Kept::Pattern(pattern), 1024, TILING);
        let mut drawn = Vec::new();
        pattern.random_columns(1024, 640, &mut drawn);
        let gathered: Vec<usize> = layout.columns_of(10).map(|(column, _)| column).collect();
        // The window of row 703, the last of the block, starts at 639.
        let expected: Vec<usize> = drawn.into_iter().map(|column| column as usize).collect();
        assert_eq!(gathered, expected);
        let far = layout.columns_of(10).filter(|(column, _)| *column < 576);
        assert!(far.into_iter().all(|(_, bits)| bits == [u64::MAX]));
    }

    #[test]
    fn blocks_smaller_than_tiles_are_gathered() {
        let mask = BlockMask::parse("10\n01").unwrap();
        let layout =
            Layout::build(&Kept::Blocks { mask: Some(mask), is_causal: false }, 8, Tiling { rows: 8, keys: 8 });
        assert!(layout.tiles.is_empty());
        assert_eq!(layout.columns, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(layout.column_rows, [15, 15, 15, 15, 240, 240, 240, 240]);
        assert_eq!((layout.connections(), layout.executed()), (32, 64));
    }

    #[test]
    fn the_layout_of_a_window_grows_linearly() {
        let of = |length| Layout::build(&Kept::Pattern(small(true)), length, TILING);
        let (half, whole) = (of(8192), of(16384));
        assert!(whole.tiles.len() < 2 * half.tiles.len() + 20 && whole.columns.len() <= 256 * 32);
        assert!(whole.executed() < 2 * half.executed() + 100_000 && whole.bytes() < 300_000);
    }

    #[test]
    fn an_empty_sequence_has_an_empty_layout() {
        let layout = Layout::build(&Kept::Pattern(small(false)), 0, TILING);
        assert_eq!((layout.blocks(), layout.connections(), layout.tile_starts), (0, 0, vec![0]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_pair_of_a_pattern_is_kept_once(
            window in 0_usize..200, global in 0_usize..150, random in 0_usize..12, is_causal: bool, per_row: bool,
            seed: u64, length in 1_usize..330, rows in prop::sample::select(vec![16_u32, 64, 128]),
            keys in prop::sample::select(vec![32_u32, 64, 128]),
        ) {
            let shared = if per_row { Random::PerRow } else { Random::PerBlock };
            let pattern = Pattern { window, global, random, is_causal, shared, seed };
            check(&Kept::Pattern(pattern), length, Tiling { rows, keys })?;
            let window = Kept::of(Kind::SlidingWindow, pattern, None);
            check(&window, length, Tiling { rows, keys })?;
        }

        #[test]
        fn every_pair_of_a_mask_is_kept_once(
            side in 1_usize..9, block in 1_usize..40, bits: u64, is_causal: bool,
            rows in prop::sample::select(vec![16_u32, 64, 128]), keys in prop::sample::select(vec![16_u32, 64]),
        ) {
            let row = |row: usize| (0..side).map(|at| char::from(b'0' + (bits >> (row * side + at) & 1) as u8)).collect();
            let text = (0..side).map(row).collect::<Vec<String>>().join("\n");
            let mask = Some(BlockMask::parse(&text).unwrap());
            check(&Kept::Blocks { mask, is_causal }, side * block, Tiling { rows, keys })?;
            check(&Kept::Blocks { mask: None, is_causal }, side * block, Tiling { rows, keys })?;
            check(&Kept::All { is_causal }, side * block, Tiling { rows, keys })?;
        }
    }
}
