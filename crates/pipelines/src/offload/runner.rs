//! A model with offloaded layers on a device, which generates tokens and measures each of them.

use std::path::Path;

use laptime_bench::{Case, Device, Nanos};
use laptime_models::{
    Attention, CacheCapacity, Decoder, GraphMode, LayerVisit, Marks, ModelError, Offload, Offloading, Options, Weights,
    cpu, tool_range,
    vibevoice::{ReadingSizes, VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights},
};
use laptime_probe::{lap, stage, sync_point};

use super::layers::Fit;
use super::subject::{Kind, Spec, Subject};
use crate::backend::{Target, decoder, hinted, if_gpu, marks, vibevoice};
use crate::model::checked_weights;

pub struct Runner<'a> {
    pub case: Case,
    pub subject: Subject,
    pub spec: Spec,
    pub fit: Fit,
    pub device: &'a dyn Device,
    pub loaded: Loaded<'a>,
    pub observer: &'a dyn Observer,
}

#[derive(Debug, Clone, Default)]
pub struct Run {
    pub samples: Vec<f32>,
    pub prefill_ns: u64,
    pub tokens_ns: Vec<u64>,
    /// The time of all tokens, including reading their audio.
    pub generation_ns: u64,
    /// Visits of offloaded layers in tokens, without those of the prompt.
    pub visits: Visits,
}

impl<'a> Runner<'a> {
    /// Loads the model. On the CPU, offloaded layers are in a file in `home`.
    pub fn new(
        case: Case,
        (subject, spec): (Subject, Spec),
        fit: Fit,
        (device, home): (&'a dyn Device, &Path),
        observer: &'a dyn Observer,
    ) -> anyhow::Result<Self> {
        let loaded = load(&subject, &spec, fit.resident, (device, home))?;
        Ok(Self { case, subject, spec, fit, device, loaded, observer })
    }

    /// Generates all tokens once. If it fails, `run` contains what was generated before.
    pub fn generate(&mut self, run: &mut Run) -> Result<(), ModelError> {
        let _range = tool_range("generate");
        let _stage = stage!("generate", on = self.device.lane());
        self.observer.begin();
        let start = self.device.now();
        self.begin()?;
        run.prefill_ns = self.since(start);
        // Visits during the prompt do not belong to a token.
        drop(self.loaded.layer_visits()?);
        let start = self.device.now();
        let done = self.tokens(run);
        let read = self.read_audio(run);
        run.generation_ns = self.since(start);
        done.and(read)
    }

    fn begin(&mut self) -> Result<(), ModelError> {
        match (&mut self.loaded, &self.subject.kind) {
            (Loaded::Speech(model), Kind::Speech { prompt, .. }) => {
                model.begin(prompt, &self.subject.guidance(&self.spec), self.subject.tokens)?;
                model.wait()
            }
            (Loaded::Lm(decoder), Kind::Lm { prompt, .. }) => {
                let _stage = stage!("prefill", on = self.device.lane(), positions = prompt.ids.len());
                decoder.truncate(0)?;
                decoder.prefill(prompt)?;
                sync_point!("read_token", decoder.sampled()).map(drop)
            }
            _ => Err(ModelError::Refused("the model has a different kind than the case".to_owned())),
        }
    }

    fn tokens(&mut self, run: &mut Run) -> Result<(), ModelError> {
        loop {
            let start = self.device.now();
            let is_end = self.token(run.tokens_ns.len())?;
            let nanos = self.since(start);
            run.tokens_ns.push(nanos);
            let visits = self.loaded.layer_visits()?;
            run.visits.add(&visits);
            self.observer.token(run.tokens_ns.len(), nanos, &visits);
            if is_end || self.observer.is_stopped() {
                return Ok(());
            }
        }
    }

    /// Generates the next token, as a lap; returns whether it is the last.
    fn token(&mut self, at: usize) -> Result<bool, ModelError> {
        let _range = tool_range("token");
        let _lap = lap!("token", on = self.device.lane(), token = at);
        match &mut self.loaded {
            Loaded::Speech(model) => model.token().map(|token| token.is_end),
            Loaded::Lm(decoder) => {
                {
                    let replay = decoder.next_replay()?;
                    let _stage = stage!("transformer", on = self.device.lane(), token = at, replay = replay);
                    decoder.step()?;
                }
                // The host reads every token before the next one, as with a speech model.
                sync_point!("read_token", decoder.sampled())?;
                Ok(at + 1 >= self.subject.tokens)
            }
        }
    }

    /// Reads the audio of all tokens, also after a failure.
    fn read_audio(&mut self, run: &mut Run) -> Result<(), ModelError> {
        if let Loaded::Speech(model) = &mut self.loaded {
            run.samples = model.audio(0..model.audio_tokens())?;
        }
        Ok(())
    }

    fn since(&self, start: Nanos) -> u64 {
        self.device.now().saturating_sub(start).0
    }

    pub fn notify_observer(&self, run: &Run) {
        self.observer.end(self.generated(run));
    }

    pub fn generated(&self, run: &Run) -> Generated {
        let rate = match &self.subject.kind {
            Kind::Speech { config, .. } => config.sample_rate,
            Kind::Lm { .. } => 0,
        };
        Generated {
            case: self.case.clone(),
            samples: run.samples.clone(),
            rate,
            stem: self.subject.stem.clone(),
            prefilled: self.subject.kind.positions(),
            prefill_ns: run.prefill_ns,
            tokens_ns: run.tokens_ns.clone(),
            layers: [self.subject.kind.decoder().layers, self.fit.resident],
            visits: run.visits,
            memory: [self.device.peak_bytes(), self.device.available_bytes()],
        }
    }
}

pub enum Loaded<'a> {
    Speech(Box<dyn VibeVoice + 'a>),
    Lm(Box<dyn Decoder + 'a>),
}

impl Loaded<'_> {
    pub fn offloading(&self) -> Option<Offloading> {
        match self {
            Self::Speech(model) => model.offloading(),
            Self::Lm(decoder) => decoder.offloading(),
        }
    }

    pub fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        match self {
            Self::Speech(model) => model.layer_visits(),
            Self::Lm(decoder) => decoder.layer_visits(),
        }
    }
}

/// Reads the names and shapes of a folder's weights.
pub fn check_weights(subject: &Subject, seed: u64) -> Result<(), ModelError> {
    match &subject.kind {
        Kind::Speech { config, .. } => speech_weights(subject, config, seed).map(drop),
        Kind::Lm { found, .. } => match subject.folder.as_ref().map(|folder| Weights::open(folder, &found.config)) {
            // Synthetic weights are used instead.
            None | Some(Err(ModelError::NoWeights { other: None, .. })) => Ok(()),
            Some(opened) => opened.map(drop),
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
    (resident < subject.kind.decoder().layers).then(|| Offload {
        mode: spec.mode,
        resident,
        home: home.to_owned(),
        link_gbps: spec.link_gbps,
        clear_every: spec.clear_every,
        lane: None,
    })
}

fn load<'a>(
    subject: &Subject,
    spec: &Spec,
    resident: usize,
    (device, home): (&'a dyn Device, &Path),
) -> anyhow::Result<Loaded<'a>> {
    let _stage = stage!("load_weights", model = subject.name);
    let (marks, on) = (marks(device), Target { device, threads: spec.threads });
    match &subject.kind {
        Kind::Speech { config, .. } => {
            let weights = speech_weights(subject, config, spec.seed).map_err(hinted)?;
            weights.check_finite(config).map_err(hinted)?;
            let options = VibeVoiceOptions { marks, ..vibevoice_options(subject, spec, resident, home) };
            Ok(Loaded::Speech(vibevoice((**config).clone(), &weights, options, on)?))
        }
        Kind::Lm { found, .. } => {
            let (weights, _) = checked_weights(found, spec.seed)?;
            let options = Options { marks, ..options(subject, spec, resident, home) };
            Ok(Loaded::Lm(decoder(&found.config, &weights, options, on)?))
        }
    }
}

fn vibevoice_options(subject: &Subject, spec: &Spec, resident: usize, home: &Path) -> VibeVoiceOptions {
    let offload = offload(subject, spec, resident, home);
    VibeVoiceOptions { offload, ..VibeVoiceOptions::new(subject.dtype, subject.kind.positions(), subject.tokens) }
}

fn options(subject: &Subject, spec: &Spec, resident: usize, home: &Path) -> Options {
    Options {
        dtype: subject.dtype,
        attention: Attention::Dense,
        kept: None,
        batch: 1,
        capacity: CacheCapacity::Static(subject.kind.positions().saturating_add(subject.tokens)),
        graph: GraphMode::Auto,
        marks: Marks::default(),
        offload: offload(subject, spec, resident, home),
    }
}

/// Predicted peak memory of a case with this many resident layers: heap or GPU memory.
pub fn needed_bytes(subject: &Subject, spec: &Spec, resident: usize, device: &dyn Device) -> u64 {
    let (positions, tokens, threads) = (subject.kind.positions(), subject.tokens, spec.threads);
    match &subject.kind {
        Kind::Speech { config, prompt, .. } => {
            let options = vibevoice_options(subject, spec, resident, Path::new(""));
            let hop = config.token_samples().max(1);
            let voices = prompt.voices.iter().map(|voice| voice.len() / hop).sum();
            let reading = ReadingSizes { positions, voices, tokens, steps: spec.steps };
            if_gpu!(device, _gpu => laptime_models::gpu::needed_vibevoice_bytes(config, &options, reading));
            // The audio of the previous iteration may still be in memory.
            let audio = (tokens as u64).saturating_mul(hop as u64).saturating_mul(2 * 4);
            cpu::needed_vibevoice_bytes(config, &options, reading, threads).saturating_add(audio)
        }
        Kind::Lm { found, .. } => {
            let options = options(subject, spec, resident, Path::new(""));
            if_gpu!(device, _gpu => laptime_models::gpu::needed_bytes(&found.config, &options, positions, false));
            let ran = [tokens, positions.max(1)];
            cpu::needed_bytes(&found.config, &options, cpu::Pass::Cached, ran, threads)
        }
    }
}

/// Called for every token of a generation, which it may stop. Calls are part of iterations, so they must be fast.
pub trait Observer: Send + Sync {
    fn begin(&self) {}

    /// A token was generated: its number in this generation (from 1), its time, and the visits of offloaded layers.
    fn token(&self, _number: usize, _nanos: u64, _visits: &[LayerVisit]) {}

    /// Whether to end the generation after this token.
    fn is_stopped(&self) -> bool {
        false
    }

    /// A generation ended or failed: what was generated so far. This is called outside of iterations.
    fn end(&self, _generated: Generated) {}
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Generated {
    pub case: Case,
    /// The audio; empty where there is none.
    pub samples: Vec<f32>,
    pub rate: u32,
    pub stem: String,
    pub prefilled: usize,
    pub prefill_ns: u64,
    pub tokens_ns: Vec<u64>,
    /// Layers of the model, and layers kept on the device.
    pub layers: [usize; 2],
    pub visits: Visits,
    /// Peak memory of the device so far, and its free memory, in bytes.
    pub memory: [Option<u64>; 2],
}

/// Sums over the visits of offloaded layers. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Visits {
    pub count: u64,
    pub ahead: u64,
    pub wait_ns: f64,
    pub release_ns: f64,
    pub copy_ns: f64,
}

impl Visits {
    pub fn add(&mut self, visits: &[LayerVisit]) {
        for visit in visits {
            self.count += 1;
            self.ahead += u64::from(visit.is_ahead);
            self.wait_ns += visit.wait_ns;
            self.release_ns += visit.release_ns;
            self.copy_ns += visit.copy_ns;
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}
