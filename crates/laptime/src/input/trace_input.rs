//! Traces as users name them: a file, or a run folder that contains one.

use std::{
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use laptime_trace::{ReadError, Trace};

use crate::failure::Hinted;

/// The names of traces in a run folder. All files of one folder contain the same trace.
const TRACES: [&str; 3] = ["trace.pftrace", "trace.json", "trace.json.gz"];

/// The folder inside a run's where processes leave theirs.
const OF_PROCESSES: &str = "traces";

/// The name of standard input.
pub const STDIN: &str = "-";

/// Reads a trace from a file, or from standard input.
pub fn read(path: &Path) -> Result<Trace, ReadError> {
    if path == Path::new(STDIN) {
        return laptime_trace::read_from(BufReader::with_capacity(1 << 18, io::stdin().lock()));
    }
    laptime_trace::read(path)
}

/// The file of a trace: itself, or the one that a run's folder holds.
pub fn trace_of(path: &Path) -> anyhow::Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    if let Some(own) = TRACES.iter().map(|name| path.join(name)).find(|file| file.is_file()) {
        return Ok(own);
    }
    let mut others = recorded_in(path);
    others.extend(recorded_in(&path.join(OF_PROCESSES)));
    match (others.pop(), others.len()) {
        (Some(only), 0) => Ok(only),
        (Some(last), more) => {
            let error = anyhow::anyhow!("`{}` contains {} traces", path.display(), more + 1);
            Err(Hinted::wrap(error, format!("name one of them, such as `{}`", last.display())))
        }
        (None, _) => {
            let error = anyhow::anyhow!("`{}` is not a run folder with a trace", path.display());
            Err(Hinted::wrap(error, format!("`laptime profile` creates one; it contains {}", TRACES.join(" or "))))
        }
    }
}

/// The recordings in a folder, by name; none if it cannot be read.
fn recorded_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let is_recording = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "pftrace") && path.is_file();
    let mut found: Vec<PathBuf> = entries.filter(is_recording).collect();
    found.sort();
    found
}
