//! The number of resident layers: a number, a preset, all of them, or as many as fit into memory.

use laptime_bench::Device;
use laptime_models::{ModelError, most_resident};

use super::axes::{ALL, FREE, USUAL};
use super::runner::needed_bytes;
use super::subject::{Spec, Subject};
use crate::axis::AUTO;

/// The number of layers that presets refer to.
const OF: usize = 28;

/// The presets of VibeVoice offload with their resident layers, out of 28.
pub const PRESETS: [(&str, usize); 10] = [
    ("high_end", 28),
    ("mid_range", 20),
    ("consumer", 12),
    ("budget", 8),
    ("minimal", 4),
    ("light", 20),
    ("moderate", 16),
    ("balanced", 12),
    ("aggressive", 8),
    ("extreme", 4),
];

pub fn preset(name: &str) -> Option<(&'static str, usize)> {
    let plain = name.trim().to_ascii_lowercase().replace('-', "_");
    PRESETS.into_iter().find(|(known, _)| *known == plain)
}

/// Which layers are resident on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// This number, from the end of the model.
    Layers(usize),
    /// As many as fit.
    Auto,
}

/// Parses the number of resident layers. The default of a tiny model is half of its layers.
pub fn parse_residency(word: &str, layers: usize, is_tiny: bool) -> Result<Residency, String> {
    match word {
        AUTO => return Ok(Residency::Auto),
        USUAL if is_tiny => return Ok(Residency::Layers(layers / 2)),
        USUAL => return Ok(Residency::Auto),
        ALL => return Ok(Residency::Layers(layers)),
        _ => {}
    }
    if let Some((_, of_28)) = preset(word) {
        return Ok(Residency::Layers(share(of_28, layers)));
    }
    match word.parse::<usize>() {
        Ok(number) if number <= layers => Ok(Residency::Layers(number)),
        Ok(number) => Err(format!("cannot keep {number} layers on the device: the model has {layers}")),
        Err(_) => {
            let known = PRESETS.map(|(name, _)| name).join(", ");
            Err(format!("`{word}` is not a number of layers; use a number, `{AUTO}`, `{ALL}`, or one of {known}"))
        }
    }
}

/// The share of a preset for another number of layers, rounded.
fn share(of_28: usize, layers: usize) -> usize {
    (of_28.saturating_mul(layers).saturating_mul(2) + OF) / (2 * OF)
}

const UNITS: [(&str, f64); 9] = [
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("m", 1e6),
    ("g", 1e9),
    ("b", 1.0),
];

/// Bytes of a budget such as `8GB`, `500MiB` or `1.5 gb`; none for the free memory. A bare number means bytes.
pub fn budget_bytes(text: &str) -> Result<Option<u64>, String> {
    let plain = text.trim().to_ascii_lowercase();
    if plain == FREE {
        return Ok(None);
    }
    let (number, unit) =
        UNITS.iter().find_map(|(unit, size)| Some((plain.strip_suffix(unit)?, *size))).unwrap_or((&plain, 1.0));
    match number.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(Some((number * unit) as u64)),
        _ => Err(format!("`{text}` is not a memory size")),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fit {
    pub resident: usize,
    /// Needed bytes; a minimum if nothing fits.
    pub needed: u64,
    /// Available bytes, or the budget; none if unknown.
    pub budget: Option<u64>,
}

impl Fit {
    pub fn fits(&self) -> bool {
        self.budget.is_none_or(|budget| self.needed <= budget)
    }
}

/// Determines the resident layers: the requested number, or as many as fit. If the model does not even fit with all
/// layers offloaded, [`Fit::fits`] is false.
pub fn fit(subject: &Subject, spec: &Spec, device: &dyn Device) -> Fit {
    let budget = spec.budget.or_else(|| device.available_bytes());
    let layers = subject.kind.decoder().layers;
    let needed = |resident: usize| needed_bytes(subject, spec, resident, device);
    let resident = match (subject.residency, budget) {
        (Residency::Layers(asked), _) => asked,
        (Residency::Auto, None) => layers,
        (Residency::Auto, Some(budget)) => match most_resident(layers, budget, needed) {
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
    let what = match (subject.residency, fit.resident) {
        (Residency::Auto, _) => "the model needs".to_owned(),
        (Residency::Layers(_), 1) => "with 1 layer on the device it needs".to_owned(),
        (Residency::Layers(_), layers) => format!("with {layers} layers on the device it needs"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_match_vibevoice_offload() {
        let parsed = PRESETS.map(|(name, _)| parse_residency(name, 28, false));
        let expected = [28, 20, 12, 8, 4, 20, 16, 12, 8, 4].map(|layers| Ok(Residency::Layers(layers)));
        assert_eq!(parsed, expected);
        assert_eq!(preset("Mid-Range"), Some(("mid_range", 20)));
    }

    #[test]
    fn a_preset_is_the_same_share_of_any_number_of_layers() {
        let of = |layers| {
            ["high_end", "light", "balanced", "extreme"].map(|name| parse_residency(name, layers, false).unwrap())
        };
        assert_eq!(of(4), [4, 3, 2, 1].map(Residency::Layers));
        assert_eq!(of(36), [36, 26, 15, 5].map(Residency::Layers));
    }

    #[test]
    fn a_number_is_at_most_the_layers_of_the_model() {
        assert_eq!(parse_residency("0", 4, false), Ok(Residency::Layers(0)));
        assert_eq!(parse_residency("all", 4, false), Ok(Residency::Layers(4)));
        assert_eq!(parse_residency("5", 4, false).unwrap_err(), "cannot keep 5 layers on the device: the model has 4");
        assert!(parse_residency("many", 4, false).unwrap_err().starts_with("`many` is not a number of layers"));
    }

    #[test]
    fn by_default_a_tiny_model_keeps_half_of_its_layers_and_others_what_fits() {
        assert_eq!(
            (parse_residency("usual", 4, true), parse_residency("usual", 28, false)),
            (Ok(Residency::Layers(2)), Ok(Residency::Auto))
        );
        assert_eq!(parse_residency("auto", 4, true), Ok(Residency::Auto));
    }
}

#[cfg(test)]
mod budget_tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_their_units() {
        let shown = ["8GB", "500MiB", "1.5 gb", "2g", "7", "free"].map(|text| budget_bytes(text).unwrap());
        let sizes = [8_000_000_000, 500 << 20, 1_500_000_000, 2_000_000_000, 7].map(Some);
        assert_eq!(shown[..5], sizes);
        assert_eq!(shown[5], None);
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for text in ["much", "", "-1GB", "0", "nanGB", "infGB"] {
            assert_eq!(budget_bytes(text), Err(format!("`{text}` is not a memory size")));
        }
    }
}
