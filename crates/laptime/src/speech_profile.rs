//! What a profile of text to speech has beside other profiles: bytes of trace a frame, stages against their limits, and
//! the kit's files in the working folder.

use std::{fs, io::Write, path::Path};

use anyhow::Context;
use laptime_analyze::{Limits, Stage, Stages, limits};
use laptime_bench::CaseResult;
use laptime_pipelines::TextToSpeech;
use laptime_trace::Trace;

use crate::{app::App, asked::Asked, output::say, session::Session, speech_audio, speech_files::WORKLOAD};

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
        let lines = bytes_a_frame(&stages, &session.folder)?.into_iter().chain(stage_lines(&stages, result, session));
        lines.into_iter().try_for_each(|line| writeln!(out, "{line}"))?;
        out.flush()?;
    }
    if asked.kit_files.is_asked {
        for name in KIT_FILES {
            fs::copy(session.folder.join(name), name).with_context(|| format!("cannot write `{name}`"))?;
            say(&format!("Written: {name}"));
        }
    }
    if let Some(path) = &asked.speech.wav {
        let device = app.device(&session.run.device)?;
        for file in speech_audio::write(&[&result.case], &*device, path)? {
            say(&format!("Written: {}", file.display()));
        }
    }
    Ok(())
}

/// Bytes of `trace.json` by frames in it, those of the check and of warm-up takes too.
fn bytes_a_frame(stages: &Stages, folder: &Path) -> anyhow::Result<Option<String>> {
    let file = folder.join(KIT_FILES[0]);
    let bytes = fs::metadata(&file).with_context(|| format!("cannot read `{}`", file.display()))?.len();
    let frames: u64 =
        stages.stages.iter().filter(|stage| stage.is_lap && stage.name == FRAME).map(|one| one.count).sum();
    Ok((frames > 0).then(|| format!("{}: {} bytes a frame ({frames} frames)", KIT_FILES[0], bytes / frames)))
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
    let mut lines = vec![format!("Stages ({takes} recorded takes):")];
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
    fn what_is_shorter_than_a_launch_is_not_held_against_its_limit() {
        let limits = |limit_ns: f64| Limits { limit_ns: Some(limit_ns), x_limit: Some(4.0), ..Limits::default() };
        assert_eq!(against_limit(&limits(2e6), 59.0, true), ", 4.0 x limit");
        assert_eq!(against_limit(&limits(1e5), 59.0, true), ", launch-bound");
        assert_eq!(against_limit(&limits(1e5), 59.0, false), "");
        assert_eq!(against_limit(&limits(1e5), 1.0, false), ", 4.0 x limit");
        assert_eq!(against_limit(&Limits::default(), 1.0, true), "");
    }
}
