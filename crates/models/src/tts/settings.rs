//! Sampling settings.

use std::path::Path;

use crate::{Done, ModelError, config_json::Fields, error::ensure, folder::read_json};

/// The defaults of the official package.
const TEMPERATURE: f32 = 0.9;
const TOP_K: usize = 50;
const TOP_P: f64 = 1.0;

/// How a code is sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Choice {
    /// Greedy. Ties go to the lowest id.
    Likeliest,
    /// At random.
    Drawn {
        /// Logits are divided by it.
        temperature: f32,
        /// Keeps this many of the most likely codes, and ties with the last of them; 0 keeps all.
        top_k: usize,
        /// Keeps the most likely codes up to this share of all weights; 1 keeps all.
        top_p: f64,
    },
}

impl Default for Choice {
    fn default() -> Self {
        Self::Drawn { temperature: TEMPERATURE, top_k: TOP_K, top_p: TOP_P }
    }
}

/// Sampling settings of a synthesis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// For the semantic codes.
    pub talker: Choice,
    /// For all other codes.
    pub predictor: Choice,
    /// Logits of semantic codes that were sampled before are divided by it, or multiplied if negative.
    pub repetition_penalty: f32,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Frames before the end may be sampled.
    pub least_frames: usize,
    /// Never sample the end: synthetic weights do not predict it.
    pub is_endless: bool,
}

impl Default for Sampling {
    /// The settings of the official package.
    fn default() -> Self {
        Self {
            talker: Choice::default(),
            predictor: Choice::default(),
            repetition_penalty: 1.05,
            seed: 42,
            least_frames: 2,
            is_endless: false,
        }
    }
}

impl Sampling {
    /// Greedy sampling of all codes.
    pub fn likeliest() -> Self {
        Self { talker: Choice::Likeliest, predictor: Choice::Likeliest, ..Self::default() }
    }

    /// Whether the end may be sampled after this many frames.
    pub fn may_end(&self, frames: usize) -> bool {
        !self.is_endless && frames >= self.least_frames
    }

    /// Refuses values out of range.
    pub fn check(&self) -> Done {
        let is_positive = |number: f64| number.is_finite() && number > 0.0;
        let penalty = self.repetition_penalty;
        ensure!(is_positive(penalty.into()), "the repetition penalty is {penalty}, expected a number above 0");
        for choice in [self.talker, self.predictor] {
            let Choice::Drawn { temperature, top_p, .. } = choice else { continue };
            ensure!(is_positive(temperature.into()), "the temperature is {temperature}, expected a number above 0");
            ensure!(is_positive(top_p) && top_p <= 1.0, "`top_p` is {top_p}, expected a number above 0 and at most 1");
        }
        Ok(())
    }

    /// The settings in the `generation_config.json` of a folder, with defaults for missing fields or a missing file.
    pub fn from_folder(folder: &Path) -> Result<Self, ModelError> {
        let path = folder.join("generation_config.json");
        if !path.exists() {
            return Ok(Self::default());
        }
        Self::from_fields(&Fields(&read_json(&path, "JSON object")?))
            .map_err(|reason| ModelError::damaged(&path, reason))
    }

    fn from_fields(fields: &Fields<'_>) -> Result<Self, String> {
        let usual = Self::default();
        let penalty = fields.number("repetition_penalty")?;
        let subtalker = ["subtalker_dosample", "subtalker_temperature", "subtalker_top_k", "subtalker_top_p"];
        let read = Self {
            talker: choice(fields, ["do_sample", "temperature", "top_k", "top_p"])?,
            predictor: choice(fields, subtalker)?,
            repetition_penalty: penalty.map_or(usual.repetition_penalty, |penalty| penalty as f32),
            ..usual
        };
        read.check().map_err(|error| error.to_string())?;
        Ok(read)
    }
}

fn choice(fields: &Fields<'_>, [drawn, temperature, top_k, top_p]: [&str; 4]) -> Result<Choice, String> {
    if fields.truth(drawn)? == Some(false) {
        return Ok(Choice::Likeliest);
    }
    Ok(Choice::Drawn {
        temperature: fields.number(temperature)?.map_or(TEMPERATURE, |number| number as f32),
        top_k: fields.count(top_k)?.unwrap_or(TOP_K),
        top_p: fields.number(top_p)?.unwrap_or(TOP_P),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_allowed_from_two_frames_on_and_never_if_endless() {
        let sampling = Sampling::default();
        assert_eq!([0, 1, 2, 9].map(|frames| sampling.may_end(frames)), [false, false, true, true]);
        assert!(!Sampling { is_endless: true, ..sampling }.may_end(9));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let drawn = |temperature, top_p| Choice::Drawn { temperature, top_k: 50, top_p };
        let refused = |sampling: Sampling| sampling.check().unwrap_err().to_string();
        Sampling::default().check().unwrap();
        let cold = Sampling { talker: drawn(0.0, 1.0), ..Sampling::default() };
        assert_eq!(refused(cold), "the temperature is 0, expected a number above 0");
        let none = Sampling { predictor: drawn(1.0, 1.5), ..Sampling::default() };
        assert_eq!(refused(none), "`top_p` is 1.5, expected a number above 0 and at most 1");
        let penalty = Sampling { repetition_penalty: f32::NAN, ..Sampling::default() };
        assert!(refused(penalty).starts_with("the repetition penalty is NaN, expected"));
    }

    #[test]
    fn a_folder_may_have_other_settings() {
        let folder = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            std::fs::write(folder.path().join("generation_config.json"), text).unwrap();
            Sampling::from_folder(folder.path())
        };
        assert_eq!(Sampling::from_folder(folder.path()).unwrap(), Sampling::default());
        let settings = read(
            r#"{"do_sample": true, "temperature": 0.5, "top_k": 20, "repetition_penalty": 1.2,
                "subtalker_dosample": false, "max_new_tokens": 8192}"#,
        );
        let talker = Choice::Drawn { temperature: 0.5, top_k: 20, top_p: 1.0 };
        let expected =
            Sampling { talker, predictor: Choice::Likeliest, repetition_penalty: 1.2, ..Sampling::default() };
        assert_eq!(settings.unwrap(), expected);
        assert_eq!(read("{}").unwrap(), Sampling::default());
        let refused = |text: &str| read(text).unwrap_err().to_string();
        assert!(refused(r#"{"top_k": -1}"#).contains("`top_k` is -1"));
        assert!(refused(r#"{"temperature": 0}"#).contains("expected a number above 0"));
        assert!(refused("[]").contains("generation_config.json"));
    }
}
