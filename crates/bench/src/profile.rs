//! Profiling: the same take in turns recorded and not, so that what recording costs is known.

use laptime_probe::{lap, pause, stage};
use laptime_stats::{Rng, cost_of_first};
use laptime_trace::{
    Nanos,
    run::{Case, Outcome, StopReason},
};

use crate::{
    measure::{Taken, check, guarded, prepare, take_one},
    sink::Sink,
    stop::is_looked_at,
    workload::{Device, Take, Workload},
};

/// How a case is profiled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProfileSettings {
    /// Takes before the first pair.
    pub warmup: usize,
    /// Pairs at least.
    pub at_least: usize,
    /// How wide to either side the interval of the overhead may be, as a share of the take; infinite for exactly the
    /// pairs that there are at least.
    pub within: f64,
    /// The time after which it ends anyway.
    pub at_most_ns: u64,
}

/// A profiled case.
#[derive(Debug, Clone, PartialEq)]
pub struct Profiled {
    /// What became of it; the takes that count are those that were not recorded.
    pub outcome: Outcome,
    /// A recorded take and one that was not, taken in random order one after the other, in nanoseconds.
    pub pairs: Vec<(f64, f64)>,
}

/// What the intervals and the order of the pairs start from.
const SEED: u64 = 0x0f_1a95;

/// Profiles one case while the caller records this process.
///
/// Preparation, check, warm-up and each recorded take are stages of the trace; takes that are not recorded leave
/// nothing in it.
pub fn profile(
    workload: &dyn Workload,
    case: &Case,
    device: &dyn Device,
    settings: &ProfileSettings,
    sink: &mut dyn Sink,
) -> Profiled {
    let mut taken = Taken::new(workload.metrics());
    let mut pairs = Vec::new();
    device.reset_peak();
    let ended = guarded(|| {
        let mut take = match prepare(workload, case, device, &mut taken)? {
            Ok(take) => take,
            Err(outcome) => return Ok(Err(outcome)),
        };
        check(&mut *take, device, &mut taken)?;
        warm_up(&mut *take, device, settings, sink, &mut taken)?;
        take_pairs(&mut *take, device, settings, sink, &mut taken, &mut pairs).map(Ok)
    });
    Profiled { outcome: taken.outcome(ended, device), pairs }
}

fn warm_up(
    take: &mut dyn Take,
    device: &dyn Device,
    settings: &ProfileSettings,
    sink: &mut dyn Sink,
    taken: &mut Taken,
) -> anyhow::Result<()> {
    for at in 0..settings.warmup {
        let _stage = stage!("warm_up", take = at);
        let wall_ns = take_one(take, device)?;
        taken.measured.warmup_ns.push(wall_ns);
        sink.take(wall_ns, false);
        if sink.is_interrupted() {
            break;
        }
    }
    Ok(())
}

fn take_pairs(
    take: &mut dyn Take,
    device: &dyn Device,
    settings: &ProfileSettings,
    sink: &mut dyn Sink,
    taken: &mut Taken,
    pairs: &mut Vec<(f64, f64)>,
) -> anyhow::Result<StopReason> {
    let mut rng = Rng::new(SEED);
    let mut elapsed = 0;
    loop {
        let at = pairs.len();
        let is_recorded_first = rng.below(2) == 0;
        let recorded_first = if is_recorded_first { Some(recorded(take, device, at)?) } else { None };
        let idle = {
            let _paused = pause();
            recorded(take, device, at)?
        };
        taken.keep(idle, take.readings(Nanos(idle)));
        sink.take(idle, true);
        let recorded = match recorded_first {
            Some(recorded) => recorded,
            None => recorded(take, device, at)?,
        };
        pairs.push((recorded as f64, idle as f64));
        elapsed += recorded + idle;
        if let Some(reason) = reason_to_stop(pairs, elapsed, settings) {
            return Ok(reason);
        }
        if sink.is_interrupted() {
            return Ok(StopReason::Interrupted);
        }
    }
}

/// One take as a lap of the trace, if anything records; the mark is there in both states.
fn recorded(take: &mut dyn Take, device: &dyn Device, at: usize) -> anyhow::Result<u64> {
    device.synchronise()?;
    let start = device.now();
    {
        let _lap = lap!("take", take = at);
        take.run()?;
        device.synchronise()?;
    }
    Ok(device.now().saturating_sub(start).0)
}

/// Looks at the interval as seldom as other stop rules do.
fn reason_to_stop(pairs: &[(f64, f64)], elapsed: u64, settings: &ProfileSettings) -> Option<StopReason> {
    if settings.within.is_infinite() && pairs.len() >= settings.at_least {
        return Some(StopReason::Takes(pairs.len()));
    }
    let is_up = elapsed >= settings.at_most_ns;
    let is_enough = pairs.len() >= settings.at_least;
    if !(is_up || is_enough && is_looked_at(pairs.len(), settings.at_least)) {
        return None;
    }
    let reach = cost_of_first(pairs, SEED).and_then(|cost| cost.interval).map(|interval| interval.width() / 2.0);
    match reach {
        Some(reach) if reach <= settings.within && is_enough => Some(StopReason::Narrow { reach }),
        reach => is_up.then_some(StopReason::TimeUp { reach }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        scripted::{Scripted, Step, Told},
        simulated::Simulated,
    };

    const SETTINGS: ProfileSettings = ProfileSettings { warmup: 1, at_least: 5, within: 0.001, at_most_ns: 1_000_000 };

    #[test]
    fn pairs_are_taken_until_the_overhead_is_known() {
        let device = Simulated::new();
        let profiled =
            profile(&Scripted::steps(&device, [100; 50]), &Case::default(), &device, &SETTINGS, &mut Told::default());
        assert_eq!(profiled.pairs, [(100.0, 100.0); 5]);
        let Outcome::Measured(measured) = profiled.outcome else { panic!("{:?}", profiled.outcome) };
        assert_eq!((measured.warmup_ns, measured.wall_ns), (vec![100], vec![100; 5]));
        assert_eq!(measured.stopped, StopReason::Narrow { reach: 0.0 });
    }

    #[test]
    fn the_order_within_pairs_is_not_always_the_same() {
        let device = Simulated::new();
        let workload = Scripted::steps(&device, 1..=41);
        let profiled = profile(&workload, &Case::default(), &device, &SETTINGS, &mut Told::default());
        let recorded_first = profiled.pairs.iter().filter(|(recorded, idle)| recorded < idle).count();
        assert!((5..=15).contains(&recorded_first), "{:?}", profiled.pairs);
    }

    #[test]
    fn a_failure_keeps_the_pairs_before_it() {
        let device = Simulated::new();
        let steps = [Step::Lasts(1), Step::Lasts(2), Step::Lasts(3), Step::Fails];
        let profiled =
            profile(&Scripted::of(&device, steps.to_vec()), &Case::default(), &device, &SETTINGS, &mut Told::default());
        assert!(matches!(profiled.outcome, Outcome::Failed { .. }));
        assert_eq!(profiled.pairs.len(), 1);
    }
}
