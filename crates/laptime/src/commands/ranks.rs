//! `laptime ranks`: compares the ranks of a job.

use std::path::{Path, PathBuf};
use std::{collections::HashMap, io::Write, sync::Mutex};

use anyhow::Context;
use laptime_analyze::{Note, RankTrace, Ranks, plural};
use laptime_report::tables::RanksBy;
use rayon::prelude::*;

use super::{fleet::labels, page};
use crate::choice::{Choice, one_of};
use crate::trace_input::{read, trace_files};
use crate::{cli::Status, failure::refuse, output::OutputArgs, progress::Progress};

/// Compare the ranks of a job: which rank is late, which collective waits, and whether the network is slow
///
/// Collectives are matched by communicator and sequence number. At most two traces are in memory at a time, so there may be
/// any number of ranks.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  laptime ranks traces/\n  laptime ranks rank-*.json.gz --by rank\n  laptime ranks traces/ --format json"
)]
pub struct Args {
    /// Traces of the ranks, or folders with them
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Rows of the table
    #[arg(long, value_parser = one_of(&ROWS), default_value = "collective")]
    by: RanksBy,
    /// Peak rate of the links between ranks, in GB/s per direction
    #[arg(long, value_name = "GB/S")]
    link: Option<f64>,
    /// Show all rows, and how well the clocks of the ranks are aligned
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: OutputArgs,
}

const ROWS: [Choice<RanksBy>; 4] = [
    ("collective", "Collectives of the same kind, size and communicator", RanksBy::Collective),
    ("rank", "One row per rank", RanksBy::Rank),
    ("step", "One row per rank and step", RanksBy::Step),
    ("call", "One row per collective", RanksBy::Call),
];

pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let answer = answer(&args.traces, args.link, &args.output)?;
    if let Some(page) = args.output.page() {
        write_page(&answer, &files(&args.traces)?, page)?;
        return Ok(Status::Done);
    }
    let is_whole = args.all || !args.output.is_for_people();
    args.output.write(&laptime_report::tables::ranks(&answer, args.by, is_whole), out)
}

/// Stragglers whose timelines are written next to the page; one more rank is written for comparison.
const TIMELINES: usize = 3;

/// Writes the page, and the timelines of a few ranks next to it.
fn write_page(answer: &Ranks, files: &[PathBuf], target: &Path) -> anyhow::Result<()> {
    let mut chosen: Vec<usize> = answer.stragglers.iter().take(TIMELINES).map(|found| found.rank as usize).collect();
    chosen.extend((0..answer.ranks.len()).find(|at| !chosen.contains(at)));
    let labels = labels(files);
    let stem = target.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut timelines = HashMap::new();
    for at in chosen {
        let row = &answer.ranks[at];
        // The label of a rank is that of its file, followed by its device if the file has several.
        let is_of = |label: &String| row.label == *label || row.label.starts_with(&format!("{label} "));
        let Some(file) = labels.iter().position(is_of).map(|at| &files[at]) else { continue };
        let name = format!("{stem}.rank-{}.html", row.rank.map_or_else(|| at.to_string(), |rank| rank.to_string()));
        page::write_trace(file, Some(&target.with_file_name(&name)))?;
        timelines.insert(at, name);
    }
    let title = format!("Ranks of {stem}");
    page::write(&laptime_page::of_ranks(answer, &title, &timelines), target)
}

/// Reads and compares all ranks. Files that cannot be read become notes.
pub fn answer(paths: &[PathBuf], link: Option<f64>, output: &OutputArgs) -> anyhow::Result<Ranks> {
    let files = files(paths)?;
    files.iter().try_for_each(|path| output.refuse_to_overwrite(path))?;
    let (traces, failures) = read_all(&files)?;
    if traces.is_empty() {
        let reason = failures.first().map_or_else(String::new, |(label, error)| format!(": `{label}`: {error}"));
        let reason = format!("found no GPU work to compare in {}{reason}", plural(files.len(), "file", "files"));
        return refuse(reason, "name the traces of the ranks, such as `rank-*.json.gz`, or their folder");
    }
    let mut answer = laptime_analyze::ranks(traces, link);
    answer.notes.splice(0..0, unreadable(&failures));
    Ok(answer)
}

/// The files that paths name, with folders replaced by the traces in them.
pub(super) fn files(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let found = trace_files(path).with_context(|| format!("cannot read the folder `{}`", path.display()))?;
        if found.is_empty() {
            let reason = format!("`{}` contains no traces", path.display());
            return refuse(reason, "traces end in `.json`, `.json.gz`, `.pftrace` or `.sqlite`");
        }
        files.extend(found);
    }
    Ok(files)
}

/// Notes on files that could not be read: the first ones with their reason, then the number of others.
fn unreadable(failures: &[Failure]) -> Vec<Note> {
    const NAMED: usize = 3;
    let named = failures.iter().take(NAMED).map(|(label, error)| format!("`{label}`: {error}; it is left out"));
    let more = failures.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| format!("{more} more files could not be read and are left out"));
    named.chain(more).map(|text| Note::new("ranks-input", text)).collect()
}

const AT_A_TIME: usize = 2;

/// A file that could not be read, and the reason.
type Failure = (String, String);

/// The traces, in the order of the files, and the files that could not be read.
fn read_all(files: &[PathBuf]) -> anyhow::Result<(Vec<RankTrace>, Vec<Failure>)> {
    let labels = labels(files);
    let progress = Mutex::new(Progress::new(files.len(), false));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(AT_A_TIME.min(files.len())).build()?;
    let work = |(at, (file, label)): (usize, (&PathBuf, &String))| {
        let found = read_rank(file, label, at).map_err(|error| format!("{error:#}"));
        if let Ok(mut progress) = progress.lock() {
            progress.step(at, files.len(), label);
        }
        found
    };
    let read: Vec<_> = pool.install(|| files.par_iter().zip(&labels).enumerate().with_max_len(1).map(work).collect());
    let (mut traces, mut failures) = (Vec::new(), Vec::new());
    for (label, read) in std::iter::zip(labels, read) {
        match read {
            Ok(found) => traces.extend(found),
            Err(error) => failures.push((label, error)),
        }
    }
    Ok((traces, failures))
}

fn read_rank(file: &Path, label: &str, at: usize) -> anyhow::Result<Vec<RankTrace>> {
    let trace = read(file).context("cannot read it")?;
    let found = RankTrace::of(&trace, label, at);
    anyhow::ensure!(!found.is_empty(), "it has no GPU work");
    Ok(found)
}
