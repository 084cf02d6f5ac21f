//! What is kept of generations with layers that do not stay: the audio, and rows to compare.

use std::path::{Path, PathBuf};

use anyhow::Context;
use laptime_bench::{AxisValue, Case, CaseResult};
use laptime_models::tts::Audio;
use laptime_pipelines::{Generated, OffloadedLayers};
use laptime_report::offload_text::{Generation, benchmark_comparison};
use laptime_trace::run::Measured;

use crate::{app::App, failure::Hinted, kit_files::make_folder_of, output::warn, session::Finished};

/// The workload.
pub const WORKLOAD: &str = "offload";

/// The device without a GPU.
pub const CPU: &str = "cpu";

/// What a configuration is called.
pub fn name(layers: u64, stay: u64, mode: &str, is_gpu: bool) -> String {
    match (stay == layers, is_gpu) {
        (true, _) => "no offload".to_owned(),
        (false, true) => format!("{stay} GPU layers, {mode}"),
        (false, false) => format!("{stay} layers in memory, {mode}"),
    }
}

/// A number that is known of a case.
pub fn number(measured: &Measured, fact: &str) -> Option<f64> {
    match measured.fact(fact)? {
        AxisValue::Int(whole) => Some(*whole as f64),
        AxisValue::Float(number) => Some(*number),
        AxisValue::Bool(_) | AxisValue::Text(_) => None,
    }
}

fn count(measured: &Measured, fact: &str) -> Option<u64> {
    number(measured, fact).filter(|number| *number >= 0.0).map(|number| number as u64)
}

/// The median of a metric over the takes that know it.
pub fn metric(measured: &Measured, name: &str) -> Option<f64> {
    let values: Vec<f64> = measured.metric(name)?.values.iter().flatten().copied().collect();
    laptime_stats::spread::median(&values)
}

/// Whether the link of a result is emulated, and at which rate.
fn emulated(measured: &Measured) -> Option<f64> {
    let is_emulated = measured.fact("link_kind").is_some_and(|kind| kind.to_string() == "emulated");
    number(measured, "link_gbps").filter(|_| is_emulated)
}

/// A measured case as its summary and its row of a comparison show it: medians of its iterations.
pub fn generation(result: &CaseResult) -> Option<Generation> {
    let measured = result.measured().filter(|_| result.workload == WORKLOAD)?;
    let walls: Vec<f64> = measured.wall_ns.iter().map(|nanos| *nanos as f64).collect();
    let (layers, stay) = (count(measured, "layers")?, count(measured, "gpu_layers")?);
    let (tokens, is_gpu) = (count(measured, "tokens_made")?, result.device != CPU);
    let of_tokens = |name: &str| metric(measured, name).map(|ms| 1e6 * ms * tokens as f64);
    let mode = result.case.text("mode").unwrap_or_default();
    Some(Generation {
        name: name(layers, stay, mode, is_gpu),
        seconds: laptime_stats::spread::median(&walls)? / 1e9,
        audio_seconds: number(measured, "audio_s"),
        prefilled: count(measured, "prompt_positions")?,
        generated: tokens,
        is_gpu,
        memory: measured.peak_bytes,
        memory_of: None,
        predicted: count(measured, "predicted_bytes"),
        emulated_gbps: emulated(measured),
        layers: Some((stay, layers.saturating_sub(stay))),
        exposed_ns: of_tokens("exposed_ms"),
        // 10^9 bytes a second are bytes a nanosecond.
        copy_ns: number(measured, "layer_bytes").zip(metric(measured, "link_gb_s")).map(|(bytes, rate)| bytes / rate),
        iterations: measured.wall_ns.len(),
    })
}

/// Warns of runs that had to do without pinned memory.
pub fn warn_of_refusals(results: &[&CaseResult]) {
    let refused = |result: &&CaseResult| Some(result.measured()?.fact("pinned_refused")?.to_string());
    if let Some(reason) = results.iter().find_map(refused) {
        warn(&format!("pinned memory was refused, so layers came from pageable memory, which is slower: {reason}"));
    }
}

/// Measured cases side by side; none if there are none.
pub fn comparison(results: &[CaseResult]) -> Option<String> {
    let rows: Vec<Generation> = results.iter().filter_map(generation).collect();
    (!rows.is_empty()).then(|| benchmark_comparison(&rows))
}

/// Writes the audio of all measured cases of a benchmark. Returns the files that lie outside of its folder.
pub fn write(app: &App, finished: &Finished, output_dir: Option<&Path>) -> anyhow::Result<Vec<PathBuf>> {
    if finished.run.workload != WORKLOAD {
        return Ok(Vec::new());
    }
    warn_of_refusals(&finished.results.iter().collect::<Vec<_>>());
    let mut written: Vec<PathBuf> = Vec::new();
    let mut done: Vec<&Case> = Vec::new();
    for result in finished.results.iter().filter(|result| result.measured().is_some()) {
        if done.contains(&&result.case) {
            continue;
        }
        done.push(&result.case);
        let made = match app.live.made(&result.case) {
            Some(made) => Some(made),
            // It was made in another process: noise starts from a seed, so it is the same audio.
            None => OffloadedLayers::speak(&result.case, &*app.device(&finished.run.device)?)?,
        };
        let folder = output_dir.unwrap_or(&finished.folder);
        written.extend(made.map(|made| write_audio(&made, folder, &written)).transpose()?.flatten());
    }
    Ok(if output_dir.is_some() { written } else { Vec::new() })
}

/// Writes the audio of a generation, if it has any, as the kit names it: by the layers that stay, and by the script.
pub fn write_audio(made: &Generated, folder: &Path, taken: &[PathBuf]) -> anyhow::Result<Option<PathBuf>> {
    if made.samples.is_empty() {
        return Ok(None);
    }
    let folder = folder.join(format!("offload_{}layers", made.layers[1]));
    let file = free_name(&folder, &made.stem, taken);
    make_folder_of(&file)?;
    let audio = Audio { samples: made.samples.clone(), rate: made.rate };
    let done = audio.write_wav(&file).context("the results are kept, and the audio is not");
    done.map_err(|error| Hinted::wrap(error, "make room, or name another place with `--output-dir`"))?;
    Ok(Some(file))
}

/// The first name that no other case of this run has.
fn free_name(folder: &Path, stem: &str, taken: &[PathBuf]) -> PathBuf {
    let named = |number: usize| {
        let number = if number == 1 { String::new() } else { format!("-{number}") };
        folder.join(format!("{stem}_generated{number}.wav"))
    };
    (1..=taken.len() + 1).map(named).find(|file| !taken.contains(file)).unwrap_or_else(|| named(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_are_called_by_what_stays() {
        assert_eq!(name(28, 28, "wrap", true), "no offload");
        assert_eq!(name(28, 20, "wrap", true), "20 GPU layers, wrap");
        assert_eq!(name(4, 2, "sync", false), "2 layers in memory, sync");
    }

    #[test]
    fn cases_with_as_many_layers_have_files_of_their_own() {
        let folder = Path::new("out/offload_2layers");
        let first = free_name(folder, "talk", &[]);
        assert_eq!(first, Path::new("out/offload_2layers/talk_generated.wav"));
        let second = free_name(folder, "talk", &[first]);
        assert_eq!(second, Path::new("out/offload_2layers/talk_generated-2.wav"));
    }
}
