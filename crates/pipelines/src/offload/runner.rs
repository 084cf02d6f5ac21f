//! One generation, with the times of its tokens.

use std::path::Path;

use laptime_bench::{Case, Device, Nanos};
use laptime_models::{ModelError, tool_range, vibevoice::VibeVoice};
use laptime_probe::{lap, stage, sync_point};

use super::{
    fit::Fit,
    make::{Loaded, make},
    observer::{Generated, Observer, Visits},
    spec::Spec,
    subject::{Kind, Subject},
};

/// A prepared model.
pub struct Runner<'a> {
    /// The case.
    pub case: Case,
    /// The model and its prompt.
    pub subject: Subject,
    /// The parameters of the case.
    pub spec: Spec,
    /// The number of resident layers.
    pub fit: Fit,
    /// The device.
    pub device: &'a dyn Device,
    /// The model on the device.
    pub made: Loaded<'a>,
    /// The observer.
    pub observer: &'a dyn Observer,
}

/// The result of a generation.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// The audio, if there is any.
    pub samples: Vec<f32>,
    /// The time of voices and prompt.
    pub prefill_ns: u64,
    /// The time of each token.
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
        let made = make(&subject, &spec, fit.resident, (device, home))?;
        Ok(Self { case, subject, spec, fit, device, made, observer })
    }

    /// Generates all tokens once. If it fails, `run` contains what was generated before.
    pub fn generate(&mut self, run: &mut Run) -> Result<(), ModelError> {
        let _range = tool_range("generate");
        let _stage = stage!("generate", on = self.device.lane());
        self.observer.begin();
        let start = self.device.now();
        self.begin()?;
        run.prefill_ns = self.since(start);
        // The layers of the prompt do not belong to a token.
        drop(self.made.layer_visits()?);
        let start = self.device.now();
        let made = self.tokens(run);
        let read = self.read_audio(run);
        run.generation_ns = self.since(start);
        made.and(read)
    }

    fn begin(&mut self) -> Result<(), ModelError> {
        match (&mut self.made, &self.subject.kind) {
            (Loaded::Speech(model), Kind::Speech { prompt, .. }) => {
                model.begin(prompt, &self.subject.guidance(&self.spec), self.subject.tokens)?;
                model.wait()
            }
            (Loaded::Lm(decoder), Kind::Lm { prompt, .. }) => {
                let _stage = stage!("prefill", on = self.device.lane(), positions = prompt.ids.len());
                decoder.truncate(0)?;
                decoder.prefill(prompt)?;
                sync_point!("read_token", decoder.chosen()).map(drop)
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
            let visits = self.made.layer_visits()?;
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
        match &mut self.made {
            Loaded::Speech(model) => model.token().map(|token| token.is_end),
            Loaded::Lm(decoder) => {
                {
                    let _stage = stage!("transformer", on = self.device.lane(), token = at);
                    decoder.step()?;
                }
                // A speech model reads every token before the next one.
                sync_point!("read_token", decoder.chosen())?;
                Ok(at + 1 >= self.subject.tokens)
            }
        }
    }

    /// The audio of all tokens, also of those before one that failed.
    fn read_audio(&mut self, run: &mut Run) -> Result<(), ModelError> {
        if let Loaded::Speech(model) = &mut self.made {
            run.samples = model.audio(0..model.audio_tokens())?;
        }
        Ok(())
    }

    fn since(&self, start: Nanos) -> u64 {
        self.device.now().saturating_sub(start).0
    }

    /// Passes the result of a generation to the observer.
    pub fn notify_observer(&self, run: &Run) {
        let rate = match &self.subject.kind {
            Kind::Speech { config, .. } => config.sample_rate,
            Kind::Lm { .. } => 0,
        };
        self.observer.end(Generated {
            case: self.case.clone(),
            samples: run.samples.clone(),
            rate,
            stem: self.subject.stem.clone(),
            prefilled: self.subject.positions(),
            prefill_ns: run.prefill_ns,
            tokens_ns: run.tokens_ns.clone(),
            layers: [self.subject.decoder().layers, self.fit.resident],
            visits: run.visits,
            memory: [self.device.peak_bytes(), self.device.available_bytes()],
        });
    }
}

/// The speech model of a runner.
impl Runner<'_> {
    /// The model; none for a language model alone.
    pub fn model(&mut self) -> Option<&mut dyn VibeVoice> {
        match &mut self.made {
            Loaded::Speech(model) => Some(&mut **model),
            Loaded::Lm(_) => None,
        }
    }
}
