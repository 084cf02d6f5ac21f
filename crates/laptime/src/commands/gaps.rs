//! `laptime gaps`: when devices were idle, and the causes.

use std::io::Write;

use laptime_analyze::{Gaps, LineShares, NoGaps};
use laptime_report::tables;
use laptime_trace::Trace;

use super::fleet::{self, Row, TracesArgs};
use crate::output::OutputArgs;
use crate::{absent, cli::Status, failure::refuse};

/// Show when a device was idle, and the cause of each gap
///
/// Causes: the host was late (and what it was doing), a host sync, a copy, another stream, the turnaround of the device,
/// or unknown. The conclusion is one sentence: the host is the bottleneck, or the GPU is saturated.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  laptime gaps trace.json.gz\n  laptime gaps trace.json.gz --each 10\n  laptime gaps rank-*.json.gz"
)]
pub struct Args {
    #[command(flatten)]
    traces: TracesArgs,
    /// Show launches and idle time per this repeating span
    #[arg(long, value_name = "NAME")]
    lap: Option<String>,
    /// List the longest gaps one by one
    #[arg(long, value_name = "COUNT", num_args = 0..=1, default_missing_value = "20")]
    each: Option<usize>,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let Some(path) = args.traces.single() else { return run_several(args, out) };
    let trace = args.output.read_trace(path)?;
    let answer = gaps(args, &trace)?;
    let mut table = if args.each.is_some() { tables::gap_list(&answer) } else { tables::gaps(&answer) };
    answer.idle_lines.iter().flat_map(LineShares::sentences).for_each(|line| table.note(line));
    args.output.write(&table, out)
}

fn run_several(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    if args.each.is_some() {
        let reason = format!("`--each` lists the gaps of one trace, and {} were given", args.traces.traces.len());
        return refuse(reason, "name one trace, or leave out `--each` to compare them side by side");
    }
    fleet::run("gaps", &args.traces, &args.output, &Gaps::FIGURES, |trace| rows(args, trace), out)
}

fn rows(args: &Args, trace: &Trace) -> anyhow::Result<Vec<Row>> {
    let answer = gaps(args, trace)?;
    let has_several = answer.devices.len() > 1;
    let row = |device: &laptime_analyze::DeviceGaps| Row {
        device: has_several.then(|| device.name.clone()),
        values: device.values(),
    };
    Ok(answer.devices.iter().map(row).collect())
}

fn gaps(args: &Args, trace: &Trace) -> anyhow::Result<Gaps> {
    laptime_analyze::gaps(trace, args.lap.as_deref(), args.each.unwrap_or(0)).map_err(|error| match error {
        NoGaps::NoDevices => absent::no_device_work(trace, "gaps"),
        NoGaps::NoLaps(reason) => absent::no_laps(trace, &reason),
    })
}
