//! The folder of a run: `runs/<what>-<time>`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use laptime_trace::run::{RESULTS_FILE, RUN_FILE};

use crate::{
    failure::{Hinted, place_hint},
    moment::Moment,
};

/// The trace of a run.
pub const TRACE_FILE: &str = "trace.pftrace";

/// Makes the folder that was asked for, or a new one named after the time.
pub fn make(asked: Option<&Path>, what: &str, now: Moment) -> anyhow::Result<PathBuf> {
    if let Some(path) = asked {
        if let Some(there) = [RUN_FILE, RESULTS_FILE, TRACE_FILE].iter().find(|file| path.join(file).exists()) {
            let error = anyhow::anyhow!("`{}` holds a run already (`{there}`)", path.display());
            return Err(Hinted::wrap(error, "name another folder, or leave `--out` out for a new one"));
        }
        create(path)?;
        return Ok(path.to_owned());
    }
    let base = PathBuf::from("runs").join(format!("{what}-{}", now.stamp()));
    for number in 1.. {
        let path = if number == 1 { base.clone() } else { PathBuf::from(format!("{}-{number}", base.display())) };
        if !path.exists() {
            create(&path)?;
            return Ok(path);
        }
    }
    unreachable!("one of endlessly many names is free")
}

/// A folder that was made for a run and goes again, with the trace that was begun in it, unless the run begins.
pub struct Tentative {
    folder: Option<PathBuf>,
}

impl Tentative {
    /// Makes the folder as [`make`] does.
    pub fn make(asked: Option<&Path>, what: &str, now: Moment) -> anyhow::Result<Self> {
        make(asked, what, now).map(|folder| Self { folder: Some(folder) })
    }

    /// A file in it.
    pub fn join(&self, file: &str) -> PathBuf {
        self.folder.as_deref().unwrap_or(Path::new("")).join(file)
    }

    /// The run begins: the folder stays.
    pub fn keep(mut self) -> PathBuf {
        self.folder.take().unwrap_or_default()
    }
}

impl Drop for Tentative {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.take() {
            let _ = fs::remove_file(folder.join(TRACE_FILE));
            // Only what is empty goes: `runs` may be old, and the folder that was asked for may hold other files.
            let _ = fs::remove_dir(&folder);
            let _ = folder.parent().filter(|parent| parent.ends_with("runs")).map(fs::remove_dir);
        }
    }
}

/// Makes a folder, and those it lies in.
pub fn create(path: &Path) -> anyhow::Result<()> {
    let Err(source) = fs::create_dir_all(path) else { return Ok(()) };
    let hint = place_hint(&source).unwrap_or_else(|| "`--out DIR` names another place".to_owned());
    let failed = Err::<(), _>(source).with_context(|| format!("cannot make the folder `{}`", path.display()));
    failed.map_err(|error| Hinted::wrap(error, hint))
}
