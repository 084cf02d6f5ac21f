//! `laptime profile`: records one case, and measures the recording overhead.

use std::{io::Write, path::Path, sync::Arc};

use anyhow::Context;
use laptime_analyze::measured;
use laptime_bench::{
    Case, CaseResult, Depth, Device, GivenSettings, Interrupt, Outcome, Plan, ProfileSettings, Profiled, Seconds,
    Settings, Share, Sink, Stop, Timing, TimingPairs, WarmUp,
};
use laptime_page::About;
use laptime_pipelines::extras::{Extras, ProfiledCase};
use laptime_probe::stage;
use laptime_report::{Cell, Format, tables::Ranking};
use laptime_trace::format::{folded::By, write_whole};
use laptime_trace::run::{ResultsWriter, Run};
use laptime_trace::{Recorded, Trace};

use crate::commands::{bench, convert, page};
use crate::output::{gib, read_trace, say, warn, write_file, write_to_screen};
use crate::request::{Order, Request};
use crate::run_folder::{self, TRACE_FILE, Tentative};
use crate::session::{Session, describe};
use crate::{app::App, cli::Status, failure::refuse, progress::Progress, stdout_guard::StdoutGuard};

/// Maximum number of stages to show.
const MOST_STAGES: usize = 40;

const WARM_UP: usize = 3;

/// Minimum number of pairs of a recorded and an unrecorded iteration.
const LEAST_PAIRS: usize = 20;

/// Default precision of the overhead: within 0.25 % of an iteration.
const WITHIN: f64 = 0.0025;

const SECONDS: f64 = 10.0;

pub fn run(app: &App, request: &Request, out: &mut dyn Write) -> anyhow::Result<Status> {
    let mut order = request.settle(app, defaults())?;
    refuse_processes(&order)?;
    let extras = app.extras(order.workload.name());
    request.check_flags(app, order.workload.name())?;
    extras.check(&request.flags, &order.plan.cases())?;
    if request.run.dry_run {
        return bench::show_cases(&order, &request.place.format, out);
    }
    let what = format!("profile-{}", order.workload.name());
    let folder = Tentative::make(request.place.out.as_deref(), &what)?;
    let pftrace = folder.join(TRACE_FILE);
    // Recording starts before the device is opened, so that the trace shows that time.
    let recording = laptime_trace::record_to(&pftrace)?;
    let device = {
        let _stage = stage!("open_device");
        app.device(&order.device)?
    };
    order = order.on(&*device);
    let baseline = split_baseline(extras, &mut order)?;
    let case = only_case(&mut order, request)?;
    extras.check_case(&case, &*device)?;
    let timings = order.timings_on(&*device)?;
    // `run.json` has the first one; the table has all.
    order.timings.truncate(1);
    let run = describe(app, &order, &*device)?;
    let session = Session::begin_in(app, run, folder.keep(), Arc::clone(&device))?;
    app.listen_for_interrupts();
    let (run, screen) = (&session.run, request.screen());
    let context = request.context(app, (run, &session.folder), &screen)?;
    extras.begin(&context, std::slice::from_ref(&case), out)?;
    let mut profiled = record(app, &order, run, &case, &timings, request, &*device);
    let recorded = recording.finish().context("cannot save the recording")?;
    let baseline = baseline.filter(|_| !app.interrupt.is_requested());
    let baseline = baseline.map(|case| measure_baseline(app, extras, run, case)).transpose()?;
    extras.complete(&mut profiled.outcome, run, baseline.as_ref());
    let result =
        CaseResult::new(&run.workload, &run.device, case, 0, &run.environment_fingerprint, profiled.outcome.clone());
    ResultsWriter::open(&session.folder)?.append(&result)?;
    let results: Vec<&CaseResult> = [&result].into_iter().chain(&baseline).collect();
    if let Outcome::Measured(_) = profiled.outcome {
        let trace = with_device(Arc::unwrap_or_clone(read_trace(&pftrace)?), &profiled, &recorded)?;
        write_files(&trace, &pftrace, &session.folder)?;
        write_pairs(&profiled.costs, &session.folder)?;
        let about = About { run: Some(&session.run), results: std::slice::from_ref(&result), ..About::default() };
        page::write_recorded(&session.folder, &trace, about, &|_| ());
        show(&trace, &profiled, request, session.run.settings.depth, out)?;
        let outside = extras.finish_profile(&context, ProfiledCase { results: &results, trace: Some(&trace) }, out)?;
        run_folder::say_saved(&session.folder, &outside);
        if app.interrupt.is_requested() {
            let rounds = profiled.costs.first().map_or(0, |cost| cost.pairs.len());
            let reason = format!("interrupted after {rounds} {}", if rounds == 1 { "pair" } else { "pairs" });
            return refuse(reason, "the recording up to that point is saved and shown");
        }
        return Ok(Status::Done);
    }
    // Saves what was generated before the failure.
    let outside = extras.finish_profile(&context, ProfiledCase { results: &results, trace: None }, out)?;
    run_folder::say_saved(&session.folder, &outside);
    not_measured(&profiled.outcome)
}

/// Removes the case that is only measured for comparison.
fn split_baseline(extras: &dyn Extras, order: &mut Order<'_>) -> anyhow::Result<Option<Case>> {
    let cases = order.plan.cases();
    let Some(baseline) = extras.baseline(&cases) else { return Ok(None) };
    let rest = cases.into_iter().filter(|case| *case != baseline).collect();
    order.plan = Plan::of_cases(order.workload.axes(), rest)?;
    Ok(Some(baseline))
}

const BASELINE_ITERATIONS: usize = 3;

fn measure_baseline(app: &App, extras: &dyn Extras, run: &Run, case: Case) -> anyhow::Result<CaseResult> {
    let settings = Settings {
        warmup: WarmUp::Iterations(1),
        stop: Stop::Iterations(BASELINE_ITERATIONS),
        depth: Depth::default(),
        timing: Timing::Host,
        ..run.settings
    };
    extras.begin_baseline();
    let device = app.device(&run.device)?;
    let guard = StdoutGuard::begin();
    let outcome =
        laptime_bench::measure(app.workload(&run.workload)?, &case, &*device, &settings, &mut app.interrupt.clone());
    drop(guard);
    Ok(CaseResult::new(&run.workload, &run.device, case, 0, &run.environment_fingerprint, outcome))
}

fn defaults() -> GivenSettings {
    GivenSettings {
        warmup: Some(WarmUp::Iterations(WARM_UP)),
        within: Some(Share(WITHIN)),
        max_time: Some(Seconds(SECONDS)),
        ..GivenSettings::default()
    }
}

fn refuse_processes(order: &Order<'_>) -> anyhow::Result<()> {
    let laptime_bench::Settings { runs, isolate, timeout_ns, .. } = order.settings;
    if runs > 1 || isolate || timeout_ns.is_some() {
        let reason = "a profile runs in one process: `--runs`, `--isolate` and `--timeout` cannot be used";
        return refuse(reason, "leave them out, or use `laptime bench`");
    }
    Ok(())
}

/// The case to record: the only one, or the last default unless the flags select several.
fn only_case(order: &mut Order<'_>, request: &Request) -> anyhow::Result<Case> {
    let mut cases = order.plan.cases();
    let several: Vec<&str> =
        order.plan.axes().filter(|(_, values)| values.len() > 1).map(|(axis, _)| axis.name).collect();
    if cases.len() > 1 && request.names_any(order.workload, &several) {
        let reason = format!("a profile records one case, not {}", cases.len());
        return refuse(reason, format!("give one value for each axis; these have several: {}", several.join(", ")));
    }
    let is_chosen = cases.len() > 1;
    let case = cases.pop().context("the plan has no case")?;
    if is_chosen {
        let axis = several.first().copied().unwrap_or_default();
        let value = case.get(axis).map(ToString::to_string).unwrap_or_default();
        say(&format!("Recording `{axis}={value}`; `--{}` selects another.", axis.replace('_', "-")));
        order.plan = Plan::of_cases(order.workload.axes(), vec![case.clone()])?;
    }
    Ok(case)
}

fn settings(run: &Run, timings: &[Timing]) -> ProfileSettings {
    let (timings, l2, depth) = (timings.to_vec(), run.settings.l2, run.settings.depth);
    let warmup = match run.settings.warmup {
        WarmUp::Iterations(iterations) => iterations,
        WarmUp::Auto => WARM_UP,
    };
    match run.settings.stop {
        Stop::Iterations(pairs) => {
            ProfileSettings { warmup, at_least: pairs, within: f64::INFINITY, at_most_ns: u64::MAX, l2, depth, timings }
        }
        Stop::Interval { within, at_most_ns, .. } => {
            ProfileSettings { warmup, at_least: LEAST_PAIRS, within, at_most_ns, l2, depth, timings }
        }
    }
}

fn record(
    app: &App,
    order: &Order<'_>,
    run: &Run,
    case: &Case,
    timings: &[Timing],
    request: &Request,
    device: &dyn Device,
) -> Profiled {
    let mut shown = Shown { progress: Progress::new(1, request.run.quiet), interrupt: app.interrupt.clone() };
    shown.progress.begin(case, 0, 1);
    let _guard = StdoutGuard::begin();
    laptime_bench::profile(order.workload, case, device, &settings(run, timings), &mut shown)
}

/// Adds recorded kernels and graph replays to the trace and its file.
fn with_device(mut trace: Trace, profiled: &Profiled, recorded: &Recorded) -> anyhow::Result<Trace> {
    const MISMATCH: &str = "the device records do not match the trace";
    let Profiled { kernels, replays, .. } = profiled;
    if kernels.is_none() && replays.replays.is_empty() {
        return Ok(trace);
    }
    trace = trace.with_replays(replays).context(MISMATCH)?;
    if let Some(records) = kernels {
        trace = trace.with_kernels(records, recorded.start_ns).context(MISMATCH)?;
    }
    laptime_trace::write(&trace, &recorded.path)?;
    trace.warnings.iter().for_each(|warning| warn(warning));
    Ok(trace)
}

/// Shows progress; the result is saved at the end.
struct Shown {
    progress: Progress,
    interrupt: Interrupt,
}

impl Sink for Shown {
    fn iteration(&mut self, _: u64, _: bool) {
        self.progress.iteration();
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.is_requested()
    }
}

fn write_files(trace: &Trace, pftrace: &Path, folder: &Path) -> anyhow::Result<()> {
    let at = |name: &str| folder.join(name);
    laptime_trace::write(trace, at("trace.json"))?;
    let measured = measured(trace).transpose()?;
    let iterations = measured.as_ref().map_or(trace, |part| &part.trace);
    convert::draw(iterations, By::Host, pftrace, &at("flamegraph.svg"))?;
    let stages = laptime_report::tables::stages(&laptime_analyze::stages(trace));
    write_file(&stages, Format::Tsv, &at("stages.tsv"))?;
    let top = laptime_analyze::top(iterations);
    write_file(&laptime_report::tables::top(&top, &Ranking::all()), Format::Json, &at("top.json"))?;
    Ok(())
}

/// The measured pairs in nanoseconds, in order.
const PAIRS_FILE: &str = "overhead.tsv";

fn write_pairs(costs: &[TimingPairs], folder: &Path) -> anyhow::Result<()> {
    write_whole(&folder.join(PAIRS_FILE), |out| {
        writeln!(out, "recorded_ns\tunrecorded_ns\ttiming")?;
        let rows = costs.iter().flat_map(|cost| cost.pairs.iter().map(|pair| (cost.timing, pair)));
        rows.into_iter().try_for_each(|(timing, (recorded, idle))| writeln!(out, "{recorded}\t{idle}\t{timing}"))
    })?;
    Ok(())
}

fn show(
    trace: &Trace,
    profiled: &Profiled,
    request: &Request,
    depth: Depth,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let [only] = profiled.costs.as_slice() else { return show_timings(trace, profiled, request, out) };
    let measured = measured(trace).filter(|_| request.place.format.is_for_people() && !request.run.all).transpose()?;
    let mut table = match &measured {
        Some(part) => laptime_report::tables::iteration(&laptime_analyze::stages(&part.trace), part, MOST_STAGES),
        None => laptime_report::tables::stages(&laptime_analyze::stages(trace)),
    };
    table.machine_fact("depth", Cell::text(depth.word()));
    let overhead = laptime_analyze::overhead(&only.pairs, trace);
    laptime_report::tables::add_overhead(&mut table, &overhead);
    if let Some(cost) = overhead.cost.filter(|_| !request.place.format.is_for_people()) {
        say(&format!("recording cost {:+.2} % of an iteration; {PAIRS_FILE} has every pair", 100.0 * cost.share));
    }
    write_to_screen(&table, request.place.format.format(), out)
}

/// Compares several timings; `laptime stages` shows the whole tree.
fn show_timings(trace: &Trace, profiled: &Profiled, request: &Request, out: &mut dyn Write) -> anyhow::Result<()> {
    let pairs: Vec<_> = profiled.costs.iter().map(|cost| (cost.timing, &cost.pairs[..])).collect();
    let table = laptime_report::tables::timings(&laptime_analyze::timings(trace, &pairs));
    write_to_screen(&table, request.place.format.format(), out)
}

fn not_measured(outcome: &Outcome) -> anyhow::Result<Status> {
    match outcome {
        Outcome::Failed { errors, .. } => {
            warn(&format!("the case failed: {}", errors.join(": ")));
            Ok(Status::BadNews)
        }
        Outcome::OutOfMemory { needed_bytes, available_bytes } => {
            let text = |bytes: &Option<u64>| bytes.map_or_else(|| "an unknown amount".to_owned(), gib);
            let (needed, available) = (text(needed_bytes), text(available_bytes));
            warn(&format!("out of memory: the case needs {needed}, and {available} is available"));
            Ok(Status::Done)
        }
        Outcome::Skipped { reason } => {
            warn(&format!("the case was skipped: {reason}"));
            Ok(Status::Done)
        }
        Outcome::Measured(_) => Ok(Status::Done),
    }
}
