//! Resolves the traces that users name: a file, a run folder, or a folder of ranks.

use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use laptime_trace::{ReadError, Trace};

use crate::failure::refuse;

/// Names of the trace in a run folder. They all contain the same trace.
pub const TRACES: [&str; 3] = ["trace.pftrace", "trace.json", "trace.json.gz"];

/// The subfolder with one trace per process.
const OF_PROCESSES: &str = "traces";

pub const STDIN: &str = "-";

pub fn read(path: &Path) -> Result<Trace, ReadError> {
    if path == Path::new(STDIN) {
        return laptime_trace::read_from(BufReader::with_capacity(1 << 18, io::stdin().lock()));
    }
    laptime_trace::read(path)
}

/// The trace file that a path names: the path itself, or the trace in a run folder.
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
            let reason = format!("`{}` contains {} traces", path.display(), more + 1);
            refuse(reason, format!("name one of them, such as `{}`", last.display()))
        }
        (None, _) => {
            let reason = format!("`{}` is not a run folder with a trace", path.display());
            refuse(reason, format!("`laptime profile` creates one; it contains {}", TRACES.join(" or ")))
        }
    }
}

/// The `.pftrace` files in a folder, sorted; none if it cannot be read.
fn recorded_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let is_recording = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "pftrace") && path.is_file();
    let mut found: Vec<PathBuf> = entries.filter(is_recording).collect();
    found.sort();
    found
}

/// The file endings of traces in a folder of ranks.
const ENDINGS: [&str; 5] = [".json", ".json.gz", ".pftrace", ".perfetto-trace", ".sqlite"];

/// Files of a run folder that are not traces.
const NOT_TRACES: [&str; 3] = ["run.json", "record.json", "peaks.json"];

/// How deep folders of ranks are searched, such as `job/rank_0/trace.json`.
const DEEPEST: usize = 3;

/// The traces in a folder and its subfolders, in natural order.
pub fn trace_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = open.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
            if path.is_dir() {
                open.extend((depth < DEEPEST).then(|| (path, depth + 1)));
            } else if ENDINGS.iter().any(|ending| name.ends_with(ending)) && !NOT_TRACES.contains(&name.as_str()) {
                found.push(path);
            }
        }
    }
    found.sort_by_cached_key(|path| natural_key(&path.to_string_lossy()));
    Ok(found)
}

/// Sort key that puts `rank-2` before `rank-10`.
fn natural_key(name: &str) -> Vec<(String, Option<u64>)> {
    let mut parts = vec![(String::new(), None)];
    for letter in name.chars() {
        let last = parts.len() - 1;
        let number = parts[last].1;
        match letter.to_digit(10) {
            Some(digit) => {
                parts[last].1 = Some(number.unwrap_or(0_u64).saturating_mul(10).saturating_add(digit.into()))
            }
            None if number.is_some() => parts.push((letter.to_string(), None)),
            None => parts[last].0.push(letter),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::natural_key;

    #[test]
    fn files_are_in_natural_order() {
        let mut names = ["rank-10.json", "rank-2.json", "rank-0.json", "rank-1.json"];
        names.sort_by_key(|name| natural_key(name));
        assert_eq!(names, ["rank-0.json", "rank-1.json", "rank-2.json", "rank-10.json"]);
    }
}
