//! `laptime stages`: the tree of stages with their times.

use std::io::Write;

use laptime_analyze::{measured, stages};
use laptime_report::Table;
use laptime_report::tables::{self, StageLimits};
use laptime_trace::Trace;

use crate::cli::Status;
use crate::commands::fleet::{self, TracesArgs};
use crate::output::OutputArgs;

/// Show the stage tree with host and device time
///
/// Stages with the same path are one row. Inside a loop, median and p95 are per lap; elsewhere per call. Device time is
/// that of the work launched in a stage. Several traces give one row each.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  laptime stages trace.pftrace\n  laptime stages trace.json.gz --depth 3 --most 20\n  laptime stages trace.json --format csv --out stages.csv\n  laptime stages rank-*.json.gz"
)]
pub struct Args {
    #[command(flatten)]
    traces: TracesArgs,
    /// Show this many levels of the tree
    #[arg(long, value_name = "LEVELS", value_parser = clap::value_parser!(u16).range(1..))]
    depth: Option<u16>,
    /// Show this many stages, the longest ones with their parents [default: 40; all in machine formats]
    #[arg(long, short = 'n', value_name = "COUNT")]
    most: Option<usize>,
    /// Also show the setup of a profiled run: opening the device, weights, the check and warm-up
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: OutputArgs,
}

const MOST: usize = 40;

impl Args {
    fn limits(&self) -> StageLimits {
        let most = if self.output.is_for_people() { MOST } else { usize::MAX };
        StageLimits { depth: self.depth.map_or(usize::MAX, usize::from), most: self.most.unwrap_or(most) }
    }

    /// Text output shows one measured iteration of a profiled run; other formats show the whole tree.
    fn table(&self, trace: &Trace) -> anyhow::Result<Table> {
        let is_whole = self.all || self.depth.is_some() || !self.output.is_for_people();
        Ok(match measured(trace).filter(|_| !is_whole).transpose()? {
            Some(part) => tables::iteration(&stages(&part.trace), &part, self.limits().most),
            None => tables::stages_within(&stages(trace), self.limits()),
        })
    }
}

pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let Some(path) = args.traces.single() else {
        let rows = |trace: &_| Ok(vec![fleet::Row { device: None, values: laptime_analyze::stage_figures(trace) }]);
        return fleet::run("traces", &args.traces, &args.output, &laptime_analyze::STAGE_FIGURES, rows, out);
    };
    let trace = args.output.read_trace(path)?;
    args.output.write(&args.table(&trace)?, out)
}
