//! A process loses its device: the case is recorded as failed, and a new process measures the rest of the sweep.
//!
//! This test has no harness: the fresh processes are this program, which must detect that first.

#![allow(clippy::print_stdout, reason = "without a harness a test tells itself that it passed")]

use std::{process::ExitCode, sync::Arc};

use laptime_bench::{
    AxisSpec, Case, CaseResult, Depth, Device, Devices, Interrupt, Iteration, Job, Nanos, Outcome, Prepared, Registry,
    Settings, Simulated, Sink, Stop, Swept, Timing, WarmUp, Workload, serve_if_requested, sweep,
};

/// Opens a device whose name contains the process.
struct OneDevice;

impl Devices for OneDevice {
    fn open(&self, _: &str) -> anyhow::Result<Arc<dyn Device>> {
        Ok(Arc::new(Losable { simulated: Simulated::new(), name: format!("process {}", std::process::id()) }))
    }
}

struct Losable {
    simulated: Simulated,
    name: String,
}

impl Device for Losable {
    fn name(&self) -> &str {
        &self.name
    }

    fn synchronise(&self) -> anyhow::Result<()> {
        anyhow::ensure!(!self.simulated.is_lost(), "the device is lost");
        Ok(())
    }

    fn now(&self) -> Nanos {
        self.simulated.now()
    }

    fn reset_peak(&self) {}

    fn peak_bytes(&self) -> Option<u64> {
        None
    }

    fn available_bytes(&self) -> Option<u64> {
        None
    }

    fn is_lost(&self) -> bool {
        self.simulated.is_lost()
    }

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }
}

/// Loses the device in every third case.
struct Loses;

impl Workload for Loses {
    fn name(&self) -> &'static str {
        "loses"
    }

    fn about(&self) -> &'static str {
        "loses its device now and then"
    }

    fn axes(&self) -> Vec<AxisSpec> {
        Vec::new()
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        let is_bad = case.int("number")? % 3 == 1;
        let device = device.as_any().and_then(|any| any.downcast_ref::<Losable>());
        let device = device.ok_or_else(|| anyhow::anyhow!("another device"))?;
        Ok(Prepared::Ready(Box::new(LosesIteration { device, is_bad })))
    }
}

struct LosesIteration<'a> {
    device: &'a Losable,
    is_bad: bool,
}

impl Iteration for LosesIteration<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<()> {
        self.device.simulated.advance(Nanos(5));
        if self.is_bad {
            self.device.simulated.lose();
        }
        Ok(())
    }
}

#[derive(Default)]
struct Kept(Vec<CaseResult>);

impl Sink for Kept {
    fn begin(&mut self, _: &Case, _: u32) {}

    fn iteration(&mut self, _: u64, _: bool) {}

    fn result(&mut self, result: CaseResult) -> anyhow::Result<()> {
        self.0.push(result);
        Ok(())
    }
}

fn job(runs: u32) -> Job {
    let case = |number: i64| Case::new(vec![("number".to_owned(), number.into())]);
    let (warmup, stop) = (WarmUp::Iterations(0), Stop::Iterations(2));
    let (isolate, timeout_ns, cold, timing, l2) = (false, None, false, Timing::Host, None);
    let depth = Depth::Pipeline;
    Job {
        workload: "loses".to_owned(),
        device: "auto".to_owned(),
        cases: (0..6).map(case).collect(),
        run: 0,
        settings: Settings { warmup, stop, runs, isolate, timeout_ns, cold, timing, l2, depth },
        environment: String::new(),
        trace: None,
    }
}

fn main() -> ExitCode {
    let registry = Registry { workloads: vec![Box::new(Loses)], devices: Box::new(OneDevice) };
    if let Some(served) = serve_if_requested(&registry) {
        return served;
    }
    // First in this process, then from the start in a fresh one.
    for runs in [1, 2] {
        let mut kept = Kept::default();
        let swept = sweep(&registry, &job(runs), None, |_, _| false, &Interrupt::new(), &mut kept);
        assert!(matches!(swept, Ok(Swept::Whole)), "{swept:?}");
        for of_run in kept.0.chunks(6) {
            let failed = of_run.iter().map(|result| matches!(result.outcome, Outcome::Failed { .. }));
            assert_eq!(failed.collect::<Vec<_>>(), [false, true, false, false, true, false]);
            let mut processes: Vec<&str> = of_run.iter().map(|result| result.device.as_str()).collect();
            processes.dedup();
            assert_eq!(processes.len(), 3, "a new process after each loss and no other: {processes:?}");
        }
        assert_eq!(kept.0.len(), 6 * runs as usize);
    }
    println!("a lost device costs its case alone: ok");
    ExitCode::SUCCESS
}
