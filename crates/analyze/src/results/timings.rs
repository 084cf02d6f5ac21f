//! One pipeline with several kinds of timing: the stage times of each, and its overhead.

use std::collections::HashMap;

use laptime_stats::{Cost, cost_of_first, spread::median_of};
use laptime_trace::{LAP, NameId, SYNC, Span, SpanId, Trace, run::Timing};

use crate::{device_time::device_time, fields::text, measured::is_iteration};

/// The times and overheads of all timings of a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Timings {
    /// The median of the unrecorded iterations, in nanoseconds.
    pub unrecorded_ns: Option<f64>,
    /// The timings, in the requested order.
    pub timings: Vec<TimingFigures>,
}

/// The times and overhead of one timing.
#[derive(Debug, Clone, PartialEq)]
pub struct TimingFigures {
    /// The timing.
    pub timing: Timing,
    /// Iterations that it recorded.
    pub iterations: usize,
    /// An iteration as a whole.
    pub iteration: TimedStage,
    /// The overhead of a recorded iteration over an unrecorded one of the same round.
    pub cost: Option<Cost>,
    /// The stages directly inside an iteration, in order of first start.
    pub stages: Vec<TimedStage>,
}

/// A stage in one timing: medians over iterations of its time per iteration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TimedStage {
    /// Its name.
    pub name: String,
    /// Host time, in nanoseconds.
    pub host_ns: Option<f64>,
    /// Time between its start and end on the stream, for `events`.
    pub device_ns: Option<f64>,
    /// Time in which the device ran work that it launched, for `kernels`.
    pub busy_ns: Option<f64>,
}

/// The seed of the resampling.
const SEED: u64 = 17;

/// Computes the times and overheads from the trace and from pairs of a recorded and an unrecorded iteration.
pub fn timings(trace: &Trace, pairs: &[(Timing, &[(f64, f64)])]) -> Timings {
    let mut seen = Seen::of(trace).stages;
    let figures = |&(timing, pairs): &(Timing, &[_])| figures(timing, pairs, seen.remove(&timing).unwrap_or_default());
    let timings = pairs.iter().map(figures).collect();
    let unrecorded = pairs.first().map_or(&[][..], |(_, pairs)| pairs).iter().map(|(_, idle)| *idle);
    Timings { unrecorded_ns: median_of(unrecorded), timings }
}

fn figures(timing: Timing, pairs: &[(f64, f64)], seen: Vec<StageTimes>) -> TimingFigures {
    let wall = median_of(pairs.iter().map(|(recorded, _)| *recorded));
    let mut stages = seen.into_iter().map(|stage| stage.figures(timing));
    let iteration =
        stages.next().unwrap_or_else(|| TimedStage { name: "iteration".to_owned(), ..TimedStage::default() });
    let iteration = TimedStage { host_ns: wall, ..iteration };
    let cost = cost_of_first(pairs, SEED);
    TimingFigures { timing, iterations: pairs.len(), iteration, cost, stages: stages.collect() }
}

/// A stage in each iteration that has it.
struct StageTimes {
    name: String,
    iterations: Vec<InIteration>,
}

/// The time of a stage in one iteration: the sum of its spans.
struct InIteration {
    iteration: SpanId,
    host: u64,
    device: Option<u64>,
}

impl StageTimes {
    fn figures(self, timing: Timing) -> TimedStage {
        let iterations = self.iterations.iter();
        let host = median_of(iterations.clone().map(|iteration| iteration.host as f64));
        let device = median_of(iterations.filter_map(|iteration| Some(iteration.device? as f64)));
        TimedStage {
            name: self.name,
            host_ns: host,
            device_ns: device.filter(|_| timing != Timing::Kernels),
            busy_ns: device.filter(|_| timing == Timing::Kernels),
        }
    }

    fn add(&mut self, iteration: SpanId, host: u64, device: Option<u64>) {
        match self.iterations.last_mut().filter(|last| last.iteration == iteration) {
            Some(last) => {
                last.host += host;
                last.device = last.device.map(|known| known + device.unwrap_or(0)).or(device);
            }
            None => self.iterations.push(InIteration { iteration, host, device }),
        }
    }
}

/// The stages of each timing: the iteration itself, and the stages directly inside it.
#[derive(Default)]
struct Seen {
    stages: HashMap<Timing, Vec<StageTimes>>,
    places: HashMap<(Timing, NameId), usize>,
}

impl Seen {
    fn of(trace: &Trace) -> Self {
        let device = device_time(trace);
        let mut seen = Self::default();
        let mut iterations: HashMap<SpanId, Timing> = HashMap::new();
        for span in trace.spans() {
            let inside = span.parent.and_then(|parent| Some((parent, *iterations.get(&parent)?)));
            let (iteration, timing) = match (timing_of(&span), inside) {
                (Some(timing), _) => {
                    iterations.insert(span.id, timing);
                    (span.id, timing)
                }
                (None, Some(around)) if ["", LAP, SYNC].contains(&span.category) => around,
                _ => continue,
            };
            let led_to = device.get(span.id).map(|time| time.0);
            seen.stage(timing, trace, span.id).add(iteration, span.duration.0, led_to);
        }
        seen
    }

    fn stage(&mut self, timing: Timing, trace: &Trace, span: SpanId) -> &mut StageTimes {
        let (stages, name) = (self.stages.entry(timing).or_default(), trace.span_name(span));
        let at = *self.places.entry((timing, name)).or_insert_with(|| {
            stages.push(StageTimes { name: trace.name(name).to_owned(), iterations: Vec::new() });
            stages.len() - 1
        });
        &mut stages[at]
    }
}

/// The timing of an iteration of a profile; none for other spans.
fn timing_of(span: &Span<'_>) -> Option<Timing> {
    text(&span.fields, "timing").filter(|_| is_iteration(span))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::{Nanos, TraceBuilder};

    /// Two rounds of `host`, `events` and `kernels`: an iteration of two stages, the second in two parts.
    fn trace() -> Trace {
        let mut builder = TraceBuilder::default();
        let (main, stream) = (builder.thread(1, 1, "main"), builder.stream(1, 7, "stream 7"));
        for (at, timing) in ["host", "events", "kernels", "host", "events", "kernels"].into_iter().enumerate() {
            let start = 1000 * at as u64;
            let iteration = builder.span(main, Nanos(start), Nanos(100), "iteration", LAP);
            builder.span_field(iteration, "timing", timing);
            builder.span(main, Nanos(start + 10), Nanos(20), "small", "");
            let large = builder.span(main, Nanos(start + 40), Nanos(10), "large", "");
            builder.span(main, Nanos(start + 60), Nanos(10), "large", "");
            match timing {
                "events" => {
                    let on_device = builder.span(stream, Nanos(start + 50), Nanos(40), "large", "");
                    builder.flow(large, on_device);
                }
                "kernels" => {
                    let call = builder.span(main, Nanos(start + 42), Nanos(2), "cuLaunchKernel", "cuda_driver");
                    let kernel = builder.span(stream, Nanos(start + 50), Nanos(30), "gemm", "kernel");
                    builder.flow(call, kernel);
                }
                _ => {}
            }
        }
        builder.build().unwrap()
    }

    fn stage(name: &str, host_ns: f64, device_ns: Option<f64>, busy_ns: Option<f64>) -> TimedStage {
        TimedStage { name: name.to_owned(), host_ns: Some(host_ns), device_ns, busy_ns }
    }

    #[test]
    fn each_timing_reports_stages_by_its_own_clock() {
        let pairs = [(110.0, 100.0), (112.0, 104.0)];
        let all = [Timing::Host, Timing::Events, Timing::Kernels].map(|timing| (timing, &pairs[..]));
        let found = timings(&trace(), &all);
        assert_eq!(found.unrecorded_ns, Some(102.0));
        let [host, events, kernels] = found.timings.try_into().unwrap();
        assert_eq!(host.stages, [stage("small", 20.0, None, None), stage("large", 20.0, None, None)]);
        assert_eq!(events.stages[1], stage("large", 20.0, Some(40.0), None));
        assert_eq!((events.iteration, events.iterations), (stage("iteration", 111.0, Some(40.0), None), 2));
        assert_eq!(kernels.stages, [stage("small", 20.0, None, None), stage("large", 20.0, None, Some(30.0))]);
        assert_eq!(kernels.iteration, stage("iteration", 111.0, None, Some(30.0)));
        assert!((host.cost.unwrap().share - 0.0885).abs() < 0.001 && host.cost.unwrap().interval.is_none());
    }

    #[test]
    fn a_timing_missing_in_the_trace_has_no_stages() {
        let found = timings(&trace(), &[(Timing::Sync, &[])]);
        assert_eq!((found.timings[0].stages.len(), found.timings[0].iteration.host_ns), (0, None));
    }
}
