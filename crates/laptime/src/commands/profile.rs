//! `laptime profile`: one case recorded, with what recording cost.

use std::{io::Write, path::Path, sync::Arc};

use anyhow::Context;
use laptime_analyze::measured;
use laptime_bench::{
    Case, CaseResult, Depth, Device, GivenSettings, Interrupt, Outcome, Plan, ProfileSettings, Profiled, Seconds,
    Share, Sink, Stop, Timing, TimingPairs, WarmUp,
};
use laptime_probe::stage;
use laptime_report::{Cell, Format, tables::Ranking};
use laptime_trace::{
    Recorded, Trace,
    format::{folded::By, write_whole},
    run::{ResultsWriter, Run},
};

use crate::{
    app::App,
    aside::Aside,
    asked::{Asked, Order},
    c2c_profile,
    cli::Status,
    commands::{bench, convert},
    failure::Hinted,
    moment::Moment,
    offload_profile,
    output::{read_trace, say, warn, write_file, write_to_screen},
    progress::Progress,
    run_folder::{TRACE_FILE, Tentative},
    session::{Session, describe},
    tts_files, tts_profile,
};

/// Stages that people are shown.
const MOST_STAGES: usize = 40;

/// Takes before the first pair, unless asked otherwise.
const WARM_UP: usize = 3;

/// Pairs of a recorded and an unrecorded take at least.
const LEAST_PAIRS: usize = 20;

/// How well the overhead is to be known, unless asked otherwise: within a quarter of a per cent of the take.
const WITHIN: f64 = 0.0025;

/// The time for it, unless asked otherwise.
const SECONDS: f64 = 10.0;

/// Runs the command.
pub fn run(app: &App, asked: &Asked, out: &mut dyn Write) -> anyhow::Result<Status> {
    let mut order = asked.settle(app, defaults())?;
    refuse_processes(&order)?;
    tts_files::refuse_unused(asked, &order)?;
    offload_profile::refuse_unused(asked, order.workload.name())?;
    if asked.run.dry_run {
        return bench::show_cases(&order, &asked.place.format, out);
    }
    let what = format!("profile-{}", order.workload.name());
    let folder = Tentative::make(asked.place.out.as_deref(), &what, Moment::now())?;
    let pftrace = folder.join(TRACE_FILE);
    // From here on, so that the trace shows how long the device took to open.
    let recording = laptime_trace::record_to(&pftrace)?;
    let device = {
        let _stage = stage!("open_device");
        app.device(&order.device)?
    };
    order = order.on(&*device);
    let baseline = offload_profile::part_baseline(&mut order)?;
    let case = only_case(&mut order, asked)?;
    let offloaded = offload_profile::look(&order, &case, &*device)?;
    let timings = order.timings_on(&*device)?;
    // The record of the run names the first; the table has them all.
    order.timings.truncate(1);
    let run = describe(app, &order, &*device)?;
    let session = Session::begin_in(app, run, folder.keep(), Arc::clone(&device))?;
    app.listen_for_interrupts();
    if let Some(plan) = &offloaded {
        offload_profile::begin(app, plan, &session.run, asked, out)?;
    }
    let mut profiled = record(app, &order, &session.run, &case, &timings, asked, &*device);
    let recorded = recording.finish().context("the recording was not kept")?;
    let run = &session.run;
    let baseline = baseline.filter(|_| !app.interrupt.is_asked());
    let baseline = baseline.map(|case| offload_profile::measure_baseline(app, &order, run, case)).transpose()?;
    offload_profile::complete(&mut profiled.outcome, order.workload.name(), run, baseline.as_ref());
    let result =
        CaseResult::new(&run.workload, &run.device, case, 0, &run.environment_fingerprint, profiled.outcome.clone());
    ResultsWriter::open(&session.folder)?.append(&result)?;
    let of_offload: Vec<&CaseResult> = [&result].into_iter().chain(&baseline).collect();
    if let Outcome::Measured(_) = profiled.outcome {
        let trace = with_device(read_trace(&pftrace)?, &profiled, &recorded)?;
        let files = write_files(&trace, &pftrace, &session.folder)?;
        write_pairs(&profiled.costs, &session.folder)?;
        show(&trace, &profiled, asked, session.run.settings.depth, out)?;
        if asked.place.format.is_for_people() {
            tell_where(&session.folder, &files, &recorded, out)?;
        }
        c2c_profile::write(app, &order, &trace, &result, &session, asked, out)?;
        tts_profile::write(app, &trace, &result, &session, asked, out)?;
        offload_profile::write(app, Some(&trace), &of_offload, &session, asked, out)?;
        if app.interrupt.is_asked() {
            let rounds = profiled.costs.first().map_or(0, |cost| cost.pairs.len());
            let error = anyhow::anyhow!("interrupted after {rounds} pairs");
            return Err(Hinted::wrap(error, "what was recorded until then is kept and shown"));
        }
        return Ok(Status::Done);
    }
    // What was made before it failed is not lost.
    offload_profile::write(app, None, &of_offload, &session, asked, out)?;
    not_measured(&profiled.outcome)
}

/// What a profile does unless asked otherwise; it is recorded in `run.json` as it was done.
fn defaults() -> GivenSettings {
    GivenSettings {
        warmup: Some(WarmUp::Takes(WARM_UP)),
        within: Some(Share(WITHIN)),
        max_time: Some(Seconds(SECONDS)),
        ..GivenSettings::default()
    }
}

fn refuse_processes(order: &Order<'_>) -> anyhow::Result<()> {
    let laptime_bench::Settings { runs, isolate, timeout_ns, .. } = order.settings;
    if runs > 1 || isolate || timeout_ns.is_some() {
        let error =
            anyhow::anyhow!("a profile is of this process: `--runs`, `--isolate` and `--timeout` have no meaning");
        return Err(Hinted::wrap(error, "leave them out; `laptime bench` has them"));
    }
    Ok(())
}

/// The case to record: the only one, or the last of several that nobody asked for.
fn only_case(order: &mut Order<'_>, asked: &Asked) -> anyhow::Result<Case> {
    let mut cases = order.plan.cases();
    let several: Vec<&str> =
        order.plan.axes().filter(|(_, values)| values.len() > 1).map(|(axis, _)| axis.name).collect();
    if cases.len() > 1 && asked.names_any(order.workload, &several) {
        let error = anyhow::anyhow!("a profile records one case, not {}", cases.len());
        return Err(Hinted::wrap(error, format!("give one value on each axis; several on: {}", several.join(", "))));
    }
    let is_chosen = cases.len() > 1;
    let case = cases.pop().context("the plan has no case")?;
    if is_chosen {
        let axis = several.first().copied().unwrap_or_default();
        let value = case.get(axis).map(ToString::to_string).unwrap_or_default();
        say(&format!("note: recording `{axis}` {value}; `--{}` chooses another", axis.replace('_', "-")));
        order.plan = Plan::of_cases(order.workload.axes(), vec![case.clone()])?;
    }
    Ok(case)
}

fn settings(run: &Run, timings: &[Timing]) -> ProfileSettings {
    let (timings, l2, depth) = (timings.to_vec(), run.settings.l2, run.settings.depth);
    let warmup = match run.settings.warmup {
        WarmUp::Takes(takes) => takes,
        WarmUp::Found => WARM_UP,
    };
    match run.settings.stop {
        Stop::Takes(pairs) => {
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
    asked: &Asked,
    device: &dyn Device,
) -> Profiled {
    let mut shown = Shown { progress: Progress::new(1, asked.run.quiet), interrupt: app.interrupt.clone() };
    shown.progress.begin(case, 0, 1);
    let _aside = Aside::begin();
    laptime_bench::profile(order.workload, case, device, &settings(run, timings), &mut shown)
}

/// The trace with what the device did, if it was listened to or stamped stages itself; the file is written anew.
fn with_device(mut trace: Trace, profiled: &Profiled, recorded: &Recorded) -> anyhow::Result<Trace> {
    const MISFIT: &str = "what the device did does not fit the trace";
    let Profiled { kernels, replays, .. } = profiled;
    if kernels.is_none() && replays.replays.is_empty() {
        return Ok(trace);
    }
    trace = trace.with_replays(replays).context(MISFIT)?;
    if let Some(records) = kernels {
        trace = trace.with_kernels(records, recorded.start_ns).context(MISFIT)?;
    }
    laptime_trace::write(&trace, &recorded.path)?;
    trace.warnings.iter().for_each(|warning| warn(warning));
    Ok(trace)
}

/// Shows takes and keeps nothing: the result is kept when it is whole.
struct Shown {
    progress: Progress,
    interrupt: Interrupt,
}

impl Sink for Shown {
    fn begin(&mut self, _: &Case, _: u32) {}

    fn take(&mut self, _: u64, _: bool) {
        self.progress.take();
    }

    fn result(&mut self, _: CaseResult) -> anyhow::Result<()> {
        Ok(())
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.is_asked()
    }
}

fn write_files(trace: &Trace, pftrace: &Path, folder: &Path) -> anyhow::Result<Vec<(&'static str, &'static str)>> {
    let at = |name: &str| folder.join(name);
    laptime_trace::write(trace, at("trace.json"))?;
    let measured = measured(trace).transpose()?;
    let iterations = measured.as_ref().map_or(trace, |part| &part.trace);
    convert::draw(iterations, By::Host, pftrace, &at("flamegraph.svg"))?;
    let stages = laptime_report::tables::stages(&laptime_analyze::stages(trace));
    write_file(&stages, Format::Tsv, &at("stages.tsv"))?;
    let top = laptime_analyze::top(iterations);
    write_file(&laptime_report::tables::top(&top, &Ranking::all()), Format::Json, &at("top.json"))?;
    Ok(vec![
        (TRACE_FILE, "open in https://ui.perfetto.dev"),
        ("trace.json", "open in chrome://tracing or https://www.speedscope.app"),
        ("flamegraph.svg", "open in a browser"),
        ("stages.tsv", "the stage tree, for a spreadsheet"),
        ("top.json", "names by own time, for a program"),
        (PAIRS_FILE, "every pair that the overhead was judged by"),
    ])
}

/// The pairs in nanoseconds, in the order in which they were taken.
const PAIRS_FILE: &str = "overhead.tsv";

fn write_pairs(costs: &[TimingPairs], folder: &Path) -> anyhow::Result<()> {
    write_whole(&folder.join(PAIRS_FILE), |out| {
        writeln!(out, "recorded_ns\tunrecorded_ns\ttiming")?;
        let rows = costs.iter().flat_map(|cost| cost.pairs.iter().map(|pair| (cost.timing, pair)));
        rows.into_iter().try_for_each(|(timing, (recorded, idle))| writeln!(out, "{recorded}\t{idle}\t{timing}"))
    })?;
    Ok(())
}

fn show(trace: &Trace, profiled: &Profiled, asked: &Asked, depth: Depth, out: &mut dyn Write) -> anyhow::Result<()> {
    let [only] = profiled.costs.as_slice() else { return show_timings(trace, profiled, asked, out) };
    let measured = measured(trace).filter(|_| asked.place.format.is_for_people() && !asked.run.all).transpose()?;
    let mut table = match &measured {
        Some(part) => laptime_report::tables::iteration(&laptime_analyze::stages(&part.trace), part, MOST_STAGES),
        None => laptime_report::tables::stages(&laptime_analyze::stages(trace)),
    };
    table.machine_fact("depth", Cell::text(depth.word()));
    let overhead = laptime_analyze::overhead(&only.pairs, trace);
    laptime_report::tables::add_overhead(&mut table, &overhead);
    if let Some(cost) = overhead.cost.filter(|_| !asked.place.format.is_for_people()) {
        say(&format!("recording cost {:+.2} % of a take; {PAIRS_FILE} has every pair", 100.0 * cost.share));
    }
    write_to_screen(&table, asked.place.format.format(), out)
}

/// Several timings are compared; `laptime stages` shows the tree of them all.
fn show_timings(trace: &Trace, profiled: &Profiled, asked: &Asked, out: &mut dyn Write) -> anyhow::Result<()> {
    let pairs: Vec<_> = profiled.costs.iter().map(|cost| (cost.timing, &cost.pairs[..])).collect();
    let table = laptime_report::tables::timings(&laptime_analyze::timings(trace, &pairs));
    write_to_screen(&table, asked.place.format.format(), out)
}

/// Says what was written and how to open it.
pub fn tell_where(
    folder: &Path,
    files: &[(&str, &str)],
    recorded: &Recorded,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let width = files.iter().map(|(file, _)| file.len()).max().unwrap_or(0);
    let Recorded { spans, bytes, .. } = recorded;
    writeln!(out, "\nWritten to {}/ ({spans} spans, {bytes} bytes of trace):", folder.display())?;
    for (file, how) in files {
        writeln!(out, "  {file:width$}  {how}")?;
    }
    out.flush()?;
    Ok(())
}

fn not_measured(outcome: &Outcome) -> anyhow::Result<Status> {
    match outcome {
        Outcome::Failed { errors, .. } => {
            warn(&format!("the case failed: {}", errors.join(": ")));
            Ok(Status::BadNews)
        }
        Outcome::OutOfMemory { needed_bytes, available_bytes } => {
            let bytes = |bytes: &Option<u64>| {
                bytes.map_or_else(
                    || "an unknown number of".to_owned(),
                    |bytes| format!("{:.1} Gi", bytes as f64 / f64::from(1 << 30)),
                )
            };
            let (needed, available) = (bytes(needed_bytes), bytes(available_bytes));
            warn(&format!("the case does not fit: it needs {needed}B, and there are {available}B"));
            Ok(Status::Done)
        }
        Outcome::Skipped { reason } => {
            warn(&format!("the case was skipped: {reason}"));
            Ok(Status::Done)
        }
        Outcome::Measured(_) => Ok(Status::Done),
    }
}
