//! The state of a device's L2 cache at the start of an iteration.

use serde::{Deserialize, Serialize};

crate::words! {
    /// The state of a device's L2 cache at the start of an iteration.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum L2, ALL: word {
        /// Cold: a buffer larger than the cache was written before the iteration.
        Cold = "cold",
        /// Warm: as the previous iteration left it.
        Warm = "warm",
    }
}

crate::words::read_by_word!(L2, NoL2, "an L2 cache state; use `cold` or `warm`");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_read_by_their_words_and_kept_by_them() {
        for l2 in L2::ALL {
            assert_eq!(l2.word().parse(), Ok(l2));
            assert_eq!(serde_json::to_string(&l2).unwrap(), format!("\"{l2}\""));
        }
        let message = "hot".parse::<L2>().unwrap_err().to_string();
        assert_eq!(message, "`hot` is not an L2 cache state; use `cold` or `warm`");
    }
}
