//! `laptime syncs`: where the host waits for a device, and for how long.

use std::io::Write;

use laptime_analyze::{Budget, Figure, Judged, LineShares, Syncs, Unit};
use laptime_trace::Trace;

use super::fleet::{self, Row, TracesArgs};
use crate::output::{OutputArgs, warn};
use crate::{absent, cli::Status, failure::refuse};

/// Show where the host waits for a device, for how long, and whether the device was busy
///
/// A sync is a call such as `cudaStreamSynchronize`, a span or mark of `sync_point!`, or a copy or `cudaFree` that
/// blocked the host until a device had finished. With `--budget`, exit status 1 means that the budget is exceeded.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  laptime syncs trace.json.gz\n  laptime syncs trace.pftrace --budget 1/lap --allow '*read_token'"
)]
pub struct Args {
    #[command(flatten)]
    traces: TracesArgs,
    /// The repeating unit; detected automatically by default
    #[arg(long, value_name = "NAME")]
    lap: Option<String>,
    /// List every sync instead of calls and sites
    #[arg(long)]
    each: bool,
    /// Maximum number or time of syncs: `1/lap`, `64`, `2ms/lap`, `50ms`
    #[arg(long, value_name = "BUDGET", allow_hyphen_values = true)]
    budget: Option<Budget>,
    /// Do not count syncs of this call or at this site; `*` matches anything
    #[arg(long, value_name = "SITE_OR_CALL", requires = "budget")]
    allow: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let Some(path) = args.traces.single() else { return run_several(args, out) };
    let trace = args.output.read_trace(path)?;
    let answer = answer(args, &trace)?;
    let judged = judge(args, &answer)?;
    for pattern in judged.iter().flat_map(|judged| &judged.unused) {
        warn(&format!("`--allow {pattern}` matches no call and no site"));
    }
    let lay_out = if args.each { laptime_report::tables::waits } else { laptime_report::tables::syncs };
    let mut table = lay_out(&answer, judged.as_ref());
    laptime_analyze::wait_lines(&trace).iter().flat_map(LineShares::sentences).for_each(|line| table.note(line));
    args.output.write(&table, out)?;
    Ok(status(judged.is_none_or(|judged| judged.is_kept())))
}

fn run_several(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    if args.each {
        let reason = format!("`--each` lists the syncs of one trace, and {} were given", args.traces.traces.len());
        return refuse(reason, "name one trace, or leave out `--each` to compare them side by side");
    }
    let mut figures: Vec<Figure> = Syncs::figures().to_vec();
    figures.extend(args.budget.map(|_| Figure { key: "over_budget", label: "over budget", unit: Unit::Count }));
    let mut is_kept = true;
    let rows = |trace: &Trace| {
        let answer = answer(args, trace)?;
        let judged = judge(args, &answer)?;
        let mut values = answer.values();
        values.extend(judged.as_ref().map(|judged| Some(judged.over.len() as f64)));
        is_kept &= judged.is_none_or(|judged| judged.is_kept());
        Ok(vec![Row { device: None, values }])
    };
    fleet::run("syncs", &args.traces, &args.output, &figures, rows, out)?;
    Ok(status(is_kept))
}

fn answer(args: &Args, trace: &Trace) -> anyhow::Result<Syncs> {
    let answer =
        laptime_analyze::syncs(trace, args.lap.as_deref()).map_err(|reason| absent::no_laps(trace, &reason))?;
    if answer.devices == 0 && answer.waits.is_empty() {
        return Err(absent::no_device_work(trace, "syncs"));
    }
    Ok(answer)
}

fn judge(args: &Args, answer: &Syncs) -> anyhow::Result<Option<Judged>> {
    let Some(budget) = args.budget else { return Ok(None) };
    let judged = answer.judge(budget, &args.allow);
    judged.map(Some).ok_or_else(|| absent::no_laps_for_budget(&budget.to_string(), &answer.lap_names))
}

fn status(is_kept: bool) -> Status {
    if is_kept { Status::Done } else { Status::BadNews }
}
