//! RoPE tables: cosines and sines per position.

use std::f64::consts::TAU;

use crate::{Config, Rope, RopeScaling, tensors::product};

/// The angle per position of each pair of elements of a head.
pub fn rope_frequencies(config: &Config) -> Vec<f64> {
    let pairs = config.head_dim / 2;
    let plain = (0..pairs).map(|pair| config.rope.theta.powf(-(pair as f64) / pairs as f64));
    match &config.rope.scaling {
        None => plain.collect(),
        Some(scaling) => plain.map(|frequency| scaled(frequency, scaling)).collect(),
    }
}

/// Keeps short wavelengths, scales long ones fully, and interpolates between.
fn scaled(frequency: f64, scaling: &RopeScaling) -> f64 {
    let turns = scaling.trained as f64 * frequency / TAU;
    let kept = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0.0, 1.0);
    frequency * (kept + (1.0 - kept) / scaling.factor)
}

/// Cosines and sines of the first positions, half a head's width each, computed on demand.
pub struct RopeTable {
    frequencies: Vec<f64>,
    positions: usize,
    cosines: Vec<f32>,
    sines: Vec<f32>,
    /// The table of layers with a sliding window.
    windowed: Option<Box<Self>>,
}

impl RopeTable {
    /// An empty table.
    pub fn new(config: &Config) -> Self {
        let windowed = config.window.map(|window| {
            let rope = Rope { theta: window.theta, scaling: None, ..config.rope };
            Box::new(Self::new(&Config { rope, window: None, ..config.clone() }))
        });
        let frequencies = rope_frequencies(config);
        Self { frequencies, positions: 0, cosines: Vec::new(), sines: Vec::new(), windowed }
    }

    /// Bytes of the tables of a model up to this many positions.
    pub(crate) fn bytes(config: &Config, positions: usize) -> u64 {
        product(&[config.head_dim, positions, 4, if config.window.is_some() { 2 } else { 1 }])
    }

    /// The table of layers with a sliding window.
    pub(crate) fn windowed(&self) -> Option<&Self> {
        self.windowed.as_deref()
    }

    /// The table of a layer.
    pub(crate) fn of_layer(&self, config: &Config, layer: usize) -> &Self {
        self.windowed().filter(|_| config.window_of(layer).is_some()).unwrap_or(self)
    }

    /// Extends the tables to this many positions.
    pub fn reach(&mut self, positions: usize) {
        if let Some(windowed) = &mut self.windowed {
            windowed.reach(positions);
        }
        let more = positions.saturating_sub(self.positions) * self.frequencies.len();
        self.cosines.reserve(more);
        self.sines.reserve(more);
        for position in self.positions..positions {
            for frequency in &self.frequencies {
                let (sine, cosine) = (position as f64 * frequency).sin_cos();
                self.cosines.push(cosine as f32);
                self.sines.push(sine as f32);
            }
        }
        self.positions = self.positions.max(positions);
    }

    /// Cosines and sines of all positions, row-major.
    pub fn all(&self) -> (&[f32], &[f32]) {
        (&self.cosines, &self.sines)
    }

    /// Cosines and sines of a position in the table.
    pub fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let pairs = self.frequencies.len();
        let row = position * pairs..(position + 1) * pairs;
        (&self.cosines[row.clone()], &self.sines[row])
    }
}
