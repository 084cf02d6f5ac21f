//! `laptime top`: which names took most time.

use std::{io::Write, path::PathBuf};

use crate::{
    cli::Status,
    output::{OutputArgs, warn_of_loss},
};

/// Ranks names by the time spent in them and in nothing inside them
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  laptime top trace.pftrace --most 10")]
pub struct Args {
    /// Trace to read: `.pftrace`, `.json` or `.json.gz`, told apart by content
    trace: PathBuf,

    /// Show this many names
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 20)]
    most: usize,

    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let trace = args.output.read_trace(&args.trace)?;
    warn_of_loss(&trace, &args.output);
    let answer = laptime_analyze::top(&trace);
    args.output.write(&laptime_report::tables::top(&answer, args.most), out)?;
    Ok(Status::Done)
}
