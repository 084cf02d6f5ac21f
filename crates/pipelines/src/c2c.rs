//! The workload `c2c`: cache-to-cache fusion of two models, from the prompt to the last new token.

mod against;
mod axes;
mod check;
mod extras;
mod files;
mod iteration;
mod make;
mod pair;
mod plan;
mod prompts;
mod runner;
mod spec;
mod summary;
#[cfg(test)]
mod tests;
mod work;

use laptime_bench::{
    Alias, AxisSpec, Better, Case, Device, Given, MetricSpec, ParsedCase, Plan, PlanError, Prepared, Work, Workload,
};

pub use self::extras::C2cExtras;
use self::{
    against::AgainstIteration,
    axes::{ALIASES, AUTO, axes},
    iteration::JoinedIteration,
    pair::Pair,
    plan::settle,
    runner::Runner,
    spec::Spec,
};

/// Cache-to-cache fusion: the base model answers with the fused cache of a teacher model.
#[derive(Debug, Clone, Copy, Default)]
pub struct CacheToCache;

/// The number of metrics without a comparison; those of a comparison follow.
const JOINED_METRICS: usize = 10;

impl CacheToCache {
    /// The work of each stage of a case; all decode steps count as one. Empty if the case is invalid.
    pub fn stage_work(case: &Case) -> Vec<(&'static str, Work)> {
        let of_case = || {
            let spec = Spec::of(case).ok()?;
            let pair = Pair::of(&spec).ok()?;
            let gates = pair.weights.gates(&pair.fuser).ok()?;
            Some(work::stage_work(&pair, &spec, &gates))
        };
        of_case().unwrap_or_default()
    }
}

impl Workload for CacheToCache {
    fn name(&self) -> &'static str {
        "c2c"
    }

    fn about(&self) -> &'static str {
        "cache-to-cache (C2C) fusion: two models prefill a prompt, their KV caches are fused, the base model answers"
    }

    fn axes(&self) -> Vec<AxisSpec> {
        axes()
    }

    fn aliases(&self) -> Vec<Alias> {
        ALIASES.to_vec()
    }

    fn plan(&self, given: &[Given]) -> Result<Plan, PlanError> {
        settle(given)
    }

    fn on_device(&self, case: &Case, device: &dyn Device) -> Case {
        let case = &plan::on_device(case, make::is_gpu(device));
        if case.text("dtype").ok() != Some(AUTO) {
            return case.clone();
        }
        match case.text("base_model").ok().and_then(|name| pair::find(name).ok()) {
            Some(found) => case.with("dtype", found.config.dtype.word()),
            None => case.clone(),
        }
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        let metric = |name, about, better| MetricSpec { name, about, better };
        vec![
            metric("ttft_ms", "time to first token", Better::Lower),
            metric("tpot_ms", "time per decode step", Better::Lower),
            metric("tok_s", "decoded tokens per second", Better::Higher),
            metric("fusion_share", "share of the time to first token spent in the projectors", Better::Lower),
            metric("projection_ms", "projector time per fused layer", Better::Lower),
            metric("base_alone_ms", "prefill time of the base model alone", Better::Lower),
            metric("teacher_alone_ms", "prefill time of the teacher alone", Better::Lower),
            metric("together_ms", "prefill time of both at the same time", Better::Lower),
            metric("hidden_ms", "prefill time saved by the overlap", Better::Higher),
            metric("hidden_share", "saved time / the shorter prefill", Better::Higher),
            metric("text_ttft_ms", "time to first token with a text of the teacher", Better::Lower),
            metric("alone_ttft_ms", "time to first token of the base model alone", Better::Lower),
            metric("text_over_c2c", "time to first token with a text / with C2C", Better::Higher),
            metric("alone_over_c2c", "time to first token alone / with C2C", Better::Higher),
        ]
    }

    fn parse<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Box<dyn ParsedCase<'a> + 'a>> {
        let spec = Spec::of(&self.on_device(case, device))?;
        match Pair::runnable(&spec)? {
            Ok(pair) => Ok(Box::new(FusionCase { pair, spec, device })),
            Err(reason) => Ok(Box::new(|| Ok(Prepared::DoesNotApply(reason)))),
        }
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        self.parse(case, device)?.prepare()
    }
}

/// A parsed case.
struct FusionCase<'a> {
    pair: Pair,
    spec: Spec,
    device: &'a dyn Device,
}

impl<'a> ParsedCase<'a> for FusionCase<'a> {
    fn predicted_bytes(&self) -> Option<u64> {
        Some(make::needed_bytes(&self.pair, &self.spec, self.device))
    }

    fn predicted_work(&self) -> Option<Work> {
        work::work(&self.pair, &self.spec, &self.pair.weights.gates(&self.pair.fuser).ok()?)
    }

    fn prepare(self: Box<Self>) -> anyhow::Result<Prepared<'a>> {
        let Self { pair, spec, device } = *self;
        if let Some(reason) = make::refusal(&spec, device) {
            return Ok(Prepared::DoesNotApply(reason));
        }
        let needed = make::needed_bytes(&pair, &spec, device);
        Prepared::if_it_fits(needed, device, || {
            let text_tokens = spec.text_tokens;
            let runner = Runner::new(pair, spec, device)?;
            Ok(match text_tokens {
                Some(text_tokens) => Box::new(AgainstIteration::new(runner, text_tokens)),
                None => Box::new(JoinedIteration::new(runner)),
            })
        })
    }
}
