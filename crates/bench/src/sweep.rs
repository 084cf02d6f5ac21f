//! A sweep: the cases of a plan, one after the other, in this process or in fresh ones.

use std::sync::Arc;

use laptime_probe::stage;
use laptime_trace::run::{Case, CaseResult};

use crate::{
    children::Children,
    interrupt::Interrupt,
    job::{Job, Registry},
    measure::measure,
    sink::Sink,
    workload::{Device, Workload},
};

/// How a sweep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swept {
    /// Every case has a result.
    Whole,
    /// Somebody asked to stop.
    Interrupted,
    /// The device was lost to the process after so many cases: those that follow need another process.
    Lost {
        /// Cases that have a result.
        done: usize,
    },
}

/// Measures the cases of a job in as many fresh processes as its settings ask for, leaving out those that
/// `is_done` already. The job's own `run` is not looked at. A device that is open already is used, or closed where fresh
/// processes measure.
pub fn sweep(
    registry: &Registry,
    job: &Job,
    mut device: Option<Arc<dyn Device>>,
    is_done: impl Fn(&Case, u32) -> bool,
    interrupt: &Interrupt,
    sink: &mut dyn Sink,
) -> anyhow::Result<Swept> {
    let settings = &job.settings;
    let in_children = settings.runs > 1 || settings.isolate || settings.timeout_ns.is_some();
    if in_children {
        device = None;
    }
    for run in 0..settings.runs.max(1) {
        let cases: Vec<Case> = job.cases.iter().filter(|case| !is_done(case, run)).cloned().collect();
        if cases.is_empty() {
            continue;
        }
        let job = Job { cases, run, ..job.clone() };
        let mut swept = if in_children {
            Children::of_this_program().run(&job, interrupt, sink)?
        } else {
            here(registry, &job, device.take(), sink)?
        };
        if let Swept::Lost { done } = swept {
            let rest = job.with_cases(job.cases[done..].to_vec());
            swept = Children::of_this_program().run(&rest, interrupt, sink)?;
        }
        if swept == Swept::Interrupted {
            return Ok(swept);
        }
    }
    Ok(Swept::Whole)
}

/// Measures the cases of a job in this process.
pub(crate) fn here(
    registry: &Registry,
    job: &Job,
    device: Option<Arc<dyn Device>>,
    sink: &mut dyn Sink,
) -> anyhow::Result<Swept> {
    let unknown = || anyhow::anyhow!("there is no workload `{}` in this program", job.workload);
    let workload = registry.workload(&job.workload).ok_or_else(unknown)?;
    let device = match device {
        Some(device) => device,
        None => {
            let _stage = stage!("open_device", device = job.device.as_str());
            registry.devices.open(&job.device)?
        }
    };
    measure_all(workload, &*device, job, sink)
}

fn measure_all(workload: &dyn Workload, device: &dyn Device, job: &Job, sink: &mut dyn Sink) -> anyhow::Result<Swept> {
    for (at, case) in job.cases.iter().enumerate() {
        if sink.is_interrupted() {
            return Ok(Swept::Interrupted);
        }
        sink.begin(case, job.run);
        let outcome = measure(workload, case, device, &job.settings, sink);
        sink.result(CaseResult::new(&job.workload, device.name(), case.clone(), job.run, &job.environment, outcome))?;
        if at + 1 < job.cases.len() && device.is_lost() {
            return Ok(Swept::Lost { done: at + 1 });
        }
    }
    Ok(if sink.is_interrupted() { Swept::Interrupted } else { Swept::Whole })
}
