//! The workload `c2c`: cache-to-cache fusion of two models, from the prompt to the last new token.

mod axes;
mod files;
mod iteration;
mod pair;
mod plan;
mod runner;
mod summary;
#[cfg(test)]
mod tests;

use laptime_bench::{AxisSpec, Case, Device, Given, MetricSpec, ParsedCase, Plan, PlanError, Prepared, Work, Workload};

use self::axes::{aliases, axes};
pub(crate) use self::files::C2cExtras;
use self::iteration::{AgainstIteration, JoinedIteration};
use self::pair::{Pair, Spec};
use self::{plan::settle, runner::Runner};
use crate::axis::{AUTO, describe, metrics};
use crate::backend::{Parsed, does_not_apply, is_gpu};

/// Cache-to-cache fusion: the base model answers with the fused cache of a teacher model.
#[derive(Debug, Clone, Copy, Default)]
pub struct CacheToCache;

/// The number of metrics of a case; those of a comparison follow.
const JOINED_METRICS: usize = 10;

impl CacheToCache {
    /// The work of each stage of a case; all decode steps count as one. Empty if the case is invalid.
    pub fn stage_work(case: &Case) -> Vec<(&'static str, Work)> {
        let of_case = || {
            let spec = Spec::of(case).ok()?;
            let pair = Pair::of(&spec).ok()?;
            let gates = pair.weights.gates(&pair.fuser).ok()?;
            Some(pair::stage_work(&pair, &spec, &gates))
        };
        of_case().unwrap_or_default()
    }
}

impl Workload for CacheToCache {
    describe!(
        "c2c",
        "cache-to-cache (C2C) fusion: two models prefill a prompt, their KV caches are fused, the base model answers",
        axes(),
        aliases(),
        settle
    );

    fn on_device(&self, case: &Case, device: &dyn Device) -> Case {
        let case = &plan::on_device(case, is_gpu(device));
        if case.text("dtype").ok() != Some(AUTO) {
            return case.clone();
        }
        match case.text("base_model").ok().and_then(|name| pair::find(name).ok()) {
            Some(found) => case.with("dtype", found.config.dtype.word()),
            None => case.clone(),
        }
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        metrics! {
            "ttft_ms", Lower, "time to first token";
            "tpot_ms", Lower, "time per decode step";
            "tok_s", Higher, "decoded tokens per second";
            "fusion_share", Lower, "share of the time to first token spent in the projectors";
            "projection_ms", Lower, "projector time per fused layer";
            "base_alone_ms", Lower, "prefill time of the base model alone";
            "teacher_alone_ms", Lower, "prefill time of the teacher alone";
            "together_ms", Lower, "prefill time of both at the same time";
            "hidden_ms", Higher, "prefill time saved by the overlap";
            "hidden_share", Higher, "saved time / the shorter prefill";
            "text_ttft_ms", Lower, "time to first token with a text of the teacher";
            "alone_ttft_ms", Lower, "time to first token of the base model alone";
            "text_over_c2c", Higher, "time to first token with a text / with C2C";
            "alone_over_c2c", Higher, "time to first token alone / with C2C";
        }
    }

    fn parse<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Box<dyn ParsedCase<'a> + 'a>> {
        let spec = Spec::of(&self.on_device(case, device))?;
        let pair = match Pair::runnable(&spec)? {
            Ok(pair) => pair,
            Err(reason) => return does_not_apply(reason),
        };
        Ok(Box::new(Parsed {
            bytes: runner::needed_bytes(&pair, &spec, device),
            refusal: runner::refusal(&spec, device),
            spec: (pair, spec),
            device,
            work: |(pair, spec)| pair::work(pair, spec, &pair.weights.gates(&pair.fuser).ok()?),
            make: |(pair, spec), device| {
                let text_tokens = spec.text_tokens;
                let runner = Runner::new(pair, spec, device)?;
                Ok(match text_tokens {
                    Some(text_tokens) => Box::new(AgainstIteration::new(runner, text_tokens)),
                    None => Box::new(JoinedIteration::new(runner)),
                })
            },
        }))
    }
}
