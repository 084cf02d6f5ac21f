//! The workload `model`: passes of a transformer, with synthetic weights or those of a folder.

mod axes;
mod built_in;
mod extras;
mod iteration;
mod plan;
mod spec;
#[cfg(test)]
mod tests;

use laptime_bench::{AxisSpec, Case, Device, Fact, Given, MetricSpec, ParsedCase, Plan, PlanError, Prepared, Workload};
use laptime_models::{AdamW, Config, Options, TrainOptions};

use self::axes::{aliases, axes};
pub use self::built_in::folders_without_weights;
use self::iteration::{ModelIteration, TrainIteration};
use self::plan::settle;
use self::spec::{Pass, Spec};
pub(crate) use self::{
    built_in::{BuiltIn, Maker, checked_weights, looks_like_a_folder},
    extras::ModelExtras,
    plan::{Found, Named},
};
use crate::axis::{describe, metrics};
use crate::backend::{Parsed, Target, does_not_apply, marks, no_graphs};

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

fn train_options(spec: &Spec, options: &Options) -> TrainOptions {
    TrainOptions {
        dtype: spec.dtype,
        attention: spec.attention,
        batch: spec.batch,
        tokens: spec.test.tokens,
        marks: options.marks.clone(),
        adamw: (spec.test.pass == Pass::Step).then(AdamW::default),
    }
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Workload for Model {
    describe!(
        "model",
        "runs a decoder: all logits (forward), a prompt (prefill), tokens one by one (decode), or trains it (step)",
        axes(),
        aliases()
    );

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
        self.read(case).map(|(found, spec)| spec::facts(&found.config, &spec)).unwrap_or_default()
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        metrics! {
            "tok_s", Higher, "tokens per second, all sequences together";
            "ttft_ms", Lower, "time to first token";
            "tpot_ms", Lower, "time per decode step";
            "loss", Lower, "mean cross-entropy of a training batch";
        }
    }

    fn parse<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Box<dyn ParsedCase<'a> + 'a>> {
        let (found, spec) = self.read(case)?;
        if let Some(reason) = spec.refusal(found.config.context) {
            return does_not_apply(reason);
        }
        let options = Options {
            dtype: spec.dtype,
            attention: spec.attention,
            kept: spec.kept.clone(),
            batch: spec.batch,
            capacity: spec.capacity(),
            graph: spec.graph,
            marks: marks(device),
            offload: None,
        };
        let maker = &*self.maker;
        let bytes = match spec.test.pass.is_training() {
            true => maker.needed_train_bytes(&found.config, &spec, &train_options(&spec, &options), device),
            false => maker.needed_bytes(&found.config, &spec, &options, device),
        };
        Ok(Box::new(Parsed {
            bytes,
            refusal: no_graphs(device, spec.graph),
            spec: (maker, found, spec, options),
            device,
            work: |(_, found, spec, _)| Some(spec::work(&found.config, spec)),
            make: |(maker, found, spec, options), device| {
                let on = Target { device, threads: spec.threads };
                if spec.test.pass.is_training() {
                    let loaded = maker.trainer(&found, &spec, train_options(&spec, &options), on)?;
                    return Ok(Box::new(TrainIteration::new(spec, loaded, device)?));
                }
                let loaded = maker.decoder(&found, &spec, options, on)?;
                Ok(Box::new(ModelIteration::new(spec, found.config, loaded, device)?))
            },
        }))
    }
}
