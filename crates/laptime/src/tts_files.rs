//! The files of the kit for text to speech: its record of a benchmark, and the audio.

use std::path::{Path, PathBuf};

use clap::Arg;
use laptime_analyze::{CaseFigures, Cases, MeasuredFigures};
use laptime_bench::{Case, Settings, Stop};
use laptime_trace::format::write_whole;
use serde_json::{Value, json};

use crate::{
    app::App,
    asked::{Asked, Order},
    failure::Hinted,
    kit_files::{axis, fact, make_folder_of, mib, text},
    session::Finished,
    tts_audio,
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
    /// Audio that is written while it is made.
    pub stream: Option<PathBuf>,
}

/// The flag for audio.
pub fn audio_flag() -> Arg {
    let help =
        "Write the audio to this file, or into this folder; several cases get a file each, named by their labels";
    place("wav", "FILE|DIR", help)
}

/// The flags for all of them.
pub fn flags() -> [Arg; 3] {
    let record = "Also write the results to this file, in the JSON format of qwen3-tts-rs";
    let stream = "With `--streaming`: after measuring, generate the audio once more and write it as WAV while it is generated; `-` is standard output";
    [place("json-output", "FILE", record), audio_flag(), place("stream-to", "FILE|-", stream)]
}

fn place(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    let parser = clap::value_parser!(PathBuf);
    Arg::new(name)
        .long(name)
        .value_name(value)
        .value_parser(parser)
        .help(help)
        .global(true)
        .help_heading("Where it goes")
}

/// Refuses places for what there will not be.
pub fn refuse_unused(asked: &Asked, order: &Order<'_>) -> anyhow::Result<()> {
    let Places { json, wav, stream } = &asked.tts;
    let workload = order.workload.name();
    let given = [("--json-output", json), ("--wav", wav), ("--stream-to", stream)];
    if let Some((flag, _)) = given.into_iter().find(|(_, place)| workload != WORKLOAD && place.is_some()) {
        let error = anyhow::anyhow!("`{flag}` is for `{WORKLOAD}`, and this is `{workload}`");
        let hint = "`--format json` writes the rows of every workload; `--out` says where the run is kept";
        return Err(Hinted::wrap(error, hint));
    }
    stream.as_deref().map_or(Ok(()), |place| refuse_stream(place, &order.plan.cases()))
}

/// Refuses to hand on what is not made in chunks, and several texts to one place that takes one.
fn refuse_stream(place: &Path, cases: &[Case]) -> anyhow::Result<()> {
    let is_whole = |case: &&Case| case.get("streaming").is_none_or(|streaming| streaming.to_string() != "true");
    if cases.iter().any(|case| is_whole(&case)) {
        let error = anyhow::anyhow!("`--stream-to` hands audio on while it is made, and this is made at once");
        return Err(Hinted::wrap(error, "add `--streaming`, or write it with `--wav`"));
    }
    if tts_audio::is_standard_output(place) && cases.len() > 1 {
        let error = anyhow::anyhow!("standard output takes the audio of one case, and there are {}", cases.len());
        return Err(Hinted::wrap(error, "choose one, such as `--label short`, or name a file"));
    }
    Ok(())
}

/// Whether standard output is for audio, so that what people read goes to standard error.
pub fn takes_standard_output(asked: &Asked) -> bool {
    asked.tts.stream.as_deref().is_some_and(tts_audio::is_standard_output)
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
    let cases: Vec<&Case> =
        answer.cases.iter().filter(|case| case.measured.is_some()).map(|case| &case.id.case).collect();
    if cases.is_empty() || places.wav.is_none() && places.stream.is_none() {
        return Ok(outside);
    }
    let device = app.device(&finished.run.device)?;
    if let Some(path) = &places.wav {
        outside.extend(tts_audio::write(&cases, &*device, path)?);
    }
    if let Some(path) = &places.stream {
        outside.extend(tts_audio::stream(&cases, &*device, path)?);
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
