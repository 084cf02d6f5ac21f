//! Models: inference and training passes, the cost of training, and the loss.

use std::collections::HashMap;

use laptime_trace::run::{AxisValue, Case, CaseResult};

use super::Part;
use crate::cases::CaseFigures;
use crate::series::LENGTH;

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

/// The cases of a part by their other axes and their pass.
pub struct Passes<'a> {
    cases: HashMap<(String, String), &'a CaseFigures>,
}

impl<'a> Passes<'a> {
    /// The case that differs only in its pass.
    pub fn twin(&self, case: &CaseFigures, pass: &str) -> Option<&'a CaseFigures> {
        self.cases.get(&(rest(case), pass.to_owned())).copied()
    }

    /// Whether a case is part of a step that was measured too.
    pub fn has_step(&self, case: &CaseFigures) -> bool {
        pass(case) != "step" && self.twin(case, "step").is_some_and(|step| step.measured.is_some())
    }
}

impl Part {
    /// The cases by their other axes and their pass.
    pub fn passes(&self) -> Passes<'_> {
        Passes { cases: self.cases.iter().map(|case| ((rest(case), pass(case)), case)).collect() }
    }

    /// The cost of training relative to inference of the same case: the whole step if it was measured, else forward and
    /// backward.
    pub fn training_costs(&self) -> Vec<TrainingCost> {
        let passes = self.passes();
        let trained = self.cases.iter().filter(|case| Mode::of(&case.id.case) == Some(Mode::Training));
        trained.filter(|case| !passes.has_step(case)).filter_map(|case| training_cost(&passes, case)).collect()
    }

    /// The losses of whole steps, at the greatest length of each model.
    pub fn loss_curves(&self) -> Vec<LossCurve> {
        let mut curves: Vec<(String, i64, LossCurve)> = Vec::new();
        for result in self.results.iter().filter(|result| is_first_step(result)) {
            let Some(losses) = losses(result) else { continue };
            let length = result.case.int(LENGTH).unwrap_or(0);
            let key = rest_of(result);
            let curve = LossCurve { case: result.case.clone(), losses };
            match curves.iter_mut().find(|(known, _, _)| *known == key) {
                Some(known) if known.1 < length => *known = (key, length, curve),
                Some(_) => {}
                None => curves.push((key, length, curve)),
            }
        }
        curves.into_iter().map(|(_, _, curve)| curve).collect()
    }
}

fn training_cost(passes: &Passes<'_>, case: &CaseFigures) -> Option<TrainingCost> {
    let forward = ["forward", "prefill", "inference"].iter().find_map(|pass| passes.twin(case, pass))?;
    let (own, forward) = (case.measured.as_ref()?.wall.median, forward.measured.as_ref()?.wall.median);
    let ratio = Some(own / forward).filter(|ratio| ratio.is_finite())?;
    let length = u64::try_from(case.id.case.int(LENGTH).ok()?).ok()?;
    Some(TrainingCost { case: case.id.case.clone(), length, ratio })
}

/// What a case has in common with those of other passes.
fn rest(case: &CaseFigures) -> String {
    case.id.without(&["pass_type", "test"]).key()
}

fn pass(case: &CaseFigures) -> String {
    case.id.case.get("pass_type").map(ToString::to_string).unwrap_or_default()
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
