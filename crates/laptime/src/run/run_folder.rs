//! The folder of a run: `runs/<what>-<time>`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use chrono::{SecondsFormat, Utc};
use laptime_trace::run::{RESULTS_FILE, RUN_FILE};

use crate::failure::{Hinted, place_hint, refuse};
use crate::output::say;

pub const TRACE_FILE: &str = "trace.pftrace";
pub const PAGE_FILE: &str = "report.html";

/// The time in UTC, for records: `2026-11-15T09:30:00Z`.
pub fn timestamp() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Creates the requested folder, or a new one named after the time.
pub fn make(request: Option<&Path>, what: &str) -> anyhow::Result<PathBuf> {
    if let Some(path) = request {
        if let Some(there) = [RUN_FILE, RESULTS_FILE, TRACE_FILE].iter().find(|file| path.join(file).exists()) {
            let reason = format!("`{}` already contains a run (`{there}`)", path.display());
            return refuse(reason, "name another folder, or leave out `--out` to create a new one");
        }
        create(path)?;
        return Ok(path.to_owned());
    }
    let base = PathBuf::from("runs").join(format!("{what}-{}", Utc::now().format("%Y%m%d-%H%M%S")));
    for number in 1.. {
        let path = if number == 1 { base.clone() } else { PathBuf::from(format!("{}-{number}", base.display())) };
        if !path.exists() {
            create(&path)?;
            return Ok(path);
        }
    }
    unreachable!("one of endlessly many names is free")
}

/// A folder that was created for a run. Dropping it removes it with its trace; [`Tentative::keep`] keeps it.
pub struct Tentative {
    folder: Option<PathBuf>,
}

impl Tentative {
    pub fn make(request: Option<&Path>, what: &str) -> anyhow::Result<Self> {
        make(request, what).map(|folder| Self { folder: Some(folder) })
    }

    pub fn join(&self, file: &str) -> PathBuf {
        self.folder.as_deref().unwrap_or(Path::new("")).join(file)
    }

    pub fn keep(mut self) -> PathBuf {
        self.folder.take().unwrap_or_default()
    }
}

impl Drop for Tentative {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take() {
            let _ = fs::remove_file(folder.join(TRACE_FILE));
            // Only empty folders are removed: they may be older than the run, or contain other files.
            let _ = fs::remove_dir(&folder);
            let _ = folder.parent().filter(|parent| parent.ends_with("runs")).map(fs::remove_dir);
        }
    }
}

/// The most important files of a run, in the order in which they are listed.
const LISTED: [&str; 7] =
    [PAGE_FILE, "profiling_report.md", TRACE_FILE, "trace.json", "flamegraph.svg", "stages.tsv", RESULTS_FILE];

/// Prints where a run was saved and its most important files; `outside` are files elsewhere.
pub fn say_saved(folder: &Path, outside: &[PathBuf]) {
    say(&format!("\n{}", saved(folder, outside)));
}

pub fn saved(folder: &Path, outside: &[PathBuf]) -> String {
    let files: Vec<&str> = LISTED.into_iter().filter(|file| folder.join(file).is_file()).collect();
    let files = if files.is_empty() { String::new() } else { format!(" ({})", files.join(", ")) };
    let outside: Vec<String> = outside.iter().map(|file| file.display().to_string()).collect();
    let also = if outside.is_empty() { String::new() } else { format!("\nAlso written: {}", outside.join(", ")) };
    format!("Saved to {}{files}{also}", folder.display())
}

pub fn create(path: &Path) -> anyhow::Result<()> {
    let Err(source) = fs::create_dir_all(path) else { return Ok(()) };
    let hint = place_hint(&source).unwrap_or_else(|| "`--out DIR` names another place".to_owned());
    let failed = Err::<(), _>(source).with_context(|| format!("cannot create the folder `{}`", path.display()));
    failed.map_err(|error| Hinted::wrap(error, hint))
}
