//! Where measured peaks are kept between runs: a file for each machine and device in the user's data folder.

use std::path::{Path, PathBuf};

use anyhow::Context;
use laptime_trace::{
    format::write_whole,
    run::{Machine, Peaks, SCHEMA},
    small_file,
};

/// The folder: `LAPTIME_HOME`, else the user's data folder; none if there is no home.
fn folder() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    of("LAPTIME_HOME")
        .or_else(|| of("XDG_DATA_HOME").map(|data| data.join("laptime")))
        .or_else(|| of("HOME").map(|home| home.join(".local/share/laptime")))
}

fn file(folder: &Path, machine: &Machine, device: &str) -> PathBuf {
    folder.join(format!("peaks-{device}-{}.json", machine.fingerprint()))
}

/// The peaks of a machine's device, if they were measured.
pub fn read(machine: &Machine, device: &str) -> Option<Peaks> {
    let text = small_file::read_bytes(&file(&folder()?, machine, device), small_file::LARGEST_SMALL_FILE).ok()?;
    let peaks: Peaks = serde_json::from_slice(&text).ok()?;
    (peaks.schema <= SCHEMA).then_some(peaks)
}

/// Keeps the peaks of a machine's device; returns where.
pub fn keep(peaks: &Peaks, machine: &Machine) -> anyhow::Result<PathBuf> {
    let folder = folder().context("there is no home folder: set `LAPTIME_HOME`")?;
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    let path = file(&folder, machine, &peaks.device);
    let mut text = serde_json::to_string_pretty(peaks)?;
    text.push('\n');
    write_whole(&path, |out| out.write_all(text.as_bytes()))?;
    Ok(path)
}
