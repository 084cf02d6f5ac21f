//! The operations of the diffusion head on the CPU.

use super::super::product::{Put, project};
use super::super::steps::{Norm, gate, silu};
use super::super::{cache::zeros, crew::Crew, number::Number, rows::Rows};
use super::{backend::Cpu, tokenizer::Flow};
use crate::vibevoice::{DiffusionHead, DiffusionOps, Done, Guidance, HeadLayer, STREAMS, Solver, VibeVoiceConfig};
use crate::{Activation, ModelError};

pub struct Diffusion<T> {
    pub guidance: Guidance,
    solver: Solver,
    eps: f32,
    hidden: usize,
    ones: Vec<f32>,
    times: Vec<T>,
    conditions: Vec<T>,
    /// Conditions plus times: `[steps, streams, hidden]`.
    conditioning: Vec<T>,
    /// Shifts, scales and gates of each layer, then shifts and scales of the last norm.
    adapts: Vec<Vec<T>>,
    x: Vec<T>,
    normed: Vec<T>,
    gated: Vec<T>,
    velocity: Vec<T>,
    /// The current sample of the solver, and its previous estimate.
    pub sample: Vec<f32>,
    before: Vec<f32>,
}

impl<T: Number> Diffusion<T> {
    pub fn new(config: &VibeVoiceConfig, guidance: &Guidance) -> Result<Self, ModelError> {
        let (hidden, latent, steps) = (config.decoder.hidden, config.acoustic.latent, guidance.steps);
        let adapts = std::iter::repeat_n(3, config.head.layers).chain([2]);
        Ok(Self {
            guidance: guidance.clone(),
            solver: Solver::new(steps)?,
            eps: config.head.norm_eps as f32,
            hidden,
            ones: vec![1.0; hidden],
            times: zeros(steps * hidden)?,
            conditions: zeros(STREAMS * hidden)?,
            conditioning: zeros(STREAMS * steps * hidden)?,
            adapts: adapts.map(|rows| zeros(STREAMS * steps * rows * hidden)).collect::<Result<_, _>>()?,
            x: zeros(STREAMS * hidden)?,
            normed: zeros(STREAMS * hidden)?,
            gated: zeros(STREAMS * 2 * config.head.ffn)?,
            velocity: zeros(STREAMS * latent)?,
            sample: vec![0.0; latent],
            before: vec![0.0; latent],
        })
    }

    pub fn embed_times(&mut self, crew: &Crew, config: &VibeVoiceConfig, head: &DiffusionHead<Cpu<T>>) {
        let (steps, numbers) = (self.solver.steps.len(), self.solver.times(&config.head));
        let numbers: Vec<T> = numbers.into_iter().map(T::narrow).collect();
        let mut inner = vec![T::default(); self.times.len()];
        linear(crew, &head.time_in, &numbers, &mut inner, steps);
        silu(crew, &mut inner);
        linear(crew, &head.time_out, &inner, &mut self.times, steps);
    }

    pub fn begin(&mut self, audio: usize) {
        self.sample = self.guidance.noise_of(audio, self.before.len());
    }

    /// Advances the sample by the velocity of a step, with classifier-free guidance.
    fn advance(&mut self, step: usize) {
        let Self { guidance, solver, velocity, sample, before, .. } = self;
        let (positive, negative) = velocity.split_at(sample.len());
        let guided = positive.iter().zip(negative).map(|(positive, negative)| {
            let (positive, negative) = (positive.wide(), negative.wide());
            negative + guidance.scale * (positive - negative)
        });
        solver.advance(step, guided, sample, before);
    }

    fn adapted(&mut self, crew: &Crew, weight: Option<&[f32]>, layer: usize, step: usize) {
        let Self { ones, eps, hidden, adapts, x, normed, .. } = self;
        Norm { weight: weight.unwrap_or(ones), eps: *eps }.rows(crew, 1, x, normed);
        for (row, adapt) in normed.chunks_mut(*hidden).zip(rows(&adapts[layer], self.solver.steps.len(), step)) {
            let (shift, scale) = adapt[..2 * *hidden].split_at(*hidden);
            for ((number, shift), scale) in row.iter_mut().zip(shift).zip(scale) {
                *number = T::narrow(number.wide() * (1.0 + scale.wide()) + shift.wide());
            }
        }
    }
}

fn rows<T>(adapt: &[T], steps: usize, step: usize) -> impl Iterator<Item = &[T]> {
    let width = adapt.len() / (STREAMS * steps);
    adapt[step * STREAMS * width..].chunks(width).take(STREAMS)
}

impl<T: Number> DiffusionOps for Cpu<T> {
    fn steps(&self) -> usize {
        self.diffusion.solver.steps.len()
    }

    fn condition(&mut self, head: &DiffusionHead<Self>) -> Done {
        let (crew, hidden, of) = (&self.crew, &self.hidden, &mut self.diffusion);
        linear(crew, &head.condition, hidden, &mut of.conditions, STREAMS);
        let (to, times) = (of.conditioning.chunks_mut(STREAMS * of.hidden), of.times.chunks(of.hidden));
        for (to, time) in to.zip(times) {
            let both = to.iter_mut().zip(&of.conditions).zip(time.iter().cycle());
            both.for_each(|((to, condition), time)| *to = T::narrow(condition.wide() + time.wide()));
        }
        silu(crew, &mut of.conditioning);
        let rows = STREAMS * of.solver.steps.len();
        let adapts = head.adapts().zip(&mut of.adapts);
        adapts.for_each(|(weight, to)| linear(crew, weight, &of.conditioning, to, rows));
        Ok(())
    }

    fn begin_step(&mut self, step: usize, enter: &Vec<T>) -> Done {
        let of = &mut self.diffusion;
        if let Some(before) = step.checked_sub(1) {
            of.advance(before);
        }
        let sample: Vec<T> = of.sample.iter().map(|number| T::narrow(*number)).collect();
        // Both streams start with the same row.
        let (first, second) = of.x.split_at_mut(of.hidden);
        linear(&self.crew, enter, &sample, first, 1);
        second.copy_from_slice(first);
        Ok(())
    }

    fn layer(&mut self, step: usize, layer: usize, weights: &HeadLayer<Self>) -> Done {
        let (crew, of) = (&self.crew, &mut self.diffusion);
        let (hidden, ffn) = (of.hidden, of.gated.len() / (2 * STREAMS));
        of.adapted(crew, Some(&weights.norm), layer, step);
        linear(crew, &weights.gate_up, &of.normed, &mut of.gated, STREAMS);
        gate(crew, Activation::Silu, ffn, None, &mut of.gated);
        let gated = Rows::new(&of.gated, STREAMS, ffn, 2 * ffn);
        project(crew, gated, Rows::dense(&weights.down, hidden, ffn), &mut of.normed, Put::OVER);
        let gates = rows(&of.adapts[layer], of.solver.steps.len(), step).flat_map(|row| &row[2 * hidden..]);
        for ((to, added), gate) in of.x.iter_mut().zip(&of.normed).zip(gates) {
            *to = T::narrow(to.wide() + gate.wide() * added.wide());
        }
        Ok(())
    }

    fn velocity(&mut self, step: usize, leave: &Vec<T>) -> Done {
        let (crew, of) = (&self.crew, &mut self.diffusion);
        of.adapted(crew, None, of.adapts.len() - 1, step);
        linear(crew, leave, &of.normed, &mut of.velocity, STREAMS);
        Ok(())
    }

    fn end_steps(&mut self, _: &mut Flow<T>, [scale, bias]: [f32; 2]) -> Done {
        let of = &mut self.diffusion;
        of.advance(of.solver.steps.len() - 1);
        self.latents.extend_from_slice(&of.sample);
        self.buffers.enter(of.sample.iter().map(|number| number / scale - bias));
        Ok(())
    }
}

fn linear<T: Number>(crew: &Crew, weight: &[T], from: &[T], to: &mut [T], rows: usize) {
    let (inputs, outputs) = (from.len() / rows, to.len() / rows);
    project(crew, Rows::dense(from, rows, inputs), Rows::dense(weight, outputs, inputs), to, Put::OVER);
}
