//! A cold process finds empty caches, which are deleted with it, and leaves a trace of its start.
//!
//! This test has no harness: the fresh processes are this program, which must detect that first.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "without a harness a test tells itself that it passed, and one that cannot go on has failed"
)]

use std::{
    collections::HashSet,
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use laptime_bench::{
    AxisSpec, Case, CaseResult, Depth, Device, Devices, Fact, Interrupt, Iteration, Job, Outcome, Prepared, Registry,
    Settings, Simulated, Sink, Stop, Swept, Timing, WarmUp, Workload, serve_if_requested, sweep,
};

struct OneDevice;

impl Devices for OneDevice {
    fn open(&self, _: &str) -> anyhow::Result<Arc<dyn Device>> {
        Ok(Arc::new(Simulated::new()))
    }
}

/// The variables for the folders of compiled kernels.
const CACHES: [&str; 2] = ["LAPTIME_CACHE", "CUDA_CACHE_PATH"];

/// Stores something in its caches, and fails if they are not empty.
struct Keeps;

impl Workload for Keeps {
    fn name(&self) -> &'static str {
        "keeps"
    }

    fn about(&self) -> &'static str {
        "keeps something in its caches"
    }

    fn axes(&self) -> Vec<AxisSpec> {
        Vec::new()
    }

    fn prepare<'a>(&'a self, _: &Case, _: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        let mut folders = Vec::new();
        for variable in CACHES {
            let folder = PathBuf::from(env::var_os(variable).unwrap_or_default());
            anyhow::ensure!(!folder.join("kept").exists(), "`{variable}` holds what another process kept");
            fs::create_dir_all(&folder)?;
            fs::write(folder.join("kept"), "")?;
            folders.push(folder);
        }
        Ok(Prepared::Ready(Box::new(Kept { folders })))
    }
}

struct Kept {
    folders: Vec<PathBuf>,
}

impl Iteration for Kept {
    fn check(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn facts(&self) -> Vec<Fact> {
        self.folders.iter().map(|folder| Fact::new("folder", folder.display().to_string())).collect()
    }
}

#[derive(Default)]
struct Results(Vec<CaseResult>);

impl Sink for Results {
    fn begin(&mut self, _: &Case, _: u32) {}

    fn iteration(&mut self, _: u64, _: bool) {}

    fn result(&mut self, result: CaseResult) -> anyhow::Result<()> {
        self.0.push(result);
        Ok(())
    }
}

fn job(trace: &Path) -> Job {
    let (warmup, stop) = (WarmUp::Iterations(2), Stop::Iterations(3));
    let (runs, isolate, timeout_ns, cold, timing) = (3, true, None, true, Timing::Host);
    Job {
        workload: "keeps".to_owned(),
        device: "auto".to_owned(),
        cases: vec![Case::default()],
        run: 0,
        settings: Settings { warmup, stop, runs, isolate, timeout_ns, cold, timing, l2: None, depth: Depth::Pipeline },
        environment: String::new(),
        trace: Some(trace.to_owned()),
    }
}

fn main() -> ExitCode {
    let registry = Registry { workloads: vec![Box::new(Keeps)], devices: Box::new(OneDevice) };
    if let Some(served) = serve_if_requested(&registry) {
        return served;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pftrace");
    let mut results = Results::default();
    let swept = sweep(&registry, &job(&path), None, |_, _| false, &Interrupt::new(), &mut results);
    assert!(matches!(swept, Ok(Swept::Whole)), "{swept:?}");
    let mut folders = HashSet::new();
    for result in &results.0 {
        let Outcome::Measured(measured) = &result.outcome else { panic!("{:?}", result.outcome) };
        folders.extend(measured.facts.iter().map(|fact| fact.value.to_string()));
    }
    assert_eq!(folders.len(), 2 * 3, "each process has its own: {folders:?}");
    assert!(folders.iter().all(|folder| !Path::new(folder).exists()), "they are deleted with the process");
    let trace = laptime_trace::read(&path).unwrap();
    let names: Vec<&str> = trace.spans().map(|span| span.name).collect();
    assert_eq!(names[..2], ["open_device", "prepare"]);
    assert_eq!(names.iter().filter(|name| **name == "iteration").count(), 5, "{names:?}");
    println!("a cold process finds nothing and leaves a trace: ok");
    ExitCode::SUCCESS
}
