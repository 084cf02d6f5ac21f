//! `laptime compare`: two runs, case by case, with a verdict.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use laptime_analyze::{Comparing, Difference, RunResults};
use laptime_bench::Share;
use laptime_trace::run::{CaseResult, RESULTS_FILE, RUN_FILE, Run, read_results};

use crate::{
    cli::Status,
    failure::Hinted,
    near::nearest,
    output::{OutputArgs, warn},
};

/// Compares two runs case by case: medians, difference with interval, verdict and reason
///
/// The first run is the one to measure against. Processes are what is compared, so both need `--runs`; with fewer than
/// three on a side every verdict is `unclear`. Exit status 1 says that a case got slower by more than noise.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  laptime compare runs/before runs/after\n  laptime compare runs/before runs/after --threshold 5% --format md"
)]
pub struct Args {
    /// Run to measure against: its folder, or its `results.jsonl`
    a: PathBuf,

    /// Run to judge
    b: PathBuf,

    /// Smallest difference that matters
    #[arg(long, value_name = "SHARE", value_parser = str::parse::<Share>)]
    threshold: Option<Share>,

    /// Metric to compare instead of the time of a take
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,

    /// Compare although machines or settings differ
    #[arg(long)]
    anyway: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// What the resampling starts from.
const SEED: u64 = 31;

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    check_alike(&a, &b, args)?;
    check_metric(&a, &b, args)?;
    let how = Comparing { metric: args.metric.clone(), threshold: args.threshold.map(|share| share.0), seed: SEED };
    let compared = laptime_analyze::compare(&a.as_side(), &b.as_side(), &how);
    args.output.write(&laptime_report::tables::compare(&compared), out)?;
    if compared.tally().compared() == 0 {
        let error = anyhow::anyhow!("no case could be compared");
        return Err(Hinted::wrap(error, "both runs need the same cases, measured; the table says what is missing"));
    }
    Ok(if compared.is_regression() { Status::BadNews } else { Status::Done })
}

/// A run as it lies on the disk.
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
        warn(&format!("the last result of `{}` was cut off and is left out", results.display()));
    }
    let run = if folder.join(RUN_FILE).is_file() { Some(Run::read(folder)?) } else { None };
    Ok(Side { run, results: read.results })
}

fn check_alike(a: &Side, b: &Side, args: &Args) -> anyhow::Result<()> {
    let (Some(run_a), Some(run_b)) = (&a.run, &b.run) else {
        warn("without both `run.json` it is not known whether machines and settings were the same");
        return Ok(());
    };
    let tell = |Difference { what, a, b, .. }: &Difference| format!("{what} ({a} and {b})");
    let told: Vec<String> = laptime_analyze::differences(run_a, run_b).iter().map(tell).collect();
    if told.is_empty() || args.anyway {
        return Ok(());
    }
    let error = anyhow::anyhow!("the runs are not alike: they differ in {}", told.join(", "));
    Err(Hinted::wrap(error, "`--anyway` compares them all the same"))
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
    let all = if known.is_empty() { "none but the time of a take".to_owned() } else { known.join(", ") };
    let hint = format!("{}the runs have {all}", near.unwrap_or_default());
    Err(Hinted::wrap(anyhow::anyhow!("neither run has a metric `{metric}`"), hint))
}
