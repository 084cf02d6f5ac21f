//! The fixture `c2c`: two sharers of the fixture `qwen3`, their fusers, and the expected results.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::{collections::BTreeMap, path::PathBuf};

use laptime_models::{
    CacheCapacity, Config, Decoder, Dtype, GraphMode, Marks, Options, Weights, cpu,
    fuser::{C2c, FuseMode, FuseOptions, FuserConfig, FuserWeights, Prompt, SharerMask},
};
use serde::Deserialize;

use super::folder;

/// The expected results.
#[derive(Deserialize)]
pub struct Expected {
    /// The prompt.
    pub ids: Vec<u32>,
    /// By name.
    pub cases: BTreeMap<String, Case>,
}

/// The expected results with some sharers.
#[derive(Deserialize)]
pub struct Case {
    pub sharers: Vec<String>,
    pub margin: f64,
    /// Keys and values of every layer without the last token, if they are compared.
    pub cache: Vec<[Vec<f32>; 2]>,
    /// Those of the last token of the prompt.
    pub logits: Vec<f32>,
    pub greedy: Vec<u32>,
}

/// Reads the expected results.
pub fn expected() -> Expected {
    serde_json::from_str(&std::fs::read_to_string(folder("c2c/expected.json")).unwrap()).unwrap()
}

/// The base model.
pub fn receiver() -> Config {
    Config::from_folder(&folder("qwen3")).unwrap()
}

/// A sharer.
pub fn sharer(name: &str) -> Config {
    Config::from_folder(&folder(&format!("c2c/{name}"))).unwrap()
}

/// The folder of a fuser.
pub fn fuser_folder(name: &str) -> PathBuf {
    folder(&format!("c2c/{name}_Fuser"))
}

/// The fuser of a sharer.
pub fn fuser(name: &str) -> (FuserConfig, FuserWeights) {
    FuserWeights::open(&fuser_folder(name), &receiver(), &sharer(name)).unwrap()
}

/// A decoder from a folder of the fixtures.
pub fn decoder(name: &str, dtype: Dtype) -> Box<dyn Decoder> {
    let config = Config::from_folder(&folder(name)).unwrap();
    let weights = Weights::open(&folder(name), &config).unwrap();
    let (attention, marks) = (config.attention_type, Marks::default());
    let options = Options {
        dtype,
        attention,
        batch: 1,
        capacity: CacheCapacity::Growing,
        graph: GraphMode::Auto,
        marks,
        kept: None,
        offload: None,
    };
    cpu::decoder(config, &weights, options, 2).unwrap()
}

/// The fixture `qwen3` with sharers.
pub fn c2c(sharers: &[&str], dtype: Dtype, mode: FuseMode) -> C2c<'static> {
    let fusers: Vec<(FuserConfig, FuserWeights)> = sharers.iter().map(|name| fuser(name)).collect();
    let fusers = fusers.iter().map(|(config, weights)| (config.clone(), weights)).collect();
    let options = FuseOptions { mode, ..FuseOptions::new(dtype) };
    let sharers = sharers.iter().map(|name| decoder(&format!("c2c/{name}"), dtype));
    C2c {
        receiver: decoder("qwen3", dtype),
        sharers: sharers.collect(),
        fuser: cpu::fuser(fusers, options, 2).unwrap(),
    }
}

/// The prompt of the fixture for all sharers.
pub fn prompt(expected: &Expected, sharers: usize) -> Prompt {
    Prompt::shared(expected.ids.clone(), sharers, SharerMask::all(sharers)).unwrap()
}
