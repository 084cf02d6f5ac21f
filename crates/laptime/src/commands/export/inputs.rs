//! Resolves the inputs of an export: traces, folders of ranks, and runs.

use std::path::{Path, PathBuf};

use anyhow::Context;
use laptime_trace::run::{RESULTS_FILE, RUN_FILE};

use crate::failure::refuse;
use crate::run_input::name;
use crate::trace_input::{STDIN, TRACES};

#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// A trace, with the name of its run if it was found in a folder.
    Trace { path: PathBuf, run: Option<String> },
    /// The results in the folder of a run.
    Results { folder: PathBuf, run: String },
}

impl Input {
    pub fn path(&self) -> &Path {
        match self {
            Self::Trace { path, .. } => path,
            Self::Results { folder, .. } => folder,
        }
    }
}

/// The endings of traces in a folder of ranks.
const ENDINGS: [&str; 6] = [".pftrace", ".perfetto-trace", ".json", ".json.gz", ".sqlite", ".nsys-rep"];

/// Files of run folders that are not traces.
const NOT_TRACES: [&str; 5] = [RUN_FILE, "record.json", "top.json", "slurm.json", "environments.json"];

/// The inputs that some paths name, in their order.
pub fn inputs(paths: &[PathBuf]) -> anyhow::Result<Vec<Input>> {
    let mut found = Vec::new();
    for path in paths {
        if path != Path::new(STDIN) && !path.exists() {
            let reason = format!("there is no `{}`", path.display());
            return refuse(reason, "name a trace, the folder of a run, or a folder of traces");
        }
        if !path.is_dir() {
            found.push(Input::Trace { path: path.clone(), run: None });
            continue;
        }
        let inside = inside(path)?;
        if inside.is_empty() {
            let reason = format!("`{}` contains neither a trace nor the results of a run", path.display());
            return refuse(reason, format!("traces end in {}", ENDINGS.join(", ")));
        }
        found.extend(inside);
    }
    Ok(found)
}

/// The inputs in a folder: results, its own trace, or the traces of ranks, here or one level below.
fn inside(folder: &Path) -> anyhow::Result<Vec<Input>> {
    let run = name(folder);
    let mut found = Vec::new();
    if folder.join(RESULTS_FILE).is_file() {
        found.push(Input::Results { folder: folder.to_owned(), run: run.clone() });
    }
    let trace = |path| Input::Trace { path, run: Some(run.clone()) };
    if let Some(own) = TRACES.iter().map(|name| folder.join(name)).find(|path| path.is_file()) {
        found.push(trace(own));
        return Ok(found);
    }
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries(folder)?.into_iter().partition(|path| path.is_dir());
    found.extend(files.into_iter().filter(|path| is_trace(path)).map(trace));
    for folder in folders {
        if let Some(own) = TRACES.iter().map(|name| folder.join(name)).find(|path| path.is_file()) {
            found.push(trace(own));
        } else if folder.ends_with("traces") {
            found.extend(entries(&folder)?.into_iter().filter(|path| is_trace(path)).map(trace));
        }
    }
    Ok(found)
}

fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let read = std::fs::read_dir(folder).with_context(|| format!("cannot read the folder `{}`", folder.display()))?;
    let mut paths: Vec<PathBuf> = read.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    Ok(paths)
}

fn is_trace(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    path.is_file() && ENDINGS.iter().any(|ending| name.ends_with(ending)) && !NOT_TRACES.contains(&name.as_str())
}

/// The run of a trace that was named directly: its folder if it is one of several ranks, else its own name.
pub fn run_of(path: &Path, is_rank: bool) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_own = path.file_name().is_some_and(|name| TRACES.iter().any(|own| name == *own));
    if is_own || is_rank {
        return whole.parent().map(name).unwrap_or_default();
    }
    let name = name(&whole);
    let ending = ENDINGS.iter().rev().find(|ending| name.to_ascii_lowercase().ends_with(*ending));
    ending.map_or(name.clone(), |ending| name[..name.len() - ending.len()].to_owned())
}

/// The rank in the name of a file or its folder: `rank3.json`, `trace_rank-12.json.gz`, `rank_7/trace.pftrace`.
pub fn rank_in(path: &Path) -> Option<u64> {
    let file = path.file_name()?.to_string_lossy().into_owned();
    let is_own = TRACES.contains(&file.as_str());
    let folder = path.parent().and_then(Path::file_name).filter(|_| is_own);
    rank_in_text(&file).or_else(|| rank_in_text(&folder?.to_string_lossy()))
}

fn rank_in_text(name: &str) -> Option<u64> {
    let name = name.to_ascii_lowercase();
    name.match_indices("rank").find_map(|(at, word)| {
        let rest = name[at + word.len()..].trim_start_matches(['-', '_', '.', '=']);
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_found_in_the_name_of_a_file_or_of_its_folder() {
        let rank = |path: &str| rank_in(Path::new(path));
        assert_eq!(rank("a/rank3.json"), Some(3));
        assert_eq!(rank("trace_rank-012.pt.trace.json.gz"), Some(12));
        assert_eq!(rank("run/Rank_7/trace.pftrace"), Some(7));
        assert_eq!(rank("rank5/other.json"), None);
        assert_eq!(rank("franked.json"), None);
        assert_eq!(rank("rank99999999999999999999.json"), None);
    }

    #[test]
    fn a_rank_belongs_to_the_run_of_its_folder_and_a_single_trace_is_a_run() {
        assert_eq!(run_of(Path::new("/runs/job-7/rank0.json.gz"), true), "job-7");
        assert_eq!(run_of(Path::new("/runs/job-7/llama.json.gz"), false), "llama");
        assert_eq!(run_of(Path::new("/runs/job-7/trace.pftrace"), false), "job-7");
    }
}
