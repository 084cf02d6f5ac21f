//! Reads runs: a run folder, a folder of run folders, or the profile of another tool.

use std::path::{Path, PathBuf};

use anyhow::Context;
use laptime_analyze::ProfiledRun;
use laptime_pipelines::extras::{Extras, own_run};
use laptime_trace::run::{CaseResult, RESULTS_FILE, RUN_FILE, Run, read_results};
use laptime_trace::small_file;
use serde_json::Value;

use crate::{
    app::App,
    failure::{Hinted, refuse},
    output::warn,
};

pub fn read(app: &App, paths: &[PathBuf]) -> anyhow::Result<Vec<ProfiledRun>> {
    let mut runs = Vec::new();
    for path in paths {
        let found = if path.is_dir() { read_folder(app, path)? } else { read_file(app, path)? };
        if found.is_empty() {
            return refuse(format!("`{}` contains no run", path.display()), hint(app));
        }
        runs.extend(found);
    }
    Ok(runs)
}

fn hint(app: &App) -> String {
    let files: Vec<String> =
        app.extras.iter().filter_map(|extras| extras.profile_file()).map(|file| format!("`{file}`")).collect();
    format!(
        "name the folder of a run (with `{RESULTS_FILE}`), such as one under `runs/`, a folder of such folders, or one \
         with {}",
        files.join(" or ")
    )
}

/// The run in a folder, or else the runs in its subfolders, sorted by name.
fn read_folder(app: &App, folder: &Path) -> anyhow::Result<Vec<ProfiledRun>> {
    let own = read_one(app, folder)?;
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
        runs.extend(read_one(app, &folder)?);
    }
    Ok(runs)
}

/// The run in a folder, or else profiles of other tools.
fn read_one(app: &App, folder: &Path) -> anyhow::Result<Vec<ProfiledRun>> {
    if folder.join(RESULTS_FILE).is_file() {
        return Ok(vec![read_run(folder)?]);
    }
    let files = app.extras.iter().filter_map(|extras| Some((&**extras, folder.join(extras.profile_file()?))));
    files.filter(|(_, file)| file.is_file()).map(|(extras, file)| read_profile(app, extras, &file)).collect()
}

fn read_file(app: &App, path: &Path) -> anyhow::Result<Vec<ProfiledRun>> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let reader = app.extras.iter().find(|extras| extras.profile_file() == Some(name));
    match (name, reader) {
        (RESULTS_FILE | RUN_FILE, _) if path.is_file() => read_one(app, path.parent().unwrap_or(Path::new("."))),
        (_, Some(extras)) if path.is_file() => Ok(vec![read_profile(app, &**extras, path)?]),
        _ if path.exists() => refuse(format!("`{}` is not a run", path.display()), hint(app)),
        _ => refuse(format!("there is no `{}`", path.display()), hint(app)),
    }
}

fn read_run(folder: &Path) -> anyhow::Result<ProfiledRun> {
    let path = folder.join(RESULTS_FILE);
    Ok(ProfiledRun { folder: name(folder), results: results(&path, &path)?, run: manifest(folder)? })
}

/// Reads a results file. A warning about an incomplete last result names `named`.
pub fn results(file: &Path, named: &Path) -> anyhow::Result<Vec<CaseResult>> {
    let read = read_results(file)?;
    if read.was_cut {
        warn(&format!("the last result of `{}` is incomplete and was left out", named.display()));
    }
    Ok(read.results)
}

/// The results in a folder; none if it has no results file.
pub fn results_in(folder: &Path) -> anyhow::Result<Vec<CaseResult>> {
    let path = folder.join(RESULTS_FILE);
    if path.is_file() { results(&path, &path) } else { Ok(Vec::new()) }
}

/// The `run.json` in a folder, if there is one.
pub fn manifest(folder: &Path) -> anyhow::Result<Option<Run>> {
    Ok(folder.join(RUN_FILE).is_file().then(|| Run::read(folder)).transpose()?)
}

fn read_profile(app: &App, extras: &dyn Extras, path: &Path) -> anyhow::Result<ProfiledRun> {
    let broken = || format!("`{}` is not a profile", path.display());
    let text = small_file::read_bytes(path, small_file::LARGEST_RESULTS)
        .with_context(|| format!("cannot read `{}`", path.display()))?;
    let profile: Value =
        serde_json::from_slice(&text).with_context(broken).map_err(|error| Hinted::wrap(error, hint(app)))?;
    if let Some((run, results)) = own_run(&profile) {
        return Ok(ProfiledRun { folder: name(path), run: Some(run), results });
    }
    let results: Vec<CaseResult> = extras.read_profile(&profile);
    if results.is_empty() {
        return refuse(format!("`{}` has no results", path.display()), hint(app));
    }
    Ok(ProfiledRun { folder: name(path), run: None, results })
}

/// The file name of a path, or of the folder that `.` and the like stand for.
pub fn name(path: &Path) -> String {
    let whole = if path.file_name().is_some() { path.to_owned() } else { path.canonicalize().unwrap_or_default() };
    whole.file_name().map_or_else(|| "root".to_owned(), |name| name.to_string_lossy().into_owned())
}
