//! Iterations: a prompt and its answer, or the first token in three ways.

use anyhow::{anyhow, ensure};
use laptime_bench::{Fact, Iteration, Nanos, Work};
use laptime_models::{Dtype, ModelError, fuser::Fused};
use laptime_probe::stage;
use laptime_stats::Rng;

use super::pair::work;
use super::runner::{Prefills, Read, Runner};
use crate::check::{check_close, check_finite};
use crate::request::fact;

pub struct JoinedIteration<'a> {
    runner: Runner<'a>,
    last: Last,
}

#[derive(Debug, Default)]
struct Last {
    tokens: Vec<u32>,
    read: Read,
    /// Fusion of new tokens.
    fused_response: Fused,
    /// New tokens that the teacher processed too.
    teacher_steps: u64,
    first_ns: u64,
    decode_ns: u64,
    /// If both prompts are processed at the same time.
    prefills: Option<Prefills>,
}

impl<'a> JoinedIteration<'a> {
    pub fn new(runner: Runner<'a>) -> Self {
        Self { runner, last: Last::default() }
    }

    fn clear(&mut self) -> anyhow::Result<()> {
        let mut tokens = std::mem::take(&mut self.last.tokens);
        tokens.clear();
        self.last = Last { tokens, ..Last::default() };
        Ok(self.runner.c2c.clear()?)
    }

    fn answer(&self) -> Vec<Fact> {
        let pair = &self.runner.pair;
        let text = pair.tokenizer.as_ref().and_then(|tokenizer| tokenizer.decode(&self.last.tokens).ok());
        let numbers = || self.last.tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let random = || format!("{} random tokens", pair.tokens());
        vec![
            Fact::new("prompt_text", pair.message.clone().unwrap_or_else(random)),
            Fact::new("response", text.unwrap_or_else(numbers)),
            fact("new_tokens", self.last.tokens.len() as u64),
        ]
    }
}

impl Iteration for JoinedIteration<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.clear()?;
        self.runner.read()?;
        let own = self.runner.c2c.receiver.logits()?;
        check_logits(&own, &self.runner.in_other_order, self.runner.pair.dtype)?;
        self.clear()?;
        self.run()?;
        let (generated, expected) = (self.last.tokens.len(), self.runner.spec.new_tokens);
        ensure!(generated == expected, "there are {generated} new tokens, expected {expected}");
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
        last.read = runner.read()?;
        last.tokens.extend(runner.sample()?);
        let first = runner.device.now();
        if runner.steps() > 0 {
            last.fused_response = runner.decode(&mut last.tokens)?;
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
        let (read, response) = (&self.last.read, &self.last.fused_response);
        let mut facts = self.runner.facts();
        facts.extend([
            fact("teacher_calls", read.teacher_calls.saturating_add(self.last.teacher_steps)),
            fact("projector_calls", read.fused.layers as u64),
            fact("closed_paths", read.fused.closed as u64),
        ]);
        if response.layers > 0 {
            facts.push(fact("response_projector_calls", response.layers as u64));
        }
        facts.extend(self.answer());
        facts
    }
}

/// How the base model gets its first token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// With a cache fused with the teacher's.
    Caches,
    /// After a text generated by the teacher.
    Text,
    Alone,
}

impl Way {
    const ALL: [Self; 3] = [Self::Caches, Self::Text, Self::Alone];
}

/// The first token in all three ways, in a new order each time.
pub struct AgainstIteration<'a> {
    runner: Runner<'a>,
    text_tokens: usize,
    rng: Rng,
    /// Times to the first token, in the order of [`Way::ALL`].
    first_ns: [u64; 3],
}

impl<'a> AgainstIteration<'a> {
    /// Compares the prepared models and fuser with a text of this length.
    pub fn new(runner: Runner<'a>, text_tokens: usize) -> Self {
        let rng = Rng::new(runner.spec.seed);
        Self { runner, text_tokens, rng, first_ns: [0; 3] }
    }

    /// Runs one way with empty caches.
    fn go(&mut self, way: Way) -> anyhow::Result<()> {
        self.runner.be_idle()?;
        let start = self.runner.device.now();
        self.read(way)?;
        let tokens = self.runner.sample()?;
        self.first_ns[way as usize] = self.runner.device.now().saturating_sub(start).0;
        ensure!(tokens.len() == 1, "there are {} first tokens", tokens.len());
        Ok(())
    }

    fn read(&mut self, way: Way) -> Result<(), ModelError> {
        let lane = self.runner.device.lane();
        match way {
            Way::Caches => {
                let _stage = stage!("by_caches", on = lane);
                self.runner.read().map(drop)
            }
            Way::Text => {
                let _stage = stage!("by_text", on = lane, tokens = self.text_tokens);
                self.runner.read_with_text(self.text_tokens)
            }
            Way::Alone => {
                let _stage = stage!("alone", on = lane);
                self.runner.read_alone()
            }
        }
    }
}

impl Iteration for AgainstIteration<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        for way in Way::ALL {
            self.go(way)?;
            let own = self.runner.c2c.receiver.logits()?;
            let other = if way == Way::Caches { &self.runner.in_other_order } else { &own };
            check_logits(&own, other, self.runner.pair.dtype)?;
        }
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let mut order = Way::ALL.to_vec();
        self.rng.shuffle(&mut order);
        order.into_iter().try_for_each(|way| self.go(way))
    }

    fn readings(&mut self, _: Nanos) -> Vec<Option<f64>> {
        let [caches, text, alone] = self.first_ns.map(|nanos| nanos as f64);
        let ms = |nanos: f64| Some(nanos / 1e6);
        let over = |other: f64| (caches > 0.0).then(|| other / caches);
        let of_joined = super::JOINED_METRICS - 1;
        let mut readings = vec![ms(caches)];
        readings.extend(vec![None; of_joined]);
        readings.extend([ms(text), ms(alone), over(text), over(alone)]);
        readings
    }

    fn facts(&self) -> Vec<Fact> {
        self.runner.facts()
    }
}

/// Refuses logits that are not finite, or not those of the other order.
pub fn check_logits(own: &[f32], other: &[f32], dtype: Dtype) -> anyhow::Result<()> {
    check_finite("logit", own, 0)?;
    ensure!(own.len() == other.len(), "there are {} logits, and {} in the other order", own.len(), other.len());
    check_close(other, own, dtype).map_err(|(at, [other, own])| {
        anyhow!("fusing is wrong: logit {at} is {own} in the requested order and {other} in the other one")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_or_nan_logits_are_refused_with_their_position() {
        check_logits(&[1.0, 2.0], &[1.0, 2.001], Dtype::F32).unwrap();
        let shown = |own: &[f32], other: &[f32]| check_logits(own, other, Dtype::F32).unwrap_err().to_string();
        let expected = "fusing is wrong: logit 1 is 2 in the requested order and 2.1 in the other one";
        assert_eq!(shown(&[1.0, 2.0], &[1.0, 2.1]), expected);
        assert!(shown(&[f32::NAN], &[0.0]).starts_with("logit 0 is NaN"));
        assert_eq!(shown(&[1.0], &[]), "there are 1 logits, and 0 in the other order");
    }
}
