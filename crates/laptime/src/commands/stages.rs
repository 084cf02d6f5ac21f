//! `laptime stages`: where the time went, stage by stage.

use std::io::Write;

use crate::{
    cli::Status,
    commands::fleet::{self, TracesArgs},
    output::{OutputArgs, warn_of_loss},
};

/// Shows the tree of stages with host and device time
///
/// Stages with the same names around them are one row. Inside a loop of laps, median and p95 are of the stage's time
/// in one lap; elsewhere of one call. Device time is that of the work a stage led to. Several traces give one row each.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  laptime stages trace.pftrace\n  laptime stages trace.json --format csv --out stages.csv\n  laptime stages rank-*.json.gz"
)]
pub struct Args {
    #[command(flatten)]
    traces: TracesArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let Some(path) = args.traces.single() else {
        let rows = |trace: &_| Ok(vec![fleet::Row { device: None, values: laptime_analyze::stage_figures(trace) }]);
        return fleet::run("traces", &args.traces, &args.output, &laptime_analyze::STAGE_FIGURES, rows, out);
    };
    let trace = args.output.read_trace(path)?;
    warn_of_loss(&trace, &args.output);
    let answer = laptime_analyze::stages(&trace);
    args.output.write(&laptime_report::tables::stages(&answer), out)?;
    Ok(Status::Done)
}
