//! Layouts for block attention: a window with global and random columns, and arbitrary layouts.

use laptime_cuda::nn::{LayoutParts, Rule, TILING};

use crate::reference::nn::blocks;

/// A layout on the host.
pub(super) struct HostLayout {
    pub(super) rule: Rule,
    pub(super) length: u32,
    tile_starts: Vec<u32>,
    tiles: Vec<u32>,
    column_starts: Vec<u32>,
    columns: Vec<u32>,
    column_rows: Vec<u64>,
}

/// Pseudorandom numbers: xorshift.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below a limit, or zero.
    fn below(&mut self, limit: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(limit)) >> 32) as u32
    }
}

impl HostLayout {
    fn empty(rule: Rule, length: u32) -> Self {
        let [tile_starts, column_starts] = [vec![0], vec![0]];
        Self { rule, length, tile_starts, tiles: vec![], column_starts, columns: vec![], column_rows: vec![] }
    }

    pub(super) fn parts(&self) -> LayoutParts<'_> {
        LayoutParts {
            tile_starts: &self.tile_starts,
            tiles: &self.tiles,
            column_starts: &self.column_starts,
            columns: &self.columns,
            column_rows: &self.column_rows,
        }
    }

    fn end_of_block(&mut self) {
        self.tile_starts.push(self.tiles.len() as u32);
        self.column_starts.push(self.columns.len() as u32);
    }

    fn add_column(&mut self, column: u32, rows: [u64; 2]) {
        if rows != [0, 0] {
            self.columns.push(column);
            self.column_rows.extend(rows);
        }
    }

    /// Causal: as many keys to the left, global columns, and random columns shared by 64 rows.
    pub(super) fn windowed(length: u32, half_window: u32, global: u32, random: u32) -> Self {
        let rule = Rule { is_causal: true, half_window: Some(half_window), global };
        let mut layout = Self::empty(rule, length);
        let mut dice = Dice::new(u64::from(length));
        for first in (0..length).step_by(TILING.rows as usize) {
            let last = (first + TILING.rows).min(length) - 1;
            let from = first.saturating_sub(half_window) / TILING.keys;
            let global_tiles = 0..global.div_ceil(TILING.keys).min(last / TILING.keys + 1);
            let near = from.max(global_tiles.end)..last / TILING.keys + 1;
            for tile in global_tiles.chain(near) {
                let keys = tile * TILING.keys..(tile + 1) * TILING.keys;
                let all = |row: u32| keys.clone().all(|key| key < length && rule.allows(row, key));
                layout.tiles.push(tile << 1 | u32::from(!(first..=last).all(all)));
            }
            layout.add_random(&mut dice, first, last, random);
            layout.end_of_block();
        }
        layout
    }

    fn add_random(&mut self, dice: &mut Dice, first: u32, last: u32, random: u32) {
        let mut drawn: Vec<(u32, usize, u64)> = Vec::new();
        for (part, begin) in (first..=last).step_by(64).enumerate() {
            let mut of_part: Vec<u32> = (0..random.min(begin)).map(|_| dice.below(begin)).collect();
            of_part.sort_unstable();
            of_part.dedup();
            for column in of_part {
                let rows = (begin..(begin + 64).min(last + 1)).filter(|row| !self.rule.allows(*row, column));
                drawn.push((column, part, rows.fold(0, |bits, row| bits | 1 << (row - begin))));
            }
        }
        drawn.sort_unstable();
        for of_column in drawn.chunk_by(|one, next| one.0 == next.0) {
            let mut rows = [0; 2];
            of_column.iter().for_each(|(_, part, bits)| rows[*part] |= bits);
            self.add_column(of_column[0].0, rows);
        }
    }

    /// Anything: tiles that are not there, partial or whole, columns that some rows keep, and blocks with nothing at all.
    pub(super) fn any(length: u32, rule: Rule, columns: u32, seed: u64) -> Self {
        let mut layout = Self::empty(rule, length);
        let mut dice = Dice::new(seed);
        for first in (0..length).step_by(TILING.rows as usize) {
            // One in five blocks has no tiles, one no columns, and one nothing.
            let kind = dice.below(5);
            for tile in 0..TILING.tiles(length) {
                let is_whole = (tile + 1) * TILING.keys <= length;
                match dice.below(3) {
                    _ if kind == 0 || kind == 2 => {}
                    0 => {}
                    1 if is_whole => layout.tiles.push(tile << 1),
                    _ => layout.tiles.push(tile << 1 | 1),
                }
            }
            layout.tile_starts.push(layout.tiles.len() as u32);
            if kind != 1 && kind != 2 {
                layout.add_any_columns(&mut dice, first, columns);
            }
            layout.column_starts.push(layout.columns.len() as u32);
        }
        layout
    }

    fn add_any_columns(&mut self, dice: &mut Dice, first: u32, columns: u32) {
        let mut drawn: Vec<u32> = (0..columns).map(|_| dice.below(self.length)).collect();
        drawn.sort_unstable();
        drawn.dedup();
        let range = self.tile_starts[self.tile_starts.len() - 2] as usize..;
        let tiles = self.tiles[range].to_vec();
        for column in drawn {
            let word = tiles.iter().find(|word| **word >> 1 == column / TILING.keys);
            let is_free = |row: u32| word.is_none_or(|word| word % 2 == 1 && !self.rule.allows(row, column));
            let mut rows = [dice.bits(), dice.bits()];
            for at in (0..TILING.rows).filter(|at| !is_free(first + at) || first + at >= self.length) {
                rows[at as usize / 64] &= !(1 << (at % 64));
            }
            self.add_column(column, rows);
        }
    }

    /// The keys that each row keeps.
    pub(super) fn kept(&self) -> Vec<Vec<u32>> {
        let parts = self.parts();
        let of_row = |row| (0..self.length).filter(move |key| blocks::is_kept(&parts, self.rule, TILING, [row, *key]));
        (0..self.length).map(|row| of_row(row).collect()).collect()
    }

    /// Pairs that are computed, for one head: those of tiles and of gathered columns, kept or not.
    pub(super) fn executed(&self) -> f64 {
        let keys = self.tiles.len() as f64 * f64::from(TILING.keys) + self.columns.len() as f64;
        keys * f64::from(TILING.rows)
    }
}
