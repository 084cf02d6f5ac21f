//! A model with offloaded layers on a device.

use std::path::Path;

use laptime_bench::Device;
use laptime_models::{
    Attention, Decoder, GraphMode, LayerVisit, Marks, ModelError, Offload, Offloading, Options, Room, Weights, cpu,
    vibevoice::{ReadingSizes, VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights},
};
use laptime_probe::stage;

use super::{
    spec::Spec,
    subject::{Kind, Subject},
};
use crate::model::{Found, checked_weights, decoder, hinted, into_error};

/// A prepared model.
pub enum Loaded<'a> {
    /// A speech model.
    Speech(Box<dyn VibeVoice + 'a>),
    /// A language model.
    Lm(Box<dyn Decoder + 'a>),
}

impl Loaded<'_> {
    /// How the layers are offloaded.
    pub fn offloading(&self) -> Option<Offloading> {
        match self {
            Self::Speech(model) => model.offloading(),
            Self::Lm(decoder) => decoder.offloading(),
        }
    }

    /// The completed visits of offloaded layers.
    pub fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        match self {
            Self::Speech(model) => model.layer_visits(),
            Self::Lm(decoder) => decoder.layer_visits(),
        }
    }
}

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

/// Reads the names and shapes of a folder's weights.
pub fn check_weights(subject: &Subject, seed: u64) -> Result<(), ModelError> {
    match &subject.kind {
        Kind::Speech { config, .. } => speech_weights(subject, config, seed).map(drop),
        Kind::Lm { found, .. } => match &subject.folder {
            Some(folder) => match Weights::open(folder, &found.config) {
                // Synthetic weights are used instead.
                Err(ModelError::NoWeights { other: None, .. }) => Ok(()),
                opened => opened.map(drop),
            },
            None => Ok(()),
        },
    }
}

fn speech_weights(subject: &Subject, config: &VibeVoiceConfig, seed: u64) -> Result<VibeVoiceWeights, ModelError> {
    match &subject.folder {
        Some(folder) => VibeVoiceWeights::open(folder, config),
        None => Ok(VibeVoiceWeights::synthetic(seed)),
    }
}

/// How layers are offloaded with this many resident layers; none if all are resident.
fn offload(subject: &Subject, spec: &Spec, resident: usize, home: &Path) -> Option<Offload> {
    (resident < subject.decoder().layers).then(|| Offload {
        mode: spec.mode,
        resident,
        home: home.to_owned(),
        link_gbps: spec.link_gbps,
        clear_every: spec.clear_every,
        lane: None,
    })
}

/// Loads a model with this many resident layers.
pub fn make<'a>(
    subject: &Subject,
    spec: &Spec,
    resident: usize,
    (device, home): (&'a dyn Device, &Path),
) -> anyhow::Result<Loaded<'a>> {
    let _stage = stage!("load_weights", model = subject.name);
    let marks = Marks { depth: device.depth(), lane: device.lane().cloned(), ..Marks::default() };
    match &subject.kind {
        Kind::Speech { config, .. } => {
            let weights = speech_weights(subject, config, spec.seed).map_err(hinted)?;
            weights.check_finite(config).map_err(hinted)?;
            let options = VibeVoiceOptions { marks, ..vibevoice_options(subject, spec, resident, home) };
            Ok(Loaded::Speech(model(config, &weights, options, spec.threads, device)?))
        }
        Kind::Lm { found, .. } => {
            let (weights, _) = checked_weights(found, spec.seed)?;
            let options = Options { marks, ..options(subject, spec, resident, home) };
            Ok(Loaded::Lm(lm(found, &weights, options, spec.threads, device)?))
        }
    }
}

fn model<'a>(
    config: &VibeVoiceConfig,
    weights: &VibeVoiceWeights,
    options: VibeVoiceOptions,
    threads: usize,
    device: &'a dyn Device,
) -> anyhow::Result<Box<dyn VibeVoice + 'a>> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = crate::gpu::gpu(device) {
        return super::on_gpu::model(config, weights, options, gpu);
    }
    let _ = device;
    cpu::vibevoice(config.clone(), weights, options, threads).map_err(into_error)
}

fn lm<'a>(
    found: &Found,
    weights: &Weights,
    options: Options,
    threads: usize,
    device: &'a dyn Device,
) -> anyhow::Result<Box<dyn Decoder + 'a>> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = crate::gpu::gpu(device) {
        return super::on_gpu::lm(&found.config, weights, options, gpu);
    }
    decoder(found, weights, options, threads, device).map_err(into_error)
}

/// Prepares a speech model, without marks.
fn vibevoice_options(subject: &Subject, spec: &Spec, resident: usize, home: &Path) -> VibeVoiceOptions {
    let offload = offload(subject, spec, resident, home);
    VibeVoiceOptions { offload, ..VibeVoiceOptions::new(subject.dtype, subject.positions(), subject.tokens) }
}

/// Prepares a language model, without marks.
fn options(subject: &Subject, spec: &Spec, resident: usize, home: &Path) -> Options {
    Options {
        dtype: subject.dtype,
        attention: Attention::Dense,
        kept: None,
        batch: 1,
        room: Room::Static(subject.positions().saturating_add(subject.tokens)),
        graph: GraphMode::Auto,
        marks: Marks::default(),
        offload: offload(subject, spec, resident, home),
    }
}

/// Predicted peak memory of a case with this many resident layers: heap or GPU memory.
pub fn needed_bytes(subject: &Subject, spec: &Spec, resident: usize, device: &dyn Device) -> u64 {
    let (positions, tokens, threads) = (subject.positions(), subject.tokens, spec.threads);
    match &subject.kind {
        Kind::Speech { config, prompt, .. } => {
            let options = vibevoice_options(subject, spec, resident, Path::new(""));
            let hop = config.token_samples().max(1);
            let voices = prompt.voices.iter().map(|voice| voice.len() / hop).sum();
            let reading = ReadingSizes { positions, voices, tokens, steps: spec.steps };
            #[cfg(feature = "cuda")]
            if is_gpu(device) {
                return laptime_models::gpu::needed_vibevoice_bytes(config, &options, reading);
            }
            let _ = device;
            // The audio of the previous iteration may still be in memory.
            let audio = (tokens as u64).saturating_mul(hop as u64).saturating_mul(2 * 4);
            cpu::needed_vibevoice_bytes(config, &options, reading, threads).saturating_add(audio)
        }
        Kind::Lm { found, .. } => {
            let options = options(subject, spec, resident, Path::new(""));
            #[cfg(feature = "cuda")]
            if is_gpu(device) {
                return laptime_models::gpu::needed_bytes(&found.config, &options, positions, false);
            }
            let ran = [tokens, positions.max(1)];
            cpu::needed_bytes(&found.config, &options, cpu::Pass::Cached, ran, threads)
        }
    }
}
