//! What is measured, and on what: the traits that a workload and a device implement.

use std::{any::Any, sync::Arc};

use laptime_probe::Lane;
use laptime_trace::{
    GraphReplays, KernelRecords, Nanos,
    run::{Better, Case, Depth, DeviceState, Fact, L2, Outcome, Timing, Work},
};

use crate::{
    alias::{Alias, Given, resolve},
    given::GivenSettings,
    plan::{AxisSpec, Plan, PlanError},
};

/// Something that can be measured, with axes along which it varies.
pub trait Workload: Send + Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it is, in a line.
    fn about(&self) -> &'static str;

    /// Its axes, in the order in which they are shown.
    fn axes(&self) -> Vec<AxisSpec>;

    /// Other names of its axes and of values on them.
    fn aliases(&self) -> Vec<Alias> {
        Vec::new()
    }

    /// Settles what was asked for, by the names that were written. Every combination of values is a case, unless the
    /// workload says otherwise: where one axis decides what another takes, or a name decides on defaults.
    fn plan(&self, given: &[Given]) -> Result<Plan, PlanError> {
        Plan::settle(self.name(), self.axes(), &resolve(&self.aliases(), given)?)
    }

    /// How its cases are measured where neither a flag nor the command says so.
    fn usual_settings(&self) -> GivenSettings {
        GivenSettings::default()
    }

    /// The same case with what a word such as `auto` stands for on a device, so that results tell what was measured.
    fn on_device(&self, case: &Case, device: &dyn Device) -> Case {
        let _ = device;
        case.clone()
    }

    /// The same case with another whole number on an axis, and with whatever else follows from it.
    fn with(&self, case: &Case, axis: &str, value: i64) -> Case {
        case.with(axis, value)
    }

    /// The bytes that a case needs on a device, by what its shapes say; none if the workload does not predict it or the
    /// case makes no sense.
    fn predicted_bytes(&self, case: &Case, device: &dyn Device) -> anyhow::Result<Option<u64>> {
        let _ = (case, device);
        Ok(None)
    }

    /// What is known of a case before anything is prepared, such as the parameters of a model.
    fn known(&self, case: &Case) -> Vec<Fact> {
        let _ = case;
        Vec::new()
    }

    /// The quantities that its takes report beside their time.
    fn metrics(&self) -> Vec<MetricSpec> {
        Vec::new()
    }

    /// Gets ready for a case. What cannot run here is an answer; an error is a case that failed.
    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>>;
}

/// What became of the preparation of a case.
pub enum Prepared<'a> {
    /// Ready to run.
    Ready(Box<dyn Take + 'a>),
    /// The case makes no sense here, for this reason.
    DoesNotApply(String),
    /// The case needs more memory than there is; it was not tried.
    DoesNotFit {
        /// Bytes it needs.
        needed: u64,
        /// Bytes there are.
        available: u64,
    },
}

impl<'a> Prepared<'a> {
    /// The take, or what becomes of a case that has none.
    pub(crate) fn ready(self) -> Result<Box<dyn Take + 'a>, Box<Outcome>> {
        match self {
            Self::Ready(take) => Ok(take),
            Self::DoesNotApply(reason) => Err(Box::new(Outcome::Skipped { reason })),
            Self::DoesNotFit { needed, available } => {
                let (needed_bytes, available_bytes) = (Some(needed), Some(available));
                Err(Box::new(Outcome::OutOfMemory { needed_bytes, available_bytes }))
            }
        }
    }

    /// Makes the take, unless the device says that it has less memory than that needs.
    pub fn if_it_fits(
        needed: u64,
        device: &dyn Device,
        make: impl FnOnce() -> anyhow::Result<Box<dyn Take + 'a>>,
    ) -> anyhow::Result<Self> {
        match device.available_bytes() {
            Some(available) if needed > available => Ok(Self::DoesNotFit { needed, available }),
            _ => make().map(Self::Ready),
        }
    }
}

/// A case that is ready: one call of [`Take::run`] is one take.
pub trait Take {
    /// Checks the result once, before anything is timed; a wrong result is a case that failed.
    fn check(&mut self) -> anyhow::Result<()>;

    /// Makes ready for the next take, such as a cache that is to be cold. This is not timed.
    fn ready(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Does the work once. This is what is timed.
    fn run(&mut self) -> anyhow::Result<()>;

    /// What the last take showed beside its time, in the order of the workload's metrics. This is not timed.
    fn readings(&mut self, wall: Nanos) -> Vec<Option<f64>> {
        let _ = wall;
        Vec::new()
    }

    /// What one take has to do, if that can be counted.
    fn work(&self) -> Option<Work> {
        None
    }

    /// What is known of the case beside its axes, such as the parameters of a model; asked for after the takes.
    fn facts(&self) -> Vec<Fact> {
        Vec::new()
    }

    /// Bytes of the device's memory that were there before the case and that it uses, such as weights that an earlier
    /// case made; they are added to its peak.
    fn kept_bytes(&self) -> u64 {
        0
    }
}

/// A quantity that a workload reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricSpec {
    /// Its name, such as `tok_s`; the unit ends the name.
    pub name: &'static str,
    /// What it means, in a line.
    pub about: &'static str,
    /// Which way is good.
    pub better: Better,
}

/// What a workload runs on. It owns the clock, so that it can be simulated.
pub trait Device: Send + Sync {
    /// Its name, as results tell it.
    fn name(&self) -> &str;

    /// Waits until all work given to it is done.
    fn synchronise(&self) -> anyhow::Result<()>;

    /// The host's time, from an origin that stays the same. A device that records kernels tells both by the same clock.
    fn now(&self) -> Nanos;

    /// Forgets the highest memory use so far, of the device and of the host.
    fn reset_peak(&self);

    /// The highest memory use since it was forgotten, in bytes; none if nobody counts it.
    fn peak_bytes(&self) -> Option<u64>;

    /// The highest resident memory of the host's process since it was forgotten, in bytes; none if nobody knows.
    fn peak_rss_bytes(&self) -> Option<u64> {
        None
    }

    /// Memory that a case may use, in bytes; none if nobody knows.
    fn available_bytes(&self) -> Option<u64>;

    /// The timings that it can do; the first is its default.
    fn timings(&self) -> &[Timing] {
        &[Timing::Host]
    }

    /// Says how takes and stages are timed from here on: one of [`Device::timings`].
    fn set_timing(&self, timing: Timing) {
        let _ = timing;
    }

    /// Says how deep workloads mark their stages from here on; what is prepared before keeps its depth.
    fn set_depth(&self, depth: Depth) {
        let _ = depth;
    }

    /// How deep workloads mark their stages.
    fn depth(&self) -> Depth {
        Depth::default()
    }

    /// Where workloads put the stages of its work, as in `stage!("decode", on = device.lane())`; none if its work is
    /// done when a call returns. One lane holds under every timing.
    fn lane(&self) -> Option<&Lane> {
        None
    }

    /// A take begins, inside its time: a device that is timed by events marks its stream.
    fn begin_take(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// A take ends, inside its time, before it is waited for.
    fn end_take(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// What the device knows of the take that ended and was waited for. This is not timed.
    fn last_take(&self) -> TakeState {
        TakeState::default()
    }

    /// Whether it has a second-level cache that can be emptied.
    fn has_l2(&self) -> bool {
        false
    }

    /// Says what that cache is to hold when a take begins.
    fn set_l2(&self, l2: Option<L2>) {
        let _ = l2;
    }

    /// Empties the cache if it is to be cold. This is not timed.
    fn chill(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Whether it is lost to this process, so that whatever follows needs another one.
    fn is_lost(&self) -> bool {
        false
    }

    /// The device itself, for workloads that do different things on different devices.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }

    /// Begins to record every kernel and copy, by the clock of [`Device::now`]; none if the device cannot.
    fn record_kernels(&self) -> anyhow::Result<Option<Box<dyn KernelRecording>>> {
        Ok(None)
    }

    /// Takes what it kept of the stages inside replays of graphs. Asked when nothing that was prepared on it is left.
    fn take_replays(&self) -> GraphReplays {
        GraphReplays::default()
    }
}

/// What a device knows of a take.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TakeState {
    /// Time on the device's own clock from the beginning of the take to its end.
    pub device_ns: Option<u64>,
    /// How the device was doing.
    pub state: DeviceState,
}

/// A recording of every kernel and copy of a device, from its beginning on.
pub trait KernelRecording {
    /// Stops or goes on recording; what runs meanwhile costs no more than without.
    fn set_paused(&self, is_paused: bool) -> anyhow::Result<()>;

    /// Ends the recording and gives what was recorded. The device has been waited for.
    fn finish(self: Box<Self>) -> anyhow::Result<KernelRecords>;
}

/// The devices that there are.
pub trait Devices: Send + Sync {
    /// Opens a device by the name that a user gives: `auto`, `cpu`, `cuda`, `cuda:1`.
    fn open(&self, name: &str) -> anyhow::Result<Arc<dyn Device>>;
}
