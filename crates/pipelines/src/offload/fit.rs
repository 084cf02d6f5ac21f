//! How many layers fit into the available memory.

use laptime_bench::Device;
use laptime_models::{ModelError, most_resident};

use super::{layers::Stay, make::needed_bytes, spec::Spec, subject::Subject};

/// The resident layers and their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    /// The number of resident layers.
    pub resident: usize,
    /// Needed bytes; a minimum if nothing fits.
    pub needed: u64,
    /// Available bytes, or the budget; none if unknown.
    pub budget: Option<u64>,
}

impl Fit {
    /// Whether it is within the budget.
    pub fn fits(&self) -> bool {
        self.budget.is_none_or(|budget| self.needed <= budget)
    }
}

/// Finds how many layers stay: those that were asked for, or as many as fit. Where none fit, none stay, and
/// [`Fit::fits`] says so.
pub fn fit(subject: &Subject, spec: &Spec, device: &dyn Device) -> Fit {
    let budget = spec.budget.or_else(|| device.available_bytes());
    let layers = subject.decoder().layers;
    let needed = |resident: usize| needed_bytes(subject, spec, resident, device);
    let resident = match (subject.stay, budget) {
        (Stay::Layers(asked), _) => asked,
        (Stay::Auto, None) => layers,
        (Stay::Auto, Some(budget)) => match most_resident(layers, budget, needed) {
            Ok(most) => most,
            Err(ModelError::SmallBudget { least, .. }) => {
                return Fit { resident: 0, needed: least, budget: Some(budget) };
            }
            Err(_) => 0,
        },
    };
    Fit { resident, needed: needed(resident), budget }
}

/// A memory budget in which the model cannot run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BudgetTooSmall(pub String);

/// Why a given budget is too small, if it is.
pub fn too_small(subject: &Subject, spec: &Spec, fit: &Fit) -> Option<String> {
    let budget = spec.budget.filter(|_| !fit.fits())?;
    let needed_text = mib(fit.needed.div_ceil(MIB));
    let what = match (subject.stay, fit.resident) {
        (Stay::Auto, _) => "the model needs".to_owned(),
        (Stay::Layers(_), 1) => "with 1 layer on the device it needs".to_owned(),
        (Stay::Layers(_), layers) => format!("with {layers} layers on the device it needs"),
    };
    let set = mib(budget / MIB);
    Some(format!(
        "a memory budget of {set} is too small: {what} {needed_text}, so `--memory-budget {needed_text}` is the smallest that works"
    ))
}

const MIB: u64 = 1 << 20;

fn mib(count: u64) -> String {
    format!("{count}MiB")
}
