//! The steps of a pass between its products, row by row.

use super::vectors::{self, dot, gelu_tanh, silu, vectorized};
use super::{attention::Span, crew::Crew, number::Number};
use crate::{Activation, Config, RopeLayout, rope::RopeTable};

const PART: usize = 1 << 14;

pub fn rows_of_part(width: usize) -> usize {
    (PART / width.max(1)).max(1)
}

/// Runs a body over every row, on all threads and with the widest vectors: `(numbers, width)` for each list of rows.
/// `cost` is how many numbers are touched.
macro_rules! each_row {
    ($crew:expr, $cost:expr, ($rows:expr, $width:expr), |$row:ident| $body:expr) => {{
        let (width, cost) = ($width, $cost);
        let parts = $rows.chunks_mut($crate::cpu::steps::rows_of_part(width) * width);
        $crew.each(cost, parts, |part| {
            $crate::cpu::vectors::vectorized!(for $row in part.chunks_mut(width) {
                $body
            });
        });
    }};
    ($crew:expr, $cost:expr, ($from:expr, $width:expr), ($to:expr, $to_width:expr), |$row:ident, $out:ident| $body:expr) => {{
        let (width, to_width) = ($width, $to_width);
        let rows = $crate::cpu::steps::rows_of_part(width);
        let parts = $from.chunks(rows * width).zip($to.chunks_mut(rows * to_width));
        $crew.each($cost, parts, |(from, to)| {
            $crate::cpu::vectors::vectorized!(for ($row, $out) in from.chunks(width).zip(to.chunks_mut(to_width)) {
                $body
            });
        });
    }};
}

pub(crate) use each_row;

pub fn embed<T: Number>(crew: &Crew, ids: &[u32], embedding: &[T], width: usize, out: &mut [T]) {
    let rows = rows_of_part(width);
    let parts = ids.chunks(rows).zip(out[..ids.len() * width].chunks_mut(rows * width));
    crew.each(ids.len() * width, parts, |(ids, out)| {
        for (id, out) in ids.iter().zip(out.chunks_mut(width)) {
            out.copy_from_slice(&embedding[*id as usize * width..][..width]);
        }
    });
}

/// Multiplies numbers with a factor, which is rounded to their dtype first, as `transformers` does.
pub fn scale<T: Number>(crew: &Crew, factor: f32, numbers: &mut [T]) {
    let factor = T::narrow(factor).wide();
    crew.each(numbers.len(), numbers.chunks_mut(PART), |part| {
        part.iter_mut().for_each(|number| *number = T::narrow(number.wide() * factor));
    });
}

#[derive(Clone, Copy)]
pub struct Norm<'a> {
    pub weight: &'a [f32],
    pub eps: f32,
}

impl Norm<'_> {
    /// Norms rows of one matrix into another. Of `every` rows the last one is taken.
    pub fn rows<T: Number>(self, crew: &Crew, every: usize, from: &[T], out: &mut [T]) {
        let (width, out) = (self.weight.len(), &mut out[..from.len() / every]);
        each_row!(crew, from.len() / every, (from, every * width), (out, width), |from, out| {
            let from = &from[(every - 1) * width..];
            let factor = self.factor(from);
            for ((out, from), weight) in out.iter_mut().zip(from).zip(self.weight) {
                *out = T::narrow(from.wide() * factor * weight);
            }
        });
    }

    /// Adds the norm of each row of one matrix to the row of another.
    pub fn add_rows<T: Number>(self, crew: &Crew, from: &[T], out: &mut [T]) {
        let (width, out) = (self.weight.len(), &mut out[..from.len()]);
        each_row!(crew, from.len(), (from, width), (out, width), |from, out| {
            let factor = self.factor(from);
            for ((out, from), weight) in out.iter_mut().zip(from).zip(self.weight) {
                *out = T::narrow(out.wide() + from.wide() * factor * weight);
            }
        });
    }

    #[inline(always)]
    fn in_place<T: Number>(self, row: &mut [T]) {
        let factor = self.factor(row);
        row.iter_mut()
            .zip(self.weight)
            .for_each(|(number, weight)| *number = T::narrow(number.wide() * factor * weight));
    }

    #[inline(always)]
    pub fn factor<T: Number>(self, row: &[T]) -> f32 {
        1.0 / (dot(row, row) / row.len() as f32 + self.eps).sqrt()
    }
}

/// What is done to queries, keys and values after they were projected: bias, norm by head, rotation.
pub struct Positions<'a> {
    pub config: &'a Config,
    pub table: &'a RopeTable,
    pub bias: Option<&'a [f32]>,
    pub query_norm: Option<Norm<'a>>,
    pub key_norm: Option<Norm<'a>>,
    /// Tokens of each sequence, and the position of the first.
    pub tokens: usize,
    pub start: usize,
}

impl Positions<'_> {
    pub fn enter<T: Number>(&self, crew: &Crew, qkv: &mut [T]) {
        let Config { heads, kv_heads, head_dim, .. } = *self.config;
        let width = (heads + 2 * kv_heads) * head_dim;
        let rows = rows_of_part(width);
        crew.each(qkv.len(), qkv.chunks_mut(rows * width).enumerate(), |(part, qkv)| {
            vectorized!({
                for (at, row) in qkv.chunks_mut(width).enumerate() {
                    self.enter_row(row, self.start + (part * rows + at) % self.tokens);
                }
            });
        });
    }

    #[inline(always)]
    fn enter_row<T: Number>(&self, row: &mut [T], position: usize) {
        if let Some(bias) = self.bias {
            add_to(row, bias);
        }
        let Config { heads, kv_heads, head_dim, .. } = *self.config;
        let (cosines, sines) = self.table.at(position);
        for (head, row) in row.chunks_mut(head_dim).take(heads + kv_heads).enumerate() {
            if let Some(norm) = if head < heads { self.query_norm } else { self.key_norm } {
                norm.in_place(row);
            }
            rotate(self.config.rope.layout, row, (cosines, sines), 1.0);
        }
    }
}

/// Rotates the pairs of a head: forward by a direction of 1, back by -1.
#[inline(always)]
pub fn rotate<T: Number>(layout: RopeLayout, row: &mut [T], (cosines, sines): (&[f32], &[f32]), direction: f32) {
    let angles = cosines.iter().zip(sines);
    let one = |a: &mut T, b: &mut T, cosine: f32, sine: f32| {
        let (x, y, sine) = (a.wide(), b.wide(), sine * direction);
        (*a, *b) = (T::narrow(x * cosine - y * sine), T::narrow(y * cosine + x * sine));
    };
    match layout {
        RopeLayout::Halves => {
            let (first, second) = row.split_at_mut(cosines.len());
            first.iter_mut().zip(second).zip(angles).for_each(|((a, b), (cosine, sine))| one(a, b, *cosine, *sine));
        }
        RopeLayout::Pairs => {
            let (pairs, _) = row.as_chunks_mut::<2>();
            pairs.iter_mut().zip(angles).for_each(|([a, b], (cosine, sine))| one(a, b, *cosine, *sine));
        }
    }
}

/// Copies keys and values, which lie in rows with queries, to the positions of a cache from `start` on. The cache has a
/// stretch of `capacity` positions for each head of each sequence.
pub fn store<T: Number>(crew: &Crew, span: &Span, qkv: &[T], capacity: usize, (keys, values): (&mut [T], &mut [T])) {
    let Span { heads, kv_heads, head_dim, queries, start, .. } = *span;
    let width = (heads + 2 * kv_heads) * head_dim;
    let parts = keys.chunks_mut(capacity * head_dim).zip(values.chunks_mut(capacity * head_dim)).enumerate();
    crew.each(qkv.len() / 2, parts, |(at, (keys, values))| {
        let (batch, kv_head) = (at / kv_heads, at % kv_heads);
        let rows = qkv[batch * queries * width..].chunks(width).take(queries);
        for (at, row) in rows.enumerate() {
            let to = (start + at) * head_dim..(start + at + 1) * head_dim;
            keys[to.clone()].copy_from_slice(&row[(heads + kv_head) * head_dim..][..head_dim]);
            values[to].copy_from_slice(&row[(heads + kv_heads + kv_head) * head_dim..][..head_dim]);
        }
    });
}

/// Makes the first half of each row `activation(first) * second`, after a bias was added to both.
pub fn gate<T: Number>(crew: &Crew, activation: Activation, width: usize, bias: Option<&[f32]>, gate_up: &mut [T]) {
    match activation {
        Activation::Silu => gate_by(crew, silu, width, bias, gate_up),
        Activation::GeluTanh => gate_by(crew, gelu_tanh, width, bias, gate_up),
    }
}

#[inline(always)]
fn gate_by<T: Number>(
    crew: &Crew,
    activation: impl Fn(f32) -> f32 + Sync,
    width: usize,
    bias: Option<&[f32]>,
    gate_up: &mut [T],
) {
    each_row!(crew, gate_up.len() * 4, (gate_up, 2 * width), |row| {
        if let Some(bias) = bias {
            add_to(row, bias);
        }
        let (gate, up) = row.split_at_mut(width);
        gate.iter_mut().zip(up).for_each(|(gate, up)| *gate = T::narrow(activation(gate.wide()) * up.wide()));
    });
}

pub fn gelu<T: Number>(crew: &Crew, numbers: &mut [T]) {
    each_row!(crew, numbers.len() * 4, (numbers, PART), |part| part
        .iter_mut()
        .for_each(|number| *number = T::narrow(vectors::gelu(number.wide()))));
}

pub fn add_bias<T: Number>(crew: &Crew, bias: &[f32], numbers: &mut [T]) {
    each_row!(crew, numbers.len(), (numbers, bias.len()), |row| add_to(row, bias));
}

#[inline(always)]
fn add_to<T: Number>(row: &mut [T], bias: &[f32]) {
    row.iter_mut().zip(bias).for_each(|(number, bias)| *number = T::narrow(number.wide() + bias));
}
