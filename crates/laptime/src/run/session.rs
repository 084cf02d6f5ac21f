//! A run in its folder: starts or resumes it, measures its cases and saves the results.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use laptime_bench::{Case, CaseResult, Device, GivenSettings, Job, Plan, Swept, sweep};
use laptime_trace::run::{AxisValues, RUN_FILE, Run, SCHEMA};

use crate::estimate::{Estimate, LITTLE_FLOPS};
use crate::output::{say, warn};
use crate::request::{Order, Request};
use crate::{
    app::App, failure::refuse, keeper::Keeper, kept_peaks, progress::Progress, run_folder, run_input,
    stdout_guard::StdoutGuard,
};

pub struct Session {
    pub folder: PathBuf,
    pub run: Run,
    cases: Vec<Case>,
    before: Vec<CaseResult>,
    /// The processes to run of those in the settings; none runs all of them.
    runs: Option<Vec<u32>>,
    /// Kept open for the sweep.
    device: Option<Arc<dyn Device>>,
}

pub struct Finished {
    pub folder: PathBuf,
    pub run: Run,
    pub results: Vec<CaseResult>,
    /// The number of results of a complete run.
    pub expected: usize,
    pub was_interrupted: bool,
}

impl Session {
    /// Opens the device, creates the folder and writes `run.json`.
    pub fn begin(app: &App, order: &Order<'_>, what: &str, out: Option<&Path>) -> anyhow::Result<Self> {
        let device = app.device(&order.device)?;
        let run = describe(app, order, &*device)?;
        let folder = run_folder::make(out, what)?;
        Self::begin_in(app, run, folder, device)
    }

    pub fn begin_in(app: &App, run: Run, folder: PathBuf, device: Arc<dyn Device>) -> anyhow::Result<Self> {
        run.write(&folder)?;
        let cases = recorded(app, &run)?.plan.cases();
        Ok(Self { folder, run, cases, before: Vec::new(), runs: None, device: Some(device) })
    }

    /// Continues a stopped run; refuses if the program, machine or plan has changed.
    pub fn resume(app: &App, request: &Request, folder: &Path) -> anyhow::Result<Self> {
        let run = Run::read(folder)?;
        let order = recorded(app, &run)?;
        if request.place.out.is_some() {
            return refuse(format!("a resumed run stays in its folder, `{}`", folder.display()), "leave out `--out`");
        }
        let device = app.device(&run.device)?;
        if request.is_specific() {
            let (timing, l2) = (Some(run.settings.timing), run.settings.l2);
            let defaults = GivenSettings { timing, l2, ..GivenSettings::default() };
            let order = request.named(&run.workload).settle(app, defaults)?.on(&*device);
            refuse_other_plan(&run, &order, request, folder)?;
        }
        refuse_other_place(&run, &describe(app, &order, &*device)?)?;
        let before = run_input::results_in(folder)?.into_iter().filter(CaseResult::is_finished).collect();
        let (folder, cases) = (folder.to_owned(), order.plan.cases());
        Ok(Self { folder, run, cases, before, runs: None, device: Some(device) })
    }

    /// Begins or continues a shard of a Slurm run on this node. `before` are the finished results of all nodes, and `runs`
    /// the processes of the shard.
    pub fn shard(
        app: &App,
        order: &Order<'_>,
        folder: PathBuf,
        before: Vec<CaseResult>,
        runs: &[u32],
    ) -> anyhow::Result<Self> {
        let device = app.device(&order.device)?;
        let run = describe(app, order, &*device)?;
        run_folder::create(&folder)?;
        let run = if folder.join(RUN_FILE).is_file() {
            let known = Run::read(&folder)?;
            refuse_other_place(&known, &run)?;
            known
        } else {
            run.write(&folder)?;
            run
        };
        let cases = recorded(app, &run)?.plan.cases();
        Ok(Self { folder, run, cases, before, runs: Some(runs.to_vec()), device: Some(device) })
    }

    /// The same run with another case to measure.
    pub fn with_case(&self, case: Case, before: Vec<CaseResult>) -> Self {
        let (folder, run) = (self.folder.clone(), self.run.clone());
        Self { folder, run, cases: vec![case], before, runs: None, device: None }
    }

    /// The cases that lack a result.
    pub fn left(&self) -> Vec<Case> {
        let done: HashSet<(String, u32)> = done(&self.before);
        let is_left = |case: &&Case| self.runs().iter().any(|&run| !done.contains(&(case.to_string(), run)));
        self.cases.iter().filter(is_left).cloned().collect()
    }

    fn runs(&self) -> Vec<u32> {
        self.runs.clone().unwrap_or_else(|| (0..self.run.settings.runs.max(1)).collect())
    }

    /// Measures the cases that lack a result.
    pub fn sweep(self, app: &App, is_quiet: bool) -> anyhow::Result<Finished> {
        app.listen_for_interrupts();
        app.measure_in((!self.run.settings.cold).then(|| self.folder.clone()));
        let (left, processes) = (self.left(), self.runs());
        let Self { folder, run, cases, before, device, .. } = self;
        let runs = run.settings.runs.max(1);
        let expected = cases.len() * processes.len();
        let done = done(&before);
        let estimate =
            Estimate::of(app, (&run.workload, &run.device), &left, &run.settings, run.peaks.as_ref(), LITTLE_FLOPS);
        if let Some(sentence) = estimate.sentence(left.len()).filter(|_| !is_quiet) {
            say(&sentence);
        }
        let progress = Progress::with_estimate(expected - done.len().min(expected), is_quiet, estimate);
        let mut keeper = Keeper::new(&folder, before, progress, &app.interrupt, runs)?;
        let job = Job::of(&run, cases);
        let is_done = |case: &Case, run: u32| !processes.contains(&run) || done.contains(&(case.to_string(), run));
        let guard = StdoutGuard::begin();
        let swept = sweep(&app.registry, &job, device, is_done, &app.interrupt, &mut keeper);
        drop(guard);
        app.measure_in(None);
        let swept = swept?;
        Ok(Finished { folder, run, results: keeper.results, expected, was_interrupted: swept == Swept::Interrupted })
    }
}

/// The cases and processes with a result.
fn done(results: &[CaseResult]) -> HashSet<(String, u32)> {
    results.iter().map(|result| (result.case.to_string(), result.run)).collect()
}

/// The `run.json` for an order on a device.
pub fn describe(app: &App, order: &Order<'_>, device: &dyn Device) -> anyhow::Result<Run> {
    let settings = order.settings_on(device)?;
    let plan = order.plan.clone().map(|case| order.workload.on_device(case, device));
    app.say_device(&order.device, device);
    say_synthetic(&plan.cases());
    let environment = app.environment();
    let peaks = kept_peaks::read(&environment.machine, device);
    let device = device.name().to_owned();
    if environment.build.is_unoptimised() {
        warn("this is a debug build, so its times are not meaningful; build with `--release`");
    }
    Ok(Run {
        schema: SCHEMA,
        command: command_line(),
        started: run_folder::timestamp(),
        workload: order.workload.name().to_owned(),
        peaks,
        device,
        axes: plan.record(),
        cases: plan.chosen().to_vec(),
        settings,
        environment_fingerprint: environment.fingerprint(),
        environment,
    })
}

/// The command line, with invalid UTF-8 replaced.
pub fn command_line() -> Vec<String> {
    let words = laptime_bench::Launch::of_this_program().words;
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Reports model folders without weights.
fn say_synthetic(cases: &[Case]) {
    let folders: BTreeSet<String> = cases.iter().flat_map(laptime_pipelines::folders_without_weights).collect();
    for folder in folders {
        say(&format!("note: `{folder}` has a config.json and no weights; synthetic weights are used"));
    }
}

/// The order in a `run.json`.
fn recorded<'a>(app: &'a App, run: &Run) -> anyhow::Result<Order<'a>> {
    let workload = app.workload(&run.workload)?;
    let words = |axis: &AxisValues| (axis.axis.clone(), axis.values.iter().map(ToString::to_string).collect());
    let plan = if run.cases.is_empty() {
        Plan::settle(&run.workload, workload.axes(), &run.axes.iter().map(words).collect::<Vec<_>>())?
    } else {
        Plan::of_cases(workload.axes(), run.cases.clone())?
    };
    let (settings, timings) = (run.settings, vec![run.settings.timing]);
    Ok(Order { workload, plan, settings, timings, device: run.device.clone() })
}

fn refuse_other_plan(run: &Run, request: &Order<'_>, given: &Request, folder: &Path) -> anyhow::Result<()> {
    let differs = if request.workload.name() != run.workload {
        format!("its workload is `{}`, not `{}`", run.workload, request.workload.name())
    } else if given.has_axes() && !is_same_plan(&request.plan, run) {
        "its axes have different values".to_owned()
    } else if !["auto", run.device.as_str()].contains(&request.device.as_str()) {
        format!("its device is `{}`, not `{}`", run.device, request.device)
    } else if given.has_settings() && request.settings != run.settings {
        "its settings differ".to_owned()
    } else {
        return Ok(());
    };
    let reason = format!("the run in `{}` has a different plan: {differs}", folder.display());
    refuse(reason, format!("`laptime bench --resume {}` continues it with its own plan", folder.display()))
}

fn is_same_plan(plan: &Plan, run: &Run) -> bool {
    plan.record() == run.axes && plan.chosen() == run.cases
}

fn refuse_other_place(run: &Run, now: &Run) -> anyhow::Result<()> {
    let (then, now) = (&run.environment, &now.environment);
    let differs = if then.build.binary != now.build.binary {
        format!("a different program: it was built from {}, this one from {}", then.build.commit, now.build.commit)
    } else if then.machine.fingerprint() != now.machine.fingerprint() {
        "a different machine, or the same one with a different governor or limit".to_owned()
    } else {
        return Ok(());
    };
    let reason = format!("the run was started by {differs}");
    refuse(reason, "their results would not be comparable; start a new run, and use `laptime compare`")
}
