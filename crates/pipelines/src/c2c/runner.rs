//! Two models and a fuser on a device, run stage by stage.

use laptime_bench::{Device, Fact};
use laptime_models::fuser::{C2c, FuseOptions, FuseOrder, Fused, Fusing, Gates, Response};
use laptime_models::{
    CacheCapacity, Config, EmbeddingStage, GraphMode, Marks, ModelError, Options, Tokens, Weights, cpu,
};
use laptime_probe::{Lane, lap, pause, stage, sync_point};

use super::pair::{Pair, Spec, bytes, sizes};
use crate::backend::{Target, decoder, fuser, if_gpu, into_error, is_gpu, marks, second, second_lane};
use crate::model::{Found, checked_weights};
use crate::request::fact;

pub struct Runner<'a> {
    pub pair: Pair,
    pub spec: Spec,
    pub device: &'a dyn Device,
    pub made: Loaded<'a>,
    lane: Option<&'a Lane>,
    /// The first logits with paths computed in the other order.
    pub in_other_order: Vec<f32>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Read {
    pub fused: Fused,
    pub teacher_calls: u64,
    /// Time of the projectors; none if the device may still be working when the host continues.
    pub projector_ns: Option<u64>,
}

/// How long both prompts took to read, each alone and both together.
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

    /// The same as a share of what could be hidden: the shorter of the two.
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
        let Loaded { mut c2c, weights, teacher_lane } = make(&pair, &spec, other, device)?;
        c2c.check(&pair.prompt, spec.new_tokens, spec.response).map_err(into_error)?;
        let in_other_order = {
            let _stage = stage!("run_in_other_order");
            c2c.read(&pair.prompt, spec.response).map_err(into_error)?;
            c2c.receiver.logits().map_err(into_error)?
        };
        let C2c { receiver, sharers, fuser } = c2c;
        // Two fusers may not fit.
        drop(fuser);
        let c2c = C2c { receiver, sharers, fuser: load_fuser(&pair, &spec, spec.order, device)? };
        let made = Loaded { c2c, weights, teacher_lane };
        Ok(Self { pair, spec, device, made, lane: device.lane(), in_other_order })
    }

    /// Processes the prompt section by section, and fuses the caches.
    pub fn read(&mut self) -> Result<Read, ModelError> {
        let mut read = Read::default();
        let sections = self.pair.prompt.sections.len();
        if self.spec.overlap && self.pair.heard(&self.spec) > 0 {
            // The longer one is first: it runs while the host launches the other one.
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
        let Self { pair, made, lane, .. } = self;
        let section = &pair.prompt.sections[at];
        let (tokens, replay) = (section.positions.len(), made.c2c.section_replay(section)?);
        let _stage = match is_last {
            true => stage!("last_token_prefill", on = *lane, tokens = tokens, replay = replay),
            false => stage!("base_prefill", on = *lane, tokens = tokens),
        };
        made.c2c.run_section(&pair.prompt, section)
    }

    /// Runs the teacher over all sections that are fused.
    fn share(&mut self, read: &mut Read) -> Result<(), ModelError> {
        let Self { pair, made, spec, .. } = self;
        let (lane, replay) = (made.teacher_lane, made.c2c.share_replay(&pair.prompt, spec.response)?);
        let _stage = stage!("teacher_prefill", on = lane, tokens = pair.heard(spec), replay = replay);
        made.c2c.share(&pair.prompt, spec.response)?;
        read.teacher_calls += 1;
        Ok(())
    }

    fn fuse(&mut self, at: usize, is_plain: bool, read: &mut Read) -> Result<(), ModelError> {
        let start = self.device.now();
        let (section, c2c) = (&self.pair.prompt.sections[at], &mut self.made.c2c);
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

    /// The sampled token; the host waits for it here.
    pub fn sample(&mut self) -> Result<Vec<u32>, ModelError> {
        let _stage = stage!("sampling", on = self.lane);
        sync_point!("read_token", self.made.c2c.receiver.sampled())
    }

    /// Continues after the first token, token by token.
    pub fn decode(&mut self, tokens: &mut Vec<u32>) -> Result<Fused, ModelError> {
        let _stage = stage!("decode", on = self.lane, tokens = self.steps());
        let mut fused = Fused::default();
        for token in 1..=self.steps() {
            {
                let replay = self.made.c2c.step_replay(self.spec.response)?;
                let _lap = lap!("token", on = self.lane, token = token, replay = replay);
                fused = fused.plus(self.made.c2c.step(self.spec.response)?);
            }
            tokens.extend(self.sample()?);
        }
        Ok(fused)
    }

    /// Decode steps: the first token is the prompt's.
    pub fn steps(&self) -> usize {
        self.spec.new_tokens.saturating_sub(1)
    }

    /// Decode steps that the teacher runs too: it reads each new token if the response is fused.
    pub fn teacher_steps(&self) -> u64 {
        match self.spec.response {
            Response::Plain => 0,
            Response::Fused(_) => self.steps() as u64,
        }
    }

    /// Text between the models: the teacher reads the prompt and writes this many tokens, each of which is read, and the
    /// base model reads the prompt with them.
    pub fn read_with_text(&mut self, count: usize) -> Result<(), ModelError> {
        let text = self.write_text(count)?;
        let vocab = self.pair.base.config.vocab.max(1);
        // The translation of tokens between the models does not affect the time.
        let text = text.into_iter().map(|id| (id as usize % vocab) as u32);
        let ids: Vec<u32> = self.pair.prompt.receiver.iter().copied().chain(text).collect();
        let _stage = stage!("base_prefill", on = self.lane, tokens = ids.len());
        self.made.c2c.receiver.prefill(&Tokens::one(ids))
    }

    fn write_text(&mut self, count: usize) -> Result<Vec<u32>, ModelError> {
        let Self { pair, made, .. } = self;
        let (lane, Some(teacher)) = (made.teacher_lane, made.c2c.sharers.first_mut()) else {
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
        self.made.c2c.receiver.prefill(&Tokens::one(ids))
    }

    /// Reads both prompts alone and together, with the device idle at both ends of each. Nothing of it is recorded.
    pub fn prefills(&mut self) -> anyhow::Result<Prefills> {
        let _paused = pause();
        let mut nothing = Read::default();
        let base_ns = self.timed(|runner| runner.run_section(0, false))?;
        let teacher_ns = self.timed(|runner| runner.share(&mut nothing))?;
        let together_ns = self.timed(|runner| {
            runner.share(&mut nothing)?;
            runner.run_section(0, false)
        })?;
        self.made.c2c.clear().map_err(into_error)?;
        Ok(Prefills { base_ns, teacher_ns, together_ns })
    }

    fn timed(&mut self, act: impl FnOnce(&mut Self) -> Result<(), ModelError>) -> anyhow::Result<u64> {
        self.be_idle()?;
        let start = self.device.now();
        act(self).map_err(into_error)?;
        self.device.synchronise()?;
        Ok(self.device.now().saturating_sub(start).0)
    }

    /// Empties both caches, as every iteration finds them, and waits for the device.
    pub fn be_idle(&mut self) -> anyhow::Result<()> {
        self.made.c2c.clear().map_err(into_error)?;
        self.device.chill()?;
        self.device.synchronise()
    }

    pub fn gates(&self) -> Gates {
        let gates = self.made.c2c.fuser.gates().first().cloned();
        gates.unwrap_or_else(|| Gates::open(self.pair.base.config.layers))
    }

    /// Facts about both models and the fuser, and the memory that they take.
    pub fn facts(&self) -> Vec<Fact> {
        let mut facts = sizes(&self.pair, &self.spec);
        let known = bytes(&self.pair, &self.spec).into_iter().fold(0, u64::saturating_add);
        if let Some(peak) = self.device.peak_bytes() {
            facts.push(fact("activation_bytes", peak.saturating_sub(known)));
        }
        let [base, teacher, fuser] = self.made.weights;
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

pub struct Loaded<'a> {
    pub c2c: C2c<'a>,
    /// Where the weights of the base model, the teacher model and the fuser come from.
    pub weights: [&'static str; 3],
    pub teacher_lane: Option<&'a Lane>,
}

/// Loads both models and a fuser. If both models run at the same time, the teacher has a stream of its own.
fn make<'a>(pair: &Pair, spec: &Spec, order: FuseOrder, device: &'a dyn Device) -> anyhow::Result<Loaded<'a>> {
    let teacher_lane = if spec.overlap { second_lane(device)? } else { device.lane() };
    let [mut base, mut teacher] = options(pair, spec);
    base.marks = Marks { embedding: EmbeddingStage::Base, ..marks(device) };
    teacher.marks = Marks { lane: teacher_lane.cloned(), embedding: EmbeddingStage::Teacher, ..marks(device) };
    let (weights, of_base) = load(&pair.base, spec)?;
    let on = Target { device, threads: spec.threads };
    let receiver = decoder(&pair.base.config, &weights, base, on)?;
    let (weights, of_teacher) = load(&pair.teacher, spec)?;
    let sharer = if spec.overlap { second } else { decoder };
    let sharer = sharer(&pair.teacher.config, &weights, teacher, on)?;
    let of_fuser = if pair.weights.is_synthetic() { "synthetic" } else { "folder" };
    pair.weights.check_finite(&pair.fuser).map_err(into_error)?;
    let c2c = C2c { receiver, sharers: vec![sharer], fuser: load_fuser(pair, spec, order, device)? };
    Ok(Loaded { c2c, weights: [of_base, of_teacher, of_fuser], teacher_lane })
}

fn load(found: &Found, spec: &Spec) -> anyhow::Result<(Weights, &'static str)> {
    let _stage = stage!("load_weights", model = found.name);
    checked_weights(found, spec.seed)
}

fn load_fuser<'a>(
    pair: &Pair,
    spec: &Spec,
    order: FuseOrder,
    device: &'a dyn Device,
) -> anyhow::Result<Box<dyn Fusing + 'a>> {
    let _stage = stage!("load_fuser");
    let options = FuseOptions { order, marks: marks(device), ..FuseOptions::new(pair.dtype) };
    fuser(vec![(pair.fuser.clone(), &pair.weights)], options, Target { device, threads: spec.threads })
}

/// Of both models, without marks.
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

/// Bytes that a case needs at most: of the heap, or of a GPU.
pub fn needed_bytes(pair: &Pair, spec: &Spec, device: &dyn Device) -> u64 {
    let [base, teacher] = options(pair, spec);
    let text = spec.text_tokens.unwrap_or(0);
    let read = pair.tokens().saturating_add(text);
    let heard = pair.heard(spec).max(if text > 0 { pair.teacher_prompt().len() } else { 1 });
    let (fusers, fuse) = (std::slice::from_ref(&pair.fuser), FuseOptions::new(pair.dtype));
    let sum = |parts: &[u64]| parts.iter().copied().fold(0, u64::saturating_add);
    if_gpu!(device, _gpu => sum(&[
        laptime_models::gpu::needed_bytes(&pair.base.config, &base, read, false),
        laptime_models::gpu::needed_bytes(&pair.teacher.config, &teacher, heard, false),
        laptime_models::gpu::needed_fuser_bytes(fusers, &fuse, [1, pair.tokens()]),
    ]));
    let behind = pair.positions(spec).saturating_sub(read);
    let behind_heard = pair.teacher_positions(spec).saturating_sub(heard);
    let needed = |threads: usize| {
        [
            cpu::needed_bytes(&pair.base.config, &base, cpu::Pass::Cached, [behind, read], threads),
            cpu::needed_bytes(&pair.teacher.config, &teacher, cpu::Pass::Cached, [behind_heard, heard], threads),
            cpu::needed_fuser_bytes(fusers, &fuse, [1, pair.tokens()], threads),
        ]
    };
    // The three have threads of their own, whose workspaces stay, but only one of them runs at a time.
    let (stays, all) = (needed(0), needed(spec.threads));
    let of_threads = all.into_iter().zip(stays).map(|(all, stays)| all.saturating_sub(stays)).max().unwrap_or(0);
    let workspaces = cpu::workspace_bytes().saturating_mul(2 * spec.threads as u64);
    // The check looks at two rows of logits as f32.
    let logits = (pair.base.config.vocab as u64).saturating_mul(8);
    sum(&[sum(&stays), of_threads, workspaces, logits])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_what_both_take_alone_less_what_they_take_together() {
        let prefills = Prefills { base_ns: 20, teacher_ns: 100, together_ns: 105 };
        assert_eq!((prefills.hidden_ns(), prefills.hidden_share()), (15.0, Some(0.75)));
        let hindered = Prefills { together_ns: 130, ..prefills };
        assert_eq!(hindered.hidden_ns(), -10.0);
        assert_eq!(Prefills::default().hidden_share(), None);
    }
}
