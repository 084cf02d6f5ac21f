//! Traces as users name them: a file, or a run folder that contains one.

use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use laptime_trace::{ReadError, Trace};

use crate::failure::refuse;

/// The names of traces in a run folder. All files of one folder contain the same trace.
pub const TRACES: [&str; 3] = ["trace.pftrace", "trace.json", "trace.json.gz"];

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
            let reason = format!("`{}` contains {} traces", path.display(), more + 1);
            refuse(reason, format!("name one of them, such as `{}`", last.display()))
        }
        (None, _) => {
            let reason = format!("`{}` is not a run folder with a trace", path.display());
            refuse(reason, format!("`laptime profile` creates one; it contains {}", TRACES.join(" or ")))
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

/// The file endings of traces in a folder of ranks.
const ENDINGS: [&str; 5] = [".json", ".json.gz", ".pftrace", ".perfetto-trace", ".sqlite"];

/// Files of a run's folder that are no traces.
const NO_TRACES: [&str; 3] = ["run.json", "record.json", "peaks.json"];

/// How deep folders of ranks are searched: `job/rank_0/trace.json`.
const DEEPEST: usize = 3;

/// The traces in a folder and the folders in it, in order of the numbers in their names.
pub fn trace_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = open.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
            if path.is_dir() {
                open.extend((depth < DEEPEST).then(|| (path, depth + 1)));
            } else if ENDINGS.iter().any(|ending| name.ends_with(ending)) && !NO_TRACES.contains(&name.as_str()) {
                found.push(path);
            }
        }
    }
    found.sort_by_cached_key(|path| counted_key(&path.to_string_lossy()));
    Ok(found)
}

/// A name as words and numbers, so that `rank-2` comes before `rank-10`.
fn counted_key(name: &str) -> Vec<(String, Option<u64>)> {
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
    use super::counted_key;

    #[test]
    fn files_are_in_order_of_their_numbers() {
        let mut names = ["rank-10.json", "rank-2.json", "rank-0.json", "rank-1.json"];
        names.sort_by_key(|name| counted_key(name));
        assert_eq!(names, ["rank-0.json", "rank-1.json", "rank-2.json", "rank-10.json"]);
    }
}
