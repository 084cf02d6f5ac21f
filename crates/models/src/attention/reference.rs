//! A reference for the output of attention: plain f64 sums over pairs that are kept one by one, without a layout.

use rayon::prelude::*;

use super::{AttentionSizes, Input, Kept, Synthetic, pattern::distinct};
use crate::Dtype;

/// Sequences up to this length are checked at every position, longer ones at [`ROWS`] positions.
const ALL_UP_TO: usize = 128;

const ROWS: usize = 64;

const KEYS: usize = 256;

/// A row of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampled {
    /// The sequence.
    pub batch: usize,
    /// The query head.
    pub head: usize,
    /// The query.
    pub row: usize,
}

/// The reference for synthetic inputs.
#[derive(Debug, Clone)]
pub struct Reference {
    inputs: Synthetic,
    kept: Kept,
}

/// The result of a comparison with the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accuracy {
    /// The relative error of the worst row: the norm of the difference over that of the reference.
    pub error: f64,
    /// The worst row.
    pub worst: Sampled,
    /// The share of the weights of dense attention on kept pairs: the mean over rows and heads.
    pub mass_kept: f64,
    /// The relative difference from dense attention.
    pub output_error: f64,
}

/// The largest relative error of a row: for rounding, and far less than one missing key among some hundred.
pub fn tolerance(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 => 5e-4,
        Dtype::F16 => 5e-3,
        Dtype::Bf16 | Dtype::Fp8 => 2e-2,
    }
}

impl Reference {
    /// The reference for inputs and kept pairs.
    pub fn new(inputs: Synthetic, kept: Kept) -> Self {
        Self { inputs, kept }
    }

    /// The queries that are checked: all of a short sequence, or 64 of a longer one: the first, the last and one from each
    /// part.
    pub fn positions(&self) -> Vec<usize> {
        let length = self.inputs.sizes.length;
        if length <= ALL_UP_TO {
            return (0..length).collect();
        }
        let mut drawn = Vec::new();
        let part = |at: usize| {
            let (from, to) = (at * length / ROWS, (at + 1) * length / ROWS);
            distinct(self.inputs.seed, at as u64, 1, to - from, &mut drawn);
            match at {
                0 => 0,
                _ if at == ROWS - 1 => length - 1,
                _ => from + drawn[0] as usize,
            }
        };
        (0..ROWS).map(part).collect()
    }

    /// Compares an output, given by row, with the reference at the positions of every head: of a short sequence in every
    /// sequence, of a longer one in the sequences in turn.
    pub fn judge(&self, output: impl Fn(Sampled) -> Vec<f32> + Sync) -> Accuracy {
        let AttentionSizes { batch, heads, length, .. } = self.inputs.sizes;
        let positions = self.positions();
        let kept: Vec<Vec<bool>> = positions.par_iter().map(|&row| self.kept.row(length, row)).collect();
        let is_checked = |at: usize, sequence: usize| length <= ALL_UP_TO || at % batch == sequence;
        let compared = (0..batch * heads).into_par_iter().flat_map_iter(|of| {
            let (batch, head) = (of / heads, of % heads);
            let rows = positions.iter().zip(&kept).enumerate().filter(|(at, _)| is_checked(*at, batch));
            let rows: Vec<(usize, &[bool])> = rows.map(|(_, (row, kept))| (*row, kept.as_slice())).collect();
            let sums = self.sums(batch, head, &rows);
            let compare = |((row, _), sums): ((usize, &[bool]), Sums)| {
                let at = Sampled { batch, head, row };
                sums.compare(at, &output(at))
            };
            rows.into_iter().zip(sums).map(compare).collect::<Vec<_>>()
        });
        accuracy_of(&compared.collect::<Vec<_>>())
    }

    fn sums(&self, batch: usize, head: usize, rows: &[(usize, &[bool])]) -> Vec<Sums> {
        let AttentionSizes { heads, kv_heads, head_dim, length, .. } = self.inputs.sizes;
        let kv_head = head / (heads / kv_heads);
        let is_causal = self.kept.rule().is_causal;
        let read = |input, [head, from, count]: [usize; 3]| {
            let mut rows = Vec::new();
            self.inputs.rows(input, [batch, head, from, count], &mut rows);
            rows
        };
        let mut sums: Vec<Sums> = rows.iter().map(|_| Sums::new(head_dim)).collect();
        let queries: Vec<Vec<f32>> = rows.iter().map(|(row, _)| read(Input::Queries, [head, *row, 1])).collect();
        for from in (0..length).step_by(KEYS) {
            let place = [kv_head, from, KEYS.min(length - from)];
            let (keys, values) = (read(Input::Keys, place), read(Input::Values, place));
            for (((row, kept), query), sums) in rows.iter().zip(&queries).zip(&mut sums) {
                let seen = if is_causal { (row + 1).saturating_sub(from) } else { KEYS };
                let pairs = keys.chunks(head_dim).zip(values.chunks(head_dim)).zip(&kept[from..]).take(seen);
                pairs.for_each(|((key, value), kept)| sums.add(query, key, value, *kept));
            }
        }
        sums
    }
}

/// The weighted values of a row and the sum of its weights, each of kept pairs and of others.
struct Sums {
    /// The largest score so far.
    top: f64,
    values: [Vec<f64>; 2],
    weights: [f64; 2],
}

impl Sums {
    fn new(head_dim: usize) -> Self {
        Self { top: f64::NEG_INFINITY, values: [vec![0.0; head_dim], vec![0.0; head_dim]], weights: [0.0; 2] }
    }

    fn add(&mut self, query: &[f32], key: &[f32], value: &[f32], is_kept: bool) {
        let score = dot(query, key) / (query.len() as f64).sqrt();
        if score > self.top {
            let shrink = (self.top - score).exp();
            self.values.iter_mut().flatten().chain(&mut self.weights).for_each(|sum| *sum *= shrink);
            self.top = score;
        }
        let (weight, part) = ((score - self.top).exp(), usize::from(!is_kept));
        self.weights[part] += weight;
        self.values[part].iter_mut().zip(value).for_each(|(sum, value)| *sum += weight * f64::from(*value));
    }

    fn compare(&self, at: Sampled, output: &[f32]) -> Compared {
        let ([kept, others], [of_kept, of_others]) = (&self.values, self.weights);
        let divisor = if of_kept > 0.0 { of_kept } else { 1.0 };
        let sparse: Vec<f64> = kept.iter().map(|sum| sum / divisor).collect();
        let all = of_kept + of_others;
        let dense: Vec<f64> = kept.iter().zip(others).map(|(kept, other)| (kept + other) / all).collect();
        let square = |numbers: &[f64]| numbers.iter().map(|number| number * number).sum::<f64>();
        let off = |expected: &[f64]| {
            let difference = expected.iter().zip(output).map(|(expected, found)| expected - f64::from(*found));
            // A row of another length is wrong.
            if output.len() == expected.len() { square(&difference.collect::<Vec<_>>()) } else { f64::INFINITY }
        };
        let difference = off(&sparse);
        let error = if difference == 0.0 { 0.0 } else { (difference / square(&sparse)).sqrt() };
        Compared { at, error, mass: of_kept / all, squares: [off(&dense), square(&dense)] }
    }
}

/// A dot product in eight lanes.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut sums = [0.0; 8];
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += f64::from(*a) * f64::from(*b));
    }
    sums.iter().sum()
}

struct Compared {
    at: Sampled,
    error: f64,
    mass: f64,
    /// The squared norms of the difference from dense attention, and of dense attention.
    squares: [f64; 2],
}

fn accuracy_of(compared: &[Compared]) -> Accuracy {
    let none = Accuracy { error: 0.0, worst: Sampled { batch: 0, head: 0, row: 0 }, mass_kept: 1.0, output_error: 0.0 };
    // NaN is the worst error.
    let key = |one: &&Compared| if one.error.is_nan() { f64::INFINITY } else { one.error };
    let Some(worst) = compared.iter().max_by(|one, other| key(one).total_cmp(&key(other))) else { return none };
    let mass = compared.iter().map(|one| one.mass).sum::<f64>() / compared.len() as f64;
    let [off, size] = [0, 1].map(|at| compared.iter().map(|one| one.squares[at]).sum::<f64>());
    Accuracy { error: key(&worst), worst: worst.at, mass_kept: mass, output_error: (off / size).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::{Pattern, Random};

    const SIZES: AttentionSizes = AttentionSizes { batch: 2, heads: 4, kv_heads: 2, head_dim: 8, length: 12 };
    const INPUTS: Synthetic = Synthetic { sizes: SIZES, dtype: Dtype::F32, seed: 1 };

    /// A row of attention by its definition, over kept pairs.
    fn by_definition(inputs: &Synthetic, kept: &Kept, at: Sampled) -> Vec<f32> {
        let AttentionSizes { heads, kv_heads, head_dim, length, .. } = inputs.sizes;
        let rows = |input, head, from, count| {
            let mut rows = Vec::new();
            inputs.rows(input, [at.batch, head, from, count], &mut rows);
            rows
        };
        let kv_head = at.head / (heads / kv_heads);
        let query = rows(Input::Queries, at.head, at.row, 1);
        let (keys, values) = (rows(Input::Keys, kv_head, 0, length), rows(Input::Values, kv_head, 0, length));
        let kept = kept.row(length, at.row);
        let weights: Vec<f64> = keys
            .chunks(head_dim)
            .zip(&kept)
            .map(|(key, kept)| {
                let score: f64 = query.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                if *kept { (score / (head_dim as f64).sqrt()).exp() } else { 0.0 }
            })
            .collect();
        let sum: f64 = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let mix = |at: usize| {
            weights.iter().zip(values.chunks(head_dim)).map(|(w, v)| w / sum * f64::from(v[at])).sum::<f64>()
        };
        (0..head_dim).map(|at| mix(at) as f32).collect()
    }

    fn window() -> Kept {
        let (shared, seed) = (Random::PerRow, 0);
        Kept::Pattern(Pattern { window: 4, global: 1, random: 1, is_causal: true, shared, seed })
    }

    #[test]
    fn an_output_by_definition_is_right_and_dense_attention_keeps_everything() {
        for is_causal in [true, false] {
            let dense = Kept::All { is_causal };
            let judged = Reference::new(INPUTS, dense.clone()).judge(|at| by_definition(&INPUTS, &dense, at));
            assert!(judged.error < 1e-6 && judged.output_error < 1e-6, "{judged:?}");
            assert!((judged.mass_kept - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn pairs_left_out_show_as_mass_and_error() {
        let judged = Reference::new(INPUTS, window()).judge(|at| by_definition(&INPUTS, &window(), at));
        assert!(judged.error < 1e-6, "{judged:?}");
        assert!((0.4..0.99).contains(&judged.mass_kept) && judged.output_error > 0.05, "{judged:?}");
    }

    #[test]
    fn one_wrong_row_is_found_wherever_it_is() {
        for wrong in [Sampled { batch: 0, head: 0, row: 0 }, Sampled { batch: 1, head: 3, row: 11 }] {
            let judged = Reference::new(INPUTS, window()).judge(|at| {
                let factor = if at == wrong { 1.01 } else { 1.0 };
                by_definition(&INPUTS, &window(), at).into_iter().map(|number| number * factor).collect()
            });
            assert!((judged.error - 0.01).abs() < 1e-4 && judged.worst == wrong, "{judged:?}");
        }
        let judged = Reference::new(INPUTS, window()).judge(|_| vec![f32::NAN; 8]);
        assert_eq!(judged.error, f64::INFINITY);
        assert_eq!(Reference::new(INPUTS, window()).judge(|_| Vec::new()).error, f64::INFINITY);
    }

    #[test]
    fn a_row_that_keeps_nothing_gives_zeros() {
        let mask = crate::attention::BlockMask::parse("00\n01").unwrap();
        let kept = Kept::Blocks { mask: Some(mask), is_causal: false };
        let judged = Reference::new(INPUTS, kept.clone()).judge(|at| by_definition(&INPUTS, &kept, at));
        assert!(judged.error < 1e-6, "{judged:?}");
        assert!(Reference::new(INPUTS, kept).judge(|_| vec![1.0; 8]).error > 0.1);
    }

    #[test]
    fn a_long_sequence_has_64_positions_with_both_ends() {
        let long = Synthetic { sizes: AttentionSizes { length: 5000, ..SIZES }, ..INPUTS };
        let positions = Reference::new(long, window()).positions();
        assert_eq!((positions.len(), positions[0], positions[63]), (64, 0, 4999));
        assert!(positions.is_sorted_by(|one, next| one < next));
        assert_eq!(Reference::new(INPUTS, window()).positions().len(), 12);
    }
}
