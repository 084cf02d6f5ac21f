//! Two models and a fuser that are ready to answer.

use anyhow::ensure;
use laptime_bench::{Device, Fact, Nanos, Take, Work};
use laptime_models::{
    ModelError,
    fuser::{FuseOrder, Fused, Gates, Response},
};
use laptime_probe::{Lane, lap, stage};

use super::{
    check::check_logits,
    make::{Made, make, set_fuser},
    pair::Pair,
    wanted::Wanted,
    work::{bytes, sizes, whole, work},
};
use crate::model::told;

/// Two models and a fuser that are ready to answer.
pub struct JoinedTake<'a> {
    pair: Pair,
    wanted: Wanted,
    made: Made<'a>,
    device: &'a dyn Device,
    lane: Option<&'a Lane>,
    /// The first logits with paths computed in the other order.
    in_other_order: Vec<f32>,
    /// What the last take did.
    last: Last,
}

/// What a take did.
#[derive(Debug, Default)]
struct Last {
    tokens: Vec<u32>,
    fused: Fused,
    teacher_calls: u64,
    first_ns: u64,
    decode_ns: u64,
    /// None where the device may still be at it when the host goes on.
    projector_ns: Option<u64>,
}

impl<'a> JoinedTake<'a> {
    /// Loads everything, and runs the prompt once in the order that was not asked for.
    pub fn new(pair: Pair, wanted: Wanted, device: &'a dyn Device) -> anyhow::Result<Self> {
        let mut made = make(&pair, &wanted, device)?;
        made.joined.check(&pair.prompt, wanted.new_tokens, Response::Plain).map_err(told)?;
        let other = match wanted.order {
            FuseOrder::Batched => FuseOrder::ByLayer,
            FuseOrder::ByLayer => FuseOrder::Batched,
        };
        set_fuser(&mut made.joined, &pair, &wanted, other, device)?;
        let in_other_order = {
            let _stage = stage!("run_in_other_order");
            made.joined.read(&pair.prompt, Response::Plain).map_err(told)?;
            made.joined.receiver.logits().map_err(told)?
        };
        set_fuser(&mut made.joined, &pair, &wanted, wanted.order, device)?;
        let lane = device.lane();
        Ok(Self { pair, wanted, made, device, lane, in_other_order, last: Last::default() })
    }

    /// Reads the prompt, section by section, and fuses what is to be fused.
    fn read(&mut self) -> Result<(), ModelError> {
        let Self { pair, made, last, device, lane, .. } = self;
        let (joined, prompt) = (&mut made.joined, &pair.prompt);
        let end = prompt.sections.len();
        for (at, section) in prompt.sections.iter().enumerate() {
            let tokens = section.positions.len();
            if at + 1 == end {
                let _stage = stage!("last_token_prefill", on = *lane, tokens = tokens);
                joined.run_section(prompt, section)?;
            } else {
                let _stage = stage!("base_prefill", on = *lane, tokens = tokens);
                joined.run_section(prompt, section)?;
            }
            if section.mask.is_none() {
                continue;
            }
            if last.teacher_calls == 0 {
                let _stage = stage!("teacher_prefill", on = *lane, tokens = prompt.heard_tokens(0));
                joined.share(prompt, Response::Plain)?;
                last.teacher_calls = 1;
            }
            let start = device.now();
            last.fused = last.fused.plus(joined.fuse_section(section)?);
            let took = device.now().saturating_sub(start).0;
            // What is queued is not done.
            last.projector_ns = lane.is_none().then(|| last.projector_ns.unwrap_or(0).saturating_add(took));
        }
        Ok(())
    }

    /// The token that was chosen: here the host waits for it.
    fn sample(&mut self) -> Result<(), ModelError> {
        let _stage = stage!("sampling", on = self.lane);
        self.last.tokens.extend(self.made.joined.receiver.chosen()?);
        Ok(())
    }

    fn decode(&mut self) -> Result<(), ModelError> {
        let _stage = stage!("decode", on = self.lane, tokens = self.steps());
        for token in 1..=self.steps() {
            {
                let _lap = lap!("token", on = self.lane, token = token);
                self.made.joined.step(Response::Plain)?;
            }
            self.sample()?;
        }
        Ok(())
    }

    /// Decode steps: the first token is the prompt's.
    fn steps(&self) -> usize {
        self.wanted.new_tokens.saturating_sub(1)
    }

    fn gates(&self) -> Gates {
        let gates = self.made.joined.fuser.gates().first().cloned();
        gates.unwrap_or_else(|| Gates::open(self.pair.base.config.layers))
    }

    fn answer(&self) -> Vec<Fact> {
        let text = self.pair.tokenizer.as_ref().and_then(|tokenizer| tokenizer.decode(&self.last.tokens).ok());
        let numbers = || self.last.tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let prompt = self.pair.message.clone();
        let random = || format!("{} random tokens", self.pair.tokens());
        vec![
            Fact::new("prompt_text", prompt.unwrap_or_else(random)),
            Fact::new("response", text.unwrap_or_else(numbers)),
            whole("new_tokens", self.last.tokens.len() as u64),
        ]
    }
}

impl Take for JoinedTake<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.ready()?;
        self.read().map_err(told)?;
        let own = self.made.joined.receiver.logits().map_err(told)?;
        check_logits(&own, &self.in_other_order, self.pair.dtype)?;
        self.ready()?;
        self.run()?;
        let (made, wanted) = (self.last.tokens.len(), self.wanted.new_tokens);
        ensure!(made == wanted, "there are {made} new tokens, expected {wanted}");
        Ok(())
    }

    fn ready(&mut self) -> anyhow::Result<()> {
        let tokens = std::mem::take(&mut self.last.tokens);
        self.last = Last { tokens, ..Last::default() };
        self.last.tokens.clear();
        self.made.joined.clear().map_err(told)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let start = self.device.now();
        self.read().map_err(told)?;
        self.sample().map_err(told)?;
        let first = self.device.now();
        if self.steps() > 0 {
            self.decode().map_err(told)?;
        }
        self.last.first_ns = first.saturating_sub(start).0;
        self.last.decode_ns = self.device.now().saturating_sub(first).0;
        Ok(())
    }

    fn readings(&mut self, _: Nanos) -> Vec<Option<f64>> {
        let Last { first_ns, decode_ns, projector_ns, fused, .. } = self.last;
        let steps = Some(self.steps() as f64).filter(|steps| *steps > 0.0 && decode_ns > 0);
        let projector = projector_ns.map(|took| took as f64);
        let layers = Some(fused.layers as f64).filter(|layers| *layers > 0.0);
        vec![
            Some(first_ns as f64 / 1e6),
            steps.map(|steps| decode_ns as f64 / 1e6 / steps),
            steps.map(|steps| steps * 1e9 / decode_ns as f64),
            projector.filter(|_| first_ns > 0).map(|took| took / first_ns as f64),
            projector.zip(layers).map(|(took, layers)| took / 1e6 / layers),
        ]
    }

    fn work(&self) -> Option<Work> {
        Some(work(&self.pair, &self.wanted, &self.gates()))
    }

    fn facts(&self) -> Vec<Fact> {
        let [base, teacher, fuser] = self.made.weights;
        let mut facts = sizes(&self.pair, &self.wanted);
        let known = bytes(&self.pair, &self.wanted).into_iter().fold(0, u64::saturating_add);
        if let Some(peak) = self.device.peak_bytes() {
            facts.push(whole("activation_bytes", peak.saturating_sub(known)));
        }
        facts.extend([
            whole("teacher_calls", self.last.teacher_calls),
            whole("projector_calls", self.last.fused.layers as u64),
            whole("closed_paths", self.last.fused.closed as u64),
            Fact::new("weights", base),
            Fact::new("teacher_weights", teacher),
            Fact::new("fuser_weights", fuser),
        ]);
        facts.extend(self.answer());
        facts
    }
}
