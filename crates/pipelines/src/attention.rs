//! The workload `attention`: the attention of one layer, dense or sparse.

mod axes;
pub(crate) mod engine;
mod iteration;
mod plan;
mod profile;
#[cfg(test)]
mod tests;

use laptime_bench::{AxisSpec, Case, Device, Given, MetricSpec, ParsedCase, Plan, PlanError, Prepared, Workload};
use laptime_models::Dtype;
use laptime_models::attention::{CPU_TILING, Layout};

use self::axes::{aliases, axes};
pub(crate) use self::profile::AttentionExtras;
pub(crate) use self::{
    axes::{CUSTOM, pattern_axes},
    plan::{Spec, of_pattern, pattern, patterns, with_pattern_name},
};
use self::{iteration::AttentionIteration, plan::settle};
use crate::axis::{AUTO, describe, metrics};
use crate::backend::{Parsed, does_not_apply, is_gpu};

/// One attention layer: naive, dense or sparse.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attention;

impl Workload for Attention {
    describe!("attention", "one attention layer: dense, or sparse with a pattern; random inputs", axes(), aliases());

    fn plan(&self, given: &[Given]) -> Result<Plan, PlanError> {
        settle(&self.aliases(), given)
    }

    fn on_device(&self, case: &Case, device: &dyn Device) -> Case {
        let default = if is_gpu(device) { Dtype::Bf16 } else { Dtype::F32 };
        if case.text("dtype") == Ok(AUTO) { case.with("dtype", default.word()) } else { case.clone() }
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        metrics! {
            "sparsity", Higher, "share of the allowed pairs that is skipped";
            "mass_kept", Higher, "share of the dense attention weights that is kept, on random inputs";
            "output_error", Lower, "relative distance from the dense result, on random inputs";
            "tflop_s", Higher, "executed TFLOP per second";
            "build_ms", Lower, "time to build the pattern, not part of an iteration";
        }
    }

    fn parse<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Box<dyn ParsedCase<'a> + 'a>> {
        let spec = Spec::of(&self.on_device(case, device))?;
        if let Some(reason) = spec.refusal() {
            return does_not_apply(reason);
        }
        Ok(Box::new(Parsed {
            bytes: engine::needed_bytes(&spec, device),
            refusal: engine::refusal(&spec, device),
            spec,
            device,
            work: |spec| {
                let layout = Layout::build(&spec.kept, spec.inputs.sizes.length, CPU_TILING);
                Some(spec.work(layout.connections()))
            },
            make: |spec, device| Ok(Box::new(AttentionIteration::new(spec, device)?)),
        }))
    }
}
