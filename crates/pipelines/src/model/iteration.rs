//! Iterations of passes and of training.

use anyhow::{Context, ensure};
use laptime_bench::{AxisValue, Device, Fact, Iteration, Nanos, Work};
use laptime_models::{Config, Decoder, ModelError, Replay, TensorSpec, Tokens, Trainer, random_batch};
use laptime_probe::{Lane, lap, stage, sync_point};
use laptime_stats::Rng;

use super::spec::{CHECKED_STEPS, Pass, Spec, facts, kept_facts, training_facts, work};
use crate::backend::Loaded;
use crate::check::{check_close, check_finite};

pub struct ModelIteration<'a> {
    spec: Spec,
    config: Config,
    model: Box<dyn Decoder + 'a>,
    weights: &'static str,
    lane: Option<&'a Lane>,
    /// The cached tokens when an iteration begins.
    prompt: Tokens,
    /// The input of an iteration; decoding continues with the sampled tokens.
    tokens: Tokens,
}

impl<'a> ModelIteration<'a> {
    /// Fills the cache for the first iteration.
    pub fn new(
        spec: Spec,
        config: Config,
        Loaded { model, weights }: Loaded<dyn Decoder + 'a>,
        device: &'a dyn Device,
    ) -> anyhow::Result<Self> {
        let mut rng = Rng::new(spec.seed);
        let mut random = |length: usize| -> anyhow::Result<Tokens> {
            let count = length.checked_mul(spec.batch).context("there are too many tokens")?;
            let ids = (0..count).map(|_| (rng.uniform() * config.vocab as f64) as u32).collect();
            Ok(Tokens { ids, batch: spec.batch })
        };
        let prompt = random(spec.prompt())?;
        let tokens = random(if spec.test.pass == Pass::Decode { 1 } else { spec.test.tokens })?;
        let mut iteration = Self { spec, config, model, weights, lane: device.lane(), prompt, tokens };
        if iteration.prompt.length() > 0 {
            let _stage = stage!("prompt", tokens = iteration.prompt.length());
            iteration.model.prefill(&iteration.prompt)?;
        }
        Ok(iteration)
    }

    fn decode(&mut self) -> Result<(), ModelError> {
        let Self { model, spec, lane, .. } = self;
        {
            let _stage = stage!("decode", on = *lane, tokens = spec.test.tokens);
            for token in 0..spec.test.tokens {
                let replay = model.next_replay()?;
                let _lap = lap!("token", on = *lane, token = token, replay = replay);
                model.step()?;
            }
        }
        sync_point!("read_tokens", model.sampled())?;
        Ok(())
    }

    /// Compares decode steps with a prefill of the same tokens, to detect a wrong cache.
    fn check_steps(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("check_steps");
        let (batch, prompt) = (self.spec.batch, self.spec.prompt());
        let mut ran: Vec<Vec<u32>> = Vec::new();
        let mut next = self.tokens.ids.clone();
        for _ in 0..self.spec.test.tokens.min(CHECKED_STEPS) {
            ran.push(next);
            self.model.step()?;
            next = self.model.sampled()?;
        }
        let stepped = self.model.logits()?;
        let ids = (0..batch).flat_map(|sequence| ran.iter().filter_map(move |ids| ids.get(sequence).copied()));
        let tokens = Tokens { ids: ids.collect(), batch };
        self.model.truncate(prompt)?;
        self.model.prefill(&tokens)?;
        let at_once = self.model.logits()?;
        check_finite("logit", &stepped, 0)?;
        ensure!(stepped.len() == at_once.len(), "steps give {} logits, a prefill {}", stepped.len(), at_once.len());
        check_close(&stepped, &at_once, self.spec.dtype).map_err(|(at, [step, prefill])| {
            anyhow::anyhow!(
                "the cache is wrong: logit {at} is {step} after steps and {prefill} after a prefill of the same tokens"
            )
        })
    }

    fn check_logits(&mut self) -> anyhow::Result<()> {
        let positions = if self.spec.test.pass.has_cache() { 1 } else { self.spec.test.tokens };
        let expected = self.spec.batch * positions * self.config.vocab;
        let (mut seen, mut wrong) = (0, Ok(()));
        let mut inspect_logits = |row: &[f32]| {
            if wrong.is_ok() {
                wrong = check_finite("logit", row, seen);
            }
            seen += row.len();
        };
        self.model.inspect_logits(&mut inspect_logits)?;
        wrong?;
        ensure!(seen == expected, "there are {seen} logits, expected {expected}");
        Ok(())
    }

    /// The cache must contain the prompt and the tokens of the pass.
    fn check_length(&mut self) -> anyhow::Result<()> {
        if !self.spec.test.pass.has_cache() {
            return Ok(());
        }
        let expected = self.spec.positions();
        let length = self.model.length();
        ensure!(length == expected, "the cache holds {length} positions, expected {expected}");
        Ok(())
    }
}

impl Iteration for ModelIteration<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        if self.spec.test.pass == Pass::Decode {
            self.ready()?;
            self.check_steps()?;
        }
        self.ready()?;
        self.run()?;
        self.check_logits()?;
        self.check_length()
    }

    fn ready(&mut self) -> anyhow::Result<()> {
        let Self { model, spec, tokens, .. } = self;
        if spec.test.pass.has_cache() {
            model.truncate(spec.prompt())?;
        }
        if spec.test.pass == Pass::Decode {
            model.set_next(&tokens.ids)?;
        }
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let Self { model, tokens, lane, spec, .. } = self;
        match spec.test.pass {
            Pass::Prefill => {
                let replay = model.next_prefill_replay(spec.test.tokens)?;
                let _stage = stage!("prefill", on = *lane, tokens = spec.test.tokens, replay = replay);
                model.prefill(tokens)?;
            }
            Pass::Decode => self.decode()?,
            // Training has a separate iteration.
            _ => {
                let _stage = stage!("forward", on = *lane, tokens = spec.test.tokens);
                model.forward(tokens)?;
            }
        }
        Ok(())
    }

    fn readings(&mut self, wall: Nanos) -> Vec<Option<f64>> {
        let tokens = (self.spec.batch * self.spec.test.tokens) as f64;
        let rate = (wall.0 > 0).then(|| tokens * 1e9 / wall.0 as f64);
        let wall_ms = wall.0 as f64 / 1e6;
        let (first, each) = match self.spec.test.pass {
            Pass::Prefill => (Some(wall_ms), None),
            Pass::Decode => (None, Some(wall_ms / self.spec.test.tokens as f64)),
            _ => (None, None),
        };
        vec![rate, first, each, None]
    }

    fn work(&self) -> Option<Work> {
        Some(work(&self.config, &self.spec))
    }

    fn facts(&self) -> Vec<Fact> {
        let mut facts = facts(&self.config, &self.spec);
        facts.push(Fact::new("weights", self.weights));
        facts.extend(self.spec.kept.iter().flat_map(|kept| kept_facts(kept, self.spec.test.tokens)));
        match self.spec.test.pass {
            Pass::Decode => facts.push(Fact::new("steps", replay(&self.model.replay()))),
            Pass::Prefill => facts.push(Fact::new("prompts", replay(&self.model.prompt_replay()))),
            _ => {}
        }
        facts
    }
}

fn replay(replay: &Replay) -> String {
    match replay {
        Replay::Graph { nodes } => format!("a graph of {nodes} nodes"),
        Replay::Launches => "launches".to_owned(),
        Replay::FellBack(reason) => format!("launches, since there is no graph: {reason}"),
    }
}

/// Training passes; every iteration runs the same batch.
pub struct TrainIteration<'a> {
    spec: Spec,
    model: Box<dyn Trainer + 'a>,
    weights: &'static str,
    lane: Option<&'a Lane>,
    tokens: Tokens,
    targets: Vec<u32>,
    steps: u64,
    /// The loss of the check, if its step was the first.
    check_loss: Option<f64>,
}

impl<'a> TrainIteration<'a> {
    pub fn new(spec: Spec, loaded: Loaded<dyn Trainer + 'a>, device: &'a dyn Device) -> anyhow::Result<Self> {
        let Loaded { model, weights } = loaded;
        let (tokens, targets) = random_batch(model.config(), spec.batch, spec.test.tokens, spec.seed)?;
        Ok(Self { spec, model, weights, lane: device.lane(), tokens, targets, steps: 0, check_loss: None })
    }

    fn forward(&mut self) -> Result<(), ModelError> {
        let _stage = stage!("forward", on = self.lane, tokens = self.spec.test.tokens);
        self.model.forward(&self.tokens, &self.targets)
    }

    fn backward(&mut self) -> Result<(), ModelError> {
        let _stage = stage!("backward", on = self.lane, tokens = self.spec.test.tokens);
        self.model.backward()
    }

    fn update(&mut self) -> Result<(), ModelError> {
        let _stage = stage!("optimizer", on = self.lane);
        self.model.update()
    }

    /// Gradients must be finite, and not all 0.
    fn check_gradients(&mut self) -> anyhow::Result<()> {
        let mut has_some = false;
        for tensor in checked_tensors(self.model.config()) {
            let gradient = self.model.gradient(&tensor)?;
            check_tensor("the gradient of tensor", &tensor, &gradient)?;
            has_some |= gradient.iter().any(|number| *number != 0.0);
        }
        ensure!(has_some, "every gradient is 0");
        Ok(())
    }

    /// An update must leave finite numbers.
    fn check_parameters(&mut self) -> anyhow::Result<()> {
        for tensor in checked_tensors(self.model.config()) {
            let numbers = self.model.parameter(&tensor)?;
            check_tensor("after an update tensor", &tensor, &numbers)?;
        }
        Ok(())
    }
}

/// The checked tensors: both ends of the model and its first and last layer. All gradients pass through them.
fn checked_tensors(config: &Config) -> Vec<TensorSpec> {
    let mut tensors = vec![config.embedding_tensor(), config.final_norm_tensor()];
    tensors.extend(config.head_tensor());
    let last = config.layers.saturating_sub(1);
    tensors.extend(config.layer_tensors(0));
    if last > 0 {
        tensors.extend(config.layer_tensors(last));
    }
    tensors
}

fn check_tensor(what: &str, tensor: &TensorSpec, numbers: &[f32]) -> anyhow::Result<()> {
    match numbers.iter().find(|number| !number.is_finite()) {
        Some(number) => anyhow::bail!("{what} `{}` holds {number}", tensor.name),
        None => Ok(()),
    }
}

impl Iteration for TrainIteration<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.ready()?;
        self.run()?;
        let loss = self.model.loss()?;
        ensure!(loss.is_finite(), "the loss is {loss}: the weights may contain NaN or infinity");
        self.check_loss = (self.steps == 1).then_some(f64::from(loss));
        self.check_gradients()?;
        if self.spec.test.pass == Pass::Step { self.check_parameters() } else { Ok(()) }
    }

    fn ready(&mut self) -> anyhow::Result<()> {
        if self.spec.test.pass == Pass::Backward {
            self.forward()?;
        }
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<()> {
        if self.spec.test.pass != Pass::Backward {
            self.forward()?;
        }
        self.backward()?;
        if self.spec.test.pass == Pass::Step {
            self.update()?;
        }
        self.steps += 1;
        Ok(())
    }

    fn readings(&mut self, wall: Nanos) -> Vec<Option<f64>> {
        let tokens = self.spec.batch as f64 * self.spec.test.tokens as f64;
        let rate = (wall.0 > 0).then(|| tokens * 1e9 / wall.0 as f64);
        let loss = self.model.loss().ok().map(f64::from);
        vec![rate, None, None, loss]
    }

    fn work(&self) -> Option<Work> {
        Some(work(self.model.config(), &self.spec))
    }

    fn facts(&self) -> Vec<Fact> {
        let mut facts = facts(self.model.config(), &self.spec);
        facts.extend(training_facts(self.model.config(), self.model.options()));
        facts.push(Fact::new("weights", self.weights));
        // A curve of losses begins with the first update, which is that of the check.
        let check_loss = self.check_loss.filter(|_| self.spec.test.pass == Pass::Step);
        facts.extend(check_loss.map(|loss| Fact::new("check_loss", AxisValue::Float(loss))));
        facts
    }
}
