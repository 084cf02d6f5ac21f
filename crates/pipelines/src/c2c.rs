//! The workload `c2c`: two models joined through their KV caches, from a prompt to the last new token.

mod against;
mod axes;
mod check;
mod make;
mod pair;
mod plan;
mod prompts;
mod runner;
mod take;
#[cfg(test)]
mod tests;
mod wanted;
mod work;

use laptime_bench::{
    Alias, AxisSpec, Better, Case, Device, Fact, Given, MetricSpec, Plan, PlanError, Prepared, Work, Workload,
};

use self::{
    against::AgainstTake,
    axes::{ALIASES, AUTO, axes},
    pair::Pair,
    plan::settle,
    runner::Runner,
    take::JoinedTake,
    wanted::Wanted,
};

/// Cache to cache: a base model that answers over what a teacher model read.
#[derive(Debug, Clone, Copy, Default)]
pub struct CacheToCache;

/// How many metrics a take has that is held against nothing; those of one that is follow.
const JOINED_METRICS: usize = 10;

impl CacheToCache {
    /// What each stage of a case has to do, all steps together as one; nothing if the case makes no sense.
    pub fn stage_work(case: &Case) -> Vec<(&'static str, Work)> {
        let of_case = || {
            let wanted = Wanted::of(case).ok()?;
            let pair = Pair::of(&wanted).ok()?;
            let gates = pair.weights.gates(&pair.fuser).ok()?;
            Some(work::stage_work(&pair, &wanted, &gates))
        };
        of_case().unwrap_or_default()
    }

    /// The case on a device; the inner error says why it cannot run.
    fn read(&self, case: &Case, device: &dyn Device) -> anyhow::Result<Result<(Pair, Wanted), String>> {
        let wanted = Wanted::of(&self.on_device(case, device))?;
        Ok(Pair::runnable(&wanted)?.map(|pair| (pair, wanted)))
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

    fn predicted_bytes(&self, case: &Case, device: &dyn Device) -> anyhow::Result<Option<u64>> {
        let read = self.read(case, device)?;
        Ok(read.ok().map(|(pair, wanted)| make::needed_bytes(&pair, &wanted, device)))
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
            metric("base_alone_ms", "time of the base model's prompt alone", Better::Lower),
            metric("teacher_alone_ms", "time of the teacher's prompt alone", Better::Lower),
            metric("together_ms", "time of both at the same time", Better::Lower),
            metric("hidden_ms", "what both take alone, less what they take together", Better::Higher),
            metric("hidden_share", "the same by the shorter of the two", Better::Higher),
            metric("text_ttft_ms", "time until the first token is known behind a text of the teacher", Better::Lower),
            metric("alone_ttft_ms", "the same of the base model alone", Better::Lower),
            metric("text_over_c2c", "time behind a text by time over caches", Better::Higher),
            metric("alone_over_c2c", "time alone by time over caches", Better::Higher),
        ]
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        let (pair, wanted) = match self.read(case, device)? {
            Ok(read) => read,
            Err(reason) => return Ok(Prepared::DoesNotApply(reason)),
        };
        if let Some(reason) = make::refusal(&wanted, device) {
            return Ok(Prepared::DoesNotApply(reason));
        }
        let needed = make::needed_bytes(&pair, &wanted, device);
        Prepared::if_it_fits(needed, device, || {
            let text_tokens = wanted.text_tokens;
            let runner = Runner::new(pair, wanted, device)?;
            Ok(match text_tokens {
                Some(text_tokens) => Box::new(AgainstTake::new(runner, text_tokens)),
                None => Box::new(JoinedTake::new(runner)),
            })
        })
    }
}
