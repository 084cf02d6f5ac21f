//! The workload `model`: passes of a transformer, with synthetic weights or those of a folder.

mod axes;
mod built_in;
mod make;
#[cfg(feature = "cuda")]
mod on_gpu;
mod plan;
#[cfg(test)]
mod scripted;
mod take;
mod test_name;
#[cfg(test)]
mod tests;
mod wanted;
mod work;

use laptime_bench::{Alias, AxisSpec, Better, Case, Device, Given, MetricSpec, Plan, PlanError, Prepared, Workload};
use laptime_models::{Config, Marks, Options};

use self::{
    axes::{ALIASES, axes},
    built_in::BuiltIn,
    make::Maker,
    plan::{Found, Named, settle},
    take::ModelTake,
    wanted::Wanted,
};

/// Passes of a transformer: forward, prefill, decode.
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
            batch: wanted.batch,
            room: wanted.room(),
            graph: wanted.graph,
            marks: Marks { depth: device.depth(), lane: device.lane().cloned() },
        };
        Ok((found, wanted, options))
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
        "runs a decoder: all logits of a sequence (forward), a prompt (prefill) or tokens one by one (decode)"
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
        Ok(Some(self.maker.needed_bytes(&found.config, &wanted, &options, device)))
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        let metric = |name, about, better| MetricSpec { name, about, better };
        vec![
            metric("tok_s", "tokens of all sequences a second", Better::Higher),
            metric("ttft_ms", "time of a prefill until its token is chosen", Better::Lower),
            metric("tpot_ms", "time of a decode step", Better::Lower),
        ]
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        let (found, wanted, options) = self.read(case, device)?;
        let refusal = wanted.refusal(found.config.context).or_else(|| self.maker.refusal(&wanted, device));
        if let Some(reason) = refusal {
            return Ok(Prepared::DoesNotApply(reason));
        }
        let needed = self.maker.needed_bytes(&found.config, &wanted, &options, device);
        Prepared::if_it_fits(needed, device, || {
            let made = self.maker.make(&found, &wanted, options, device)?;
            Ok(Box::new(ModelTake::new(wanted, found.config, made, device)?))
        })
    }
}
