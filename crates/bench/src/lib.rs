//! The measuring loop: plans and their cases, what a workload and a device must offer, when sampling stops.
//!
//! A [`Plan`] settles the values on a workload's axes; each of its cases goes through [`measure`], which prepares,
//! checks, warms up and takes samples until its [`Stop`] rule is content. A device owns the clock, so everything here
//! is tested with exact times on the [`Simulated`] one. Nothing here prints: a [`Sink`] is told what happens.

mod axis;
mod case;
mod measure;
mod plan;
mod simulated;
mod stop;
mod workload;

pub use self::{
    axis::{AxisError, AxisValue, MOST_VALUES, parse_values},
    case::{Case, NoSuchValue},
    measure::{Outcome, Sample, Settings, Sink, measure},
    plan::{AxisSpec, Cost, MOST_CASES, Plan, PlanError, Takes},
    simulated::Simulated,
    stop::{Stop, StopReason},
    workload::{Better, Device, MetricSpec, Prepared, Take, Workload},
};
