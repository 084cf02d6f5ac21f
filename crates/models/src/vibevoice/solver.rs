//! DPM-Solver++ of second order (midpoint): from noise to a latent in a few steps.
//!
//! The schedule is that of the published models: 1000 training steps with cosine betas, velocity prediction, linearly spaced
//! steps from the highest noise level, and a final level of 0. A step is linear, so its factors are known in advance:
//! [`SolverStep`].

use super::HeadConfig;
use crate::{ModelError, error::ensure};

const TRAINED_STEPS: usize = 1000;

const LARGEST_BETA: f64 = 0.999;

/// Keeps the first betas of the cosine schedule from being too small.
const OFFSET: f64 = 0.008;

#[derive(Debug, Clone, PartialEq)]
pub struct Solver {
    pub(crate) steps: Vec<SolverStep>,
}

/// A step: the clean latent is estimated as `sample * clean_sample + velocity * clean_velocity`, and the next sample is
/// `sample * next_sample + clean * next_clean + before * next_before`, where `before` is the previous estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SolverStep {
    /// The timestep, an input of the head.
    pub time: u32,
    pub clean_sample: f32,
    pub clean_velocity: f32,
    pub next_sample: f32,
    pub next_clean: f32,
    /// 0 in the first and last step.
    pub next_before: f32,
}

impl Solver {
    pub fn new(steps: usize) -> Result<Self, ModelError> {
        let most = TRAINED_STEPS - 1;
        ensure!((1..=most).contains(&steps), "the diffusion has {steps} steps, expected 1 to {most}");
        let noises = noises();
        let spacing = (TRAINED_STEPS - 1) as f64 / steps as f64;
        let times: Vec<usize> = (1..=steps).rev().map(|at| (at as f64 * spacing).round_ties_even() as usize).collect();
        let mut levels: Vec<f64> = times.iter().map(|time| noises[*time]).collect();
        levels.push(0.0);
        let step = |at: usize| SolverStep::new(times[at] as u32, at.checked_sub(1).map(|at| levels[at]), &levels[at..]);
        Ok(Self { steps: (0..steps).map(step).collect() })
    }

    /// Replaces the sample by that of the next step, and the previous estimate by the new one.
    pub fn advance(
        &self,
        step: usize,
        velocity: impl IntoIterator<Item = f32>,
        sample: &mut [f32],
        before: &mut [f32],
    ) {
        let Some(factors) = self.steps.get(step) else { return };
        for ((sample, before), velocity) in sample.iter_mut().zip(before).zip(velocity) {
            let clean = *sample * factors.clean_sample + velocity * factors.clean_velocity;
            let next = *sample * factors.next_sample + clean * factors.next_clean;
            // Before the first step, `before` may be anything, even NaN.
            *sample = if factors.next_before == 0.0 { next } else { next + *before * factors.next_before };
            *before = clean;
        }
    }

    /// The time embeddings of all steps.
    pub fn times(&self, config: &HeadConfig) -> Vec<f32> {
        let of_step = |step: &SolverStep| time_frequencies(step.time, config.frequencies, config.period);
        self.steps.iter().flat_map(of_step).collect()
    }
}

impl SolverStep {
    /// A step from the first of `levels` to the second. A level is noise over signal.
    fn new(time: u32, before: Option<f64>, levels: &[f64]) -> Self {
        let (from, to) = (levels[0], levels[1]);
        let (clean_share, noise_share) = shares(from);
        let (next_clean_share, next_noise_share) = shares(to);
        // The logarithm of level 0 is infinite; there the next sample is the estimate.
        let gone = next_clean_share * (to / from - 1.0);
        let half = match before {
            Some(before) if to > 0.0 => 0.5 * (from / to).ln() / (before / from).ln(),
            _ => 0.0,
        };
        Self {
            time,
            clean_sample: clean_share as f32,
            clean_velocity: -noise_share as f32,
            next_sample: (next_noise_share / noise_share) as f32,
            next_clean: (-gone * (1.0 + half)) as f32,
            next_before: (gone * half) as f32,
        }
    }
}

/// The shares of signal and noise at a level.
fn shares(level: f64) -> (f64, f64) {
    let clean = 1.0 / (level * level + 1.0).sqrt();
    (clean, level * clean)
}

/// The noise level after each training step.
fn noises() -> Vec<f64> {
    let left = |time: f64| ((time + OFFSET) / (1.0 + OFFSET) * std::f64::consts::FRAC_PI_2).cos().powi(2);
    let share = |at: usize| at as f64 / TRAINED_STEPS as f64;
    let mut kept = 1.0;
    let after = (0..TRAINED_STEPS).map(|at| {
        let beta = (1.0 - left(share(at + 1)) / left(share(at))).min(LARGEST_BETA);
        kept *= 1.0 - beta;
        ((1.0 - kept) / kept).sqrt()
    });
    after.collect()
}

/// A time embedding: cosines, then sines, with increasing periods.
fn time_frequencies(time: u32, count: usize, period: f64) -> Vec<f32> {
    let half = count / 2;
    let angle = |at: usize| (-period.ln() * at as f64 / half as f64).exp() * f64::from(time);
    let cosines = (0..half).map(|at| angle(at).cos());
    cosines.chain((0..half).map(|at| angle(at).sin())).map(|number| number as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_linearly_spaced_from_the_highest_noise_level() {
        let times = |steps| Solver::new(steps).unwrap().steps.iter().map(|step| step.time).collect::<Vec<_>>();
        assert_eq!(times(10), [999, 899, 799, 699, 599, 500, 400, 300, 200, 100]);
        assert_eq!(times(1), [999]);
        assert_eq!(times(20)[18..], [100, 50]);
        for steps in [0, 1000] {
            let error = Solver::new(steps).unwrap_err().to_string();
            assert_eq!(error, format!("the diffusion has {steps} steps, expected 1 to 999"));
        }
    }

    #[test]
    fn exact_velocities_end_at_the_clean_latent() {
        let (clean, noise) = (0.7_f32, -1.3_f32);
        for steps in [1, 2, 10, 20] {
            let solver = Solver::new(steps).unwrap();
            let first = solver.steps[0];
            let mut sample = [first.clean_sample * clean - first.clean_velocity * noise];
            let mut before = [f32::NAN];
            for (at, step) in solver.steps.iter().enumerate() {
                // The exact velocity of a sample with these shares.
                let (clean_share, noise_share) = (step.clean_sample, -step.clean_velocity);
                let noise = (sample[0] - clean_share * clean) / noise_share;
                solver.advance(at, [clean_share * noise - noise_share * clean], &mut sample, &mut before);
            }
            assert!((sample[0] - clean).abs() < 1e-5, "{steps} steps: {}", sample[0]);
        }
    }

    #[test]
    fn the_first_and_last_steps_do_not_use_the_previous_estimate() {
        let steps = Solver::new(10).unwrap().steps;
        let uses_previous: Vec<bool> = steps.iter().map(|step| step.next_before != 0.0).collect();
        assert_eq!(uses_previous, [false, true, true, true, true, true, true, true, true, false]);
        assert_eq!((steps[9].next_sample, steps[9].next_clean), (0.0, 1.0));
    }

    #[test]
    fn time_embeddings_are_cosines_then_sines() {
        let found = time_frequencies(2, 4, 100.0);
        let expected = [2.0_f32.cos(), 0.2_f32.cos(), 2.0_f32.sin(), 0.2_f32.sin()];
        assert!(found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6), "{found:?}");
    }
}
