//! `laptime diagnose`: finds the bottleneck of a run or trace.

use std::path::{Path, PathBuf};
use std::{io::Write, sync::Arc};

use laptime_analyze::{Bottleneck, Conclusion, FindingLimits, Offload, OffloadFacts, Severity, Thresholds};
use laptime_report::{Table, offload_text, tables};
use laptime_trace::Trace;
use laptime_trace::run::{CaseResult, RESULTS_FILE, Run};

use crate::commands::{
    experiment,
    finding_gate::{GateArgs, assignment, unknown_finding},
    ranks,
};
use crate::failure::{refusal, refuse};
use crate::output::{OutputArgs, warn};
use crate::{app::App, cli::Status, run_folder::TRACE_FILE, run_input, trace_input::trace_files};

/// Find the bottleneck in a run or trace, and what fixing it would bring
///
/// With offloaded layers: whether copies are prefetched, and whether the link, compute, the diffusion head, the codec,
/// memory or the host is the limit. Any other trace: whether the host, syncs, copies or the hardware is the limit.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  laptime diagnose runs/offload-20261116-021500\n  laptime diagnose trace.json.gz\n  laptime diagnose rank-*.json.gz\n  laptime diagnose trace.pftrace --layers\n  laptime diagnose trace.json.gz --deny sync-in-loop --budget data-loading=5%\n  laptime diagnose --experiment --preset tiny --num-gpu-layers 1"
)]
pub struct Args {
    /// The folder of a run, or a trace; with the traces of several ranks, or a folder with them, the ranks are compared
    #[arg(value_name = "RUN", required_unless_present = "experiment")]
    runs: Vec<PathBuf>,
    /// Measure the case as it is, without offloading, and with a few more layers on the GPU, and draw a conclusion. The
    /// flags of `laptime bench offload` follow; without them, those of RUN are used
    #[arg(long, value_name = "FLAGS", num_args(0..), allow_hyphen_values(true), conflicts_with_all = ["layers", "tokens", "share"])]
    experiment: Option<Vec<String>>,
    /// List offloaded layers one by one
    #[arg(long, conflicts_with_all = ["tokens", "share"])]
    layers: bool,
    /// Show where the time of a token goes, and what was expected
    #[arg(long, conflicts_with = "share")]
    tokens: bool,
    /// Print a block to paste into an issue
    #[arg(long, conflicts_with = "format")]
    share: bool,
    /// Exit with status 1 if there is a bad finding
    #[arg(long)]
    fail_on_finding: bool,
    /// Set the threshold of a finding, in percent of the time
    #[arg(long, value_name = "ID=PERCENT", value_delimiter = ',')]
    threshold: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
    // Last, because their help headings apply to all flags that follow.
    #[command(flatten)]
    gate: GateArgs,
    #[command(flatten)]
    limits: LimitArgs,
}

/// Thresholds of the findings
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
struct LimitArgs {
    /// Share of prefetched copies from which it is good, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0)]
    async_good: f64,
    /// Share of prefetched copies below which it is bad, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 50.0)]
    async_bad: f64,
    /// Wait for a layer below which it is good, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100.0)]
    pre_good: f64,
    /// Wait for a layer above which it is bad, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 300.0)]
    pre_bad: f64,
    /// Release time of a layer below which it is good, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1.0)]
    post_good: f64,
    /// Release time of a layer above which it is bad, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 200.0)]
    post_bad: f64,
    /// Time per token up to which it is good, in milliseconds [default: its audio duration, else 133.3]
    #[arg(long, value_name = "MS")]
    token_good: Option<f64>,
    /// Copy rate from which it is good, in percent of the link's peak
    #[arg(long, value_name = "PERCENT", default_value_t = 60.0)]
    link_share: f64,
    /// Maximum share of a token for each of waits, stalls and a late host, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    lost_share: f64,
}

impl LimitArgs {
    fn thresholds(&self) -> Thresholds {
        let default = Thresholds::default();
        Thresholds {
            async_good: self.async_good / 100.0,
            async_bad: self.async_bad / 100.0,
            pre_good_ns: 1e6 * self.pre_good,
            pre_bad_ns: 1e6 * self.pre_bad,
            post_good_ns: 1e6 * self.post_good,
            post_bad_ns: 1e6 * self.post_bad,
            token_good_ns: self.token_good.map_or(default.token_good_ns, |good| 1e6 * good),
            link_share: self.link_share / 100.0,
            lost_share: self.lost_share / 100.0,
        }
    }
}

pub fn run(app: &App, args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    if let Some(words) = &args.experiment {
        return experiment(app, args, words, out);
    }
    if let [path] = args.runs.as_slice()
        && !is_folder_of_ranks(path)
    {
        return one(args, path, out);
    }
    if args.layers || args.tokens || args.share {
        return refuse("`--layers`, `--tokens` and `--share` are for a single run", "name one run");
    }
    let answer = ranks::answer(&args.runs, None, &args.output)?;
    let is_whole = !args.output.is_for_people();
    let mut table = tables::ranks(&answer, tables::RanksBy::Collective, is_whole);
    if answer.stragglers.is_empty() && answer.slow_links.is_empty() {
        first_rank(args)?.into_iter().for_each(|text| table.note(text));
    }
    args.output.write(&table, out)?;
    let is_bad = args.fail_on_finding && !(answer.stragglers.is_empty() && answer.slow_links.is_empty());
    Ok(if is_bad { Status::BadNews } else { Status::Done })
}

/// The main bottleneck of the first rank, for a job in which no rank stands out.
fn first_rank(args: &Args) -> anyhow::Result<Option<String>> {
    let files = ranks::files(&args.runs)?;
    let Some(trace) = files.iter().find_map(|file| crate::trace_input::read(file).ok()) else { return Ok(None) };
    let answer = laptime_analyze::diagnose_with(Some(&trace), &[], None, &thresholds(&args.threshold)?);
    Ok(answer.findings.first().map(|found| {
        let title = found.reported(answer.whole_ns).title;
        let laptime_analyze::Finding { rule, evidence, next, .. } = &found.finding;
        let rank = trace.metadata.rank().map_or_else(|| "The first rank".to_owned(), |rank| format!("Rank {rank}"));
        format!("{rank}, as an example: {title} [{rule}]. {evidence}. Try: {next}.")
    }))
}

/// Whether a folder contains traces of several ranks and is not a run folder.
fn is_folder_of_ranks(path: &Path) -> bool {
    let is_run = [TRACE_FILE, "trace.json", RESULTS_FILE].iter().any(|name| path.join(name).is_file());
    path.is_dir() && !is_run && trace_files(path).is_ok_and(|files| files.len() > 1)
}

fn one(args: &Args, path: &Path, out: &mut dyn Write) -> anyhow::Result<Status> {
    let (gate, finding_limits) = (args.gate.gate()?, thresholds(&args.threshold)?);
    let read = Read::of(args, path)?;
    let facts = read.results.iter().find_map(CaseResult::measured).map(OffloadFacts::of).unwrap_or_default();
    let limits = args.limits.thresholds();
    // An explicit limit overrides the audio duration of a token.
    let facts = if args.limits.token_good.is_some() { facts.judged_by_limit() } else { facts };
    let answer = read.trace.as_deref().and_then(|trace| laptime_analyze::offload(trace, facts, limits));
    let (findings, whole) = match answer {
        Some(answer) => {
            show(args, &answer, &read, out)?;
            (answer.findings, Some(answer.length.median))
        }
        None => general(args, path, &read, &finding_limits, out)?,
    };
    let broken = gate.broken(&findings, whole);
    broken.iter().for_each(|line| warn(line));
    let is_bad = args.fail_on_finding && findings.iter().any(|found| found.severity == Severity::Bad);
    Ok(if is_bad || !broken.is_empty() { Status::BadNews } else { Status::Done })
}

/// The run may be named before or after `--experiment`.
fn experiment(app: &App, args: &Args, words: &[String], out: &mut dyn Write) -> anyhow::Result<Status> {
    let named = words.first().filter(|word| !word.starts_with('-')).map(Path::new);
    let (folder, words) = match (args.runs.first().map(PathBuf::as_path), named) {
        (Some(folder), _) => (Some(folder), words),
        (None, Some(folder)) => (Some(folder), &words[1..]),
        (None, None) => (None, words),
    };
    if let (Some(folder), [first, ..]) = (folder, words) {
        let reason = format!("`{first}` and the run `{}` both select a case", folder.display());
        return refuse(reason, "leave out the run, or the flags after `--experiment`");
    }
    let conclusion = experiment::run(app, words, folder, &args.output, out)?;
    let is_bad = args.fail_on_finding && conclusion == Conclusion::Broken;
    Ok(if is_bad { Status::BadNews } else { Status::Done })
}

fn show(args: &Args, answer: &Offload, read: &Read, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.share {
        let environment = read.run.as_ref().map(|run| &run.environment);
        return args.output.write_text(&offload_text::share(answer, answer.facts.baseline_ns, environment), out);
    }
    let table: Table = if args.layers {
        tables::offload_layers(answer)
    } else if args.tokens {
        tables::offload_tokens(answer)
    } else {
        tables::offload_findings(answer)
    };
    args.output.write(&table, out).map(drop)
}

/// The findings, and the time that their shares refer to.
type Findings = (Vec<Bottleneck>, Option<f64>);

fn general(
    args: &Args,
    path: &Path,
    read: &Read,
    limits: &FindingLimits,
    out: &mut dyn Write,
) -> anyhow::Result<Findings> {
    if args.layers || args.tokens || args.share {
        let reason = format!("`{}` has no offloaded layers", path.display());
        return refuse(reason, "leave out `--layers`, `--tokens` and `--share`");
    }
    let peaks = read.run.as_ref().and_then(|run| run.peaks.as_ref());
    let answer = laptime_analyze::diagnose_with(read.trace.as_deref(), &read.results, peaks, limits);
    args.output.write(&tables::diagnosis(&answer), out)?;
    Ok((answer.findings, answer.whole_ns))
}

/// Reads `--threshold ID=PERCENT`.
fn thresholds(words: &[String]) -> anyhow::Result<FindingLimits> {
    let mut limits = FindingLimits::default();
    for word in words {
        let (id, value) = assignment("--threshold", word, "sync-in-loop=5")?;
        let percent: Option<f64> = value.trim_end_matches('%').trim().parse().ok();
        let share = percent.map(|percent| percent / 100.0).filter(|share| (0.0..=1.0).contains(share));
        let example = || format!("for example `--threshold {id}=5`");
        let share = share.ok_or_else(|| refusal(format!("`{value}` is not a percentage from 0 to 100"), example()))?;
        limits.set(id, share).map_err(|_| unknown_finding(id, FindingLimits::ids()))?;
    }
    Ok(limits)
}

struct Read {
    trace: Option<Arc<Trace>>,
    results: Vec<CaseResult>,
    run: Option<Run>,
}

impl Read {
    fn of(args: &Args, path: &Path) -> anyhow::Result<Self> {
        if !path.is_dir() {
            return Ok(Self { trace: Some(args.output.read_trace(path)?), results: Vec::new(), run: None });
        }
        let file = [TRACE_FILE, "trace.json"].map(|name| path.join(name)).into_iter().find(|file| file.is_file());
        let read = Self {
            trace: file.map(|file| args.output.read_trace(&file)).transpose()?,
            results: run_input::results_in(path)?,
            run: run_input::manifest(path)?,
        };
        if read.trace.is_none() && read.results.is_empty() {
            let hint = format!("name the folder of a run (`{RESULTS_FILE}`, `{TRACE_FILE}`), or a trace");
            return refuse(format!("`{}` contains no run", path.display()), hint);
        }
        Ok(read)
    }
}
