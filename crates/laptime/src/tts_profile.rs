//! What a profile of text to speech has beside other profiles: bytes of trace a frame, stages against their limits, and
//! the kit's files in the working folder.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::Path,
};

use anyhow::Context;
use laptime_analyze::{Limits, Stage, Stages, limits};
use laptime_bench::CaseResult;
use laptime_pipelines::TextToSpeech;
use laptime_trace::{LAP, Span, Trace, TrackKind};

use crate::{app::App, asked::Asked, output::say, session::Session, tts_audio, tts_files::WORKLOAD};

/// The files that the kit leaves where it is run.
const KIT_FILES: [&str; 2] = ["trace.json", "flamegraph.svg"];

/// The lap of a take.
const TAKE: &str = "take";

/// The lap of a frame.
const FRAME: &str = "frame";

/// What a launch of one kernel takes at least, in nanoseconds.
const LAUNCH_NS: f64 = 2_000.0;

/// Writes the kit's files and the audio if asked for; tells people bytes of trace a frame and stages against their limits.
pub fn write(
    app: &App,
    trace: &Trace,
    result: &CaseResult,
    session: &Session,
    asked: &Asked,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    if result.workload != WORKLOAD {
        return Ok(());
    }
    if asked.place.format.is_for_people() {
        writeln!(out)?;
        let stages = laptime_analyze::stages(trace);
        let lines = bytes_a_frame(trace, &session.folder)?.into_iter().chain(stage_lines(&stages, result, session));
        lines.into_iter().try_for_each(|line| writeln!(out, "{line}"))?;
        out.flush()?;
    }
    if asked.kit_files.is_asked {
        for name in KIT_FILES {
            fs::copy(session.folder.join(name), name).with_context(|| format!("cannot write `{name}`"))?;
            say(&format!("Written: {name}"));
        }
    }
    if let Some(path) = &asked.tts.wav {
        let device = app.device(&session.run.device)?;
        for file in tts_audio::write(&[&result.case], &*device, path)? {
            say(&format!("Written: {}", file.display()));
        }
    }
    Ok(())
}

/// Bytes of `trace.json` a frame: of what lies in frames, and of the whole file, cold start and all. Frames of the check and
/// of warm-up takes count too.
fn bytes_a_frame(trace: &Trace, folder: &Path) -> anyhow::Result<Option<String>> {
    let file = folder.join(KIT_FILES[0]);
    let unread = || format!("cannot read `{}`", file.display());
    let (frames, mut inside, mut all) = (frames(trace), 0, 0);
    for line in BufReader::new(File::open(&file).with_context(unread)?).split(b'\n') {
        let line = line.with_context(unread)?;
        let bytes = line.len() as u64 + 1;
        all += bytes;
        if moment(&line).is_some_and(|time| is_inside(&frames, time)) {
            inside += bytes;
        }
    }
    let count = frames.len() as u64;
    let line = || {
        let (each, with_all) = (inside / count, all / count);
        format!("{}: {each} bytes a frame ({count} frames), {with_all} with all that lies beside them", KIT_FILES[0])
    };
    Ok((count > 0).then(line))
}

/// When frames began and ended on the host, in order.
fn frames(trace: &Trace) -> Vec<(u64, u64)> {
    let is_host = |span: &Span<'_>| trace.track(span.track).kind == TrackKind::Thread;
    let frames = trace.spans().filter(|span| span.category == LAP && span.name == FRAME && is_host(span));
    let mut frames: Vec<(u64, u64)> = frames.map(|span| (span.start.0, span.end().0)).collect();
    frames.sort_unstable();
    frames
}

fn is_inside(frames: &[(u64, u64)], time: u64) -> bool {
    let behind = frames.partition_point(|(start, _)| *start <= time);
    behind.checked_sub(1).is_some_and(|at| time <= frames[at].1)
}

/// The time of the event of a line, in nanoseconds; none if it has none.
fn moment(line: &[u8]) -> Option<u64> {
    let (_, rest) = std::str::from_utf8(line).ok()?.split_once("\"ts\":")?;
    let (micros, rest) = rest.split_once('.')?;
    let nanos = micros.parse::<u64>().ok()?.checked_mul(1_000)?;
    nanos.checked_add(rest.get(..3)?.parse().ok()?)
}

/// The time of each stage in a take, on the device where it is known there, and how far above its limit it is.
fn stage_lines(stages: &Stages, result: &CaseResult, session: &Session) -> Vec<String> {
    let is_take = |at: usize| stages.path(at).first() == Some(&TAKE);
    let takes: u64 =
        stages.stages.iter().filter(|stage| stage.name == TAKE && stage.depth == 0).map(|one| one.count).sum();
    let work = TextToSpeech::stage_work(&result.case);
    if takes == 0 || work.is_empty() {
        return Vec::new();
    }
    let line = |(name, work): &(&'static str, laptime_bench::Work)| {
        let all = stages.stages.iter().enumerate().filter(|(at, stage)| stage.name == *name && is_take(*at));
        let all: Vec<&Stage> = all.map(|(_, stage)| stage).collect();
        let nanos: u64 = all.iter().filter_map(|stage| stage.device.or(stage.host)).map(|time| time.0).sum();
        let calls: u64 = all.iter().map(|stage| stage.count).sum();
        let each = nanos as f64 / takes as f64;
        let limits = limits(work, each, session.run.peaks.as_ref());
        let limit = against_limit(&limits, calls as f64 / takes as f64, all.iter().any(|stage| stage.device.is_some()));
        (nanos > 0).then(|| format!("  {name}: {:.3} ms a take{limit}", each / 1e6))
    };
    let plural = if takes == 1 { "take" } else { "takes" };
    let mut lines = vec![format!("Stages ({takes} recorded {plural}):")];
    lines.extend(work.iter().filter_map(line));
    if session.run.peaks.is_none() {
        lines.push("  `laptime peaks` measures what limits are held against".to_owned());
    }
    lines
}

/// How far a stage of so many calls is above its limit. A call that could be done in less than a launch takes is not held
/// against it: on a device it is bound by its launches, and on the host the figure would say nothing.
fn against_limit(limits: &Limits, calls: f64, is_on_device: bool) -> String {
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
    fn an_event_lies_in_the_frame_around_its_time() {
        let event = br#"{"ph":"X","pid":1,"tid":1,"name":"top_k","ts":12.034,"dur":1.000},"#;
        assert_eq!(moment(event), Some(12_034));
        assert_eq!(moment(br#"{"ph":"M","pid":1,"name":"thread_name","args":{}}"#), None);
        let frames = [(10_000, 11_000), (12_000, 13_000)];
        let inside = [9_999, 10_000, 11_000, 11_500, 12_034, 13_001].map(|time| is_inside(&frames, time));
        assert_eq!(inside, [false, true, true, false, true, false]);
    }

    #[test]
    fn what_is_shorter_than_a_launch_is_not_held_against_its_limit() {
        let limits = |limit_ns: f64| Limits { limit_ns: Some(limit_ns), x_limit: Some(4.0), ..Limits::default() };
        assert_eq!(against_limit(&limits(2e6), 59.0, true), ", 4.0 x limit");
        assert_eq!(against_limit(&limits(1e5), 59.0, true), ", launch-bound");
        assert_eq!(against_limit(&limits(1e5), 59.0, false), "");
        assert_eq!(against_limit(&limits(1e5), 1.0, false), ", 4.0 x limit");
        assert_eq!(against_limit(&Limits::default(), 1.0, true), "");
    }
}
