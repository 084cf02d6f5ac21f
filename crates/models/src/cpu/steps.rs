//! The row-wise operations of a pass between products.

use super::vectors::{self, dot, gelu_tanh, sine_squared, vectorized};
use super::{attention::Span, crew::Crew, number::Number};
use crate::{Activation, Config, RopeLayout, rope::RopeTable};

const PART: usize = 1 << 14;

pub fn rows_of_part(width: usize) -> usize {
    (PART / width.max(1)).max(1)
}

/// Runs a body over every row, on all threads and with the widest vectors. Each matrix is `(elements, width)`; `cost` is the
/// number of elements touched.
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

/// Multiplies with a factor that is rounded to the dtype first, as in `transformers`.
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
    /// Norms the last of every `every` rows of a matrix into another.
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

    /// Adds the norm of each row of a matrix to another.
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
        let row = row.iter_mut().zip(self.weight);
        row.for_each(|(number, weight)| *number = T::narrow(number.wide() * factor * weight));
    }

    #[inline(always)]
    pub fn factor<T: Number>(self, row: &[T]) -> f32 {
        1.0 / (dot(row, row) / row.len() as f32 + self.eps).sqrt()
    }
}

/// Bias, head norms and RoPE of projected queries, keys and values.
pub struct Positions<'a> {
    pub config: &'a Config,
    pub table: &'a RopeTable,
    pub bias: Option<&'a [f32]>,
    pub query_norm: Option<Norm<'a>>,
    pub key_norm: Option<Norm<'a>>,
    /// Tokens per sequence, and the position of the first.
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

/// Rotates the pairs of a head. A direction of -1 rotates back.
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

/// Copies keys and values of packed rows to a cache, which has `capacity` positions for each head of each sequence.
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

/// Replaces the first half of each row by `activation(first) * second`, after adding a bias to both.
pub fn gate<T: Number>(crew: &Crew, activation: Activation, width: usize, bias: Option<&[f32]>, gate_up: &mut [T]) {
    match activation {
        Activation::Silu => gate_by(crew, vectors::silu, width, bias, gate_up),
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
    activate(crew, vectors::gelu, numbers);
}

pub fn silu<T: Number>(crew: &Crew, numbers: &mut [T]) {
    activate(crew, vectors::silu, numbers);
}

#[inline(always)]
fn activate<T: Number>(crew: &Crew, activation: impl Fn(f32) -> f32 + Sync, numbers: &mut [T]) {
    each_row!(crew, numbers.len() * 4, (numbers, PART), |part| part
        .iter_mut()
        .for_each(|number| *number = T::narrow(activation(number.wide()))));
}

pub fn add_bias<T: Number>(crew: &Crew, bias: &[f32], numbers: &mut [T]) {
    each_row!(crew, numbers.len(), (numbers, bias.len()), |row| add_to(row, bias));
}

#[inline(always)]
fn add_to<T: Number>(row: &mut [T], bias: &[f32]) {
    row.iter_mut().zip(bias).for_each(|(number, bias)| *number = T::narrow(number.wide() + bias));
}

pub fn add_row<T: Number>(to: &mut [T], row: &[T]) {
    to.iter_mut().zip(row).for_each(|(to, number)| *to = T::narrow(to.wide() + number.wide()));
}

/// The Snake activation: `x + sin(x a)^2 / (b + 1e-9)` per channel.
pub struct Snake {
    /// `a`.
    rates: Vec<f32>,
    /// `1 / (b + 1e-9)`.
    shares: Vec<f32>,
}

/// Avoids a division by 0, as in the official package.
const NOT_ZERO: f32 = 1e-9;

impl Snake {
    pub fn new(alpha: &[f32], beta: &[f32]) -> Self {
        Self {
            rates: alpha.iter().map(|number| number.exp()).collect(),
            shares: beta.iter().map(|number| 1.0 / (number.exp() + NOT_ZERO)).collect(),
        }
    }

    pub fn run<T: Number>(&self, crew: &Crew, from: &[T], to: &mut [T]) {
        let (width, to) = (self.rates.len(), &mut to[..from.len()]);
        each_row!(crew, from.len() * 4, (from, width), (to, width), |from, to| {
            let channels = self.rates.iter().zip(&self.shares);
            for ((from, to), (rate, share)) in from.iter().zip(to).zip(channels) {
                let number = from.wide();
                *to = T::narrow(number + share * sine_squared(number * rate));
            }
        });
    }
}

pub fn layer_norm<T: Number>(crew: &Crew, [weight, bias]: &[Vec<f32>; 2], eps: f32, numbers: &mut [T]) {
    each_row!(crew, numbers.len() * 2, (numbers, weight.len()), |row| {
        let count = row.len() as f32;
        let mean = row.iter().map(|number| number.wide()).sum::<f32>() / count;
        let squares = row.iter().map(|number| (number.wide() - mean) * (number.wide() - mean));
        let factor = 1.0 / (squares.sum::<f32>() / count + eps).sqrt();
        for ((number, weight), bias) in row.iter_mut().zip(weight).zip(bias) {
            *number = T::narrow((number.wide() - mean) * factor * weight + bias);
        }
    });
}

pub fn add_scaled<T: Number>(crew: &Crew, scale: &[f32], from: &[T], to: &mut [T]) {
    each_row!(crew, from.len(), (from, scale.len()), (&mut to[..from.len()], scale.len()), |from, to| {
        for ((to, from), scale) in to.iter_mut().zip(from).zip(scale) {
            *to = T::narrow(to.wide() + scale * from.wide());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snake_matches_its_definition() {
        let snake = Snake::new(&[0.0, 2.0_f32.ln()], &[0.0, 4.0_f32.ln()]);
        let mut out = [0.0_f32; 4];
        snake.run(&Crew::new(1).unwrap(), &[0.5, 0.5, -1.0, 3.0], &mut out);
        let expected: [(f64, f64, f64); 4] = [(0.5, 1.0, 1.0), (0.5, 2.0, 0.25), (-1.0, 1.0, 1.0), (3.0, 2.0, 0.25)];
        for (ours, (x, rate, share)) in out.into_iter().zip(expected) {
            let expected = x + share * (x * rate).sin().powi(2);
            assert!((f64::from(ours) - expected).abs() < 1e-6, "{ours} is not {expected}");
        }
    }

    #[test]
    fn a_layer_norm_subtracts_the_mean() {
        let mut rows = [1.0_f32, 2.0, 3.0];
        layer_norm(&Crew::new(1).unwrap(), &[vec![1.0, 1.0, 2.0], vec![0.0, 1.0, 0.0]], 0.0, &mut rows);
        let deviation = (2.0_f32 / 3.0).sqrt();
        for (ours, expected) in rows.into_iter().zip([-1.0 / deviation, 1.0, 2.0 / deviation]) {
            assert!((ours - expected).abs() < 1e-6, "{ours} is not {expected}");
        }
    }

    #[test]
    fn added_rows_are_scaled_per_channel() {
        let mut to = [1.0_f32, 1.0, 1.0, 1.0];
        add_scaled(&Crew::new(1).unwrap(), &[0.5, 2.0], &[1.0, 2.0, 3.0, 4.0], &mut to);
        assert_eq!(to, [1.5, 5.0, 2.5, 9.0]);
    }
}
