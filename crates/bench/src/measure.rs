//! The measuring loop: one case, from preparation to result.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use laptime_probe::{lap, stage};
use laptime_stats::{Steadiness, steadiness};
use laptime_trace::{
    Nanos,
    kernels::Stretch,
    run::{Case, DeviceState, Measured, Metric, Outcome, Settings, Steady, StopReason, Timing, WarmUp},
};

use crate::{
    cold::mark_page_faults,
    sink::Sink,
    stop::reason_to_stop,
    trouble::OutOfMemory,
    workload::{Device, KernelRecording, MetricSpec, Take, TakeState, Workload},
};

/// How often the beginning of the steady takes may be found anew before they count as never steady.
const MOST_CUTS: usize = 3;

/// Measures one case. A case that cannot run, fails, panics or does not fit is an outcome, never an error.
pub fn measure(
    workload: &dyn Workload,
    case: &Case,
    device: &dyn Device,
    settings: &Settings,
    sink: &mut dyn Sink,
) -> Outcome {
    let mut taken = Taken::new(workload.metrics());
    device.set_timing(settings.timing);
    device.set_l2(settings.l2);
    device.set_depth(settings.depth);
    device.reset_peak();
    let ended = guarded(|| prepare_and_take(workload, case, device, settings, sink, &mut taken));
    taken.outcome(ended, device)
}

/// As [`measure`], of something that is ready and needs no check.
pub fn measure_ready(take: &mut dyn Take, device: &dyn Device, settings: &Settings, sink: &mut dyn Sink) -> Outcome {
    let mut taken = Taken::new(Vec::new());
    device.set_timing(settings.timing);
    device.reset_peak();
    let ended = guarded(|| take_all(take, device, settings, sink, &mut taken).map(Ok));
    taken.outcome(ended, device)
}

fn prepare_and_take(
    workload: &dyn Workload,
    case: &Case,
    device: &dyn Device,
    settings: &Settings,
    sink: &mut dyn Sink,
    taken: &mut Taken,
) -> anyhow::Result<Result<StopReason, Box<Outcome>>> {
    let mut take = match prepare(workload, case, device, taken)? {
        Ok(take) => take,
        Err(outcome) => return Ok(Err(outcome)),
    };
    if !settings.cold {
        check(&mut *take, device, taken)?;
    }
    let recording = kernels(device, settings.timing)?;
    let stopped = take_all(&mut *take, device, settings, sink, taken)?;
    if let Some(recording) = recording {
        taken.measured.busy_ns = recording.finish()?.busy_ns(&taken.stretches).into_iter().map(Some).collect();
    }
    if settings.cold {
        check(&mut *take, device, taken)?;
    }
    taken.ask(&*take);
    Ok(Ok(stopped))
}

/// Begins to record kernels if that is the timing.
pub(crate) fn kernels(device: &dyn Device, timing: Timing) -> anyhow::Result<Option<Box<dyn KernelRecording>>> {
    if timing != Timing::Kernels {
        return Ok(None);
    }
    let recording = device.record_kernels()?;
    Ok(Some(recording.ok_or_else(|| anyhow::anyhow!("device `{}` does not tell its kernels", device.name()))?))
}

/// Prepares a case and keeps how long that took; what cannot run is an outcome.
pub(crate) fn prepare<'a>(
    workload: &'a dyn Workload,
    case: &Case,
    device: &'a dyn Device,
    taken: &mut Taken,
) -> anyhow::Result<Result<Box<dyn Take + 'a>, Box<Outcome>>> {
    let _stage = stage!("prepare");
    let start = device.now();
    let take = match workload.prepare(case, device)?.ready() {
        Ok(take) => take,
        Err(outcome) => return Ok(Err(outcome)),
    };
    device.synchronise()?;
    taken.measured.prepare_ns = device.now().saturating_sub(start).0;
    taken.measured.work = take.work();
    Ok(Ok(take))
}

/// Checks the result of a case once and keeps how long that took.
pub(crate) fn check(take: &mut dyn Take, device: &dyn Device, taken: &mut Taken) -> anyhow::Result<()> {
    let _stage = stage!("check");
    let start = device.now();
    take.check()?;
    device.synchronise()?;
    taken.measured.check_ns = device.now().saturating_sub(start).0;
    Ok(())
}

fn take_all(
    take: &mut dyn Take,
    device: &dyn Device,
    settings: &Settings,
    sink: &mut dyn Sink,
    taken: &mut Taken,
) -> anyhow::Result<StopReason> {
    let asked = match settings.warmup {
        WarmUp::Takes(takes) => takes,
        WarmUp::Found => 0,
    };
    for _ in 0..asked {
        let wall_ns = take_marked(take, device, taken.count())?.wall_ns();
        taken.keep_warm_up(wall_ns, take.readings(Nanos(wall_ns)));
        sink.take(wall_ns, false);
        if sink.is_interrupted() {
            return Ok(StopReason::Interrupted);
        }
    }
    for cuts in 0.. {
        let mut stopped = sample(take, device, settings, sink, taken)?;
        if settings.warmup != WarmUp::Found || taken.cut_warm_up(cuts, &mut stopped) {
            return Ok(stopped);
        }
    }
    unreachable!("the last cut ends it")
}

/// Takes until the stop rule is content with the takes that count.
fn sample(
    take: &mut dyn Take,
    device: &dyn Device,
    settings: &Settings,
    sink: &mut dyn Sink,
    taken: &mut Taken,
) -> anyhow::Result<StopReason> {
    loop {
        let one = take_marked(take, device, taken.count())?;
        let wall_ns = one.wall_ns();
        taken.keep(one, take.readings(Nanos(wall_ns)));
        sink.take(wall_ns, true);
        if let Some(reason) = reason_to_stop(&settings.stop, &taken.measured.wall_ns, taken.elapsed_ns) {
            return Ok(reason);
        }
        if sink.is_interrupted() {
            return Ok(StopReason::Interrupted);
        }
    }
}

/// One take that is a lap of the trace, with the memory it touched first, if something records.
fn take_marked(take: &mut dyn Take, device: &dyn Device, at: usize) -> anyhow::Result<One> {
    let one = take_in(take, device, || {
        mark_page_faults();
        lap!("take", take = at)
    });
    mark_page_faults();
    one
}

/// One take, synchronised at both ends.
pub(crate) fn take_one(take: &mut dyn Take, device: &dyn Device) -> anyhow::Result<One> {
    take_in(take, device, || ())
}

/// One take, synchronised at both ends, inside what `enter` opens.
fn take_in<Lap>(take: &mut dyn Take, device: &dyn Device, enter: impl FnOnce() -> Lap) -> anyhow::Result<One> {
    take.ready()?;
    device.chill()?;
    device.synchronise()?;
    let lap = enter();
    let start = device.now();
    device.begin_take()?;
    take.run()?;
    device.end_take()?;
    device.synchronise()?;
    let time = Stretch { start_ns: start.0, end_ns: device.now().0 };
    drop(lap);
    Ok(One { time, state: device.last_take() })
}

/// What is known of one take.
pub(crate) struct One {
    pub(crate) time: Stretch,
    pub(crate) state: TakeState,
}

impl One {
    pub(crate) fn wall_ns(&self) -> u64 {
        self.time.end_ns.saturating_sub(self.time.start_ns)
    }
}

/// What has been taken so far; kept through a failure.
pub(crate) struct Taken {
    pub(crate) measured: Measured,
    /// When the takes that count were, by the device's [`Device::now`].
    stretches: Vec<Stretch>,
    /// The time of all takes that counted when they were taken.
    elapsed_ns: u64,
    /// Bytes that were there before the case and that it uses.
    kept_bytes: u64,
}

impl Taken {
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

    /// What becomes of the case: takes ended by a stop rule, none at all, or a failure that keeps those before it.
    pub(crate) fn outcome(
        mut self,
        ended: anyhow::Result<Result<StopReason, Box<Outcome>>>,
        device: &dyn Device,
    ) -> Outcome {
        self.forget_what_is_unknown();
        match ended {
            Ok(Ok(stopped)) => Outcome::Measured(Measured {
                stopped,
                peak_bytes: device.peak_bytes().map(|bytes| bytes.saturating_add(self.kept_bytes)),
                peak_rss_bytes: device.peak_rss_bytes(),
                ..self.measured
            }),
            Ok(Err(outcome)) => *outcome,
            Err(error) => match error.chain().find_map(|cause| cause.downcast_ref::<OutOfMemory>()) {
                Some(&OutOfMemory { needed_bytes, available_bytes }) => {
                    Outcome::OutOfMemory { needed_bytes, available_bytes }
                }
                None => Outcome::Failed {
                    errors: error.chain().map(ToString::to_string).collect(),
                    wall_ns: self.measured.wall_ns,
                },
            },
        }
    }

    /// What no take knows is left out.
    fn forget_what_is_unknown(&mut self) {
        let Measured { device_ns, states, warmup_metrics, .. } = &mut self.measured;
        warmup_metrics.retain(|metric| metric.values.iter().any(Option::is_some));
        if device_ns.iter().all(Option::is_none) {
            device_ns.clear();
        }
        if states.iter().all(DeviceState::is_unknown) {
            states.clear();
        }
    }

    /// Asks what is known of the case after its takes.
    pub(crate) fn ask(&mut self, take: &dyn Take) {
        self.measured.facts = take.facts();
        self.kept_bytes = take.kept_bytes();
    }

    /// Takes so far, whether they count or not.
    fn count(&self) -> usize {
        self.measured.warmup_ns.len() + self.measured.wall_ns.len()
    }

    /// Keeps a take that does not count.
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

    /// Finds where the takes became steady and moves slower ones before it to the warm-up; true if nothing more is to
    /// be taken. If takes were moved, the stop rule is asked again about those that are left, up to [`MOST_CUTS`] times.
    ///
    /// Takes that became slower are no warm-up: they all count, and their median is of something that moves.
    fn cut_warm_up(&mut self, cuts: usize, stopped: &mut StopReason) -> bool {
        let walls: Vec<f64> = self.measured.wall_ns.iter().map(|&wall| wall as f64).collect();
        let is_out_of_time = matches!(stopped, StopReason::TimeUp { .. } | StopReason::Interrupted);
        let (steady, is_done) = match steadiness(&walls) {
            Ok(Steadiness::TooShort) | Err(_) if self.measured.warmup_ns.is_empty() => (Steady::Unknown, true),
            Ok(Steadiness::TooShort | Steadiness::Flat { .. }) | Err(_) => (Steady::Found, true),
            Ok(Steadiness::WarmUp(_)) if cuts == MOST_CUTS && !is_out_of_time => (Steady::Never, true),
            Ok(Steadiness::WarmUp(from)) => {
                self.drop_first(from.start);
                if let StopReason::TimeUp { reach } = stopped {
                    *reach = crate::stop::reach(&self.measured.wall_ns);
                }
                (Steady::Found, is_out_of_time)
            }
            Ok(Steadiness::SlowDown(_) | Steadiness::NoSteadyState(_)) => (Steady::Never, true),
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

/// Keeps what a take said of itself; what is no finite number is not known.
fn push_readings(metrics: &mut [Metric], readings: Vec<Option<f64>>) {
    let mut readings = readings.into_iter();
    for metric in metrics {
        metric.values.push(readings.next().flatten().filter(|value| value.is_finite()));
    }
}

thread_local! {
    static MEASURING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside a workload, whose panics are outcomes and no faults of the program.
pub fn is_measuring() -> bool {
    MEASURING.get()
}

/// Runs a workload's code; its panic is an error.
pub(crate) fn guarded<T>(run: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    MEASURING.set(true);
    let done = catch_unwind(AssertUnwindSafe(run));
    MEASURING.set(false);
    done.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(anyhow::anyhow!("it panicked: {text}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        scripted::{CHECK, Scripted, Step, Told},
        simulated::Simulated,
    };
    use laptime_trace::run::{Depth, L2, Stop};

    fn settings(warmup: WarmUp, takes: usize) -> Settings {
        Settings {
            warmup,
            stop: Stop::Takes(takes),
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
        measure(workload, &Case::default(), workload.device, &settings, &mut Told::default())
    }

    #[test]
    fn warm_up_takes_are_kept_and_not_counted() {
        let device = Simulated::new();
        let workload = Scripted::steps(&device, [900, 50, 52]);
        let mut told = Told::default();
        let case = Case::new(vec![("prepares".to_owned(), 7.into())]);
        let outcome = measure(&workload, &case, &device, &settings(WarmUp::Takes(1), 2), &mut told);
        let measured = measured(outcome);
        assert_eq!((measured.prepare_ns, measured.warmup_ns, measured.wall_ns), (7, vec![900], vec![50, 52]));
        assert_eq!((measured.stopped, measured.steady), (StopReason::Takes(2), Steady::Asked));
        assert_eq!(told.takes, [(900, false), (50, true), (52, true)]);
    }

    #[test]
    fn what_warm_up_takes_say_of_themselves_is_kept_beside_them() {
        let device = Simulated::new();
        let asked = measured(run(&Scripted::steps(&device, [900, 50, 52]), settings(WarmUp::Takes(1), 2)));
        assert_eq!(asked.warmup_metrics.len(), asked.metrics.len());
        for (early, counted) in asked.warmup_metrics.iter().zip(&asked.metrics) {
            assert_eq!((&early.name, early.values.len(), counted.values.len()), (&counted.name, 1, 2));
        }
        let steps = std::iter::once(900).chain(std::iter::repeat_n(50, 39));
        let found = measured(run(&Scripted::steps(&device, steps), settings(WarmUp::Found, 20)));
        assert_eq!((found.warmup_ns.len(), found.warmup_metrics[0].values.len()), (1, 1));
        let none = measured(run(&Scripted::steps(&device, [50, 50]), settings(WarmUp::Takes(0), 2)));
        assert!(none.warmup_metrics.is_empty(), "there is nothing to keep");
    }

    /// The host takes 10, the device 40 after it.
    fn beside(device: &Simulated, settings: Settings) -> Measured {
        let steps = vec![Step::Submits { host: 10, device: 40 }; 9];
        let workload = Scripted::of(device, steps);
        measured(measure(&workload, &Case::default(), device, &settings, &mut Told::default()))
    }

    #[test]
    fn a_device_with_a_clock_tells_its_own_time_of_each_take_by_events() {
        let device = Simulated::with_clock();
        let by = |timing| beside(&device, Settings { timing, ..settings(WarmUp::Takes(1), 2) });
        let events = by(Timing::Events);
        assert_eq!((events.wall_ns, events.device_ns), (vec![50, 50], vec![Some(50), Some(50)]));
        let host = by(Timing::Host);
        assert_eq!((host.wall_ns, host.device_ns, host.busy_ns), (vec![50, 50], vec![], vec![]));
    }

    #[test]
    fn kernels_tell_how_long_the_device_was_busy() {
        let device = Simulated::with_clock();
        let kernels = beside(&device, Settings { timing: Timing::Kernels, ..settings(WarmUp::Takes(1), 2) });
        assert_eq!((kernels.wall_ns, kernels.device_ns, kernels.busy_ns), (vec![50; 2], vec![], vec![Some(40); 2]));
    }

    #[test]
    fn a_device_without_kernels_to_tell_is_a_case_that_failed() {
        let device = Simulated::new();
        let kernels = Settings { timing: Timing::Kernels, ..settings(WarmUp::Takes(0), 2) };
        let errors = vec!["device `simulated` does not tell its kernels".to_owned()];
        let outcome = run(&Scripted::steps(&device, [5]), kernels);
        assert_eq!(outcome, Outcome::Failed { errors, wall_ns: Vec::new() });
    }

    #[test]
    fn the_state_of_the_device_is_kept_with_each_take_that_counts() {
        let device = Simulated::with_clock();
        let state = DeviceState { clock_mhz: Some(1980.0), ..DeviceState::default() };
        device.set_state(state.clone());
        assert_eq!(beside(&device, settings(WarmUp::Takes(1), 3)).states, vec![state; 3]);
    }

    #[test]
    fn a_metric_has_a_value_for_each_take_that_counts() {
        let device = Simulated::new();
        let measured = measured(run(&Scripted::steps(&device, [9, 1000, 500]), settings(WarmUp::Takes(1), 2)));
        assert_eq!(measured.metric("per_s").unwrap().values, [Some(1e6), Some(2e6)]);
    }

    #[test]
    fn a_warm_up_is_found_and_its_takes_do_not_count() {
        let device = Simulated::new();
        let cold = [4000, 3000, 2000];
        let steady = (0..60).map(|take| 1000 + take % 3);
        let workload = Scripted::steps(&device, cold.into_iter().chain(steady));
        let measured = measured(run(&workload, settings(WarmUp::Found, 30)));
        assert_eq!((measured.warmup_ns, measured.steady), (cold.to_vec(), Steady::Found));
        assert_eq!(measured.wall_ns.len(), 30);
        assert_eq!(measured.metrics[0].values.len(), 30);
    }

    #[test]
    fn a_cold_case_is_checked_after_its_takes() {
        let device = Simulated::new();
        let workload = Scripted::of(&device, vec![Step::Lasts(90), Step::Fails]);
        let cold = Settings { cold: true, ..settings(WarmUp::Takes(0), 2) };
        assert!(matches!(run(&workload, cold), Outcome::Failed { wall_ns, .. } if wall_ns == [90]));
        assert_eq!(device.now(), Nanos(90), "the check comes after the take that failed");
        let measured = measured(run(&Scripted::steps(&device, [1, 1]), cold));
        assert_eq!(measured.check_ns, CHECK.0);
    }

    #[test]
    fn takes_that_became_slower_are_no_warm_up_and_all_count() {
        let device = Simulated::new();
        let workload = Scripted::steps(&device, (0..60).map(|take| if take < 20 { 500 } else { 1000 } + take % 3));
        let measured = measured(run(&workload, settings(WarmUp::Found, 60)));
        assert_eq!((measured.steady, measured.warmup_ns.len(), measured.wall_ns.len()), (Steady::Never, 0, 60));
    }

    #[test]
    fn takes_that_keep_getting_slower_are_never_steady_and_all_count() {
        let device = Simulated::new();
        let workload = Scripted::steps(&device, (0..200).map(|take| 1000 + 20 * take));
        let measured = measured(run(&workload, settings(WarmUp::Found, 60)));
        assert_eq!((measured.steady, measured.warmup_ns.len(), measured.wall_ns.len()), (Steady::Never, 0, 60));
    }

    #[test]
    fn a_failure_keeps_the_takes_before_it_and_the_chain_of_causes() {
        let device = Simulated::new();
        let workload = Scripted::of(&device, vec![Step::Lasts(5), Step::Lasts(6), Step::Fails]);
        let errors = vec!["the script ended".to_owned(), "no more steps".to_owned()];
        assert_eq!(run(&workload, settings(WarmUp::Takes(0), 9)), Outcome::Failed { errors, wall_ns: vec![5, 6] });
    }

    #[test]
    fn a_panic_of_a_workload_is_a_case_that_failed() {
        let device = Simulated::new();
        let workload = Scripted::of(&device, vec![Step::Lasts(5), Step::Panics]);
        let errors = vec!["it panicked: out of range".to_owned()];
        assert_eq!(run(&workload, settings(WarmUp::Takes(0), 9)), Outcome::Failed { errors, wall_ns: vec![5] });
        assert!(!is_measuring());
    }

    #[test]
    fn a_case_that_does_not_fit_is_told_with_its_needs_and_never_run() {
        let device = Simulated::with_memory(1000);
        let workload = Scripted::steps(&device, [1]);
        let case = Case::new(vec![("bytes".to_owned(), 4096.into())]);
        let outcome = measure(&workload, &case, &device, &settings(WarmUp::Takes(0), 1), &mut Told::default());
        assert_eq!(outcome, Outcome::OutOfMemory { needed_bytes: Some(4096), available_bytes: Some(1000) });
        assert_eq!(device.now(), Nanos(0));
    }

    #[test]
    fn a_lack_of_memory_in_a_take_is_told_with_its_needs() {
        let device = Simulated::new();
        let workload = Scripted::of(&device, vec![Step::Lasts(5), Step::LacksMemory]);
        let outcome = run(&workload, settings(WarmUp::Takes(0), 9));
        assert_eq!(outcome, Outcome::OutOfMemory { needed_bytes: Some(8), available_bytes: None });
    }

    #[test]
    fn a_cold_cache_is_emptied_before_every_take_and_a_warm_one_never() {
        let chills = |l2| {
            let device = Simulated::with_clock();
            beside(&device, Settings { l2, ..settings(WarmUp::Takes(1), 3) });
            device.chills()
        };
        assert_eq!([chills(Some(L2::Cold)), chills(Some(L2::Warm)), chills(None)], [4, 0, 0]);
    }

    #[test]
    fn a_case_that_makes_no_sense_is_skipped_with_a_reason() {
        let device = Simulated::new();
        let case = Case::new(vec![("applies".to_owned(), "no".into())]);
        let workload = Scripted::steps(&device, []);
        let outcome = measure(&workload, &case, &device, &settings(WarmUp::Takes(0), 1), &mut Told::default());
        assert_eq!(outcome, Outcome::Skipped { reason: "it was told not to".to_owned() });
    }

    #[test]
    fn an_interruption_comes_after_the_take_and_keeps_everything() {
        let device = Simulated::new();
        let workload = Scripted::steps(&device, [7, 8, 9]);
        let mut told = Told { stop_after: Some(2), ..Told::default() };
        let outcome = measure(&workload, &Case::default(), &device, &settings(WarmUp::Takes(0), 3), &mut told);
        let measured = measured(outcome);
        assert_eq!((measured.wall_ns, measured.stopped), (vec![7, 8], StopReason::Interrupted));
    }

    #[test]
    fn the_peak_is_that_of_this_case_and_of_what_was_kept_for_it() {
        let device = Simulated::new();
        device.use_bytes(1 << 30);
        let case = Case::new(vec![("bytes".to_owned(), 4096.into())]);
        let workload = Scripted::steps(&device, [1]);
        let outcome = measure(&workload, &case, &device, &settings(WarmUp::Takes(0), 1), &mut Told::default());
        let measured = measured(outcome);
        assert_eq!(measured.peak_bytes, Some(2 * 4096), "what was kept for it counts");
        assert_eq!(measured.fact("needed_bytes"), Some(&4096.into()));
    }
}
