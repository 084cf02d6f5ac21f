//! A decoder for tests that counts its calls; each sampled token is a sum over all earlier tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use laptime_bench::{Device, PlanError};
use laptime_models::{Config, Decoder, DecoderBackend, KeysValues, ModelError, Options, Tokens, TrainOptions, Trainer};

use super::scripted_trainer::ScriptedTrainer;
use crate::backend::{Loaded, Target};
use crate::model::{Found, Maker, Named, built_in::Load, spec::Spec};

/// The defect of a scripted decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Steps ignore the cache.
    Cache,
    /// Logits that are NaN.
    Nan,
    /// It cannot be created.
    Weights,
    /// A gradient that is not finite.
    Gradient,
    /// Gradients that are all 0.
    NoGradient,
    /// Updates that produce NaN.
    Update,
}

/// Creates scripted decoders of presets.
pub struct ScriptedMaker {
    pub fault: Fault,
    pub calls: Arc<Calls>,
}

/// How often a decoder was called.
#[derive(Debug, Default)]
pub struct Calls {
    pub loaded: AtomicU64,
    pub forward: AtomicU64,
    pub prefill: AtomicU64,
    pub step: AtomicU64,
    pub read: AtomicU64,
    pub backward: AtomicU64,
    pub update: AtomicU64,
}

impl Maker for ScriptedMaker {
    fn find(&self, named: Named<'_>) -> Result<Found, PlanError> {
        let (Named::Any(name) | Named::Folder(name)) = named;
        let refused = |error: ModelError| PlanError::Refused { reason: error.to_string(), hint: String::new() };
        let config = Config::from_preset(name).map_err(refused)?;
        Ok(Found { name: config.name.clone(), config })
    }

    fn needed_bytes(&self, config: &Config, spec: &Spec, _: &Options, _: &dyn Device) -> u64 {
        let cache = config.kv_bytes_per_token(spec.dtype).saturating_mul(spec.positions() as u64);
        config.weight_bytes(spec.dtype).saturating_add(cache.saturating_mul(spec.batch as u64))
    }

    fn decoder<'a>(&self, found: &Found, _: &Spec, options: Options, _: Target<'a>) -> Load<dyn Decoder + 'a> {
        anyhow::ensure!(self.fault != Fault::Weights, "tensor `model.norm.weight` is missing");
        self.calls.loaded.fetch_add(1, Relaxed);
        let config = found.config.clone();
        let (fault, calls, batch) = (self.fault, Arc::clone(&self.calls), options.batch);
        let cache = vec![Vec::new(); batch];
        let decoder = Scripted { config, options, fault, calls, cache, chosen: vec![0; batch], logits: Vec::new() };
        Ok(Loaded { model: Box::new(decoder), weights: "synthetic" })
    }

    fn needed_train_bytes(&self, config: &Config, _: &Spec, options: &TrainOptions, _: &dyn Device) -> u64 {
        config.train_need(options).total()
    }

    fn trainer<'a>(&self, found: &Found, _: &Spec, options: TrainOptions, _: Target<'a>) -> Load<dyn Trainer + 'a> {
        self.calls.loaded.fetch_add(1, Relaxed);
        let (config, fault, calls) = (found.config.clone(), self.fault, Arc::clone(&self.calls));
        let trainer = ScriptedTrainer { config, options, fault, calls };
        Ok(Loaded { model: Box::new(trainer), weights: "synthetic" })
    }
}

struct Scripted {
    config: Config,
    options: Options,
    fault: Fault,
    calls: Arc<Calls>,
    /// The tokens of each sequence.
    cache: Vec<Vec<u32>>,
    chosen: Vec<u32>,
    logits: Vec<f32>,
}

impl Scripted {
    /// The logits after some tokens; the highest is at a position-weighted sum of them.
    fn logits_of(&self, tokens: &[u32]) -> Vec<f32> {
        let vocab = self.config.vocab as u64;
        let sum = tokens.iter().zip(1_u64..).map(|(&token, place)| u64::from(token) * place).sum::<u64>();
        let best = (sum % vocab) as usize;
        let logit = |at: usize| if self.fault == Fault::Nan { f32::NAN } else { 1.0 / (1 + best.abs_diff(at)) as f32 };
        (0..self.config.vocab).map(logit).collect()
    }

    fn choose_best(&mut self) {
        let best = |row: &[f32]| (0..row.len()).max_by(|&one, &other| row[one].total_cmp(&row[other])).unwrap_or(0);
        self.chosen = self.logits.chunks(self.config.vocab).map(|row| best(row) as u32).collect();
    }

    fn run(&mut self, tokens: &[Vec<u32>], forgets: bool) {
        self.logits.clear();
        for (sequence, tokens) in tokens.iter().enumerate() {
            self.cache[sequence].extend(tokens);
            let seen = if forgets { tokens.clone() } else { self.cache[sequence].clone() };
            let logits = self.logits_of(&seen);
            self.logits.extend(logits);
        }
        self.choose_best();
    }
}

impl DecoderBackend for Scripted {
    fn config(&self) -> &Config {
        &self.config
    }

    fn options(&self) -> &Options {
        &self.options
    }
}

impl Decoder for Scripted {
    fn forward(&mut self, tokens: &Tokens) -> Result<(), ModelError> {
        tokens.check(&self.config)?;
        self.calls.forward.fetch_add(1, Relaxed);
        let rows = tokens.ids.chunks(tokens.length()).flat_map(|row| (1..=row.len()).map(|end| row[..end].to_vec()));
        let rows: Vec<Vec<u32>> = rows.collect();
        self.logits = rows.iter().flat_map(|row| self.logits_of(row)).collect();
        Ok(())
    }

    fn prefill(&mut self, tokens: &Tokens) -> Result<(), ModelError> {
        tokens.check(&self.config)?;
        self.calls.prefill.fetch_add(1, Relaxed);
        let rows: Vec<Vec<u32>> = tokens.ids.chunks(tokens.length()).map(<[u32]>::to_vec).collect();
        self.run(&rows, false);
        Ok(())
    }

    fn step(&mut self) -> Result<(), ModelError> {
        self.calls.step.fetch_add(1, Relaxed);
        let rows: Vec<Vec<u32>> = self.chosen.iter().map(|&id| vec![id]).collect();
        self.run(&rows, self.fault == Fault::Cache);
        Ok(())
    }

    fn set_next(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.chosen = ids.to_vec();
        Ok(())
    }

    fn sampled(&mut self) -> Result<Vec<u32>, ModelError> {
        self.calls.read.fetch_add(1, Relaxed);
        Ok(self.chosen.clone())
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        Ok(self.logits.clone())
    }

    fn length(&self) -> usize {
        self.cache.first().map_or(0, Vec::len)
    }

    fn truncate(&mut self, length: usize) -> Result<(), ModelError> {
        self.cache.iter_mut().for_each(|tokens| tokens.truncate(length));
        Ok(())
    }

    fn read_positions(&mut self, _: usize, _: std::ops::Range<usize>) -> Result<KeysValues, ModelError> {
        Err(ModelError::Refused("a scripted decoder has no keys".to_owned()))
    }

    fn write_cache(&mut self, _: usize, _: usize, _: &KeysValues) -> Result<(), ModelError> {
        Err(ModelError::Refused("a scripted decoder has no keys".to_owned()))
    }

    fn set_length(&mut self, _: usize) -> Result<(), ModelError> {
        Err(ModelError::Refused("a scripted decoder has no keys".to_owned()))
    }
}
