//! How deep the stages of a workload are marked.

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

crate::words::read_by_word!(Depth, NoDepth, "a depth; use `pipeline`, `layer` or `ops`");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_depth_is_parsed_by_its_word_and_by_no_other() {
        for depth in Depth::ALL {
            assert_eq!(depth.word().parse(), Ok(depth));
        }
        assert!(Depth::Pipeline < Depth::Layer && Depth::Layer < Depth::Ops);
        let error = "deep".parse::<Depth>().unwrap_err();
        assert_eq!(error.to_string(), "`deep` is not a depth; use `pipeline`, `layer` or `ops`");
    }
}
