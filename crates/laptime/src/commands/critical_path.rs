//! `laptime critical-path`: what decides the total time, and predictions with changes.

use std::{io::Write, path::PathBuf};

use laptime_analyze::{Changes, CriticalPath, Group};
use laptime_report::tables;

use super::finding_gate::assignment;
use crate::output::OutputArgs;
use crate::{
    absent,
    cli::Status,
    failure::{refusal, refuse},
};

/// Show what decides the total time, and predict it with changes
///
/// The path goes through host code, launches, streams, events, copies and syncs. With `--without`, `--faster` or
/// `--hide-copies` the dependency graph is replayed with the change.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  laptime critical-path trace.json.gz\n  laptime critical-path trace.json.gz --without sync\n  laptime critical-path trace.json.gz --faster matmul=2x --hide-copies"
)]
pub struct Args {
    /// The trace
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Predict the time without these
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    without: Vec<Without>,
    /// Predict the time with faster work: a group (`matmul`, `attention`, `copy`, …) or a part of a kernel's name
    #[arg(long, value_name = "NAME=TIMES", value_delimiter = ',')]
    faster: Vec<String>,
    /// Predict the time with all copies between host and device hidden behind compute
    #[arg(long)]
    hide_copies: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// What can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Without {
    /// Host syncs
    Sync,
    /// Loading of data on the launching thread
    DataLoading,
    /// Allocating and freeing memory
    Allocation,
}

pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let changes = changes(args)?;
    let trace = args.output.read_trace(&args.trace)?;
    let answer = laptime_analyze::critical_path(&trace, &changes);
    let answer = answer.ok_or_else(|| absent::no_device_work(&trace, "critical-path"))?;
    check_names(&answer)?;
    args.output.write(&tables::critical_path(&answer), out)
}

fn changes(args: &Args) -> anyhow::Result<Changes> {
    let without = |what| args.without.contains(&what);
    Ok(Changes {
        without_sync: without(Without::Sync),
        without_loading: without(Without::DataLoading),
        without_allocation: without(Without::Allocation),
        faster: args.faster.iter().map(|word| faster(word)).collect::<anyhow::Result<_>>()?,
        hide_copies: args.hide_copies,
    })
}

fn faster(word: &str) -> anyhow::Result<(String, f64)> {
    let (name, value) = assignment("--faster", word, "matmul=2x")?;
    let times: Option<f64> = value.strip_suffix('x').unwrap_or(value).trim().parse().ok();
    let times = times.filter(|times| times.is_finite() && *times > 0.0).ok_or_else(|| {
        refusal(format!("`{value}` is not a positive factor"), format!("for example `--faster {name}=2x`"))
    })?;
    Ok((name.to_owned(), times))
}

fn check_names(answer: &CriticalPath) -> anyhow::Result<()> {
    let unmatched = answer.prediction.iter().flat_map(|prediction| &prediction.unmatched).next();
    let Some(name) = unmatched else { return Ok(()) };
    let groups: Vec<String> = Group::ALL.iter().map(|group| format!("`{}`", group.word())).collect();
    let hint = format!("name a group ({}) or a part of a name that `laptime top` lists", groups.join(", "));
    refuse(format!("no kernel or copy matches `{name}`"), hint)
}
