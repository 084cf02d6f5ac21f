//! Runs `sbatch`, `squeue` and `sinfo`, without a shell.

use std::{ffi::OsString, io, process::Command};

use anyhow::Context;
use laptime_bench::slurm::{QUEUE_FORMAT, Submission, Task, parse_job, parse_queue};

use crate::failure::{Hinted, refuse};

pub fn sbatch(words: &[OsString]) -> anyhow::Result<u64> {
    let output = run("sbatch", words)?;
    parse_job(&output).with_context(|| format!("`sbatch` printed no job number: {}", output.trim()))
}

/// The pending and running tasks of a run. A job that Slurm no longer knows has ended.
pub fn queue(submission: &Submission) -> anyhow::Result<Vec<Task>> {
    if submission.jobs.is_empty() {
        return Ok(Vec::new());
    }
    let jobs: Vec<String> = submission.jobs.iter().map(|job| job.id.to_string()).collect();
    let words = ["--noheader", "--array", &format!("--jobs={}", jobs.join(",")), &format!("--format={QUEUE_FORMAT}")];
    match run("squeue", &words.map(OsString::from)) {
        Ok(text) => Ok(parse_queue(&text)),
        Err(error) if format!("{error:#}").contains("Invalid job id") => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Whether a node can run tasks, possibly after other jobs.
pub fn is_available(node: &str) -> bool {
    let words = ["--noheader", &format!("--nodes={node}"), "--format=%T"].map(OsString::from);
    let usable = ["idle", "allocated", "mixed", "completing"];
    run("sinfo", &words).is_ok_and(|text| text.lines().any(|state| usable.contains(&state.trim())))
}

fn run(program: &str, words: &[OsString]) -> anyhow::Result<String> {
    let done = Command::new(program).args(words).output().map_err(|error| {
        let missing = error.kind() == io::ErrorKind::NotFound;
        let failed = anyhow::Error::new(error).context(format!("cannot run `{program}`"));
        let hint = "run this on a machine of the cluster with Slurm's programs, or leave out `--slurm`";
        if missing { Hinted::wrap(failed, hint) } else { failed }
    })?;
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        let reason = format!("`{program}` failed: {why}");
        return refuse(reason, "`sinfo` shows the partitions, and `scontrol ping` whether Slurm answers");
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
