//! Change points and steady states of synthetic series with seeded noise.

use crate::common::normal;
use laptime_stats::{Rng, Steadiness, change_points, steadiness};

const SEEDS: u64 = 10;

/// Iterations around `level(at)` with 1 % noise and one slow iteration in thirty.
fn series(n: usize, seed: u64, level: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut rng = Rng::new(seed);
    let mut noise = || {
        let slow = if rng.uniform() < 0.03 { 0.3 * rng.uniform() } else { 0.0 };
        (0.01 * normal(&mut rng) + slow).exp()
    };
    (0..n).map(|at| level(at) * noise()).collect()
}

/// Returns the answer of most seeds, and how many of them give it.
fn answers(n: usize, level: impl Fn(usize) -> f64 + Copy) -> Vec<Steadiness> {
    (0..SEEDS).map(|seed| steadiness(&series(n, seed, level)).expect("the series is finite")).collect()
}

fn count(answers: &[Steadiness], is_expected: impl Fn(&Steadiness) -> bool) -> usize {
    answers.iter().filter(|answer| is_expected(answer)).count()
}

#[test]
fn a_step_is_found_within_two_samples() {
    for seed in 0..SEEDS {
        let cuts = change_points(&series(80, seed, |at| if at < 30 { 110.0 } else { 100.0 })).unwrap();
        assert!(matches!(cuts[..], [28..=32]), "seed {seed}: {cuts:?}");
    }
}

#[test]
fn noise_alone_has_no_change_points() {
    let calm = (0..SEEDS).filter(|&seed| change_points(&series(200, seed, |_| 100.0)).unwrap().is_empty());
    assert!(calm.count() >= 9);
}

#[test]
fn noise_alone_is_flat() {
    let answers = answers(100, |_| 100.0);
    assert!(count(&answers, |answer| matches!(answer, Steadiness::Flat { .. })) >= 9, "{answers:?}");
}

#[test]
fn a_slow_beginning_is_a_warm_up_that_ends_where_the_level_falls() {
    for answer in answers(100, |at| if at < 25 { 110.0 } else { 100.0 }) {
        let Steadiness::WarmUp(from) = answer else { panic!("{answer:?}") };
        assert!((23..=27).contains(&from.start), "{from:?}");
        assert!((99.0..101.0).contains(&from.level) && (108.0..112.0).contains(&from.before), "{from:?}");
    }
}

#[test]
fn a_single_slow_first_iteration_is_a_warm_up_of_one() {
    let answers = answers(40, |at| if at == 0 { 300.0 } else { 100.0 });
    assert!(count(&answers, |answer| answer.start() == Some(1)) >= 9, "{answers:?}");
}

#[test]
fn a_decay_is_a_warm_up() {
    let answers = answers(200, |at| 100.0 + 50.0 * (-(at as f64) / 10.0).exp());
    assert!(count(&answers, |answer| matches!(answer, Steadiness::WarmUp(_))) >= 9, "{answers:?}");
}

#[test]
fn a_level_that_rises_once_and_stays_is_a_slowdown() {
    for answer in answers(100, |at| if at < 33 { 100.0 } else { 105.0 }) {
        assert!(matches!(answer, Steadiness::SlowDown(from) if (28..=38).contains(&from.start)), "{answer:?}");
    }
}

#[test]
fn a_ramp_has_no_steady_state() {
    for answer in answers(100, |at| 100.0 + 0.2 * at as f64) {
        assert_eq!(answer, Steadiness::NoSteadyState);
    }
}

#[test]
fn a_level_that_changed_just_before_the_end_is_not_a_steady_state() {
    for answer in answers(100, |at| if at < 85 { 100.0 } else { 110.0 }) {
        assert_eq!(answer, Steadiness::NoSteadyState);
    }
}

#[test]
fn a_level_that_goes_up_and_down_has_no_steady_state() {
    for answer in answers(200, |at| if at / 25 % 2 == 0 { 100.0 } else { 108.0 }) {
        assert_eq!(answer, Steadiness::NoSteadyState);
    }
}

#[test]
fn correlated_iterations_are_still_flat() {
    let drifting = |seed: u64| {
        let mut rng = Rng::new(seed);
        let mut noise = 0.0;
        let mut iteration = || {
            noise = 0.6 * noise + 0.8 * normal(&mut rng);
            100.0 + noise
        };
        (0..300).map(|_| iteration()).collect::<Vec<_>>()
    };
    let flat = |seed: &u64| matches!(steadiness(&drifting(*seed)), Ok(Steadiness::Flat { .. }));
    assert!((0..SEEDS).filter(flat).count() >= 9);
}

#[test]
fn nine_iterations_are_too_short_for_an_answer() {
    assert_eq!(steadiness(&[1.0; 9]), Ok(Steadiness::TooShort));
    assert_eq!(steadiness(&[]), Ok(Steadiness::TooShort));
}

#[test]
fn equal_iterations_are_flat() {
    assert_eq!(steadiness(&[3.0; 10]), Ok(Steadiness::Flat { level: 3.0 }));
}
