//! The header and the record of a benchmark in the format of qwen3-tts-rs.

use std::io::Write;
use std::path::{Path, PathBuf};

use laptime_analyze::{CaseFigures, Cases, MeasuredFigures};
use laptime_bench::{CaseResult, Settings, Stop};
use laptime_trace::run::{Run, WarmUp};
use serde_json::{Value, json};

use crate::extras::Context;
use crate::extras::files::{axis, fact, mib, text, write_json};

const RECORD_FILE: &str = "e2e_bench.json";

/// Writes the record into the run's folder and to another file. Returns the latter.
pub fn write_record(
    context: &Context<'_>,
    results: &[CaseResult],
    also: Option<&Path>,
) -> anyhow::Result<Vec<PathBuf>> {
    let record = record(&laptime_analyze::cases(results, None), &context.run.settings);
    write_json(&record, &context.folder.join(RECORD_FILE))?;
    also.map_or(Ok(()), |path| write_json(&record, path))?;
    Ok(also.map(Path::to_owned).into_iter().collect())
}

/// The record with the keys of qwen3-tts-rs; its times are means.
fn record(answer: &Cases, settings: &Settings) -> Value {
    let first = answer.cases.first();
    json!({
        "device": first.map(|case| case.id.device.clone()),
        "model_dir": first.map(|case| text(case, "model")),
        "iterations": iterations(settings).or_else(|| first.and_then(|case| Some(case.measured.as_ref()?.wall.all.n))),
        "results": answer.cases.iter().map(of_case).collect::<Vec<_>>(),
    })
}

fn iterations(settings: &Settings) -> Option<usize> {
    match settings.stop {
        Stop::Iterations(iterations) => Some(iterations),
        Stop::Interval { .. } => None,
    }
}

fn of_case(case: &CaseFigures) -> Value {
    let label = axis(case, "label");
    let Some(measured) = &case.measured else { return json!({ "label": label, "error": case.outcome() }) };
    let (wall, ms) = (&measured.wall.all, |nanos: f64| nanos / 1e6);
    let mean = |name: &str| measured.metric(name).map(|figures| figures.all.mean);
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
    let mean = |name: &str| measured.metric(name).map(|figures| figures.all.mean);
    json!({
        "prefill_ms": mean("prefill_ms"),
        "generation_ms": mean("generation_ms"),
        "generation_frames": fact(measured, "frames_made"),
        "decode_ms": mean("decode_ms"),
    })
}

/// The CPU governor that keeps the clock constant.
const STEADY: &str = "performance";

/// Warns about a varying CPU clock; with `--compat` prints device, model and settings.
pub fn write_header(context: &Context<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let run = context.run;
    if context.flags.is_compat() {
        lines(run).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        writeln!(out)?;
        out.flush()?;
    }
    if let Some(governor) = run.environment.machine.governor.as_deref().filter(|governor| *governor != STEADY) {
        context.screen.warn(&format!("the CPU governor is `{governor}`, not `{STEADY}`: the clock may vary"));
    }
    Ok(())
}

fn lines(run: &Run) -> Vec<String> {
    let of = |axis: &str| {
        let values =
            run.axes.iter().find(|known| known.axis == axis).map(|known| &known.values[..]).unwrap_or_default();
        values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    let warmup = match run.settings.warmup {
        WarmUp::Iterations(iterations) => iterations.to_string(),
        WarmUp::Auto => "as many iterations as needed for".to_owned(),
    };
    let iterations = iterations(&run.settings)
        .map_or_else(|| "as many iterations as needed".to_owned(), |iterations| format!("{iterations} iterations"));
    let mut lines = vec![
        format!("Device: {}", run.device),
        format!("Model: {} ({})", of("model"), of("dtype")),
        format!("Config: {warmup} warmup, {iterations}, seed {}", of("seed")),
    ];
    if of("streaming").contains("true") {
        lines.push(format!("Mode: streaming (measuring TTFA), chunks of {} frames", of("chunk_frames")));
    }
    lines
}
