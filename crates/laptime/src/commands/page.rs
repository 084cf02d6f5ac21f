//! Writes `report.html`, the page of a run or trace.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use laptime_analyze::{ProfiledRun, Profiling};
use laptime_page::{About, Comparison, OnDiagnosis, Page, Viewer};
use laptime_report::Table;
use laptime_trace::run::{CaseResult, RESULTS_FILE, RUN_FILE, Run};
use laptime_trace::{Trace, format::write_whole, small_file};

use crate::output::{read_trace, warn};
use crate::run_folder::{self, PAGE_FILE, TRACE_FILE};
use crate::{app::App, run_input, trace_input::trace_of};

const RECORD_FILE: &str = "record.json";

/// Whether a path is a trace, or a folder with a trace but no results.
pub fn is_trace(app: &App, path: &Path) -> bool {
    if path.is_dir() {
        return !path.join(RESULTS_FILE).is_file() && trace_of(path).is_ok();
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_profile = app.extras.iter().any(|extras| extras.profile_file() == Some(name));
    path.exists() && !matches!(name, RESULTS_FILE | RUN_FILE) && !is_profile
}

/// Writes the page of a trace next to it, and returns its path.
pub fn write_trace(path: &Path, out: Option<&Path>) -> anyhow::Result<PathBuf> {
    let file = trace_of(path)?;
    let target = match out {
        Some(out) if is_html(out) => out.to_owned(),
        Some(folder) => folder.join(page_name(path, &file)),
        None => file.parent().unwrap_or(Path::new("")).join(page_name(path, &file)),
    };
    let trace = read_trace(&file)?;
    let (run, command) = recorded_by(path, &file)?;
    let about = About { name: shown_name(path), run: run.as_ref(), command, ..About::default() };
    let page = laptime_page::of_trace(&trace, &about)?;
    if let Some(folder) = out.filter(|out| !is_html(out)) {
        run_folder::create(folder)?;
    }
    write(&page, &target)?;
    Ok(target)
}

/// Prepares a trace for serving, with at most `most` spans at a time.
pub fn viewer<'a>(path: &Path, file: &Path, trace: &'a Trace, most: usize) -> anyhow::Result<Viewer<'a>> {
    let (run, command) = recorded_by(path, file)?;
    let about = About { name: shown_name(path), run: run.as_ref(), command, ..About::default() };
    Ok(Viewer::of(trace, &about, most)?)
}

/// The run of a trace, and the command that repeats the recording, or else the command that writes the page.
fn recorded_by(path: &Path, file: &Path) -> anyhow::Result<(Option<Run>, Option<String>)> {
    let report = || shlex::try_join(["laptime", "report", &shown_name(path)]).ok();
    if !path.is_dir() {
        return Ok((None, report()));
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    Ok((run_input::manifest(folder)?, recorded_command(folder).or_else(report)))
}

pub fn write_runs(answer: &Profiling, paths: &[PathBuf], target: &Path) -> anyhow::Result<()> {
    let trace = match paths {
        [only] if answer.runs.len() == 1 => Some(only.join(TRACE_FILE)).filter(|file| file.is_file()),
        _ => None,
    };
    match trace {
        Some(file) => {
            let (trace, run) = (read_trace(&file)?, &answer.runs[0].read);
            let name = run.folder.clone();
            let about = About { name, run: run.run.as_ref(), results: &run.results, ..About::default() };
            write(&laptime_page::of_trace(&trace, &about)?, target)
        }
        None => {
            let names: Vec<&str> = answer.runs.iter().map(|named| named.read.folder.as_str()).collect();
            write(&laptime_page::of_runs(answer, &names.join(", ")), target)
        }
    }
}

/// Writes the page of a finished benchmark into its folder. A failure is only a warning.
pub fn write_finished(folder: &Path, run: &Run, results: &[CaseResult]) {
    let name = shown_name(folder);
    let read = ProfiledRun { folder: name.clone(), run: Some(run.clone()), results: results.to_vec() };
    let page = laptime_page::of_runs(&laptime_analyze::profiling(vec![read]), &name);
    warn_if_missing(write(&page, &folder.join(PAGE_FILE)));
}

/// Writes the page of a recorded run into its folder.
pub fn write_recorded(folder: &Path, trace: &Trace, about: About<'_>, on_diagnosis: OnDiagnosis<'_>) {
    let about = About { name: shown_name(folder), command: recorded_command(folder), ..about };
    let page = laptime_page::of_trace_with(trace, &about, on_diagnosis).map_err(anyhow::Error::from);
    warn_if_missing(page.and_then(|page| write(&page, &folder.join(PAGE_FILE))));
}

/// Writes the page of a comparison into its folder. The last sentence of its table is the verdict.
pub fn write_comparison(folder: &Path, mut table: Table) {
    let verdict = table.notes.pop().unwrap_or_default();
    let title = shown_name(folder);
    let comparison = Comparison { title: &title, verdict: &verdict, tables: vec![("Figures", &table)] };
    warn_if_missing(write(&laptime_page::of_comparison(&comparison), &folder.join(PAGE_FILE)));
}

fn warn_if_missing(written: anyhow::Result<()>) {
    if let Err(error) = written {
        warn(&format!("cannot write the page: {error:#}"));
    }
}

pub fn of_table(table: &Table) -> Page {
    laptime_page::of_comparison(&Comparison { title: table.name, verdict: "", tables: vec![("Figures", table)] })
}

/// Writes a page, completely or not at all.
pub fn write(page: &Page, target: &Path) -> anyhow::Result<()> {
    write_whole(target, |out| page.write(out)).with_context(|| format!("cannot write the page `{}`", target.display()))
}

pub fn is_html(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("html"))
}

/// `report.html` for the folder of a run, `NAME.report.html` for a trace.
fn page_name(path: &Path, file: &Path) -> String {
    if path.is_dir() {
        return PAGE_FILE.to_owned();
    }
    let name = file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let endings = [".gz", ".json", ".pftrace", ".sqlite"];
    let stem = endings.iter().fold(name.as_str(), |name, ending| name.strip_suffix(ending).unwrap_or(name));
    format!("{stem}.{PAGE_FILE}")
}

fn shown_name(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The command that repeats a recording, with secrets redacted.
fn recorded_command(folder: &Path) -> Option<String> {
    let text = small_file::read_bytes(&folder.join(RECORD_FILE), small_file::LARGEST_SMALL_FILE).ok()?;
    let record: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let words: Vec<&str> = record.get("command")?.as_array()?.iter().filter_map(|word| word.as_str()).collect();
    shlex::try_join(["laptime", "record", "--"].into_iter().chain(words)).ok()
}

pub fn open(page: &Path) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let started =
        Command::new(program).arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    if let Err(error) = started {
        warn(&format!("cannot open the page with `{program}` ({error}); open `{}` in a browser", page.display()));
    }
}
