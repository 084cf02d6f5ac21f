//! A workload for tests whose iterations follow a script, and a sink that stores what it receives.

use std::sync::Mutex;

use laptime_trace::Nanos;
use laptime_trace::run::{Better, Case, Fact};

use crate::workload::{Device, Iteration, MetricSpec, Prepared, Workload};
use crate::{plan::AxisSpec, simulated::Simulated, sink::Sink, trouble::OutOfMemory};

/// A workload whose iterations last as long as the script says, on the simulated clock.
pub(crate) struct Scripted<'a> {
    pub(crate) device: &'a Simulated,
    steps: Mutex<std::vec::IntoIter<Step>>,
}

#[derive(Clone)]
pub(crate) enum Step {
    Lasts(u64),
    /// The host is busy, and the work it submitted to the device runs longer.
    Submits {
        host: u64,
        device: u64,
    },
    Fails,
    Panics,
    LacksMemory,
}

impl<'a> Scripted<'a> {
    pub(crate) fn steps(device: &'a Simulated, steps: impl IntoIterator<Item = u64>) -> Self {
        Self::of(device, steps.into_iter().map(Step::Lasts).collect())
    }

    pub(crate) fn of(device: &'a Simulated, steps: Vec<Step>) -> Self {
        Self { device, steps: Mutex::new(steps.into_iter()) }
    }
}

impl Workload for Scripted<'_> {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn about(&self) -> &'static str {
        "takes the configured time per iteration"
    }

    fn axes(&self) -> Vec<AxisSpec> {
        Vec::new()
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        vec![MetricSpec { name: "per_s", about: "", better: Better::Higher }]
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        if case.get("applies").is_some() {
            return Ok(Prepared::DoesNotApply("it was configured not to apply".to_owned()));
        }
        self.device.advance(Nanos(case.int("prepares").unwrap_or(0) as u64));
        let needed = case.int("bytes").unwrap_or(0) as u64;
        Prepared::if_it_fits(needed, device, || Ok(Box::new(ScriptedIteration { workload: self, needed })))
    }
}

pub(crate) struct ScriptedIteration<'a> {
    workload: &'a Scripted<'a>,
    needed: u64,
}

/// How long a check takes on the simulated clock.
pub(crate) const CHECK: Nanos = Nanos(3);

impl Iteration for ScriptedIteration<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.workload.device.advance(CHECK);
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<()> {
        self.workload.device.use_bytes(self.needed);
        let step = self.workload.steps.lock().unwrap().next();
        match step {
            Some(Step::Lasts(nanos)) => self.workload.device.advance(Nanos(nanos)),
            Some(Step::Submits { host, device }) => {
                self.workload.device.advance(Nanos(host));
                self.workload.device.submit(Nanos(device));
            }
            Some(Step::LacksMemory) => {
                let lack = OutOfMemory { needed_bytes: Some(8), available_bytes: None };
                return Err(anyhow::Error::new(lack).context("it was configured to fail"));
            }
            Some(Step::Panics) => panic!("out of range"),
            Some(Step::Fails) | None => {
                return Err(anyhow::anyhow!("no more steps").context("the script ended"));
            }
        }
        Ok(())
    }

    fn facts(&self) -> Vec<Fact> {
        vec![Fact::new("needed_bytes", self.needed as i64)]
    }

    /// Half of the memory that a case uses was allocated before it.
    fn kept_bytes(&self) -> u64 {
        self.needed
    }

    fn readings(&mut self, wall: Nanos) -> Vec<Option<f64>> {
        vec![Some(1e9 / wall.0 as f64)]
    }
}

/// Stores the events it receives, and stops after a number of iterations.
#[derive(Default)]
pub(crate) struct CollectingSink {
    pub(crate) iterations: Vec<(u64, bool)>,
    pub(crate) stop_after: Option<usize>,
}

impl Sink for CollectingSink {
    fn iteration(&mut self, wall_ns: u64, counts: bool) {
        self.iterations.push((wall_ns, counts));
    }

    fn is_interrupted(&self) -> bool {
        self.stop_after.is_some_and(|after| self.iterations.len() >= after)
    }
}
