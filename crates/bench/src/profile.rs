//! Profiling: alternates recorded and unrecorded iterations to measure the cost of recording.

use laptime_probe::{lap, pause, stage};
use laptime_stats::{Rng, cost_of_first};
use laptime_trace::run::{Case, Depth, L2, Outcome, StopReason, Timing};
use laptime_trace::{GraphReplays, KernelRecords, Nanos, kernels::Stretch};

use crate::measure::{Collected, One, guarded, kernels, run_one};
use crate::workload::{Device, Iteration, KernelRecording, Workload};
use crate::{sink::Sink, stop::is_looked_at};

/// How a case is profiled.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileSettings {
    /// Warm-up iterations before the first round.
    pub warmup: usize,
    /// The minimum number of rounds.
    pub at_least: usize,
    /// The largest half-width of the interval of the overhead, as a share of the iteration; infinite for exactly the
    /// minimum number of rounds.
    pub within: f64,
    /// The maximum time.
    pub at_most_ns: u64,
    /// The state of the device's L2 cache when an iteration begins.
    pub l2: Option<L2>,
    /// How deep stages are marked.
    pub depth: Depth,
    /// The timings. Each round has one recorded iteration per timing, and one unrecorded iteration.
    pub timings: Vec<Timing>,
}

/// A profiled case.
#[derive(Debug, Clone, PartialEq)]
pub struct Profiled {
    /// The outcome; the unrecorded iterations count.
    pub outcome: Outcome,
    /// The cost of each timing, in the order of the settings.
    pub costs: Vec<TimingPairs>,
    /// The device's work in the iterations timed by `kernels`, if there were any.
    pub kernels: Option<KernelRecords>,
    /// The stages inside graph replays, if the device stamped them.
    pub replays: GraphReplays,
}

/// The iterations used to compute the cost of a timing.
#[derive(Debug, Clone, PartialEq)]
pub struct TimingPairs {
    /// The timing.
    pub timing: Timing,
    /// Pairs of a recorded and an unrecorded iteration of the same round, in nanoseconds.
    pub pairs: Vec<(f64, f64)>,
}

/// The seed of the intervals and of the order within rounds.
const SEED: u64 = 0x0f_1a95;

/// Profiles one case while the caller records this process.
///
/// Preparation, check, warm-up and each recorded iteration are stages of the trace. Unrecorded iterations leave nothing
/// in it and are timed by the host clock alone.
pub fn profile(
    workload: &dyn Workload,
    case: &Case,
    device: &dyn Device,
    settings: &ProfileSettings,
    sink: &mut dyn Sink,
) -> Profiled {
    let costs = settings.timings.iter().map(|&timing| TimingPairs { timing, pairs: Vec::new() }).collect();
    let (collected, rng) = (Collected::new(workload.metrics()), Rng::new(SEED));
    let mut rounds =
        Rounds { device, settings, sink, collected, costs, recording: None, kernels: None, rng, elapsed_ns: 0 };
    device.set_timing(settings.timings.first().copied().unwrap_or_default());
    device.set_l2(settings.l2);
    device.set_depth(settings.depth);
    device.reset_peak();
    let ended = guarded(|| {
        let mut iteration = match rounds.collected.prepare(workload, case, device)? {
            Ok(iteration) => iteration,
            Err(outcome) => return Ok(Err(outcome)),
        };
        rounds.collected.check(&mut *iteration, device)?;
        rounds.warm_up(&mut *iteration)?;
        rounds.listen()?;
        let stopped = rounds.run_all(&mut *iteration)?;
        rounds.stop_listening()?;
        rounds.collected.ask(&*iteration);
        Ok(Ok(stopped))
    });
    let Rounds { collected, costs, kernels, .. } = rounds;
    Profiled { outcome: collected.outcome(ended, device), costs, kernels, replays: device.take_replays() }
}

/// Rounds of iterations: one per timing and one unrecorded, in random order.
struct Rounds<'a> {
    device: &'a dyn Device,
    settings: &'a ProfileSettings,
    sink: &'a mut dyn Sink,
    collected: Collected,
    costs: Vec<TimingPairs>,
    recording: Option<Box<dyn KernelRecording>>,
    kernels: Option<KernelRecords>,
    rng: Rng,
    elapsed_ns: u64,
}

impl Rounds<'_> {
    fn warm_up(&mut self, iteration: &mut dyn Iteration) -> anyhow::Result<()> {
        for at in 0..self.settings.warmup {
            let _stage = stage!("warm_up", iteration = at);
            let wall_ns = run_one(iteration, self.device)?.wall_ns();
            self.collected.keep_warm_up(wall_ns, iteration.readings(Nanos(wall_ns)));
            self.sink.iteration(wall_ns, false);
            if self.sink.is_interrupted() {
                break;
            }
        }
        Ok(())
    }

    /// Records kernels only in the iterations of the timing that needs them.
    fn listen(&mut self) -> anyhow::Result<()> {
        if self.costs.iter().any(|cost| cost.timing == Timing::Kernels) {
            self.recording = kernels(self.device, Timing::Kernels)?;
        }
        self.recording.as_ref().map_or(Ok(()), |recording| recording.set_paused(true))
    }

    fn stop_listening(&mut self) -> anyhow::Result<()> {
        self.kernels = self.recording.take().map(KernelRecording::finish).transpose()?;
        Ok(())
    }

    fn run_all(&mut self, iteration: &mut dyn Iteration) -> anyhow::Result<StopReason> {
        for round in 0.. {
            self.run_round(iteration, round)?;
            if let Some(reason) = self.reason_to_stop() {
                return Ok(reason);
            }
            if self.sink.is_interrupted() {
                break;
            }
        }
        Ok(StopReason::Interrupted)
    }

    fn run_round(&mut self, iteration: &mut dyn Iteration, round: usize) -> anyhow::Result<()> {
        let mut order: Vec<Option<usize>> = (0..self.costs.len()).map(Some).chain([None]).collect();
        self.rng.shuffle(&mut order);
        let (mut walls, mut idle_ns) = (vec![0; self.costs.len()], 0);
        for which in order {
            match which {
                Some(at) => walls[at] = self.recorded(iteration, round, self.costs[at].timing)?.wall_ns(),
                None => {
                    let idle = self.unrecorded(iteration, round)?;
                    idle_ns = idle.wall_ns();
                    self.collected.keep(idle, iteration.readings(Nanos(idle_ns)));
                    self.sink.iteration(idle_ns, true);
                }
            }
        }
        for (cost, wall) in self.costs.iter_mut().zip(walls) {
            cost.pairs.push((wall as f64, idle_ns as f64));
            self.elapsed_ns += wall;
        }
        self.elapsed_ns += idle_ns;
        Ok(())
    }

    fn unrecorded(&self, iteration: &mut dyn Iteration, round: usize) -> anyhow::Result<One> {
        let _paused = pause();
        self.device.set_timing(Timing::Host);
        self.one(iteration, round, Timing::Host)
    }

    fn recorded(&self, iteration: &mut dyn Iteration, round: usize, timing: Timing) -> anyhow::Result<One> {
        self.device.set_timing(timing);
        let recording = self.recording.as_ref().filter(|_| timing == Timing::Kernels);
        recording.map_or(Ok(()), |recording| recording.set_paused(false))?;
        let one = self.one(iteration, round, timing)?;
        recording.map_or(Ok(()), |recording| recording.set_paused(true))?;
        Ok(one)
    }

    /// Runs one iteration as a lap of the trace. The code for the lap runs in unrecorded iterations too.
    fn one(&self, iteration: &mut dyn Iteration, round: usize, timing: Timing) -> anyhow::Result<One> {
        iteration.ready()?;
        self.device.chill()?;
        self.device.synchronise()?;
        let start_ns = self.device.now().0;
        {
            let _lap = lap!("iteration", on = self.device.lane(), iteration = round, timing = timing.word());
            iteration.run()?;
            self.device.synchronise()?;
        }
        let time = Stretch { start_ns, end_ns: self.device.now().0 };
        Ok(One { time, state: self.device.last_iteration() })
    }

    /// Checks the intervals as rarely as other stop rules do; the widest one decides.
    fn reason_to_stop(&self) -> Option<StopReason> {
        let settings = self.settings;
        let rounds = self.costs.first().map_or(0, |cost| cost.pairs.len());
        let is_enough = rounds >= settings.at_least;
        if settings.within.is_infinite() && is_enough {
            return Some(StopReason::Iterations(rounds));
        }
        let is_up = self.elapsed_ns >= settings.at_most_ns;
        if !(is_up || is_enough && is_looked_at(rounds, settings.at_least)) {
            return None;
        }
        let half_width = |cost: &TimingPairs| Some(cost_of_first(&cost.pairs, SEED)?.interval?.width() / 2.0);
        let half_widths: Option<Vec<f64>> = self.costs.iter().map(half_width).collect();
        match half_widths.map(|reaches| reaches.into_iter().fold(0.0, f64::max)) {
            Some(half_width) if half_width <= settings.within && is_enough => {
                Some(StopReason::NarrowInterval { half_width })
            }
            half_width => is_up.then_some(StopReason::MaxTime { half_width }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        scripted::{CollectingSink, Scripted, Step},
        simulated::Simulated,
    };

    fn settings(timings: &[Timing]) -> ProfileSettings {
        let timings = timings.to_vec();
        let depth = Depth::Pipeline;
        ProfileSettings { warmup: 1, at_least: 5, within: 0.001, at_most_ns: 1_000_000, l2: None, depth, timings }
    }

    fn profiled(device: &Simulated, steps: Vec<Step>, timings: &[Timing]) -> Profiled {
        let workload = Scripted::of(device, steps);
        profile(&workload, &Case::default(), device, &settings(timings), &mut CollectingSink::default())
    }

    #[test]
    fn pairs_are_measured_until_the_overhead_is_known() {
        let device = Simulated::new();
        let profiled = profiled(&device, vec![Step::Lasts(100); 50], &[Timing::Host]);
        assert_eq!(profiled.costs, [TimingPairs { timing: Timing::Host, pairs: vec![(100.0, 100.0); 6] }]);
        let Outcome::Measured(measured) = profiled.outcome else { panic!("{:?}", profiled.outcome) };
        assert_eq!((measured.warmup_ns, measured.wall_ns), (vec![100], vec![100; 6]));
        assert_eq!(measured.stopped, StopReason::NarrowInterval { half_width: 0.0 });
    }

    #[test]
    fn the_order_within_pairs_is_not_always_the_same() {
        let device = Simulated::new();
        let profiled = profiled(&device, (1..=41).map(Step::Lasts).collect(), &[Timing::Host]);
        let pairs = &profiled.costs[0].pairs;
        let recorded_first = pairs.iter().filter(|(recorded, idle)| recorded < idle).count();
        assert!((5..=15).contains(&recorded_first), "{pairs:?}");
    }

    #[test]
    fn a_failure_keeps_the_pairs_before_it() {
        let device = Simulated::new();
        let steps = vec![Step::Lasts(1), Step::Lasts(2), Step::Lasts(3), Step::Fails];
        let profiled = profiled(&device, steps, &[Timing::Host]);
        assert!(matches!(profiled.outcome, Outcome::Failed { .. }));
        assert_eq!(profiled.costs[0].pairs.len(), 1);
    }

    #[test]
    fn every_round_has_an_iteration_of_each_timing_and_kernels_are_recorded_only_in_theirs() {
        let device = Simulated::with_clock();
        let steps = vec![Step::Submits { host: 10, device: 40 }; 31];
        let profiled = profiled(&device, steps, &Timing::ALL);
        assert_eq!(profiled.costs.iter().map(|cost| cost.timing).collect::<Vec<_>>(), Timing::ALL);
        assert!(profiled.costs.iter().all(|cost| cost.pairs == [(50.0, 50.0); 6]), "{:?}", profiled.costs);
        assert_eq!(profiled.kernels.unwrap().work.len(), 6);
    }
}
