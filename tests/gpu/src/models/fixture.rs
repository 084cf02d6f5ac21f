//! Tiny models with the results of the official implementation.

use laptime_models::{Config, ModelError, Tokens, Weights};
use serde::Deserialize;

use crate::{Bench, Failed};

/// Every fixture.
pub const FIXTURES: [&str; 6] = ["qwen3", "qwen2", "llama", "gemma3", "course", "nano"];

/// A tiny model with its weights and expected results.
pub struct Fixture {
    pub name: &'static str,
    pub config: Config,
    pub weights: Weights,
    pub expected: Expected,
}

/// What is expected of a model.
#[derive(Deserialize)]
pub struct Expected {
    config: Option<Config>,
    seed: u64,
    pub ids: Vec<Vec<u32>>,
    pub logits: Vec<Vec<Vec<f32>>>,
    pub greedy: Vec<Vec<u32>>,
}

impl Fixture {
    pub fn all(bench: &Bench) -> Result<Vec<Self>, Failed> {
        FIXTURES.iter().map(|name| Self::open(bench, name)).collect()
    }

    fn open(bench: &Bench, name: &'static str) -> Result<Self, Failed> {
        let folder = bench.fixtures.join(name);
        let file = folder.join("expected.json");
        let told = |error: &dyn std::fmt::Display| Failed::Wrong(format!("{}: {error}", file.display()));
        let text = std::fs::read_to_string(&file).map_err(|error| told(&error))?;
        let expected: Expected = serde_json::from_str(&text).map_err(|error| told(&error))?;
        let (config, weights) = match &expected.config {
            Some(config) => (config.clone(), Weights::synthetic(config, expected.seed)),
            None => {
                let config = Config::from_folder(&folder)?;
                let weights = Weights::open(&folder, &config)?;
                (config, weights)
            }
        };
        Ok(Self { name, config, weights, expected })
    }

    /// The prompts, each this many times.
    pub fn tokens(&self, times: usize) -> Tokens {
        let ids: Vec<u32> = std::iter::repeat_n(self.expected.ids.concat(), times).flatten().collect();
        Tokens { ids, batch: self.expected.ids.len() * times }
    }

    /// The same tokens of every prompt, a range of positions.
    pub fn part(&self, range: std::ops::Range<usize>) -> Tokens {
        let ids = self.expected.ids.iter().flat_map(|row| row[range.clone()].iter().copied()).collect();
        Tokens { ids, batch: self.expected.ids.len() }
    }

    /// The logits of every position, row by row.
    pub fn logits(&self) -> Vec<f32> {
        self.expected.logits.iter().flatten().flatten().copied().collect()
    }

    /// The logits of each prompt's last position, row by row.
    pub fn last_logits(&self) -> Vec<f32> {
        self.expected.logits.iter().filter_map(|rows| rows.last()).flatten().copied().collect()
    }
}

/// The largest distance between numbers of two lists of one length.
pub fn distance(a: &[f32], b: &[f32]) -> Result<f32, ModelError> {
    if a.len() != b.len() {
        return Err(ModelError::Refused(format!("{} numbers and not {}", a.len(), b.len())));
    }
    let apart = |(a, b): (&f32, &f32)| if a.is_finite() && b.is_finite() { (a - b).abs() } else { f32::INFINITY };
    Ok(a.iter().zip(b).map(apart).fold(0.0, f32::max))
}
