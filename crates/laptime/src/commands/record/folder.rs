//! Writes the trace and `record.json` of a recording.

use std::path::{Path, PathBuf};
use std::{fs, process::ExitStatus};

use anyhow::Context;
use laptime_capture::part::Kind;
use laptime_trace::{Activity, Trace, format::write_whole};
use serde_json::json;

use super::assemble::{Observations, Start, assemble, not_recorded};
use super::parts::{self, Process};
use super::{lap_window::LapWindow, launch::exit_code, overhead::Overhead, redact};
use crate::run_folder::TRACE_FILE;

pub const RECORD_FILE: &str = "record.json";
pub const PARTS_FOLDER: &str = "parts";
const SCHEMA: u32 = 1;

/// What is known before the program starts. Written at once, for `laptime record merge` if the recorder is killed.
#[derive(Debug, Clone)]
pub struct Known {
    /// The command, with secrets redacted.
    pub command: Vec<String>,
    pub start: Start,
    pub run: PathBuf,
}

/// The folder of the run. If `srun` started several recorders, it is `OUT/rank-3` with the same `OUT` for all.
pub fn of_rank(out: Option<&Path>, variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let number = |name: &str| variable(name)?.parse::<u64>().ok();
    let (rank, ranks) = (number("SLURM_PROCID"), number("SLURM_STEP_NUM_TASKS"));
    let (Some(rank), Some(2..)) = (rank, ranks) else { return out.map(Path::to_owned) };
    let job = || format!("runs/record-job-{}", variable("SLURM_JOB_ID").unwrap_or_default());
    Some(out.map_or_else(|| PathBuf::from(job()), Path::to_owned).join(format!("rank-{rank}")))
}

#[derive(Debug, Clone, Copy)]
pub struct End {
    pub status: ExitStatus,
    /// Since 1970.
    pub unix_ns: i64,
}

#[derive(Debug)]
pub struct Recording {
    pub processes: Vec<Process>,
    pub trace: Trace,
    pub overhead: Overhead,
    /// The number of Python samples, and why there are none.
    pub samples: (usize, Option<String>),
    /// The laps that the trace was cut to, in words.
    pub laps: Option<String>,
}

impl Recording {
    /// Reads the parts in a folder and assembles the trace.
    pub fn read(parts: &Path, observations: &Observations, start: Start) -> anyhow::Result<Self> {
        let mut processes = parts::read(parts);
        let overhead = Overhead::of(&processes);
        let trace = assemble(&mut processes, observations, start).context("cannot assemble the parts into a trace")?;
        let samples = (observations.samples.samples.len(), observations.samples.problem.clone());
        Ok(Self { processes, trace, overhead, samples, laps: None })
    }

    /// Cuts the trace to some of its laps.
    pub fn cut_to_laps(self, mode: &LapWindow) -> anyhow::Result<Self> {
        let (trace, laps) = mode.cut(self.trace)?;
        Ok(Self { trace, laps: Some(laps), ..self })
    }

    /// The number of kernels and graphs in the trace.
    pub fn kernels(&self) -> usize {
        if self.laps.is_none() {
            return self.processes.iter().map(Process::kernels).sum();
        }
        let is_kernel = |activity: &Activity| matches!(activity, Activity::Kernel | Activity::Graph);
        self.trace.activities().iter().filter(|activity| is_kernel(activity)).count()
    }

    /// Time in pauses between the first event and the last.
    pub fn not_recorded_ns(&self) -> u64 {
        laptime_analyze::not_recorded(&self.trace).0
    }

    /// Dropped records by kind.
    pub fn dropped(&self) -> Vec<(Kind, u64)> {
        let count = |kind: Kind| self.processes.iter().filter_map(|process| process.dropped.get(&kind)).sum();
        Kind::ALL.into_iter().map(|kind| (kind, count(kind))).filter(|(_, count)| *count > 0).collect()
    }

    pub fn write_trace(&self, folder: &Path) -> anyhow::Result<()> {
        laptime_trace::write(&self.trace, folder.join(TRACE_FILE))?;
        Ok(())
    }
}

/// Writes `record.json` before the program starts.
pub fn write_known(known: &Known) -> anyhow::Result<()> {
    write_json(&known.run, &known.json())
}

/// Writes `record.json` with everything.
pub fn write_record(known: &Known, recording: &Recording, end: End) -> anyhow::Result<()> {
    let mut record = known.json();
    let dropped: serde_json::Map<String, serde_json::Value> =
        recording.dropped().into_iter().map(|(kind, count)| (kind.words().to_owned(), count.into())).collect();
    record["end_unix_ns"] = end.unix_ns.into();
    record["exit_status"] = exit_code(end.status).into();
    record["processes"] = recording.processes.iter().map(of_process).collect();
    record["kernels"] = recording.kernels().into();
    let wall = recording.trace.bounds().map_or(0, |(first, last)| last.0 - first.0);
    let paused = recording.not_recorded_ns();
    record["not_recorded"] = json!({ "ns": paused, "share": paused as f64 / wall.max(1) as f64 });
    record["dropped"] = dropped.into();
    record["python_samples"] = recording.samples.0.into();
    record["overhead"] = recording.overhead.json();
    write_json(&known.run, &record)
}

impl Known {
    fn json(&self) -> serde_json::Value {
        let environment: serde_json::Map<String, serde_json::Value> =
            redact::environment().into_iter().map(|(name, value)| (name, value.into())).collect();
        json!({
            "schema": SCHEMA,
            "command": self.command,
            "environment": environment,
            "start_unix_ns": self.start.unix_ns,
            "start_monotonic_ns": self.start.host_ns,
            "laptime": { "version": env!("CARGO_PKG_VERSION"), "commit": env!("LAPTIME_COMMIT") },
        })
    }
}

fn of_process(process: &Process) -> serde_json::Value {
    let dropped: serde_json::Map<String, serde_json::Value> =
        process.dropped.iter().map(|(kind, count)| (kind.words().to_owned(), (*count).into())).collect();
    let last = process.states.last().map_or(process.start_ns, |(at, _)| *at);
    let pauses: u64 = not_recorded(process, last).iter().map(|(from, to)| to - from).sum();
    let info = |key: &str| process.infos.get(key).cloned();
    let bytes = |key: &str| info(key).and_then(|bytes| bytes.parse::<u64>().ok());
    json!({
        "pid": process.pid,
        "parent": info("parent").and_then(|parent| parent.parse::<u32>().ok()),
        "name": info("name"),
        "rank": process.rank(),
        "cupti": info("cupti"),
        "kernels": process.kernels(),
        "calls": process.records.calls.len(),
        "calls_recorded": info("calls"),
        "inner_calls": process.inner_calls,
        "launches": process.launches,
        "launches_without_kernel": process.launches_without_kernel,
        "ended": process.has_ended(),
        "memory": {
            "buffers": bytes("buffers"),
            "resident_first": bytes("resident_first"),
            "resident_last": bytes("resident_last"),
        },
        "not_recorded_ns": pauses,
        "problems": process.problems,
        "dropped": dropped,
        "devices": process.devices.iter().map(|gpu| json!({ "name": gpu.name, "bus": gpu.bus })).collect::<Vec<_>>(),
    })
}

/// Reads the start of a recording from its `record.json`.
pub fn read_start(run: &Path) -> anyhow::Result<Start> {
    let path = run.join(RECORD_FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let record: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("`{}` is damaged", path.display()))?;
    let start =
        || Some(Start { host_ns: record["start_monotonic_ns"].as_u64()?, unix_ns: record["start_unix_ns"].as_i64()? });
    start().with_context(|| format!("`{}` has no start time", path.display()))
}

fn write_json(run: &Path, json: &serde_json::Value) -> anyhow::Result<()> {
    let path = run.join(RECORD_FILE);
    write_whole(&path, |file| {
        serde_json::to_writer_pretty(&mut *file, json)?;
        writeln!(file)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorders_started_by_srun_have_a_folder_per_rank() {
        let variable = |tasks: &'static str| {
            move |name: &str| match name {
                "SLURM_PROCID" => Some("3".to_owned()),
                "SLURM_STEP_NUM_TASKS" => Some(tasks.to_owned()),
                "SLURM_JOB_ID" => Some("77".to_owned()),
                _ => None,
            }
        };
        let place = |out: Option<&str>, tasks| of_rank(out.map(Path::new), variable(tasks));
        assert_eq!(place(Some("a"), "8"), Some("a/rank-3".into()));
        assert_eq!(place(None, "8"), Some("runs/record-job-77/rank-3".into()));
        assert_eq!((place(Some("a"), "1"), place(None, "1")), (Some("a".into()), None));
        assert_eq!(of_rank(None, |_| None), None);
    }
}
