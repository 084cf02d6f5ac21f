//! Cases along the sequence length: cases that differ in nothing else.

use laptime_stats::{Group, Interval, summary::LEVEL};
use laptime_trace::run::{AxisValue, CaseResult, Measured};

use crate::by_case::{CaseId, Processes, TroubleKind, by_case, grouped};
use crate::figures::{Figures, SEED, numbers};

/// The axis of lengths.
pub(crate) const LENGTH: &str = "seq_len";

/// The axis of lengths, and the one that includes the length in another form: the short name of a test.
const ALONG: [&str; 2] = [LENGTH, "test"];

/// How often a point is resampled for an interval.
pub(crate) const RESAMPLES: usize = 2000;

/// The fewest iterations per length, or processes if there are several, for a 95 % interval.
pub const INTERVAL_ITERATIONS: usize = 6;

laptime_trace::words! {
    /// The clock of a series.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Clock: words {
        /// The host clock: the time of an iteration.
        Wall = "time of an iteration",
        /// The device clock, if every iteration of the series has it.
        Device = "time on the device",
    }
}

/// Cases that differ only in length, shortest first.
#[derive(Debug, Clone, PartialEq)]
pub struct LengthSeries {
    /// What they have in common, without the length.
    pub id: CaseId,
    /// One entry per length.
    pub points: Vec<LengthPoint>,
}

/// One length.
#[derive(Debug, Clone, PartialEq)]
pub struct LengthPoint {
    /// The length.
    pub length: u64,
    wall: Option<Timed>,
    device: Option<Timed>,
    /// The peak memory.
    pub peak_bytes: Option<u64>,
    pub(crate) flops: Option<u64>,
    /// Why there is no time.
    pub trouble: Option<TroubleKind>,
}

impl LengthSeries {
    /// The time at a length in nanoseconds, by the clock of the series; none if it was not measured.
    pub fn time(&self, point: &LengthPoint) -> Option<Figures> {
        Figures::of(point.timed(clock(&self.points))?.iterations.clone())
    }
}

impl LengthPoint {
    fn of(length: u64, processes: &Processes<'_>) -> Self {
        let all: Vec<&Measured> = processes.measured().map(|(_, measured)| measured).collect();
        let wall = all.iter().map(|measured| numbers(&measured.wall_ns)).collect::<Vec<_>>();
        let device = all.iter().map(|measured| on_device(measured)).collect::<Option<Vec<_>>>();
        Self {
            length,
            wall: Timed::of(wall),
            device: device.and_then(Timed::of),
            peak_bytes: all.iter().filter_map(|measured| measured.peak_bytes).max().filter(|&bytes| bytes > 0),
            flops: all.iter().find_map(|measured| Some(measured.work.as_ref()?.flops)).filter(|&flops| flops > 0),
            trouble: processes.troubles().into_iter().next().map(|trouble| trouble.kind),
        }
    }

    /// The iterations by a clock.
    pub(crate) fn time(&self, clock: Clock) -> Option<&Group> {
        self.timed(clock).map(|timed| &timed.group)
    }

    fn timed(&self, clock: Clock) -> Option<&Timed> {
        match clock {
            Clock::Wall => self.wall.as_ref(),
            Clock::Device => self.device.as_ref(),
        }
    }
}

/// The iterations of a point by one clock.
#[derive(Debug, Clone, PartialEq)]
struct Timed {
    group: Group,
    iterations: Vec<Vec<f64>>,
}

impl Timed {
    fn of(iterations: Vec<Vec<f64>>) -> Option<Self> {
        Group::new(&iterations).ok().map(|group| Self { group, iterations })
    }
}

/// The times of a process on the device clock, if every iteration has it.
fn on_device(measured: &Measured) -> Option<Vec<f64>> {
    let known = measured.device_ns.len() == measured.wall_ns.len();
    let times = measured.device_ns.iter().map(|nanos| nanos.map(|nanos| nanos as f64));
    times.collect::<Option<Vec<f64>>>().filter(|times| known && !times.is_empty())
}

/// The clock that every measured point of some series has.
pub(crate) fn clock<'a>(points: impl IntoIterator<Item = &'a LengthPoint>) -> Clock {
    let mut measured = points.into_iter().filter(|point| point.wall.is_some()).peekable();
    let is_known = measured.peek().is_some() && measured.all(|point| point.device.is_some());
    if is_known { Clock::Device } else { Clock::Wall }
}

/// Groups cases that differ only in length, in order of first appearance.
pub(crate) fn series(results: &[CaseResult]) -> Vec<LengthSeries> {
    let point = |processes: Processes<'_>| {
        let AxisValue::Int(length) = processes.id.case.get(LENGTH)? else { return None };
        let length = u64::try_from(*length).ok().filter(|length| *length > 0)?;
        let id = processes.id.without(&ALONG);
        Some((id.key(), (id, LengthPoint::of(length, &processes))))
    };
    let series = |(_, members): (_, Vec<(CaseId, LengthPoint)>)| {
        let id = members[0].0.clone();
        let mut points: Vec<LengthPoint> = members.into_iter().map(|(_, point)| point).collect();
        points.sort_by_key(|point| point.length);
        points.dedup_by_key(|point| point.length);
        LengthSeries { id, points }
    };
    grouped(by_case(results).into_iter().filter_map(point)).into_iter().map(series).collect()
}

/// Logarithms of the typical time of each group, resampled; none if a group has no 95 % interval.
pub(crate) fn draws(groups: &[&Group], salt: u64) -> Option<Vec<Vec<f64>>> {
    let is_enough = groups.iter().all(|group| group.carries(LEVEL));
    let draw =
        |(at, group): (usize, &&Group)| group.resampled_logs(RESAMPLES, LEVEL, SEED ^ (salt << 32) ^ (at as u64 + 1));
    is_enough.then(|| groups.iter().enumerate().map(draw).collect())
}

/// The median of resampled values, which may be infinite.
pub(crate) fn middle(mut drawn: Vec<f64>) -> Option<Interval> {
    drawn.sort_unstable_by(f64::total_cmp);
    let last = drawn.len().checked_sub(1)?;
    let tail = 0.5 * (1.0 - LEVEL);
    let end = |p: f64| drawn[((p * last as f64).round() as usize).min(last)];
    Some(Interval { low: end(tail), high: end(1.0 - tail), level: LEVEL })
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::run::{Case, Outcome};

    fn result(test: &str, length: i64, device_ns: Vec<Option<u64>>) -> CaseResult {
        let values = [("model", "tiny".into()), ("test", test.into()), (LENGTH, length.into())];
        let case = Case::new(values.map(|(axis, value)| (axis.to_owned(), value)).to_vec());
        let measured = Measured { wall_ns: vec![10, 11], device_ns, ..Measured::default() };
        CaseResult::new("model", "cuda:0", case, 0, "", Outcome::Measured(measured))
    }

    #[test]
    fn cases_that_differ_only_in_length_form_a_sorted_series() {
        let results = [result("pp512", 512, vec![]), result("pp128", 128, vec![]), result("pp0", 0, vec![])];
        let found = series(&results);
        let [only] = found.as_slice() else { panic!("{} series", found.len()) };
        assert_eq!(only.points.iter().map(|point| point.length).collect::<Vec<_>>(), [128, 512]);
        assert_eq!(only.id.case.to_string(), "model=tiny");
    }

    #[test]
    fn a_series_has_figures_and_the_reasons_for_missing_points() {
        let mut results = [result("pp128", 128, vec![]), result("pp512", 512, vec![])];
        results[1].outcome = Outcome::Skipped { reason: "too long".to_owned() };
        let drawn = series(&results);
        let points = &drawn[0].points;
        let [first, second] = [0, 1].map(|at| drawn[0].time(&points[at]));
        assert_eq!((first.unwrap().median, second), (10.5, None));
        assert_eq!(points[1].trouble, Some(TroubleKind::Skipped { reason: "too long".to_owned() }));
    }

    #[test]
    fn device_times_are_used_only_if_every_iteration_has_one() {
        let all = [result("pp1", 1, vec![Some(5), Some(6)]), result("pp2", 2, vec![Some(7), Some(8)])];
        assert_eq!(clock(&series(&all)[0].points), Clock::Device);
        let some = [result("pp1", 1, vec![Some(5), None]), result("pp2", 2, vec![Some(7), Some(8)])];
        assert_eq!(clock(&series(&some)[0].points), Clock::Wall);
        assert_eq!(clock(&series(&[result("pp1", 1, vec![])])[0].points), Clock::Wall);
    }

    #[test]
    fn the_interval_of_resampled_values_may_be_infinite() {
        let mut drawn: Vec<f64> = (0..1000).map(f64::from).collect();
        drawn[999] = f64::INFINITY;
        assert_eq!(middle(drawn.clone()).map(|ends| (ends.low, ends.high)), Some((25.0, 974.0)));
        drawn[960..].fill(f64::INFINITY);
        assert_eq!(middle(drawn).map(|ends| ends.high), Some(f64::INFINITY));
        assert_eq!(middle(Vec::new()), None);
    }
}
