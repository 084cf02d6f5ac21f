//! `laptime laps`: the time of each lap, and which laps are slow.

use std::io::Write;

use laptime_analyze::Laps;
use laptime_report::tables;

use crate::commands::fleet::{self, TracesArgs};
use crate::output::OutputArgs;
use crate::{absent, cli::Status};

/// Show the time of each lap, which laps are slow, and how they differ
///
/// A lap is one turn of a loop. It is the unit that you name, else marked laps, profiler steps, repeating ranges, or a
/// repeating sequence of kernels. Several traces give one row each.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  laptime laps trace.pftrace\n  laptime laps trace.json.gz --lap decode --each\n  laptime laps rank-*.json.gz"
)]
pub struct Args {
    #[command(flatten)]
    traces: TracesArgs,
    /// The repeating unit by its name, such as `decode` or `iteration *`
    #[arg(long, value_name = "NAME")]
    lap: Option<String>,
    /// List every lap
    #[arg(long)]
    each: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let lap = args.lap.as_deref();
    let Some(path) = args.traces.single() else {
        let rows = |trace: &_| {
            let answer = laptime_analyze::laps(trace, lap).map_err(|reason| absent::no_laps(trace, &reason))?;
            Ok(vec![fleet::Row { device: None, values: answer.values() }])
        };
        return fleet::run("laps", &args.traces, &args.output, &Laps::FIGURES, rows, out);
    };
    let trace = args.output.read_trace(path)?;
    let answer = laptime_analyze::laps(&trace, lap).map_err(|reason| absent::no_laps(&trace, &reason))?;
    let table = if args.each { tables::each_lap(&answer) } else { tables::laps(&answer) };
    args.output.write(&table, out)
}
