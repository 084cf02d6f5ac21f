//! What a profile of text to speech has beside other profiles: bytes of trace a frame, stages against their limits, and
//! the kit's files in the working folder.

use std::{fs, io::Write, path::Path};

use anyhow::Context;
use laptime_analyze::{Stages, limits};
use laptime_bench::CaseResult;
use laptime_pipelines::TextToSpeech;
use laptime_trace::Trace;

use crate::{asked::Asked, output::say, session::Session, speech_files::WORKLOAD};

/// The files that the kit leaves where it is run.
const KIT_FILES: [&str; 2] = ["trace.json", "flamegraph.svg"];

/// The lap of a take.
const TAKE: &str = "take";

/// The lap of a frame.
const FRAME: &str = "frame";

/// Writes the kit's files if asked for; tells people bytes of trace a frame and stages against their limits.
pub fn write(
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
        let nanos: u64 = all.filter_map(|(_, stage)| stage.device.or(stage.host)).map(|time| time.0).sum();
        let each = nanos as f64 / takes as f64;
        let limit = limits(work, each, session.run.peaks.as_ref()).x_limit;
        let limit = limit.map_or_else(String::new, |times| format!(", {times:.1} x limit"));
        (nanos > 0).then(|| format!("  {name}: {:.3} ms a take{limit}", each / 1e6))
    };
    let mut lines = vec![format!("Stages ({takes} recorded takes):")];
    lines.extend(work.iter().filter_map(line));
    if session.run.peaks.is_none() {
        lines.push("  `laptime peaks` measures what limits are held against".to_owned());
    }
    lines
}
