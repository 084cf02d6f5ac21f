//! The workload `offload`: a model with offloaded layers.

mod axes;
mod experiment;
mod extras;
mod files;
mod iteration;
mod layers;
mod live;
mod plan;
mod runner;
mod subject;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc};

use laptime_bench::{
    AxisSpec, Case, Device, Fact, Given, GivenSettings, MetricSpec, ParsedCase, Plan, PlanError, Prepared, Workload,
};
use laptime_models::StreamMode;
use laptime_report::offload_text::OffloadConfiguration;

use self::axes::{aliases, axes};
pub(crate) use self::extras::OffloadExtras;
use self::iteration::OffloadIteration;
use self::layers::{BudgetTooSmall, Fit, fit, too_small};
use self::plan::{settle, with_layers};
use self::runner::{Generated, NoObserver, Observer, Run, Runner};
use self::subject::{Spec, Subject, usual_model};
use crate::axis::{AUTO, describe, metrics};
use crate::backend::{Parsed, does_not_apply, is_gpu};
use crate::request::few_iterations;

/// A speech or language model with offloaded layers.
pub struct OffloadedLayers {
    observer: Arc<dyn Observer>,
    home: PathBuf,
}

/// The configuration of a case on a device, and facts, before it is prepared.
type OffloadPlan = (OffloadConfiguration, Vec<Fact>);

impl OffloadedLayers {
    /// Without an observer.
    pub fn new() -> Self {
        Self::observed(Arc::new(NoObserver))
    }

    /// With an observer that is called for every token.
    pub(crate) fn observed(observer: Arc<dyn Observer>) -> Self {
        Self { observer, home: std::env::temp_dir() }
    }

    /// The same, with the layer file in another folder than the temporary one.
    pub fn with_home(self, home: impl Into<PathBuf>) -> Self {
        Self { home: home.into(), ..self }
    }

    /// The plan of a case on a device, or why it cannot run.
    fn plan_of(case: &Case, device: &dyn Device) -> anyhow::Result<OffloadPlan> {
        let (subject, spec, fit) = read(case, device)?;
        if let Some(reason) = too_small(&subject, &spec, &fit) {
            return Err(BudgetTooSmall(reason).into());
        }
        let (is_gpu, layers) = (is_gpu(device), subject.kind.decoder().layers);
        let configuration = OffloadConfiguration {
            enabled: fit.resident < layers,
            is_gpu,
            gpu_layers: fit.resident as u64,
            layers: layers as u64,
            pin_memory: is_gpu && spec.mode > StreamMode::Sync,
            prefetch: spec.mode.is_ahead(),
            async_transfer: spec.mode.is_ahead(),
            cache_clear_interval: spec.clear_every.map(|copies| copies as u64),
            mode: spec.mode.word().to_owned(),
            emulated_gbps: spec.link_gbps.filter(|_| !is_gpu),
            predicted: Some(fit.needed),
            budget: fit.budget,
        };
        Ok((configuration, iteration::planned(&subject, &spec, &fit, is_gpu)))
    }

    /// Runs a case once more for its audio, which does not change because noise is seeded. None for a language model.
    fn speak(case: &Case, device: &dyn Device) -> anyhow::Result<Option<Generated>> {
        let (subject, spec, fit) = read(case, device)?;
        if subject.refusal().is_some() || device.available_bytes().is_some_and(|available| fit.needed > available) {
            return Ok(None);
        }
        let (home, mut run) = (std::env::temp_dir(), Run::default());
        let mut runner = Runner::new(case.clone(), (subject, spec), fit, (device, &home), &NoObserver)?;
        runner.generate(&mut run)?;
        Ok(Some(runner.generated(&run)).filter(|generated| generated.rate > 0))
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

/// The case with the default model of the device instead of `auto`.
fn with_model(case: &Case, device: &dyn Device) -> Case {
    let is_lm = case.text("pipeline") == Ok("lm");
    match case.text("model") {
        Ok(AUTO) => case.with("model", usual_model(is_lm, is_gpu(device))),
        _ => case.clone(),
    }
}

impl Workload for OffloadedLayers {
    describe!(
        "offload",
        "text to speech with offloaded layers: where each token's time goes",
        axes(),
        aliases(),
        settle
    );

    fn usual_settings(&self) -> GivenSettings {
        few_iterations()
    }

    fn on_device(&self, case: &Case, device: &dyn Device) -> Case {
        let case = with_model(case, device);
        let Ok((subject, spec, fit)) = read(&case, device) else { return case };
        let case = case.with("model", subject.name.clone()).with("dtype", subject.dtype.word());
        // A case that does not fit is reported when it is prepared.
        let is_open = !fit.fits() && spec.residency == AUTO;
        if is_open { case } else { with_layers(&case, fit.resident) }
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        metrics! {
            "rtf", Lower, "real-time factor: time / audio duration";
            "tok_s", Higher, "generated tokens per second";
            "token_p50_ms", Lower, "median time per token";
            "token_p95_ms", Lower, "95th percentile of the time per token";
            "prefill_ms", Lower, "time to encode voices and prompt";
            "generation_ms", Lower, "time to generate all tokens";
            "exposed_ms", Lower, "time per token that compute waits for copies";
            "copy_ms", Lower, "copy time per token";
            "hidden", Higher, "share of the copy time that overlaps with compute";
            "async_share", Higher, "share of copies that were prefetched";
            "link_gb_s", Higher, "copy rate in GB/s";
        }
    }

    fn parse<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Box<dyn ParsedCase<'a> + 'a>> {
        let (subject, spec, fit) = read(case, device)?;
        if let Some(reason) = subject.refusal() {
            return does_not_apply(reason);
        }
        Ok(Box::new(Parsed {
            bytes: fit.needed,
            refusal: None,
            spec: (self, case.clone(), subject, spec, fit),
            device,
            work: |(_, _, subject, spec, _)| iteration::work(subject, spec),
            make: |(workload, case, subject, spec, fit), device| {
                if let Some(reason) = too_small(&subject, &spec, &fit) {
                    anyhow::bail!(reason);
                }
                let runner = Runner::new(case, (subject, spec), fit, (device, &workload.home), &*workload.observer)?;
                Ok(Box::new(OffloadIteration::new(runner)))
            },
        }))
    }
}
