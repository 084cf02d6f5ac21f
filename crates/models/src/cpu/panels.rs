//! Linear layers over many tokens, with a token in each vector lane.
//!
//! All threads pack the tokens into panels once. Weights are read as stored, block by block for all panels, and widened a few
//! at a time.

#![allow(unsafe_code, reason = "threads write disjoint columns; the block has its reason")]

use half::bf16;

use super::product::{PART, Put, Weights, widened};
use super::rows::{Rows, RowsMut, Shared};
use super::tiles::{LANES, Lanes, score};
use super::{crew::Crew, halves, number::Number, vectors::vectorized};
use crate::{Dtype, dtype::typed, tensors::product};

/// The most columns of a block of weights.
const COLUMNS: usize = 48;
/// Elements (or pairs) of a token that are multiplied at a time: this part of a panel stays in the L2 cache.
const DEPTH: usize = 512;

/// Rows of a panel that are packed at a time: they stay in the L1 cache.
const STRIP: usize = 64;

/// Workspace bytes per thread for a product: its share of the packed rows, the output, and widened weights.
pub fn panel_bytes(dtype: Dtype, rows: usize, depth: usize, threads: usize) -> u64 {
    let rows = rows.min(PART).next_multiple_of(LANES);
    let (is_paired, is_widened) = typed!(dtype, |T| (halves::suit_pairs::<T>(depth), !T::IS_F32));
    let packed = product(&[rows, if is_paired { depth / 2 } else { depth }, 4]);
    let widened = if is_widened { product(&[COLUMNS, depth.min(DEPTH), 4]) } else { 0 };
    packed.div_ceil(threads.max(1) as u64).saturating_add(product(&[rows, COLUMNS, 4])).saturating_add(widened)
}

/// The columns of a block, fewer if threads would be idle.
pub fn block_columns(threads: usize, columns: usize) -> usize {
    columns.div_ceil(threads.max(1).saturating_mul(4)).next_multiple_of(COLUMNS / 4).clamp(COLUMNS / 4, COLUMNS)
}

pub fn project_panels<T: Number>(crew: &Crew, x: Rows<'_, T>, weights: Weights<'_, T>, out: &mut [T], put: Put) {
    let columns = weights.count();
    let out = Shared::new(&mut out[..x.count * columns]);
    let width = block_columns(crew.threads(), columns);
    for first in (0..x.count).step_by(PART) {
        let rows = x.part(first, PART.min(x.count - first), 0, x.width);
        let panels = Panels::pack(crew, rows);
        let touched = (rows.count * columns).saturating_mul(x.width) / 16;
        let parts = 0..columns.div_ceil(width);
        crew.each_with(touched, parts, Default::default, |(own, block): &mut (Own, Vec<T>), part| {
            let column = part * width;
            let weights = weights.part(column, width.min(columns - column), block);
            // SAFETY: parts share no column, and each is done once.
            let mut out = unsafe { out.rows(first * columns + column, rows.count, weights.count, columns) };
            panels.multiply(own, weights, &mut out, put);
        });
    }
}

/// Transposed tokens: for each 64 tokens, a row per element or pair of elements.
struct Panels {
    rows: usize,
    height: usize,
    is_paired: bool,
    lanes: Vec<Lanes>,
}

/// The workspace of a thread: the sums of a block, panel by panel, and widened weights.
#[derive(Default)]
struct Own {
    sums: Vec<Lanes>,
    wide: Vec<f32>,
}

#[derive(Clone, Copy)]
enum Block<'a> {
    Pairs(Rows<'a, bf16>),
    Wide(Rows<'a, f32>),
}

impl Panels {
    fn pack<T: Number>(crew: &Crew, rows: Rows<'_, T>) -> Self {
        let is_paired = halves::suit_pairs::<T>(rows.width);
        let height = if is_paired { rows.width / 2 } else { rows.width };
        let mut lanes = vec![Lanes::all(0.0); rows.count.div_ceil(LANES) * height];
        crew.each(rows.count * height, lanes.chunks_mut(height.max(1)).enumerate(), |(at, panel)| {
            let tokens = rows.part(at * LANES, LANES.min(rows.count - at * LANES), 0, rows.width);
            for (strip, lanes) in panel.chunks_mut(STRIP).enumerate() {
                let each = if is_paired { 2 } else { 1 };
                pack_strip(tokens.part(0, tokens.count, strip * STRIP * each, lanes.len() * each), lanes, is_paired);
            }
        });
        Self { rows: rows.count, height, is_paired, lanes }
    }

    fn multiply<T: Number>(&self, own: &mut Own, weights: Rows<'_, T>, out: &mut RowsMut<'_, T>, put: Put) {
        let Own { sums, wide } = own;
        sums.resize(self.rows.div_ceil(LANES) * weights.count, Lanes::all(0.0));
        for from in (0..self.height).step_by(DEPTH) {
            let height = DEPTH.min(self.height - from);
            let panel = |at: usize| &self.lanes[at * self.height + from..][..height];
            let (from, height) = if self.is_paired { (2 * from, 2 * height) } else { (from, height) };
            let part = weights.part(0, weights.count, from, height);
            let block = match part.as_bf16().filter(|_| self.is_paired) {
                Some(pairs) => Block::Pairs(pairs),
                None => Block::Wide(widened(part, wide)),
            };
            for (at, sums) in sums.chunks_mut(weights.count).enumerate() {
                let lanes = LANES.min(self.rows - at * LANES);
                match block {
                    Block::Pairs(weights) => halves::score_pairs(panel(at), weights, sums, lanes, from > 0),
                    Block::Wide(weights) => score(panel(at), weights, sums, lanes, from > 0),
                }
            }
        }
        for (at, sums) in sums.chunks(weights.count).enumerate() {
            put_panel(sums, at * LANES, out, put);
        }
    }
}

/// Transposes tokens into lanes, by element or by pair.
fn pack_strip<T: Number>(tokens: Rows<'_, T>, to: &mut [Lanes], is_paired: bool) {
    vectorized!(for lane in 0..tokens.count {
        let token = tokens.row(lane);
        match is_paired {
            true => to.iter_mut().zip(token.as_chunks().0).for_each(|(to, pair)| to.0[lane] = paired(*pair)),
            false => to.iter_mut().zip(token).for_each(|(to, number)| to.0[lane] = number.wide()),
        }
    });
}

/// The bits of two bf16 numbers, the first in the lower half.
#[inline(always)]
fn paired<T: Number>([first, second]: [T; 2]) -> f32 {
    f32::from_bits(first.wide().to_bits() >> 16 | second.wide().to_bits() & 0xffff_0000)
}

/// Writes the sums of up to 64 tokens, from `first` on.
fn put_panel<T: Number>(sums: &[Lanes], first: usize, out: &mut RowsMut<'_, T>, put: Put) {
    vectorized!({
        for (lane, at) in (first..out.count).take(LANES).enumerate() {
            for (to, Lanes(sums)) in out.row(at).iter_mut().zip(sums) {
                let before = if put.add { to.wide() } else { 0.0 };
                *to = T::narrow(before + put.scale * sums[lane]);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    fn products_are_right<T: Number>(rounding: f64) {
        for (rows, columns, depth) in [(5, 40, 1100), (17, 300, 33), (600, 70, 40), (45, 13, 2)] {
            let number = |at: usize| T::narrow(((at * 7919 + 13) % 31) as f32 / 8.0 - 2.0);
            let numbers = |count: usize| (0..count).map(number).collect::<Vec<T>>();
            let (x, weights) = (numbers(rows * depth), numbers(columns * depth));
            let (x, weights) = (Rows::dense(&x, rows, depth), Rows::dense(&weights, columns, depth));
            for (threads, put) in [(1, Put::OVER), (3, Put { scale: 0.5, add: true })] {
                let mut out = vec![T::narrow(1.0); rows * columns];
                project_panels(&Crew::new(threads).unwrap(), x, Weights::Plain(weights), &mut out, put);
                for (at, out) in out.iter().enumerate() {
                    let pairs = x.row(at / columns).iter().zip(weights.row(at % columns));
                    let sum: f64 = pairs.map(|(x, weight)| f64::from(x.wide()) * f64::from(weight.wide())).sum();
                    let expected = f64::from(put.scale) * sum + if put.add { 1.0 } else { 0.0 };
                    let off = (f64::from(out.wide()) - expected).abs();
                    assert!(
                        off <= rounding * (expected.abs() + 1.0),
                        "{rows} {columns} {depth}: {} {expected}",
                        out.wide()
                    );
                }
            }
        }
    }

    #[test]
    fn products_with_panels_match_the_definition() {
        products_are_right::<f32>(1e-5);
        products_are_right::<f16>(1e-3);
        products_are_right::<bf16>(8e-3);
    }
}
