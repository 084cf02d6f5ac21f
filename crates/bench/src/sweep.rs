//! A sweep: the cases of a plan in sequence, in this process or in fresh ones.

use std::sync::Arc;

use laptime_probe::stage;
use laptime_trace::run::{Case, CaseResult};

use crate::job::{Job, Registry};
use crate::workload::{Device, Workload};
use crate::{children::Children, interrupt::Interrupt, measure::measure, sink::Sink};

/// How a sweep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swept {
    /// Every case has a result.
    Whole,
    /// The user requested a stop.
    Interrupted,
    /// The process lost its device after this number of cases; the remaining cases need another process.
    Lost {
        /// Cases that have a result.
        done: usize,
    },
}

/// Measures the cases of a job in as many fresh processes as its settings require, except those for which `is_done` is
/// true. The job's own `run` is ignored. A device that is already open is used, or closed if fresh processes measure.
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
    let unknown = || anyhow::anyhow!("unknown workload `{}`", job.workload);
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use laptime_trace::run::WarmUp;

    use super::*;
    use crate::{
        given::GivenSettings,
        plan::AxisSpec,
        scripted::{CollectingSink, Scripted},
        simulated::Simulated,
        workload::{ParsedCase, Prepared},
    };

    /// Keeps the cases that it parses.
    struct Counted<'a> {
        scripted: Scripted<'a>,
        parsed: Mutex<Vec<Case>>,
    }

    impl Workload for Counted<'_> {
        fn name(&self) -> &'static str {
            "counted"
        }

        fn about(&self) -> &'static str {
            "counts how often a case is parsed"
        }

        fn axes(&self) -> Vec<AxisSpec> {
            Vec::new()
        }

        fn parse<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Box<dyn ParsedCase<'a> + 'a>> {
            self.parsed.lock().unwrap().push(case.clone());
            self.scripted.parse(case, device)
        }

        fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
            self.parse(case, device)?.prepare()
        }
    }

    #[test]
    fn a_sweep_parses_each_case_once() {
        let device = Simulated::new();
        let workload = Counted { scripted: Scripted::steps(&device, [5; 9]), parsed: Mutex::default() };
        let warmup = Some(WarmUp::Iterations(0));
        let given = GivenSettings { warmup, iterations: Some(3), ..GivenSettings::default() };
        let job = Job {
            workload: "counted".to_owned(),
            device: "simulated".to_owned(),
            cases: (0..3_i64).map(|bytes| Case::new(vec![("bytes".to_owned(), bytes.into())])).collect(),
            run: 0,
            settings: given.settle().unwrap(),
            environment: String::new(),
            trace: None,
        };
        let mut sink = CollectingSink::default();
        assert_eq!(measure_all(&workload, &device, &job, &mut sink).unwrap(), Swept::Whole);
        assert_eq!((sink.iterations.len(), workload.parsed.into_inner().unwrap()), (9, job.cases));
    }
}
