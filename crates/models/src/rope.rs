//! How far positions turn the numbers of a head.

use std::f64::consts::TAU;

use crate::{Config, Rope, RopeScaling, tensors::product};

/// The angle that one position turns each pair of numbers of a head by.
pub fn rope_frequencies(config: &Config) -> Vec<f64> {
    let pairs = config.head_dim / 2;
    let plain = (0..pairs).map(|pair| config.rope.theta.powf(-(pair as f64) / pairs as f64));
    match &config.rope.scaling {
        None => plain.collect(),
        Some(scaling) => plain.map(|frequency| stretched(frequency, scaling)).collect(),
    }
}

/// Short wavelengths are kept, long ones stretched whole, those between in part.
fn stretched(frequency: f64, scaling: &RopeScaling) -> f64 {
    let turns = scaling.trained as f64 * frequency / TAU;
    let kept = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0.0, 1.0);
    frequency * (kept + (1.0 - kept) / scaling.factor)
}

/// Cosines and sines of the first positions, a row of half a head's width each, computed on demand.
pub struct RopeTable {
    frequencies: Vec<f64>,
    positions: usize,
    cosines: Vec<f32>,
    sines: Vec<f32>,
    /// The table of layers that attend to a window.
    windowed: Option<Box<Self>>,
}

impl RopeTable {
    /// A table that has no positions yet.
    pub fn new(config: &Config) -> Self {
        let windowed = config.window.map(|window| {
            let rope = Rope { theta: window.theta, scaling: None, ..config.rope };
            Box::new(Self::new(&Config { rope, window: None, ..config.clone() }))
        });
        let frequencies = rope_frequencies(config);
        Self { frequencies, positions: 0, cosines: Vec::new(), sines: Vec::new(), windowed }
    }

    /// Bytes of the tables of a model that reach this many positions.
    pub(crate) fn bytes(config: &Config, positions: usize) -> u64 {
        product(&[config.head_dim, positions, 4, if config.window.is_some() { 2 } else { 1 }])
    }

    /// The table of layers that attend to a window.
    pub(crate) fn windowed(&self) -> Option<&Self> {
        self.windowed.as_deref()
    }

    /// The table of a layer.
    pub(crate) fn of_layer(&self, config: &Config, layer: usize) -> &Self {
        self.windowed().filter(|_| config.window_of(layer).is_some()).unwrap_or(self)
    }

    /// Makes it reach this many positions.
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

    /// Cosines and sines of all positions that it reaches, row by row.
    pub fn all(&self) -> (&[f32], &[f32]) {
        (&self.cosines, &self.sines)
    }

    /// Cosines and sines of a position that it reaches.
    pub fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let pairs = self.frequencies.len();
        let row = position * pairs..(position + 1) * pairs;
        (&self.cosines[row.clone()], &self.sines[row])
    }
}
