//! `laptime top`: ranks names by self time.

use std::io::Write;

use laptime_analyze::Top;
use laptime_report::tables::{self, Ranking, Side, Sort};

use crate::choice::{Choice, one_of};
use crate::cli::Status;
use crate::commands::fleet::{self, TracesArgs};
use crate::output::OutputArgs;

/// Rank names by self time: the time spent in them and not in anything they call
///
/// Operations, calls, Python functions and stages also show the device time of the work that they launched; kernels and
/// copies have their own rows. Several traces give one row each, with their device time by kind of work.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  laptime top trace.pftrace --most 10\n  laptime top trace.json.gz --side device --match gemm\n  laptime top trace.json.gz --by group\n  laptime top rank-*.json.gz"
)]
pub struct Args {
    #[command(flatten)]
    traces: TracesArgs,
    /// Show this many names
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 20)]
    most: usize,
    /// What a row stands for
    #[arg(long, value_enum, default_value_t = By::Name)]
    by: By,
    /// Show names of the host, of devices, or of both
    #[arg(long, value_parser = one_of(&SIDES), default_value = "both")]
    side: Side,
    /// Sort by this column
    #[arg(long, value_parser = one_of(&SORTS), default_value = "self")]
    sort: Sort,
    /// Show only names that contain this text
    #[arg(long = "match", value_name = "TEXT", default_value = "", hide_default_value = true)]
    matching: String,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// A name
    Name,
    /// A kind of work: matmul, attention, norm, activation, copy, communication, other
    Group,
}

const SIDES: [Choice<Side>; 3] = [
    ("host", "Operations, calls, Python functions, stages", Side::Host),
    ("device", "Kernels, copies", Side::Device),
    ("both", "All of them", Side::Both),
];

const SORTS: [Choice<Sort>; 4] = [
    ("self", "Time in them and not in anything they call", Sort::Own),
    ("total", "Total time", Sort::Total),
    ("device", "Device time of the work that they launched themselves", Sort::Device),
    ("count", "Number of calls", Sort::Count),
];

pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let Some(path) = args.traces.single() else {
        let rows = |trace: &_| Ok(vec![fleet::Row { device: None, values: laptime_analyze::top(trace).values() }]);
        return fleet::run("traces", &args.traces, &args.output, &Top::FIGURES, rows, out);
    };
    let trace = args.output.read_trace(path)?;
    let answer = laptime_analyze::top(&trace);
    let Args { most, side, sort, .. } = *args;
    let table = match args.by {
        By::Name => tables::top(&answer, &Ranking { most, side, sort, matching: args.matching.clone() }),
        By::Group => tables::groups(&answer),
    };
    args.output.write(&table, out)
}
