//! Products and weights of a tile of attention, with a query in each vector lane.
//!
//! Scores are stored key by key, so keys and values are read as stored, and maxima and sums per query need no reduction over
//! lanes. `gemm` would pack the keys again for every block of queries.

use pulp::{Arch, Simd, WithSimd};

use super::rows::Rows;
use super::vectors::{exp, vectorized};

pub const LANES: usize = 64;

/// A number for each query of a block, aligned to cache lines.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C, align(64))]
pub struct Lanes(pub [f32; LANES]);

impl Lanes {
    pub const fn all(number: f32) -> Self {
        Self([number; LANES])
    }
}

/// The number of keys or queries whose sums are kept in registers.
const DEPTH: usize = 6;

/// Lanes of the widest vectors, which have twice as many registers.
const WIDEST: usize = 16;

/// Runs a function with the widest vectors, and as many of them as there are registers for.
macro_rules! with_vectors {
    ($run:ident, $($field:ident: $kind:ty),*) => {{
        struct Call<'a>($($kind),*);
        impl WithSimd for Call<'_> {
            type Output = ();

            #[inline(always)]
            fn with_simd<S: Simd>(self, simd: S) {
                let Self($($field),*) = self;
                match S::F32_LANES == WIDEST {
                    true => $run::<S, 4>(simd, $($field),*),
                    false => $run::<S, 2>(simd, $($field),*),
                }
            }
        }
        Arch::new().dispatch(Call($($field),*));
    }};
}

/// Computes the products of keys with transposed queries, a row of scores per key, or adds them. Only the first `lanes` are
/// needed; others may be left unchanged.
pub fn score(queries: &[Lanes], keys: Rows<'_, f32>, scores: &mut [Lanes], lanes: usize, is_added: bool) {
    assert!(queries.len() == keys.width && scores.len() == keys.count, "the tile fits");
    let put = (lanes.min(LANES), is_added);
    with_vectors!(score_all, queries: &'a [Lanes], keys: Rows<'a, f32>, scores: &'a mut [Lanes], put: (usize, bool));
}

#[inline(always)]
fn score_all<S: Simd, const VECTORS: usize>(
    simd: S,
    queries: &[Lanes],
    keys: Rows<'_, f32>,
    scores: &mut [Lanes],
    (lanes, is_added): (usize, bool),
) {
    let vectors = lanes.div_ceil(S::F32_LANES);
    let mut from = 0;
    for some in scores.chunks_mut(DEPTH) {
        match (some.len(), vectors) {
            (DEPTH, 1) => score_some::<S, DEPTH, 1>(simd, queries, keys, from, some, (1, is_added)),
            (DEPTH, 2) => score_some::<S, DEPTH, 2>(simd, queries, keys, from, some, (2, is_added)),
            (DEPTH, _) => score_some::<S, DEPTH, VECTORS>(simd, queries, keys, from, some, (vectors, is_added)),
            // Tiles have 64 keys: ten times six, and four.
            (4, _) => score_some::<S, 4, VECTORS>(simd, queries, keys, from, some, (vectors, is_added)),
            _ => {
                for (at, one) in some.chunks_mut(1).enumerate() {
                    score_some::<S, 1, VECTORS>(simd, queries, keys, from + at, one, (vectors, is_added));
                }
            }
        }
        from += some.len();
    }
}

#[inline(always)]
fn score_some<S: Simd, const KEYS: usize, const VECTORS: usize>(
    simd: S,
    queries: &[Lanes],
    keys: Rows<'_, f32>,
    from: usize,
    scores: &mut [Lanes],
    (vectors, is_added): (usize, bool),
) {
    let keys: [&[f32]; KEYS] = std::array::from_fn(|at| &keys.row(from + at)[..queries.len()]);
    for group in 0..vectors.div_ceil(VECTORS) {
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; KEYS];
        if is_added {
            for (sums, scores) in sums.iter_mut().zip(scores.iter()) {
                *sums = S::as_simd_f32s(&scores.0).0.as_chunks().0[group];
            }
        }
        for (at, query) in queries.iter().enumerate() {
            let query: [S::f32s; VECTORS] = S::as_simd_f32s(&query.0).0.as_chunks().0[group];
            for key in 0..KEYS {
                // Cannot be missing. A panic would keep the sums out of registers.
                let number = simd.splat_f32s(keys[key].get(at).copied().unwrap_or(0.0));
                for of in 0..VECTORS {
                    sums[key][of] = simd.mul_add_e_f32s(number, query[of], sums[key][of]);
                }
            }
        }
        for (scores, sums) in scores.iter_mut().zip(&sums) {
            let (scores, _) = S::as_mut_simd_f32s(&mut scores.0);
            scores[group * VECTORS..(group + 1) * VECTORS].copy_from_slice(sums);
        }
    }
}

/// Adds weighted values to `mixed`, which has a row per query.
pub fn mix(weights: &[Lanes], values: Rows<'_, f32>, mixed: &mut [f32]) {
    assert!(weights.len() == values.count && mixed.len() == LANES * values.width, "the tile fits");
    with_vectors!(mix_all, weights: &'a [Lanes], values: Rows<'a, f32>, mixed: &'a mut [f32]);
}

#[inline(always)]
fn mix_all<S: Simd, const VECTORS: usize>(simd: S, weights: &[Lanes], values: Rows<'_, f32>, mixed: &mut [f32]) {
    for (at, some) in mixed.chunks_mut(DEPTH * values.width).enumerate() {
        match some.len() == DEPTH * values.width {
            true => mix_columns::<S, DEPTH, VECTORS>(simd, weights, values, at * DEPTH, some),
            // 64 queries are ten times six, and four.
            false => mix_columns::<S, 4, VECTORS>(simd, weights, values, at * DEPTH, some),
        }
    }
}

/// Mixes for some queries: several vectors of columns at a time, then single vectors, then single columns.
#[inline(always)]
fn mix_columns<S: Simd, const QUERIES: usize, const VECTORS: usize>(
    simd: S,
    weights: &[Lanes],
    values: Rows<'_, f32>,
    query: usize,
    mixed: &mut [f32],
) {
    let across = values.width / S::F32_LANES;
    let several = across - across % VECTORS;
    for vector in (0..several).step_by(VECTORS) {
        mix_some::<S, QUERIES, VECTORS>(simd, weights, values, [query, vector], mixed);
    }
    for vector in several..across {
        mix_some::<S, QUERIES, 1>(simd, weights, values, [query, vector], mixed);
    }
    for column in across * S::F32_LANES..values.width {
        for (at, weights) in weights.iter().enumerate() {
            let value = values.row(at)[column];
            let of_queries = mixed.chunks_mut(values.width).zip(&weights.0[query..query + QUERIES]);
            of_queries.for_each(|(mixed, weight)| mixed[column] += weight * value);
        }
    }
}

#[inline(always)]
fn mix_some<S: Simd, const QUERIES: usize, const VECTORS: usize>(
    simd: S,
    weights: &[Lanes],
    values: Rows<'_, f32>,
    [query, vector]: [usize; 2],
    mixed: &mut [f32],
) {
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; QUERIES];
    for (at, weights) in weights.iter().enumerate() {
        let (value, _) = S::as_simd_f32s(values.row(at));
        let value: [S::f32s; VECTORS] = *value[vector..].first_chunk().expect("the vectors are whole");
        let weights: &[f32; QUERIES] =
            weights.0[query..].first_chunk().expect("the weights are those of these queries");
        for of_query in 0..QUERIES {
            let weight = simd.splat_f32s(weights[of_query]);
            for of in 0..VECTORS {
                sums[of_query][of] = simd.mul_add_e_f32s(weight, value[of], sums[of_query][of]);
            }
        }
    }
    for (mixed, sums) in mixed.chunks_mut(values.width).zip(&sums) {
        let (mixed, _) = S::as_mut_simd_f32s(mixed);
        for (mixed, sum) in mixed[vector..vector + VECTORS].iter_mut().zip(sums) {
            *mixed = simd.add_f32s(*mixed, *sum);
        }
    }
}

/// Online softmax: replaces scores by weights relative to the largest score so far (`tops`), adds them to `sums`, and rescales
/// `sums` and `mixed`. A score of negative infinity has weight 0.
pub fn weigh(scores: &mut [Lanes], tops: &mut Lanes, sums: &mut Lanes, mixed: &mut [f32]) {
    vectorized!({
        let Lanes(mut higher) = *tops;
        for scores in scores.iter() {
            larger(&mut higher, &scores.0);
        }
        let mut shrink = [0.0; LANES];
        for lane in 0..LANES {
            // Without keys so far there is nothing to rescale.
            let top = tops.0[lane];
            shrink[lane] = if top == f32::NEG_INFINITY { 1.0 } else { exp(top - higher[lane]) };
        }
        let mut added = [0.0; LANES];
        for Lanes(scores) in scores.iter_mut() {
            for lane in 0..LANES {
                let score = scores[lane];
                let weight = if score == f32::NEG_INFINITY { 0.0 } else { exp(score - higher[lane]) };
                scores[lane] = weight;
                added[lane] += weight;
            }
        }
        for lane in 0..LANES {
            sums.0[lane] = sums.0[lane] * shrink[lane] + added[lane];
        }
        *tops = Lanes(higher);
        let width = mixed.len() / LANES;
        for (mixed, shrink) in mixed.chunks_mut(width.max(1)).zip(&shrink) {
            mixed.iter_mut().for_each(|number| *number *= shrink);
        }
    });
}

#[inline(always)]
fn larger(higher: &mut [f32; LANES], scores: &[f32; LANES]) {
    for (higher, score) in higher.iter_mut().zip(scores) {
        *higher = if *score > *higher { *score } else { *higher };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize) -> Vec<f32> {
        (0..count).map(|at| ((at * 7919 + 13) % 31) as f32 / 8.0 - 2.0).collect()
    }

    fn lanes(count: usize) -> Vec<Lanes> {
        numbers(count * LANES).chunks(LANES).map(|lanes| Lanes(lanes.try_into().unwrap())).collect()
    }

    #[test]
    fn products_match_the_definition_for_every_size() {
        for (count, width) in [(1, 1), (4, 16), (6, 8), (13, 80), (64, 64), (11, 33)] {
            let (queries, keys) = (lanes(width), numbers(count * width));
            let keys = Rows::dense(&keys, count, width);
            let mut scores = vec![Lanes::all(9.0); count];
            score(&queries, keys, &mut scores, LANES, false);
            let mut mixed = vec![1.0; LANES * width];
            mix(&scores, keys, &mut mixed);
            for lane in 0..LANES {
                let expected = |key: usize| (0..width).map(|at| queries[at].0[lane] * keys.row(key)[at]).sum::<f32>();
                assert!((0..count).all(|key| (scores[key].0[lane] - expected(key)).abs() < 1e-3), "{count} {width}");
                for at in 0..width {
                    let sum: f32 = 1.0 + (0..count).map(|key| scores[key].0[lane] * keys.row(key)[at]).sum::<f32>();
                    let off = (mixed[lane * width + at] - sum).abs();
                    assert!(off < 1e-4 * (sum.abs() + 1000.0), "{count} {width}: {off}");
                }
            }
        }
    }

    #[test]
    fn scalar_code_gives_the_same_result() {
        let (queries, keys) = (lanes(24), numbers(11 * 24));
        let keys = Rows::dense(&keys, 11, 24);
        let (mut vectors, mut plain) = (vec![Lanes::all(0.0); 11], vec![Lanes::all(0.0); 11]);
        score(&queries, keys, &mut vectors, LANES, false);
        score_all::<_, 2>(pulp::Scalar::new(), &queries, keys, &mut plain, (LANES, false));
        let flat = |scores: &[Lanes]| scores.iter().flat_map(|lanes| lanes.0).collect::<Vec<f32>>();
        assert!(flat(&vectors).iter().zip(flat(&plain)).all(|(one, other)| (one - other).abs() < 1e-3));
        let (mut one, mut other) = (vec![0.0; LANES * 24], vec![0.0; LANES * 24]);
        mix(&vectors, keys, &mut one);
        mix_all::<_, 2>(pulp::Scalar::new(), &vectors, keys, &mut other);
        assert!(one.iter().zip(&other).all(|(one, other)| (one - other).abs() < 0.1));
    }

    #[test]
    fn online_softmax_in_parts_matches_the_whole() {
        let all = lanes(9);
        let (mut tops, mut sums, mut mixed) = (Lanes::all(f32::NEG_INFINITY), Lanes::all(0.0), vec![2.0; LANES]);
        let (mut first, mut second) = (all[..4].to_vec(), all[4..].to_vec());
        first[1].0[7] = f32::NEG_INFINITY;
        weigh(&mut first, &mut tops, &mut sums, &mut mixed);
        assert!(mixed.iter().all(|number| *number == 2.0), "nothing was mixed before");
        weigh(&mut second, &mut tops, &mut sums, &mut mixed);
        for lane in 0..LANES {
            let of_lane = |key: usize| if (key, lane) == (1, 7) { f32::NEG_INFINITY } else { all[key].0[lane] };
            let top = (0..9).map(of_lane).fold(f32::NEG_INFINITY, f32::max);
            let sum: f32 = (0..9).map(|key| (of_lane(key) - top).exp()).sum();
            assert!(tops.0[lane] == top && (sums.0[lane] - sum).abs() < 1e-5, "{lane}");
        }
        assert_eq!(first[1].0[7], 0.0);
    }

    #[test]
    fn lanes_without_keys_have_no_weight() {
        let (mut tops, mut sums, mut mixed) = (Lanes::all(f32::NEG_INFINITY), Lanes::all(0.0), vec![0.0; LANES]);
        let mut scores = vec![Lanes::all(f32::NEG_INFINITY); 3];
        weigh(&mut scores, &mut tops, &mut sums, &mut mixed);
        assert!(
            sums.0.iter().chain(&mixed).chain(scores.iter().flat_map(|lanes| &lanes.0)).all(|number| *number == 0.0)
        );
    }
}
