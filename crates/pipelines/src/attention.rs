//! The workload `attention`: the attention of one layer, dense or sparse.

mod axes;
mod built;
mod cpu;
mod engine;
#[cfg(feature = "cuda")]
mod gpu;
mod iteration;
mod plan;
mod profile;
mod spec;
#[cfg(test)]
mod tests;

use laptime_bench::{
    Alias, AxisSpec, AxisValue, Better, Case, Device, Given, MetricSpec, ParsedCase, Plan, PlanError, Prepared,
    Traffic, Work, Workload,
};
use laptime_models::{
    Dtype,
    attention::{CPU_TILING, Layout},
};

pub use self::profile::AttentionExtras;
use self::{
    axes::{ALIASES, AUTO, PATTERN_ALIASES, axes},
    iteration::AttentionIteration,
    plan::settle,
    spec::Spec,
};
pub(crate) use self::{
    axes::{CUSTOM, pattern_axes},
    plan::{of_pattern, patterns, with_pattern_name},
    spec::pattern,
};

/// One attention layer: naive, dense or sparse.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attention;

impl Workload for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn about(&self) -> &'static str {
        "one attention layer: dense, or sparse with a pattern; random inputs"
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

    fn metrics(&self) -> Vec<MetricSpec> {
        let metric = |name, about, better| MetricSpec { name, about, better };
        vec![
            metric("sparsity", "share of the allowed pairs that is skipped", Better::Higher),
            metric("mass_kept", "share of the dense attention weights that is kept, on random inputs", Better::Higher),
            metric("output_error", "relative distance from the dense result, on random inputs", Better::Lower),
            metric("tflop_s", "executed TFLOP per second", Better::Higher),
            metric("build_ms", "time to build the pattern, not part of an iteration", Better::Lower),
        ]
    }

    fn parse<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Box<dyn ParsedCase<'a> + 'a>> {
        let spec = Spec::of(&self.on_device(case, device))?;
        if let Some(reason) = spec.refusal() {
            return Ok(Box::new(|| Ok(Prepared::DoesNotApply(reason))));
        }
        Ok(Box::new(AttentionCase { spec, device }))
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        self.parse(case, device)?.prepare()
    }
}

/// A parsed case.
struct AttentionCase<'a> {
    spec: Spec,
    device: &'a dyn Device,
}

impl<'a> ParsedCase<'a> for AttentionCase<'a> {
    fn predicted_bytes(&self) -> Option<u64> {
        Some(engine::needed_bytes(&self.spec, self.device))
    }

    fn predicted_work(&self) -> Option<Work> {
        let (sizes, dtype) = (self.spec.inputs.sizes, self.spec.inputs.dtype);
        let connections = Layout::build(&self.spec.kept, sizes.length, CPU_TILING).connections();
        let (flops, bytes) = (sizes.flops(connections), sizes.bytes(dtype));
        Some(Work { flops, dtype: dtype.word().to_owned(), bytes, traffic: Traffic::Read })
    }

    fn prepare(self: Box<Self>) -> anyhow::Result<Prepared<'a>> {
        let Self { spec, device } = *self;
        if let Some(reason) = engine::refusal(&spec, device) {
            return Ok(Prepared::DoesNotApply(reason));
        }
        let needed = engine::needed_bytes(&spec, device);
        Prepared::if_it_fits(needed, device, || Ok(Box::new(AttentionIteration::new(spec, device)?)))
    }
}

/// The default dtype: that of models on a GPU, that of the kernels on the CPU.
fn default_dtype(device: &dyn Device) -> Dtype {
    #[cfg(feature = "cuda")]
    if crate::gpu::gpu(device).is_some() {
        return Dtype::Bf16;
    }
    let _ = device;
    Dtype::F32
}
