//! The experiment of `laptime diagnose`: the same generation with the requested layers on the device, with all layers, and
//! with a few more.

use laptime_analyze::{Conclusion, ExperimentLimits, Trial};
use laptime_bench::{Case, Device, Outcome};
use laptime_report::Table;
use laptime_report::tables::{self, TrialRow};

use super::extras::{check_plan, not_measured};
use super::files::CPU;
use super::layers::Residency;
use super::plan::{with_layers, without_offloading};
use super::subject::{Spec, Subject};
use crate::extras::{Experiment, Variant, files::metric, refusal, refuse};

/// Additional resident layers of the third variant.
const MORE: usize = 4;

pub struct OffloadExperiment;

impl Experiment for OffloadExperiment {
    /// A case without offloading may be among them, since it is a variant anyway.
    fn case(&self, cases: &[Case]) -> Option<Case> {
        let case = cases.last()?;
        let is_one = |other: &Case| other == case || *other == without_offloading(case);
        cases.iter().all(is_one).then(|| case.clone())
    }

    fn variants(&self, case: &Case, device: &dyn Device) -> anyhow::Result<Vec<Variant>> {
        let (plan, _) = check_plan(case, device)?;
        let (layers, resident) = (plan.layers as usize, plan.gpu_layers as usize);
        if resident == layers {
            let reason = format!("all {layers} layers are on the device, so there is nothing to compare");
            return refuse(reason, "offload some with `--num-gpu-layers`, or set a `--memory-budget`");
        }
        let more = (resident + MORE).min(layers - 1);
        let with = |name, count| Variant { name, case: with_layers(case, count) };
        let none = Variant { name: "no offload", case: without_offloading(case) };
        let mut variants = vec![with("as requested", resident), none];
        variants.extend((more > resident).then(|| with("more layers", more)));
        Ok(variants)
    }

    fn conclude(&self, device: &str, tried: &[(Variant, Vec<Outcome>)]) -> anyhow::Result<(Table, Conclusion)> {
        let rows = tried.iter().map(row).collect::<anyhow::Result<Vec<TrialRow>>>()?;
        let trial = |at: usize| rows.get(at).and_then(|row| row.trial);
        let Some(requested) = trial(0) else { return Err(nothing(rows.first())) };
        let answer =
            laptime_analyze::experiment(&requested, trial(1).as_ref(), trial(2).as_ref(), ExperimentLimits::default());
        let emulated = tried.first().and_then(|(variant, _)| emulated(&variant.case, device));
        Ok((tables::experiment(&rows, &answer, emulated), answer.conclusion))
    }
}

fn emulated(case: &Case, device: &str) -> Option<f64> {
    let rate = case.get("link_gbps")?.to_string().parse::<f64>().ok()?;
    (rate > 0.0 && device == CPU).then_some(rate)
}

/// The medians of the rounds of a variant, or why it was not measured.
fn row((variant, outcomes): &(Variant, Vec<Outcome>)) -> anyhow::Result<TrialRow> {
    let subject = Subject::of(&Spec::of(&variant.case)?)?;
    let layers = match subject.residency {
        Residency::Layers(count) => count,
        Residency::Auto => subject.kind.decoder().layers,
    } as u64;
    let reason = outcomes.iter().find_map(not_measured);
    let median = |name: &str| {
        let rounds = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Measured(measured) => metric(measured, name).map(|ms| 1e6 * ms),
            _ => None,
        });
        laptime_stats::spread::median(&rounds.collect::<Vec<_>>())
    };
    let trial = median("token_p50_ms").filter(|_| reason.is_none()).map(|token_ns| {
        let (exposed_ns, copied_ns) = (median("exposed_ms"), median("copy_ms"));
        Trial { layers, token_ns, exposed_ns, copied_ns }
    });
    Ok(TrialRow { name: variant.name, layers, trial, reason })
}

fn nothing(row: Option<&TrialRow>) -> anyhow::Error {
    let reason = row.and_then(|row| row.reason.clone()).unwrap_or_else(|| "no tokens were generated".to_owned());
    let reason = format!("the case of the experiment was not measured: {reason}");
    refusal(reason, "`laptime profile offload` with the same flags shows more")
}
