//! Models: inference and training passes, the cost of training, and the loss.

use laptime_trace::run::{AxisValue, Case, CaseResult};

use super::Part;
use crate::{by_case::grouped, cases::CaseFigures, series::LENGTH};

laptime_trace::words! {
    /// The purpose of a pass.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Mode: word {
        /// A pass over all tokens at once, without gradients.
        Inference = "inference",
        /// Forward and backward, with or without the optimiser's step.
        Training = "training",
    }
}

impl Mode {
    /// The mode of a model case; none for decoding, which generates one token at a time.
    pub fn of(case: &Case) -> Option<Self> {
        match case.get("pass_type")?.to_string().as_str() {
            "forward" | "prefill" | "inference" => Some(Self::Inference),
            "forward_backward" | "step" | "training" => Some(Self::Training),
            _ => None,
        }
    }
}

/// Time of a training pass / time of a forward pass.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainingCost {
    /// The case of training.
    pub case: Case,
    /// Its length.
    pub length: u64,
    /// The ratio of medians.
    pub ratio: f64,
}

/// The loss of training, step by step.
#[derive(Debug, Clone, PartialEq)]
pub struct LossCurve {
    /// The case.
    pub case: Case,
    /// The losses of the first process from its first update on: check, warm-up, then the rest.
    pub losses: Vec<f64>,
}

impl CaseFigures {
    /// The pass of a model case; empty for other cases.
    pub fn pass(&self) -> String {
        self.id.case.get("pass_type").map(ToString::to_string).unwrap_or_default()
    }
}

/// The case that differs only in its pass.
pub fn with_pass<'a>(cases: &'a [CaseFigures], case: &CaseFigures, pass: &str) -> Option<&'a CaseFigures> {
    fn rest(case: &CaseFigures) -> impl Iterator<Item = (&str, &AxisValue)> {
        case.id.case.values().filter(|(axis, _)| !["test", "pass_type"].contains(axis))
    }
    let is_same = |other: &&CaseFigures| other.id.device == case.id.device && rest(other).eq(rest(case));
    cases.iter().filter(is_same).find(|other| other.pass() == pass)
}

impl Part {
    /// Whether a case is part of a step that was measured too.
    pub fn has_step(&self, case: &CaseFigures) -> bool {
        case.pass() != "step" && with_pass(&self.cases, case, "step").is_some_and(|step| step.measured.is_some())
    }

    /// The cost of training relative to inference of the same case: the whole step if it was measured, else forward and
    /// backward.
    pub fn training_costs(&self) -> Vec<TrainingCost> {
        let trained = self.cases.iter().filter(|case| Mode::of(&case.id.case) == Some(Mode::Training));
        trained.filter(|case| !self.has_step(case)).filter_map(|case| training_cost(&self.cases, case)).collect()
    }

    /// The losses of whole steps, at the greatest length of each model.
    pub fn loss_curves(&self) -> Vec<LossCurve> {
        let curve = |result: &CaseResult| {
            let curve = LossCurve { case: result.case.clone(), losses: losses(result)? };
            Some((rest_of(result), (result.case.int(LENGTH).unwrap_or(0), curve)))
        };
        let curves = grouped(self.results.iter().filter(|result| is_first_step(result)).filter_map(curve));
        // The first of several at the greatest length.
        let longest =
            |(_, curves): (_, Vec<(i64, LossCurve)>)| curves.into_iter().rev().max_by_key(|(length, _)| *length);
        curves.into_iter().filter_map(longest).map(|(_, curve)| curve).collect()
    }
}

fn training_cost(cases: &[CaseFigures], case: &CaseFigures) -> Option<TrainingCost> {
    let forward = ["forward", "prefill", "inference"].iter().find_map(|pass| with_pass(cases, case, pass))?;
    let (own, forward) = (case.measured.as_ref()?.wall.median, forward.measured.as_ref()?.wall.median);
    let ratio = Some(own / forward).filter(|ratio| ratio.is_finite())?;
    let length = u64::try_from(case.id.case.int(LENGTH).ok()?).ok()?;
    Some(TrainingCost { case: case.id.case.clone(), length, ratio })
}

fn is_first_step(result: &CaseResult) -> bool {
    let pass = result.case.get("pass_type").map(ToString::to_string);
    result.run == 0 && matches!(pass.as_deref(), Some("step" | "training"))
}

fn losses(result: &CaseResult) -> Option<Vec<f64>> {
    let measured = result.measured()?;
    let counted = measured.metric("loss")?;
    let early = measured.warmup_metrics.iter().filter(|metric| metric.name == "loss");
    let taken = early.chain([counted]).flat_map(|metric| metric.values.iter().flatten().copied());
    let checked = match measured.fact("check_loss") {
        Some(AxisValue::Float(loss)) => Some(*loss),
        _ => None,
    };
    let known: Vec<f64> = checked.into_iter().chain(taken).filter(|loss| loss.is_finite()).collect();
    (!known.is_empty()).then_some(known)
}

/// A case without its length.
fn rest_of(result: &CaseResult) -> String {
    let parts = result.case.values().filter(|(axis, _)| *axis != LENGTH && *axis != "test");
    let parts: Vec<String> = parts.map(|(axis, value)| format!("{axis}={value}")).collect();
    format!("{} {}", result.device, parts.join(" "))
}
