//! How deep the stages of a workload are marked.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

crate::words! {
    /// How deep the stages of a workload are marked; deeper stages cost more.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Depth, ALL: word {
        /// Stages and laps.
        #[default]
        Pipeline = "pipeline",
        /// Also the layers of models.
        Layer = "layer",
        /// Also every operation.
        Ops = "ops",
    }
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Why a word is not a depth.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is not a depth; use `pipeline`, `layer` or `ops`")]
pub struct NoDepth {
    word: String,
}

impl FromStr for Depth {
    type Err = NoDepth;

    fn from_str(word: &str) -> Result<Self, NoDepth> {
        let found = Self::ALL.into_iter().find(|depth| depth.word() == word);
        found.ok_or_else(|| NoDepth { word: word.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_depth_is_read_by_its_word_and_no_other() {
        for depth in Depth::ALL {
            assert_eq!(depth.word().parse(), Ok(depth));
        }
        assert!(Depth::Pipeline < Depth::Layer && Depth::Layer < Depth::Ops);
        let error = "deep".parse::<Depth>().unwrap_err();
        assert_eq!(error.to_string(), "`deep` is not a depth; use `pipeline`, `layer` or `ops`");
    }
}
