//! The workload `attention`: one layer's attention alone, of all pairs or of some.

mod axes;
mod built;
mod cpu;
mod engine;
#[cfg(feature = "cuda")]
mod gpu;
mod iteration;
mod plan;
mod profile;
#[cfg(test)]
mod tests;
mod wanted;

use laptime_bench::{
    Alias, AxisSpec, AxisValue, Better, Case, Device, Given, MetricSpec, Plan, PlanError, Prepared, Workload,
};
use laptime_models::Dtype;

pub use self::profile::AttentionExtras;
use self::{
    axes::{ALIASES, AUTO, PATTERN_ALIASES, axes},
    iteration::AttentionIteration,
    plan::settle,
    wanted::Wanted,
};
pub(crate) use self::{
    axes::{CUSTOM, pattern_axes},
    plan::{of_pattern, patterns, told as pattern_told},
    wanted::pattern,
};

/// Attention alone: naive, dense, or of the pairs that a pattern keeps.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attention;

impl Workload for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn about(&self) -> &'static str {
        "attends from every token to all others, or to those that a pattern keeps; inputs are random"
    }

    fn axes(&self) -> Vec<AxisSpec> {
        axes()
    }

    fn aliases(&self) -> Vec<Alias> {
        ALIASES.iter().chain(PATTERN_ALIASES).copied().collect()
    }

    fn plan(&self, given: &[Given]) -> Result<Plan, PlanError> {
        settle(&self.aliases(), given)
    }

    fn on_device(&self, case: &Case, device: &dyn Device) -> Case {
        match case.get("dtype") {
            Some(AxisValue::Text(dtype)) if dtype == AUTO => case.with("dtype", default_dtype(device).word()),
            _ => case.clone(),
        }
    }

    fn predicted_bytes(&self, case: &Case, device: &dyn Device) -> anyhow::Result<Option<u64>> {
        let wanted = Wanted::of(&self.on_device(case, device))?;
        Ok(wanted.refusal().is_none().then(|| engine::needed_bytes(&wanted, device)))
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        let metric = |name, about, better| MetricSpec { name, about, better };
        vec![
            metric("build_ms", "time to build the pattern, which is no part of a iteration", Better::Lower),
            metric("tflop_s", "operations that were executed, a second, in units of 10^12", Better::Higher),
            metric("sparsity", "share of the pairs that may be seen that is not kept", Better::Higher),
            metric("mass_kept", "share of dense attention's weights that is kept, on random inputs", Better::Higher),
            metric(
                "output_error",
                "distance from dense attention's result as a share of it, on random inputs",
                Better::Lower,
            ),
        ]
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        let wanted = Wanted::of(&self.on_device(case, device))?;
        let refusal = wanted.refusal().or_else(|| engine::refusal(&wanted, device));
        if let Some(reason) = refusal {
            return Ok(Prepared::DoesNotApply(reason));
        }
        let needed = engine::needed_bytes(&wanted, device);
        Prepared::if_it_fits(needed, device, || Ok(Box::new(AttentionIteration::new(wanted, device)?)))
    }
}

/// The number type unless asked otherwise: that of models on a GPU, that of the kernels on the CPU.
fn default_dtype(device: &dyn Device) -> Dtype {
    #[cfg(feature = "cuda")]
    if crate::gpu::gpu(device).is_some() {
        return Dtype::Bf16;
    }
    let _ = device;
    Dtype::F32
}
