//! `laptime stages`: where the time went, stage by stage.

use std::io::Write;

use laptime_analyze::{measured, stages};
use laptime_report::{
    Table,
    tables::{self, StageLimits},
};
use laptime_trace::Trace;

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
    after_help = "Example:\n  laptime stages trace.pftrace\n  laptime stages trace.json.gz --depth 3 --most 20\n  laptime stages trace.json --format csv --out stages.csv\n  laptime stages rank-*.json.gz"
)]
pub struct Args {
    #[command(flatten)]
    traces: TracesArgs,

    /// Show this many levels of the tree, from the outermost
    #[arg(long, value_name = "LEVELS", value_parser = clap::value_parser!(u16).range(1..))]
    depth: Option<u16>,

    /// Show this many stages, those of most time with the ones around them [default: 40 for people, all for machines]
    #[arg(long, short = 'n', value_name = "COUNT")]
    most: Option<usize>,

    /// Show the setup of a profiled run too: opening the device, weights, the check and warm-up
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// Stages that people are shown unless they ask for more.
const MOST: usize = 40;

impl Args {
    fn limits(&self) -> StageLimits {
        let most = if self.output.is_for_people() { MOST } else { usize::MAX };
        StageLimits { depth: self.depth.map_or(usize::MAX, usize::from), most: self.most.unwrap_or(most) }
    }

    /// People see the measured iteration of a profiled run; machines, and all other traces, the whole tree.
    fn table(&self, trace: &Trace) -> anyhow::Result<Table> {
        let is_whole = self.all || self.depth.is_some() || !self.output.is_for_people();
        Ok(match measured(trace).filter(|_| !is_whole).transpose()? {
            Some(part) => tables::iteration(&stages(&part.trace), &part, self.limits().most),
            None => tables::stages_within(&stages(trace), self.limits()),
        })
    }
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let Some(path) = args.traces.single() else {
        let rows = |trace: &_| Ok(vec![fleet::Row { device: None, values: laptime_analyze::stage_figures(trace) }]);
        return fleet::run("traces", &args.traces, &args.output, &laptime_analyze::STAGE_FIGURES, rows, out);
    };
    let trace = args.output.read_trace(path)?;
    warn_of_loss(&trace, &args.output);
    args.output.write(&args.table(&trace)?, out)?;
    Ok(Status::Done)
}
