//! Attention of the pairs that a layout keeps: tiles of queries and keys, and gathered columns, with the weights put right
//! as larger scores come. Scores are never stored, and what is left out is never looked at.

#![allow(unsafe_code, reason = "threads write rows of their own side by side; each block has its reason")]

use std::ops::Range;

use super::{
    attention::{Inputs, Span, Strides},
    crew::Crew,
    number::Number,
    product::{Blocks, Factor, Put, multiply},
    rows::{Rows, RowsMut, Shared},
    vectors::{dot, exp, largest, powers_from, vectorized},
};
use crate::{Marks, attention::Layout, marks::mark};

/// Keys that are worked on together at most: tiles that follow one another are one product.
const KEYS: usize = 256;

/// A gathered column is computed for every row of its block if at least one in so many keeps it, else row by row.
const WORTH_GATHERING: u32 = 8;

/// Bytes that a thread needs for blocks of so many rows and heads of so many numbers, beside what products need.
pub fn thread_bytes(rows: usize, head_dim: usize) -> u64 {
    let numbers = rows * (KEYS + head_dim + 2) + 2 * KEYS * head_dim;
    (4 * numbers + rows * size_of::<Single>() * KEYS) as u64
}

/// Pairs that are computed: those of tiles and of columns that are worth gathering for every query of their block.
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

/// Weighs the values of what a layout keeps. Queries and keys are as many as the layout has.
pub fn attend<T: Number>(
    crew: &Crew,
    marks: &Marks,
    span: &Span,
    layout: &Layout,
    inputs: &Inputs<'_, T>,
    (out, strides): (&mut [T], Strides),
) {
    let _stage = mark!(marks, Ops, "blocks");
    assert!(span.start == 0 && span.queries == layout.length, "the layout is of this length");
    let blocks = layout.blocks();
    let heads = span.batch * span.heads;
    let touched = usize::try_from(layout.executed()).unwrap_or(usize::MAX).saturating_mul(heads * span.head_dim) / 16;
    let out = Shared::new(out);
    crew.each_with(touched, 0..heads * blocks, Work::default, |work, at| {
        // The last blocks have most to do, where it is causal.
        let (of, block) = (at / blocks, blocks - 1 - at % blocks);
        let head = Head::of(span, inputs, of / span.heads, of % span.heads);
        work.attend(&head, layout, block);
        let first = block * layout.tiling.rows as usize;
        let place = of / span.heads * strides.batch + of % span.heads * strides.head + first * strides.row;
        // SAFETY: blocks and heads have no number in common, and each is done once.
        let out = unsafe { out.rows(place, work.tops.len(), span.head_dim, strides.row) };
        work.put(out);
    });
}

/// Queries, keys and values of one head of one sequence.
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

/// A pair that is computed alone.
struct Single {
    row: u32,
    column: u32,
    weight: f32,
}

/// What a thread keeps of a block of queries.
#[derive(Default)]
struct Work {
    blocks: Blocks,
    scores: Vec<f32>,
    /// Values weighted so far, not yet divided by the sum of the weights.
    mixed: Vec<f32>,
    /// The largest score and the sum of the weights so far, of each row.
    tops: Vec<(f32, f32)>,
    /// Keys and values that were gathered.
    keys: Vec<f32>,
    values: Vec<f32>,
    singles: Vec<Single>,
}

impl Work {
    /// Weighs the values for a block of queries.
    fn attend<T: Number>(&mut self, head: &Head<'_, T>, layout: &Layout, block: usize) {
        let rows = layout.tiling.rows as usize;
        let first = block * rows;
        let count = rows.min(layout.length - first);
        let width = head.queries.width;
        self.mixed.clear();
        self.mixed.resize(count * width, 0.0);
        self.tops.clear();
        self.tops.resize(count, (f32::NEG_INFINITY, 0.0));
        let queries = head.queries.part(first, count, 0, width);
        for (keys, is_partial) in runs(layout, block) {
            let parts = [head.keys, head.values].map(|rows| rows.part(keys.start, keys.len(), 0, width));
            let kept = |row: usize| match is_partial {
                true => within(layout.rule.columns(first + row, layout.length), &keys),
                false => [0..keys.len(), 0..0],
            };
            self.tile(queries, parts, |weighed| weigh_ranges(weighed, kept));
        }
        self.gathered(queries, head, layout, block);
        self.single(queries, head, layout, block);
    }

    /// Adds a tile: its scores are made, made weights, and the values weighted by them.
    fn tile<T: Number, K: Number>(
        &mut self,
        queries: Rows<'_, T>,
        [keys, values]: [Rows<'_, K>; 2],
        weigh: impl FnOnce(&mut Weighed<'_>),
    ) {
        let Self { blocks, scores, mixed, tops, .. } = self;
        let (count, width) = (keys.count, queries.width);
        scores.resize(queries.count * count, 0.0);
        let put = Put { scale: (width as f32).sqrt().recip(), add: false };
        let mut rows = RowsMut::dense(scores, queries.count, count);
        multiply(blocks, Factor::Plain(queries), Factor::Transposed(keys), &mut rows, put);
        weigh(&mut Weighed { scores, count, mixed, width, tops });
        let weights = Factor::Plain(Rows::dense(scores, queries.count, count));
        multiply(blocks, weights, Factor::Plain(values), &mut RowsMut::dense(mixed, queries.count, width), Put::ONTO);
    }

    /// Adds the columns that many rows keep, some at a time.
    fn gathered<T: Number>(&mut self, queries: Rows<'_, T>, head: &Head<'_, T>, layout: &Layout, block: usize) {
        let rows = queries.count as u32;
        let columns: Vec<_> =
            layout.columns_of(block).filter(|(_, bits)| is_worth_gathering(ones(bits), rows)).collect();
        for some in columns.chunks(KEYS) {
            let (mut keys, mut values) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.values));
            copy_rows(head.keys, some, &mut keys);
            copy_rows(head.values, some, &mut values);
            let width = queries.width;
            let both = [&keys, &values].map(|numbers| Rows::dense(numbers, some.len(), width));
            self.tile(queries, both, |weighed| weigh_bits(weighed, some));
            (self.keys, self.values) = (keys, values);
        }
    }

    /// Adds the columns that few rows keep, pair by pair.
    fn single<T: Number>(&mut self, queries: Rows<'_, T>, head: &Head<'_, T>, layout: &Layout, block: usize) {
        let count = queries.count as u32;
        let scale = (queries.width as f32).sqrt().recip();
        let columns = layout.columns_of(block).filter(|(_, bits)| !is_worth_gathering(ones(bits), count));
        let Self { singles, mixed, tops, keys: query, .. } = self;
        singles.clear();
        for (column, bits) in columns {
            singles.extend(bit_places(bits).map(|row| Single { row, column: column as u32, weight: 0.0 }));
        }
        // Row by row, so that a query is widened once; a row's columns stay in order.
        singles.sort_unstable_by_key(|single| (single.row, single.column));
        vectorized(
            #[inline(always)]
            || {
                for of_row in singles.chunk_by_mut(|one, next| one.row == next.row) {
                    let row = of_row[0].row as usize;
                    query.clear();
                    query.extend(queries.row(row).iter().map(|number| number.wide()));
                    let mixed = &mut mixed[row * queries.width..][..queries.width];
                    let mut higher = tops[row].0;
                    for single in of_row.iter_mut() {
                        single.weight = scale * dot(query, head.keys.row(single.column as usize));
                        higher = higher.max(single.weight);
                    }
                    let (top, sum) = &mut tops[row];
                    let shrink = exp(*top - higher);
                    mixed.iter_mut().for_each(|number| *number *= shrink);
                    *sum *= shrink;
                    *top = higher;
                    for single in of_row {
                        let weight = exp(single.weight - higher);
                        *sum += weight;
                        let value = head.values.row(single.column as usize);
                        mixed.iter_mut().zip(value).for_each(|(mixed, value)| *mixed += weight * value.wide());
                    }
                }
            },
        );
    }

    /// Writes the rows of the block: what was mixed over the sum of the weights, and zeros where nothing was kept.
    fn put<T: Number>(&self, mut out: RowsMut<'_, T>) {
        for (row, (mixed, (_, sum))) in self.mixed.chunks(out.width).zip(&self.tops).enumerate() {
            let share = if *sum > 0.0 { sum.recip() } else { 0.0 };
            let out = out.row(row).iter_mut().zip(mixed);
            out.for_each(|(out, mixed)| *out = T::narrow(mixed * share));
        }
    }
}

/// The rows of a tile: scores to be made weights, and what they change.
struct Weighed<'a> {
    scores: &'a mut [f32],
    /// Scores of a row.
    count: usize,
    mixed: &'a mut [f32],
    width: usize,
    tops: &'a mut [(f32, f32)],
}

/// Makes the scores in two ranges of each row weights, and all others zero.
fn weigh_ranges(weighed: &mut Weighed<'_>, kept: impl Fn(usize) -> [Range<usize>; 2]) {
    let Weighed { scores, count, mixed, width, tops } = weighed;
    let rows = scores.chunks_mut(*count).zip(mixed.chunks_mut(*width)).zip(tops.iter_mut());
    vectorized(
        #[inline(always)]
        || {
            for (row, ((scores, mixed), (top, sum))) in rows.enumerate() {
                let [first, second] = kept(row);
                let higher = top.max(largest(&scores[first.clone()])).max(largest(&scores[second.clone()]));
                scores[first.end..second.start.max(first.end)].fill(0.0);
                scores[second.end.max(first.end)..].fill(0.0);
                if higher == f32::NEG_INFINITY {
                    scores.fill(0.0);
                    continue;
                }
                let shrink = exp(*top - higher);
                *sum =
                    *sum * shrink + powers_from(&mut scores[first], higher) + powers_from(&mut scores[second], higher);
                *top = higher;
                mixed.iter_mut().for_each(|number| *number *= shrink);
            }
        },
    );
}

/// Makes the scores of the columns whose bit is set for a row weights, and all others zero.
fn weigh_bits(weighed: &mut Weighed<'_>, columns: &[(usize, &[u64])]) {
    let rows = weighed.tops.len();
    let is_kept = |row: usize, bits: &[u64]| bits[row / 64] >> (row % 64) & 1 == 1;
    let keeps_all = columns.iter().all(|(_, bits)| ones(bits) as usize == rows);
    if !keeps_all {
        for (row, scores) in weighed.scores.chunks_mut(weighed.count).enumerate() {
            let left_out = scores.iter_mut().zip(columns).filter(|(_, (_, bits))| !is_kept(row, bits));
            left_out.for_each(|(score, _)| *score = f32::NEG_INFINITY);
        }
    }
    let count = weighed.count;
    weigh_ranges(weighed, |_| [0..count, count..count]);
    if !keeps_all {
        for (row, scores) in weighed.scores.chunks_mut(count).enumerate() {
            let left_out = scores.iter_mut().zip(columns).filter(|(_, (_, bits))| !is_kept(row, bits));
            left_out.for_each(|(score, _)| *score = 0.0);
        }
    }
}

/// Copies the rows of gathered columns one behind the other.
fn copy_rows<T: Number>(from: Rows<'_, T>, columns: &[(usize, &[u64])], to: &mut Vec<f32>) {
    to.clear();
    vectorized(
        #[inline(always)]
        || columns.iter().for_each(|(column, _)| to.extend(from.row(*column).iter().map(|number| number.wide()))),
    );
}

/// The places of the bits that are set.
fn bit_places(bits: &[u64]) -> impl Iterator<Item = u32> {
    bits.iter().enumerate().flat_map(|(word, &bits)| {
        let mut left = bits;
        std::iter::from_fn(move || {
            let bit = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            (bit < 64).then_some(word as u32 * 64 + bit)
        })
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

/// The columns that a row keeps, counted from the first of some keys.
fn within((end, [from, to]): (usize, [usize; 2]), keys: &Range<usize>) -> [Range<usize>; 2] {
    let place = |column: usize| column.clamp(keys.start, keys.end) - keys.start;
    [0..place(end), place(from)..place(to)]
}
