//! Samples a token step by step. Weights are integers, so that every device draws the same token.

use laptime_cuda::decode::Rules;

/// The weight of the most likely token.
const LIKELIEST: f32 = (1 << 30) as f32;

/// Pseudorandom bits, different for each seed, frame and group.
pub fn random_bits(seed: u64, frame: u32, group: u32) -> u32 {
    let places = [seed as u32, (seed >> 32) as u32, frame, group];
    places.into_iter().fold(0, |hash: u32, place| mixed((hash ^ place).wrapping_add(0x9e37_79b9)))
}

fn mixed(mut bits: u32) -> u32 {
    bits ^= bits >> 16;
    bits = bits.wrapping_mul(0x85eb_ca6b);
    bits ^= bits >> 13;
    bits = bits.wrapping_mul(0xc2b2_ae35);
    bits ^ bits >> 16
}

/// The inputs of sampling.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'a> {
    /// The logits.
    pub logits: &'a [f32],
    /// Tokens that must not be sampled.
    pub suppressed: &'a [u32],
    /// Tokens that were sampled before.
    pub seen: &'a [u32],
    /// The frame and the group.
    pub place: [u32; 2],
    /// Whether the end token is allowed.
    pub may_end: bool,
}

/// The sampled token.
pub fn sample(of: &Chosen<'_>, rules: &Rules) -> u32 {
    let mut scores = scores(of, rules);
    let likeliest = largest(&scores);
    let Some(top) = likeliest.map(|at| scores[at]).filter(|_| rules.temperature > 0.0) else {
        return likeliest.unwrap_or(0) as u32;
    };
    keep_top_k(&mut scores, rules.top_k as usize);
    let mut weights: Vec<u32> = scores.iter().map(|score| weight(score - top)).collect();
    keep_top_p(&scores, &mut weights, rules.top_p);
    let [frame, group] = of.place;
    let drawn = draw(&weights, random_bits(rules.seed, frame, group));
    drawn.or(likeliest).unwrap_or(0) as u32
}

fn scores(of: &Chosen<'_>, rules: &Rules) -> Vec<f32> {
    let mut scores = of.logits.to_vec();
    for token in of.seen {
        let score = &mut scores[*token as usize];
        *score = if *score < 0.0 { *score * rules.repetition_penalty } else { *score / rules.repetition_penalty };
    }
    for token in of.suppressed {
        scores[*token as usize] = f32::NEG_INFINITY;
    }
    if of.may_end && of.place[0] < rules.least_frames && (rules.end as usize) < scores.len() {
        scores[rules.end as usize] = f32::NEG_INFINITY;
    }
    if rules.temperature > 0.0 {
        scores.iter_mut().for_each(|score| *score /= rules.temperature);
    }
    scores
}

/// The lowest index of the largest value that is neither NaN nor minus infinity.
fn largest(scores: &[f32]) -> Option<usize> {
    let numbers = scores.iter().enumerate().filter(|(_, score)| **score > f32::NEG_INFINITY);
    numbers.fold(None, |best: Option<usize>, (at, score)| match best {
        Some(most) if *score <= scores[most] => best,
        _ => Some(at),
    })
}

fn keep_top_k(scores: &mut [f32], k: usize) {
    let mut sorted: Vec<f32> = scores.iter().copied().filter(|score| !score.is_nan()).collect();
    sorted.sort_by(|a, b| b.total_cmp(a));
    if let Some(least) = k.checked_sub(1).and_then(|last| sorted.get(last)) {
        scores.iter_mut().filter(|score| **score < *least).for_each(|score| *score = f32::NEG_INFINITY);
    }
}

/// The weight of a score at this distance from the largest.
fn weight(apart: f32) -> u32 {
    (power_of_e(apart) * LIKELIEST).round_ties_even() as u32
}

/// The exponential function, with operations that every device has.
fn power_of_e(number: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    let number = if number < -87.3 { -87.3 } else { number };
    let number = if number > 88.3 { 88.3 } else { number };
    let rounded = number * std::f32::consts::LOG2_E + ROUND;
    let whole = rounded - ROUND;
    let rest = number - whole * 0.693_359_4 - whole * -2.121_944_4e-4;
    let terms = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0];
    let series = terms.into_iter().fold(1.0 / 5040.0, |sum, term| sum * rest + term);
    let power = series * rest + 1.0;
    f32::from_bits(power.to_bits().wrapping_add(rounded.to_bits() << 23))
}

fn keep_top_p(scores: &[f32], weights: &mut [u32], top_p: f64) {
    if top_p >= 1.0 {
        return;
    }
    let all = weights.to_vec();
    let enough = (top_p * all.iter().map(|weight| u64::from(*weight)).sum::<u64>() as f64).ceil() as u64;
    for (at, weight) in weights.iter_mut().enumerate() {
        let above = scores.iter().zip(&all).filter(|(score, _)| **score > scores[at]);
        let above: u64 = above.map(|(_, weight)| u64::from(*weight)).sum();
        if above > 0 && above >= enough {
            *weight = 0;
        }
    }
}

fn draw(weights: &[u32], bits: u32) -> Option<usize> {
    let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let place = ((u128::from(bits) * u128::from(total)) >> 32) as u64;
    let mut sum = 0_u64;
    weights.iter().position(|weight| {
        sum += u64::from(*weight);
        sum > place
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Rules =
        Rules { temperature: 1.0, repetition_penalty: 1.0, top_k: 0, top_p: 1.0, seed: 1, least_frames: 0, end: 9 };

    fn of(logits: &[f32]) -> Chosen<'_> {
        Chosen { logits, suppressed: &[], seen: &[], place: [0, 0], may_end: false }
    }

    /// All tokens that are ever drawn.
    fn drawn(of: &Chosen<'_>, rules: &Rules) -> Vec<u32> {
        let mut drawn: Vec<u32> =
            (0..2000).map(|group| sample(&Chosen { place: [of.place[0], group], ..*of }, rules)).collect();
        drawn.sort_unstable();
        drawn.dedup();
        drawn
    }

    #[test]
    fn the_likeliest_are_kept_with_their_equals() {
        let logits = [1.0, 3.0, 2.0, 2.0, 0.0];
        assert_eq!(drawn(&of(&logits), &Rules { top_k: 2, ..PLAIN }), [1, 2, 3]);
        assert_eq!(drawn(&of(&logits), &Rules { top_k: 9, ..PLAIN }), [0, 1, 2, 3, 4]);
        assert_eq!(drawn(&of(&logits), &Rules { temperature: 0.0, ..PLAIN }), [1]);
    }

    #[test]
    fn a_share_of_all_weights_cuts_the_least_likely() {
        let logits = [0.5_f32, 0.25, 0.125, 0.125].map(f32::ln);
        assert_eq!(drawn(&of(&logits), &Rules { top_p: 0.4, ..PLAIN }), [0]);
        assert_eq!(drawn(&of(&logits), &Rules { top_p: 0.7, ..PLAIN }), [0, 1]);
        assert_eq!(drawn(&of(&logits), &Rules { top_p: 0.8, ..PLAIN }), [0, 1, 2, 3]);
    }

    #[test]
    fn what_was_said_is_penalised_and_what_must_not_be_is_left_out() {
        let logits = [2.0, -2.0, 1.9, f32::NAN];
        let seen = Chosen { seen: &[0, 1], ..of(&logits) };
        assert_eq!(scores(&seen, &Rules { repetition_penalty: 2.0, ..PLAIN })[..3], [1.0, -4.0, 1.9]);
        let left_out = Chosen { suppressed: &[2], place: [1, 0], may_end: true, ..of(&logits) };
        assert_eq!(drawn(&left_out, &Rules { end: 0, least_frames: 2, ..PLAIN }), [1]);
        assert_eq!(drawn(&left_out, &Rules { end: 0, least_frames: 1, ..PLAIN }), [0, 1]);
    }

    #[test]
    fn what_has_no_finite_weight_is_the_likeliest() {
        assert_eq!(sample(&of(&[0.0, f32::INFINITY, f32::INFINITY]), &PLAIN), 1);
        assert_eq!(sample(&of(&[f32::NAN, f32::NAN]), &PLAIN), 0);
    }

    #[test]
    fn draws_come_as_often_as_their_weights() {
        let logits = [0.1_f32, 0.2, 0.3, 0.4].map(f32::ln);
        let mut counts = [0_u32; 4];
        for frame in 0..40_000 {
            counts[sample(&Chosen { place: [frame, 3], ..of(&logits) }, &PLAIN) as usize] += 1;
        }
        for (count, share) in counts.into_iter().zip([0.1, 0.2, 0.3, 0.4]) {
            assert!((f64::from(count) / 40_000.0 - share).abs() < 0.01, "{counts:?}");
        }
    }
}
