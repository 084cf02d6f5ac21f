//! Quantiles of Student's t, for correct intervals from few processes.

use std::f64::consts::FRAC_PI_2;

/// Above this number of degrees of freedom the expansion in 1 / degrees is accurate to 1e-8 at the levels in use, and
/// faster than the sum.
const MANY: usize = 200;

/// Returns the two-sided t quantile: the half-width, in standard errors, of an interval of this level with this number
/// of degrees of freedom. `None` without a degree of freedom or with a level outside 0 to 1.
pub fn t_quantile(level: f64, degrees: usize) -> Option<f64> {
    if degrees > MANY {
        return normal_quantile(level).map(|z| expanded(z, degrees));
    }
    if degrees == 0 || !(0.0..1.0).contains(&level) {
        return None;
    }
    // With t = √d · tan(angle) the search runs over a bounded angle.
    let angle = bisect(0.0, FRAC_PI_2, |angle| two_sided_share(angle, degrees) < level);
    Some((degrees as f64).sqrt() * angle.tan())
}

/// Returns the two-sided quantile of the normal distribution.
pub fn normal_quantile(level: f64) -> Option<f64> {
    let t = t_quantile(level, MANY)?;
    Some(bisect(0.0, t, |z| expanded(z, MANY) < t))
}

/// Returns the two-sided probability that the means of equal samples are at least as far apart as those of `a` and `b`:
/// Welch's t test, which assumes normal samples. `None` if a sample has fewer than two members.
pub fn welch_probability(a: &[f64], b: &[f64]) -> Option<f64> {
    let [(mean_a, error_a), (mean_b, error_b)] = [mean_and_error(a)?, mean_and_error(b)?];
    let (distance, error) = ((mean_b - mean_a).abs(), error_a + error_b);
    if error == 0.0 {
        return Some(if distance == 0.0 { 1.0 } else { 0.0 });
    }
    let parts = error_a.powi(2) / (a.len() - 1) as f64 + error_b.powi(2) / (b.len() - 1) as f64;
    // Rounded down, which gives the wider interval.
    let degrees = (error.powi(2) / parts) as usize;
    let t = distance / error.sqrt();
    Some(1.0 - two_sided_share((t / (degrees as f64).sqrt()).atan(), degrees))
}

/// Returns the mean and the square of its standard error.
fn mean_and_error(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (mean, squares / (n - 1.0) / n))
}

/// Returns the share of a normal distribution within `z` (not negative) standard deviations of its mean.
pub(crate) fn normal_share(z: f64) -> f64 {
    two_sided_share((expanded(z, MANY) / (MANY as f64).sqrt()).atan(), MANY)
}

/// Returns the quantile of t for the normal quantile `z` (Abramowitz and Stegun 26.7.5).
fn expanded(z: f64, degrees: usize) -> f64 {
    let degrees = degrees as f64;
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / degrees + second / degrees.powi(2) + third / degrees.powi(3)
}

/// Returns the probability that |t| is at most √degrees · tan(angle) (Abramowitz and Stegun 26.7.3 and 26.7.4).
fn two_sided_share(angle: f64, degrees: usize) -> f64 {
    let (sin, cos) = angle.sin_cos();
    let is_odd = degrees % 2 == 1;
    let mut term = if is_odd { cos } else { 1.0 };
    let mut sum = 0.0;
    let mut step = if is_odd { 1 } else { 0 };
    while step + 2 <= degrees {
        sum += term;
        term *= cos * cos * (step + 1) as f64 / (step + 2) as f64;
        step += 2;
    }
    if is_odd { (angle + sin * sum) / FRAC_PI_2 } else { sin * sum }
}

/// Finds where a condition that holds at `low` stops holding.
fn bisect(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        *(if holds(middle) { &mut low } else { &mut high }) = middle;
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_degree_of_freedom_is_the_cauchy_distribution() {
        assert!((t_quantile(0.5, 1).unwrap() - 1.0).abs() < 1e-12);
    }

    // By hand: means 2.25 apart, squared errors 5/12 and 35/48, so t is 2.25 / sqrt(55/48) with 5.58 degrees of freedom.
    #[test]
    fn welchs_test_rounds_its_degrees_of_freedom_down() {
        let found = welch_probability(&[1.0, 2.0, 3.0, 4.0], &[3.0, 4.0, 5.0, 7.0]).unwrap();
        let t = t_quantile(1.0 - found, 5).unwrap();
        assert!((t - 2.25 / (55.0_f64 / 48.0).sqrt()).abs() < 1e-9, "{t}");
        assert_eq!(welch_probability(&[1.0, 1.0], &[1.0, 1.0]), Some(1.0));
        assert_eq!(welch_probability(&[1.0, 1.0], &[2.0, 2.0]), Some(0.0));
        assert_eq!(welch_probability(&[1.0], &[2.0, 3.0]), None);
    }

    #[test]
    fn the_share_within_a_quantile_is_its_level() {
        for level in [0.5, 0.95, 0.999] {
            assert!((normal_share(normal_quantile(level).unwrap()) - level).abs() < 1e-9);
        }
    }

    #[test]
    fn without_a_degree_of_freedom_there_is_no_quantile() {
        assert_eq!(t_quantile(0.95, 0), None);
    }

    #[test]
    fn a_level_of_one_has_no_quantile() {
        assert_eq!([t_quantile(1.0, 3), t_quantile(-0.1, 3), normal_quantile(f64::NAN)], [None; 3]);
    }
}
