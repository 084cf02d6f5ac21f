//! Merges the results of tasks into one run folder per node, since timings of different nodes are not comparable.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use laptime_bench::slurm::Submission;
use laptime_trace::format::write_whole;
use laptime_trace::run::{AxisValues, CaseResult, RESULTS_FILE, RUN_FILE, Run, read_results};

use crate::{run_folder, session::Finished};

/// The node folders of a shard.
pub fn nodes_in(shard: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(shard) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot read the folder `{}`", shard.display()))?,
    };
    let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.retain(|folder| folder.is_dir());
    folders.sort();
    Ok(folders)
}

/// The finished results of a shard from all its nodes, without duplicates.
pub fn finished_in(shard: &Path) -> anyhow::Result<Vec<CaseResult>> {
    let mut known = HashSet::new();
    let mut results = Vec::new();
    for node in nodes_in(shard)? {
        results.extend(results_of(&node)?.into_iter().filter(|result| known.insert(result.key())));
    }
    Ok(results)
}

fn results_of(folder: &Path) -> anyhow::Result<Vec<CaseResult>> {
    let path = folder.join(RESULTS_FILE);
    if !path.is_file() {
        return Ok(Vec::new());
    }
    Ok(read_results(&path)?.results.into_iter().filter(CaseResult::is_finished).collect())
}

/// Writes the finished results: into the folder of the run if there is only one node, else into a folder per node. Returns
/// the nodes, sorted by name.
pub fn merge(submission: &Submission, folder: &Path) -> anyhow::Result<Vec<(String, Finished)>> {
    let mut nodes: BTreeMap<String, (Run, Vec<CaseResult>)> = BTreeMap::new();
    for at in 0..submission.shards.len() {
        let mut known = HashSet::new();
        for of_node in nodes_in(&Submission::shard_folder(folder, at))? {
            if !of_node.join(RUN_FILE).is_file() {
                continue;
            }
            let results = results_of(&of_node)?.into_iter().filter(|result| known.insert(result.key()));
            let results: Vec<CaseResult> = results.collect();
            if results.is_empty() {
                continue;
            }
            let run = Run::read(&of_node)?;
            let name = of_node.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let entry = nodes.entry(name).or_insert_with(|| (run.clone(), Vec::new()));
            join_axes(&mut entry.0.axes, &run.axes);
            entry.1.extend(results);
        }
    }
    let is_single = nodes.len() == 1;
    let merge_node = |(node, (run, results)): (String, (Run, Vec<CaseResult>))| {
        let folder = if is_single { folder.to_owned() } else { folder.join(&node) };
        Ok((node, write(submission, run, results, folder)?))
    };
    let merged: anyhow::Result<Vec<_>> = nodes.into_iter().map(merge_node).collect();
    if !is_single {
        // Files from before a second node took part.
        for file in [RESULTS_FILE, RUN_FILE, run_folder::PAGE_FILE] {
            let _ = fs::remove_file(folder.join(file));
        }
    }
    merged
}

/// The first node with results of a shard.
pub fn node_of(shard: &Path) -> anyhow::Result<Option<String>> {
    let has_results = |node: &PathBuf| results_of(node).is_ok_and(|results| !results.is_empty());
    let node = nodes_in(shard)?.into_iter().find(has_results);
    Ok(node.and_then(|node| Some(node.file_name()?.to_string_lossy().into_owned())))
}

fn write(submission: &Submission, run: Run, results: Vec<CaseResult>, folder: PathBuf) -> anyhow::Result<Finished> {
    run_folder::create(&folder)?;
    let mut cases = Vec::new();
    for result in &results {
        if !cases.contains(&result.case) {
            cases.push(result.case.clone());
        }
    }
    let command = ["laptime", "bench"].into_iter().map(str::to_owned).chain(submission.command.iter().cloned());
    let run = Run { command: command.collect(), cases, ..run };
    let path = folder.join(RESULTS_FILE);
    write_whole(&path, |out| {
        results.iter().try_for_each(|result| writeln!(out, "{}", serde_json::to_string(result).unwrap_or_default()))
    })?;
    run.write(&folder)?;
    let expected = results.len();
    Ok(Finished { folder, run, results, expected, was_interrupted: false })
}

fn join_axes(axes: &mut [AxisValues], others: &[AxisValues]) {
    for axis in axes {
        let values = others.iter().filter(|other| other.axis == axis.axis).flat_map(|other| &other.values);
        let missing: Vec<_> = values.filter(|value| !axis.values.contains(value)).cloned().collect();
        axis.values.extend(missing);
    }
}
