//! The gathered columns of a block of queries, with the rows that keep them.

use std::ops::Range;

use super::{Pattern, Random, Rule, SHARED_ROWS, kept::Blocks};

/// Rows per word of bits.
const WORD: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub column: u32,
    /// The index of 64 rows in the block.
    pub word: u32,
    pub bits: u64,
}

#[derive(Debug, Default)]
pub struct Gathering {
    entries: Vec<Entry>,
    /// Columns of single rows: the column, then 16 bits for the row.
    single: Vec<u64>,
    drawn: Vec<u32>,
}

impl Gathering {
    /// Gathers the random columns of a pattern, unless its rule keeps them.
    pub fn draw(&mut self, pattern: &Pattern, length: usize, rows: Range<usize>) {
        let (rule, mut drawn) = (pattern.rule(), std::mem::take(&mut self.drawn));
        let step = match pattern.shared {
            Random::PerRow => 1,
            Random::PerBlock => SHARED_ROWS,
        };
        let mut row = rows.start;
        while row < rows.end {
            // The rows of a draw may start in the previous block.
            let end = (row / step * step + step).min(rows.end);
            pattern.random_columns(length, row, &mut drawn);
            for &column in &drawn {
                match pattern.shared {
                    Random::PerRow => self.add_row(rule, column, row, rows.start),
                    Random::PerBlock => self.add_rows(rule, column, row..end, rows.start),
                }
            }
            row = end;
        }
        self.drawn = drawn;
    }

    fn add_row(&mut self, rule: Rule, column: u32, row: usize, first: usize) {
        let is_seen = !rule.is_causal || column as usize <= row;
        if is_seen && !rule.allows(row, column as usize) {
            self.single.push(u64::from(column) << 16 | (row - first) as u64);
        }
    }

    /// Adds a column for the rows that may see it, unless their rule keeps it.
    fn add_rows(&mut self, rule: Rule, column: u32, rows: Range<usize>, first: usize) {
        let at = column as usize;
        let (half, global) = (rule.half_window.map_or(usize::MAX, |half| half as usize), rule.global as usize);
        if half == usize::MAX || at < global {
            return;
        }
        let from = if rule.is_causal { rows.start.max(at) } else { rows.start }.max(global);
        // Before and after the window.
        self.add(column, from..rows.end.min(at.saturating_sub(half)), first);
        self.add(column, from.max(at.saturating_add(half).saturating_add(1))..rows.end, first);
    }

    /// Gathers the columns of a tile that a mask keeps.
    pub fn mask(&mut self, blocks: &Blocks, rule: Rule, rows: Range<usize>, columns: Range<usize>) {
        let mut row = rows.start;
        while row < rows.end {
            let end = (row / blocks.block).saturating_add(1).saturating_mul(blocks.block).min(rows.end);
            for column in columns.clone().filter(|&column| blocks.keeps(row, column)) {
                let from = if rule.is_causal { row.max(column) } else { row };
                self.add(column as u32, from..end, rows.start);
            }
            row = end;
        }
    }

    fn add(&mut self, column: u32, rows: Range<usize>, first: usize) {
        let mut row = rows.start;
        while row < rows.end {
            let (word, bit) = ((row - first) / WORD, (row - first) % WORD);
            let count = (WORD - bit).min(rows.end - row);
            let bits = (u64::MAX >> (WORD - count)) << bit;
            self.entries.push(Entry { column, word: word as u32, bits });
            row += count;
        }
    }

    /// Takes the gathered columns in order. A column may occur several times.
    pub fn take(&mut self) -> impl Iterator<Item = Entry> {
        // Sorting integers is faster.
        self.single.sort_unstable();
        let single = |packed: u64| {
            let row = (packed & 0xffff) as usize;
            Entry { column: (packed >> 16) as u32, word: (row / WORD) as u32, bits: 1 << (row % WORD) }
        };
        self.entries.sort_unstable();
        self.entries.drain(..).chain(self.single.drain(..).map(single))
    }
}

impl Blocks {
    /// The number of kept blocks, and of all blocks, that rows and columns touch. Blocks that no row may see do not count.
    pub fn count(&self, rule: Rule, rows: Range<usize>, columns: Range<usize>) -> (usize, usize) {
        let touched = |range: Range<usize>| range.start / self.block..(range.end - 1) / self.block + 1;
        let (mut kept, mut all) = (0, 0);
        for row in touched(rows) {
            for column in touched(columns.clone()).filter(|column| !rule.is_causal || *column <= row) {
                kept += usize::from(self.mask.keeps(row, column));
                all += 1;
            }
        }
        (kept, all)
    }
}
