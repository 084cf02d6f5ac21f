//! Estimates how long cases will take from their FLOPs and bytes and the peak rates of the device.

use std::collections::HashMap;

use laptime_analyze::plural;
use laptime_bench::{Case, Device, GivenSettings, Outcome, Seconds, Settings, Stop, WarmUp, Work};
use laptime_trace::run::Peaks;

use crate::app::App;

/// The assumed share of the peak rate.
const SHARE: f64 = 0.5;

/// The assumed number of iterations until the median is known.
const ITERATIONS: f64 = 20.0;

/// Additional iterations: the check and an automatic warm-up.
const ADDITIONAL: f64 = 3.0;

/// With less work than this, the rate of the CPU is not measured: even a slow CPU finishes within seconds.
pub const LITTLE_FLOPS: u64 = 20_000_000_000;

/// Estimates shorter than this are not printed.
const SHORT_SECONDS: f64 = 3.0;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Estimate {
    /// Seconds per process of each case with known work.
    seconds: HashMap<String, f64>,
    /// Seconds of all cases, if every case is known.
    total: Option<f64>,
}

impl Estimate {
    /// Without measured peaks, the rate of a CPU is measured if there is more work than `little_flops`.
    pub fn of(
        app: &App,
        (workload, device): (&str, &str),
        cases: &[Case],
        settings: &Settings,
        peaks: Option<&Peaks>,
        little_flops: u64,
    ) -> Self {
        let Some(workload) = app.registry.workload(workload) else { return Self::default() };
        let Ok(opened) = app.device(device) else { return Self::default() };
        let available = opened.available_bytes().unwrap_or(u64::MAX);
        let work = |case| {
            let Ok(parsed) = workload.parse(case, &*opened) else { return Some((case, None)) };
            // A case that does not fit into memory takes no time.
            let fits = parsed.predicted_bytes().is_none_or(|needed| needed <= available);
            fits.then(|| (case, parsed.predicted_work()))
        };
        let works: Vec<(&Case, Option<Work>)> = cases.iter().filter_map(work).collect();
        let flops = works.iter().filter_map(|(_, work)| Some(work.as_ref()?.flops)).fold(0, u64::saturating_add);
        let needs_rate = peaks.is_none() && flops > little_flops;
        let rate = needs_rate.then(|| app.cpu_rate(device)).flatten();
        let iteration = |work: &Work| match laptime_analyze::limits(work, 1.0, peaks).limit_ns {
            Some(nanos) => Some(nanos / 1e9 / SHARE),
            None => rate.map(|rate| work.flops as f64 / (SHARE * rate)),
        };
        let known = |(case, work): &(&Case, Option<Work>)| {
            Some((case.to_string(), case_seconds(iteration(work.as_ref()?)?, settings)))
        };
        let seconds: HashMap<String, f64> = works.iter().filter_map(known).collect();
        let is_whole = works.iter().all(|(case, _)| seconds.contains_key(&case.to_string()));
        let total = is_whole.then(|| seconds.values().sum::<f64>() * f64::from(settings.runs.max(1)));
        Self { seconds, total: total.filter(|_| !works.is_empty()) }
    }

    #[cfg(test)]
    pub fn known<const N: usize>(cases: [(Case, f64); N]) -> Self {
        let total = Some(cases.iter().map(|(_, seconds)| seconds).sum());
        Self { seconds: cases.iter().map(|(case, seconds)| (case.to_string(), *seconds)).collect(), total }
    }

    /// Seconds of a case in one process.
    pub fn case(&self, case: &Case) -> Option<f64> {
        self.seconds.get(&case.to_string()).copied()
    }

    /// Seconds of all cases.
    pub fn total(&self) -> Option<f64> {
        self.total
    }

    /// A sentence for the user; none if the estimate is short or unknown.
    pub fn sentence(&self, cases: usize) -> Option<String> {
        let total = self.total.filter(|total| *total >= SHORT_SECONDS)?;
        let cases = plural(cases, "case", "cases");
        Some(format!("{cases}, about {} (estimated from their work and the speed of the device)", words(total)))
    }
}

/// Seconds of a case, given the seconds of an iteration.
fn case_seconds(iteration: f64, settings: &Settings) -> f64 {
    let warmup = match settings.warmup {
        WarmUp::Iterations(count) => 1.0 + count as f64,
        WarmUp::Auto => ADDITIONAL,
    };
    let measuring = match settings.stop {
        Stop::Iterations(count) => count as f64 * iteration,
        Stop::Interval { at_most_ns, .. } => (ITERATIONS * iteration).min(at_most_ns as f64 / 1e9),
    };
    measuring + warmup * iteration
}

/// FLOP/s of an f32 matrix product on the CPU; none for other devices.
pub fn cpu_rate(app: &App, device: &dyn Device) -> Option<f64> {
    let workload = app.registry.workload("matmul").filter(|_| device.name() == "cpu")?;
    let axes = [("size", "512"), ("dtype", "f32")].map(|(axis, word)| (axis.to_owned(), vec![word.to_owned()]));
    let case = workload.plan(&axes).ok()?.cases().into_iter().next()?;
    let given =
        GivenSettings { max_time: Some(Seconds(0.2)), min_time: Some(Seconds(0.05)), ..GivenSettings::default() };
    let settings = given.settle().ok()?;
    let Outcome::Measured(measured) = laptime_bench::measure(workload, &case, device, &settings, &mut ()) else {
        return None;
    };
    let fastest = measured.wall_ns.iter().copied().min().filter(|nanos| *nanos > 0)?;
    Some(measured.work?.flops as f64 / fastest as f64 * 1e9)
}

pub fn words(seconds: f64) -> String {
    match seconds {
        ..90.0 => format!("{:.0} s", seconds.max(1.0)),
        ..5400.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(given: GivenSettings) -> Settings {
        given.settle().unwrap()
    }

    #[test]
    fn a_case_runs_twenty_iterations_unless_time_is_up() {
        let five = settings(GivenSettings { max_time: Some(Seconds(5.0)), ..GivenSettings::default() });
        assert!((case_seconds(1.0, &five) - 8.0).abs() < 1e-9, "5 s of iterations, the check and a warm-up");
        assert!((case_seconds(0.01, &five) - 0.23).abs() < 1e-9);
    }

    #[test]
    fn fixed_iterations_are_counted_with_the_check() {
        let warmup = Some(WarmUp::Iterations(2));
        let fixed = settings(GivenSettings { warmup, iterations: Some(10), ..GivenSettings::default() });
        assert!((case_seconds(1.0, &fixed) - 13.0).abs() < 1e-9);
    }

    #[test]
    fn the_time_of_a_case_grows_with_its_work() {
        let app = App::new(Vec::new(), Vec::new());
        let axes = [("size".to_owned(), vec!["128,256".to_owned()])];
        let (matmul, device) = (app.registry.workload("matmul").unwrap(), app.device("cpu").unwrap());
        let cases = matmul.plan(&axes).unwrap().cases();
        let works = cases.iter().map(|case| matmul.parse(case, &*device).unwrap().predicted_work().unwrap().flops);
        assert_eq!(works.collect::<Vec<_>>(), [2 * 128_u64.pow(3), 2 * 256_u64.pow(3)]);
        let little =
            Estimate::of(&app, ("matmul", "cpu"), &cases, &settings(GivenSettings::default()), None, LITTLE_FLOPS);
        assert_eq!((little.total(), little.sentence(2)), (None, None), "nothing is timed for so little work");
    }

    #[test]
    fn durations_are_rounded() {
        assert_eq!([0.2, 89.0, 95.0, 7200.0].map(words), ["1 s", "89 s", "2 min", "2.0 h"]);
    }
}
