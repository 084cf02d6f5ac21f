//! A prompt and the answer to it as an iteration.

use anyhow::ensure;
use laptime_bench::{Fact, Iteration, Nanos, Work};
use laptime_models::fuser::Fused;

use super::{
    check::check_logits,
    runner::{Prefills, Read, Runner},
    work::{whole, work},
};
use crate::model::into_error;

/// A prompt and the answer to it.
pub struct JoinedIteration<'a> {
    runner: Runner<'a>,
    /// What the last iteration did.
    last: Last,
}

/// What an iteration did.
#[derive(Debug, Default)]
struct Last {
    tokens: Vec<u32>,
    read: Read,
    /// What was fused after the prompt.
    fused_behind: Fused,
    /// New tokens that the teacher ran too.
    teacher_steps: u64,
    first_ns: u64,
    decode_ns: u64,
    /// If both prompts are processed at the same time.
    prefills: Option<Prefills>,
}

impl<'a> JoinedIteration<'a> {
    /// Prepared models and fuser.
    pub fn new(runner: Runner<'a>) -> Self {
        Self { runner, last: Last::default() }
    }

    fn clear(&mut self) -> anyhow::Result<()> {
        let mut tokens = std::mem::take(&mut self.last.tokens);
        tokens.clear();
        self.last = Last { tokens, ..Last::default() };
        self.runner.made.joined.clear().map_err(into_error)
    }

    fn answer(&self) -> Vec<Fact> {
        let pair = &self.runner.pair;
        let text = pair.tokenizer.as_ref().and_then(|tokenizer| tokenizer.decode(&self.last.tokens).ok());
        let numbers = || self.last.tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let random = || format!("{} random tokens", pair.tokens());
        vec![
            Fact::new("prompt_text", pair.message.clone().unwrap_or_else(random)),
            Fact::new("response", text.unwrap_or_else(numbers)),
            whole("new_tokens", self.last.tokens.len() as u64),
        ]
    }
}

impl Iteration for JoinedIteration<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.clear()?;
        self.runner.read().map_err(into_error)?;
        let own = self.runner.made.joined.receiver.logits().map_err(into_error)?;
        check_logits(&own, &self.runner.in_other_order, self.runner.pair.dtype)?;
        self.clear()?;
        self.run()?;
        let (made, spec) = (self.last.tokens.len(), self.runner.spec.new_tokens);
        ensure!(made == spec, "there are {made} new tokens, expected {spec}");
        Ok(())
    }

    fn ready(&mut self) -> anyhow::Result<()> {
        self.clear()?;
        if self.runner.spec.overlap && self.runner.pair.tokens() > 1 {
            self.last.prefills = Some(self.runner.prefills()?);
        }
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let (runner, last) = (&mut self.runner, &mut self.last);
        let start = runner.device.now();
        last.read = runner.read().map_err(into_error)?;
        last.tokens.extend(runner.sample().map_err(into_error)?);
        let first = runner.device.now();
        if runner.steps() > 0 {
            last.fused_behind = runner.decode(&mut last.tokens).map_err(into_error)?;
            last.teacher_steps = runner.teacher_steps();
        }
        last.first_ns = first.saturating_sub(start).0;
        last.decode_ns = runner.device.now().saturating_sub(first).0;
        Ok(())
    }

    fn readings(&mut self, _: Nanos) -> Vec<Option<f64>> {
        let Last { first_ns, decode_ns, read, prefills, .. } = &self.last;
        let steps = Some(self.runner.steps() as f64).filter(|steps| *steps > 0.0 && *decode_ns > 0);
        let projector = read.projector_ns.map(|took| took as f64);
        let layers = Some(read.fused.layers as f64).filter(|layers| *layers > 0.0);
        vec![
            Some(*first_ns as f64 / 1e6),
            steps.map(|steps| *decode_ns as f64 / 1e6 / steps),
            steps.map(|steps| steps * 1e9 / *decode_ns as f64),
            projector.filter(|_| *first_ns > 0).map(|took| took / *first_ns as f64),
            projector.zip(layers).map(|(took, layers)| took / 1e6 / layers),
            prefills.map(|prefills| prefills.base_ns as f64 / 1e6),
            prefills.map(|prefills| prefills.teacher_ns as f64 / 1e6),
            prefills.map(|prefills| prefills.together_ns as f64 / 1e6),
            prefills.map(|prefills| prefills.hidden_ns() / 1e6),
            prefills.and_then(|prefills| prefills.hidden_share()),
        ]
    }

    fn work(&self) -> Option<Work> {
        work(&self.runner.pair, &self.runner.spec, &self.runner.gates())
    }

    fn facts(&self) -> Vec<Fact> {
        let (read, behind) = (&self.last.read, &self.last.fused_behind);
        let mut facts = self.runner.facts();
        facts.extend([
            whole("teacher_calls", read.teacher_calls.saturating_add(self.last.teacher_steps)),
            whole("projector_calls", read.fused.layers as u64),
            whole("closed_paths", read.fused.closed as u64),
        ]);
        if behind.layers > 0 {
            facts.push(whole("response_projector_calls", behind.layers as u64));
        }
        facts.extend(self.answer());
        facts
    }
}
