//! Properties that hold for any samples.

use laptime_stats::{
    Comparison, Group, Interval, Mark, Settings, Sorted, Steadiness, Summary, Verdict, change_points, compare, judge,
    marks, median_interval, slow_start, steadiness,
};
use proptest::collection::vec;
use proptest::prelude::*;

type Processes = Vec<Vec<f64>>;

fn samples() -> impl Strategy<Value = Vec<f64>> {
    vec(1.0..1e6, 6..40)
}

/// Values with many ties, as a coarse clock gives them.
fn ticks() -> impl Strategy<Value = Vec<f64>> {
    vec((1..6_u32).prop_map(f64::from), 6..40)
}

fn processes() -> impl Strategy<Value = Processes> {
    vec(vec(90.0..110.0, 1..6), 1..9)
}

fn shuffled<T: Clone + std::fmt::Debug>(values: Vec<T>) -> impl Strategy<Value = (Vec<T>, Vec<T>)> {
    (Just(values.clone()), Just(values).prop_shuffle())
}

fn sorted(values: &[f64]) -> Sorted<f64> {
    Sorted::<f64>::from_unsorted(values.to_vec()).expect("the values are finite")
}

fn interval(values: &[f64], level: f64, seed: u64) -> Interval {
    median_interval(&sorted(values), level, seed).expect("there are six values")
}

fn group(processes: &Processes) -> Group {
    Group::new(processes).expect("the processes are above 0")
}

fn compared(a: &Processes, b: &Processes, seed: u64) -> Comparison {
    let settings = Settings { seed, threshold: None };
    compare(&group(a), &group(b), &settings)
}

/// The ends of the interval of the difference, if there is one.
fn ends(found: &Comparison) -> Option<[f64; 2]> {
    found.judged.interval.map(|interval| [interval.low, interval.high])
}

fn mirrored(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Faster => Verdict::Slower,
        Verdict::Slower => Verdict::Faster,
        other => other,
    }
}

fn times(processes: &Processes, factor: f64) -> Processes {
    processes.iter().map(|processes| processes.iter().map(|take| take * factor).collect()).collect()
}

fn is_close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * one.abs().max(other.abs()).max(1.0)
}

fn kind(verdict: Verdict) -> std::mem::Discriminant<Verdict> {
    std::mem::discriminant(&verdict)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_interval_contains_the_median(values in prop_oneof![samples(), ticks()], seed: u64) {
        let median = sorted(&values).median().unwrap();
        prop_assert!(interval(&values, 0.95, seed).contains(median));
    }

    #[test]
    fn the_interval_stays_within_the_samples(values in samples(), seed: u64) {
        let (found, sorted) = (interval(&values, 0.95, seed), sorted(&values));
        prop_assert!(sorted.min().unwrap() <= found.low && found.high <= sorted.max().unwrap());
    }

    #[test]
    fn a_higher_level_never_narrows_the_interval(values in samples(), one in 0.1..0.99, other in 0.1..0.99, seed: u64) {
        prop_assume!(values.len() >= 8);
        let narrow = interval(&values, f64::min(one, other), seed);
        let wide = interval(&values, f64::max(one, other), seed);
        prop_assert!(wide.low <= narrow.low && narrow.high <= wide.high);
    }

    #[test]
    fn a_summary_scales_with_the_unit(values in samples(), factor in 1e-6..1e6, seed: u64) {
        let scaled: Vec<f64> = values.iter().map(|value| value * factor).collect();
        let (one, other) = (Summary::of(&sorted(&values), seed).unwrap(), Summary::of(&sorted(&scaled), seed).unwrap());
        let figures = |of: &Summary| {
            let interval = of.median_interval.unwrap();
            [of.median, of.mean, of.std.unwrap(), of.min, of.max, interval.low, interval.high]
        };
        prop_assert!(figures(&one).iter().zip(figures(&other)).all(|(one, other)| is_close(one * factor, other)));
        prop_assert!(is_close(one.variation.unwrap(), other.variation.unwrap()));
    }

    #[test]
    fn a_summary_moves_with_the_samples(values in samples(), by in -1e6..1e6_f64, seed: u64) {
        let moved: Vec<f64> = values.iter().map(|value| value + by).collect();
        let (one, other) = (Summary::of(&sorted(&values), seed).unwrap(), Summary::of(&sorted(&moved), seed).unwrap());
        let figures = |of: &Summary| {
            let interval = of.median_interval.unwrap();
            [of.median, of.mean, of.min, of.max, interval.low, interval.high]
        };
        let is_moved = |(one, other): (&f64, f64)| (one + by - other).abs() < 1e-6;
        prop_assert!(figures(&one).iter().zip(figures(&other)).all(is_moved));
        prop_assert!((one.std.unwrap() - other.std.unwrap()).abs() < 1e-6);
    }

    #[test]
    fn a_summary_does_not_depend_on_the_order((values, other) in samples().prop_flat_map(shuffled), seed: u64) {
        prop_assert_eq!(Summary::of(&sorted(&values), seed), Summary::of(&sorted(&other), seed));
    }

    #[test]
    fn swapping_the_sides_mirrors_the_comparison(a in processes(), b in processes(), seed: u64) {
        let (there, back) = (compared(&a, &b, seed), compared(&b, &a, seed));
        prop_assert_eq!(kind(there.judged.verdict), kind(mirrored(back.judged.verdict)));
        prop_assert_eq!((there.a, there.b, there.judged.needed), (back.b, back.a, back.judged.needed));
        prop_assert!(is_close((1.0 + there.judged.difference) * (1.0 + back.judged.difference), 1.0));
        prop_assert_eq!(ends(&there).is_some(), ends(&back).is_some());
        for ([low, _], [_, high]) in ends(&there).into_iter().zip(ends(&back)) {
            prop_assert!(is_close((1.0 + low) * (1.0 + high), 1.0));
        }
    }

    #[test]
    fn the_same_iterations_are_never_faster_or_slower(processes in processes(), seed: u64) {
        let found = compared(&processes, &processes, seed).judged;
        prop_assert!(matches!(found.verdict, Verdict::Same | Verdict::Unclear(_)));
        prop_assert!(found.interval.is_none_or(|interval| interval.contains(0.0)));
    }

    #[test]
    fn a_comparison_does_not_depend_on_the_order_of_processes_and_iterations(
        (a, shuffled_a) in processes().prop_flat_map(shuffled), b in processes(), seed: u64,
    ) {
        let reversed: Processes = shuffled_a.iter().map(|processes| processes.iter().rev().copied().collect()).collect();
        prop_assert_eq!(compared(&a, &b, seed), compared(&reversed, &b, seed));
    }

    #[test]
    fn a_comparison_does_not_depend_on_the_unit(a in processes(), b in processes(), power in -20..20_i32, seed: u64) {
        let unit = 2_f64.powi(power);
        let (one, other) = (compared(&a, &b, seed), compared(&times(&a, unit), &times(&b, unit), seed));
        prop_assert!(is_close(one.judged.difference, other.judged.difference));
        for ([one, _], [other, _]) in ends(&one).into_iter().zip(ends(&other)) {
            prop_assert!(is_close(one, other));
        }
        prop_assert!(is_close(one.a.typical * unit, other.a.typical));
    }

    #[test]
    fn a_threshold_never_makes_a_difference(a in processes(), b in processes(), threshold in 0.0..0.5, seed: u64) {
        let with = compare(&group(&a), &group(&b), &Settings { seed, threshold: Some(threshold) }).judged;
        let without = compared(&a, &b, seed).judged;
        prop_assert!(with.margin >= without.margin);
        let is_decided = |verdict| matches!(verdict, Verdict::Faster | Verdict::Slower);
        prop_assert!(!is_decided(with.verdict) || with.verdict == without.verdict);
    }

    #[test]
    fn the_intervals_of_a_comparison_contain_their_figures(a in processes(), b in processes(), seed: u64) {
        let found = compared(&a, &b, seed);
        let is_within = |interval: Option<Interval>, figure| interval.is_none_or(|ends| ends.contains(figure));
        prop_assert!(is_within(found.judged.interval, found.judged.difference));
        prop_assert!(is_within(found.a.interval, found.a.typical) && is_within(found.b.interval, found.b.typical));
    }

    #[test]
    fn the_same_requires_an_interval_within_the_margin_and_unclear_means_more_processes(a in processes(), b in processes()) {
        let found = judge(&group(&a), &group(&b), None);
        let fits = found.interval.is_some_and(|ends| -0.991e-2 < ends.low && ends.high < 1.001e-2);
        prop_assert_eq!(found.verdict == Verdict::Same, fits);
        let has = group(&a).processes().min(group(&b).processes());
        prop_assert!(found.needed.is_none_or(|needed| needed > has));
    }

    #[test]
    fn marks_move_with_their_samples((values, other) in ticks().prop_flat_map(shuffled)) {
        let marked = |values: &[f64]| {
            let mut pairs: Vec<(f64, Mark)> = values.iter().copied().zip(marks(values).unwrap()).collect();
            pairs.sort_by(|one, other| one.0.total_cmp(&other.0));
            pairs
        };
        prop_assert_eq!(marked(&values), marked(&other));
    }

    #[test]
    fn every_sample_gets_a_mark_and_at_least_half_are_typical(values in prop_oneof![samples(), ticks()]) {
        let found = marks(&values).unwrap();
        prop_assert_eq!(found.len(), values.len());
        prop_assert!(2 * found.iter().filter(|&&mark| mark == Mark::Typical).count() >= values.len());
    }

    #[test]
    fn a_steady_state_begins_within_the_series(values in vec(1.0..3.0, 0..120)) {
        let start = steadiness(&values).unwrap().start();
        prop_assert!(start.is_none_or(|start| start < values.len()));
    }

    #[test]
    fn change_points_ascend_within_the_series(values in prop_oneof![samples(), ticks()]) {
        let cuts = change_points(&values).unwrap();
        prop_assert!(cuts.is_sorted_by(|one, other| one < other));
        prop_assert!(cuts.iter().all(|&cut| 0 < cut && cut < values.len()));
    }

    #[test]
    fn a_slow_start_is_at_most_half(values in prop_oneof![samples(), ticks()]) {
        let count = slow_start(&values).unwrap().map_or(0, |start| start.count);
        prop_assert!(2 * count <= values.len());
    }

    #[test]
    fn steadiness_does_not_depend_on_the_unit(values in ticks(), power in -20..20_i32) {
        let scaled: Vec<f64> = values.iter().map(|value| value * 2_f64.powi(power)).collect();
        let (one, other) = (steadiness(&values).unwrap(), steadiness(&scaled).unwrap());
        prop_assert_eq!(std::mem::discriminant::<Steadiness>(&one), std::mem::discriminant(&other));
        prop_assert_eq!(one.start(), other.start());
    }
}
