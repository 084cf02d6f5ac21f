//! Sampling codes from logits, in the order `transformers` applies it: repetition penalty, suppressed ids, temperature,
//! top-k, top-p, and a draw.
//!
//! Weights are integers, so their sums do not depend on the order of additions. A device whose `exp` rounds like ours
//! samples the same codes.

use std::cmp::Ordering;

use super::{Choice, TtsConfig};
use crate::cpu::vectors::{exp, index_of_largest};
use crate::synthetic::mix;

/// The weight of the most likely id: 2^30.
const LIKELIEST: f32 = (1 << 30) as f32;

/// The ids that the talker never samples: all control ids but the end.
pub(crate) fn suppressed(config: &TtsConfig) -> impl Iterator<Item = u32> {
    let end = config.ids.eos;
    (config.first_control() as u32..config.talker.vocab as u32).filter(move |id| *id != end)
}

/// Applies the repetition penalty: divides the scores of ids that were sampled before, or multiplies negative ones.
pub fn penalise(scores: &mut [f32], sampled: &[bool], penalty: f32) {
    for (score, _) in scores.iter_mut().zip(sampled).filter(|(_, is_sampled)| **is_sampled) {
        *score = if *score < 0.0 { *score * penalty } else { *score / penalty };
    }
}

/// Samples an id from scores, which it changes. Minus infinity excludes an id.
pub fn sample(scores: &mut [f32], choice: Choice, bits: u32) -> u32 {
    let mut weights = weigh(scores, choice);
    if let Choice::Drawn { top_p, .. } = choice {
        keep_top_p(scores, &mut weights, top_p);
    }
    pick(scores, &weights, bits)
}

/// Applies temperature and top-k, and returns the weights; none if the choice is greedy.
pub(crate) fn weigh(scores: &mut [f32], choice: Choice) -> Vec<u32> {
    let Choice::Drawn { temperature, top_k, .. } = choice else { return Vec::new() };
    scores.iter_mut().for_each(|score| *score /= temperature);
    keep_top_k(scores, top_k);
    weights_of(scores)
}

pub(crate) fn pick(scores: &[f32], weights: &[u32], bits: u32) -> u32 {
    draw(weights, bits).unwrap_or_else(|| index_of_largest(scores)) as u32
}

/// Sets all scores below the k-th largest to minus infinity.
pub fn keep_top_k(scores: &mut [f32], k: usize) {
    if k == 0 || k >= scores.len() {
        return;
    }
    let mut ordered = scores.to_vec();
    let least = *ordered.select_nth_unstable_by(k - 1, |a, b| descending(*a, *b)).1;
    scores.iter_mut().filter(|score| **score < least).for_each(|score| *score = f32::NEG_INFINITY);
}

/// Softmax weights, unnormalised: 2^30 times `exp(score - max)`, rounded. NaN gives 0.
pub fn weights_of(scores: &[f32]) -> Vec<u32> {
    let top = scores.iter().copied().filter(|score| !score.is_nan()).fold(f32::NEG_INFINITY, f32::max);
    scores.iter().map(|score| (exp(score - top) * LIKELIEST).round_ties_even() as u32).collect()
}

/// Zeroes the weights of ids once more likely ones reach `top_p` of the total. Ties are kept or dropped together.
pub fn keep_top_p(scores: &[f32], weights: &mut [u32], top_p: f64) {
    if top_p >= 1.0 {
        return;
    }
    let enough = (top_p * total(weights) as f64).ceil() as u64;
    let mut order: Vec<usize> = (0..scores.len()).filter(|at| weights[*at] > 0).collect();
    order.sort_unstable_by(|a, b| descending(scores[*a], scores[*b]));
    let mut above = 0_u64;
    for equal in order.chunk_by(|a, b| scores[*a] == scores[*b]) {
        let sum: u64 = equal.iter().map(|at| u64::from(weights[*at])).sum();
        if above > 0 && above >= enough {
            equal.iter().for_each(|at| weights[*at] = 0);
        }
        above = above.saturating_add(sum);
    }
}

/// Draws an index: the first whose cumulative weight exceeds `bits * total / 2^32`, rounded down. None without weights.
pub fn draw(weights: &[u32], bits: u32) -> Option<usize> {
    let place = ((u128::from(bits) * u128::from(total(weights))) >> 32) as u64;
    let mut sum = 0_u64;
    weights.iter().position(|weight| {
        sum += u64::from(*weight);
        sum > place
    })
}

fn total(weights: &[u32]) -> u64 {
    weights.iter().map(|weight| u64::from(*weight)).sum()
}

/// Largest first, NaN last.
fn descending(a: f32, b: f32) -> Ordering {
    b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Added before each mixing step, so that zeros do not stay zeros: 2^32 over the golden ratio.
const STEP: u32 = 0x9e37_79b9;

/// The 32 random bits of one code. `group` 0 is the semantic code, sampled from the talker's logits.
///
/// With `m(h, x) = mix((h ^ x) + STEP)` in 32 bits: `m(m(m(m(0, low half of the seed), high half), frame), group)`.
pub fn random_bits(seed: u64, frame: u32, group: u32) -> u32 {
    let places = [seed as u32, (seed >> 32) as u32, frame, group];
    places.into_iter().fold(0, |hash, place| mix((hash ^ place).wrapping_add(STEP)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NEVER: f32 = f32::NEG_INFINITY;

    #[test]
    fn the_penalty_lowers_scores_on_both_sides_of_zero() {
        let mut scores = [2.0, -2.0, 2.0, 0.0];
        penalise(&mut scores, &[true, true, false, true], 2.0);
        assert_eq!(scores, [1.0, -4.0, 2.0, 0.0]);
    }

    #[test]
    fn all_control_ids_but_the_end_are_suppressed() {
        let config = TtsConfig::from_preset("0.6b").unwrap();
        let ids: Vec<u32> = suppressed(&config).collect();
        assert_eq!((ids.len(), ids[0], ids[1022]), (1023, 2048, 3071));
        assert!(!ids.contains(&2150));
    }

    #[test]
    fn ties_with_the_last_of_the_top_k_are_kept() {
        let mut scores = [1.0, 3.0, 2.0, 3.0, 2.0];
        keep_top_k(&mut scores, 3);
        assert_eq!(scores, [NEVER, 3.0, 2.0, 3.0, 2.0]);
        let mut all = [1.0, f32::NAN, 2.0];
        keep_top_k(&mut all, 0);
        keep_top_k(&mut all, 3);
        assert_eq!((all[0], all[2]), (1.0, 2.0));
    }

    #[test]
    fn top_p_keeps_the_most_likely_ids() {
        // Weights of one half, one quarter, and two eighths.
        let scores: Vec<f32> = [0.5_f32, 0.25, 0.125, 0.125].iter().map(|share| share.ln()).collect();
        let kept = |top_p: f64| {
            let mut weights = weights_of(&scores);
            keep_top_p(&scores, &mut weights, top_p);
            weights.iter().filter(|weight| **weight > 0).count()
        };
        assert_eq!([0.01, 0.49, 0.6, 0.74, 0.76, 0.9, 1.0].map(kept), [1, 1, 2, 2, 4, 4, 4]);
    }

    #[test]
    fn a_draw_walks_the_weights_in_order() {
        let weights = [0, 1 << 30, 0, 3 << 29, 1 << 29];
        let drawn = |bits: u32| draw(&weights, bits).unwrap();
        assert_eq!([0, 0x5555_5555, 0x5555_5556, 0xd555_5555, 0xd555_5556, u32::MAX].map(drawn), [1, 1, 3, 3, 4, 4]);
        assert_eq!(draw(&[0, 0], 5), None);
    }

    #[test]
    fn nans_are_never_sampled() {
        let choice = Choice::default();
        assert_eq!(sample(&mut [f32::NAN, 1.0, NEVER], choice, u32::MAX), 1);
        assert_eq!(sample(&mut [NEVER, f32::INFINITY, 0.0], choice, 0), 1);
        assert_eq!(sample(&mut [f32::NAN, f32::NAN], choice, 9), 0);
        assert_eq!(sample(&mut [1.0, 5.0, 5.0], Choice::Likeliest, 9), 1);
    }

    #[test]
    fn draws_follow_the_weights() {
        let shares = [0.1_f32, 0.2, 0.3, 0.4];
        let mut counts = [0; 4];
        for frame in 0..40_000 {
            let mut scores = shares.map(f32::ln);
            let choice = Choice::Drawn { temperature: 1.0, top_k: 0, top_p: 1.0 };
            counts[sample(&mut scores, choice, super::super::random_bits(1, frame, 0)) as usize] += 1;
        }
        for (count, share) in counts.into_iter().zip(shares) {
            assert!((f64::from(count) / 40_000.0 - f64::from(share)).abs() < 0.01, "{counts:?}");
        }
    }

    proptest! {
        #[test]
        fn samples_are_among_the_top_k_and_top_p(
            logits in proptest::collection::vec(-20.0_f32..20.0, 1..200),
            bits: u32, top_k in 1_usize..60, top_p in 0.05_f64..1.0,
        ) {
            let chosen = sample(&mut logits.clone(), Choice::Drawn { temperature: 0.7, top_k, top_p }, bits) as usize;
            let likelier = logits.iter().filter(|logit| **logit > logits[chosen]);
            prop_assert!(likelier.clone().count() < top_k);
            let weight = |logit: &f32| f64::from(logit / 0.7).exp();
            let (above, all): (f64, f64) = (likelier.map(weight).sum(), logits.iter().map(weight).sum());
            prop_assert!(above < (top_p + 1e-3) * all);
        }
    }

    #[test]
    fn random_bits_equal_known_ones() {
        let known = [(0, 0, 0), (42, 0, 0), (42, 1, 0), (42, 0, 1), (u64::MAX, 9, 15)];
        let bits = known.map(|(seed, frame, group)| random_bits(seed, frame, group));
        assert_eq!(bits, KNOWN);
    }

    /// As the same formula gives them in Python.
    const KNOWN: [u32; 5] = [2_688_605_155, 35_248_278, 2_119_382_838, 3_744_332_141, 174_379_659];

    #[test]
    fn random_bits_are_uniform_and_independent() {
        let drawn: Vec<f64> =
            (0..20_000).map(|at| f64::from(random_bits(7, at / 16, at % 16)) / f64::from(u32::MAX)).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let next: f64 = drawn.windows(2).map(|pair| (pair[0] - 0.5) * (pair[1] - 0.5)).sum::<f64>() * 12.0 / 19_999.0;
        assert!((mean - 0.5).abs() < 0.01 && next.abs() < 0.03, "mean {mean}, correlation {next}");
    }
}
