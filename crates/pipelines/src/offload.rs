//! The workload `offload`: a model with offloaded layers.

mod axes;
mod budget;
mod experiment;
mod extras;
mod facts;
mod files;
mod fit;
mod iteration;
mod layers;
mod live;
mod make;
mod observer;
#[cfg(feature = "cuda")]
mod on_gpu;
mod plan;
mod runner;
mod spec;
mod subject;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc};

use laptime_bench::{
    Alias, AxisSpec, Better, Case, Device, Fact, Given, GivenSettings, MetricSpec, ParsedCase, Plan, PlanError,
    Prepared, WarmUp, Work, Workload,
};

use self::{
    axes::{ALIASES, AUTO, axes},
    fit::{Fit, fit, too_small},
    iteration::OffloadIteration,
    plan::settle,
    runner::Runner,
    spec::Spec,
    subject::{Subject, usual_model},
};
pub use self::{
    extras::OffloadExtras,
    fit::BudgetTooSmall,
    observer::{Generated, NoObserver, Observer, Visits},
};

/// A speech or language model with offloaded layers.
pub struct OffloadedLayers {
    observer: Arc<dyn Observer>,
    /// The folder of the layer file on the CPU.
    home: PathBuf,
}

/// What is known about a case on a device before it is prepared.
#[derive(Debug, Clone, PartialEq)]
pub struct OffloadPlan {
    /// Layers of the model.
    pub layers: usize,
    /// Layers kept on the device.
    pub resident: usize,
    /// How the others are copied.
    pub mode: laptime_models::StreamMode,
    /// Predicted peak memory in bytes.
    pub needed_bytes: u64,
    /// Available memory or the memory budget, in bytes.
    pub budget_bytes: Option<u64>,
    /// Copies between two clearings of the allocator cache.
    pub clear_every: Option<usize>,
    /// Whether the device is a GPU; on the CPU offloaded layers are in a file.
    pub is_gpu: bool,
    /// The rate of an emulated link, in GB/s.
    pub emulated_gbps: Option<f64>,
    /// Facts about the case.
    pub facts: Vec<Fact>,
}

/// Iterations before the first that counts.
const WARM_UP: usize = 1;

/// Iterations that count.
const ITERATIONS: usize = 3;

impl OffloadedLayers {
    /// Without an observer.
    pub fn new() -> Self {
        Self::observed(Arc::new(NoObserver))
    }

    /// With an observer that is called for every token.
    pub fn observed(observer: Arc<dyn Observer>) -> Self {
        Self { observer, home: std::env::temp_dir() }
    }

    /// The same, with the layer file in another folder than the temporary one.
    pub fn with_home(self, home: impl Into<PathBuf>) -> Self {
        Self { home: home.into(), ..self }
    }

    /// The plan of a case on a device, or why it cannot run.
    pub fn look(case: &Case, device: &dyn Device) -> anyhow::Result<OffloadPlan> {
        let (subject, spec, fit) = read(case, device)?;
        if let Some(reason) = too_small(&subject, &spec, &fit) {
            return Err(BudgetTooSmall(reason).into());
        }
        let is_gpu = make::is_gpu(device);
        Ok(OffloadPlan {
            layers: subject.decoder().layers,
            resident: fit.resident,
            mode: spec.mode,
            needed_bytes: fit.needed,
            budget_bytes: fit.budget,
            clear_every: spec.clear_every,
            is_gpu,
            emulated_gbps: spec.link_gbps.filter(|_| !is_gpu),
            facts: facts::planned(&subject, &spec, &fit, is_gpu),
        })
    }

    /// The same case without offloading.
    pub fn without_offloading(case: &Case) -> Case {
        plan::without_offloading(case)
    }

    /// The same case with another number of layers on the device.
    pub fn with_layers(case: &Case, layers: usize) -> Case {
        plan::with_stay(case, layers::Stay::Layers(layers))
    }

    /// The number of layers that a case keeps on the device.
    pub fn resident_layers(case: &Case) -> anyhow::Result<usize> {
        let spec = Spec::of(case)?;
        let subject = Subject::of(&spec)?;
        let layers = subject.decoder().layers;
        Ok(match subject.stay {
            layers::Stay::Layers(count) => count,
            layers::Stay::Auto => layers,
        })
    }

    /// Runs a case once more for its audio; the noise is seeded. None for a language model without speech.
    pub fn speak(case: &Case, device: &dyn Device) -> anyhow::Result<Option<Generated>> {
        let kept = Arc::new(Kept::default());
        let workload = Self::observed(Arc::clone(&kept) as Arc<dyn Observer>);
        if let Prepared::Ready(mut iteration) = workload.prepare(case, device)? {
            iteration.run()?;
            iteration.readings(laptime_bench::Nanos(0));
        }
        let mut last = kept.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(last.take().filter(|generated| generated.rate > 0))
    }
}

/// Keeps the last generation.
#[derive(Default)]
struct Kept(std::sync::Mutex<Option<Generated>>);

impl Observer for Kept {
    fn end(&self, generated: Generated) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(generated);
    }
}

impl Default for OffloadedLayers {
    fn default() -> Self {
        Self::new()
    }
}

fn read(case: &Case, device: &dyn Device) -> anyhow::Result<(Subject, Spec, Fit)> {
    let spec = Spec::of(&with_model(case, device))?;
    let subject = Subject::of(&spec)?;
    let fit = fit(&subject, &spec, device);
    Ok((subject, spec, fit))
}

/// The case with the model that `auto` means on a device.
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
        "text to speech with offloaded layers: where each token's time goes"
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
        GivenSettings {
            warmup: Some(WarmUp::Iterations(WARM_UP)),
            iterations: Some(ITERATIONS),
            ..GivenSettings::default()
        }
    }

    fn on_device(&self, case: &Case, device: &dyn Device) -> Case {
        let case = with_model(case, device);
        let Ok((subject, spec, fit)) = read(&case, device) else { return case };
        let case = case.with("model", subject.name.clone()).with("dtype", subject.dtype.word());
        // A case that does not fit is reported when it is prepared.
        let is_open = !fit.fits() && spec.stay == AUTO;
        if is_open { case } else { Self::with_layers(&case, fit.resident) }
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        let metric = |name, about, better| MetricSpec { name, about, better };
        vec![
            metric("rtf", "real-time factor: time / audio duration", Better::Lower),
            metric("tok_s", "generated tokens per second", Better::Higher),
            metric("token_p50_ms", "median time per token", Better::Lower),
            metric("token_p95_ms", "95th percentile of the time per token", Better::Lower),
            metric("prefill_ms", "time to encode voices and prompt", Better::Lower),
            metric("generation_ms", "time to generate all tokens", Better::Lower),
            metric("exposed_ms", "time per token that compute waits for copies", Better::Lower),
            metric("copy_ms", "copy time per token", Better::Lower),
            metric("hidden", "share of the copy time that overlaps with compute", Better::Higher),
            metric("async_share", "share of copies that were prefetched", Better::Higher),
            metric("link_gb_s", "copy rate in GB/s", Better::Higher),
        ]
    }

    fn parse<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Box<dyn ParsedCase<'a> + 'a>> {
        let (subject, spec, fit) = read(case, device)?;
        if let Some(reason) = subject.refusal() {
            return Ok(Box::new(|| Ok(Prepared::DoesNotApply(reason))));
        }
        Ok(Box::new(OffloadCase { workload: self, case: case.clone(), subject, spec, fit, device }))
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        self.parse(case, device)?.prepare()
    }
}

/// A parsed case.
struct OffloadCase<'a> {
    workload: &'a OffloadedLayers,
    case: Case,
    subject: Subject,
    spec: Spec,
    fit: Fit,
    device: &'a dyn Device,
}

impl<'a> ParsedCase<'a> for OffloadCase<'a> {
    fn predicted_bytes(&self) -> Option<u64> {
        Some(self.fit.needed)
    }

    fn predicted_work(&self) -> Option<Work> {
        facts::work(&self.subject, &self.spec)
    }

    fn prepare(self: Box<Self>) -> anyhow::Result<Prepared<'a>> {
        let Self { workload, case, subject, spec, fit, device } = *self;
        if let Some(reason) = too_small(&subject, &spec, &fit) {
            anyhow::bail!(reason);
        }
        let iteration = || {
            let runner = Runner::new(case, (subject, spec), fit, (device, &workload.home), &*workload.observer)?;
            Ok(Box::new(OffloadIteration::new(runner)) as _)
        };
        Prepared::if_it_fits(fit.needed, device, iteration)
    }
}
