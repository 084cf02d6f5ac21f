//! Audio files and rows of a comparison.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use laptime_bench::CaseResult;
use laptime_models::tts::Audio;
use laptime_report::offload_text::Generation;
use laptime_trace::run::Measured;

use super::runner::Generated;
use crate::extras::files::{count, create_parent, metric, number};
use crate::extras::{Hinted, Screen};

pub use crate::cpu::CPU;

pub fn name(layers: u64, resident: u64, mode: &str, is_gpu: bool) -> String {
    match (resident == layers, is_gpu) {
        (true, _) => "no offload".to_owned(),
        (false, true) => format!("{resident} GPU layers, {mode}"),
        (false, false) => format!("{resident} layers in memory, {mode}"),
    }
}

fn emulated(measured: &Measured) -> Option<f64> {
    let is_emulated = measured.fact("link_kind").is_some_and(|kind| kind.to_string() == "emulated");
    number(measured, "link_gbps").filter(|_| is_emulated)
}

/// The medians of a measured case, for its summary and its row in a comparison.
pub fn generation(result: &CaseResult) -> Option<Generation> {
    let measured = result.measured()?;
    let walls: Vec<f64> = measured.wall_ns.iter().map(|nanos| *nanos as f64).collect();
    let (layers, resident) = (count(measured, "layers")?, count(measured, "gpu_layers")?);
    let (tokens, is_gpu) = (count(measured, "tokens_made")?, result.device != CPU);
    let of_tokens = |name: &str| metric(measured, name).map(|ms| 1e6 * ms * tokens as f64);
    let mode = result.case.text("mode").unwrap_or_default();
    Some(Generation {
        name: name(layers, resident, mode, is_gpu),
        seconds: laptime_stats::spread::median(&walls)? / 1e9,
        audio_seconds: number(measured, "audio_s"),
        prefilled: count(measured, "prompt_positions")?,
        generated: tokens,
        is_gpu,
        memory: measured.peak_bytes,
        memory_of: None,
        predicted: count(measured, "predicted_bytes"),
        emulated_gbps: emulated(measured),
        layers: Some((resident, layers.saturating_sub(resident))),
        exposed_ns: of_tokens("exposed_ms"),
        // GB/s are bytes per nanosecond.
        copy_ns: number(measured, "layer_bytes").zip(metric(measured, "link_gb_s")).map(|(bytes, rate)| bytes / rate),
        iterations: measured.wall_ns.len(),
    })
}

pub fn warn_about_pageable(results: &[&CaseResult], screen: &dyn Screen) {
    let refused = |result: &&CaseResult| Some(result.measured()?.fact("pinned_refused")?.to_string());
    if let Some(reason) = results.iter().find_map(refused) {
        screen
            .warn(&format!("pinned memory was refused, so layers are copied from pageable memory (slower): {reason}"));
    }
}

/// Writes the audio of a generation, if it has any, with the file name of VibeVoice offload: the resident layers and the
/// script.
pub fn write_audio(generated: &Generated, folder: &Path, taken: &[PathBuf]) -> anyhow::Result<Option<PathBuf>> {
    if generated.samples.is_empty() {
        return Ok(None);
    }
    let folder = folder.join(format!("offload_{}layers", generated.layers[1]));
    let file = free_name(&folder, &generated.stem, taken);
    create_parent(&file)?;
    let audio = Audio { samples: generated.samples.clone(), rate: generated.rate };
    let done = audio.write_wav(&file).context("the results were saved, but not the audio");
    done.map_err(|error| Hinted::wrap(error, "free some space, or name another place with `--output-dir`"))?;
    Ok(Some(file))
}

/// The first name that no other case of this run uses.
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
    fn configurations_are_named_by_their_resident_layers() {
        assert_eq!(name(28, 28, "wrap", true), "no offload");
        assert_eq!(name(28, 20, "wrap", true), "20 GPU layers, wrap");
        assert_eq!(name(4, 2, "sync", false), "2 layers in memory, sync");
    }

    #[test]
    fn cases_with_the_same_number_of_layers_have_different_files() {
        let folder = Path::new("out/offload_2layers");
        let first = free_name(folder, "talk", &[]);
        assert_eq!(first, Path::new("out/offload_2layers/talk_generated.wav"));
        let second = free_name(folder, "talk", &[first]);
        assert_eq!(second, Path::new("out/offload_2layers/talk_generated-2.wav"));
    }
}
