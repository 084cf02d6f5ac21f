//! The state of a device's L2 cache at the start of an iteration.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

crate::words! {
    /// The state of a device's L2 cache at the start of an iteration.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum L2: word {
        /// Cold: a buffer larger than the cache was written before the iteration.
        Cold = "cold",
        /// Warm: as the previous iteration left it.
        Warm = "warm",
    }
}

impl fmt::Display for L2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Why a word is not an L2 state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is not an L2 cache state; use `cold` or `warm`")]
pub struct NoL2 {
    word: String,
}

impl FromStr for L2 {
    type Err = NoL2;

    fn from_str(word: &str) -> Result<Self, NoL2> {
        let known = [Self::Cold, Self::Warm].into_iter().find(|l2| l2.word() == word);
        known.ok_or_else(|| NoL2 { word: word.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_read_by_their_words_and_kept_by_them() {
        for l2 in [L2::Cold, L2::Warm] {
            assert_eq!(l2.word().parse(), Ok(l2));
            assert_eq!(serde_json::to_string(&l2).unwrap(), format!("\"{l2}\""));
        }
        let message = "hot".parse::<L2>().unwrap_err().to_string();
        assert_eq!(message, "`hot` is not an L2 cache state; use `cold` or `warm`");
    }
}
