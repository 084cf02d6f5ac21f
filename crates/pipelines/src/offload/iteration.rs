//! A generation as an iteration.

use anyhow::ensure;
use laptime_bench::{Fact, Iteration, Nanos, Work};
use laptime_stats::Sorted;

use super::{
    facts::{facts, work},
    runner::{Loaded, Run, Runner},
    subject::Kind,
};
use crate::{backend::into_error, check::check_finite};

/// A generation: a prompt in, tokens and their audio out.
pub struct OffloadIteration<'a> {
    runner: Runner<'a>,
    last: Run,
}

impl<'a> OffloadIteration<'a> {
    pub fn new(runner: Runner<'a>) -> Self {
        Self { runner, last: Run::default() }
    }

    fn audio_s(&self) -> Option<f64> {
        match &self.runner.subject.kind {
            Kind::Speech { config, .. } => Some(self.last.samples.len() as f64 / f64::from(config.sample_rate.max(1))),
            Kind::Lm { .. } => None,
        }
    }

    /// Checks that audio is finite and has the right length; for a language model, that the logits are finite.
    fn check_made(&mut self) -> anyhow::Result<()> {
        let made = self.last.tokens_ns.len();
        let (expected, is_endless) = (self.runner.subject.tokens, self.runner.subject.folder.is_none());
        let is_cut = self.runner.observer.is_stopped();
        ensure!(!is_endless || is_cut || made == expected, "there are {made} tokens, expected {expected}");
        match &mut self.runner.made {
            Loaded::Speech(model) => {
                let (samples, hop) = (model.audio_tokens(), model.config().token_samples());
                let expected = samples.saturating_mul(hop);
                let length = self.last.samples.len();
                ensure!(length == expected, "{samples} tokens of audio are {expected} samples, and there are {length}");
                check_finite("sample", &self.last.samples, 0)
            }
            Loaded::Lm(decoder) => check_finite("logit", &decoder.logits().map_err(into_error)?, 0),
        }
    }
}

impl Iteration for OffloadIteration<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.ready()?;
        self.run()?;
        self.runner.notify_observer(&self.last);
        self.check_made()
    }

    fn ready(&mut self) -> anyhow::Result<()> {
        self.last = Run::default();
        match &mut self.runner.made {
            Loaded::Speech(model) => model.reset().map_err(into_error),
            Loaded::Lm(_) => Ok(()),
        }
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let made = self.runner.generate(&mut self.last);
        if made.is_err() {
            // Tokens generated before the failure are kept.
            self.runner.notify_observer(&self.last);
        }
        made.map_err(into_error)
    }

    fn readings(&mut self, wall: Nanos) -> Vec<Option<f64>> {
        self.runner.notify_observer(&self.last);
        let Run { prefill_ns, tokens_ns, generation_ns, visits, .. } = &self.last;
        let over = |one: f64, other: f64| (other > 0.0).then(|| one / other);
        let (wall, audio) = (wall.0 as f64 / 1e9, self.audio_s());
        let tokens = Sorted::<u64>::from_unsorted(tokens_ns.clone());
        let token = |part: f64| tokens.quantile(part).map(|nanos| nanos / 1e6);
        let a_token = |nanos: f64| over(nanos / 1e6, tokens_ns.len() as f64).filter(|_| visits.count > 0);
        let bytes = self.runner.made.offloading().map_or(0, |offloading| offloading.layer_bytes);
        vec![
            audio.and_then(|audio| over(wall, audio)),
            over(tokens_ns.len() as f64, *generation_ns as f64 / 1e9),
            token(0.5),
            token(0.95),
            Some(*prefill_ns as f64 / 1e6),
            Some(*generation_ns as f64 / 1e6),
            a_token(visits.wait_ns),
            a_token(visits.copy_ns),
            over(visits.wait_ns, visits.copy_ns).map(|exposed| (1.0 - exposed).clamp(0.0, 1.0)),
            over(visits.ahead as f64, visits.count as f64),
            over(bytes as f64 * visits.count as f64, visits.copy_ns),
        ]
    }

    fn work(&self) -> Option<Work> {
        work(&self.runner.subject, &self.runner.spec)
    }

    fn facts(&self) -> Vec<Fact> {
        facts(&self.runner, &self.last)
    }
}
