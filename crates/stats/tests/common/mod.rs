//! Synthetic recordings and noise similar to real benchmarks, from a seed.

#![allow(dead_code)]

pub mod power;

use laptime_stats::Rng;

/// Draws from the normal distribution (Box and Muller).
pub fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * rng.uniform().ln()).sqrt() * (std::f64::consts::TAU * rng.uniform()).cos()
}

/// The variation of synthetic iterations.
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    pub processes: usize,
    pub iterations: usize,
    /// Relative standard deviation of the levels of processes.
    pub between: f64,
    /// Relative standard deviation of iterations.
    pub within: f64,
    /// Share of iterations that are slow by a fifth on average.
    pub outliers: f64,
    /// The slowdown of the first process from its first to its last iteration.
    pub drift: f64,
}

pub const TYPICAL: Noise =
    Noise { processes: 20, iterations: 20, between: 0.01, within: 0.01, outliers: 0.03, drift: 0.04 };

/// Generates a recording: lognormal iterations of about 10 ms, in nanoseconds.
pub fn recording(noise: Noise, seed: u64) -> Vec<Vec<f64>> {
    let mut rng = Rng::new(seed);
    (0..noise.processes)
        .map(|process| iterations(noise, if process == 0 { noise.drift } else { 0.0 }, &mut rng))
        .collect()
}

fn iterations(noise: Noise, drift: f64, rng: &mut Rng) -> Vec<f64> {
    let level = noise.between * normal(rng);
    let iteration = |at: usize, rng: &mut Rng| {
        let slow = if rng.uniform() < noise.outliers { -0.2 * rng.uniform().ln() } else { 0.0 };
        let drifted = drift * at as f64 / noise.iterations as f64;
        1e7 * (level + noise.within * normal(rng) + slow + drifted).exp()
    };
    (0..noise.iterations).map(|at| iteration(at, rng)).collect()
}
