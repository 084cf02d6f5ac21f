//! The number of resident layers: a number, a preset, all of them, or as many as fit.

use super::axes::{ALL, AUTO, USUAL};

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

/// The preset of a name, in any spelling.
pub fn preset(name: &str) -> Option<(&'static str, usize)> {
    let plain = name.trim().to_ascii_lowercase().replace('-', "_");
    PRESETS.into_iter().find(|(known, _)| *known == plain)
}

/// The number of resident layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// This many, the last ones of the model.
    Layers(usize),
    /// As many as fit.
    Auto,
}

/// Parses the number of resident layers. The default of a tiny model is half of its layers.
pub fn stay(word: &str, layers: usize, is_tiny: bool) -> Result<Stay, String> {
    match word {
        AUTO => return Ok(Stay::Auto),
        USUAL if is_tiny => return Ok(Stay::Layers(layers / 2)),
        USUAL => return Ok(Stay::Auto),
        ALL => return Ok(Stay::Layers(layers)),
        _ => {}
    }
    if let Some((_, of_28)) = preset(word) {
        return Ok(Stay::Layers(share(of_28, layers)));
    }
    match word.parse::<usize>() {
        Ok(number) if number <= layers => Ok(Stay::Layers(number)),
        Ok(number) => Err(format!("cannot keep {number} layers on the device: the model has {layers}")),
        Err(_) => {
            let known = PRESETS.map(|(name, _)| name).join(", ");
            Err(format!("`{word}` is not a number of layers; use a number, `{AUTO}`, `{ALL}`, or one of {known}"))
        }
    }
}

/// The same share of another number of layers, rounded: a preset is a share of the model.
fn share(of_28: usize, layers: usize) -> usize {
    (of_28.saturating_mul(layers).saturating_mul(2) + OF) / (2 * OF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_those_of_the_kit() {
        let parsed = PRESETS.map(|(name, _)| stay(name, 28, false));
        let expected = [28, 20, 12, 8, 4, 20, 16, 12, 8, 4].map(|layers| Ok(Stay::Layers(layers)));
        assert_eq!(parsed, expected);
        assert_eq!(preset("Mid-Range"), Some(("mid_range", 20)));
    }

    #[test]
    fn of_another_number_of_layers_a_preset_is_the_same_share() {
        let of = |layers| ["high_end", "light", "balanced", "extreme"].map(|name| stay(name, layers, false).unwrap());
        assert_eq!(of(4), [4, 3, 2, 1].map(Stay::Layers));
        assert_eq!(of(36), [36, 26, 15, 5].map(Stay::Layers));
    }

    #[test]
    fn a_number_is_at_most_the_layers_that_there_are() {
        assert_eq!(stay("0", 4, false), Ok(Stay::Layers(0)));
        assert_eq!(stay("all", 4, false), Ok(Stay::Layers(4)));
        assert_eq!(stay("5", 4, false).unwrap_err(), "cannot keep 5 layers on the device: the model has 4");
        assert!(stay("many", 4, false).unwrap_err().starts_with("`many` is not a number of layers"));
    }

    #[test]
    fn without_a_word_a_tiny_model_keeps_half_and_another_what_fits() {
        assert_eq!((stay("usual", 4, true), stay("usual", 28, false)), (Ok(Stay::Layers(2)), Ok(Stay::Auto)));
        assert_eq!(stay("auto", 4, true), Ok(Stay::Auto));
    }
}
