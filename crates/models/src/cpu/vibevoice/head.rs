//! The diffusion head: noise and what both streams leave in, a latent out.

use super::super::{
    crew::Crew,
    model::Source,
    number::Number,
    product::{Put, project},
    rows::Rows,
    steps::{Norm, swiglu},
    vectors,
};
use crate::{
    ModelError,
    vibevoice::{HeadLayerTensors, Solver, VibeVoiceConfig, time_frequencies},
};

/// The diffusion head with its weights.
pub struct Head<T> {
    enter: Vec<T>,
    condition: Vec<T>,
    time: [Vec<T>; 2],
    layers: Vec<Layer<T>>,
    last_adapt: Vec<T>,
    leave: Vec<T>,
    /// What the last norm multiplies with: nothing.
    ones: Vec<f32>,
    hidden: usize,
    latent: usize,
    frequencies: usize,
    period: f64,
    eps: f32,
}

struct Layer<T> {
    norm: Vec<f32>,
    /// Shift, scale and gate.
    adapt: Vec<T>,
    /// Gate, then up.
    gate_up: Vec<T>,
    down: Vec<T>,
}

/// What a latent is made with.
pub struct Diffusion<'a, T> {
    pub solver: &'a Solver,
    /// A row for the time of each step.
    pub times: &'a [T],
    /// How far the positive stream is followed.
    pub scale: f32,
}

impl<T: Number> Head<T> {
    /// Puts the weights into memory.
    pub fn load(config: &VibeVoiceConfig, source: Source<'_>) -> Result<Self, ModelError> {
        let tensors = config.head_tensors();
        let matrix = |spec| source.stacked::<T>(&[spec]);
        let [first, second] = &tensors.time;
        Ok(Self {
            enter: matrix(&tensors.enter)?,
            condition: matrix(&tensors.condition)?,
            time: [matrix(first)?, matrix(second)?],
            layers: tensors.layers.iter().map(|layer| Layer::load(layer, source)).collect::<Result<_, _>>()?,
            last_adapt: matrix(&tensors.last_adapt)?,
            leave: matrix(&tensors.leave)?,
            ones: vec![1.0; config.decoder.hidden],
            hidden: config.decoder.hidden,
            latent: config.acoustic.latent,
            frequencies: config.head.frequencies,
            period: config.head.period,
            eps: config.head.norm_eps as f32,
        })
    }

    /// The time embeddings of all steps, one row each.
    pub fn times(&self, crew: &Crew, solver: &Solver) -> Vec<T> {
        let told = solver.steps.iter().flat_map(|step| time_frequencies(step.time, self.frequencies, self.period));
        let told: Vec<T> = told.map(T::narrow).collect();
        let mut inner = linear(crew, &self.time[0], self.frequencies, &told);
        silu(&mut inner);
        linear(crew, &self.time[1], self.hidden, &inner)
    }

    /// Makes a latent of noise, given what the positive stream and the negative one leave, a row each.
    pub fn sample(&self, crew: &Crew, heard: &[T], noise: Vec<f32>, diffusion: &Diffusion<'_, T>) -> Vec<f32> {
        let conditions = linear(crew, &self.condition, self.hidden, heard);
        let (mut sample, mut before) = (noise, vec![0.0; self.latent]);
        for (step, time) in diffusion.times.chunks(self.hidden).enumerate() {
            let velocities = self.velocities(crew, &sample, &conditions, time);
            let (positive, negative) = velocities.split_at(self.latent);
            let followed = positive.iter().zip(negative).map(|(positive, negative)| {
                let (positive, negative) = (positive.wide(), negative.wide());
                negative + diffusion.scale * (positive - negative)
            });
            let followed: Vec<f32> = followed.collect();
            diffusion.solver.advance(step, &followed, &mut sample, &mut before);
        }
        sample
    }

    /// The velocities that both streams see at a time, a row each.
    fn velocities(&self, crew: &Crew, sample: &[f32], conditions: &[T], time: &[T]) -> Vec<T> {
        let sample: Vec<T> = sample.iter().map(|number| T::narrow(*number)).collect();
        // Both begin with the same.
        let mut stream = linear(crew, &self.enter, self.latent, &sample);
        stream.extend_from_within(..);
        let mut told = conditions.to_vec();
        for row in told.chunks_mut(self.hidden) {
            row.iter_mut().zip(time).for_each(|(told, time)| *told = T::narrow(told.wide() + time.wide()));
        }
        silu(&mut told);
        self.layers.iter().for_each(|layer| layer.run(crew, self.eps, &told, &mut stream));
        let adapt = linear(crew, &self.last_adapt, self.hidden, &told);
        let normed = adapted(crew, Norm { weight: &self.ones, eps: self.eps }, &stream, &adapt);
        linear(crew, &self.leave, self.hidden, &normed)
    }
}

impl<T: Number> Layer<T> {
    fn load(tensors: &HeadLayerTensors, source: Source<'_>) -> Result<Self, ModelError> {
        let [gate, up] = &tensors.gate_up;
        Ok(Self {
            norm: source.rounded::<T>(&[&tensors.norm])?,
            adapt: source.stacked(&[&tensors.adapt])?,
            gate_up: source.stacked(&[gate, up])?,
            down: source.stacked(&[&tensors.down])?,
        })
    }

    fn run(&self, crew: &Crew, eps: f32, told: &[T], stream: &mut [T]) {
        let hidden = self.norm.len();
        let adapt = linear(crew, &self.adapt, hidden, told);
        let normed = adapted(crew, Norm { weight: &self.norm, eps }, stream, &adapt);
        let mut inner = linear(crew, &self.gate_up, hidden, &normed);
        let ffn = self.down.len() / hidden;
        swiglu(crew, ffn, None, &mut inner);
        let rows = stream.len() / hidden;
        let mut added = vec![T::default(); stream.len()];
        let gated = Rows::new(&inner, rows, ffn, 2 * ffn);
        project(crew, gated, Rows::dense(&self.down, hidden, ffn), &mut added, Put::OVER);
        let gates = adapt.chunks(3 * hidden).flat_map(|row| &row[2 * hidden..]);
        for ((to, added), gate) in stream.iter_mut().zip(&added).zip(gates) {
            *to = T::narrow(to.wide() + gate.wide() * added.wide());
        }
    }
}

/// Rows normed, then scaled and shifted by what `adapt` begins with: shift, then scale.
fn adapted<T: Number>(crew: &Crew, norm: Norm<'_>, stream: &[T], adapt: &[T]) -> Vec<T> {
    let hidden = norm.weight.len();
    let width = adapt.len() / (stream.len() / hidden);
    let mut normed = vec![T::default(); stream.len()];
    norm.rows(crew, 1, stream, &mut normed);
    for (row, adapt) in normed.chunks_mut(hidden).zip(adapt.chunks(width)) {
        let (shift, scale) = adapt[..2 * hidden].split_at(hidden);
        for ((number, shift), scale) in row.iter_mut().zip(shift).zip(scale) {
            *number = T::narrow(number.wide() * (1.0 + scale.wide()) + shift.wide());
        }
    }
    normed
}

/// A linear part without a bias.
fn linear<T: Number>(crew: &Crew, weight: &[T], inputs: usize, from: &[T]) -> Vec<T> {
    let (rows, outputs) = (from.len() / inputs, weight.len() / inputs);
    let mut to = vec![T::default(); rows * outputs];
    project(crew, Rows::dense(from, rows, inputs), Rows::dense(weight, outputs, inputs), &mut to, Put::OVER);
    to
}

fn silu<T: Number>(numbers: &mut [T]) {
    numbers.iter_mut().for_each(|number| *number = T::narrow(vectors::silu(number.wide())));
}
