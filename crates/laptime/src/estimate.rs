//! How long the steps of a suite will take on a CPU: operations counted, over those of a matrix product that is timed.

use std::time::Duration;

use laptime_bench::{Case, CaseResult, GivenSettings, Outcome, Seconds, Sink, measure};
use laptime_models::Config;

use crate::app::App;

/// The share of a matrix product's speed that attention and models are taken to reach.
const SHARE: f64 = 0.5;

/// Iterations that a case is taken to need, unless time is up before.
const ITERATIONS: f64 = 20.0;

/// Runs of the work beside the iterations: the check, and the first of a warm-up.
const BESIDE: f64 = 3.0;

/// Attention as the suite measures it: heads, their size, and the keys that a token of a sparse pattern sees.
const HEADS: f64 = 16.0;
const HEAD_DIM: f64 = 64.0;
const SPARSE_KEYS: f64 = 352.0;

/// How long steps will take; nothing is known on a GPU.
pub struct Estimate {
    /// Seconds of each step that measures, if they can be told.
    steps: Option<Vec<f64>>,
    /// Seconds of the steps that are done, expected and taken.
    expected: f64,
    taken: f64,
}

impl Estimate {
    /// Times a matrix product on the CPU, and counts.
    pub fn of(app: &App, device: &str, is_full: bool, at_most: f64) -> Self {
        let steps = rate(app, device).map(|rate| {
            let seconds = |flops: &f64| seconds(*flops, rate, at_most);
            work(is_full).iter().map(|cases| cases.iter().map(seconds).sum()).collect()
        });
        Self { steps, expected: 0.0, taken: 0.0 }
    }

    /// The estimate in a sentence.
    pub fn sentence(&self) -> Option<String> {
        let all: f64 = self.steps.as_ref()?.iter().sum();
        Some(format!(
            "About {} on this CPU: an estimate from operations counted and a matrix product that was timed.",
            words(all)
        ))
    }

    /// The time that is left from a step on, corrected by how long the ones before took.
    pub fn left(&self, from: usize) -> String {
        let Some(steps) = &self.steps else { return String::new() };
        let off = if self.expected > 0.0 { (self.taken / self.expected).clamp(0.1, 10.0) } else { 1.0 };
        let left: f64 = steps.iter().skip(from).sum();
        format!(", about {} left", words(off * left))
    }

    /// A step is done.
    pub fn took(&mut self, step: usize, time: Duration) {
        self.expected += self.steps.as_ref().and_then(|steps| steps.get(step)).copied().unwrap_or(0.0);
        self.taken += time.as_secs_f64();
    }
}

/// The time of a case whose work has so many operations.
fn seconds(flops: f64, rate: f64, at_most: f64) -> f64 {
    let iteration = flops / (SHARE * rate);
    (ITERATIONS * iteration).min(at_most) + BESIDE * iteration
}

/// The operations of each case, step by step.
fn work(is_full: bool) -> [Vec<f64>; 2] {
    let of_pairs = |pairs: f64| 4.0 * HEADS * HEAD_DIM * pairs;
    let attention = |n: f64| [of_pairs(0.5 * n * n), of_pairs(SPARSE_KEYS.min(0.5 * n) * n)];
    let forward = |parameters: f64, n: f64| 2.0 * parameters * n;
    let [tiny, small] = ["decoder_tiny", "decoder_small"]
        .map(|name| Config::from_preset(name).map_or(0.0, |config| config.parameters() as f64));
    if !is_full {
        let of_model = [256.0, 512.0].map(|n| forward(tiny, n));
        return [[512.0, 1024.0].into_iter().flat_map(attention).collect(), of_model.to_vec()];
    }
    let lengths = [512.0, 1024.0, 2048.0, 4096.0, 8192.0];
    let of_model = [tiny, small].into_iter().flat_map(|parameters| {
        [256.0, 512.0, 1024.0].into_iter().flat_map(move |n| [1.0, 3.0].map(|passes| passes * forward(parameters, n)))
    });
    [lengths.into_iter().flat_map(attention).collect(), of_model.collect()]
}

/// Operations a second of a matrix product in f32; none on anything but a CPU.
fn rate(app: &App, device: &str) -> Option<f64> {
    let device = app.device(device).ok().filter(|device| device.name() == "cpu")?;
    let workload = app.registry.workload("matmul")?;
    let axes = [("size", "512"), ("dtype", "f32")].map(|(axis, word)| (axis.to_owned(), vec![word.to_owned()]));
    let case = workload.plan(&axes).ok()?.cases().into_iter().next()?;
    let given =
        GivenSettings { max_time: Some(Seconds(0.2)), min_time: Some(Seconds(0.05)), ..GivenSettings::default() };
    let Outcome::Measured(measured) = measure(workload, &case, &*device, &given.settle().ok()?, &mut Silent) else {
        return None;
    };
    let fastest = measured.wall_ns.iter().copied().min().filter(|nanos| *nanos > 0)?;
    Some(measured.work?.flops as f64 / fastest as f64 * 1e9)
}

/// Shows and keeps nothing.
struct Silent;

impl Sink for Silent {
    fn begin(&mut self, _: &Case, _: u32) {}

    fn iteration(&mut self, _: u64, _: bool) {}

    fn result(&mut self, _: CaseResult) -> anyhow::Result<()> {
        Ok(())
    }
}

/// A time as people tell it.
fn words(seconds: f64) -> String {
    match seconds {
        few if few < 90.0 => format!("{:.0} s", few.max(1.0)),
        some if some < 5400.0 => format!("{:.0} min", some / 60.0),
        many => format!("{:.1} h", many / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_taken_twenty_times_unless_time_is_up() {
        assert!(
            (seconds(50e9, 100e9, 5.0) - 8.0).abs() < 1e-9,
            "an iteration of a second: 5 s of iterations, and 3 more"
        );
        assert!((seconds(0.5e9, 100e9, 5.0) - 0.23).abs() < 1e-9);
    }

    #[test]
    fn what_is_left_is_corrected_by_what_was_taken() {
        let mut estimate = Estimate { steps: Some(vec![10.0, 100.0]), expected: 0.0, taken: 0.0 };
        assert_eq!(estimate.left(0), ", about 2 min left");
        estimate.took(0, Duration::from_secs(20));
        assert_eq!(estimate.left(1), ", about 3 min left");
    }

    #[test]
    fn times_are_told_roughly() {
        assert_eq!([0.2, 89.0, 95.0, 7200.0].map(words), ["1 s", "89 s", "2 min", "2.0 h"]);
    }
}
