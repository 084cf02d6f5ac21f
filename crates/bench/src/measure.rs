//! The measuring loop: one case, from preparation to result.

use laptime_trace::Nanos;
use serde::{Deserialize, Serialize};

use crate::{
    case::Case,
    stop::{Stop, StopReason},
    workload::{Device, Prepared, Take, Workload},
};

/// How a case is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Takes before the first that counts.
    pub warmup: usize,
    /// When sampling stops.
    pub stop: Stop,
}

/// One take: what it took and what it said of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Host time, synchronised at both ends, in nanoseconds.
    pub wall_ns: u64,
    /// The workload's own metrics, in their order.
    pub metrics: Vec<f64>,
}

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It was measured.
    Measured {
        /// Takes that do not count.
        warmup: Vec<Sample>,
        /// Every take that counts.
        samples: Vec<Sample>,
        /// Why there are no more.
        stopped: StopReason,
        /// The highest memory use of the device over all takes; none if nobody counts it.
        peak_bytes: Option<u64>,
    },
    /// It makes no sense here.
    Skipped {
        /// Why not.
        reason: String,
    },
    /// It needs more memory than there is.
    OutOfMemory {
        /// Bytes it needs.
        needed_bytes: u64,
        /// Bytes there are.
        available_bytes: u64,
    },
    /// It failed.
    Failed {
        /// The chain of causes, outermost first.
        errors: Vec<String>,
        /// The takes that were finished before.
        samples: Vec<Sample>,
    },
}

/// Is told what happens, so that somebody can show it; nothing is shown inside a take.
pub trait Sink {
    /// A case begins.
    fn begin(&mut self, case: &Case);

    /// A take ended; `counts` is false for a warm-up.
    fn take(&mut self, sample: &Sample, counts: bool);

    /// Whether to stop after this take.
    fn is_interrupted(&self) -> bool {
        false
    }
}

/// Measures one case. A case that cannot run, fails or does not fit is an outcome, never an error.
pub fn measure(
    workload: &dyn Workload,
    case: &Case,
    device: &dyn Device,
    settings: Settings,
    sink: &mut dyn Sink,
) -> Outcome {
    sink.begin(case);
    device.reset_peak();
    let mut taken = Taken::default();
    let measured = match workload.prepare(case, device) {
        Ok(Prepared::Ready(mut take)) => take_all(&mut *take, device, settings, sink, &mut taken),
        Ok(Prepared::DoesNotApply(reason)) => return Outcome::Skipped { reason },
        Ok(Prepared::DoesNotFit { needed, available }) => {
            return Outcome::OutOfMemory { needed_bytes: needed, available_bytes: available };
        }
        Err(error) => Err(error),
    };
    let Taken { warmup, samples } = taken;
    match measured {
        Ok(stopped) => Outcome::Measured { warmup, samples, stopped, peak_bytes: device.peak_bytes() },
        Err(error) => Outcome::Failed { errors: error.chain().map(ToString::to_string).collect(), samples },
    }
}

/// What has been taken so far; kept through a failure.
#[derive(Default)]
struct Taken {
    warmup: Vec<Sample>,
    samples: Vec<Sample>,
}

fn take_all(
    take: &mut dyn Take,
    device: &dyn Device,
    settings: Settings,
    sink: &mut dyn Sink,
    taken: &mut Taken,
) -> anyhow::Result<StopReason> {
    take.check()?;
    for _ in 0..settings.warmup {
        taken.warmup.push(take_one(take, device)?);
        sink.take(&taken.warmup[taken.warmup.len() - 1], false);
        if sink.is_interrupted() {
            return Ok(StopReason::Interrupted);
        }
    }
    let mut walls = Vec::new();
    let mut elapsed = 0;
    loop {
        let sample = take_one(take, device)?;
        elapsed += sample.wall_ns;
        walls.push(sample.wall_ns);
        sink.take(&sample, true);
        taken.samples.push(sample);
        if let Some(reason) = settings.stop.reason(&walls, Nanos(elapsed)) {
            return Ok(reason);
        }
        if sink.is_interrupted() {
            return Ok(StopReason::Interrupted);
        }
    }
}

/// One take, synchronised at both ends.
fn take_one(take: &mut dyn Take, device: &dyn Device) -> anyhow::Result<Sample> {
    device.synchronise()?;
    let start = device.now();
    let metrics = take.run()?;
    device.synchronise()?;
    let wall_ns = device.now().saturating_sub(start).0;
    Ok(Sample { wall_ns, metrics })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan::AxisSpec, simulated::Simulated};
    use std::sync::Mutex;

    /// A workload whose takes last as long as the script says, on the simulated clock.
    struct Scripted<'a> {
        device: &'a Simulated,
        steps: Mutex<std::vec::IntoIter<Step>>,
    }

    #[derive(Clone)]
    enum Step {
        Lasts(u64),
        Fails,
    }

    impl<'a> Scripted<'a> {
        fn steps(device: &'a Simulated, steps: impl IntoIterator<Item = u64>) -> Self {
            Self::of(device, steps.into_iter().map(Step::Lasts).collect())
        }

        fn of(device: &'a Simulated, steps: Vec<Step>) -> Self {
            Self { device, steps: Mutex::new(steps.into_iter()) }
        }
    }

    impl Workload for Scripted<'_> {
        fn name(&self) -> &str {
            "scripted"
        }

        fn about(&self) -> &str {
            "takes as long as it is told"
        }

        fn axes(&self) -> Vec<AxisSpec> {
            Vec::new()
        }

        fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
            if case.get("applies").is_some() {
                return Ok(Prepared::DoesNotApply("it was told not to".to_owned()));
            }
            let needed = case.int("bytes").unwrap_or(0) as u64;
            match device.available_bytes() {
                Some(available) if needed > available => Ok(Prepared::DoesNotFit { needed, available }),
                _ => Ok(Prepared::Ready(Box::new(ScriptedTake { workload: self, needed }))),
            }
        }
    }

    struct ScriptedTake<'a> {
        workload: &'a Scripted<'a>,
        needed: u64,
    }

    impl Take for ScriptedTake<'_> {
        fn check(&mut self) -> anyhow::Result<()> {
            Ok(())
        }

        fn run(&mut self) -> anyhow::Result<Vec<f64>> {
            self.workload.device.use_bytes(self.needed);
            match self.workload.steps.lock().unwrap().next() {
                Some(Step::Lasts(nanos)) => {
                    self.workload.device.advance(Nanos(nanos));
                    Ok(vec![nanos as f64])
                }
                Some(Step::Fails) | None => Err(anyhow::anyhow!("no more steps").context("the script ended")),
            }
        }
    }

    /// Keeps what it is told, and stops after a number of takes.
    #[derive(Default)]
    struct Told {
        cases: Vec<String>,
        takes: Vec<(u64, bool)>,
        stop_after: Option<usize>,
    }

    impl Sink for Told {
        fn begin(&mut self, case: &Case) {
            self.cases.push(case.to_string());
        }

        fn take(&mut self, sample: &Sample, counts: bool) {
            self.takes.push((sample.wall_ns, counts));
        }

        fn is_interrupted(&self) -> bool {
            self.stop_after.is_some_and(|after| self.takes.len() >= after)
        }
    }

    fn walls(samples: &[Sample]) -> Vec<u64> {
        samples.iter().map(|sample| sample.wall_ns).collect()
    }

    fn settings(warmup: usize, takes: usize) -> Settings {
        Settings { warmup, stop: Stop::Takes(takes) }
    }

    #[test]
    fn warm_up_takes_are_kept_and_not_counted() {
        let device = Simulated::new();
        let workload = Scripted::steps(&device, [900, 50, 52]);
        let mut told = Told::default();
        let outcome = measure(&workload, &Case::default(), &device, settings(1, 2), &mut told);
        let Outcome::Measured { warmup, samples, stopped, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!((walls(&warmup), walls(&samples)), (vec![900], vec![50, 52]));
        assert_eq!(stopped, StopReason::Takes(2));
        assert_eq!(told.takes, [(900, false), (50, true), (52, true)]);
    }

    #[test]
    fn a_failure_keeps_the_takes_before_it_and_the_chain_of_causes() {
        let device = Simulated::new();
        let workload = Scripted::of(&device, vec![Step::Lasts(5), Step::Lasts(6), Step::Fails]);
        let outcome = measure(&workload, &Case::default(), &device, settings(0, 9), &mut Told::default());
        let Outcome::Failed { errors, samples } = outcome else { panic!("{outcome:?}") };
        assert_eq!((errors, walls(&samples)), (vec!["the script ended".into(), "no more steps".into()], vec![5, 6]));
    }

    #[test]
    fn a_case_that_does_not_fit_is_told_with_its_needs_and_never_run() {
        let device = Simulated::with_memory(1000);
        let workload = Scripted::steps(&device, [1]);
        let case = Case::new(vec![("bytes".to_owned(), 4096.into())]);
        let outcome = measure(&workload, &case, &device, settings(0, 1), &mut Told::default());
        assert_eq!(outcome, Outcome::OutOfMemory { needed_bytes: 4096, available_bytes: 1000 });
        assert_eq!(device.now(), Nanos(0));
    }

    #[test]
    fn a_case_that_makes_no_sense_is_skipped_with_a_reason() {
        let device = Simulated::new();
        let case = Case::new(vec![("applies".to_owned(), "no".into())]);
        let outcome = measure(&Scripted::steps(&device, []), &case, &device, settings(0, 1), &mut Told::default());
        assert_eq!(outcome, Outcome::Skipped { reason: "it was told not to".to_owned() });
    }

    #[test]
    fn an_interruption_comes_after_the_take_and_keeps_everything() {
        let device = Simulated::new();
        let workload = Scripted::steps(&device, [7, 8, 9]);
        let mut told = Told { stop_after: Some(2), ..Told::default() };
        let outcome = measure(&workload, &Case::default(), &device, settings(0, 3), &mut told);
        let Outcome::Measured { samples, stopped, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!((walls(&samples), stopped), (vec![7, 8], StopReason::Interrupted));
    }

    #[test]
    fn the_peak_is_that_of_this_case() {
        let device = Simulated::new();
        device.use_bytes(1 << 30);
        let case = Case::new(vec![("bytes".to_owned(), 4096.into())]);
        let outcome = measure(&Scripted::steps(&device, [1]), &case, &device, settings(0, 1), &mut Told::default());
        let Outcome::Measured { peak_bytes, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(peak_bytes, Some(4096));
    }

    #[test]
    fn an_outcome_survives_being_written_and_read() {
        let sample = |wall_ns| Sample { wall_ns, metrics: vec![0.5] };
        for outcome in [
            Outcome::Measured {
                warmup: vec![sample(9)],
                samples: vec![sample(1), sample(2)],
                stopped: StopReason::Narrow { reach: 0.01 },
                peak_bytes: None,
            },
            Outcome::Skipped { reason: "no".into() },
            Outcome::OutOfMemory { needed_bytes: 2, available_bytes: 1 },
            Outcome::Failed { errors: vec!["a".into()], samples: vec![] },
        ] {
            let text = serde_json::to_string(&outcome).unwrap();
            assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome, "{text}");
        }
    }
}
