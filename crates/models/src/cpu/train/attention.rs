//! Attention, backwards.

#![allow(unsafe_code, reason = "threads write heads of their own side by side; each block has its reason")]

use super::super::attention::{Heads, Inputs, Span, Strides, store_scores, store_weights, weigh_values};
use super::super::product::{Blocks, Factor, Put, multiply};
use super::super::rows::{Rows, RowsMut, Shared};
use super::super::vectors::{dot, exp, vectorized};
use super::super::{crew::Crew, number::Number};
use crate::{Marks, marks::stage_mark};

const TILE: (usize, usize) = (64, 256);

pub struct HeadGradients<'a, T> {
    pub numbers: &'a mut [T],
    pub strides: Strides,
}

/// Rows of a head among all gradients, to write. Heads of queries are counted first, then those of keys and of values.
///
/// # Safety
/// No two that live at the same time are of the same head.
unsafe fn head_rows<'a, T>(
    shared: &'a Shared<'_, T>,
    strides: Strides,
    span: &Span,
    (batch, head): (usize, usize),
) -> RowsMut<'a, T> {
    let first = batch * strides.batch + head * strides.head;
    // SAFETY: the caller sees to it.
    unsafe { shared.rows(first, span.queries, span.head_dim, strides.row) }
}

pub struct Given<'a, T> {
    pub inputs: Inputs<'a, T>,
    pub d_out: Heads<'a, T>,
}

/// Three steps, those of forward backwards, after the weights of forward were computed again. `weights` and `d_scores`
/// have a number for each pair.
pub fn naive_back<T: Number>(
    crew: &Crew,
    marks: &Marks,
    span: &Span,
    given: &Given<'_, T>,
    (weights, d_scores): (&mut [T], &mut [T]),
    d_heads: &mut HeadGradients<'_, T>,
) {
    let scale = (span.head_dim as f32).sqrt().recip();
    let weights = &mut weights[..span.scores()];
    {
        let _stage = stage_mark!(marks, Ops, "weights_again");
        store_weights(crew, &Marks::default(), span, &given.inputs, weights);
    }
    let weights = &*weights;
    let d_scores = &mut d_scores[..span.scores()];
    {
        let _stage = stage_mark!(marks, Ops, "weighted");
        sum_over_queries(crew, span, (weights, given.d_out), d_heads, span.heads + span.kv_heads);
        store_scores(crew, span, (given.d_out, given.inputs.values), d_scores, 1.0);
    }
    {
        let _stage = stage_mark!(marks, Ops, "softmax");
        softmax_back(crew, span, (weights, d_scores), scale);
    }
    let _stage = stage_mark!(marks, Ops, "scores");
    sum_over_queries(crew, span, (d_scores, given.inputs.queries), d_heads, span.heads);
    weigh_values(crew, span, given.inputs.keys, d_scores, (&mut *d_heads.numbers, d_heads.strides));
}

fn softmax_back<T: Number>(crew: &Crew, span: &Span, (weights, d_scores): (&[T], &mut [T]), scale: f32) {
    let (keys, touched) = (span.keys(), weights.len());
    let rows = (TILE.0 * TILE.1).div_ceil(keys);
    let parts = weights.chunks(rows * keys).zip(d_scores.chunks_mut(rows * keys)).enumerate();
    crew.each(touched, parts, |(part, (weights, d_scores))| {
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

/// For each key the sum of rows of queries, weighted by its scores, over all query heads that share it.
fn sum_over_queries<T: Number>(
    crew: &Crew,
    span: &Span,
    (scores, rows): (&[T], Heads<'_, T>),
    out: &mut HeadGradients<'_, T>,
    first_head: usize,
) {
    let touched = scores.len().saturating_mul(span.head_dim) / 16;
    let (keys, width, group) = (span.keys(), span.head_dim, span.heads / span.kv_heads);
    let (strides, shared) = (out.strides, Shared::new(out.numbers));
    let make = || (Blocks::default(), vec![0.0_f32; keys * width]);
    crew.each_with(touched, 0..span.batch * span.kv_heads, make, |(blocks, sums), at| {
        let (batch, kv_head) = (at / span.kv_heads, at % span.kv_heads);
        for in_group in 0..group {
            let head = kv_head * group + in_group;
            let first = (batch * span.heads + head) * span.queries * keys;
            let scores = Factor::transposed(Rows::dense(&scores[first..], span.queries, keys));
            let rows = Factor::plain(rows.of(span, batch, head));
            let put = Put { scale: 1.0, add: in_group > 0 };
            multiply(blocks, scores, rows, &mut RowsMut::dense(sums, keys, width), put);
        }
        // SAFETY: every part has a head of its own.
        let mut out = unsafe { head_rows(&shared, strides, span, (batch, first_head + kv_head)) };
        narrow_rows(sums, &mut out);
    });
}

fn narrow_rows<T: Number>(sums: &[f32], out: &mut RowsMut<'_, T>) {
    let width = out.width;
    for at in 0..out.count {
        let row = out.row(at).iter_mut().zip(&sums[at * width..][..width]);
        row.for_each(|(out, sum)| *out = T::narrow(*sum));
    }
}

pub struct Fused<'a, T> {
    pub out: Heads<'a, T>,
    /// The logarithm of the sum of powers of each row: `[batch, heads, queries]`.
    pub row_sums: &'a [f32],
}

/// One step that computes the weights again, tile by tile. A thread has all query heads that share keys.
pub fn fused_back<T: Number>(
    crew: &Crew,
    marks: &Marks,
    span: &Span,
    given: &Given<'_, T>,
    kept: &Fused<'_, T>,
    d_heads: &mut HeadGradients<'_, T>,
) {
    let _stage = stage_mark!(marks, Ops, "fused");
    let touched = span.scores().saturating_mul(span.head_dim) / 8;
    let (strides, shared) = (d_heads.strides, Shared::new(d_heads.numbers));
    crew.each_with(touched, 0..span.batch * span.kv_heads, TileBack::default, |tile, at| {
        let (batch, kv_head) = (at / span.kv_heads, at % span.kv_heads);
        tile.begin(span);
        let group = span.heads / span.kv_heads;
        for head in kv_head * group..(kv_head + 1) * group {
            // SAFETY: every part has query heads of its own.
            let mut d_queries = unsafe { head_rows(&shared, strides, span, (batch, head)) };
            tile.head(span, given, kept, (batch, head, kv_head), &mut d_queries);
        }
        let (key_head, value_head) = (span.heads + kv_head, span.heads + span.kv_heads + kv_head);
        // SAFETY: every part has a key and a value head of its own.
        narrow_rows(&tile.d_keys, &mut unsafe { head_rows(&shared, strides, span, (batch, key_head)) });
        // SAFETY: as above.
        narrow_rows(&tile.d_values, &mut unsafe { head_rows(&shared, strides, span, (batch, value_head)) });
    });
}

#[derive(Default)]
struct TileBack {
    blocks: Blocks,
    weights: Vec<f32>,
    d_scores: Vec<f32>,
    d_queries: Vec<f32>,
    d_keys: Vec<f32>,
    d_values: Vec<f32>,
    /// The sum of what a row gave times its gradient.
    means: Vec<f32>,
}

/// Bytes of what a thread of the fused step computes in, for sequences of this many tokens.
pub fn tile_bytes(tokens: usize, head_dim: usize) -> u64 {
    let (tokens, head_dim) = (tokens as u64, head_dim as u64);
    let tiles = (2 * TILE.0 * TILE.1) as u64 + head_dim.saturating_mul(TILE.0 as u64);
    tiles.saturating_add(tokens.saturating_mul(head_dim).saturating_mul(2)).saturating_mul(4)
}

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
    d_out: Rows<'a, T>,
}

impl TileBack {
    fn begin(&mut self, span: &Span) {
        for numbers in [&mut self.d_keys, &mut self.d_values] {
            numbers.clear();
            numbers.resize(span.keys() * span.head_dim, 0.0);
        }
    }

    fn head<T: Number>(
        &mut self,
        span: &Span,
        given: &Given<'_, T>,
        kept: &Fused<'_, T>,
        (batch, head, kv_head): (usize, usize, usize),
        d_queries: &mut RowsMut<'_, T>,
    ) {
        let width = span.head_dim;
        let rows = HeadRows {
            queries: given.inputs.queries.of(span, batch, head),
            keys: given.inputs.keys.of(span, batch, kv_head),
            values: given.inputs.values.of(span, batch, kv_head),
            d_out: given.d_out.of(span, batch, head),
        };
        let row_sums = &kept.row_sums[(batch * span.heads + head) * span.queries..][..span.queries];
        let out = kept.out.of(span, batch, head);
        for first in (0..span.queries).step_by(TILE.0) {
            let count = TILE.0.min(span.queries - first);
            self.means.clear();
            let mean = |at: usize| dot(out.row(first + at), rows.d_out.row(first + at));
            vectorized!(self.means.extend((0..count).map(mean)));
            self.d_queries.clear();
            self.d_queries.resize(count * width, 0.0);
            // Keys that the last row does not see are seen by none.
            let seen = first + count;
            for from in (0..seen).step_by(TILE.1) {
                let place = Place { first, count, from, keys: TILE.1.min(seen - from) };
                self.tile(width, &rows, &row_sums[first..][..count], place);
            }
            for at in 0..count {
                let row = d_queries.row(first + at).iter_mut().zip(&self.d_queries[at * width..][..width]);
                row.for_each(|(to, sum)| *to = T::narrow(*sum));
            }
        }
    }

    fn tile<T: Number>(&mut self, width: usize, rows: &HeadRows<'_, T>, row_sums: &[f32], place: Place) {
        let Place { first, count, from, keys } = place;
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
