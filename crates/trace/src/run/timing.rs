//! How time is measured on a device.

use serde::{Deserialize, Serialize};

crate::words! {
    /// How iterations and stages are timed on a device that runs concurrently with the host.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Timing, ALL: word {
        /// With the host clock only.
        #[default]
        Host = "host",
        /// With marks on the device's stream that are read later, without waiting.
        Events = "events",
        /// With the host clock, synchronising the device at both ends of every stage.
        Sync = "sync",
        /// With the device's records of every kernel and copy.
        Kernels = "kernels",
    }
}

crate::words::read_by_word!(Timing, NoTiming, "a timing; use `host`, `events`, `sync` or `kernels`");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_timing_is_read_by_its_word_and_kept_by_it() {
        for timing in Timing::ALL {
            assert_eq!(timing.word().parse(), Ok(timing));
            assert_eq!(serde_json::to_string(&timing).unwrap(), format!("\"{timing}\""));
        }
        let message = "nvtx".parse::<Timing>().unwrap_err().to_string();
        assert_eq!(message, "`nvtx` is not a timing; use `host`, `events`, `sync` or `kernels`");
    }
}
