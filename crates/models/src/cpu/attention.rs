//! Attention over keys and values in place: query heads that share them need no copies.

use super::blocks::{Work, mask};
use super::product::{Blocks, DEPTH, FEW, Factor, Put, multiply};
use super::rows::{Rows, RowsMut, Shared};
use super::tiles::LANES;
use super::vectors::{exp, largest, powers_from, softmax, vectorized};
use super::{crew::Crew, number::Number};
use crate::tensors::{product, sum};
use crate::{Config, Dtype, Marks, attention::Layout, marks::stage_mark};

const QUERIES: usize = 128;

/// Queries and keys of a tile of fused attention.
const TILE: (usize, usize) = (LANES, 256);

#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub batch: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub queries: usize,
    /// The position of the first query; keys begin at 0 and end with the last query.
    pub start: usize,
    pub is_causal: bool,
    /// The sliding window of causal attention, in keys up to the query's own.
    pub window: Option<usize>,
}

impl Span {
    pub fn new(config: &Config, batch: usize, queries: usize, start: usize) -> Self {
        let Config { heads, kv_heads, head_dim, .. } = *config;
        Self { batch, heads, kv_heads, head_dim, queries, start, is_causal: true, window: None }
    }

    pub fn keys(&self) -> usize {
        self.start + self.queries
    }

    pub fn rows(&self) -> usize {
        self.batch.saturating_mul(self.queries)
    }

    pub fn scores(&self) -> usize {
        (self.batch * self.queries).saturating_mul(self.heads.saturating_mul(self.keys()))
    }

    /// The number of blocks of queries. With one query per head, the heads that share keys form a block.
    fn blocks(&self, queries: usize) -> usize {
        match self.queries {
            1 => self.batch * self.kv_heads,
            _ => self.batch * self.heads * self.queries.div_ceil(queries),
        }
    }

    fn block(&self, queries: usize, at: usize) -> Block {
        if self.queries == 1 {
            let (batch, kv_head) = (at / self.kv_heads, at % self.kv_heads);
            let count = self.heads / self.kv_heads;
            return Block { batch, head: kv_head * count, kv_head, first: 0, count };
        }
        let along = self.queries.div_ceil(queries);
        let (batch, head, first) = (at / along / self.heads, at / along % self.heads, at % along * queries);
        let kv_head = head / (self.heads / self.kv_heads);
        Block { batch, head, kv_head, first, count: queries.min(self.queries - first) }
    }

    /// The first row of a block, counted over heads and sequences.
    fn first_row(&self, block: Block) -> usize {
        (block.batch * self.heads + block.head) * self.queries + block.first
    }

    fn seen(&self, block: Block, row: usize) -> usize {
        self.seen_by(if self.queries == 1 { 0 } else { block.first + row })
    }

    /// The number of keys before the window of a row.
    fn left_behind(&self, block: Block, row: usize) -> usize {
        self.window.map_or(0, |window| self.seen(block, row).saturating_sub(window))
    }

    fn seen_by(&self, query: usize) -> usize {
        if self.is_causal { self.start + query + 1 } else { self.keys() }
    }
}

/// Some queries of one head, or one of each head that shares keys.
#[derive(Debug, Clone, Copy)]
struct Block {
    batch: usize,
    head: usize,
    kv_head: usize,
    first: usize,
    count: usize,
}

#[derive(Debug, Clone, Copy)]
pub struct Strides {
    pub batch: usize,
    pub head: usize,
    pub row: usize,
}

impl Strides {
    /// Strides of `[batch, queries, heads, head_dim]`.
    pub fn by_token(queries: usize, heads: usize, head_dim: usize) -> Self {
        let row = heads * head_dim;
        Self { batch: queries * row, head: head_dim, row }
    }

    /// The offset and the stride of the rows of a block.
    fn block(&self, span: &Span, block: Block) -> (usize, usize) {
        let first = block.batch * self.batch + block.head * self.head + block.first * self.row;
        (first, if span.queries == 1 { self.head } else { self.row })
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Heads<'a, T> {
    pub numbers: &'a [T],
    pub strides: Strides,
}

impl<'a, T> Heads<'a, T> {
    fn queries(&self, span: &Span, block: Block) -> Rows<'a, T> {
        let (first, stride) = self.strides.block(span, block);
        Rows::new(&self.numbers[first..], block.count, span.head_dim, stride)
    }

    pub fn of(&self, span: &Span, batch: usize, head: usize) -> Rows<'a, T> {
        let first = batch * self.strides.batch + head * self.strides.head;
        Rows::new(&self.numbers[first..], span.queries, span.head_dim, self.strides.row)
    }

    fn keys(&self, span: &Span, block: Block) -> Rows<'a, T> {
        let first = block.batch * self.strides.batch + block.kv_head * self.strides.head;
        Rows::new(&self.numbers[first..], span.keys(), span.head_dim, self.strides.row)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a, T> {
    pub queries: Heads<'a, T>,
    pub keys: Heads<'a, T>,
    pub values: Heads<'a, T>,
}

impl<'a, T> Inputs<'a, T> {
    /// Queries, keys and values of packed projections, `[batch, queries, heads + 2 * kv_heads, head_dim]`.
    pub fn packed(span: &Span, qkv: &'a [T]) -> Self {
        let Span { heads, kv_heads, head_dim, queries, .. } = *span;
        let strides = Strides::by_token(queries, heads + 2 * kv_heads, head_dim);
        let from = |head: usize| Heads { numbers: &qkv[head * head_dim..], strides };
        Self { queries: from(0), keys: from(heads), values: from(heads + kv_heads) }
    }
}

/// Attention over some inputs.
#[derive(Clone, Copy)]
pub struct Attention<'a, T> {
    pub crew: &'a Crew,
    pub marks: &'a Marks,
    pub span: Span,
    pub inputs: Inputs<'a, T>,
}

impl<T: Number> Attention<'_, T> {
    /// Naive attention: stores the scores of all pairs, applies softmax, and multiplies with the values.
    pub fn naive(&self, scores: &mut [T], out: (&mut [T], Strides)) {
        let scores = &mut scores[..self.span.scores()];
        self.store_weights(scores);
        let _stage = stage_mark!(self.marks, Ops, "weighted");
        self.weigh(self.inputs.values, scores, out);
    }

    pub fn store_weights(&self, scores: &mut [T]) {
        let span = &self.span;
        {
            let _stage = stage_mark!(self.marks, Ops, "scores");
            self.store_scores([self.inputs.queries, self.inputs.keys], scores, (span.head_dim as f32).sqrt().recip());
        }
        let _stage = stage_mark!(self.marks, Ops, "softmax");
        let (keys, queries) = (span.keys(), span.queries);
        let rows = (TILE.0 * TILE.1).div_ceil(keys);
        self.crew.each(scores.len(), scores.chunks_mut(rows * keys).enumerate(), |(at, scores)| {
            vectorized!({
                for (row, scores) in scores.chunks_mut(keys).enumerate() {
                    let seen = span.seen_by((at * rows + row) % queries);
                    let first = span.window.map_or(0, |window| seen.saturating_sub(window));
                    scores[..first].fill(T::default());
                    softmax(&mut scores[first..seen]);
                    scores[seen..].fill(T::default());
                }
            });
        });
    }

    #[allow(unsafe_code)]
    pub fn store_scores(&self, [queries, keys]: [Heads<'_, T>; 2], scores: &mut [T], scale: f32) {
        let (span, put) = (&self.span, Put { scale, add: false });
        let touched = scores.len().saturating_mul(span.head_dim) / 16;
        let scores = Shared::new(scores);
        self.crew.each_with(touched, 0..span.blocks(QUERIES), Blocks::default, |blocks, at| {
            let block = span.block(QUERIES, at);
            let (queries, keys) = (queries.queries(span, block), keys.keys(span, block));
            let (first, keys_of_row) = (span.first_row(block), span.keys());
            // SAFETY: blocks share no row, and each is done once.
            let mut scores = unsafe { scores.rows(first * keys_of_row, block.count, keys_of_row, keys_of_row) };
            multiply(blocks, Factor::plain(queries), Factor::transposed(keys), &mut scores, put);
        });
    }

    /// Multiplies stored weights with values.
    pub fn weigh(&self, values: Heads<'_, T>, weights: &[T], (out, strides): (&mut [T], Strides)) {
        let (span, keys) = (&self.span, self.span.keys());
        let touched = weights.len().saturating_mul(span.head_dim) / 16;
        let out = Shared::new(out);
        self.crew.each_with(touched, 0..span.blocks(QUERIES), Blocks::default, |blocks, at| {
            let block = span.block(QUERIES, at);
            let weights = Factor::plain(Rows::dense(&weights[span.first_row(block) * keys..], block.count, keys));
            let values = Factor::plain(values.keys(span, block));
            multiply(blocks, weights, values, &mut out_rows(&out, strides, span, block), Put::OVER);
        });
    }

    /// Fused attention, which never stores the scores: online softmax over tiles of queries and keys, or those of a layout.
    pub fn fused(&self, layout: Option<&Layout>, out: (&mut [T], Strides)) {
        let _stage = match layout {
            Some(_) => stage_mark!(self.marks, Ops, "blocks"),
            None => stage_mark!(self.marks, Ops, "fused"),
        };
        self.fused_with(layout, out, |_, _| ());
    }

    /// As [`Attention::fused`]. `keep` gets the largest score and the sum of the weights of some rows: the first row,
    /// counted over heads and sequences, and those that follow.
    pub fn fused_with(
        &self,
        layout: Option<&Layout>,
        (out, strides): (&mut [T], Strides),
        keep: impl Fn(usize, &[(f32, f32)]) + Sync,
    ) {
        let Self { span, inputs, .. } = self;
        let pairs = match layout {
            Some(layout) => {
                assert!(span.start == 0 && span.queries == layout.length, "the layout is of this length");
                assert!(layout.tiling.rows as usize == LANES, "the layout is for the CPU");
                let executed = usize::try_from(layout.executed()).unwrap_or(usize::MAX);
                executed.saturating_mul(span.batch * span.heads)
            }
            None => span.scores(),
        };
        let touched = pairs.saturating_mul(span.head_dim) / 16;
        let out = Shared::new(out);
        // The last blocks of causal attention have the most keys.
        self.crew.each_with(touched, (0..span.blocks(TILE.0)).rev(), Tile::default, |tile, at| {
            let block = span.block(TILE.0, at);
            let mut out = out_rows(&out, strides, span, block);
            if let Some(layout) = layout {
                let of_head = [inputs.keys, inputs.values].map(|heads| heads.keys(span, block));
                tile.lanes.attend(inputs.queries.queries(span, block), of_head, layout, block.first / LANES);
                return tile.lanes.put(out);
            }
            if block.count > FEW {
                tile.attend_lanes(self, block);
                keep(span.first_row(block), &tile.tops);
                return tile.lanes.put(out);
            }
            tile.attend(self, block);
            keep(span.first_row(block), &tile.tops);
            for (row, (mixed, (_, sum))) in tile.mixed.chunks(span.head_dim).zip(&tile.tops).enumerate() {
                let out = out.row(row).iter_mut().zip(mixed);
                out.for_each(|(out, mixed)| *out = T::narrow(mixed / sum));
            }
        });
    }
}

/// Workspace bytes per thread for products with stored scores: widened factors, and sums.
pub fn naive_bytes(dtype: Dtype, keys: usize, head_dim: usize) -> u64 {
    let (longest, is_widened) = (keys.max(head_dim), dtype != Dtype::F32);
    let widened = sum([product(&[QUERIES, longest.min(DEPTH), 4]), product(&[keys, head_dim, 4])]);
    if is_widened { product(&[QUERIES, longest, 4]).saturating_add(widened) } else { 0 }
}

#[allow(unsafe_code)]
fn out_rows<'a, T>(out: &'a Shared<'_, T>, strides: Strides, span: &Span, block: Block) -> RowsMut<'a, T> {
    let (first, stride) = strides.block(span, block);
    // SAFETY: blocks share no row, and each is requested once.
    unsafe { out.rows(first, block.count, span.head_dim, stride) }
}

#[derive(Default)]
struct Tile {
    /// For more than a few queries.
    lanes: Work,
    blocks: Blocks,
    scores: Vec<f32>,
    /// The weighted sum of values so far, not yet divided by the sum of the weights.
    mixed: Vec<f32>,
    /// The largest score and the sum of the weights of each row so far.
    tops: Vec<(f32, f32)>,
}

impl Tile {
    fn attend_lanes<T: Number>(&mut self, Attention { span, inputs, .. }: &Attention<'_, T>, block: Block) {
        let of_head = [inputs.keys, inputs.values].map(|heads| heads.keys(span, block));
        // Lanes without a query have the bounds of the last one.
        let rows: [usize; LANES] = std::array::from_fn(|lane| lane.min(block.count - 1));
        let (begins, ends) = (rows.map(|row| span.left_behind(block, row)), rows.map(|row| span.seen(block, row)));
        self.lanes.begin(inputs.queries.queries(span, block));
        for from in (begins[0]..ends[LANES - 1]).step_by(TILE.1) {
            let count = TILE.1.min(ends[LANES - 1] - from);
            self.lanes.tile(of_head.map(|rows| rows.part(from, count, 0, span.head_dim)), |scores| {
                if ends[0] < from + count || begins[LANES - 1] > from {
                    mask(from, scores, ([0; LANES], begins, ends));
                }
            });
        }
        self.tops.clear();
        self.tops.extend(self.lanes.tops().take(block.count));
    }

    fn attend<T: Number>(&mut self, Attention { span, inputs, .. }: &Attention<'_, T>, block: Block) {
        let width = span.head_dim;
        let queries = inputs.queries.queries(span, block);
        let [keys, values] = [inputs.keys, inputs.values].map(|heads| heads.keys(span, block));
        let put = Put { scale: (width as f32).sqrt().recip(), add: false };
        self.mixed.clear();
        self.mixed.resize(block.count * width, 0.0);
        self.tops.clear();
        self.tops.resize(block.count, (f32::NEG_INFINITY, 0.0));
        // No row sees keys that the last one does not see.
        let seen = span.seen(block, block.count - 1);
        for from in (span.left_behind(block, 0)..seen).step_by(TILE.1) {
            let count = TILE.1.min(seen - from);
            self.scores.resize(block.count * count, 0.0);
            let mut scores = RowsMut::dense(&mut self.scores, block.count, count);
            let keys = Factor::transposed(keys.part(from, count, 0, width));
            multiply(&mut self.blocks, Factor::plain(queries), keys, &mut scores, put);
            self.weigh(span, block, from, count);
            let weights = Factor::plain(Rows::dense(&self.scores, block.count, count));
            let mut mixed = RowsMut::dense(&mut self.mixed, block.count, width);
            let values = Factor::plain(values.part(from, count, 0, width));
            multiply(&mut self.blocks, weights, values, &mut mixed, Put::ONTO);
        }
    }

    /// Turns the scores of a tile into weights, and rescales the sums so far to the new largest score.
    fn weigh(&mut self, span: &Span, block: Block, from: usize, count: usize) {
        let Self { scores, mixed, tops, .. } = self;
        let rows = scores.chunks_mut(count).zip(mixed.chunks_mut(span.head_dim)).zip(tops);
        vectorized!({
            for (row, ((scores, mixed), (top, sum))) in rows.enumerate() {
                let seen = span.seen(block, row).saturating_sub(from).min(count);
                let left_behind = span.left_behind(block, row).saturating_sub(from).min(seen);
                scores[..left_behind].fill(0.0);
                scores[seen..].fill(0.0);
                let scores = &mut scores[left_behind..seen];
                if scores.is_empty() {
                    continue;
                }
                let higher = top.max(largest(scores));
                let shrink = exp(*top - higher);
                *sum = *sum * shrink + powers_from(scores, higher);
                *top = higher;
                mixed.iter_mut().for_each(|number| *number *= shrink);
            }
        });
    }
}
