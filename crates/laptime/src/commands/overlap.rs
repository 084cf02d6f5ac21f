//! `laptime overlap`: copies and communication that overlap with compute.

use std::io::Write;

use laptime_analyze::Overlap;
use laptime_trace::Trace;

use super::fleet::{self, Row, TracesArgs};
use crate::output::OutputArgs;
use crate::{absent, cli::Status};

/// Show how much of copies and communication overlaps with compute
///
/// Hidden time overlaps with compute kernels; exposed time does not. Pageable copies, and copies that could overlap but do
/// not, are listed with what to do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  laptime overlap trace.json.gz\n  laptime overlap rank-*.json.gz --format csv")]
pub struct Args {
    #[command(flatten)]
    traces: TracesArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let Some(path) = args.traces.single() else {
        return fleet::run("overlap", &args.traces, &args.output, &Overlap::figures(), rows, out);
    };
    let trace = args.output.read_trace(path)?;
    args.output.write(&laptime_report::tables::overlap(&answer(&trace)?), out)
}

fn rows(trace: &Trace) -> anyhow::Result<Vec<Row>> {
    let answer = answer(trace)?;
    let is_single = answer.devices.len() == 1;
    let rows = answer
        .devices
        .into_iter()
        .map(|device| Row { values: device.values(), device: (!is_single).then_some(device.name) });
    Ok(rows.collect())
}

fn answer(trace: &Trace) -> anyhow::Result<Overlap> {
    let answer = laptime_analyze::overlap(trace);
    if answer.devices.is_empty() { Err(absent::no_device_work(trace, "overlap")) } else { Ok(answer) }
}
