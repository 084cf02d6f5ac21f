//! How codes are chosen: what can be set.

use std::path::Path;

use serde_json::Value;

use crate::{Done, ModelError, config_json::Fields, folder::read_text};

/// What the official package takes where nothing is asked for.
const TEMPERATURE: f32 = 0.9;
const TOP_K: usize = 50;
const TOP_P: f64 = 1.0;

/// How one code is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Choice {
    /// The likeliest, the lowest of equal ones.
    Likeliest,
    /// One is drawn.
    Drawn {
        /// What logits are divided by.
        temperature: f32,
        /// How many of the likeliest are drawn from, and those that are as likely as the last of them; 0 for all.
        top_k: usize,
        /// What part of all weights those that are drawn from make up, at least; 1 for all.
        top_p: f64,
    },
}

impl Default for Choice {
    fn default() -> Self {
        Self::Drawn { temperature: TEMPERATURE, top_k: TOP_K, top_p: TOP_P }
    }
}

/// How codes are chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// How the talker's are, the semantic ones.
    pub talker: Choice,
    /// How the predictor's are.
    pub predictor: Choice,
    /// What logits of semantic codes that were chosen before are divided by, or multiplied with if they are below 0.
    pub repetition_penalty: f32,
    /// What random numbers start from.
    pub seed: u64,
    /// Frames that are made before the end can be chosen.
    pub least_frames: usize,
    /// Whether the end is never chosen, so that exactly as many frames are made as are asked for: with synthetic weights
    /// it means nothing.
    pub is_endless: bool,
}

impl Default for Sampling {
    /// As the official package does.
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
    /// The likeliest of everything.
    pub fn likeliest() -> Self {
        Self { talker: Choice::Likeliest, predictor: Choice::Likeliest, ..Self::default() }
    }

    /// Whether the end can be chosen behind this many frames.
    pub fn may_end(&self, frames: usize) -> bool {
        !self.is_endless && frames >= self.least_frames
    }

    /// Refuses numbers that make no sense.
    pub fn check(&self) -> Done {
        let is_positive = |number: f64| number.is_finite() && number > 0.0;
        let refuse = |what: &str, number: f64| Err(ModelError::Refused(format!("{what} is {number}")));
        if !is_positive(f64::from(self.repetition_penalty)) {
            return refuse("the repetition penalty must be above 0: it", f64::from(self.repetition_penalty));
        }
        for choice in [self.talker, self.predictor] {
            let Choice::Drawn { temperature, top_p, .. } = choice else { continue };
            if !is_positive(f64::from(temperature)) {
                return refuse("the temperature must be above 0: it", f64::from(temperature));
            }
            if !(is_positive(top_p) && top_p <= 1.0) {
                return refuse("`top_p` must be above 0 and at most 1: it", top_p);
            }
        }
        Ok(())
    }

    /// What the `generation_config.json` of a folder asks for; where it says nothing, or there is none, as usual.
    pub fn from_folder(folder: &Path) -> Result<Self, ModelError> {
        let path = folder.join("generation_config.json");
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = read_text(&path)?;
        Self::from_json(&text).map_err(|reason| ModelError::damaged(&path, reason))
    }

    fn from_json(text: &str) -> Result<Self, String> {
        let Ok(Value::Object(fields)) = serde_json::from_str(text) else {
            return Err("it is no JSON object".to_owned());
        };
        let fields = Fields(&fields);
        let usual = Self::default();
        let penalty = fields.number("repetition_penalty")?;
        let read = Self {
            talker: choice(&fields, ["do_sample", "temperature", "top_k", "top_p"])?,
            predictor: choice(
                &fields,
                ["subtalker_dosample", "subtalker_temperature", "subtalker_top_k", "subtalker_top_p"],
            )?,
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
    fn the_end_comes_behind_two_frames_at_the_earliest_and_never_if_it_is_endless() {
        let sampling = Sampling::default();
        assert_eq!([0, 1, 2, 9].map(|frames| sampling.may_end(frames)), [false, false, true, true]);
        assert!(!Sampling { is_endless: true, ..sampling }.may_end(9));
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        let drawn = |temperature, top_p| Choice::Drawn { temperature, top_k: 50, top_p };
        let refused = |sampling: Sampling| sampling.check().unwrap_err().to_string();
        Sampling::default().check().unwrap();
        let cold = Sampling { talker: drawn(0.0, 1.0), ..Sampling::default() };
        assert_eq!(refused(cold), "the temperature must be above 0: it is 0");
        let none = Sampling { predictor: drawn(1.0, 1.5), ..Sampling::default() };
        assert_eq!(refused(none), "`top_p` must be above 0 and at most 1: it is 1.5");
        let penalty = Sampling { repetition_penalty: f32::NAN, ..Sampling::default() };
        assert!(refused(penalty).starts_with("the repetition penalty must be above 0"));
    }

    #[test]
    fn a_folder_may_ask_for_something_else() {
        let read = Sampling::from_json(
            r#"{"do_sample": true, "temperature": 0.5, "top_k": 20, "repetition_penalty": 1.2,
                "subtalker_dosample": false, "max_new_tokens": 8192}"#,
        );
        let talker = Choice::Drawn { temperature: 0.5, top_k: 20, top_p: 1.0 };
        let expected =
            Sampling { talker, predictor: Choice::Likeliest, repetition_penalty: 1.2, ..Sampling::default() };
        assert_eq!(read.unwrap(), expected);
        assert_eq!(Sampling::from_json("{}").unwrap(), Sampling::default());
        assert_eq!(
            Sampling::from_json(r#"{"top_k": -1}"#).unwrap_err(),
            "`top_k` is -1, expected a non-negative integer"
        );
        assert!(Sampling::from_json(r#"{"temperature": 0}"#).unwrap_err().contains("must be above 0"));
        assert_eq!(Sampling::from_json("[]").unwrap_err(), "it is no JSON object");
    }
}
