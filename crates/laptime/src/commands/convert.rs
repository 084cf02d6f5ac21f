//! `laptime convert`: converts traces and draws flame graphs.

use std::path::{Path, PathBuf};

use anyhow::Context;
use laptime_report::{FlameError, FlameOptions, Weights, flamegraph};
use laptime_trace::Trace;
use laptime_trace::format::{
    folded::{By, stacks},
    write_whole,
};

use crate::choice::{Choice, one_of};
use crate::output::{loss, read_trace, warn};
use crate::{cli::Status, failure::refuse, trace_input::trace_of};

/// Convert a trace to another format, or draw a flame graph
///
/// `.pftrace` (ui.perfetto.dev), `.json` and `.json.gz` (chrome://tracing, ui.perfetto.dev) keep everything.
/// `.speedscope.json` (speedscope.app) keeps the spans, `.folded` the time by stack, `.svg` draws it as a flame graph.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  laptime convert trace.pftrace trace.json.gz\n  laptime convert trace.pftrace flame.svg --by device"
)]
pub struct Args {
    /// Trace to read (its format is detected), or the folder of a run
    #[arg(value_name = "IN")]
    from: PathBuf,
    /// File to write
    #[arg(value_name = "OUT")]
    to: PathBuf,
    /// Whose time flame graphs and folded stacks show [default: host]
    #[arg(long, value_parser = one_of(&SIDES))]
    by: Option<By>,
}

const SIDES: [Choice<By>; 2] =
    [("host", "Host time", By::Host), ("device", "Device time, under the stages that launched it", By::Device)];

pub fn run(args: &Args) -> anyhow::Result<Status> {
    let from = trace_of(&args.from)?;
    let trace = read_trace(&from)?;
    if trace.lost > 0 {
        warn(&loss(&trace));
    }
    let by = args.by.unwrap_or(By::Host);
    let to = args.to.to_string_lossy().to_ascii_lowercase();
    if to.ends_with(".svg") {
        draw(&trace, by, &from, &args.to)?;
    } else if to.ends_with(".folded") || to.ends_with(".collapsed") {
        fold(&trace, by, &from, &args.to)?;
    } else if args.by.is_some() {
        let reason = format!("`--by` is for flame graphs and folded stacks, not for `{}`", args.to.display());
        return refuse(reason, "leave it out: other formats keep the time of host and devices");
    } else {
        laptime_trace::write(&trace, &args.to)?;
    }
    Ok(Status::Done)
}

fn fold(trace: &Trace, by: By, from: &Path, to: &Path) -> anyhow::Result<()> {
    let stacks = stacks(trace, by);
    if stacks.is_empty() {
        return Err(no_time(by, from, FlameError::Empty));
    }
    write_whole(to, |out| stacks.iter().try_for_each(|stack| writeln!(out, "{stack}")))?;
    Ok(())
}

fn no_time(by: By, from: &Path, error: FlameError) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("`{}` contains no {}", from.display(), side(by)))
}

fn side(by: By) -> &'static str {
    match by {
        By::Host => "host time",
        By::Device => "device time",
    }
}

pub fn draw(trace: &Trace, by: By, from: &Path, to: &Path) -> anyhow::Result<()> {
    let loss = if trace.lost > 0 { format!(" ({})", loss(trace)) } else { String::new() };
    let options = FlameOptions {
        title: format!("{} by stage", side(by)),
        subtitle: Some(format!("{}{loss}", from.display())),
        weights: Weights::Nanos,
    };
    let mut svg = Vec::new();
    flamegraph(stacks(trace, by), &options, &mut svg).map_err(|error| match error {
        FlameError::Empty => no_time(by, from, error),
        other => anyhow::Error::new(other),
    })?;
    write_whole(to, |out| out.write_all(&svg)).context("cannot draw the flame graph")?;
    Ok(())
}
