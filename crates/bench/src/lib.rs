//! The measuring loop: plans and their cases, the traits of workloads and devices, and stop rules.
//!
//! A [`Plan`] resolves the values on a workload's axes. Each of its cases goes through [`measure`], which prepares,
//! checks, warms up and measures iterations until its [`Stop`] rule is met. The device owns the clock, so tests have
//! exact times on a simulated device (feature `simulated`). Nothing here prints; a [`Sink`] receives the events.

mod alias;
mod axis;
mod children;
mod cold;
mod depth;
pub mod environment;
mod given;
mod interrupt;
mod job;
mod launch;
mod measure;
pub mod noise;
mod open_once;
mod plan;
mod plan_file;
pub mod process;
mod profile;
#[cfg(test)]
#[path = "tests/scripted.rs"]
mod scripted;
#[cfg(feature = "simulated")]
#[path = "tests/simulated.rs"]
mod simulated;
mod sink;
pub mod slurm;
mod stop;
mod sweep;
mod timing;
mod trouble;
mod worker;
mod workload;

#[cfg(feature = "simulated")]
pub use self::simulated::Simulated;
pub use self::{
    alias::{Alias, AliasTarget, Given, axis_of, resolve},
    axis::{AxisError, MOST_VALUES, parse_values},
    children::Children,
    depth::AtomicDepth,
    given::{GivenSettings, NoQuantity, Seconds, SettingsError, Share, parse_warm_up},
    interrupt::Interrupt,
    job::{Job, Registry},
    launch::Launch,
    measure::{is_measuring, measure, measure_ready},
    open_once::OpenOnce,
    plan::{AxisSpec, Cost, MOST_CASES, Plan, PlanError, ValueKind, refuse_too_many, refuse_unknown},
    plan_file::{PlanFile, PlanFileError},
    profile::{ProfileSettings, Profiled, TimingPairs, profile},
    sink::{Phase, Sink},
    stop::reason_to_stop,
    sweep::{Swept, sweep},
    timing::{L2Error, SwitchableClock, TimingError, settle_l2, settle_timing},
    trouble::{NoDevice, OutOfMemory, chained},
    worker::{OUT_OF_MEMORY_STATUS, is_fresh_process, serve_if_requested, status_if_requested},
    workload::{
        Device, Devices, Iteration, IterationState, KernelRecording, MetricSpec, ParsedCase, Prepared, Workload,
    },
};
pub use laptime_trace::{
    GraphReplays, KernelRecords, Nanos,
    run::{
        AxisValue, Better, Case, CaseResult, Depth, DeviceState, Fact, L2, Outcome, Settings, Stop, Timing, Traffic,
        WarmUp, Work,
    },
};
