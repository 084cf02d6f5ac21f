//! `laptime bench --slurm`: runs a sweep as a Slurm job array.

mod merge;
mod queue;
pub mod task;

use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, io::Write, time::Duration};

use anyhow::Context;
use laptime_analyze::plural;
use laptime_bench::{
    GivenSettings,
    slurm::{ArrayJob, NoSuchAxis, SLURM_FILE, Shard, SlurmOptions, Submission, TASK_SCRIPT, Task, shards},
};
use laptime_report::{Cell, table};

use self::merge::{finished_in, merge, node_of};
use self::queue::{is_available, queue, sbatch};
pub use self::task::Args as TaskArgs;
use crate::choice::first_given;
use crate::output::{FormatArgs, say, warn, write_to_screen};
use crate::{
    app::App,
    cli::Status,
    commands::bench,
    failure::{Hinted, refuse},
    near::did_you_mean,
    progress::Progress,
    request::Request,
    run_folder,
};

const POLL: Duration = Duration::from_secs(2);

/// A sweep as a Slurm job array
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Slurm")]
pub struct SlurmArgs {
    /// Run the sweep as a Slurm job array; Ctrl-C detaches, and `laptime status DIR` shows its state
    #[arg(long, global = true)]
    pub slurm: bool,
    /// Cases with different values of this axis run in different tasks [default: a task per process of `--runs`, with all cases]
    #[arg(long, global = true, value_name = "AXIS")]
    pub shard_by: Option<String>,
    /// Partition of the tasks
    #[arg(long, global = true, value_name = "NAME")]
    pub partition: Option<String>,
    /// Time limit of a task, as `sbatch` takes it
    #[arg(long, global = true, value_name = "TIME")]
    pub time: Option<String>,
    /// Maximum number of tasks at once
    #[arg(long, global = true, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_parallel: Option<u32>,
    /// GPUs of a task, as `sbatch` takes them
    #[arg(long, global = true, value_name = "COUNT")]
    pub gpus: Option<String>,
    /// Let other jobs run on the node of a task; their load affects the timings
    #[arg(long, global = true)]
    pub shared: bool,
    /// One more argument of `sbatch`, such as `--account=NAME`; repeat it for several
    #[arg(long, global = true, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub sbatch: Vec<String>,
    /// Submit and return
    #[arg(long, global = true)]
    pub detach: bool,
}

impl SlurmArgs {
    /// A given flag that needs `--slurm`.
    pub fn stray(&self) -> Option<&'static str> {
        let given = first_given([
            ("shard-by", self.shard_by.is_some()),
            ("partition", self.partition.is_some()),
            ("time", self.time.is_some()),
            ("max-parallel", self.max_parallel.is_some()),
            ("gpus", self.gpus.is_some()),
            ("shared", self.shared),
            ("sbatch", !self.sbatch.is_empty()),
            ("detach", self.detach),
        ]);
        given.filter(|_| !self.slurm)
    }

    fn options(&self) -> SlurmOptions {
        SlurmOptions {
            partition: self.partition.clone(),
            time: self.time.clone(),
            max_parallel: self.max_parallel,
            gpus: self.gpus.clone(),
            is_shared: self.shared,
            more: self.sbatch.clone(),
        }
    }
}

pub fn is_submitted(folder: &Path) -> bool {
    folder.join(SLURM_FILE).is_file()
}

/// Divides a sweep into shards, submits them and follows them.
pub fn submit(app: &App, request: &Request, out: &mut dyn Write) -> anyhow::Result<Status> {
    if request.fit.is_some() {
        let reason = "`--fit` measures one case after another and cannot run as a job array";
        return refuse(reason, "leave out `--slurm`, or start it in a job of your own");
    }
    let order = request.settle(app, GivenSettings::default())?;
    request.check_flags(app, order.workload.name())?;
    let cases = order.plan.cases();
    app.extras(order.workload.name()).check(&request.flags, &cases)?;
    let by = request.slurm.shard_by.as_deref().map(|axis| axis.replace('-', "_"));
    let shards = shards(&cases, order.settings.runs, by.as_deref()).map_err(unknown_axis)?;
    if request.run.dry_run {
        return show_shards(&shards, &request.place.format, out);
    }
    if shards.len() == 1 && cases.len() > 1 {
        say("All cases run in one task, so that they can be compared. `--shard-by AXIS` or `--runs N` use more nodes.");
    }
    let folder = run_folder::make(request.place.out.as_deref(), order.workload.name())?;
    let folder = folder.canonicalize().with_context(|| format!("cannot find `{}`", folder.display()))?;
    let mut submission = Submission::new(command_words()?, request.slurm.options(), shards);
    submission.write(&folder)?;
    let all: Vec<usize> = (0..submission.shards.len()).collect();
    submit_shards(&mut submission, &folder, (order.workload.name(), None), all)?;
    follow(request, &submission, &folder, out)
}

/// Attaches to a submitted run, and submits incomplete shards that are not in the queue.
pub fn resume(request: &Request, folder: &Path, out: &mut dyn Write) -> anyhow::Result<Status> {
    let folder = folder.canonicalize().with_context(|| format!("cannot find `{}`", folder.display()))?;
    if request.is_specific() || request.place.out.is_some() {
        let reason = format!("the run in `{}` keeps its own plan and folder", folder.display());
        return refuse(reason, format!("`laptime bench --resume {}` is enough", quoted(&folder)));
    }
    let mut submission = Submission::read(&folder)?;
    let queued = queue(&submission)?;
    let missing: Vec<usize> = incomplete(&submission, &folder)?
        .into_iter()
        .filter(|shard| queued.iter().all(|task| task.shard != *shard))
        .collect();
    if request.run.dry_run {
        let missing: Vec<Shard> = missing.iter().map(|&at| submission.shards[at].clone()).collect();
        return show_shards(&missing, &request.place.format, out);
    }
    // Tasks that must run on a certain node come first.
    for (node, shards) in by_node(&folder, missing)?.into_iter().rev() {
        submit_shards(&mut submission, &folder, ("resumed", node.as_deref()), shards)?;
    }
    follow(request, &submission, &folder, out)
}

/// Groups shards by the node that started them, if it is available, since their cases are compared with one another.
fn by_node(folder: &Path, shards: Vec<usize>) -> anyhow::Result<BTreeMap<Option<String>, Vec<usize>>> {
    let mut nodes: BTreeMap<Option<String>, Vec<usize>> = BTreeMap::new();
    for shard in shards {
        let begun = node_of(&Submission::shard_folder(folder, shard))?;
        let node = begun.clone().filter(|node| is_available(node));
        if let (Some(begun), None) = (begun, &node) {
            warn(&format!(
                "node `{begun}` is not available; task {shard} continues on another one, with its own results"
            ));
        }
        nodes.entry(node).or_default().push(shard);
    }
    Ok(nodes)
}

fn unknown_axis(error: NoSuchAxis) -> anyhow::Error {
    let near = did_you_mean(&error.axis, error.known.iter().map(String::as_str));
    let hint = format!("{near}`--shard-by` takes one of {}", error.known.join(", "));
    Hinted::wrap(error, hint)
}

/// The arguments of `laptime bench`, from the command line.
fn command_words() -> anyhow::Result<Vec<String>> {
    let words = std::env::args_os().skip_while(|word| word != "bench").skip(1);
    let text = |word: std::ffi::OsString| {
        word.into_string().map_err(|word| anyhow::anyhow!("`{}` is not UTF-8 text", word.to_string_lossy()))
    };
    words.map(text).collect()
}

/// Submits shards as an array, and a job that merges the results after it.
fn submit_shards(
    submission: &mut Submission,
    folder: &Path,
    (name, node): (&str, Option<&str>),
    shards: Vec<usize>,
) -> anyhow::Result<()> {
    let (logs, name) = (folder.join("slurm"), format!("laptime-{name}"));
    run_folder::create(&logs)?;
    let script = logs.join("task.sh");
    std::fs::write(&script, TASK_SCRIPT).with_context(|| format!("cannot write `{}`", script.display()))?;
    let log = |name: &str| PathBuf::from(format!("{}/{name}", logs.to_string_lossy().replace('%', "%%")));
    let program = std::env::current_exe().context("cannot find this program")?;
    let task = |step: &str| [script.clone().into(), program.clone().into(), step.into(), folder.into()];
    let mut words = submission.options.array(&name, &shards, node, &log("%a.log"));
    words.extend(task("slurm-task"));
    let id = sbatch(&words)?;
    say(&format!("Submitted {} as Slurm job {id}, in {}", plural(shards.len(), "task", "tasks"), folder.display()));
    submission.jobs.push(ArrayJob { id, shards });
    submission.write(folder)?;
    let mut words = submission.options.after(id, &format!("{name}-merge"), &log("merge.log"));
    words.extend(task("slurm-task"));
    words.push("--merge".into());
    if let Err(error) = sbatch(&words) {
        warn(&format!("results are merged when the run is followed or resumed, not by a job: {error:#}"));
    }
    Ok(())
}

/// A path, quoted for a shell.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    shlex::try_quote(&text).map_or_else(|_| text.to_string(), |quoted| quoted.into_owned())
}

/// Waits until the queue has no more tasks, then merges and shows the results.
fn follow(request: &Request, submission: &Submission, folder: &Path, out: &mut dyn Write) -> anyhow::Result<Status> {
    let shown = quoted(folder);
    if request.slurm.detach {
        say(&format!("`laptime status {shown}` shows its state; `laptime bench --resume {shown}` attaches to it"));
        return Ok(Status::Done);
    }
    say(&format!("Ctrl-C detaches and cancels nothing; `laptime bench --resume {shown}` attaches again"));
    let expected: usize = submission.shards.iter().map(Shard::expected).sum();
    let mut progress = Progress::new(expected, request.run.quiet);
    loop {
        let queued = queue(submission)?;
        let done = done(submission, folder)?.iter().sum::<usize>();
        let running = queued.iter().filter(|task| task.state == "RUNNING").count();
        let waiting = queued.len() - running;
        progress.step(done.min(expected.saturating_sub(1)), expected, &format!("{running} running, {waiting} waiting"));
        if queued.is_empty() {
            break;
        }
        std::thread::sleep(POLL);
    }
    drop(progress);
    finish(request, submission, folder, out)
}

/// Merges and shows the results; fails if some are missing.
fn finish(request: &Request, submission: &Submission, folder: &Path, out: &mut dyn Write) -> anyhow::Result<Status> {
    let merged = merge(submission, folder)?;
    let mut status = Status::Done;
    if merged.len() > 1 {
        warn(&format!(
            "the results come from {} nodes; each node has its own table and folder, because timings of different nodes \
             are not comparable",
            merged.len()
        ));
    }
    for (node, finished) in &merged {
        if merged.len() > 1 {
            say(&format!("\nNode {node}:"));
        }
        bench::show(finished, request.place.format.format(), out)?;
        if bench::end(finished, &[])? == Status::BadNews {
            status = Status::BadNews;
        }
    }
    let missing = incomplete(submission, folder)?;
    if missing.is_empty() {
        return Ok(status);
    }
    let names: Vec<&str> = missing.iter().take(8).map(|&at| submission.shards[at].name.as_str()).collect();
    let (count, of, shown) = (missing.len(), submission.shards.len(), quoted(folder));
    let log = folder.join("slurm").join(format!("{}.log", missing[0]));
    let hint = format!("`{}` says why; `laptime bench --resume {shown}` submits them again", log.display());
    refuse(format!("{count} of {of} tasks did not finish: {}", names.join(", ")), hint)
}

/// The number of results of each shard.
fn done(submission: &Submission, folder: &Path) -> anyhow::Result<Vec<usize>> {
    let of = |at| Ok(finished_in(&Submission::shard_folder(folder, at))?.len());
    (0..submission.shards.len()).map(of).collect()
}

/// The shards that lack results.
fn incomplete(submission: &Submission, folder: &Path) -> anyhow::Result<Vec<usize>> {
    let done = done(submission, folder)?;
    Ok((0..done.len()).filter(|&at| done[at] < submission.shards[at].expected()).collect())
}

fn show_shards(shards: &[Shard], format: &FormatArgs, out: &mut dyn Write) -> anyhow::Result<Status> {
    let mut table = table!("shards", shards.iter().enumerate(), (at, shard): (usize, &Shard) => [
        ("task") => Cell::Whole(at as i64),
        ("shard") => Cell::text(&shard.name),
        ("cases") => Cell::Count(shard.cases.len() as u64),
        ("results") => Cell::Count(shard.expected() as u64),
    ]);
    table.note(format!("{}; nothing was submitted.", plural(shards.len(), "task", "tasks")));
    write_to_screen(&table, format.format(), out)?;
    Ok(Status::Done)
}

/// Show the state of a run that was submitted to Slurm
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  laptime status runs/matmul-20261116-120000")]
pub struct StatusArgs {
    /// Folder of the run
    #[arg(value_name = "RUN")]
    run: PathBuf,
    #[command(flatten)]
    format: FormatArgs,
}

pub fn status(args: &StatusArgs, out: &mut dyn Write) -> anyhow::Result<Status> {
    if !is_submitted(&args.run) {
        let reason = format!("`{}` is not a run that was submitted to Slurm", args.run.display());
        return refuse(reason, format!("such a folder contains `{SLURM_FILE}`"));
    }
    let submission = Submission::read(&args.run)?;
    let queued = queue(&submission).map_err(|error| warn(&format!("the state of tasks is unknown: {error:#}"))).ok();
    let done = done(&submission, &args.run)?;
    let shards = submission.shards.iter().enumerate();
    let mut table = table!("status", shards, (at, shard): (usize, &Shard) => {
        let task = queued.as_ref().and_then(|tasks| tasks.iter().rev().find(|task| task.shard == at));
        let text = |text: Option<&str>| text.map_or(Cell::Empty, Cell::text);
    } [
        ("task") => Cell::Whole(at as i64),
        ("shard") => Cell::text(&shard.name),
        ("state") => Cell::text(state(task, queued.is_some(), done[at] >= shard.expected())),
        ("node") => text(task.and_then(|task| task.node.as_deref())),
        ("done") => Cell::Count(done[at] as u64),
        ("of") => Cell::Count(shard.expected() as u64),
        ("reason") => text(task.and_then(|task| task.reason.as_deref())),
    ]);
    let shown = quoted(&args.run);
    table.note(format!("`laptime bench --resume {shown}` attaches, submits what is missing, and merges the results."));
    write_to_screen(&table, args.format.format(), out)?;
    Ok(Status::Done)
}

fn state(task: Option<&Task>, is_known: bool, is_complete: bool) -> String {
    match task {
        Some(task) => task.state.to_lowercase(),
        None if is_complete => "done".to_owned(),
        None if is_known => "missing".to_owned(),
        None => "unknown".to_owned(),
    }
}
