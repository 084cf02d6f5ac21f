//! The row-wise operations of training between products.
//!
//! Sums over rows are computed in parts of fixed sizes and added in order, so they do not depend on the number of threads.

#![allow(unsafe_code, reason = "threads write disjoint rows; each block has its reason")]

use super::super::steps::{Norm, Positions, each_row, rotate, rows_of_part};
use super::super::vectors::{exp, largest, silu, sum_of_powers, vectorized};
use super::super::{crew::Crew, number::Number, rows::Shared};
use crate::Config;

const SUMMED_PARTS: usize = 16;

#[derive(Default)]
pub struct Sums {
    parts: Vec<f32>,
}

pub fn sums_bytes(width: usize) -> u64 {
    (width as u64).saturating_mul(4 * SUMMED_PARTS as u64)
}

impl Sums {
    /// Sums over rows. `work` gets the first row and the number of rows of a part, and sums that start at 0.
    pub fn over<T: Number>(
        &mut self,
        crew: &Crew,
        rows: usize,
        (width, touched): (usize, usize),
        out: &mut [f32],
        work: impl Fn(usize, usize, &mut [f32]) + Sync,
    ) {
        let part_rows = rows.div_ceil(SUMMED_PARTS).max(rows_of_part(touched / rows.max(1)));
        let parts = rows.div_ceil(part_rows);
        self.parts.clear();
        self.parts.resize(parts * width, 0.0);
        crew.each(touched, self.parts.chunks_mut(width).enumerate(), |(part, sums)| {
            let first = part * part_rows;
            vectorized!(work(first, part_rows.min(rows - first), sums));
        });
        out.fill(0.0);
        for sums in self.parts.chunks(width) {
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out += sum);
        }
        out.iter_mut().for_each(|out| *out = T::narrow(*out).wide());
    }

    pub fn columns<T: Number>(&mut self, crew: &Crew, numbers: &[T], out: &mut [f32]) {
        let width = out.len();
        self.over::<T>(
            crew,
            numbers.len() / width,
            (width, numbers.len()),
            out,
            #[inline(always)]
            |first, count, sums| {
                for row in numbers[first * width..][..count * width].chunks(width) {
                    sums.iter_mut().zip(row).for_each(|(sum, number)| *sum += number.wide());
                }
            },
        );
    }

    /// The gradients of a norm: of its input, added to `d_from` or replacing it, and of its weight.
    pub fn norm_back<T: Number>(
        &mut self,
        crew: &Crew,
        norm: Norm<'_>,
        (from, d_out): (&[T], &[T]),
        (d_from, is_added): (&mut [T], bool),
        d_weight: &mut [f32],
    ) {
        let width = norm.weight.len();
        let d_from = Shared::new(&mut d_from[..from.len()]);
        self.over::<T>(
            crew,
            from.len() / width,
            (width, from.len()),
            d_weight,
            #[inline(always)]
            |first, count, sums| {
                // SAFETY: parts share no row, and each is done once.
                let mut d_from = unsafe { d_from.rows(first * width, count, width, width) };
                for at in 0..count {
                    let row = (first + at) * width..(first + at + 1) * width;
                    let d_from = d_from.row(at);
                    if !is_added {
                        d_from.fill(T::default());
                    }
                    norm_row_back(norm, &from[row.clone()], &d_out[row], d_from, sums);
                }
            },
        );
    }
}

/// The gradient of a row before a norm, added to `d_from`, and of the weight, added to `d_weight`.
///
/// The norm is `out = from * factor * weight`, where the factor depends on the row.
#[inline(always)]
fn norm_row_back<T: Number>(norm: Norm<'_>, from: &[T], d_out: &[T], d_from: &mut [T], d_weight: &mut [f32]) {
    let factor = norm.factor(from);
    let along = along(from, d_out, norm.weight) * factor * factor / from.len() as f32;
    let all = from.iter().zip(d_out).zip(norm.weight).zip(d_from).zip(d_weight);
    for ((((from, d_out), weight), d_from), d_weight) in all {
        let (from, d_out) = (from.wide(), d_out.wide());
        *d_weight += d_out * from * factor;
        *d_from = T::narrow(d_from.wide() + factor * (d_out * weight - from * along));
    }
}

/// The sum of the products of three rows, in lanes for vectorization.
#[inline(always)]
fn along<T: Number>(a: &[T], b: &[T], c: &[f32]) -> f32 {
    const LANES: usize = 32;
    let mut sums = [0.0; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    let (c_blocks, c_rest) = c.as_chunks::<LANES>();
    for ((a, b), c) in a_blocks.iter().zip(b_blocks).zip(c_blocks) {
        for lane in 0..LANES {
            sums[lane] += a[lane].wide() * b[lane].wide() * c[lane];
        }
    }
    let rest = a_rest.iter().zip(b_rest).zip(c_rest);
    sums.iter().sum::<f32>() + rest.map(|((a, b), c)| a.wide() * b.wide() * c).sum::<f32>()
}

#[inline(always)]
pub fn norm_row_back_in_place<T: Number>(norm: Norm<'_>, from: &[T], d_row: &mut [T], d_weight: &mut [f32]) {
    let factor = norm.factor(from);
    let along = along(from, d_row, norm.weight) * factor * factor / from.len() as f32;
    let all = from.iter().zip(norm.weight).zip(d_row).zip(d_weight);
    for (((from, weight), d_row), d_weight) in all {
        let (from, d_out) = (from.wide(), d_row.wide());
        *d_weight += d_out * from * factor;
        *d_row = T::narrow(factor * (d_out * weight - from * along));
    }
}

pub fn swiglu<T: Number>(crew: &Crew, width: usize, gate_up: &[T], out: &mut [T]) {
    each_row!(crew, gate_up.len() * 4, (gate_up, 2 * width), (out, width), |row, out| {
        let (gate, up) = row.split_at(width);
        for ((gate, up), out) in gate.iter().zip(up).zip(out) {
            *out = T::narrow(silu(gate.wide()) * up.wide());
        }
    });
}

pub fn swiglu_back<T: Number>(crew: &Crew, width: usize, gate_up: &mut [T], d_activated: &[T], activated: &mut [T]) {
    let rows = rows_of_part(2 * width);
    let touched = gate_up.len() * 8;
    let outputs = d_activated.chunks(rows * width).zip(activated.chunks_mut(rows * width));
    crew.each(touched, gate_up.chunks_mut(rows * 2 * width).zip(outputs), |(gate_up, (d_activated, activated))| {
        vectorized!({
            let outputs = d_activated.chunks(width).zip(activated.chunks_mut(width));
            for (row, (d_activated, activated)) in gate_up.chunks_mut(2 * width).zip(outputs) {
                let (gates, ups) = row.split_at_mut(width);
                let outputs = d_activated.iter().zip(activated);
                for ((gate, up), (d_activated, activated)) in gates.iter_mut().zip(ups).zip(outputs) {
                    let (g, u, d_activated) = (gate.wide(), up.wide(), d_activated.wide());
                    let open = 1.0 / (1.0 + exp(-g));
                    *gate = T::narrow(d_activated * u * open * (1.0 + g * (1.0 - open)));
                    *up = T::narrow(d_activated * g * open);
                    *activated = T::narrow(g * open * u);
                }
            }
        });
    });
}

pub fn cross_entropy<T: Number>(crew: &Crew, targets: &[u32], logits: &mut [T], losses: &mut [f32]) {
    let width = logits.len() / targets.len().max(1);
    let (touched, scale) = (logits.len() * 4, 1.0 / targets.len() as f32);
    let parts = logits.chunks_mut(width).zip(targets).zip(losses);
    crew.each(touched, parts, |((logits, target), loss)| {
        vectorized!({
            let target = *target as usize;
            let (top, wanted) = (largest(logits), logits[target].wide());
            // Exponentials are divided before they are stored, so they are rounded once.
            let sum = sum_of_powers(logits, top);
            *loss = sum.ln() + top - wanted;
            let share = scale / sum;
            logits.iter_mut().for_each(|logit| *logit = T::narrow(exp(logit.wide() - top) * share));
            logits[target] = T::narrow((exp(wanted - top) / sum - 1.0) * scale);
        });
    });
}

#[derive(Default)]
pub struct Places {
    all: Vec<(u32, u32)>,
}

impl Places {
    /// Finds the rows of these tokens. Clears the rows of the table that the last batch wrote, unless a tied head has written
    /// the whole table.
    pub fn renew<T: Number>(&mut self, ids: &[u32], d_table: &mut [T], width: usize, is_tied: bool) {
        if !is_tied {
            for (id, _) in &self.all {
                d_table[*id as usize * width..][..width].fill(T::default());
            }
        }
        self.all.clear();
        self.all.extend(ids.iter().zip(0..).map(|(id, row)| (*id, row)));
        self.all.sort_unstable();
    }

    pub fn add<T: Number>(&self, crew: &Crew, d_rows: &[T], d_table: &mut [T], width: usize) {
        let table = Shared::new(d_table);
        let runs: Vec<&[(u32, u32)]> = self.all.chunk_by(|a, b| a.0 == b.0).collect();
        crew.each_with(d_rows.len(), runs.into_iter(), Vec::new, |sums: &mut Vec<f32>, run| {
            sums.clear();
            sums.resize(width, 0.0);
            // SAFETY: each run has its own token.
            let mut to = unsafe { table.rows(run[0].0 as usize * width, 1, width, width) };
            vectorized!({
                for (_, row) in run {
                    let row = &d_rows[*row as usize * width..][..width];
                    sums.iter_mut().zip(row).for_each(|(sum, number)| *sum += number.wide());
                }
                for (to, sum) in to.row(0).iter_mut().zip(sums) {
                    *to = T::narrow(to.wide() + *sum);
                }
            });
        });
    }
}

impl Positions<'_> {
    /// Replaces the gradients of heads by those of the projections. `d_norms` has the gradients of the query norm, then of
    /// the key norm, or is empty.
    pub fn leave<T: Number>(
        &self,
        crew: &Crew,
        (projected, d_heads): (&[T], &mut [T]),
        sums: &mut Sums,
        d_norms: &mut [f32],
    ) {
        let Config { heads, kv_heads, head_dim, .. } = *self.config;
        let width = (heads + 2 * kv_heads) * head_dim;
        let d_rows = Shared::new(d_heads);
        // Without norms there is nothing to sum, but parts need a width.
        let mut nothing = [0.0];
        let d_norms = if d_norms.is_empty() { &mut nothing } else { d_norms };
        let (rows, sizes) = (projected.len() / width, (d_norms.len(), projected.len()));
        sums.over::<T>(
            crew,
            rows,
            sizes,
            d_norms,
            #[inline(always)]
            |first, count, sums| {
                // SAFETY: parts share no row, and each is done once.
                let mut d_rows = unsafe { d_rows.rows(first * width, count, width, width) };
                for at in 0..count {
                    let row = first + at;
                    self.leave_row(&projected[row * width..][..width], d_rows.row(at), row % self.tokens, sums);
                }
            },
        );
    }

    #[inline(always)]
    fn leave_row<T: Number>(&self, projected: &[T], d_row: &mut [T], position: usize, d_norms: &mut [f32]) {
        let Config { heads, kv_heads, head_dim, .. } = *self.config;
        let angles = self.table.at(position);
        let rotated = d_row.chunks_mut(head_dim).zip(projected.chunks(head_dim)).take(heads + kv_heads);
        for (head, (d_head, projected)) in rotated.enumerate() {
            rotate(self.config.rope.layout, d_head, angles, -1.0);
            if let Some((query_norm, key_norm)) = self.query_norm.zip(self.key_norm) {
                let (d_query, d_key) = d_norms.split_at_mut(head_dim);
                let (norm, d_norm) = if head < heads { (query_norm, d_query) } else { (key_norm, d_key) };
                norm_row_back_in_place(norm, projected, d_head, d_norm);
            }
        }
    }
}
