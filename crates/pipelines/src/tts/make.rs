//! A text-to-speech model on a device.

use laptime_bench::Device;
use laptime_models::{
    GraphMode, Marks, ModelError, cpu,
    tts::{QwenTts, TtsOptions, TtsWeights},
};
use laptime_probe::stage;

use super::{spec::Spec, speech::Speech};
use crate::model::{hinted, into_error};

/// Whether a device is a GPU.
pub fn is_gpu(device: &dyn Device) -> bool {
    #[cfg(feature = "cuda")]
    return crate::gpu::gpu(device).is_some();
    #[cfg(not(feature = "cuda"))]
    {
        let _ = device;
        false
    }
}

/// Why a device cannot run a case, if it cannot.
pub fn refusal(spec: &Spec, device: &dyn Device) -> Option<String> {
    (spec.graph == GraphMode::On && !is_gpu(device)).then(|| format!("device `{}` has no graphs", device.name()))
}

/// A prepared model.
pub struct Loaded<'a> {
    /// It.
    pub model: Box<dyn QwenTts + 'a>,
    /// Where its weights come from: `synthetic` or `folder`.
    pub weights: &'static str,
}

/// Prepares a model.
pub fn make<'a>(speech: &Speech, spec: &Spec, device: &'a dyn Device) -> anyhow::Result<Loaded<'a>> {
    let _stage = stage!("load_weights", model = speech.config.name);
    let (weights, from) = speech.weights(spec.seed).map_err(hinted)?;
    weights.check_finite(&speech.config).map_err(hinted)?;
    let marks = Marks { depth: device.depth(), lane: device.lane().cloned(), ..Marks::default() };
    let options = TtsOptions { marks, ..options(speech, spec) };
    let model = model(speech, &weights, options, spec.threads, device).map_err(into_error)?;
    Ok(Loaded { model, weights: from })
}

fn model<'a>(
    speech: &Speech,
    weights: &TtsWeights,
    options: TtsOptions,
    threads: usize,
    device: &'a dyn Device,
) -> Result<Box<dyn QwenTts + 'a>, ModelError> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = crate::gpu::gpu(device) {
        return laptime_models::gpu::qwen_tts(gpu.cuda(), speech.config.clone(), weights, options);
    }
    let _ = device;
    cpu::qwen_tts(speech.config.clone(), weights, options, threads)
}

/// Prepares a model, without marks.
fn options(speech: &Speech, spec: &Spec) -> TtsOptions {
    TtsOptions { graph: spec.graph, ..TtsOptions::new(speech.dtype, speech.room()) }
}

/// Bytes that a case needs at most: of the heap, or of a GPU.
pub fn needed_bytes(speech: &Speech, spec: &Spec, device: &dyn Device) -> u64 {
    let (config, options) = (&speech.config, options(speech, spec));
    let text = speech.prompt.positions.len().saturating_add(speech.prompt.following.len()).saturating_add(1);
    // The check keeps the audio three times: as requested, at once, and in chunks.
    let samples = (speech.frames as u64).saturating_mul(config.codec.frame_samples() as u64).saturating_mul(4 * 3);
    #[cfg(feature = "cuda")]
    if crate::gpu::gpu(device).is_some() {
        return laptime_models::gpu::needed_tts_bytes(config, &options, [text, speech.frames]);
    }
    let _ = device;
    cpu::needed_tts_bytes(config, &options, [text, speech.frames], spec.threads).saturating_add(samples)
}
