//! The results of a benchmark: figures per case, over all processes.

use laptime_stats::{
    Mark, SlowStart, Steadiness, marks, slow_start,
    spread::{median, median_of},
    steadiness,
};
use laptime_trace::run::{AxisValue, Better, CaseResult, DeviceState, Fact, Measured, Peaks, Steady, StopReason};

use crate::by_case::{CaseId, Processes, Trouble, by_case};
use crate::figures::{Figures, numbers};
use crate::limits::{Limits, limits};

/// The cases of a run, in the order in which they were measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cases {
    /// The cases.
    pub cases: Vec<CaseFigures>,
    /// The peaks used for `mfu`, `mbu` and limits.
    pub peaks: Option<Peaks>,
}

impl Cases {
    /// Whether a process of any case failed.
    pub fn has_failed(&self) -> bool {
        let failed = |trouble: &Trouble| trouble.kind.word() == "failed";
        self.cases.iter().any(|case| case.troubles.iter().any(failed))
    }
}

/// One case.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseFigures {
    /// Which case.
    pub id: CaseId,
    /// Processes that gave no figures, and why.
    pub troubles: Vec<Trouble>,
    /// The figures of the other processes; none if there are none.
    pub measured: Option<MeasuredFigures>,
}

impl CaseFigures {
    /// The outcome for tables: measured if at least one process was.
    pub fn outcome(&self) -> &'static str {
        match (&self.measured, self.troubles.first()) {
            (None, Some(trouble)) => trouble.kind.word(),
            _ => "measured",
        }
    }
}

/// What the processes of a case measured.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredFigures {
    /// The time of an iteration, in nanoseconds.
    pub wall: Figures,
    /// The time of an iteration on the device clock, in nanoseconds: the median of all iterations that have it.
    pub device_ns: Option<f64>,
    /// The time of an iteration in which the device worked, in nanoseconds: the median.
    pub busy_ns: Option<f64>,
    /// The state of the device.
    pub state: StateFigures,
    /// The metrics of the workload.
    pub metrics: Vec<MetricFigures>,
    /// The work of an iteration relative to the peaks; none if the workload does not report its work.
    pub limits: Option<Limits>,
    /// Further facts about the case, from the first process that has them.
    pub facts: Vec<Fact>,
    /// The peak memory of the device in any process.
    pub peak_bytes: Option<u64>,
    /// The peak resident memory of any process.
    pub peak_rss_bytes: Option<u64>,
    /// The preparation time in nanoseconds: the median over processes.
    pub prepare_ns: f64,
    /// The time of the result check in nanoseconds: the median over processes.
    pub check_ns: f64,
    /// The first iteration in nanoseconds, counted or not: the median over processes.
    pub first_iteration_ns: f64,
    /// The most warm-up iterations of any process.
    pub warmup_iterations: usize,
    /// Why sampling stopped, in the least certain process.
    pub stopped: StopReason,
    /// How the warm-up ended, in the least certain process.
    pub steady: Steady,
    /// How the iterations develop over time.
    pub stability: Stability,
}

impl MeasuredFigures {
    /// The fact with this name.
    pub fn fact(&self, name: &str) -> Option<&AxisValue> {
        self.facts.iter().find(|fact| fact.name == name).map(|fact| &fact.value)
    }

    /// The figures of a metric.
    pub fn metric(&self, name: &str) -> Option<&Figures> {
        self.metrics.iter().find(|metric| metric.name == name).map(|metric| &metric.figures)
    }
}

/// The state of the device at the end of the iterations: medians.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StateFigures {
    /// The clock of its processors, in MHz.
    pub clock_mhz: Option<f64>,
    /// Its power draw, in watts.
    pub power_watts: Option<f64>,
    /// Its temperature, in degrees Celsius.
    pub temperature_c: Option<f64>,
    /// Iterations at whose end the device was throttled.
    pub throttled: usize,
    /// Iterations at whose end the state is known.
    pub of: usize,
    /// Why it was throttled, each reason once.
    pub reasons: Vec<String>,
}

/// The figures of a metric of the workload.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricFigures {
    /// Its name.
    pub name: String,
    /// Which direction is better.
    pub better: Better,
    /// Its figures.
    pub figures: Figures,
}

/// How the counted iterations develop over time, over all processes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stability {
    /// Slow iterations at the start, in the process with the most of them.
    pub slow_start: Option<SlowStart>,
    /// Processes that did not reach a steady state.
    pub unsteady: usize,
    /// The largest lasting slowdown within a process, as a share.
    pub slow_down: Option<f64>,
    /// Outlying iterations.
    pub outliers: usize,
    /// The furthest outlier / the median of its process.
    pub furthest: Option<f64>,
}

/// Computes the figures of a run.
///
/// Peaks apply to cases on the device that they were measured on.
pub fn cases(results: &[CaseResult], peaks: Option<&Peaks>) -> Cases {
    let figures = |processes: Processes<'_>| {
        let peaks = peaks.filter(|peaks| peaks.device == processes.id.device);
        let (troubles, measured) = (processes.troubles(), measured(&processes, peaks));
        CaseFigures { id: processes.id, troubles, measured }
    };
    Cases { cases: by_case(results).into_iter().map(figures).collect(), peaks: peaks.cloned() }
}

fn measured(processes: &Processes<'_>, peaks: Option<&Peaks>) -> Option<MeasuredFigures> {
    let all: Vec<&Measured> = processes.measured().map(|(_, measured)| measured).collect();
    let wall = Figures::of(all.iter().map(|measured| numbers(&measured.wall_ns)).collect())?;
    let work = all.iter().find_map(|measured| measured.work.as_ref());
    Some(MeasuredFigures {
        wall,
        device_ns: middle_of(all.iter().flat_map(|measured| measured.device_ns.iter().flatten().map(|&ns| ns as f64))),
        busy_ns: middle_of(all.iter().flat_map(|measured| measured.busy_ns.iter().flatten().map(|&ns| ns as f64))),
        state: state(&all),
        metrics: metrics(&all),
        limits: work.map(|work| limits(work, wall.median, peaks)),
        facts: all.iter().map(|measured| &measured.facts).find(|facts| !facts.is_empty()).cloned().unwrap_or_default(),
        peak_bytes: all.iter().filter_map(|measured| measured.peak_bytes).max(),
        peak_rss_bytes: all.iter().filter_map(|measured| measured.peak_rss_bytes).max(),
        prepare_ns: middle(&all, |measured| measured.prepare_ns),
        check_ns: middle(&all, |measured| measured.check_ns),
        first_iteration_ns: middle(&all, first_iteration),
        warmup_iterations: all.iter().map(|measured| measured.warmup_ns.len()).max().unwrap_or(0),
        stopped: all.iter().map(|measured| measured.stopped).reduce(less_certain)?,
        steady: all.iter().map(|measured| measured.steady).max_by_key(|&steady| doubtfulness(steady))?,
        stability: stability(&all),
    })
}

fn first_iteration(measured: &Measured) -> u64 {
    measured.warmup_ns.iter().chain(&measured.wall_ns).copied().next().unwrap_or(0)
}

fn middle(all: &[&Measured], nanos: fn(&Measured) -> u64) -> f64 {
    median_of(all.iter().map(|measured| nanos(measured) as f64)).unwrap_or(0.0)
}

fn middle_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    median_of(values.filter(|value| value.is_finite()))
}

fn state(all: &[&Measured]) -> StateFigures {
    let states: Vec<&DeviceState> = all.iter().flat_map(|measured| &measured.states).collect();
    let of = |known: fn(&DeviceState) -> Option<f64>| middle_of(states.iter().filter_map(|state| known(state)));
    let mut reasons: Vec<String> = states.iter().flat_map(|state| state.throttled.iter().cloned()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    StateFigures {
        clock_mhz: of(|state| state.clock_mhz),
        power_watts: of(|state| state.power_watts),
        temperature_c: of(|state| state.temperature_c),
        throttled: states.iter().filter(|state| !state.throttled.is_empty()).count(),
        of: states.iter().filter(|state| !state.is_unknown()).count(),
        reasons,
    }
}

/// The metrics of all processes by name, in order of appearance.
fn metrics(all: &[&Measured]) -> Vec<MetricFigures> {
    let mut found: Vec<MetricFigures> = Vec::new();
    for metric in all.iter().flat_map(|measured| &measured.metrics) {
        if found.iter().any(|known| known.name == metric.name) {
            continue;
        }
        let figures = Figures::of(all.iter().map(|measured| known_values(measured, &metric.name)).collect());
        let named = |figures| MetricFigures { name: metric.name.clone(), better: metric.better, figures };
        found.extend(figures.map(named));
    }
    found
}

/// The values of a metric in one process, without missing values.
pub(crate) fn known_values(measured: &Measured, name: &str) -> Vec<f64> {
    let values = measured.metric(name).map_or(&[][..], |metric| &metric.values);
    values.iter().flatten().copied().filter(|value| value.is_finite()).collect()
}

fn doubtfulness(steady: Steady) -> u8 {
    match steady {
        Steady::NotChecked => 0,
        Steady::Reached => 1,
        Steady::Unknown => 2,
        Steady::NotReached => 3,
    }
}

fn less_certain(one: StopReason, other: StopReason) -> StopReason {
    let rank = |reason: StopReason| match reason {
        StopReason::Iterations(iterations) => (0, -(iterations as f64)),
        StopReason::MaxIterations(iterations) => (0, -(iterations as f64)),
        StopReason::NarrowInterval { half_width } => (1, half_width),
        StopReason::MaxTime { half_width } => (2, half_width.unwrap_or(f64::INFINITY)),
        StopReason::Interrupted => (3, 0.0),
    };
    if rank(other) > rank(one) { other } else { one }
}

fn stability(all: &[&Measured]) -> Stability {
    let mut stability = Stability::default();
    for measured in all {
        let iterations = numbers(&measured.wall_ns);
        let slow = slow_start(&iterations).ok().flatten();
        let count = |slow: Option<SlowStart>| slow.map_or(0, |slow| slow.count);
        stability.add_steadiness(&iterations, measured.steady);
        stability.add_outliers(&iterations, count(slow));
        if count(slow) > count(stability.slow_start) {
            stability.slow_start = slow;
        }
    }
    stability
}

impl Stability {
    fn add_steadiness(&mut self, iterations: &[f64], steady: Steady) {
        match steadiness(iterations) {
            _ if steady == Steady::NotReached => self.unsteady += 1,
            Ok(Steadiness::NoSteadyState) => self.unsteady += 1,
            Ok(Steadiness::SlowDown(from)) => {
                let share = from.level / from.before - 1.0;
                if share.is_finite() && share > self.slow_down.unwrap_or(0.0) {
                    self.slow_down = Some(share);
                }
            }
            _ => {}
        }
    }

    /// Counts outliers; iterations of a slow start are not outliers.
    fn add_outliers(&mut self, iterations: &[f64], slow: usize) {
        let centre = median(iterations).filter(|&centre| centre > 0.0);
        let (Ok(marks), Some(centre)) = (marks(iterations), centre) else { return };
        for (iteration, _) in iterations.iter().zip(marks).skip(slow).filter(|(_, mark)| *mark != Mark::Typical) {
            self.outliers += 1;
            let ratio = iteration / centre;
            let is_further = |known: f64| (ratio - 1.0).abs() > (known - 1.0).abs();
            if self.furthest.is_none_or(is_further) {
                self.furthest = Some(ratio);
            }
        }
    }
}
