//! Additional output of a profile: trace bytes per frame, and stages compared with their limits.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use laptime_analyze::{Limits, Stage, Stages, limits};
use laptime_bench::CaseResult;
use laptime_trace::{LAP, Span, Trace, TrackKind, run::Peaks};

use super::TextToSpeech;
use crate::extras::Context;

/// The files that qwen3-tts-rs writes into the working directory.
const FILES: [&str; 2] = ["trace.json", "flamegraph.svg"];
const ITERATION: &str = "iteration";
const FRAME: &str = "frame";

/// The shortest time of a kernel launch, in nanoseconds.
const LAUNCH_NS: f64 = 2_000.0;

/// Prints trace bytes per frame, and the stages with their limits.
pub fn write_lines(
    context: &Context<'_>,
    trace: &Trace,
    result: &CaseResult,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let stages = laptime_analyze::stages(trace);
    let lines = stage_lines(&stages, result, context.run.peaks.as_ref());
    writeln!(out)?;
    let mut lines = lines.into_iter().chain(bytes_per_frame(trace, context.folder)?);
    lines.try_for_each(|line| context.screen.prose(&line, out))?;
    Ok(out.flush()?)
}

/// Copies the files of qwen3-tts-rs into the working directory.
pub fn copy_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let copy = |name: &str| {
        fs::copy(folder.join(name), name).with_context(|| format!("cannot write `{name}`"))?;
        Ok(PathBuf::from(name))
    };
    FILES.into_iter().map(copy).collect()
}

/// Bytes of `trace.json` per frame: of the events inside frames, and of the whole file. Frames of the check and the warm-up
/// count too.
fn bytes_per_frame(trace: &Trace, folder: &Path) -> anyhow::Result<Option<String>> {
    let file = folder.join(FILES[0]);
    let unread = || format!("cannot read `{}`", file.display());
    let (frames, mut inside, mut all) = (frames(trace), 0, 0);
    for line in BufReader::new(File::open(&file).with_context(unread)?).split(b'\n') {
        let line = line.with_context(unread)?;
        let bytes = line.len() as u64 + 1;
        all += bytes;
        if timestamp(&line).is_some_and(|time| is_inside(&frames, time)) {
            inside += bytes;
        }
    }
    let count = frames.len() as u64;
    let line = || {
        let (each, with_all) = (inside / count, all / count);
        format!("{}: {each} bytes per frame ({count} frames), {with_all} including setup", FILES[0])
    };
    Ok((count > 0).then(line))
}

/// Start and end of the frames on the host, in order.
fn frames(trace: &Trace) -> Vec<(u64, u64)> {
    let is_host = |span: &Span<'_>| trace.track(span.track).kind == TrackKind::Thread;
    let frames = trace.spans().filter(|span| span.category == LAP && span.name == FRAME && is_host(span));
    let mut frames: Vec<(u64, u64)> = frames.map(|span| (span.start.0, span.end().0)).collect();
    frames.sort_unstable();
    frames
}

fn is_inside(frames: &[(u64, u64)], time: u64) -> bool {
    let next = frames.partition_point(|(start, _)| *start <= time);
    next.checked_sub(1).is_some_and(|at| time <= frames[at].1)
}

/// The time of the event in a line, in nanoseconds.
fn timestamp(line: &[u8]) -> Option<u64> {
    let (_, rest) = std::str::from_utf8(line).ok()?.split_once("\"ts\":")?;
    let (micros, rest) = rest.split_once('.')?;
    let nanos = micros.parse::<u64>().ok()?.checked_mul(1_000)?;
    nanos.checked_add(rest.get(..3)?.parse().ok()?)
}

/// The time of each stage per iteration (device time where it is known), compared with its limit. Without peaks there are
/// no limits, and the stage tree has the times.
fn stage_lines(stages: &Stages, result: &CaseResult, peaks: Option<&Peaks>) -> Vec<String> {
    let is_iteration = |at: usize| stages.path(at).first() == Some(&ITERATION);
    let iterations: u64 =
        stages.stages.iter().filter(|stage| stage.name == ITERATION && stage.depth == 0).map(|one| one.count).sum();
    let work = TextToSpeech::stage_work(&result.case);
    if iterations == 0 || work.is_empty() {
        return Vec::new();
    }
    if peaks.is_none() {
        return vec!["Run `laptime peaks` to compare the stages with their hardware limits.".to_owned()];
    }
    let line = |(name, work): &(&'static str, laptime_bench::Work)| {
        let all = stages.stages.iter().enumerate().filter(|(at, stage)| stage.name == *name && is_iteration(*at));
        let all: Vec<&Stage> = all.map(|(_, stage)| stage).collect();
        let nanos: u64 = all.iter().filter_map(|stage| stage.device.or(stage.host)).map(|time| time.0).sum();
        let calls: u64 = all.iter().map(|stage| stage.count).sum();
        let each = nanos as f64 / iterations as f64;
        let limits = limits(work, each, peaks);
        let limit = compared_with_limit(
            &limits,
            calls as f64 / iterations as f64,
            all.iter().any(|stage| stage.device.is_some()),
        );
        (nanos > 0).then(|| format!("  {name}: {:.3} ms per iteration{limit}", each / 1e6))
    };
    let plural = if iterations == 1 { "iteration" } else { "iterations" };
    let mut lines = vec![format!("Stages ({iterations} recorded {plural}):")];
    lines.extend(work.iter().filter_map(line));
    lines
}

/// A stage compared with its limit. A call whose limit is shorter than a kernel launch is launch-bound on a device; on the
/// host the ratio would be meaningless.
fn compared_with_limit(limits: &Limits, calls: f64, is_on_device: bool) -> String {
    let (Some(limit_ns), Some(times)) = (limits.limit_ns, limits.x_limit) else { return String::new() };
    match (limit_ns < LAUNCH_NS * calls.max(1.0), is_on_device) {
        (false, _) => format!(", {times:.1} x limit"),
        (true, true) => ", launch-bound".to_owned(),
        (true, false) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_belongs_to_the_frame_at_its_time() {
        let event = br#"{"ph":"X","pid":1,"tid":1,"name":"top_k","ts":12.034,"dur":1.000},"#;
        assert_eq!(timestamp(event), Some(12_034));
        assert_eq!(timestamp(br#"{"ph":"M","pid":1,"name":"thread_name","args":{}}"#), None);
        let frames = [(10_000, 11_000), (12_000, 13_000)];
        let inside = [9_999, 10_000, 11_000, 11_500, 12_034, 13_001].map(|time| is_inside(&frames, time));
        assert_eq!(inside, [false, true, true, false, true, false]);
    }

    #[test]
    fn a_call_shorter_than_a_launch_is_not_compared_with_its_limit() {
        let limits = |limit_ns: f64| Limits { limit_ns: Some(limit_ns), x_limit: Some(4.0), ..Limits::default() };
        assert_eq!(compared_with_limit(&limits(2e6), 59.0, true), ", 4.0 x limit");
        assert_eq!(compared_with_limit(&limits(1e5), 59.0, true), ", launch-bound");
        assert_eq!(compared_with_limit(&limits(1e5), 59.0, false), "");
        assert_eq!(compared_with_limit(&limits(1e5), 1.0, false), ", 4.0 x limit");
        assert_eq!(compared_with_limit(&Limits::default(), 1.0, true), "");
    }
}
