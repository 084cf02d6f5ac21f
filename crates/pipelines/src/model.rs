//! The workload `model`: passes of a transformer, with synthetic weights or those of a folder.

mod axes;
mod built_in;
mod course;
mod extras;
mod iteration;
mod make;
#[cfg(feature = "cuda")]
mod on_gpu;
mod plan;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod scripted_trainer;
mod spec;
mod test_name;
#[cfg(test)]
mod tests;
mod train_iteration;
#[cfg(test)]
mod training_tests;
mod work;

use laptime_bench::{
    Alias, AxisSpec, Better, Case, Device, Fact, Given, MetricSpec, ParsedCase, Plan, PlanError, Prepared, Work,
    Workload,
};
use laptime_models::{AdamW, Config, Marks, Options, TrainOptions};

pub(crate) use self::extras::{NO_SYNC, NO_SYNC_NOTE, PROFILE_FLAGS};
#[cfg(feature = "cuda")]
pub(crate) use self::on_gpu::make as decoder_on_gpu;
use self::{
    axes::{ALIASES, axes},
    iteration::ModelIteration,
    plan::settle,
    spec::Spec,
    test_name::{Pass, Training},
    train_iteration::TrainIteration,
};
pub use self::{built_in::folders_without_weights, extras::ModelExtras};
pub(crate) use self::{
    built_in::{BuiltIn, checked_weights, decoder, hinted, looks_like_a_folder, with_causes},
    iteration::into_error,
    make::Maker,
    plan::{Found, Named},
};

/// Passes of a transformer: forward, prefill, decode, and those of training.
pub struct Model {
    maker: Box<dyn Maker>,
}

impl Model {
    /// The models that this program has.
    pub fn new() -> Self {
        Self::with(Vec::new())
    }

    /// The same, and models of your own by their names: `laptime::main_with(vec![Box::new(Model::with(vec![config]))])`.
    pub fn with(own: Vec<Config>) -> Self {
        Self { maker: Box::new(BuiltIn { own }) }
    }

    fn read(&self, case: &Case) -> anyhow::Result<(Found, Spec)> {
        let spec = Spec::of(case)?;
        Ok((self.maker.find(Named::Any(&spec.model))?, spec))
    }
}

/// A trainer for a case.
fn train_options(spec: &Spec, options: &Options) -> TrainOptions {
    TrainOptions {
        dtype: spec.dtype,
        attention: spec.attention,
        batch: spec.batch,
        tokens: spec.test.tokens,
        marks: options.marks.clone(),
        adamw: (spec.test.pass == Pass::Training(Training::Step)).then(AdamW::default),
    }
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Workload for Model {
    fn name(&self) -> &'static str {
        "model"
    }

    fn about(&self) -> &'static str {
        "runs a decoder: all logits (forward), a prompt (prefill), tokens one by one (decode), or trains it (step)"
    }

    fn axes(&self) -> Vec<AxisSpec> {
        axes()
    }

    fn aliases(&self) -> Vec<Alias> {
        ALIASES.to_vec()
    }

    fn plan(&self, given: &[Given]) -> Result<Plan, PlanError> {
        settle(given, &|named| self.maker.find(named))
    }

    fn with(&self, case: &Case, axis: &str, value: i64) -> Case {
        let case = case.with(axis, value);
        match Spec::of(&case) {
            Ok(spec) => case.with("test", spec.test.to_string()),
            Err(_) => case,
        }
    }

    fn known(&self, case: &Case) -> Vec<Fact> {
        self.read(case).map(|(found, spec)| work::facts(&found.config, &spec)).unwrap_or_default()
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        let metric = |name, about, better| MetricSpec { name, about, better };
        vec![
            metric("tok_s", "tokens per second, all sequences together", Better::Higher),
            metric("ttft_ms", "time to first token", Better::Lower),
            metric("tpot_ms", "time per decode step", Better::Lower),
            metric("loss", "mean cross-entropy of a training batch", Better::Lower),
        ]
    }

    fn parse<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Box<dyn ParsedCase<'a> + 'a>> {
        let (found, spec) = self.read(case)?;
        if let Some(reason) = spec.refusal(found.config.context) {
            return Ok(Box::new(|| Ok(Prepared::DoesNotApply(reason))));
        }
        let options = Options {
            dtype: spec.dtype,
            attention: spec.attention,
            kept: spec.kept.clone(),
            batch: spec.batch,
            room: spec.room(),
            graph: spec.graph,
            marks: Marks { depth: device.depth(), lane: device.lane().cloned(), ..Marks::default() },
            offload: None,
        };
        Ok(Box::new(ModelCase { maker: &*self.maker, found, spec, options, device }))
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        self.parse(case, device)?.prepare()
    }
}

/// A parsed case.
struct ModelCase<'a> {
    maker: &'a dyn Maker,
    found: Found,
    spec: Spec,
    options: Options,
    device: &'a dyn Device,
}

impl ModelCase<'_> {
    fn needed_bytes(&self) -> u64 {
        let Self { maker, found, spec, options, device } = self;
        match spec.test.pass {
            Pass::Training(_) => maker.needed_train_bytes(&found.config, spec, &train_options(spec, options), *device),
            Pass::Forward | Pass::Prefill | Pass::Decode => maker.needed_bytes(&found.config, spec, options, *device),
        }
    }
}

impl<'a> ParsedCase<'a> for ModelCase<'a> {
    fn predicted_bytes(&self) -> Option<u64> {
        Some(self.needed_bytes())
    }

    fn predicted_work(&self) -> Option<Work> {
        Some(work::work(&self.found.config, &self.spec))
    }

    fn prepare(self: Box<Self>) -> anyhow::Result<Prepared<'a>> {
        if let Some(reason) = self.maker.refusal(&self.spec, self.device) {
            return Ok(Prepared::DoesNotApply(reason));
        }
        let needed = self.needed_bytes();
        let Self { maker, found, spec, options, device } = *self;
        Prepared::if_it_fits(needed, device, || {
            if let Pass::Training(part) = spec.test.pass {
                let made = maker.make_trainer(&found, &spec, train_options(&spec, &options), device)?;
                return Ok(Box::new(TrainIteration::new(spec, part, made, device)?));
            }
            let made = maker.make(&found, &spec, options, device)?;
            Ok(Box::new(ModelIteration::new(spec, found.config, made, device)?))
        })
    }
}
