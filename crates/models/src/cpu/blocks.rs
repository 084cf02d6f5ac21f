//! Attention of the pairs that a layout keeps: tiles of queries and keys, and gathered columns, with the weights put right
//! as larger scores come. Scores are never stored, and what is left out is never looked at.

#![allow(unsafe_code, reason = "threads write rows of their own side by side; each block has its reason")]

use std::ops::Range;

use super::attention::{Inputs, Span, Strides};
use super::rows::{Rows, RowsMut, Shared};
use super::tiles::{LANES, Lanes, mix, score, weigh};
use super::vectors::{dot, exp, vectorized};
use super::{crew::Crew, number::Number, product::widened};
use crate::{Marks, attention::Layout, marks::stage_mark};

/// Keys that are worked on together at most: tiles that follow one another are one product.
const KEYS: usize = 256;

/// A gathered column is computed for every row of its block if at least one row out of this many keeps it, else row by row.
const WORTH_GATHERING: u32 = 8;

/// Bytes that a thread needs for heads of this many numbers.
pub fn thread_bytes(head_dim: usize) -> u64 {
    // A list that grows may end up half empty.
    let numbers = LANES * (KEYS + 2 * head_dim) + 2 * KEYS * head_dim;
    2 * (4 * numbers + LANES * size_of::<Single>() * KEYS) as u64
}

/// Pairs that the CPU computes of a layout: those of tiles and of columns that are worth gathering for every query of their block.
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

pub fn attend<T: Number>(
    crew: &Crew,
    marks: &Marks,
    span: &Span,
    layout: &Layout,
    inputs: &Inputs<'_, T>,
    (out, strides): (&mut [T], Strides),
) {
    let _stage = stage_mark!(marks, Ops, "blocks");
    assert!(span.start == 0 && span.queries == layout.length, "the layout is of this length");
    assert!(layout.tiling.rows as usize == LANES, "the layout is for the CPU");
    let blocks = layout.blocks();
    let heads = span.batch * span.heads;
    let touched = usize::try_from(layout.executed()).unwrap_or(usize::MAX).saturating_mul(heads * span.head_dim) / 16;
    let out = Shared::new(out);
    crew.each_with(touched, 0..heads * blocks, Work::default, |work, at| {
        // The last blocks have most to do, where it is causal.
        let (of, block) = (at / blocks, blocks - 1 - at % blocks);
        let head = Head::of(span, inputs, of / span.heads, of % span.heads);
        work.attend(&head, layout, block);
        let first = block * LANES;
        let place = of / span.heads * strides.batch + of % span.heads * strides.head + first * strides.row;
        // SAFETY: blocks and heads have no number in common, and each is done once.
        let out = unsafe { out.rows(place, LANES.min(layout.length - first), span.head_dim, strides.row) };
        work.put(out);
    });
}

struct Head<'a, T> {
    queries: Rows<'a, T>,
    keys: Rows<'a, T>,
    values: Rows<'a, T>,
}

impl<'a, T: Number> Head<'a, T> {
    fn of(span: &Span, inputs: &Inputs<'a, T>, batch: usize, head: usize) -> Self {
        let kv_head = head / (span.heads / span.kv_heads);
        Self {
            queries: inputs.queries.of(span, batch, head),
            keys: inputs.keys.of(span, batch, kv_head),
            values: inputs.values.of(span, batch, kv_head),
        }
    }
}

struct Single {
    row: u32,
    column: u32,
    weight: f32,
}

/// What a thread works in: up to 64 queries, and the keys and values of a tile.
pub struct Work {
    /// The queries, turned and scaled: a row for each of their numbers.
    queries: Vec<Lanes>,
    scores: Vec<Lanes>,
    /// Values weighted so far, not yet divided by the sum of the weights: a row for each query.
    mixed: Vec<f32>,
    /// The largest score and the sum of the weights so far.
    tops: Lanes,
    sums: Lanes,
    /// Keys and values that were gathered, or widened.
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
    fn attend<T: Number>(&mut self, head: &Head<'_, T>, layout: &Layout, block: usize) {
        let first = block * LANES;
        let queries = head.queries.part(first, LANES.min(layout.length - first), 0, head.queries.width);
        self.begin(queries);
        for (keys, is_partial) in runs(layout, block) {
            let parts = [head.keys, head.values].map(|rows| rows.part(keys.start, keys.len(), 0, queries.width));
            let mask = |scores: &mut [Lanes]| {
                if is_partial {
                    mask_by_rule(layout, first, keys.start, scores);
                }
            };
            self.tile(parts, mask);
        }
        self.gathered(queries.count, head, layout, block);
        self.single(queries, head, layout, block);
    }

    /// Turns the queries, and forgets what was before. Lanes without a query have zeros.
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

    fn gathered<T: Number>(&mut self, rows: usize, head: &Head<'_, T>, layout: &Layout, block: usize) {
        let (rows, width) = (rows as u32, head.keys.width);
        let mut columns = layout.columns_of(block).filter(|(_, bits)| is_worth_gathering(ones(bits), rows)).peekable();
        while columns.peek().is_some() {
            let (mut keys, mut values) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.values));
            let mut kept = [0; KEYS];
            let mut count = 0;
            keys.clear();
            values.clear();
            for (column, bits) in columns.by_ref().take(KEYS) {
                copy_row(head.keys.row(column), &mut keys);
                copy_row(head.values.row(column), &mut values);
                kept[count] = bits[0];
                count += 1;
            }
            let both = [&keys, &values].map(|numbers| Rows::dense(numbers, count, width));
            self.tile(both, |scores| mask_by_bits(&kept[..count], scores));
            (self.keys, self.values) = (keys, values);
        }
    }

    fn single<T: Number>(&mut self, queries: Rows<'_, T>, head: &Head<'_, T>, layout: &Layout, block: usize) {
        let scale = (queries.width as f32).sqrt().recip();
        let columns =
            layout.columns_of(block).filter(|(_, bits)| !is_worth_gathering(ones(bits), queries.count as u32));
        let Self { singles, mixed, tops: Lanes(tops), sums: Lanes(sums), keys: query, .. } = self;
        singles.clear();
        for (column, bits) in columns {
            singles.extend(bit_places(bits[0]).map(|row| Single { row, column: column as u32, weight: 0.0 }));
        }
        // Row by row, so that a query is widened once; a row's columns stay in order.
        singles.sort_unstable_by_key(|single| (single.row, single.column));
        vectorized!({
            for of_row in singles.chunk_by_mut(|one, next| one.row == next.row) {
                let row = of_row[0].row as usize;
                query.clear();
                query.extend(queries.row(row).iter().map(|number| number.wide()));
                let mixed = &mut mixed[row * queries.width..][..queries.width];
                let mut higher = tops[row];
                for single in of_row.iter_mut() {
                    single.weight = scale * dot(query, head.keys.row(single.column as usize));
                    higher = higher.max(single.weight);
                }
                let shrink = exp(tops[row] - higher);
                mixed.iter_mut().for_each(|number| *number *= shrink);
                sums[row] *= shrink;
                tops[row] = higher;
                for single in of_row {
                    let weight = exp(single.weight - higher);
                    sums[row] += weight;
                    let value = head.values.row(single.column as usize);
                    mixed.iter_mut().zip(value).for_each(|(mixed, value)| *mixed += weight * value.wide());
                }
            }
        });
    }

    /// The largest score of each query and the sum of its weights.
    pub fn tops(&self) -> impl Iterator<Item = (f32, f32)> {
        self.tops.0.into_iter().zip(self.sums.0)
    }

    /// Writes the rows of the block: what was mixed over the sum of the weights, and zeros where nothing was kept.
    pub fn put<T: Number>(&self, mut out: RowsMut<'_, T>) {
        for (row, mixed) in self.mixed.chunks(out.width).enumerate().take(out.count) {
            let share = if self.sums.0[row] > 0.0 { self.sums.0[row].recip() } else { 0.0 };
            let out = out.row(row).iter_mut().zip(mixed);
            out.for_each(|(out, mixed)| *out = T::narrow(mixed * share));
        }
    }
}

/// Leaves out what the rule of a layout does: the scores of keys from `from` on with the queries from `first` on.
fn mask_by_rule(layout: &Layout, first: usize, from: usize, scores: &mut [Lanes]) {
    let kept: [_; LANES] = std::array::from_fn(|lane| layout.rule.columns(first + lane, layout.length));
    let [begins, tos] = [0, 1].map(|at| kept.map(|(_, window)| window[at]));
    mask(from, scores, (kept.map(|(end, _)| end), begins, tos));
}

/// Leaves out scores of keys from `from` on. A query keeps keys up to one end, and from a beginning to another end.
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

fn copy_row<T: Number>(from: &[T], to: &mut Vec<f32>) {
    vectorized!(to.extend(from.iter().map(|number| number.wide())));
}

fn bit_places(bits: u64) -> impl Iterator<Item = u32> {
    let mut left = bits;
    std::iter::from_fn(move || {
        let bit = left.trailing_zeros();
        left &= left.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

/// Tiles of a block that follow one another, as ranges of keys, and whether the rule decides about some of them.
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
