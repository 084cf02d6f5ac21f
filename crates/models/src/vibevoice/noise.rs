//! Noise that depends on its place alone, so that every device begins with the same.

use crate::tts::random_bits;

/// This many numbers as they are drawn from a normal distribution, for one place: pairs of even numbers turned into pairs of
/// normal ones (Box and Muller), in 64 bits.
pub fn normal(seed: u64, place: u32, count: usize) -> Vec<f32> {
    let pairs = (0..count.div_ceil(2)).flat_map(|pair| {
        let even = |which: u32| (f64::from(random_bits(seed, place, 2 * pair as u32 + which)) + 0.5) / 2.0_f64.powi(32);
        let (length, angle) = ((-2.0 * even(0).ln()).sqrt(), std::f64::consts::TAU * even(1));
        [(length * angle.cos()) as f32, (length * angle.sin()) as f32]
    });
    pairs.take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_normal_and_those_of_their_place() {
        let drawn: Vec<f64> = (0..500).flat_map(|place| normal(7, place, 63)).map(f64::from).collect();
        let count = drawn.len() as f64;
        let moment = |power: i32| drawn.iter().map(|number| number.powi(power)).sum::<f64>() / count;
        assert!(moment(1).abs() < 0.02 && (moment(2) - 1.0).abs() < 0.03, "{} {}", moment(1), moment(2));
        assert!((moment(4) - 3.0).abs() < 0.2, "{}", moment(4));
        assert_eq!(normal(7, 3, 5), normal(7, 3, 64)[..5]);
        assert_ne!(normal(7, 3, 5), normal(7, 4, 5));
        assert_ne!(normal(7, 3, 5), normal(8, 3, 5));
    }
}
