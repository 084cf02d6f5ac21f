//! A task of the array: measures the cases of its shard that lack results.

use std::path::PathBuf;

use anyhow::Context;
use laptime_bench::{GivenSettings, Plan, slurm::Submission};

use super::merge::{finished_in, merge};
use crate::cli::{self, Status};
use crate::{
    app::App,
    failure::{refusal, refuse},
    session::Session,
};

/// Run a task of a sweep that `laptime bench --slurm` submitted
#[derive(Debug, clap::Args)]
#[command(hide = true, after_help = "Example:\n  laptime slurm-task runs/matmul-20261116-120000")]
pub struct Args {
    /// Folder of the run
    run: PathBuf,
    /// Merge the results instead
    #[arg(long)]
    merge: bool,
}

pub fn run(app: &App, args: &Args) -> anyhow::Result<Status> {
    let submission = Submission::read(&args.run)?;
    if args.merge {
        merge(&submission, &args.run)?;
        return Ok(Status::Done);
    }
    let number = std::env::var("SLURM_ARRAY_TASK_ID").ok().and_then(|text| text.parse::<usize>().ok());
    let number = number.filter(|&number| number < submission.shards.len()).ok_or_else(|| {
        let reason = "this is not a task of the array: `SLURM_ARRAY_TASK_ID` names no shard of the run";
        refusal(reason, format!("`laptime bench --resume {}` submits tasks", args.run.display()))
    })?;
    let node = std::env::var("SLURMD_NODENAME").context("`SLURMD_NODENAME` is not set")?;
    let shard = &submission.shards[number];
    let request = cli::read_bench(app, submission.command.clone())?;
    let mut order = request.settle(app, GivenSettings::default())?;
    order.plan = Plan::of_cases(order.workload.axes(), shard.cases.clone())?;
    let folder = Submission::shard_folder(&args.run, number);
    let before = finished_in(&folder)?;
    let session = Session::shard(app, &order, folder.join(node), before, &shard.runs)?;
    let finished = session.sweep(app, true)?;
    if finished.was_interrupted {
        let (done, of) = (finished.results.len(), shard.expected());
        let reason = format!("interrupted after {done} of {of} results");
        return refuse(reason, format!("`laptime bench --resume {}` submits the rest", args.run.display()));
    }
    Ok(Status::Done)
}
