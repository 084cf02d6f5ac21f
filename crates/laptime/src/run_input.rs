//! Runs as a report reads them: a run's folder, a folder of such folders, or the profiles of the Nano kit.

use std::path::{Path, PathBuf};

use anyhow::Context;
use laptime_analyze::ProfiledRun;
use laptime_trace::{
    run::{CaseResult, RESULTS_FILE, RUN_FILE, Run, read_results},
    small_file,
};
use serde_json::Value;

use crate::{
    failure::Hinted,
    kit_input::{self, ATTENTION_FILE, MODEL_FILE},
    output::warn,
};

/// Reads everything that some paths hold, in the order given.
pub fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<ProfiledRun>> {
    let mut runs = Vec::new();
    for path in paths {
        let found = if path.is_dir() { read_folder(path)? } else { read_file(path)? };
        if found.is_empty() {
            return Err(nothing(path));
        }
        runs.extend(found);
    }
    Ok(runs)
}

fn nothing(path: &Path) -> anyhow::Error {
    let error = anyhow::anyhow!("`{}` holds no run", path.display());
    Hinted::wrap(error, hint())
}

fn hint() -> String {
    format!(
        "name the folder of a run (`{RESULTS_FILE}`), as `laptime bench` makes them under `runs/`, a folder of such \
         folders, or one with `{ATTENTION_FILE}` or `{MODEL_FILE}`"
    )
}

/// The run in a folder, else those in its folders, by name.
fn read_folder(folder: &Path) -> anyhow::Result<Vec<ProfiledRun>> {
    let own = read_one(folder)?;
    if !own.is_empty() {
        return Ok(own);
    }
    let mut inside: Vec<PathBuf> = std::fs::read_dir(folder)
        .with_context(|| format!("cannot read the folder `{}`", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir())
        .collect();
    inside.sort();
    let mut runs = Vec::new();
    for folder in inside {
        runs.extend(read_one(&folder)?);
    }
    Ok(runs)
}

/// What one folder holds: a run, else profiles of the kit.
fn read_one(folder: &Path) -> anyhow::Result<Vec<ProfiledRun>> {
    if folder.join(RESULTS_FILE).is_file() {
        return Ok(vec![read_run(folder)?]);
    }
    let files = [ATTENTION_FILE, MODEL_FILE].map(|name| folder.join(name));
    files.iter().filter(|file| file.is_file()).map(|file| read_profile(file)).collect()
}

fn read_file(path: &Path) -> anyhow::Result<Vec<ProfiledRun>> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match name {
        RESULTS_FILE | RUN_FILE if path.is_file() => read_one(path.parent().unwrap_or(Path::new("."))),
        ATTENTION_FILE | MODEL_FILE if path.is_file() => Ok(vec![read_profile(path)?]),
        _ if path.exists() => {
            let error = anyhow::anyhow!("`{}` is no run", path.display());
            Err(Hinted::wrap(error, hint()))
        }
        _ => Err(Hinted::wrap(anyhow::anyhow!("there is no `{}`", path.display()), hint())),
    }
}

fn read_run(folder: &Path) -> anyhow::Result<ProfiledRun> {
    let path = folder.join(RESULTS_FILE);
    let read = read_results(&path)?;
    if read.was_cut {
        warn(&format!("the last result of `{}` was cut off and is left out", path.display()));
    }
    let run = if folder.join(RUN_FILE).is_file() { Some(Run::read(folder)?) } else { None };
    Ok(ProfiledRun { folder: name(folder), run, results: read.results })
}

fn read_profile(path: &Path) -> anyhow::Result<ProfiledRun> {
    let of_kit = || format!("`{}` is no profile", path.display());
    let text = small_file::read_bytes(path, small_file::LARGEST_RESULTS)
        .with_context(|| format!("cannot read `{}`", path.display()))?;
    let profile: Value =
        serde_json::from_slice(&text).with_context(of_kit).map_err(|error| Hinted::wrap(error, hint()))?;
    if let Some((run, results)) = kit_input::own_run(&profile) {
        return Ok(ProfiledRun { folder: name(path), run: Some(run), results });
    }
    let is_of_attention = path.file_name().is_some_and(|name| name == ATTENTION_FILE);
    let results: Vec<CaseResult> =
        if is_of_attention { kit_input::attention(&profile) } else { kit_input::models(&profile) };
    if results.is_empty() {
        return Err(Hinted::wrap(anyhow::anyhow!("`{}` has no results", path.display()), hint()));
    }
    Ok(ProfiledRun { folder: name(path), run: None, results })
}

/// The last part of a path; of `.` and the like the folder that it stands for.
fn name(path: &Path) -> String {
    let whole = if path.file_name().is_some() { path.to_owned() } else { path.canonicalize().unwrap_or_default() };
    whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
