//! Attention of a block of 64 queries by online softmax: tiles of keys, and gathered columns. Scores are never stored, and
//! pairs outside the layout are never computed.

use std::ops::Range;

use super::rows::{Rows, RowsMut};
use super::tiles::{LANES, Lanes, mix, score, weigh};
use super::vectors::{dot, exp, vectorized};
use super::{number::Number, product::widened};
use crate::attention::Layout;

/// The most keys of one product: adjacent tiles are multiplied together.
const KEYS: usize = 256;

/// A gathered column is computed for every row of its block if at least one row in this many keeps it, else row by row.
const WORTH_GATHERING: u32 = 8;

/// Workspace bytes per thread for heads of this width.
pub fn thread_bytes(head_dim: usize) -> u64 {
    // A list that grew may be half empty.
    let numbers = LANES * (KEYS + 2 * head_dim) + 2 * KEYS * head_dim;
    2 * (4 * numbers + LANES * size_of::<Single>() * KEYS) as u64
}

/// Pairs that the CPU computes for a layout: tiles, and columns worth gathering, for every query of their block.
pub fn executed(layout: &Layout) -> u64 {
    let rows = |block: usize| layout.tiling.rows.min((layout.length - block * layout.tiling.rows as usize) as u32);
    let saved = |block: usize| {
        let kept = layout.columns_of(block).map(|(_, bits)| ones(bits));
        kept.filter(|kept| !is_worth_gathering(*kept, rows(block)))
            .map(|kept| u64::from(rows(block) - kept))
            .sum::<u64>()
    };
    layout.executed() - (0..layout.blocks()).map(saved).sum::<u64>()
}

fn ones(bits: &[u64]) -> u32 {
    bits.iter().map(|bits| bits.count_ones()).sum()
}

fn is_worth_gathering(kept: u32, rows: u32) -> bool {
    kept * WORTH_GATHERING >= rows
}

struct Single {
    row: u32,
    column: u32,
    weight: f32,
}

/// The workspace of a thread: up to 64 queries, and the keys and values of a tile.
pub struct Work {
    /// The queries, transposed and scaled.
    queries: Vec<Lanes>,
    scores: Vec<Lanes>,
    /// The weighted sum of values so far, a row per query, not yet divided by the sum of the weights.
    mixed: Vec<f32>,
    /// The largest score and the sum of the weights so far.
    tops: Lanes,
    sums: Lanes,
    /// Keys and values, gathered or widened.
    keys: Vec<f32>,
    values: Vec<f32>,
    singles: Vec<Single>,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            queries: Vec::new(),
            scores: Vec::new(),
            mixed: Vec::new(),
            tops: Lanes::all(f32::NEG_INFINITY),
            sums: Lanes::all(0.0),
            keys: Vec::new(),
            values: Vec::new(),
            singles: Vec::new(),
        }
    }
}

impl Work {
    /// Attends the queries of a block of a layout to all keys and values of their head.
    pub fn attend<T: Number>(
        &mut self,
        queries: Rows<'_, T>,
        of_head: [Rows<'_, T>; 2],
        layout: &Layout,
        block: usize,
    ) {
        let first = block * LANES;
        self.begin(queries);
        for (keys, is_partial) in runs(layout, block) {
            let parts = of_head.map(|rows| rows.part(keys.start, keys.len(), 0, queries.width));
            let mask = |scores: &mut [Lanes]| {
                if is_partial {
                    mask_by_rule(layout, first, keys.start, scores);
                }
            };
            self.tile(parts, mask);
        }
        self.gathered(queries.count as u32, of_head, layout, block);
        self.single(queries, of_head, layout, block);
    }

    /// Begins with other queries. Lanes without a query are zero.
    pub fn begin<T: Number>(&mut self, queries: Rows<'_, T>) {
        let scale = (queries.width as f32).sqrt().recip();
        self.queries.clear();
        self.queries.resize(queries.width, Lanes::all(0.0));
        for lane in 0..queries.count {
            let numbers = self.queries.iter_mut().zip(queries.row(lane));
            numbers.for_each(|(lanes, number)| lanes.0[lane] = scale * number.wide());
        }
        self.mixed.clear();
        self.mixed.resize(LANES * queries.width, 0.0);
        (self.tops, self.sums) = (Lanes::all(f32::NEG_INFINITY), Lanes::all(0.0));
    }

    pub fn tile<T: Number>(&mut self, [keys, values]: [Rows<'_, T>; 2], mask: impl FnOnce(&mut [Lanes])) {
        let Self { queries, scores, mixed, tops, sums, keys: wide_keys, values: wide_values, .. } = self;
        scores.resize(keys.count, Lanes::all(0.0));
        score(queries, widened(keys, wide_keys), scores, LANES, false);
        mask(scores);
        weigh(scores, tops, sums, mixed);
        mix(scores, widened(values, wide_values), mixed);
    }

    fn gathered<T: Number>(&mut self, rows: u32, of_head: [Rows<'_, T>; 2], layout: &Layout, block: usize) {
        let width = of_head[0].width;
        let mut columns = layout.columns_of(block).filter(|(_, bits)| is_worth_gathering(ones(bits), rows)).peekable();
        while columns.peek().is_some() {
            let (mut keys, mut values) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.values));
            let mut kept = [0; KEYS];
            let mut count = 0;
            keys.clear();
            values.clear();
            for (column, bits) in columns.by_ref().take(KEYS) {
                for (rows, gathered) in of_head.iter().zip([&mut keys, &mut values]) {
                    vectorized!(gathered.extend(rows.row(column).iter().map(|number| number.wide())));
                }
                kept[count] = bits[0];
                count += 1;
            }
            let both = [&keys, &values].map(|numbers| Rows::dense(numbers, count, width));
            self.tile(both, |scores| mask_by_bits(&kept[..count], scores));
            (self.keys, self.values) = (keys, values);
        }
    }

    fn single<T: Number>(&mut self, queries: Rows<'_, T>, of_head: [Rows<'_, T>; 2], layout: &Layout, block: usize) {
        let [keys, values] = of_head;
        let scale = (queries.width as f32).sqrt().recip();
        let columns =
            layout.columns_of(block).filter(|(_, bits)| !is_worth_gathering(ones(bits), queries.count as u32));
        let Self { singles, mixed, tops: Lanes(tops), sums: Lanes(sums), keys: query, .. } = self;
        singles.clear();
        for (column, bits) in columns {
            singles.extend(bit_places(bits[0]).map(|row| Single { row, column: column as u32, weight: 0.0 }));
        }
        // Row by row, so that each query is widened once; the columns of a row stay in order.
        singles.sort_unstable_by_key(|single| (single.row, single.column));
        vectorized!({
            for of_row in singles.chunk_by_mut(|one, next| one.row == next.row) {
                let row = of_row[0].row as usize;
                query.clear();
                query.extend(queries.row(row).iter().map(|number| number.wide()));
                let mixed = &mut mixed[row * queries.width..][..queries.width];
                let mut higher = tops[row];
                for single in of_row.iter_mut() {
                    single.weight = scale * dot(query, keys.row(single.column as usize));
                    higher = higher.max(single.weight);
                }
                let shrink = exp(tops[row] - higher);
                mixed.iter_mut().for_each(|number| *number *= shrink);
                sums[row] *= shrink;
                tops[row] = higher;
                for single in of_row {
                    let weight = exp(single.weight - higher);
                    sums[row] += weight;
                    let value = values.row(single.column as usize);
                    mixed.iter_mut().zip(value).for_each(|(mixed, value)| *mixed += weight * value.wide());
                }
            }
        });
    }

    /// The largest score of each query and the sum of its weights.
    pub fn tops(&self) -> impl Iterator<Item = (f32, f32)> {
        self.tops.0.into_iter().zip(self.sums.0)
    }

    /// Writes the output of the block. Queries without any key get zeros.
    pub fn put<T: Number>(&self, mut out: RowsMut<'_, T>) {
        for (row, mixed) in self.mixed.chunks(out.width).enumerate().take(out.count) {
            let share = if self.sums.0[row] > 0.0 { self.sums.0[row].recip() } else { 0.0 };
            let out = out.row(row).iter_mut().zip(mixed);
            out.for_each(|(out, mixed)| *out = T::narrow(mixed * share));
        }
    }
}

/// Masks scores by the rule of a layout, for keys from `from` on and queries from `first` on. Lanes after the last query
/// follow its rule: with one query per head, they are the other heads of its group.
fn mask_by_rule(layout: &Layout, first: usize, from: usize, scores: &mut [Lanes]) {
    let row = |lane: usize| (first + lane).min(layout.length - 1);
    let kept: [_; LANES] = std::array::from_fn(|lane| layout.rule.columns(row(lane), layout.length));
    let [begins, tos] = [0, 1].map(|at| kept.map(|(_, window)| window[at]));
    mask(from, scores, (kept.map(|(end, _)| end), begins, tos));
}

/// Masks scores of keys from `from` on. A query keeps keys up to one end, and those between a beginning and another end.
pub fn mask(from: usize, scores: &mut [Lanes], bounds: ([usize; LANES], [usize; LANES], [usize; LANES])) {
    let place = |column: usize| column.saturating_sub(from).min(scores.len()) as u32;
    let (ends, begins, tos) = (bounds.0.map(place), bounds.1.map(place), bounds.2.map(place));
    vectorized!({
        for (key, Lanes(scores)) in scores.iter_mut().enumerate() {
            let key = key as u32;
            for lane in 0..LANES {
                let is_kept = key < ends[lane] || key >= begins[lane] && key < tos[lane];
                scores[lane] = if is_kept { scores[lane] } else { f32::NEG_INFINITY };
            }
        }
    });
}

fn mask_by_bits(kept: &[u64], scores: &mut [Lanes]) {
    for (bits, scores) in kept.iter().zip(scores).filter(|(bits, _)| **bits != u64::MAX) {
        let left_out = scores.0.iter_mut().enumerate().filter(|(lane, _)| bits >> lane & 1 == 0);
        left_out.for_each(|(_, score)| *score = f32::NEG_INFINITY);
    }
}

fn bit_places(bits: u64) -> impl Iterator<Item = u32> {
    let mut left = bits;
    std::iter::from_fn(move || {
        let bit = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

/// Adjacent tiles of a block as ranges of keys, and whether some of them must be masked by the rule.
fn runs(layout: &Layout, block: usize) -> impl Iterator<Item = (Range<usize>, bool)> {
    let (keys, length) = (layout.tiling.keys as usize, layout.length);
    let mut tiles = layout.tiles_of(block).peekable();
    std::iter::from_fn(move || {
        let (from, mut is_partial) = tiles.next()?;
        let mut to = from + keys;
        while let Some((_, next)) = tiles.next_if(|(next, _)| *next == to && to + keys - from <= KEYS) {
            is_partial |= next;
            to += keys;
        }
        Some((from..to.min(length), is_partial))
    })
}
