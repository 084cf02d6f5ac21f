//! The files of the kit for text to speech: its record of a benchmark, and the audio.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Arg;
use laptime_analyze::{CaseFigures, Cases, MeasuredFigures};
use laptime_bench::{Case, Settings, Stop};
use laptime_pipelines::TextToSpeech;
use laptime_trace::format::write_whole;
use serde_json::{Value, json};

use crate::{
    app::App,
    asked::Asked,
    failure::Hinted,
    kit_files::{axis, fact, make_folder_of, mib, text},
    session::Finished,
};

/// The workload that has them.
pub const WORKLOAD: &str = "tts";

/// The record in the run's folder.
const RECORD_FILE: &str = "e2e_bench.json";

/// Where they go, beside the run's folder.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The record.
    pub json: Option<PathBuf>,
    /// The audio.
    pub wav: Option<PathBuf>,
}

/// The flags for them.
pub fn flags() -> [Arg; 2] {
    let place = |name: &'static str, help: &'static str| {
        let parser = clap::value_parser!(PathBuf);
        Arg::new(name).long(name).value_name("FILE").value_parser(parser).help(help).global(true)
    };
    let record = place("json-output", "Write the record of `tts` to this file, too, in the keys of its kit");
    let audio = place("wav", "Write the audio of `tts`; of several cases each has its label before the ending");
    [record, audio].map(|flag| flag.help_heading("Where it goes"))
}

/// Refuses places for what there will not be.
pub fn refuse_unused(asked: &Asked, workload: &str) -> anyhow::Result<()> {
    let Places { json, wav } = &asked.speech;
    if workload == WORKLOAD || json.is_none() && wav.is_none() {
        return Ok(());
    }
    let error = anyhow::anyhow!("`--json-output` and `--wav` are for `{WORKLOAD}`, and this is `{workload}`");
    Err(Hinted::wrap(error, "`--format json` writes the rows of every workload; `--out` says where the run is kept"))
}

/// Writes the record into the run's folder and where it was asked for, then the audio. Returns those outside of the folder.
pub fn write(app: &App, finished: &Finished, places: &Places) -> anyhow::Result<Vec<PathBuf>> {
    if finished.run.workload != WORKLOAD {
        return Ok(Vec::new());
    }
    let answer = laptime_analyze::cases(&finished.results, None);
    let record = record(&answer, &finished.run.settings);
    write_record(&record, &finished.folder.join(RECORD_FILE))?;
    let mut outside = Vec::new();
    if let Some(path) = &places.json {
        make_folder_of(path)?;
        write_record(&record, path)?;
        outside.push(path.clone());
    }
    if let Some(path) = &places.wav {
        outside.extend(write_audio(app, &answer, &finished.run.device, path)?);
    }
    Ok(outside)
}

fn write_record(record: &Value, path: &Path) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(record)?;
    write_whole(path, |file| writeln!(file, "{text}")).map_err(Into::into)
}

/// The record in the keys of the kit; its times are means.
fn record(answer: &Cases, settings: &Settings) -> Value {
    let first = answer.cases.first();
    json!({
        "device": first.map(|case| case.id.device.clone()),
        "model_dir": first.map(|case| text(case, "model")),
        "iterations": iterations(settings).or_else(|| first.and_then(|case| Some(case.measured.as_ref()?.wall.n))),
        "results": answer.cases.iter().map(of_case).collect::<Vec<_>>(),
    })
}

/// Takes that were asked for, if so many were.
pub fn iterations(settings: &Settings) -> Option<usize> {
    match settings.stop {
        Stop::Takes(takes) => Some(takes),
        Stop::Interval { .. } => None,
    }
}

fn of_case(case: &CaseFigures) -> Value {
    let label = axis(case, "label");
    let Some(measured) = &case.measured else { return json!({ "label": label, "error": case.outcome() }) };
    let (wall, ms) = (&measured.wall, |nanos: f64| nanos / 1e6);
    let mean = |name: &str| measured.metric(name).map(|figures| figures.mean);
    let frames = fact(measured, "frames_made");
    let is_streamed = case.id.case.get("streaming").is_some_and(|streaming| streaming.to_string() == "true");
    json!({
        "label": label,
        "text": fact(measured, "said"),
        "word_count": fact(measured, "words"),
        "wall_clock_ms": ms(wall.mean),
        "wall_clock_stddev_ms": wall.std.map(ms),
        "wall_clock_min_ms": ms(wall.min),
        "wall_clock_max_ms": ms(wall.max),
        "audio_duration_secs": fact(measured, "audio_s"),
        "rtf": mean("rtf"),
        "ttfa_ms": mean("ttfa_ms"),
        "tokens_per_sec": frames.as_f64().filter(|_| wall.mean > 0.0).map(|frames| frames * 1e9 / wall.mean),
        "frames_generated": frames,
        "peak_memory_mb": measured.peak_bytes.map(|bytes| mib(bytes as f64)),
        "stages": if is_streamed { Value::Null } else { stages(measured) },
    })
}

fn stages(measured: &MeasuredFigures) -> Value {
    let mean = |name: &str| measured.metric(name).map(|figures| figures.mean);
    json!({
        "prefill_ms": mean("prefill_ms"),
        "generation_ms": mean("generation_ms"),
        "generation_frames": fact(measured, "frames_made"),
        "decode_ms": mean("decode_ms"),
    })
}

/// Says each case once more and writes what is heard: draws start from a seed, so it is the audio of every take.
fn write_audio(app: &App, answer: &Cases, device: &str, path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let cases: Vec<&CaseFigures> = answer.cases.iter().filter(|case| case.measured.is_some()).collect();
    if cases.is_empty() {
        return Ok(Vec::new());
    }
    make_folder_of(path)?;
    let device = app.device(device)?;
    let mut written = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let file = if cases.len() == 1 { path.to_owned() } else { named(path, &case.id.case, at, &cases) };
        let audio = TextToSpeech::speak(&case.id.case, &*device)?;
        let done = audio.write_wav(&file).context("the results are kept, and the audio is not");
        done.map_err(|error| Hinted::wrap(error, "make room, or name another place with `--wav`"))?;
        written.push(file);
    }
    Ok(written)
}

/// The path with the label of a case before its ending, and its number where labels are the same.
fn named(path: &Path, case: &Case, at: usize, all: &[&CaseFigures]) -> PathBuf {
    let label = case.get("label").map(ToString::to_string).unwrap_or_default();
    let is_alone = all.iter().filter(|other| other.id.case.get("label") == case.get("label")).count() == 1;
    let number = if is_alone { String::new() } else { format!("-{}", at + 1) };
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let ending = path.extension().map_or_else(String::new, |ending| format!(".{}", ending.to_string_lossy()));
    path.with_file_name(format!("{stem}-{label}{number}{ending}"))
}
