//! What attention should give: plain sums in f64 over pairs that are kept one by one, without a layout.

use rayon::prelude::*;

use super::{AttentionSizes, Input, Kept, Synthetic, pattern::distinct};
use crate::Dtype;

const ALL_UP_TO: usize = 128;

const ROWS: usize = 64;

const KEYS: usize = 256;

/// A row of a head of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampled {
    /// The sequence.
    pub batch: usize,
    /// The query head.
    pub head: usize,
    /// The query.
    pub row: usize,
}

/// What attention should give of synthetic inputs.
#[derive(Debug, Clone)]
pub struct Reference {
    inputs: Synthetic,
    kept: Kept,
}

/// What became of a comparison with the reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accuracy {
    /// How far the worst row is off: the norm of the difference over that of the row as it should be.
    pub error: f64,
    /// That row.
    pub worst: Sampled,
    /// The share of the weights of dense attention that what is kept carries: the mean over rows and heads.
    pub mass_kept: f64,
    /// How far the result is from dense attention: the norm of the difference over that of dense attention.
    pub output_error: f64,
}

/// How far a row may be off: rounding, and far less than a key that is left out among some hundred.
pub fn tolerance(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 => 5e-4,
        Dtype::F16 => 5e-3,
        Dtype::Bf16 | Dtype::Fp8 => 2e-2,
    }
}

impl Reference {
    /// The reference for inputs and what is kept of their pairs.
    pub fn new(inputs: Synthetic, kept: Kept) -> Self {
        Self { inputs, kept }
    }

    /// The queries that are checked: all of a short sequence, or 64 of a longer one, including the first and the last
    /// and one from each part of it.
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

    /// Compares a result with what it should be, at the positions in every head: of a short sequence in every sequence, of
    /// a longer one in the sequences in turn. `result` gives the numbers of a row.
    pub fn judge(&self, result: impl Fn(Sampled) -> Vec<f32> + Sync) -> Accuracy {
        let AttentionSizes { batch, heads, length, .. } = self.inputs.sizes;
        let positions = self.positions();
        let kept: Vec<Vec<bool>> = positions.par_iter().map(|&row| self.kept.row(length, row)).collect();
        let is_looked_at = |at: usize, sequence: usize| length <= ALL_UP_TO || at % batch == sequence;
        let judged = (0..batch * heads).into_par_iter().flat_map_iter(|of| {
            let (batch, head) = (of / heads, of % heads);
            let rows = positions.iter().zip(&kept).enumerate().filter(|(at, _)| is_looked_at(*at, batch));
            let rows: Vec<(usize, &[bool])> = rows.map(|(_, (row, kept))| (*row, kept.as_slice())).collect();
            let mixed = self.mix(batch, head, &rows);
            rows.into_iter()
                .zip(mixed)
                .map(|((row, _), mixed)| {
                    let at = Sampled { batch, head, row };
                    Compared::of(at, &mixed, &result(at))
                })
                .collect::<Vec<_>>()
        });
        accuracy_of(&judged.collect::<Vec<_>>())
    }

    fn mix(&self, batch: usize, head: usize, rows: &[(usize, &[bool])]) -> Vec<Mixed> {
        let AttentionSizes { heads, kv_heads, head_dim, length, .. } = self.inputs.sizes;
        let kv_head = head / (heads / kv_heads);
        let is_causal = self.kept.rule().is_causal;
        let mut mixed: Vec<Mixed> = rows.iter().map(|_| Mixed::new(head_dim)).collect();
        let queries: Vec<Vec<f32>> = rows
            .iter()
            .map(|(row, _)| {
                let mut query = Vec::new();
                self.inputs.rows(Input::Queries, [batch, head, *row, 1], &mut query);
                query
            })
            .collect();
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for from in (0..length).step_by(KEYS) {
            let place = [batch, kv_head, from, KEYS.min(length - from)];
            self.inputs.rows(Input::Keys, place, &mut keys);
            self.inputs.rows(Input::Values, place, &mut values);
            for (((row, kept), query), mixed) in rows.iter().zip(&queries).zip(&mut mixed) {
                let seen = if is_causal { (row + 1).saturating_sub(from) } else { KEYS };
                let pairs = keys.chunks(head_dim).zip(values.chunks(head_dim)).zip(&kept[from..]).take(seen);
                pairs.for_each(|((key, value), kept)| mixed.add(query, key, value, *kept));
            }
        }
        mixed
    }
}

struct Mixed {
    top: f64,
    kept: Part,
    left_out: Part,
}

struct Part {
    mixed: Vec<f64>,
    sum: f64,
}

impl Mixed {
    fn new(head_dim: usize) -> Self {
        let part = || Part { mixed: vec![0.0; head_dim], sum: 0.0 };
        Self { top: f64::NEG_INFINITY, kept: part(), left_out: part() }
    }

    fn add(&mut self, query: &[f32], key: &[f32], value: &[f32], is_kept: bool) {
        let score = dot(query, key) / (query.len() as f64).sqrt();
        if score > self.top {
            let shrink = (self.top - score).exp();
            for part in [&mut self.kept, &mut self.left_out] {
                part.mixed.iter_mut().chain([&mut part.sum]).for_each(|number| *number *= shrink);
            }
            self.top = score;
        }
        let weight = (score - self.top).exp();
        let part = if is_kept { &mut self.kept } else { &mut self.left_out };
        part.sum += weight;
        part.mixed.iter_mut().zip(value).for_each(|(mixed, value)| *mixed += weight * f64::from(*value));
    }

    fn kept(&self) -> Vec<f64> {
        let sum = if self.kept.sum > 0.0 { self.kept.sum } else { 1.0 };
        self.kept.mixed.iter().map(|number| number / sum).collect()
    }

    fn dense(&self) -> Vec<f64> {
        let sum = self.kept.sum + self.left_out.sum;
        self.kept.mixed.iter().zip(&self.left_out.mixed).map(|(kept, other)| (kept + other) / sum).collect()
    }

    fn mass(&self) -> f64 {
        self.kept.sum / (self.kept.sum + self.left_out.sum)
    }
}

/// The sum of products, eight side by side.
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
    squares: [f64; 2],
}

impl Compared {
    fn of(at: Sampled, mixed: &Mixed, result: &[f32]) -> Self {
        let square = |numbers: &[f64]| numbers.iter().map(|number| number * number).sum::<f64>();
        let off = |should: &[f64]| {
            let difference = should.iter().zip(result).map(|(should, is)| should - f64::from(*is));
            // Numbers that are missing are as wrong as can be.
            if result.len() == should.len() { square(&difference.collect::<Vec<_>>()) } else { f64::INFINITY }
        };
        let (kept, dense) = (mixed.kept(), mixed.dense());
        let (difference, size) = (off(&kept), square(&kept));
        let error = if difference == 0.0 { 0.0 } else { (difference / size).sqrt() };
        Self { at, error, mass: mixed.mass(), squares: [off(&dense), square(&dense)] }
    }
}

fn accuracy_of(compared: &[Compared]) -> Accuracy {
    let none = Accuracy { error: 0.0, worst: Sampled { batch: 0, head: 0, row: 0 }, mass_kept: 1.0, output_error: 0.0 };
    // What is no number is worst of all.
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

    /// Attention as it is written in books: of a row, with weights of e, over the pairs that are kept.
    fn by_the_book(inputs: &Synthetic, kept: &Kept, at: Sampled) -> Vec<f32> {
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
    fn a_result_by_the_book_is_right_and_dense_attention_keeps_everything() {
        for is_causal in [true, false] {
            let dense = Kept::All { is_causal };
            let judged = Reference::new(INPUTS, dense.clone()).judge(|at| by_the_book(&INPUTS, &dense, at));
            assert!(judged.error < 1e-6 && judged.output_error < 1e-6, "{judged:?}");
            assert!((judged.mass_kept - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn what_a_pattern_leaves_out_is_told_as_mass_and_error() {
        let judged = Reference::new(INPUTS, window()).judge(|at| by_the_book(&INPUTS, &window(), at));
        assert!(judged.error < 1e-6, "{judged:?}");
        assert!((0.4..0.99).contains(&judged.mass_kept) && judged.output_error > 0.05, "{judged:?}");
    }

    #[test]
    fn one_wrong_row_is_found_wherever_it_is() {
        for wrong in [Sampled { batch: 0, head: 0, row: 0 }, Sampled { batch: 1, head: 3, row: 11 }] {
            let judged = Reference::new(INPUTS, window()).judge(|at| {
                let factor = if at == wrong { 1.01 } else { 1.0 };
                by_the_book(&INPUTS, &window(), at).into_iter().map(|number| number * factor).collect()
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
        let judged = Reference::new(INPUTS, kept.clone()).judge(|at| by_the_book(&INPUTS, &kept, at));
        assert!(judged.error < 1e-6, "{judged:?}");
        assert!(Reference::new(INPUTS, kept).judge(|_| vec![1.0; 8]).error > 0.1);
    }

    #[test]
    fn positions_of_a_long_sequence_are_64_with_both_ends() {
        let long = Synthetic { sizes: AttentionSizes { length: 5000, ..SIZES }, ..INPUTS };
        let positions = Reference::new(long, window()).positions();
        assert_eq!((positions.len(), positions[0], positions[63]), (64, 0, 4999));
        assert!(positions.is_sorted_by(|one, next| one < next));
        assert_eq!(Reference::new(INPUTS, window()).positions().len(), 12);
    }
}
