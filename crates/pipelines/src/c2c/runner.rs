//! Two models and a fuser on a device, run stage by stage.

use laptime_bench::{Device, Fact};
use laptime_models::fuser::{C2c, FuseOptions, FuseOrder, Fused, Fusing, Gates, Response};
use laptime_models::{CacheCapacity, Config, EmbeddingStage, GraphMode, Marks, ModelError, Options, Tokens, cpu};
use laptime_probe::{Lane, lap, pause, stage, sync_point};

use super::pair::{Pair, Spec, bytes, sizes};
use crate::backend::{Target, decoder, fuser, if_gpu, is_gpu, marks, second, second_lane};
use crate::model::{Found, checked_weights};
use crate::request::fact;

pub struct Runner<'a> {
    pub pair: Pair,
    pub spec: Spec,
    pub device: &'a dyn Device,
    pub c2c: C2c<'a>,
    /// Where the weights of the base model, the teacher and the fuser come from.
    weights: [&'static str; 3],
    lane: Option<&'a Lane>,
    teacher_lane: Option<&'a Lane>,
    /// The first logits with the paths computed in the other order.
    pub in_other_order: Vec<f32>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Read {
    pub fused: Fused,
    pub teacher_calls: u64,
    /// Time of the projectors; none if the device may still be working when the host continues.
    pub projector_ns: Option<u64>,
}

/// Times of both prefills, each alone and both together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Prefills {
    pub base_ns: u64,
    pub teacher_ns: u64,
    pub together_ns: u64,
}

impl Prefills {
    /// Hidden time: the sum of both times alone minus the time together. Negative if they slow each other down.
    pub fn hidden_ns(&self) -> f64 {
        self.base_ns as f64 + self.teacher_ns as f64 - self.together_ns as f64
    }

    /// The hidden time as a share of the shorter prefill, which is the most that can be hidden.
    pub fn hidden_share(&self) -> Option<f64> {
        let shorter = self.base_ns.min(self.teacher_ns);
        (shorter > 0).then(|| self.hidden_ns() / shorter as f64)
    }
}

impl<'a> Runner<'a> {
    /// Loads everything, and runs the prompt once in the other order.
    pub fn new(pair: Pair, spec: Spec, device: &'a dyn Device) -> anyhow::Result<Self> {
        let other = match spec.order {
            FuseOrder::Batched => FuseOrder::ByLayer,
            FuseOrder::ByLayer => FuseOrder::Batched,
        };
        let teacher_lane = if spec.overlap { second_lane(device)? } else { device.lane() };
        let (mut c2c, weights) = load(&pair, &spec, other, (device, teacher_lane))?;
        c2c.check(&pair.prompt, spec.new_tokens, spec.response)?;
        let in_other_order = {
            let _stage = stage!("run_in_other_order");
            c2c.read(&pair.prompt, spec.response)?;
            c2c.receiver.logits()?
        };
        let C2c { receiver, sharers, fuser } = c2c;
        // Two fusers may not fit.
        drop(fuser);
        let c2c = C2c { receiver, sharers, fuser: load_fuser(&pair, &spec, spec.order, device)? };
        Ok(Self { pair, spec, device, c2c, weights, lane: device.lane(), teacher_lane, in_other_order })
    }

    /// Processes the prompt section by section, and fuses the caches.
    pub fn read(&mut self) -> Result<Read, ModelError> {
        let mut read = Read::default();
        let sections = self.pair.prompt.sections.len();
        if self.spec.overlap && self.pair.teacher_tokens(&self.spec) > 0 {
            // The teacher first: it usually takes longer, and runs while the host launches the base model.
            self.share(&mut read)?;
        }
        for at in 0..sections {
            self.run_section(at, at + 1 == sections)?;
            let is_plain = self.pair.prompt.sections[at].mask.is_none();
            if is_plain && self.spec.response == Response::Plain {
                continue;
            }
            if read.teacher_calls == 0 {
                self.share(&mut read)?;
            }
            self.fuse(at, is_plain, &mut read)?;
        }
        Ok(read)
    }

    fn run_section(&mut self, at: usize, is_last: bool) -> Result<(), ModelError> {
        let Self { pair, c2c, lane, .. } = self;
        let section = &pair.prompt.sections[at];
        let (tokens, replay) = (section.positions.len(), c2c.section_replay(section)?);
        let _stage = match is_last {
            true => stage!("last_token_prefill", on = *lane, tokens = tokens, replay = replay),
            false => stage!("base_prefill", on = *lane, tokens = tokens),
        };
        c2c.run_section(&pair.prompt, section)
    }

    /// Runs the teacher's prefill.
    fn share(&mut self, read: &mut Read) -> Result<(), ModelError> {
        let Self { pair, c2c, spec, .. } = self;
        let (lane, replay) = (self.teacher_lane, c2c.share_replay(&pair.prompt, spec.response)?);
        let _stage = stage!("teacher_prefill", on = lane, tokens = pair.teacher_tokens(spec), replay = replay);
        c2c.share(&pair.prompt, spec.response)?;
        read.teacher_calls += 1;
        Ok(())
    }

    fn fuse(&mut self, at: usize, is_plain: bool, read: &mut Read) -> Result<(), ModelError> {
        let start = self.device.now();
        let (section, c2c) = (&self.pair.prompt.sections[at], &mut self.c2c);
        let fused = match (is_plain, self.spec.response) {
            (true, Response::Fused(mask)) => c2c.fuse_last(section.positions.len(), mask)?,
            _ => c2c.fuse_section(section)?,
        };
        read.fused = read.fused.plus(fused);
        let took = self.device.now().saturating_sub(start).0;
        // Queued work may not be done yet.
        read.projector_ns = self.lane.is_none().then(|| read.projector_ns.unwrap_or(0).saturating_add(took));
        Ok(())
    }

    /// Waits for the sampled token.
    pub fn sample(&mut self) -> Result<Vec<u32>, ModelError> {
        let _stage = stage!("sampling", on = self.lane);
        sync_point!("read_token", self.c2c.receiver.sampled())
    }

    /// Continues after the first token, token by token.
    pub fn decode(&mut self, tokens: &mut Vec<u32>) -> Result<Fused, ModelError> {
        let _stage = stage!("decode", on = self.lane, tokens = self.steps());
        let mut fused = Fused::default();
        for token in 1..=self.steps() {
            {
                let replay = self.c2c.step_replay(self.spec.response)?;
                let _lap = lap!("token", on = self.lane, token = token, replay = replay);
                fused = fused.plus(self.c2c.step(self.spec.response)?);
            }
            tokens.extend(self.sample()?);
        }
        Ok(fused)
    }

    /// Decode steps; the first token comes from the prefill.
    pub fn steps(&self) -> usize {
        self.spec.new_tokens.saturating_sub(1)
    }

    /// Decode steps that the teacher runs too, if the response is fused.
    pub fn teacher_steps(&self) -> u64 {
        match self.spec.response {
            Response::Plain => 0,
            Response::Fused(_) => self.steps() as u64,
        }
    }

    /// Communication by text: the teacher generates this many tokens, and the base model prefills the prompt with them.
    pub fn read_with_text(&mut self, count: usize) -> Result<(), ModelError> {
        let text = self.write_text(count)?;
        let vocab = self.pair.base.config.vocab.max(1);
        // The translation of tokens between the models does not affect the time.
        let text = text.into_iter().map(|id| (id as usize % vocab) as u32);
        let ids: Vec<u32> = self.pair.prompt.receiver.iter().copied().chain(text).collect();
        let _stage = stage!("base_prefill", on = self.lane, tokens = ids.len());
        self.c2c.receiver.prefill(&Tokens::one(ids))
    }

    fn write_text(&mut self, count: usize) -> Result<Vec<u32>, ModelError> {
        let Self { pair, c2c, .. } = self;
        let (lane, Some(teacher)) = (self.teacher_lane, c2c.sharers.first_mut()) else {
            return Err(ModelError::Refused("there is no teacher".to_owned()));
        };
        {
            let _stage = stage!("teacher_prefill", on = lane, tokens = pair.teacher_prompt().len());
            teacher.prefill(&Tokens::one(pair.teacher_prompt().to_vec()))?;
        }
        let _stage = stage!("write_text", on = lane, tokens = count);
        let mut text = Vec::with_capacity(count.min(1 << 16));
        text.extend(sync_point!("read_token", teacher.sampled()?));
        for token in 1..count {
            let replay = teacher.next_replay()?;
            let _lap = lap!("text_token", on = lane, token = token, replay = replay);
            teacher.step()?;
            text.extend(sync_point!("read_token", teacher.sampled()?));
        }
        Ok(text)
    }

    pub fn read_alone(&mut self) -> Result<(), ModelError> {
        let ids = self.pair.prompt.receiver.clone();
        let _stage = stage!("base_prefill", on = self.lane, tokens = ids.len());
        self.c2c.receiver.prefill(&Tokens::one(ids))
    }

    /// Measures both prefills alone and together, without recording them.
    pub fn prefills(&mut self) -> anyhow::Result<Prefills> {
        let _paused = pause();
        let mut nothing = Read::default();
        let base_ns = self.timed(|runner| runner.run_section(0, false))?;
        let teacher_ns = self.timed(|runner| runner.share(&mut nothing))?;
        let together_ns = self.timed(|runner| {
            runner.share(&mut nothing)?;
            runner.run_section(0, false)
        })?;
        self.c2c.clear()?;
        Ok(Prefills { base_ns, teacher_ns, together_ns })
    }

    fn timed(&mut self, act: impl FnOnce(&mut Self) -> Result<(), ModelError>) -> anyhow::Result<u64> {
        self.be_idle()?;
        let start = self.device.now();
        act(self)?;
        self.device.synchronise()?;
        Ok(self.device.now().saturating_sub(start).0)
    }

    /// Empties both caches and waits for the device.
    pub fn be_idle(&mut self) -> anyhow::Result<()> {
        self.c2c.clear()?;
        self.device.chill()?;
        self.device.synchronise()
    }

    pub fn gates(&self) -> Gates {
        let gates = self.c2c.fuser.gates().first().cloned();
        gates.unwrap_or_else(|| Gates::open(self.pair.base.config.layers))
    }

    pub fn facts(&self) -> Vec<Fact> {
        let mut facts = sizes(&self.pair, &self.spec);
        let known = bytes(&self.pair, &self.spec).into_iter().fold(0, u64::saturating_add);
        if let Some(peak) = self.device.peak_bytes() {
            facts.push(fact("activation_bytes", peak.saturating_sub(known)));
        }
        let [base, teacher, fuser] = self.weights;
        facts.extend([
            Fact::new("weights", base),
            Fact::new("teacher_weights", teacher),
            Fact::new("fuser_weights", fuser),
        ]);
        facts
    }
}

/// Why a device cannot run a case, if it cannot.
pub fn refusal(spec: &Spec, device: &dyn Device) -> Option<String> {
    let has_streams = is_gpu(device);
    (spec.overlap && !has_streams).then(|| format!("`{}` has no second stream for the second prompt", device.name()))
}

/// Loads both models and a fuser. If both prefills overlap, the teacher has its own stream.
fn load<'a>(
    pair: &Pair,
    spec: &Spec,
    order: FuseOrder,
    (device, teacher_lane): (&'a dyn Device, Option<&Lane>),
) -> anyhow::Result<(C2c<'a>, [&'static str; 3])> {
    let [mut base, mut teacher] = options(pair, spec);
    base.marks = Marks { embedding: EmbeddingStage::Base, ..marks(device) };
    teacher.marks = Marks { lane: teacher_lane.cloned(), embedding: EmbeddingStage::Teacher, ..marks(device) };
    let weights = |found: &Found| {
        let _stage = stage!("load_weights", model = found.name);
        checked_weights(found, spec.seed)
    };
    let on = Target { device, threads: spec.threads };
    let (base_weights, of_base) = weights(&pair.base)?;
    let receiver = decoder(&pair.base.config, &base_weights, base, on)?;
    drop(base_weights);
    let (teacher_weights, of_teacher) = weights(&pair.teacher)?;
    let sharer = if spec.overlap { second } else { decoder };
    let sharer = sharer(&pair.teacher.config, &teacher_weights, teacher, on)?;
    pair.weights.check_finite(&pair.fuser)?;
    let of_fuser = if pair.weights.is_synthetic() { "synthetic" } else { "folder" };
    let c2c = C2c { receiver, sharers: vec![sharer], fuser: load_fuser(pair, spec, order, device)? };
    Ok((c2c, [of_base, of_teacher, of_fuser]))
}

fn load_fuser<'a>(
    pair: &Pair,
    spec: &Spec,
    order: FuseOrder,
    device: &'a dyn Device,
) -> Result<Box<dyn Fusing + 'a>, ModelError> {
    let _stage = stage!("load_fuser");
    let options = FuseOptions { order, marks: marks(device), ..FuseOptions::new(pair.dtype) };
    fuser(vec![(pair.fuser.clone(), &pair.weights)], options, Target { device, threads: spec.threads })
}

/// The options of both models, without marks.
fn options(pair: &Pair, spec: &Spec) -> [Options; 2] {
    let one = |config: &Config, capacity: usize| Options {
        dtype: pair.dtype,
        attention: config.attention_type,
        kept: None,
        batch: 1,
        capacity: CacheCapacity::Static(capacity),
        graph: GraphMode::Auto,
        marks: Marks::default(),
        offload: None,
    };
    [one(&pair.base.config, pair.positions(spec)), one(&pair.teacher.config, pair.teacher_positions(spec).max(1))]
}

/// The predicted peak memory of a case: heap or GPU memory.
pub fn needed_bytes(pair: &Pair, spec: &Spec, device: &dyn Device) -> u64 {
    let [base, teacher] = options(pair, spec);
    let text = spec.text_tokens.unwrap_or(0);
    let read = pair.tokens().saturating_add(text);
    let taught = pair.teacher_tokens(spec).max(if text > 0 { pair.teacher_prompt().len() } else { 1 });
    let (fusers, fuse) = (std::slice::from_ref(&pair.fuser), FuseOptions::new(pair.dtype));
    let sum = |parts: &[u64]| parts.iter().copied().fold(0, u64::saturating_add);
    if_gpu!(device, _gpu => sum(&[
        laptime_models::gpu::needed_bytes(&pair.base.config, &base, read, false),
        laptime_models::gpu::needed_bytes(&pair.teacher.config, &teacher, taught, false),
        laptime_models::gpu::needed_fuser_bytes(fusers, &fuse, [1, pair.tokens()]),
    ]));
    let rest = pair.positions(spec).saturating_sub(read);
    let taught_rest = pair.teacher_positions(spec).saturating_sub(taught);
    let needed = |threads: usize| {
        [
            cpu::needed_bytes(&pair.base.config, &base, cpu::Pass::Cached, [rest, read], threads),
            cpu::needed_bytes(&pair.teacher.config, &teacher, cpu::Pass::Cached, [taught_rest, taught], threads),
            cpu::needed_fuser_bytes(fusers, &fuse, [1, pair.tokens()], threads),
        ]
    };
    // Each of the three has its own threads, whose workspaces persist, but only one of them runs at a time.
    let (persistent, all) = (needed(0), needed(spec.threads));
    let of_threads = all.into_iter().zip(persistent).map(|(all, kept)| all.saturating_sub(kept)).max().unwrap_or(0);
    let workspaces = cpu::workspace_bytes().saturating_mul(2 * spec.threads as u64);
    // The check compares two rows of logits as f32.
    let logits = (pair.base.config.vocab as u64).saturating_mul(8);
    sum(&[sum(&persistent), of_threads, workspaces, logits])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_time_is_the_sum_of_both_alone_less_the_time_together() {
        let prefills = Prefills { base_ns: 20, teacher_ns: 100, together_ns: 105 };
        assert_eq!((prefills.hidden_ns(), prefills.hidden_share()), (15.0, Some(0.75)));
        let hindered = Prefills { together_ns: 130, ..prefills };
        assert_eq!(hindered.hidden_ns(), -10.0);
        assert_eq!(Prefills::default().hidden_share(), None);
    }
}
