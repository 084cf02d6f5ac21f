//! The workload `c2c`: two models joined through their KV caches, from a prompt to the last new token.

mod axes;
mod check;
mod make;
mod pair;
mod plan;
mod prompts;
mod take;
#[cfg(test)]
mod tests;
mod wanted;
mod work;

use laptime_bench::{
    Alias, AxisSpec, Better, Case, Device, Fact, Given, MetricSpec, Plan, PlanError, Prepared, Workload,
};

use self::{
    axes::{ALIASES, AUTO, axes},
    pair::Pair,
    plan::settle,
    take::JoinedTake,
    wanted::Wanted,
};

/// Cache to cache: a base model that answers over what a teacher model read.
#[derive(Debug, Clone, Copy, Default)]
pub struct CacheToCache;

impl CacheToCache {
    fn read(&self, case: &Case, device: &dyn Device) -> anyhow::Result<(Pair, Wanted)> {
        let wanted = Wanted::of(&self.on_device(case, device))?;
        Ok((Pair::of(&wanted)?, wanted))
    }
}

impl Workload for CacheToCache {
    fn name(&self) -> &'static str {
        "c2c"
    }

    fn about(&self) -> &'static str {
        "joins two models through their KV caches: both read a prompt, the caches are fused, the base model answers"
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

    fn on_device(&self, case: &Case, _: &dyn Device) -> Case {
        if case.text("dtype").ok() != Some(AUTO) {
            return case.clone();
        }
        match case.text("base_model").ok().and_then(|name| pair::find(name).ok()) {
            Some(found) => case.with("dtype", found.config.dtype.word()),
            None => case.clone(),
        }
    }

    fn predicted_bytes(&self, case: &Case, device: &dyn Device) -> anyhow::Result<Option<u64>> {
        let (pair, wanted) = self.read(case, device)?;
        Ok(pair.refusal(&wanted).is_none().then(|| make::needed_bytes(&pair, &wanted)))
    }

    fn known(&self, case: &Case) -> Vec<Fact> {
        let facts = || {
            let wanted = Wanted::of(case).ok()?;
            Some(work::sizes(&Pair::of(&wanted).ok()?, &wanted))
        };
        facts().unwrap_or_default()
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        let metric = |name, about, better| MetricSpec { name, about, better };
        vec![
            metric("ttft_ms", "time until the first token is known", Better::Lower),
            metric("tpot_ms", "time of a decode step, its token read", Better::Lower),
            metric("tok_s", "new tokens a second behind the first", Better::Higher),
            metric("fusion_share", "share of the time to the first token that the projectors take", Better::Lower),
            metric("projection_ms", "time of the projectors by layers fused", Better::Lower),
        ]
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        let (pair, wanted) = self.read(case, device)?;
        if let Some(reason) = pair.refusal(&wanted).or_else(|| make::refusal(device)) {
            return Ok(Prepared::DoesNotApply(reason));
        }
        let needed = make::needed_bytes(&pair, &wanted);
        Prepared::if_it_fits(needed, device, || Ok(Box::new(JoinedTake::new(pair, wanted, device)?)))
    }
}
