//! Random numbers that depend on their place alone, so that every device draws the same.

use crate::synthetic::mix;

/// What is added before each mixing, so that zeros become other numbers: 2^32 over the golden ratio.
const STEP: u32 = 0x9e37_79b9;

/// The 32 random bits that choose one code: `group` 0 is the semantic one, chosen by the talker. `frame` is the frame that
/// the code belongs to.
///
/// With `m(h, x) = mix((h ^ x) + STEP)` and 32-bit numbers throughout it is
/// `m(m(m(m(0, low half of the seed), high half), frame), group)`.
pub fn random_bits(seed: u64, frame: u32, group: u32) -> u32 {
    let places = [seed as u32, (seed >> 32) as u32, frame, group];
    places.into_iter().fold(0, |hash, place| mix((hash ^ place).wrapping_add(STEP)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_bits_come_out() {
        let known = [(0, 0, 0), (42, 0, 0), (42, 1, 0), (42, 0, 1), (u64::MAX, 9, 15)];
        let bits = known.map(|(seed, frame, group)| random_bits(seed, frame, group));
        assert_eq!(bits, KNOWN);
    }

    /// As the same formula gives them in Python.
    const KNOWN: [u32; 5] = [2_688_605_155, 35_248_278, 2_119_382_838, 3_744_332_141, 174_379_659];

    #[test]
    fn bits_are_even_and_do_not_follow_from_their_neighbours() {
        let drawn: Vec<f64> =
            (0..20_000).map(|at| f64::from(random_bits(7, at / 16, at % 16)) / f64::from(u32::MAX)).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let next: f64 = drawn.windows(2).map(|pair| (pair[0] - 0.5) * (pair[1] - 0.5)).sum::<f64>() * 12.0 / 19_999.0;
        assert!((mean - 0.5).abs() < 0.01 && next.abs() < 0.03, "mean {mean}, correlation {next}");
    }
}
