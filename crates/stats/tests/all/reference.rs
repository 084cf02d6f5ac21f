//! Results compared with those of numpy and scipy.

use laptime_stats::spread::{MAD_TO_STD, hodges_lehmann, mad, median};
use laptime_stats::student::{normal_quantile, t_quantile};
use laptime_stats::{Interval, Sorted, Summary, mann_kendall, median_interval, theil_sen};

const SEEDS: u64 = 40;
const REFERENCE: &str = include_str!("../data/reference.tsv");

struct Line {
    argument: Vec<f64>,
    figure: f64,
    values: Vec<f64>,
}

fn numbers(text: &str) -> Vec<f64> {
    text.split(' ').filter(|&part| part != "-").map(|part| part.parse().expect("the script writes numbers")).collect()
}

fn lines(quantity: &str) -> Vec<Line> {
    let fields = |line: &'static str| line.split('\t').collect::<Vec<_>>();
    let of_quantity = REFERENCE.lines().map(fields).filter(|fields| fields[0] == quantity);
    let line = |fields: Vec<&str>| Line {
        argument: numbers(fields[1]),
        figure: numbers(fields[2])[0],
        values: numbers(fields[3]),
    };
    let found: Vec<Line> = of_quantity.map(line).collect();
    assert!(!found.is_empty(), "`{quantity}` is not in the table");
    found
}

/// Compares a result with the reference, with a relative tolerance.
fn agrees(quantity: &str, share: f64, figure: impl Fn(&Line) -> f64) {
    for line in lines(quantity) {
        let (found, expected) = (figure(&line), line.figure);
        let error = (found - expected).abs();
        assert!(error <= share * expected.abs().max(1e-12), "{quantity}: {found}, the reference has {expected}");
    }
}

fn sorted(values: &[f64]) -> Sorted<f64> {
    Sorted::<f64>::from_unsorted(values.to_vec()).expect("the values are finite")
}

fn summary(values: &[f64]) -> Summary {
    Summary::of(&sorted(values), 1).expect("there are values")
}

#[test]
fn a_summary_agrees_with_numpy_and_scipy() {
    agrees("mean", 1e-13, |line| summary(&line.values).mean);
    agrees("std", 1e-13, |line| summary(&line.values).std.unwrap());
    agrees("variation", 1e-13, |line| summary(&line.values).variation.unwrap());
    agrees("median", 1e-13, |line| summary(&line.values).median);
}

#[test]
fn tails_agree_with_numpy() {
    agrees("tail", 1e-13, |line| {
        let summary = summary(&line.values);
        if line.argument[0] < 0.5 { summary.p5 } else { summary.p95 }.unwrap()
    });
}

#[test]
fn centre_and_spread_agree_with_scipy() {
    agrees("median", 1e-13, |line| median(&line.values).unwrap());
    agrees("mad", 1e-13, |line| mad(&line.values).unwrap());
    agrees("mad_to_std", 1e-13, |line| MAD_TO_STD * mad(&line.values).unwrap());
    agrees("hodges_lehmann", 1e-13, |line| hodges_lehmann(&line.values).unwrap());
}

#[test]
fn trends_agree_with_scipy() {
    agrees("theil_sen", 1e-9, |line| theil_sen(&line.values).unwrap());
    agrees("mann_kendall", 1e-12, |line| mann_kendall(&line.values));
}

fn shifted(line: &Line) -> laptime_stats::Shift {
    let (a, b) = line.values.split_at(line.argument[1] as usize);
    laptime_stats::shift(a, b, line.argument[0]).expect("the samples are large enough")
}

#[test]
fn the_shift_between_two_samples_agrees_with_scipys_rank_sum_test() {
    agrees("shift_low", 1e-12, |line| shifted(line).interval.low);
    agrees("shift_high", 1e-12, |line| shifted(line).interval.high);
    agrees("shift", 1e-12, |line| shifted(line).estimate);
}

#[test]
fn quantiles_of_t_agree_with_scipy() {
    agrees("t_quantile", 2e-8, |line| t_quantile(line.argument[0], line.argument[1] as usize).unwrap());
    agrees("normal_quantile", 2e-8, |line| normal_quantile(line.argument[0]).unwrap());
}

// The random numbers differ, and the ends jump from one sample to the next, so
// the mean over seeds is compared, as a share of the width.
#[test]
fn the_bootstrap_interval_agrees_with_scipy() {
    for (low, high) in lines("bootstrap_low").into_iter().zip(lines("bootstrap_high")) {
        let samples = sorted(&low.values);
        let ours: Vec<Interval> =
            (0..SEEDS).map(|seed| median_interval(&samples, low.argument[0], seed).unwrap()).collect();
        let mean = |of: fn(&Interval) -> f64| ours.iter().map(of).sum::<f64>() / SEEDS as f64;
        let errors = [mean(|ours| ours.low) - low.figure, mean(|ours| ours.high) - high.figure];
        let shares = errors.map(|error| error.abs() / (high.figure - low.figure));
        assert!(shares.iter().all(|&share| share < 0.02), "{shares:?} of the width, n = {}", low.values.len());
    }
}
