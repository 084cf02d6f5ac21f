//! Launches: how many, how far ahead, and with what latency.

use hashbrown::{HashMap, HashSet};

use laptime_stats::Sorted;
use laptime_trace::{SpanId, Trace, TrackId};

use crate::devices::{DeviceWork, Work, pauses};
use crate::lap_unit::LapUnit;

/// The launches of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchFigures {
    /// Launch calls.
    pub launches: u64,
    /// Kernels and copies with a known launch.
    pub launched: u64,
    /// Kernels and copies without one.
    pub unknown: u64,
    /// Launches per complete lap: minimum, median, maximum; none without laps.
    pub per_lap: Option<(u64, f64, u64)>,
    /// From the start of a launch to the start of its work on an idle stream: the launch latency.
    pub latency: Option<Delay>,
    /// The same on a busy stream: queueing included.
    pub queued: Option<Delay>,
    /// The mean queue depth: work that was launched but had not started; none if no launch is known.
    pub depth: Option<f64>,
    /// The share of the window with an empty queue.
    pub empty_share: Option<f64>,
}

/// The time from a launch to its work, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delay {
    /// How many launches.
    pub count: u64,
    /// The median.
    pub median: f64,
    /// The 95th percentile.
    pub p95: f64,
}

impl Delay {
    fn of(delays: Vec<u64>) -> Option<Self> {
        let delays = Sorted::<u64>::from_unsorted(delays);
        Some(Self { count: delays.len() as u64, median: delays.median()?, p95: delays.p(95)? })
    }
}

/// Counts and times the launches of a device.
pub fn launch_figures(trace: &Trace, device: &DeviceWork, unit: Option<&LapUnit>) -> LaunchFigures {
    let firsts = first_of_launches(device);
    let (latency, queued) = delays(trace, device, &firsts);
    let (depth, empty_share) = queue(trace, device).unzip();
    let launched = device.work.iter().filter(|work| work.launch.is_some()).count() as u64;
    LaunchFigures {
        launches: firsts.len() as u64,
        launched,
        unknown: device.work.len() as u64 - launched,
        per_lap: unit.and_then(|unit| per_lap(trace, device, &firsts, unit)),
        latency: Delay::of(latency),
        queued: Delay::of(queued),
        depth,
        empty_share,
    }
}

fn first_of_launches(device: &DeviceWork) -> Vec<usize> {
    let mut seen: HashSet<SpanId> = HashSet::new();
    let is_first = |work: &Work, seen: &mut HashSet<SpanId>| work.launch.is_some_and(|launch| seen.insert(launch));
    (0..device.work.len()).filter(|at| is_first(&device.work[*at], &mut seen)).collect()
}

/// Latencies on idle streams, and on busy streams.
fn delays(trace: &Trace, device: &DeviceWork, firsts: &[usize]) -> (Vec<u64>, Vec<u64>) {
    let (mut idle, mut queued) = (Vec::new(), Vec::new());
    let mut reached: HashMap<TrackId, u64> = HashMap::new();
    let mut firsts = firsts.iter().copied().peekable();
    for (at, work) in device.work.iter().enumerate() {
        let busy_until = reached.entry(work.stream).or_default();
        if let (Some(_), Some(launch)) = (firsts.next_if_eq(&at), work.launch) {
            let call = trace.span_start(launch).0;
            let delays = if *busy_until <= call { &mut idle } else { &mut queued };
            // Work that starts before its launch has no latency; the trace check reports it.
            delays.extend(work.start.checked_sub(call));
        }
        *busy_until = (*busy_until).max(work.end);
    }
    (idle, queued)
}

/// The mean queue depth over the window, and the share of the window with an empty queue.
fn queue(trace: &Trace, device: &DeviceWork) -> Option<(f64, f64)> {
    let (first, last) = device.window()?;
    let mut steps: Vec<(u64, i64)> = Vec::new();
    for work in &device.work {
        let Some(launch) = work.launch else { continue };
        let from = trace.span_start(launch).0.clamp(first, work.start);
        steps.extend([(from, 1), (work.start, -1)]);
    }
    if steps.is_empty() || device.recorded_length() == 0 {
        return None;
    }
    steps.sort_unstable();
    let (mut at, mut depth, mut area, mut empty) = (first, 0_i64, 0.0, 0_u64);
    for (moment, step) in steps.into_iter().chain([(last, 0)]) {
        let length = moment.saturating_sub(at) - device.not_recorded.length_within(at, at.max(moment));
        area += depth as f64 * length as f64;
        empty += if depth == 0 { length } else { 0 };
        (at, depth) = (at.max(moment), depth + step);
    }
    let window = device.recorded_length() as f64;
    Some((area / window, empty as f64 / window))
}

fn per_lap(trace: &Trace, device: &DeviceWork, firsts: &[usize], unit: &LapUnit) -> Option<(u64, f64, u64)> {
    let works = firsts.iter().map(|&at| &device.work[at]);
    let counts = unit.count(works.filter_map(|work| unit.of_work(trace, work.start, work.launch)));
    // Laps in which recording was paused miss launches.
    let pauses = pauses(trace);
    let is_recorded = |at: &usize| pauses.length_within(unit.laps[*at].start, unit.laps[*at].end) == 0;
    let counts = (0..counts.len()).filter(is_recorded).map(|at| counts[at]).collect();
    let counts = Sorted::<u64>::from_unsorted(counts);
    Some((counts.min()?, counts.median()?, counts.max()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{devices::devices, lap_unit::lap_unit};
    use laptime_trace::{LAP, Nanos, TraceBuilder, activity::category};

    /// Calls of 5 at these moments, each with its work on one stream: start and end.
    fn figures(launches: &[(u64, &[(u64, u64)])], laps: &[(u64, u64)]) -> LaunchFigures {
        figures_with_pauses(launches, laps, "[]")
    }

    fn figures_with_pauses(launches: &[(u64, &[(u64, u64)])], laps: &[(u64, u64)], pauses: &str) -> LaunchFigures {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let stream = builder.stream(1, 7, "stream 7");
        for (start, end) in laps {
            builder.span(main, Nanos(*start), Nanos(end - start), "token", LAP);
        }
        for (call, works) in launches {
            let call = builder.span(main, Nanos(*call), Nanos(5), "cudaLaunchKernel", category::RUNTIME);
            for (start, end) in *works {
                let work = builder.span(stream, Nanos(*start), Nanos(end - start), "gemm", category::KERNEL);
                builder.flow(call, work);
            }
        }
        builder.metadata.set(laptime_trace::metadata::NOT_RECORDED, pauses);
        let trace = builder.build().unwrap();
        let found = devices(&trace);
        let unit = lap_unit(&trace, &found, None).ok();
        launch_figures(&trace, &found.devices[0], unit.as_ref())
    }

    #[test]
    fn launches_to_idle_and_busy_streams_are_counted_separately() {
        let found = figures(&[(0, &[(7, 50)]), (20, &[(51, 90)]), (100, &[(109, 120)])], &[]);
        let delay = |count, median| Some((count, median));
        let shown = |delay: Option<Delay>| delay.map(|delay| (delay.count, delay.median));
        assert_eq!((shown(found.latency), shown(found.queued)), (delay(2, 8.0), delay(1, 31.0)));
    }

    #[test]
    fn the_kernels_of_a_graph_share_one_launch() {
        let found = figures(&[(0, &[(10, 20), (21, 30), (31, 40)])], &[]);
        assert_eq!((found.launches, found.launched, found.unknown), (1, 3, 0));
        assert_eq!(found.latency.unwrap().count, 1);
    }

    #[test]
    fn the_depth_of_the_queue_is_weighted_by_time() {
        // From 10 to 110: one piece waits from 20 to 50, another from 40 to 60.
        let found = figures(&[(0, &[(10, 50)]), (20, &[(50, 60)]), (40, &[(60, 110)])], &[]);
        assert_eq!((found.depth, found.empty_share), (Some(0.5), Some(0.6)));
    }

    #[test]
    fn launches_are_counted_per_lap() {
        let found = figures(&[(0, &[(10, 20)]), (110, &[(120, 130)]), (120, &[(130, 140)])], &[(0, 90), (100, 190)]);
        assert_eq!(found.per_lap, Some((1, 1.5, 2)));
    }

    #[test]
    fn paused_time_is_not_an_empty_queue_and_laps_with_a_pause_are_skipped() {
        let pause = r#"[{"process": 1, "start_ns": 150, "end_ns": 190}]"#;
        let launches: [(u64, &[(u64, u64)]); 4] =
            [(0, &[(10, 60)]), (50, &[(60, 110)]), (110, &[(120, 140)]), (210, &[(220, 240)])];
        let found = figures_with_pauses(&launches, &[(0, 99), (100, 199), (200, 250)], pause);
        // From 10 to 240, without the 80 of the idle stretch around the pause; pieces wait from 50, 110 and 210 for 10 each.
        assert_eq!(found.empty_share, Some(130.0 / 150.0), "{found:?}");
        assert_eq!(found.per_lap, Some((1, 1.5, 2)));
    }

    #[test]
    fn work_without_launches_has_no_figures() {
        let mut builder = TraceBuilder::default();
        let stream = builder.stream(1, 7, "stream 7");
        builder.span(stream, Nanos(0), Nanos(5), "gemm", category::KERNEL);
        let trace = builder.build().unwrap();
        let found = launch_figures(&trace, &devices(&trace).devices[0], None);
        assert_eq!((found.launches, found.unknown, found.latency, found.depth), (0, 1, None, None));
    }
}
