//! The backward pass of attention.

#![allow(unsafe_code, reason = "threads write disjoint heads; each block has its reason")]

use super::super::attention::{Attention, Heads, Span, Strides};
use super::super::number::Number;
use super::super::product::{Blocks, Factor, Put, multiply};
use super::super::rows::{Rows, RowsMut, Shared};
use super::super::vectors::{dot, exp, vectorized};
use crate::{Marks, marks::stage_mark};

const TILE: (usize, usize) = (64, 256);

/// Gradients of the packed heads of queries, keys and values, shared by threads.
struct HeadGradients<'s, 'a, T> {
    shared: &'s Shared<'a, T>,
    strides: Strides,
    span: Span,
}

impl<'s, T> HeadGradients<'s, '_, T> {
    /// The rows of a head: first the query heads, then those of keys and of values.
    ///
    /// # Safety
    /// Rows that live at the same time are of different heads.
    unsafe fn head(&self, batch: usize, head: usize) -> RowsMut<'s, T> {
        let first = batch * self.strides.batch + head * self.strides.head;
        // SAFETY: as the caller ensures.
        unsafe { self.shared.rows(first, self.span.queries, self.span.head_dim, self.strides.row) }
    }
}

impl<T: Number> Attention<'_, T> {
    /// The backward pass of naive attention, which recomputes the weights. `weights` and `d_scores` have an element per
    /// pair.
    pub fn naive_back(
        &self,
        d_out: Heads<'_, T>,
        (weights, d_scores): (&mut [T], &mut [T]),
        (d_heads, strides): (&mut [T], Strides),
    ) {
        let Self { marks, span, inputs, .. } = self;
        let (weights, d_scores) = (&mut weights[..span.scores()], &mut d_scores[..span.scores()]);
        {
            let _stage = stage_mark!(marks, Ops, "weights_again");
            Attention { marks: &Marks::default(), ..*self }.store_weights(weights);
        }
        let weights = &*weights;
        {
            let _stage = stage_mark!(marks, Ops, "weighted");
            self.sum_over_queries(weights, d_out, (&mut *d_heads, strides), span.heads + span.kv_heads);
            self.store_scores([d_out, inputs.values], d_scores, 1.0);
        }
        {
            let _stage = stage_mark!(marks, Ops, "softmax");
            self.softmax_back(weights, d_scores);
        }
        let _stage = stage_mark!(marks, Ops, "scores");
        self.sum_over_queries(d_scores, inputs.queries, (&mut *d_heads, strides), span.heads);
        self.weigh(inputs.keys, d_scores, (d_heads, strides));
    }

    fn softmax_back(&self, weights: &[T], d_scores: &mut [T]) {
        let (span, keys, scale) = (&self.span, self.span.keys(), (self.span.head_dim as f32).sqrt().recip());
        let rows = (TILE.0 * TILE.1).div_ceil(keys);
        let parts = weights.chunks(rows * keys).zip(d_scores.chunks_mut(rows * keys)).enumerate();
        self.crew.each(weights.len(), parts, |(part, (weights, d_scores))| {
            vectorized!({
                for (row, (weights, d_scores)) in weights.chunks(keys).zip(d_scores.chunks_mut(keys)).enumerate() {
                    let seen = span.start + (part * rows + row) % span.queries + 1;
                    let (d_scores, unseen) = d_scores.split_at_mut(seen);
                    unseen.fill(T::default());
                    let mean = dot(&weights[..seen], d_scores);
                    for (d_score, weight) in d_scores.iter_mut().zip(weights) {
                        *d_score = T::narrow(weight.wide() * (d_score.wide() - mean) * scale);
                    }
                }
            });
        });
    }

    /// For each key, the sum of query rows weighted by its scores, over all query heads that share it.
    fn sum_over_queries(
        &self,
        scores: &[T],
        rows: Heads<'_, T>,
        (out, strides): (&mut [T], Strides),
        first_head: usize,
    ) {
        let span = self.span;
        let touched = scores.len().saturating_mul(span.head_dim) / 16;
        let (keys, width, group) = (span.keys(), span.head_dim, span.heads / span.kv_heads);
        let out = HeadGradients { shared: &Shared::new(out), strides, span };
        let make = || (Blocks::default(), vec![0.0_f32; keys * width]);
        self.crew.each_with(touched, 0..span.batch * span.kv_heads, make, |(blocks, sums), at| {
            let (batch, kv_head) = (at / span.kv_heads, at % span.kv_heads);
            for in_group in 0..group {
                let head = kv_head * group + in_group;
                let first = (batch * span.heads + head) * span.queries * keys;
                let scores = Factor::transposed(Rows::dense(&scores[first..], span.queries, keys));
                let put = Put { scale: 1.0, add: in_group > 0 };
                let rows = Factor::plain(rows.of(&span, batch, head));
                multiply(blocks, scores, rows, &mut RowsMut::dense(sums, keys, width), put);
            }
            // SAFETY: each part has its own head.
            narrow_rows(sums, 0, &mut unsafe { out.head(batch, first_head + kv_head) });
        });
    }

    /// The backward pass of fused attention, which recomputes the weights tile by tile. A thread has all query heads that
    /// share keys. `row_sums` has the log-sum-exp of each row, `[batch, heads, queries]`.
    pub fn fused_back(
        &self,
        d_out: Heads<'_, T>,
        out: Heads<'_, T>,
        row_sums: &[f32],
        (d_heads, strides): (&mut [T], Strides),
    ) {
        let _stage = stage_mark!(self.marks, Ops, "fused");
        let (span, inputs) = (self.span, &self.inputs);
        let touched = span.scores().saturating_mul(span.head_dim) / 8;
        let d_heads = HeadGradients { shared: &Shared::new(d_heads), strides, span };
        self.crew.each_with(touched, 0..span.batch * span.kv_heads, TileBack::default, |tile, at| {
            let (batch, kv_head) = (at / span.kv_heads, at % span.kv_heads);
            tile.begin(&span);
            let group = span.heads / span.kv_heads;
            for head in kv_head * group..(kv_head + 1) * group {
                let rows = HeadRows {
                    queries: inputs.queries.of(&span, batch, head),
                    keys: inputs.keys.of(&span, batch, kv_head),
                    values: inputs.values.of(&span, batch, kv_head),
                    out: out.of(&span, batch, head),
                    d_out: d_out.of(&span, batch, head),
                    row_sums: &row_sums[(batch * span.heads + head) * span.queries..][..span.queries],
                };
                // SAFETY: each part has its own query heads.
                tile.head(&rows, &mut unsafe { d_heads.head(batch, head) });
            }
            let (key_head, value_head) = (span.heads + kv_head, span.heads + span.kv_heads + kv_head);
            // SAFETY: each part has its own key and value heads.
            narrow_rows(&tile.d_keys, 0, &mut unsafe { d_heads.head(batch, key_head) });
            // SAFETY: as above.
            narrow_rows(&tile.d_values, 0, &mut unsafe { d_heads.head(batch, value_head) });
        });
    }
}

/// Rounds sums into rows, from `first` on.
fn narrow_rows<T: Number>(sums: &[f32], first: usize, out: &mut RowsMut<'_, T>) {
    for (at, sums) in (first..).zip(sums.chunks(out.width)) {
        out.row(at).iter_mut().zip(sums).for_each(|(out, sum)| *out = T::narrow(*sum));
    }
}

#[derive(Default)]
struct TileBack {
    blocks: Blocks,
    weights: Vec<f32>,
    d_scores: Vec<f32>,
    d_queries: Vec<f32>,
    d_keys: Vec<f32>,
    d_values: Vec<f32>,
    /// The dot product of each output row with its gradient.
    means: Vec<f32>,
}

/// Workspace bytes of a thread of fused attention, for sequences of this many tokens.
pub fn tile_bytes(tokens: usize, head_dim: usize) -> u64 {
    let (tokens, head_dim) = (tokens as u64, head_dim as u64);
    let tiles = (2 * TILE.0 * TILE.1) as u64 + head_dim.saturating_mul(TILE.0 as u64);
    tiles.saturating_add(tokens.saturating_mul(head_dim).saturating_mul(2)).saturating_mul(4)
}

/// The queries and keys of a tile.
#[derive(Clone, Copy)]
struct Place {
    first: usize,
    count: usize,
    from: usize,
    keys: usize,
}

struct HeadRows<'a, T> {
    queries: Rows<'a, T>,
    keys: Rows<'a, T>,
    values: Rows<'a, T>,
    out: Rows<'a, T>,
    d_out: Rows<'a, T>,
    row_sums: &'a [f32],
}

impl TileBack {
    fn begin(&mut self, span: &Span) {
        for numbers in [&mut self.d_keys, &mut self.d_values] {
            numbers.clear();
            numbers.resize(span.keys() * span.head_dim, 0.0);
        }
    }

    fn head<T: Number>(&mut self, rows: &HeadRows<'_, T>, d_queries: &mut RowsMut<'_, T>) {
        let (queries, width) = (rows.queries.count, rows.queries.width);
        for first in (0..queries).step_by(TILE.0) {
            let count = TILE.0.min(queries - first);
            self.means.clear();
            let mean = |at: usize| dot(rows.out.row(first + at), rows.d_out.row(first + at));
            vectorized!(self.means.extend((0..count).map(mean)));
            self.d_queries.clear();
            self.d_queries.resize(count * width, 0.0);
            // No row sees keys that the last one does not see.
            let seen = first + count;
            for from in (0..seen).step_by(TILE.1) {
                self.tile(rows, Place { first, count, from, keys: TILE.1.min(seen - from) });
            }
            narrow_rows(&self.d_queries, first, d_queries);
        }
    }

    fn tile<T: Number>(&mut self, rows: &HeadRows<'_, T>, place: Place) {
        let Place { first, count, from, keys } = place;
        let (width, row_sums) = (rows.queries.width, &rows.row_sums[first..][..count]);
        let scale = (width as f32).sqrt().recip();
        let Self { blocks, weights, d_scores, d_queries, d_keys, d_values, means } = self;
        let queries = rows.queries.part(first, count, 0, width);
        let d_out = rows.d_out.part(first, count, 0, width);
        let (key_rows, values) = (rows.keys.part(from, keys, 0, width), rows.values.part(from, keys, 0, width));
        weights.resize(count * keys, 0.0);
        d_scores.resize(count * keys, 0.0);
        let put = Put { scale, add: false };
        let scores = &mut RowsMut::dense(weights, count, keys);
        multiply(blocks, Factor::plain(queries), Factor::transposed(key_rows), scores, put);
        let d_weights = &mut RowsMut::dense(d_scores, count, keys);
        multiply(blocks, Factor::plain(d_out), Factor::transposed(values), d_weights, Put::OVER);
        weigh_back((weights, d_scores), row_sums, means, place, scale);
        let (weights, d_scores) = (Rows::dense(weights, count, keys), Rows::dense(d_scores, count, keys));
        let stretch = from * width..(from + keys) * width;
        let d_values = &mut RowsMut::dense(&mut d_values[stretch.clone()], keys, width);
        multiply(blocks, Factor::transposed(weights), Factor::plain(d_out), d_values, Put::ONTO);
        let d_keys = &mut RowsMut::dense(&mut d_keys[stretch], keys, width);
        multiply(blocks, Factor::transposed(d_scores), Factor::plain(queries), d_keys, Put::ONTO);
        let d_queries = &mut RowsMut::dense(d_queries, count, width);
        multiply(blocks, Factor::plain(d_scores), Factor::plain(key_rows), d_queries, Put::ONTO);
    }
}

fn weigh_back((scores, d_scores): (&mut [f32], &mut [f32]), row_sums: &[f32], means: &[f32], place: Place, scale: f32) {
    let rows = scores.chunks_mut(place.keys).zip(d_scores.chunks_mut(place.keys)).zip(row_sums.iter().zip(means));
    vectorized!({
        for (row, ((scores, d_scores), (row_sum, mean))) in rows.enumerate() {
            let seen = (place.first + row + 1).saturating_sub(place.from).min(place.keys);
            for (score, d_score) in scores[..seen].iter_mut().zip(&mut d_scores[..seen]) {
                *score = exp(*score - row_sum);
                *d_score = *score * (*d_score - mean) * scale;
            }
            scores[seen..].fill(0.0);
            d_scores[seen..].fill(0.0);
        }
    });
}
