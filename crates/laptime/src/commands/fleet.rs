//! Commands on several traces: one row per trace, with outliers named.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use laptime_analyze::{Figure, Fleet, FleetRow};
use laptime_trace::Trace;

use crate::output::{OutputArgs, warn};
use crate::{cli::Status, failure::refuse, trace_input::trace_of};

/// Traces
#[derive(Debug, clap::Args)]
pub struct TracesArgs {
    /// Trace to read: torch.profiler or Chrome JSON, Nsight Systems SQLite, `.pftrace`, or the folder of a run; several give one row each
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
}

impl TracesArgs {
    pub fn single(&self) -> Option<&Path> {
        match self.traces.as_slice() {
            [one] => Some(one),
            _ => None,
        }
    }
}

pub struct Row {
    pub device: Option<String>,
    pub values: Vec<Option<f64>>,
}

/// Reads one trace at a time and compares their figures.
///
/// Traces that cannot be read are left out with a warning, and the command fails after showing the others.
pub fn run(
    question: &'static str,
    args: &TracesArgs,
    output: &OutputArgs,
    figures: &[Figure],
    mut rows_of: impl FnMut(&Trace) -> anyhow::Result<Vec<Row>>,
    out: &mut dyn Write,
) -> anyhow::Result<Status> {
    args.traces.iter().try_for_each(|path| output.refuse_to_overwrite(path))?;
    let mut rows: Vec<FleetRow> = Vec::new();
    let (mut doubts, mut failures) = (Warnings::default(), Warnings::default());
    for (path, label) in args.traces.iter().zip(labels(&args.traces)) {
        let read = trace_of(path).and_then(|file| crate::trace_input::read(&file).context("cannot read it"));
        let answered = read.and_then(|trace| {
            trace.warnings.iter().for_each(|warning| doubts.warn(path, warning));
            of_trace(&trace, &label, &mut rows_of)
        });
        match answered {
            Ok(found) => rows.extend(found),
            Err(error) => failures.warn(path, &format!("{error:#}; it is left out")),
        }
    }
    doubts.end("warnings");
    failures.end("traces that are left out");
    output.write(&laptime_report::tables::fleet(question, &Fleet::of(figures, rows)), out)?;
    let failed = failures.count;
    if failed == 0 {
        return Ok(Status::Done);
    }
    let reason = format!("{failed} of {} traces could not be analysed", args.traces.len());
    refuse(reason, "the warnings above give the reasons; the table shows the others")
}

fn of_trace(
    trace: &Trace,
    label: &str,
    rows_of: &mut impl FnMut(&Trace) -> anyhow::Result<Vec<Row>>,
) -> anyhow::Result<Vec<FleetRow>> {
    let (rank, found) = (trace.metadata.rank(), rows_of(trace)?);
    let findings = laptime_analyze::findings(trace);
    let row = |row: Row| FleetRow {
        label: label.to_owned(),
        rank,
        device: row.device,
        values: row.values,
        dropped: trace.lost,
        findings: findings.clone(),
    };
    Ok(found.into_iter().map(row).collect())
}

/// Maximum number of warnings printed; the others are counted.
const MOST_WARNINGS: usize = 10;

/// Warnings about files.
#[derive(Default)]
struct Warnings {
    count: usize,
}

impl Warnings {
    fn warn(&mut self, path: &Path, text: &str) {
        self.count += 1;
        if self.count <= MOST_WARNINGS {
            warn(&format!("`{}`: {text}", path.display()));
        }
    }

    fn end(&self, what: &str) {
        if let Some(more @ 1..) = self.count.checked_sub(MOST_WARNINGS) {
            warn(&format!("{more} more {what} are not shown; read a single file to see its own"));
        }
    }
}

/// The name of each trace: its path without the common prefix.
pub fn labels(paths: &[PathBuf]) -> Vec<String> {
    let shared = paths.first().and_then(|path| path.parent()).unwrap_or(Path::new(""));
    let shared = shared.ancestors().find(|folder| paths.iter().all(|path| path.starts_with(folder)));
    let shared = shared.unwrap_or(Path::new(""));
    paths.iter().map(|path| path.strip_prefix(shared).unwrap_or(path).display().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_omit_the_common_folder() {
        let called = |paths: &[&str]| labels(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(called(&["a/rank-0.json", "a/rank-1.json"]), ["rank-0.json", "rank-1.json"]);
        assert_eq!(called(&["runs/x/trace.json", "runs/y/trace.json"]), ["x/trace.json", "y/trace.json"]);
        assert_eq!(called(&["one.json", "/elsewhere/two.json"]), ["one.json", "/elsewhere/two.json"]);
    }
}
