//! The workload `offload`: a model whose layers do not all stay on the device.

mod axes;
mod budget;
mod facts;
mod fit;
mod layers;
mod make;
#[cfg(feature = "cuda")]
mod on_gpu;
mod plan;
mod runner;
mod subject;
mod take;
#[cfg(test)]
mod tests;
mod wanted;
mod watch;

use std::{path::PathBuf, sync::Arc};

use laptime_bench::{
    Alias, AxisSpec, Better, Case, Device, Fact, Given, GivenSettings, MetricSpec, Plan, PlanError, Prepared, WarmUp,
    Workload,
};

use self::{
    axes::{ALIASES, AUTO, axes},
    fit::{Fit, fit, too_small},
    plan::settle,
    runner::Runner,
    subject::{Subject, usual_model},
    take::OffloadTake,
    wanted::Wanted,
};
pub use self::{
    fit::BudgetTooSmall,
    watch::{Generated, Unwatched, Visits, Watch},
};

/// A speech or language model whose layers come over a link, one at a time.
pub struct OffloadedLayers {
    watch: Arc<dyn Watch>,
    /// Where the file of layers is written where there is no GPU.
    home: PathBuf,
}

/// What is known of a case on a device before it is prepared.
#[derive(Debug, Clone, PartialEq)]
pub struct OffloadPlan {
    /// Layers of the model.
    pub layers: usize,
    /// Those that stay.
    pub resident: usize,
    /// How the others are streamed.
    pub mode: laptime_models::StreamMode,
    /// Bytes that are needed at most.
    pub needed_bytes: u64,
    /// Bytes that there are, or that were allowed.
    pub budget_bytes: Option<u64>,
    /// Copies between two clearings of caches.
    pub clear_every: Option<usize>,
    /// Whether the device is a GPU: without one layers come from a file.
    pub is_gpu: bool,
    /// An emulated link, in 10^9 bytes a second.
    pub emulated_gbps: Option<f64>,
    /// What is known of the case.
    pub facts: Vec<Fact>,
}

/// Takes before the first that counts.
const WARM_UP: usize = 1;

/// Takes that count.
const TAKES: usize = 3;

impl OffloadedLayers {
    /// Nobody looks on.
    pub fn new() -> Self {
        Self::watched(Arc::new(Unwatched))
    }

    /// Somebody looks on while tokens are made.
    pub fn watched(watch: Arc<dyn Watch>) -> Self {
        Self { watch, home: std::env::temp_dir() }
    }

    /// The same, with the file of layers in another folder than that of temporary files.
    pub fn with_home(self, home: impl Into<PathBuf>) -> Self {
        Self { home: home.into(), ..self }
    }

    /// What will be done with a case on a device; an error if it cannot be.
    pub fn look(case: &Case, device: &dyn Device) -> anyhow::Result<OffloadPlan> {
        let (subject, wanted, fit) = read(case, device)?;
        if let Some(reason) = too_small(&subject, &wanted, &fit) {
            return Err(BudgetTooSmall(reason).into());
        }
        let is_gpu = make::is_gpu(device);
        Ok(OffloadPlan {
            layers: subject.decoder().layers,
            resident: fit.resident,
            mode: wanted.mode,
            needed_bytes: fit.needed,
            budget_bytes: fit.budget,
            clear_every: wanted.clear_every,
            is_gpu,
            emulated_gbps: wanted.link_gbps.filter(|_| !is_gpu),
            facts: facts::planned(&subject, &wanted, &fit, is_gpu),
        })
    }

    /// The same case without offloading.
    pub fn without_offloading(case: &Case) -> Case {
        plan::without_offloading(case)
    }

    /// The same case with another number of layers that stay.
    pub fn with_layers(case: &Case, layers: usize) -> Case {
        plan::with_stay(case, layers::Stay::Layers(layers))
    }

    /// Runs a case once more, for its audio: noise starts from the seed of the case. None of a language model alone.
    pub fn speak(case: &Case, device: &dyn Device) -> anyhow::Result<Option<Generated>> {
        let kept = Arc::new(Kept::default());
        let workload = Self::watched(Arc::clone(&kept) as Arc<dyn Watch>);
        if let Prepared::Ready(mut take) = workload.prepare(case, device)? {
            take.run()?;
            take.readings(laptime_bench::Nanos(0));
        }
        let mut last = kept.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(last.take().filter(|generated| generated.rate > 0))
    }
}

/// Keeps the last generation.
#[derive(Default)]
struct Kept(std::sync::Mutex<Option<Generated>>);

impl Watch for Kept {
    fn end(&self, generated: Generated) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(generated);
    }
}

impl Default for OffloadedLayers {
    fn default() -> Self {
        Self::new()
    }
}

fn read(case: &Case, device: &dyn Device) -> anyhow::Result<(Subject, Wanted, Fit)> {
    let wanted = Wanted::of(&with_model(case, device))?;
    let subject = Subject::of(&wanted)?;
    let fit = fit(&subject, &wanted, device);
    Ok((subject, wanted, fit))
}

/// The case with the model that `auto` stands for on a device.
fn with_model(case: &Case, device: &dyn Device) -> Case {
    let is_lm = case.text("pipeline") == Ok("lm");
    match case.text("model") {
        Ok(AUTO) => case.with("model", usual_model(is_lm, make::is_gpu(device))),
        _ => case.clone(),
    }
}

impl Workload for OffloadedLayers {
    fn name(&self) -> &'static str {
        "offload"
    }

    fn about(&self) -> &'static str {
        "reads a script aloud with a model whose layers do not all stay on the device: those come over a link, one at a time"
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

    fn usual_settings(&self) -> GivenSettings {
        GivenSettings { warmup: Some(WarmUp::Takes(WARM_UP)), takes: Some(TAKES), ..GivenSettings::default() }
    }

    fn on_device(&self, case: &Case, device: &dyn Device) -> Case {
        let case = with_model(case, device);
        let Ok((subject, wanted, fit)) = read(&case, device) else { return case };
        let case = case.with("model", subject.name.clone()).with("dtype", subject.dtype.word());
        // What does not fit is told when it is prepared.
        let is_open = !fit.fits() && wanted.stay == AUTO;
        if is_open { case } else { Self::with_layers(&case, fit.resident) }
    }

    fn predicted_bytes(&self, case: &Case, device: &dyn Device) -> anyhow::Result<Option<u64>> {
        let (subject, _, fit) = read(case, device)?;
        Ok(subject.refusal().is_none().then_some(fit.needed))
    }

    fn known(&self, case: &Case) -> Vec<Fact> {
        let facts = || Some(facts::sizes(&Subject::of(&Wanted::of(case).ok()?).ok()?));
        facts().unwrap_or_default()
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        let metric = |name, about, better| MetricSpec { name, about, better };
        vec![
            metric("rtf", "time of computing by time of audio", Better::Lower),
            metric("tok_s", "tokens a second, without the prompt", Better::Higher),
            metric("token_p50_ms", "time of a token: half are faster", Better::Lower),
            metric("token_p95_ms", "time that 95 of 100 tokens keep", Better::Lower),
            metric("prefill_ms", "time of voices and prompt", Better::Lower),
            metric("generation_ms", "time of all tokens", Better::Lower),
            metric("exposed_ms", "time a token that compute waits for copies", Better::Lower),
            metric("copy_ms", "time a token that layers are copied", Better::Lower),
            metric("hidden", "share of the time of copies that nothing waits for", Better::Higher),
            metric("async_share", "share of copies that were asked for ahead", Better::Higher),
            metric("link_gb_s", "10^9 bytes a second while copying", Better::Higher),
        ]
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        let (subject, wanted, fit) = read(case, device)?;
        if let Some(reason) = subject.refusal() {
            return Ok(Prepared::DoesNotApply(reason));
        }
        if let Some(reason) = too_small(&subject, &wanted, &fit) {
            anyhow::bail!(reason);
        }
        let take = || {
            let runner = Runner::new(case, (subject, wanted), fit, (device, &self.home), &*self.watch)?;
            Ok(Box::new(OffloadTake::new(runner)) as _)
        };
        Prepared::if_it_fits(fit.needed, device, take)
    }
}
