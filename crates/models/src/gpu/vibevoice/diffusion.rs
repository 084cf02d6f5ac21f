//! The diffusion head on a GPU: what both streams leave in, a latent out, all steps without the host.
//!
//! The adaptation of a layer depends on the step and not on the sample, so the shifts, scales and gates of all steps are computed
//! at once, and their weights are read once a token and not once a step.

use laptime_cuda::{
    Blas, Buffer, Cache, CudaError, Device, Sizes, SliceMut,
    decode::{Adapted, AdaptedSizes, Drawing, DrawingSizes, DrawingStep, Factors, LatentTarget, Linear, Norm},
    nn::Gate,
};

use super::{
    super::{size, weights::Number},
    weights::{HeadWeights, Kernels},
};
use crate::{
    ModelError,
    vibevoice::{Guidance, Solver, VibeVoiceConfig, time_frequencies},
};

/// Rows that run together: one of each stream.
const STREAMS: usize = 2;

/// The diffusion head's buffers, for one number of steps.
pub struct Diffusion<T> {
    sizes: DrawingSizes,
    ffn: u32,
    eps: f32,
    adapted: Adapted<T>,
    kernels: DrawingStep<T>,
    pub drawing: Drawing<T>,
    conditions: Buffer<T>,
    /// A row for the time of each step.
    times: Buffer<T>,
    /// The adaptation of the layers, one row of each stream per step.
    told: Buffer<T>,
    /// Shifts, scales and gates that each layer makes of it, and shifts and scales of the last norm.
    adapts: Vec<Buffer<T>>,
    x: Buffer<T>,
    gated: Buffer<T>,
    /// The latent, as the connector takes it.
    pub row: Buffer<T>,
}

/// Where a latent goes to be sounded, and how it is brought there.
pub struct Sounding<'a, T> {
    pub entrance: SliceMut<'a, T>,
    pub factors: [f32; 2],
}

/// Numbers of a head's buffers for this many steps.
pub fn numbers(config: &VibeVoiceConfig, steps: usize) -> usize {
    let (hidden, ffn, layers) = (config.decoder.hidden, config.head.ffn, config.head.layers);
    let of_steps = hidden * (1 + STREAMS * (1 + 3 * layers + 2));
    steps * of_steps + STREAMS * (2 * hidden + ffn)
}

impl<T: Number> Diffusion<T> {
    /// Room for this many latents, of this many steps each.
    pub fn new(device: &Device, config: &VibeVoiceConfig, steps: usize, room: usize) -> Result<Self, ModelError> {
        let (hidden, latent) = (config.decoder.hidden, config.acoustic.latent);
        let of_step = |numbers: usize| device.allocate::<T>(STREAMS * steps * numbers);
        let sizes = DrawingSizes {
            latent: size(latent)?,
            hidden: size(hidden)?,
            steps: size(steps)?,
            room: size(room.max(1))?,
        };
        let mut adapts = (0..config.head.layers).map(|_| of_step(3 * hidden)).collect::<Result<Vec<_>, _>>()?;
        adapts.push(of_step(2 * hidden)?);
        let cache = Cache::of_user();
        let ffn = size(config.head.ffn)?;
        Ok(Self {
            ffn,
            eps: config.head.norm_eps as f32,
            adapted: Adapted::load(device, &cache, AdaptedSizes { batch: STREAMS as u32, hidden: size(hidden)?, ffn })?,
            kernels: DrawingStep::load(device, &cache)?,
            drawing: Drawing::new(device, sizes)?,
            conditions: device.allocate(STREAMS * hidden)?,
            times: device.allocate(steps * hidden)?,
            told: of_step(hidden)?,
            adapts,
            x: device.allocate(STREAMS * hidden)?,
            gated: device.allocate(STREAMS * config.head.ffn)?,
            row: device.allocate(latent)?,
            sizes,
        })
    }

    /// Steps that a latent is made in.
    pub fn steps(&self) -> usize {
        self.sizes.steps as usize
    }

    /// Begins a reading of at most this many tokens: the noise of all of them, and the time embeddings.
    pub fn begin(
        &mut self,
        (device, blas): (&Device, &Blas),
        (config, kernels, weights): (&VibeVoiceConfig, &Kernels<T>, &HeadWeights<T>),
        (guidance, solver): (&Guidance, &Solver),
        tokens: usize,
    ) -> Result<(), ModelError> {
        let latent = config.acoustic.latent;
        let noise: Vec<f32> = (0..tokens).flat_map(|token| guidance.noise_of(token, latent)).collect();
        let factors: Vec<Factors> = solver.steps.iter().map(factors).collect();
        self.drawing.begin(&factors, guidance.scale, &noise)?;
        let frequencies = config.head.frequencies;
        let told = solver.steps.iter().flat_map(|step| time_frequencies(step.time, frequencies, config.head.period));
        let told = device.upload(&told.map(T::narrowed).collect::<Vec<T>>())?;
        let (m, n) = (self.sizes.steps, self.sizes.hidden);
        let mut inner = device.allocate(self.times.length())?;
        let sizes = Sizes { m, n, k: size(frequencies)?, b_is_transposed: true };
        blas.multiply([&told, &weights.time[0]], &mut inner, sizes)?;
        kernels.rows.bias_gate(device.stream(), &mut inner, None, [m, n], Gate::Silu)?;
        Ok(blas.multiply([&inner, &weights.time[1]], &mut self.times, Sizes { k: n, ..sizes })?)
    }

    /// Puts a latent on the stream, given what the positive stream and the negative one leave, a row each.
    pub fn run(
        &mut self,
        device: &Device,
        blas: &Blas,
        weights: &HeadWeights<T>,
        left: &Buffer<T>,
        to: Sounding<'_, T>,
    ) -> Result<(), CudaError> {
        self.tell(device, blas, weights, left)?;
        for step in 0..self.sizes.steps {
            self.kernels.begin(device.stream(), &mut self.drawing, step, &weights.enter, &mut self.x)?;
            self.step(device, weights, step as usize)?;
        }
        let [divisor, bias] = to.factors;
        let to = LatentTarget { row: &mut self.row, sound: to.entrance, divisor, bias };
        self.kernels.end(device.stream(), &mut self.drawing, to)
    }

    /// The adaptation of all layers at all steps.
    fn tell(
        &mut self,
        device: &Device,
        blas: &Blas,
        weights: &HeadWeights<T>,
        left: &Buffer<T>,
    ) -> Result<(), CudaError> {
        let DrawingSizes { hidden, steps, .. } = self.sizes;
        let sizes = Sizes { m: STREAMS as u32, n: hidden, k: hidden, b_is_transposed: true };
        blas.multiply([left, &weights.condition], &mut self.conditions, sizes)?;
        let told = [&self.conditions, &self.times];
        self.kernels.condition(device.stream(), told, &mut self.told, [steps, hidden])?;
        let matrices = weights.layers.iter().map(|layer| (&layer.adapt, 3 * hidden));
        let matrices = matrices.chain([(&weights.last_adapt, 2 * hidden)]);
        for ((matrix, n), to) in matrices.zip(&mut self.adapts) {
            blas.multiply([&self.told, matrix], to, Sizes { m: STREAMS as u32 * steps, n, ..sizes })?;
        }
        Ok(())
    }

    /// The layers of a step, from `x` to velocities.
    fn step(&mut self, device: &Device, weights: &HeadWeights<T>, step: usize) -> Result<(), CudaError> {
        let (stream, width, ffn) = (device.stream(), self.sizes.hidden, self.ffn);
        let rows = |adapt: usize| step * STREAMS * adapt..(step + 1) * STREAMS * adapt;
        let plain = |weight| Linear { weight, bias: None };
        let (last, of_layers) = (self.adapts.len() - 1, 3 * width as usize);
        for (layer, adapt) in weights.layers.iter().zip(&self.adapts) {
            let adapt = adapt.slice(rows(of_layers))?;
            let norm = Norm { weight: &layer.norm, epsilon: self.eps };
            let (x, shape) = ((&self.x, &norm), [ffn, width]);
            self.adapted.gate_up(stream, x, adapt, &plain(&layer.gate_up), &mut self.gated, shape)?;
            let down = plain(&layer.down);
            self.adapted.add_gated(stream, &self.gated, adapt, &down, &mut self.x, [width, ffn])?;
        }
        let adapt = self.adapts[last].slice(rows(2 * width as usize))?;
        let (x, shape) = ((&self.x, self.eps), [self.sizes.latent, width]);
        self.adapted.linear(stream, x, adapt, &plain(&weights.leave), &mut self.drawing.velocity, shape)
    }
}

fn factors(step: &crate::vibevoice::SolverStep) -> Factors {
    Factors {
        clean_sample: step.clean_sample,
        clean_velocity: step.clean_velocity,
        next_sample: step.next_sample,
        next_clean: step.next_clean,
        next_before: step.next_before,
    }
}
