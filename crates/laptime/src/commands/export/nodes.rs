//! `laptime export --slurm`: each node of a job exports the files that it has.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{ffi::OsString, time::UNIX_EPOCH};

use anyhow::Context;
use laptime_trace::run::fingerprint;

use super::Args;
use crate::{
    cli::Status,
    failure::{Hinted, refuse},
    run_folder,
};

/// Runs the export on every node with `srun`, and prints the rows of all nodes.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    run_folder::create(&args.to)?;
    let to = args.to.canonicalize().with_context(|| format!("cannot find `{}`", args.to.display()))?;
    let mut words: Vec<OsString> = vec!["--ntasks-per-node=1".into()];
    match (&args.nodelist, std::env::var("SLURM_NNODES")) {
        (Some(nodes), _) => words.push(format!("--nodelist={nodes}").into()),
        (None, Ok(count)) => words.push(format!("--nodes={count}").into()),
        (None, Err(_)) => {
            let reason = "`--slurm` does not know on which nodes the files are";
            return refuse(reason, "`--nodelist n[1-8]` names them, or run it inside the job that recorded");
        }
    }
    words.push(std::env::current_exe().context("cannot find this program")?.into());
    words.extend(["export", "--on-node", "--format", "csv", "--to"].map(OsString::from));
    words.push(to.clone().into());
    words.extend(args.run.iter().flat_map(|run| ["--run".into(), OsString::from(run)]));
    words.extend(args.replace.then(|| "--replace".into()));
    words.push("--".into());
    for path in &args.inputs {
        words.push(std::path::absolute(path)?.into());
    }
    let done = Command::new("srun").args(&words).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let claims = fs::remove_dir_all(to.join(CLAIMS));
    let done = done.map_err(|error| {
        let error = anyhow::Error::new(error).context("cannot run `srun`");
        Hinted::wrap(error, "run this on a machine of the cluster with Slurm's programs, or leave out `--slurm`")
    })?;
    let text = String::from_utf8_lossy(&done.stdout);
    let mut lines: Vec<&str> = text.lines().collect();
    // Keep one of the headers, which every node prints.
    lines.sort_by_key(|line| !line.starts_with(HEADER));
    lines.dedup_by_key(|line| line.starts_with(HEADER).then_some(()).ok_or(line.as_ptr()));
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    if !done.status.success() {
        let reason = "some nodes could not export everything";
        return refuse(reason, "the messages above give the reasons; what was exported is in the dataset");
    }
    if lines.is_empty() {
        let reason = "no node has a trace at the given paths";
        return refuse(reason, "name the paths as the nodes see them, and `--nodelist` the nodes that recorded");
    }
    claims.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    Ok(Status::Done)
}

/// The start of the header.
const HEADER: &str = "run,rank,";

/// The folder for claims.
const CLAIMS: &str = ".claims";

/// Claims a file for this node, since all nodes see the files of a shared file system.
pub fn claim(dataset: &Path, path: &Path) -> anyhow::Result<bool> {
    let folder = dataset.join(CLAIMS);
    run_folder::create(&folder)?;
    let about = fs::metadata(path)?;
    let modified = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let step = ["SLURM_JOB_ID", "SLURM_STEP_ID"].map(|name| std::env::var(name).unwrap_or_default());
    let file = fingerprint(format!("{step:?} {} {} {modified:?}", path.display(), about.len()).as_bytes());
    match File::create_new(folder.join(file)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot write to `{}`", folder.display())),
    }
}

/// The paths that exist on this node.
pub fn present(paths: &[PathBuf]) -> Vec<PathBuf> {
    paths.iter().filter(|path| path.exists()).cloned().collect()
}
