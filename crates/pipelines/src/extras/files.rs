//! Helpers for the files of several workloads.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use laptime_analyze::{CaseFigures, MeasuredFigures};
use laptime_report::{Format, Table, TextStyle};
use laptime_trace::format::write_whole;
use laptime_trace::run::{Case, CaseResult, Measured, Run};
use serde_json::{Value, json};

use super::{Flags, nano::OWN_KEY};

/// The folder in which Nano XYZ writes its profiles.
const NANO_FOLDER: &str = "profiling/results";

/// Creates the folder of a file, if its path names one.
pub fn create_parent(path: &Path) -> anyhow::Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    fs::create_dir_all(folder).with_context(|| format!("cannot create the folder `{}`", folder.display()))
}

/// Writes a table to a file; a failure leaves no partial file.
pub fn write_table(table: &Table, format: Format, path: &Path) -> anyhow::Result<()> {
    create_parent(path)?;
    let style = TextStyle { verbose: true, ..TextStyle::plain(usize::MAX / 2) };
    write_whole(path, |file| laptime_report::write(table, format, style, file)).map_err(Into::into)
}

/// Writes a table where `--output` names a `.csv` file.
pub fn write_csv(table: &Table, flags: &Flags) -> anyhow::Result<Option<PathBuf>> {
    let Some(path) = flags.path_ending_in("output", "csv") else { return Ok(None) };
    write_table(table, Format::Csv, path)?;
    Ok(Some(path.to_owned()))
}

/// Writes JSON to a file, whole or not at all.
pub fn write_json(value: &Value, path: &Path) -> anyhow::Result<()> {
    create_parent(path)?;
    let text = serde_json::to_string_pretty(value)?;
    write_whole(path, |file| writeln!(file, "{text}")).map_err(Into::into)
}

/// The run's folder and, with `--compat-files`, that of the original tool.
pub fn folders(run: &Path, original: &str, flags: &Flags) -> Vec<PathBuf> {
    let original = flags.has_compat_files().then(|| PathBuf::from(original));
    [run.to_owned()].into_iter().chain(original).collect()
}

/// Writes a profile in the format of Nano XYZ into the run's folder and wherever the flags ask for it. Returns the files
/// outside of the run's folder.
pub fn write_nano_profile(
    mut profile: Value,
    name: &str,
    (run, results): (&Run, &[CaseResult]),
    folder: &Path,
    flags: &Flags,
) -> anyhow::Result<Vec<PathBuf>> {
    // Contains the run, so that a report on the profile is the same as a report on the run's folder.
    profile[OWN_KEY] = json!({ "run": serde_json::to_value(run)?, "results": serde_json::to_value(results)? });
    write_json(&profile, &folder.join(name))?;
    let original = flags.has_compat_files().then(|| Path::new(NANO_FOLDER).join(name));
    let named = flags.path_ending_in("output", "json").map(Path::to_owned);
    let in_folder = flags.path("output-dir").map(|folder| folder.join(name));
    let outside: Vec<PathBuf> = [original, named, in_folder].into_iter().flatten().collect();
    outside.iter().try_for_each(|file| write_json(&profile, file))?;
    Ok(outside)
}

/// The cases that were measured, each once.
pub fn measured_cases(results: &[CaseResult]) -> Vec<&Case> {
    let mut cases: Vec<&Case> = Vec::new();
    for result in results.iter().filter(|result| result.measured().is_some()) {
        if !cases.contains(&&result.case) {
            cases.push(&result.case);
        }
    }
    cases
}

/// A fact about a case that is a number.
pub fn number(measured: &Measured, fact: &str) -> Option<f64> {
    json!(measured.fact(fact)).as_f64()
}

pub fn count(measured: &Measured, fact: &str) -> Option<u64> {
    number(measured, fact).filter(|number| *number >= 0.0).map(|number| number as u64)
}

/// The median of a metric over the iterations that have it.
pub fn metric(measured: &Measured, name: &str) -> Option<f64> {
    let values: Vec<f64> = measured.metric(name)?.values.iter().flatten().copied().collect();
    laptime_stats::spread::median(&values)
}

pub fn median_ms(measured: &MeasuredFigures) -> Value {
    json!(measured.wall.median / 1e6)
}

pub fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

pub fn text(case: &CaseFigures, name: &str) -> String {
    case.id.case.get(name).map(ToString::to_string).unwrap_or_default()
}

pub fn axis(case: &CaseFigures, name: &str) -> Value {
    json!(case.id.case.get(name))
}

pub fn fact(measured: &MeasuredFigures, name: &str) -> Value {
    json!(measured.fact(name))
}
