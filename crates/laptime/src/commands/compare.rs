//! `laptime compare`: two runs case by case, or two traces step by step.

use std::io::Write;
use std::path::{Path, PathBuf};

use laptime_analyze::{CompareOptions, Difference, ProfiledRun, RunResults};
use laptime_bench::Share;
use laptime_trace::run::{RESULTS_FILE, RUN_FILE};

use super::compare_traces;
use crate::choice::first_given;
use crate::output::{OutputArgs, warn};
use crate::{cli::Status, failure::refuse, near::did_you_mean, run_folder::TRACE_FILE, run_input, trace_input::STDIN};

/// Compare two runs case by case, or two traces step by step
///
/// Two runs: medians, difference with interval, verdict and reason. The first run is the baseline.
/// Processes are compared, so both runs need `--runs`; fewer than four per side are `unclear`. `same` means that the whole
/// 95 % interval lies within 1 % or `--threshold`. Exit status 1: a case is slower. Two traces: steps that add up to the
/// difference; exit status 1 if `--threshold` is given and the second is slower by more than that.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  laptime compare runs/before runs/after\n  laptime compare runs/before runs/after --threshold 5% --format md\n  laptime compare before.json.gz after.json.gz --by group"
)]
pub struct Args {
    /// Baseline: a run's folder or its `results.jsonl`, or a trace
    a: PathBuf,
    /// Run or trace to compare with the baseline
    b: PathBuf,
    /// Smallest difference that matters
    #[arg(long, value_name = "SHARE", value_parser = str::parse::<Share>)]
    threshold: Option<Share>,
    /// Metric to compare instead of the time of an iteration
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
    /// Compare even if machines or settings differ
    #[arg(long)]
    anyway: bool,
    #[command(flatten)]
    output: OutputArgs,
    // Last, because its help heading applies to all flags that follow.
    #[command(flatten)]
    traces: compare_traces::TraceArgs,
}

pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    match (is_trace(&args.a), is_trace(&args.b)) {
        (true, true) => {
            check_no_run_flags(args)?;
            let threshold = args.threshold.map(|share| share.0);
            compare_traces::run([&args.a, &args.b], threshold, &args.traces, &args.output, out)
        }
        (false, false) => {
            args.traces.check_unused()?;
            compare_runs(args, out)
        }
        (is_trace, _) => {
            let (trace, run) = if is_trace { (&args.a, &args.b) } else { (&args.b, &args.a) };
            let reason = format!("`{}` is a trace and `{}` is a run", trace.display(), run.display());
            refuse(reason, "compare two runs, or two traces; a run's trace is `trace.pftrace` in its folder")
        }
    }
}

/// Whether a path is a trace rather than a run.
fn is_trace(path: &Path) -> bool {
    if path == Path::new(STDIN) {
        return true;
    }
    if path.is_dir() {
        return !path.join(RESULTS_FILE).exists() && path.join(TRACE_FILE).exists();
    }
    let has = |extensions: &[&str]| path.extension().is_some_and(|own| extensions.iter().any(|one| own == *one));
    if !path.exists() {
        return has(&["json", "gz", "pftrace", "perfetto-trace", "sqlite", "db"]);
    }
    !has(&["jsonl"]) && path.file_name().is_none_or(|name| name != RUN_FILE)
}

fn check_no_run_flags(args: &Args) -> anyhow::Result<()> {
    match first_given([("--metric", args.metric.is_some()), ("--anyway", args.anyway)]) {
        Some(flag) => {
            let reason = format!("`{flag}` applies to runs, and these are traces");
            refuse(reason, "leave it out, or name the folders of two runs")
        }
        None => Ok(()),
    }
}

fn compare_runs(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    check_alike(&a, &b, args)?;
    check_metric(&a, &b, args)?;
    let how = CompareOptions { metric: args.metric.clone(), threshold: args.threshold.map(|share| share.0) };
    let compared = laptime_analyze::compare(&as_side(&a), &as_side(&b), &how);
    args.output.write(&laptime_report::tables::compare(&compared), out)?;
    if compared.tally().all() == 0 {
        let hint = "both runs must have measured the same cases; the table shows what is missing";
        return refuse("no case could be compared", hint);
    }
    Ok(if compared.is_regression() { Status::BadNews } else { Status::Done })
}

fn as_side(run: &ProfiledRun) -> RunResults<'_> {
    RunResults { run: run.run.as_ref(), results: &run.results }
}

fn read(path: &Path) -> anyhow::Result<ProfiledRun> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    let is_results = !path.is_dir() && path.file_name().is_none_or(|name| name != RUN_FILE);
    let file = if is_results { path.to_owned() } else { folder.join(RESULTS_FILE) };
    let (results, run) = (run_input::results(&file, &file)?, run_input::manifest(folder)?);
    Ok(ProfiledRun { folder: String::new(), run, results })
}

fn check_alike(a: &ProfiledRun, b: &ProfiledRun, args: &Args) -> anyhow::Result<()> {
    let (Some(run_a), Some(run_b)) = (&a.run, &b.run) else {
        warn("a `run.json` is missing, so machines and settings cannot be checked for differences");
        return Ok(());
    };
    let sentence = |Difference { what, a, b, .. }: &Difference| format!("{what} is `{a}` in a and `{b}` in b");
    let differing: Vec<String> = laptime_analyze::differences(run_a, run_b).iter().map(sentence).collect();
    if differing.is_empty() || args.anyway {
        return Ok(());
    }
    let reason = format!("the runs were measured differently: {}", differing.join("; "));
    refuse(reason, "`--anyway` compares them regardless")
}

fn check_metric(a: &ProfiledRun, b: &ProfiledRun, args: &Args) -> anyhow::Result<()> {
    let Some(metric) = &args.metric else { return Ok(()) };
    let mut known = laptime_analyze::metrics(&a.results);
    known.extend(laptime_analyze::metrics(&b.results));
    known.sort();
    known.dedup();
    if known.contains(metric) {
        return Ok(());
    }
    let near = did_you_mean(metric, known.iter().map(String::as_str));
    let all = if known.is_empty() { "no metrics except the time of an iteration".to_owned() } else { known.join(", ") };
    refuse(format!("neither run has a metric `{metric}`"), format!("{near}the runs have {all}"))
}
