//! Measures one case, from preparation to result.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use laptime_probe::{lap, stage};
use laptime_stats::{Steadiness, steadiness};
use laptime_trace::run::{Case, DeviceState, Measured, Metric, Outcome, Settings, Steady, StopReason, Timing, WarmUp};
use laptime_trace::{Nanos, kernels::Stretch};

use crate::sink::{Phase, Sink};
use crate::workload::{Device, Iteration, IterationState, KernelRecording, MetricSpec, Workload};
use crate::{cold::mark_page_faults, stop::reason_to_stop, trouble::OutOfMemory};

/// How often the start of the steady state may move before the timings count as not steady.
const MOST_CUTS: usize = 3;

/// Measures one case. A case that cannot run, fails, panics or does not fit in memory is an outcome, never an error.
pub fn measure(
    workload: &dyn Workload,
    case: &Case,
    device: &dyn Device,
    settings: &Settings,
    sink: &mut dyn Sink,
) -> Outcome {
    let mut measuring = Measuring { device, settings, sink, collected: Collected::new(workload.metrics()) };
    device.set_timing(settings.timing);
    device.set_l2(settings.l2);
    device.set_depth(settings.depth);
    device.reset_peak();
    let ended = guarded(|| measuring.prepare_and_run(workload, case));
    measuring.collected.outcome(ended, device)
}

/// Like [`measure`], for a case that is already prepared and needs no check.
pub fn measure_ready(
    iteration: &mut dyn Iteration,
    device: &dyn Device,
    settings: &Settings,
    sink: &mut dyn Sink,
) -> Outcome {
    let mut measuring = Measuring { device, settings, sink, collected: Collected::new(Vec::new()) };
    device.set_timing(settings.timing);
    device.reset_peak();
    let ended = guarded(|| measuring.run_all(iteration).map(Ok));
    measuring.collected.outcome(ended, device)
}

/// How preparing or measuring a case ended, unless it failed: with a result, or with the outcome of a case that cannot
/// run.
pub(crate) type Ended<T> = anyhow::Result<Result<T, Box<Outcome>>>;

struct Measuring<'a> {
    device: &'a dyn Device,
    settings: &'a Settings,
    sink: &'a mut dyn Sink,
    collected: Collected,
}

impl Measuring<'_> {
    fn prepare_and_run(&mut self, workload: &dyn Workload, case: &Case) -> Ended<StopReason> {
        let Self { device, settings, .. } = *self;
        self.sink.phase(Phase::Prepare);
        let mut iteration = match self.collected.prepare(workload, case, device)? {
            Ok(iteration) => iteration,
            Err(outcome) => return Ok(Err(outcome)),
        };
        if !settings.cold {
            self.sink.phase(Phase::Check);
            self.collected.check(&mut *iteration, device)?;
        }
        let recording = kernels(device, settings.timing)?;
        let stopped = self.run_all(&mut *iteration)?;
        if let Some(recording) = recording {
            let busy_ns = recording.finish()?.busy_ns(&self.collected.stretches);
            self.collected.measured.busy_ns = busy_ns.into_iter().map(Some).collect();
        }
        if settings.cold {
            self.collected.check(&mut *iteration, device)?;
        }
        self.collected.ask(&*iteration);
        Ok(Ok(stopped))
    }

    fn run_all(&mut self, iteration: &mut dyn Iteration) -> anyhow::Result<StopReason> {
        let warmups = match self.settings.warmup {
            WarmUp::Iterations(iterations) => iterations,
            WarmUp::Auto => 0,
        };
        if warmups > 0 {
            self.sink.phase(Phase::WarmUp);
        }
        for _ in 0..warmups {
            let wall_ns = run_marked(iteration, self.device, self.collected.count())?.wall_ns();
            self.collected.keep_warm_up(wall_ns, iteration.readings(Nanos(wall_ns)));
            self.sink.iteration(wall_ns, false);
            if self.sink.is_interrupted() {
                return Ok(StopReason::Interrupted);
            }
        }
        self.sink.phase(Phase::Measure);
        for cuts in 0.. {
            let mut stopped = self.sample(iteration)?;
            if self.settings.warmup != WarmUp::Auto || self.collected.cut_warm_up(cuts, &mut stopped) {
                return Ok(stopped);
            }
        }
        unreachable!("the last cut ends it")
    }

    /// Measures iterations until the stop rule is met.
    fn sample(&mut self, iteration: &mut dyn Iteration) -> anyhow::Result<StopReason> {
        loop {
            let one = run_marked(iteration, self.device, self.collected.count())?;
            let wall_ns = one.wall_ns();
            self.collected.keep(one, iteration.readings(Nanos(wall_ns)));
            self.sink.iteration(wall_ns, true);
            let Collected { measured, elapsed_ns, .. } = &self.collected;
            if let Some(reason) = reason_to_stop(&self.settings.stop, &measured.wall_ns, *elapsed_ns) {
                return Ok(reason);
            }
            if self.sink.is_interrupted() {
                return Ok(StopReason::Interrupted);
            }
        }
    }
}

/// Starts recording kernels if the timing requires it.
pub(crate) fn kernels(device: &dyn Device, timing: Timing) -> anyhow::Result<Option<Box<dyn KernelRecording>>> {
    if timing != Timing::Kernels {
        return Ok(None);
    }
    let recording = device.record_kernels()?;
    Ok(Some(recording.ok_or_else(|| anyhow::anyhow!("device `{}` cannot record kernels", device.name()))?))
}

/// Runs one iteration as a lap of the trace, with its page faults, if a recording is running.
fn run_marked(iteration: &mut dyn Iteration, device: &dyn Device, at: usize) -> anyhow::Result<One> {
    let one = run_in(iteration, device, || {
        mark_page_faults();
        lap!("iteration", iteration = at)
    });
    mark_page_faults();
    one
}

/// Runs one iteration, synchronised at both ends.
pub(crate) fn run_one(iteration: &mut dyn Iteration, device: &dyn Device) -> anyhow::Result<One> {
    run_in(iteration, device, || ())
}

/// Runs one iteration, synchronised at both ends, inside the guard that `enter` returns.
fn run_in<Lap>(iteration: &mut dyn Iteration, device: &dyn Device, enter: impl FnOnce() -> Lap) -> anyhow::Result<One> {
    iteration.ready()?;
    device.chill()?;
    device.synchronise()?;
    let lap = enter();
    let start = device.now();
    device.begin_iteration()?;
    iteration.run()?;
    device.end_iteration()?;
    device.synchronise()?;
    let time = Stretch { start_ns: start.0, end_ns: device.now().0 };
    drop(lap);
    Ok(One { time, state: device.last_iteration() })
}

/// The measurements of one iteration.
pub(crate) struct One {
    pub(crate) time: Stretch,
    pub(crate) state: IterationState,
}

impl One {
    pub(crate) fn wall_ns(&self) -> u64 {
        self.time.end_ns.saturating_sub(self.time.start_ns)
    }
}

/// The measurements so far; kept if the case fails.
pub(crate) struct Collected {
    pub(crate) measured: Measured,
    /// Start and end of the iterations that count, on the clock of [`Device::now`].
    stretches: Vec<Stretch>,
    /// The total time of all iterations that counted when they were measured.
    elapsed_ns: u64,
    /// Bytes that were allocated before the case and that it uses.
    kept_bytes: u64,
}

impl Collected {
    pub(crate) fn new(metrics: Vec<MetricSpec>) -> Self {
        let metric = |spec: MetricSpec| Metric { name: spec.name.to_owned(), better: spec.better, values: Vec::new() };
        let metrics: Vec<Metric> = metrics.into_iter().map(metric).collect();
        Self {
            measured: Measured { warmup_metrics: metrics.clone(), metrics, ..Measured::default() },
            stretches: Vec::new(),
            elapsed_ns: 0,
            kept_bytes: 0,
        }
    }

    /// Prepares a case and stores how long that took.
    pub(crate) fn prepare<'a>(
        &mut self,
        workload: &'a dyn Workload,
        case: &Case,
        device: &'a dyn Device,
    ) -> Ended<Box<dyn Iteration + 'a>> {
        let _stage = stage!("prepare");
        let start = device.now();
        let iteration = match workload.parse(case, device)?.prepare()?.ready() {
            Ok(iteration) => iteration,
            Err(outcome) => return Ok(Err(outcome)),
        };
        device.synchronise()?;
        self.measured.prepare_ns = device.now().saturating_sub(start).0;
        self.measured.work = iteration.work();
        Ok(Ok(iteration))
    }

    /// Checks the result of a case once and stores how long that took.
    pub(crate) fn check(&mut self, iteration: &mut dyn Iteration, device: &dyn Device) -> anyhow::Result<()> {
        let _stage = stage!("check");
        let start = device.now();
        iteration.check()?;
        device.synchronise()?;
        self.measured.check_ns = device.now().saturating_sub(start).0;
        Ok(())
    }

    /// The outcome of the case. A failed case has the iterations before the failure.
    pub(crate) fn outcome(mut self, ended: Ended<StopReason>, device: &dyn Device) -> Outcome {
        self.drop_unknown();
        match ended {
            Ok(Ok(stopped)) => Outcome::Measured(Measured {
                stopped,
                peak_bytes: device.peak_bytes().map(|bytes| bytes.saturating_add(self.kept_bytes)),
                peak_rss_bytes: device.peak_rss_bytes(),
                ..self.measured
            }),
            Ok(Err(outcome)) => *outcome,
            Err(error) => {
                let known = error.chain().find_map(|cause| cause.downcast_ref().copied());
                match known.or_else(|| device.out_of_memory(&error)) {
                    Some(OutOfMemory { needed_bytes, available_bytes }) => {
                        Outcome::OutOfMemory { needed_bytes, available_bytes }
                    }
                    None => Outcome::Failed {
                        errors: error.chain().map(ToString::to_string).collect(),
                        wall_ns: self.measured.wall_ns,
                    },
                }
            }
        }
    }

    /// Removes lists without any known value.
    fn drop_unknown(&mut self) {
        let Measured { device_ns, states, warmup_metrics, .. } = &mut self.measured;
        warmup_metrics.retain(|metric| metric.values.iter().any(Option::is_some));
        if device_ns.iter().all(Option::is_none) {
            device_ns.clear();
        }
        if states.iter().all(DeviceState::is_unknown) {
            states.clear();
        }
    }

    /// Reads the facts about the case after its iterations.
    pub(crate) fn ask(&mut self, iteration: &dyn Iteration) {
        self.measured.facts = iteration.facts();
        self.kept_bytes = iteration.kept_bytes();
    }

    /// All iterations so far, including the warm-up.
    fn count(&self) -> usize {
        self.measured.warmup_ns.len() + self.measured.wall_ns.len()
    }

    /// Stores a warm-up iteration.
    pub(crate) fn keep_warm_up(&mut self, wall_ns: u64, readings: Vec<Option<f64>>) {
        self.measured.warmup_ns.push(wall_ns);
        push_readings(&mut self.measured.warmup_metrics, readings);
    }

    pub(crate) fn keep(&mut self, one: One, readings: Vec<Option<f64>>) {
        self.elapsed_ns += one.wall_ns();
        self.measured.wall_ns.push(one.wall_ns());
        self.measured.device_ns.push(one.state.device_ns);
        self.measured.states.push(one.state.state);
        self.stretches.push(one.time);
        push_readings(&mut self.measured.metrics, readings);
    }

    /// Finds where the timings reached a steady state and moves slower iterations before it to the warm-up. Returns
    /// true if sampling is finished. If iterations were moved, the stop rule is checked again with the remaining ones,
    /// up to [`MOST_CUTS`] times.
    ///
    /// Timings that became slower are not a warm-up: all iterations count, and the case is marked as not steady.
    fn cut_warm_up(&mut self, cuts: usize, stopped: &mut StopReason) -> bool {
        let walls: Vec<f64> = self.measured.wall_ns.iter().map(|&wall| wall as f64).collect();
        let is_out_of_time = matches!(stopped, StopReason::MaxTime { .. } | StopReason::Interrupted);
        let (steady, is_done) = match steadiness(&walls) {
            Ok(Steadiness::TooShort) | Err(_) if self.measured.warmup_ns.is_empty() => (Steady::Unknown, true),
            Ok(Steadiness::TooShort | Steadiness::Flat { .. }) | Err(_) => (Steady::Reached, true),
            Ok(Steadiness::WarmUp(_)) if cuts == MOST_CUTS && !is_out_of_time => (Steady::NotReached, true),
            Ok(Steadiness::WarmUp(from)) => {
                self.drop_first(from.start);
                if let StopReason::MaxTime { half_width } = stopped {
                    *half_width = crate::stop::half_width(&self.measured.wall_ns);
                }
                (Steady::Reached, is_out_of_time)
            }
            Ok(Steadiness::SlowDown(_) | Steadiness::NoSteadyState) => (Steady::NotReached, true),
        };
        self.measured.steady = steady;
        is_done
    }

    fn drop_first(&mut self, count: usize) {
        self.measured.warmup_ns.extend(self.measured.wall_ns.drain(..count));
        self.measured.device_ns.drain(..count);
        self.measured.states.drain(..count);
        self.stretches.drain(..count);
        let kept = self.measured.warmup_metrics.iter_mut();
        for (metric, kept) in self.measured.metrics.iter_mut().zip(kept) {
            kept.values.extend(metric.values.drain(..count));
        }
    }
}

/// Stores the metrics of an iteration; a value that is not finite counts as missing.
fn push_readings(metrics: &mut [Metric], readings: Vec<Option<f64>>) {
    let mut readings = readings.into_iter();
    for metric in metrics {
        metric.values.push(readings.next().flatten().filter(|value| value.is_finite()));
    }
}

thread_local! {
    static MEASURING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs code of a workload, whose panics are outcomes and not bugs in the program.
pub fn is_measuring() -> bool {
    MEASURING.get()
}

/// Runs code of a workload; a panic becomes an error.
pub(crate) fn guarded<T>(run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    MEASURING.set(true);
    let done = catch_unwind(AssertUnwindSafe(run));
    MEASURING.set(false);
    done.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(anyhow::anyhow!("panic: {text}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        scripted::{CHECK, CollectingSink, Scripted, Step},
        simulated::Simulated,
    };
    use laptime_trace::run::{Depth, L2, Stop};

    fn settings(warmup: WarmUp, iterations: usize) -> Settings {
        Settings {
            warmup,
            stop: Stop::Iterations(iterations),
            runs: 1,
            isolate: false,
            timeout_ns: None,
            cold: false,
            timing: Timing::Host,
            l2: None,
            depth: Depth::Pipeline,
        }
    }

    fn measured(outcome: Outcome) -> Measured {
        match outcome {
            Outcome::Measured(measured) => measured,
            other => panic!("{other:?}"),
        }
    }

    fn run(workload: &Scripted<'_>, settings: Settings) -> Outcome {
        measure(workload, &Case::default(), workload.device, &settings, &mut CollectingSink::default())
    }

    #[test]
    fn warm_up_iterations_are_kept_and_not_counted() {
        let device = Simulated::new();
        let workload = Scripted::steps(&device, [900, 50, 52]);
        let mut sink = CollectingSink::default();
        let case = Case::new(vec![("prepares".to_owned(), 7.into())]);
        let outcome = measure(&workload, &case, &device, &settings(WarmUp::Iterations(1), 2), &mut sink);
        let measured = measured(outcome);
        assert_eq!((measured.prepare_ns, measured.warmup_ns, measured.wall_ns), (7, vec![900], vec![50, 52]));
        assert_eq!((measured.stopped, measured.steady), (StopReason::Iterations(2), Steady::NotChecked));
        assert_eq!(sink.iterations, [(900, false), (50, true), (52, true)]);
    }

    #[test]
    fn metrics_of_warm_up_iterations_are_kept_separately() {
        let device = Simulated::new();
        let asked = measured(run(&Scripted::steps(&device, [900, 50, 52]), settings(WarmUp::Iterations(1), 2)));
        assert_eq!(asked.warmup_metrics.len(), asked.metrics.len());
        for (early, counted) in asked.warmup_metrics.iter().zip(&asked.metrics) {
            assert_eq!((&early.name, early.values.len(), counted.values.len()), (&counted.name, 1, 2));
        }
        let steps = std::iter::once(900).chain(std::iter::repeat_n(50, 39));
        let found = measured(run(&Scripted::steps(&device, steps), settings(WarmUp::Auto, 20)));
        assert_eq!((found.warmup_ns.len(), found.warmup_metrics[0].values.len()), (1, 1));
        let none = measured(run(&Scripted::steps(&device, [50, 50]), settings(WarmUp::Iterations(0), 2)));
        assert!(none.warmup_metrics.is_empty(), "there are no metrics to store");
    }

    /// The host takes 10, then the device takes 40.
    fn measure_on(device: &Simulated, settings: Settings) -> Measured {
        let steps = vec![Step::Submits { host: 10, device: 40 }; 9];
        let workload = Scripted::of(device, steps);
        measured(measure(&workload, &Case::default(), device, &settings, &mut CollectingSink::default()))
    }

    #[test]
    fn a_device_with_a_clock_reports_its_own_time_per_iteration_from_events() {
        let device = Simulated::with_clock();
        let by = |timing| measure_on(&device, Settings { timing, ..settings(WarmUp::Iterations(1), 2) });
        let events = by(Timing::Events);
        assert_eq!((events.wall_ns, events.device_ns), (vec![50, 50], vec![Some(50), Some(50)]));
        let host = by(Timing::Host);
        assert_eq!((host.wall_ns, host.device_ns, host.busy_ns), (vec![50, 50], vec![], vec![]));
    }

    #[test]
    fn kernel_timing_shows_how_long_the_device_was_busy() {
        let device = Simulated::with_clock();
        let kernels = measure_on(&device, Settings { timing: Timing::Kernels, ..settings(WarmUp::Iterations(1), 2) });
        assert_eq!((kernels.wall_ns, kernels.device_ns, kernels.busy_ns), (vec![50; 2], vec![], vec![Some(40); 2]));
    }

    #[test]
    fn kernel_timing_without_kernel_recording_fails_the_case() {
        let device = Simulated::new();
        let kernels = Settings { timing: Timing::Kernels, ..settings(WarmUp::Iterations(0), 2) };
        let errors = vec!["device `simulated` cannot record kernels".to_owned()];
        let outcome = run(&Scripted::steps(&device, [5]), kernels);
        assert_eq!(outcome, Outcome::Failed { errors, wall_ns: Vec::new() });
    }

    #[test]
    fn the_state_of_the_device_is_kept_with_each_iteration_that_counts() {
        let device = Simulated::with_clock();
        let state = DeviceState { clock_mhz: Some(1980.0), ..DeviceState::default() };
        device.set_state(state.clone());
        assert_eq!(measure_on(&device, settings(WarmUp::Iterations(1), 3)).states, vec![state; 3]);
    }

    #[test]
    fn a_metric_has_a_value_for_each_iteration_that_counts() {
        let device = Simulated::new();
        let measured = measured(run(&Scripted::steps(&device, [9, 1000, 500]), settings(WarmUp::Iterations(1), 2)));
        assert_eq!(measured.metric("per_s").unwrap().values, [Some(1e6), Some(2e6)]);
    }

    #[test]
    fn a_warm_up_is_detected_and_its_iterations_do_not_count() {
        let device = Simulated::new();
        let cold = [4000, 3000, 2000];
        let steady = (0..60).map(|iteration| 1000 + iteration % 3);
        let workload = Scripted::steps(&device, cold.into_iter().chain(steady));
        let measured = measured(run(&workload, settings(WarmUp::Auto, 30)));
        assert_eq!((measured.warmup_ns, measured.steady), (cold.to_vec(), Steady::Reached));
        assert_eq!(measured.wall_ns.len(), 30);
        assert_eq!(measured.metrics[0].values.len(), 30);
    }

    #[test]
    fn a_cold_case_is_checked_after_its_iterations() {
        let device = Simulated::new();
        let workload = Scripted::of(&device, vec![Step::Lasts(90), Step::Fails]);
        let cold = Settings { cold: true, ..settings(WarmUp::Iterations(0), 2) };
        assert!(matches!(run(&workload, cold), Outcome::Failed { wall_ns, .. } if wall_ns == [90]));
        assert_eq!(device.now(), Nanos(90), "the check comes after the iteration that failed");
        let measured = measured(run(&Scripted::steps(&device, [1, 1]), cold));
        assert_eq!(measured.check_ns, CHECK.0);
    }

    #[test]
    fn iterations_that_became_slower_are_not_a_warm_up() {
        let device = Simulated::new();
        let workload =
            Scripted::steps(&device, (0..60).map(|iteration| if iteration < 20 { 500 } else { 1000 } + iteration % 3));
        let measured = measured(run(&workload, settings(WarmUp::Auto, 60)));
        assert_eq!((measured.steady, measured.warmup_ns.len(), measured.wall_ns.len()), (Steady::NotReached, 0, 60));
    }

    #[test]
    fn iterations_that_keep_getting_slower_never_reach_a_steady_state() {
        let device = Simulated::new();
        let workload = Scripted::steps(&device, (0..200).map(|iteration| 1000 + 20 * iteration));
        let measured = measured(run(&workload, settings(WarmUp::Auto, 60)));
        assert_eq!((measured.steady, measured.warmup_ns.len(), measured.wall_ns.len()), (Steady::NotReached, 0, 60));
    }

    #[test]
    fn a_failure_keeps_the_iterations_before_it_and_the_chain_of_causes() {
        let device = Simulated::new();
        let workload = Scripted::of(&device, vec![Step::Lasts(5), Step::Lasts(6), Step::Fails]);
        let errors = vec!["the script ended".to_owned(), "no more steps".to_owned()];
        assert_eq!(run(&workload, settings(WarmUp::Iterations(0), 9)), Outcome::Failed { errors, wall_ns: vec![5, 6] });
    }

    #[test]
    fn a_panic_of_a_workload_fails_the_case() {
        let device = Simulated::new();
        let workload = Scripted::of(&device, vec![Step::Lasts(5), Step::Panics]);
        let errors = vec!["panic: out of range".to_owned()];
        assert_eq!(run(&workload, settings(WarmUp::Iterations(0), 9)), Outcome::Failed { errors, wall_ns: vec![5] });
        assert!(!is_measuring());
    }

    #[test]
    fn a_case_that_does_not_fit_is_reported_with_its_sizes_and_not_run() {
        let device = Simulated::with_memory(1000);
        let workload = Scripted::steps(&device, [1]);
        let case = Case::new(vec![("bytes".to_owned(), 4096.into())]);
        let outcome =
            measure(&workload, &case, &device, &settings(WarmUp::Iterations(0), 1), &mut CollectingSink::default());
        assert_eq!(outcome, Outcome::OutOfMemory { needed_bytes: Some(4096), available_bytes: Some(1000) });
        assert_eq!(device.now(), Nanos(0));
    }

    #[test]
    fn out_of_memory_in_an_iteration_is_reported_with_its_size() {
        let device = Simulated::new();
        let workload = Scripted::of(&device, vec![Step::Lasts(5), Step::LacksMemory]);
        let outcome = run(&workload, settings(WarmUp::Iterations(0), 9));
        assert_eq!(outcome, Outcome::OutOfMemory { needed_bytes: Some(8), available_bytes: None });
    }

    #[test]
    fn only_a_cold_cache_is_emptied_before_every_iteration() {
        let chills = |l2| {
            let device = Simulated::with_clock();
            measure_on(&device, Settings { l2, ..settings(WarmUp::Iterations(1), 3) });
            device.chills()
        };
        assert_eq!([chills(Some(L2::Cold)), chills(Some(L2::Warm)), chills(None)], [4, 0, 0]);
    }

    #[test]
    fn a_case_that_does_not_apply_is_skipped_with_a_reason() {
        let device = Simulated::new();
        let case = Case::new(vec![("applies".to_owned(), "no".into())]);
        let workload = Scripted::steps(&device, []);
        let outcome =
            measure(&workload, &case, &device, &settings(WarmUp::Iterations(0), 1), &mut CollectingSink::default());
        assert_eq!(outcome, Outcome::Skipped { reason: "it was configured not to apply".to_owned() });
    }

    #[test]
    fn an_interruption_comes_after_the_iteration_and_keeps_everything() {
        let device = Simulated::new();
        let workload = Scripted::steps(&device, [7, 8, 9]);
        let mut sink = CollectingSink { stop_after: Some(2), ..CollectingSink::default() };
        let outcome = measure(&workload, &Case::default(), &device, &settings(WarmUp::Iterations(0), 3), &mut sink);
        let measured = measured(outcome);
        assert_eq!((measured.wall_ns, measured.stopped), (vec![7, 8], StopReason::Interrupted));
    }

    #[test]
    fn the_peak_includes_memory_that_was_kept_for_the_case() {
        let device = Simulated::new();
        device.use_bytes(1 << 30);
        let case = Case::new(vec![("bytes".to_owned(), 4096.into())]);
        let workload = Scripted::steps(&device, [1]);
        let outcome =
            measure(&workload, &case, &device, &settings(WarmUp::Iterations(0), 1), &mut CollectingSink::default());
        let measured = measured(outcome);
        assert_eq!(measured.peak_bytes, Some(2 * 4096), "memory allocated before the case counts");
        assert_eq!(measured.fact("needed_bytes"), Some(&4096.into()));
    }
}
