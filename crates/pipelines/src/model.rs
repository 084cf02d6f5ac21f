//! The workload `model`: passes of a transformer, with synthetic weights or those of a folder.

mod axes;
mod built_in;
mod make;
#[cfg(feature = "cuda")]
mod on_gpu;
mod plan;
#[cfg(test)]
mod scripted;
#[cfg(test)]
mod scripted_trainer;
mod take;
mod test_name;
#[cfg(test)]
mod tests;
mod train_take;
#[cfg(test)]
mod training_tests;
mod wanted;
mod work;

use laptime_bench::{
    Alias, AxisSpec, Better, Case, Device, Fact, Given, MetricSpec, Plan, PlanError, Prepared, Workload,
};
use laptime_models::{AdamW, Config, Marks, Options, TrainOptions};

pub use self::built_in::folders_without_weights;
#[cfg(feature = "cuda")]
pub(crate) use self::on_gpu::make as decoder_on_gpu;
use self::{
    axes::{ALIASES, axes},
    plan::settle,
    take::ModelTake,
    test_name::{Pass, Training},
    train_take::TrainTake,
    wanted::Wanted,
};
pub(crate) use self::{
    built_in::{BuiltIn, checked_weights, decoder, hinted, looks_like_a_folder, with_causes},
    make::Maker,
    plan::{Found, Named},
    take::told,
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

    fn read(&self, case: &Case, device: &dyn Device) -> anyhow::Result<(Found, Wanted, Options)> {
        let wanted = Wanted::of(case)?;
        let found = self.maker.find(Named::Any(&wanted.model))?;
        let options = Options {
            dtype: wanted.dtype,
            attention: wanted.attention,
            kept: wanted.kept.clone(),
            batch: wanted.batch,
            room: wanted.room(),
            graph: wanted.graph,
            marks: Marks { depth: device.depth(), lane: device.lane().cloned(), ..Marks::default() },
            offload: None,
        };
        Ok((found, wanted, options))
    }

    fn needed_bytes(&self, config: &Config, wanted: &Wanted, options: &Options, device: &dyn Device) -> u64 {
        match wanted.test.pass {
            Pass::Training(_) => self.maker.needed_train_bytes(config, wanted, &train_options(wanted, options), device),
            Pass::Forward | Pass::Prefill | Pass::Decode => self.maker.needed_bytes(config, wanted, options, device),
        }
    }

    fn make_training<'a>(
        &'a self,
        (found, wanted, options): (Found, Wanted, TrainOptions),
        part: Training,
        device: &'a dyn Device,
    ) -> anyhow::Result<TrainTake<'a>> {
        let made = self.maker.make_trainer(&found, &wanted, options, device)?;
        TrainTake::new(wanted, part, made, device)
    }
}

/// A trainer for what a case asks for.
fn train_options(wanted: &Wanted, options: &Options) -> TrainOptions {
    TrainOptions {
        dtype: wanted.dtype,
        attention: wanted.attention,
        batch: wanted.batch,
        tokens: wanted.test.tokens,
        marks: options.marks.clone(),
        adamw: (wanted.test.pass == Pass::Training(Training::Step)).then(AdamW::default),
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
        match Wanted::of(&case) {
            Ok(wanted) => case.with("test", wanted.test.to_string()),
            Err(_) => case,
        }
    }

    fn predicted_bytes(&self, case: &Case, device: &dyn Device) -> anyhow::Result<Option<u64>> {
        let (found, wanted, options) = self.read(case, device)?;
        if wanted.refusal(found.config.context).is_some() {
            return Ok(None);
        }
        Ok(Some(self.needed_bytes(&found.config, &wanted, &options, device)))
    }

    fn known(&self, case: &Case) -> Vec<Fact> {
        let facts = || {
            let wanted = Wanted::of(case).ok()?;
            let found = self.maker.find(Named::Any(&wanted.model)).ok()?;
            Some(work::facts(&found.config, &wanted))
        };
        facts().unwrap_or_default()
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        let metric = |name, about, better| MetricSpec { name, about, better };
        vec![
            metric("tok_s", "tokens of all sequences a second", Better::Higher),
            metric("ttft_ms", "time of a prefill until its token is chosen", Better::Lower),
            metric("tpot_ms", "time of a decode step", Better::Lower),
            metric("loss", "mean cross-entropy of a training batch", Better::Lower),
        ]
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        let (found, wanted, options) = self.read(case, device)?;
        let refusal = wanted.refusal(found.config.context).or_else(|| self.maker.refusal(&wanted, device));
        if let Some(reason) = refusal {
            return Ok(Prepared::DoesNotApply(reason));
        }
        let needed = self.needed_bytes(&found.config, &wanted, &options, device);
        Prepared::if_it_fits(needed, device, || {
            if let Pass::Training(part) = wanted.test.pass {
                let training = train_options(&wanted, &options);
                return Ok(Box::new(self.make_training((found, wanted, training), part, device)?));
            }
            let made = self.maker.make(&found, &wanted, options, device)?;
            Ok(Box::new(ModelTake::new(wanted, found.config, made, device)?))
        })
    }
}
