//! The fixtures: tiny models, and what the official implementation makes of them.

#![allow(dead_code, reason = "each test uses what it needs")]

pub mod c2c;
pub mod e4m3;
pub mod speech;

use std::path::PathBuf;

use laptime_models::{Config, Tokens, Weights};
use serde::Deserialize;

/// Every fixture.
pub const FIXTURES: [&str; 6] = ["qwen3", "qwen2", "llama", "gemma3", "course", "nano"];

/// The fixtures of families that can be trained, which the reference in candle computes.
pub const TRAINED: [&str; 5] = ["qwen3", "qwen2", "llama", "course", "nano"];

/// A tiny model with its weights, and what is expected of it.
pub struct Fixture {
    pub config: Config,
    pub weights: Weights,
    pub expected: Expected,
}

/// What is expected of a model.
#[derive(Deserialize)]
pub struct Expected {
    /// The model, where no `config.json` describes it.
    config: Option<Config>,
    /// The seed of the weights, where they are synthetic.
    pub seed: u64,
    /// The least distance between the best logit and the second.
    pub margin: f64,
    /// Prompts: `[batch][position]`.
    pub ids: Vec<Vec<u32>>,
    /// Logits: `[batch][position][token]`.
    pub logits: Vec<Vec<Vec<f32>>>,
    /// The tokens that follow the prompts, the likeliest each time: `[batch][step]`.
    pub greedy: Vec<Vec<u32>>,
}

impl Fixture {
    /// The prompts.
    pub fn tokens(&self) -> Tokens {
        Tokens { ids: self.expected.ids.concat(), batch: self.expected.ids.len() }
    }

    /// The logits of every position, row by row.
    pub fn logits(&self) -> Vec<f32> {
        self.expected.logits.iter().flatten().flatten().copied().collect()
    }

    /// The logits of each prompt's last position, row by row.
    pub fn last_logits(&self) -> Vec<f32> {
        self.expected.logits.iter().filter_map(|rows| rows.last()).flatten().copied().collect()
    }

    /// The tokens that follow at a step, one a sequence.
    pub fn greedy(&self, step: usize) -> Vec<u32> {
        self.expected.greedy.iter().map(|row| row[step]).collect()
    }
}

/// The folder of a fixture.
pub fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A fixture, ready to run.
pub fn fixture(name: &str) -> Fixture {
    let folder = folder(name);
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: Expected = serde_json::from_str(&text).unwrap();
    let (config, weights) = match &expected.config {
        Some(config) => (config.clone(), Weights::synthetic(config, expected.seed)),
        None => {
            let config = Config::from_folder(&folder).unwrap();
            let weights = Weights::open(&folder, &config).unwrap();
            (config, weights)
        }
    };
    Fixture { config, weights, expected }
}

/// The largest distance between numbers of two lists of one length.
pub fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| if a.is_finite() && b.is_finite() { (a - b).abs() } else { f32::INFINITY })
        .fold(0.0, f32::max)
}
