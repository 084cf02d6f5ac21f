//! `laptime compare`: two runs, case by case, with a verdict; or two traces, with what differs between them.

use std::io::Write;
use std::path::{Path, PathBuf};

use laptime_analyze::{Comparing, Difference, RunResults};
use laptime_bench::Share;
use laptime_trace::run::{CaseResult, RESULTS_FILE, RUN_FILE, Run, read_results};

use super::compare_traces;
use crate::output::{OutputArgs, warn};
use crate::{cli::Status, failure::Hinted, near::nearest, run_folder::TRACE_FILE, trace_input::STDIN};

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
    traces: compare_traces::TraceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
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
            let error = anyhow::anyhow!("`{}` is a trace and `{}` is a run", trace.display(), run.display());
            Err(Hinted::wrap(error, "compare two runs, or two traces; a run's trace is `trace.pftrace` in its folder"))
        }
    }
}

/// Whether a path is a trace; everything else is read as a run.
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
    let given = [("--metric", args.metric.is_some()), ("--anyway", args.anyway)];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => {
            let error = anyhow::anyhow!("`{flag}` applies to runs, and these are traces");
            Err(Hinted::wrap(error, "leave it out, or name the folders of two runs"))
        }
        None => Ok(()),
    }
}

fn compare_runs(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    check_alike(&a, &b, args)?;
    check_metric(&a, &b, args)?;
    let how = Comparing { metric: args.metric.clone(), threshold: args.threshold.map(|share| share.0) };
    let compared = laptime_analyze::compare(&a.as_side(), &b.as_side(), &how);
    args.output.write(&laptime_report::tables::compare(&compared), out)?;
    if compared.tally().all() == 0 {
        let error = anyhow::anyhow!("no case could be compared");
        return Err(Hinted::wrap(
            error,
            "both runs must have measured the same cases; the table shows what is missing",
        ));
    }
    Ok(if compared.is_regression() { Status::BadNews } else { Status::Done })
}

/// A run as saved.
struct Side {
    run: Option<Run>,
    results: Vec<CaseResult>,
}

impl Side {
    fn as_side(&self) -> RunResults<'_> {
        RunResults { run: self.run.as_ref(), results: &self.results }
    }
}

fn read(path: &Path) -> anyhow::Result<Side> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    let results = if path.is_dir() || path.file_name().is_some_and(|name| name == RUN_FILE) {
        folder.join(RESULTS_FILE)
    } else {
        path.to_owned()
    };
    let read = read_results(&results)?;
    if read.was_cut {
        warn(&format!("the last result of `{}` is incomplete and was left out", results.display()));
    }
    let run = if folder.join(RUN_FILE).is_file() { Some(Run::read(folder)?) } else { None };
    Ok(Side { run, results: read.results })
}

fn check_alike(a: &Side, b: &Side, args: &Args) -> anyhow::Result<()> {
    let (Some(run_a), Some(run_b)) = (&a.run, &b.run) else {
        warn("a `run.json` is missing, so machines and settings cannot be checked for differences");
        return Ok(());
    };
    let sentence = |Difference { what, a, b, .. }: &Difference| format!("{what} is `{a}` in a and `{b}` in b");
    let differing: Vec<String> = laptime_analyze::differences(run_a, run_b).iter().map(sentence).collect();
    if differing.is_empty() || args.anyway {
        return Ok(());
    }
    let error = anyhow::anyhow!("the runs were measured differently: {}", differing.join("; "));
    Err(Hinted::wrap(error, "`--anyway` compares them regardless"))
}

fn check_metric(a: &Side, b: &Side, args: &Args) -> anyhow::Result<()> {
    let Some(metric) = &args.metric else { return Ok(()) };
    let mut known = laptime_analyze::metrics(&a.results);
    known.extend(laptime_analyze::metrics(&b.results));
    known.sort();
    known.dedup();
    if known.contains(metric) {
        return Ok(());
    }
    let near = nearest(metric, known.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`? "));
    let all = if known.is_empty() { "no metrics except the time of an iteration".to_owned() } else { known.join(", ") };
    let hint = format!("{}the runs have {all}", near.unwrap_or_default());
    Err(Hinted::wrap(anyhow::anyhow!("neither run has a metric `{metric}`"), hint))
}
