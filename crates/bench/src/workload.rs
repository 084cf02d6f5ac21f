//! The traits that workloads and devices implement.

use std::{any::Any, sync::Arc};

use laptime_probe::Lane;
use laptime_trace::run::{Better, Case, Depth, DeviceState, Fact, L2, Outcome, Timing, Work};
use laptime_trace::{GraphReplays, KernelRecords, Nanos};

use crate::alias::{Alias, Given, resolve};
use crate::given::GivenSettings;
use crate::plan::{AxisSpec, Plan, PlanError};
use crate::trouble::OutOfMemory;

/// Something that can be measured, with axes along which it varies.
pub trait Workload: Send + Sync {
    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// A description in one line.
    fn about(&self) -> &'static str;

    /// The axes, in display order.
    fn axes(&self) -> Vec<AxisSpec>;

    /// Aliases of its axes and values.
    fn aliases(&self) -> Vec<Alias> {
        Vec::new()
    }

    /// Resolves the given words, keyed by the names as written. By default every combination of values is a case. A
    /// workload overrides this if one axis determines what another accepts, or if a name determines defaults.
    fn plan(&self, given: &[Given]) -> Result<Plan, PlanError> {
        Plan::settle(self.name(), self.axes(), &resolve(&self.aliases(), given)?)
    }

    /// The default settings of the workload, below flags and the command's settings.
    fn usual_settings(&self) -> GivenSettings {
        GivenSettings::default()
    }

    /// The same case with words such as `auto` replaced by their value for a device, so that results show what was
    /// measured.
    fn on_device(&self, case: &Case, device: &dyn Device) -> Case {
        let _ = device;
        case.clone()
    }

    /// The same case with another whole number on an axis, and everything that follows from it.
    fn with(&self, case: &Case, axis: &str, value: i64) -> Case {
        case.with(axis, value)
    }

    /// Facts about a case that are known without a device, such as the parameters of a model. Tables of a finished run
    /// show them for cases that were not measured, when the device may be closed.
    fn known(&self, case: &Case) -> Vec<Fact> {
        let _ = case;
        Vec::new()
    }

    /// The metrics that its iterations report in addition to their time.
    fn metrics(&self) -> Vec<MetricSpec> {
        Vec::new()
    }

    /// Parses a case for a device; an error means that the case is invalid. A workload that predicts memory or work
    /// overrides it; by default the parsed case can only be prepared.
    fn parse<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Box<dyn ParsedCase<'a> + 'a>> {
        let case = case.clone();
        Ok(Box::new(move || self.prepare(&case, device)))
    }

    /// Prepares a case. A case that cannot run here is a valid answer; an error means that the case failed. A workload
    /// that overrides [`Workload::parse`] prepares the parsed case: `self.parse(case, device)?.prepare()`.
    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>>;
}

/// A case that a workload has parsed for a device.
pub trait ParsedCase<'a> {
    /// The bytes that it needs on the device, computed from its shapes; none if that is not known or it cannot run.
    fn predicted_bytes(&self) -> Option<u64> {
        None
    }

    /// The work of one iteration, for an estimate of how long it takes; none if it is not known beforehand.
    fn predicted_work(&self) -> Option<Work> {
        None
    }

    /// Prepares it: see [`Workload::prepare`].
    fn prepare(self: Box<Self>) -> anyhow::Result<Prepared<'a>>;
}

/// A case that can only be prepared.
impl<'a, F: FnOnce() -> anyhow::Result<Prepared<'a>>> ParsedCase<'a> for F {
    fn prepare(self: Box<Self>) -> anyhow::Result<Prepared<'a>> {
        self()
    }
}

/// A case whose work is known when it is parsed.
impl<'a, F: FnOnce() -> anyhow::Result<Prepared<'a>>> ParsedCase<'a> for (Work, F) {
    fn predicted_work(&self) -> Option<Work> {
        Some(self.0.clone())
    }

    fn prepare(self: Box<Self>) -> anyhow::Result<Prepared<'a>> {
        self.1()
    }
}

/// The result of preparing a case.
pub enum Prepared<'a> {
    /// Ready to run.
    Ready(Box<dyn Iteration + 'a>),
    /// The case does not apply here, with the reason.
    DoesNotApply(String),
    /// The case needs more memory than is available; it was not tried.
    DoesNotFit {
        /// Needed bytes.
        needed: u64,
        /// Available bytes.
        available: u64,
    },
}

impl<'a> Prepared<'a> {
    /// The iteration, or the outcome of a case that has none.
    pub(crate) fn ready(self) -> Result<Box<dyn Iteration + 'a>, Box<Outcome>> {
        match self {
            Self::Ready(iteration) => Ok(iteration),
            Self::DoesNotApply(reason) => Err(Box::new(Outcome::Skipped { reason })),
            Self::DoesNotFit { needed, available } => {
                let (needed_bytes, available_bytes) = (Some(needed), Some(available));
                Err(Box::new(Outcome::OutOfMemory { needed_bytes, available_bytes }))
            }
        }
    }

    /// Builds the iteration, unless the device reports less memory than it needs.
    pub fn if_it_fits(
        needed: u64,
        device: &dyn Device,
        make: impl FnOnce() -> anyhow::Result<Box<dyn Iteration + 'a>>,
    ) -> anyhow::Result<Self> {
        match device.available_bytes() {
            Some(available) if needed > available => Ok(Self::DoesNotFit { needed, available }),
            _ => make().map(Self::Ready),
        }
    }
}

/// A prepared case: one call of [`Iteration::run`] is one iteration.
pub trait Iteration {
    /// Checks the result once, before anything is timed; a wrong result means that the case failed.
    fn check(&mut self) -> anyhow::Result<()>;

    /// Prepares the next iteration, for example by emptying a cache. This is not timed.
    fn ready(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Does the work once. This is timed.
    fn run(&mut self) -> anyhow::Result<()>;

    /// The metrics of the last iteration, in the order of the workload's metrics. This is not timed.
    fn readings(&mut self, wall: Nanos) -> Vec<Option<f64>> {
        let _ = wall;
        Vec::new()
    }

    /// The work of one iteration, if it can be counted.
    fn work(&self) -> Option<Work> {
        None
    }

    /// Facts about the case in addition to its axes, such as the parameters of a model; read after the iterations.
    fn facts(&self) -> Vec<Fact> {
        Vec::new()
    }

    /// Device memory in bytes that was allocated before the case and that it uses, such as weights loaded by an earlier
    /// case; it is added to the peak.
    fn kept_bytes(&self) -> u64 {
        0
    }
}

/// A metric that a workload reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricSpec {
    /// The name, such as `tok_s`; it ends in the unit.
    pub name: &'static str,
    /// What it means, in one line.
    pub about: &'static str,
    /// Whether lower or higher is better.
    pub better: Better,
}

/// The device that a workload runs on. It owns the clock, so that it can be simulated.
pub trait Device: Send + Sync {
    /// The name shown in results.
    fn name(&self) -> &str;

    /// Waits until all submitted work is done.
    fn synchronise(&self) -> anyhow::Result<()>;

    /// Host time since a fixed origin. Recorded kernels use the same clock.
    fn now(&self) -> Nanos;

    /// Resets the peak memory use of the device and of the host.
    fn reset_peak(&self);

    /// The peak memory use since the reset, in bytes; none if unknown.
    fn peak_bytes(&self) -> Option<u64>;

    /// The peak resident memory of the host process since the reset, in bytes; none if unknown.
    fn peak_rss_bytes(&self) -> Option<u64> {
        None
    }

    /// Memory available to a case, in bytes; none if unknown.
    fn available_bytes(&self) -> Option<u64>;

    /// The supported timings; the first is the default.
    fn timings(&self) -> &[Timing] {
        &[Timing::Host]
    }

    /// Sets how iterations and stages are timed from here on: one of [`Device::timings`].
    fn set_timing(&self, timing: Timing) {
        let _ = timing;
    }

    /// Sets how deep workloads mark their stages from here on; cases that are already prepared keep their depth.
    fn set_depth(&self, depth: Depth) {
        let _ = depth;
    }

    /// How deep workloads mark their stages.
    fn depth(&self) -> Depth {
        Depth::default()
    }

    /// The lane on which workloads record stages of its work, as in `stage!("decode", on = device.lane())`; none if
    /// work is done when a call returns. The same lane is used for every timing.
    fn lane(&self) -> Option<&Lane> {
        None
    }

    /// An iteration begins, inside its timed region: a device timed by events marks its stream.
    fn begin_iteration(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// An iteration ends, inside its timed region, before the device is synchronised.
    fn end_iteration(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// The device's measurements of the last iteration, after synchronisation. This is not timed.
    fn last_iteration(&self) -> IterationState {
        IterationState::default()
    }

    /// Whether it has an L2 cache that can be emptied.
    fn has_l2(&self) -> bool {
        false
    }

    /// Sets the state of the L2 cache at the start of an iteration.
    fn set_l2(&self, l2: Option<L2>) {
        let _ = l2;
    }

    /// Empties the L2 cache if it must be cold. This is not timed.
    fn chill(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Detects out of memory in an error of the device's libraries. Errors that contain an [`OutOfMemory`] are detected
    /// without it.
    fn out_of_memory(&self, error: &anyhow::Error) -> Option<OutOfMemory> {
        let _ = error;
        None
    }

    /// Whether this process has lost the device, so that further work needs another process.
    fn is_lost(&self) -> bool {
        false
    }

    /// The concrete device, for workloads with device-specific code.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }

    /// Starts recording every kernel and copy on the clock of [`Device::now`]; none if unsupported.
    fn record_kernels(&self) -> anyhow::Result<Option<Box<dyn KernelRecording>>> {
        Ok(None)
    }

    /// Takes the recorded stages inside graph replays. Called after everything prepared on the device was dropped.
    fn take_replays(&self) -> GraphReplays {
        GraphReplays::default()
    }
}

/// A device's measurements of an iteration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IterationState {
    /// Time on the device's clock from the start of the iteration to its end.
    pub device_ns: Option<u64>,
    /// The state of the device.
    pub state: DeviceState,
}

/// A recording of every kernel and copy of a device.
pub trait KernelRecording {
    /// Pauses or resumes recording; work during a pause has no recording cost.
    fn set_paused(&self, is_paused: bool) -> anyhow::Result<()>;

    /// Ends the recording and returns what was recorded. The device has been synchronised.
    fn finish(self: Box<Self>) -> anyhow::Result<KernelRecords>;
}

/// The available devices.
pub trait Devices: Send + Sync {
    /// Opens a device by name: `auto`, `cpu`, `cuda`, `cuda:1`.
    fn open(&self, name: &str) -> anyhow::Result<Arc<dyn Device>>;
}
