//! `laptime stages`: where the time went, stage by stage.

use std::{io::Write, path::PathBuf};

use crate::{
    cli::Status,
    output::{OutputArgs, warn_of_loss},
};

/// Shows the tree of stages with host and device time
///
/// Stages with the same names around them are one row. Inside a loop of laps, median and p95 are of the stage's time
/// in one lap; elsewhere of one call. Device time is that of the work a stage led to.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  laptime stages trace.pftrace\n  laptime stages trace.json --format csv --out stages.csv"
)]
pub struct Args {
    /// Trace to read: `.pftrace`, `.json` or `.json.gz`, told apart by content
    trace: PathBuf,

    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let trace = args.output.read_trace(&args.trace)?;
    warn_of_loss(&trace, &args.output);
    let answer = laptime_analyze::stages(&trace);
    args.output.write(&laptime_report::tables::stages(&answer), out)?;
    Ok(Status::Done)
}
