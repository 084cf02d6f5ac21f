//! The operations of the diffusion head on a GPU: all steps without the host.

use laptime_cuda::decode::{
    AdaLn, AdaLnSizes, DiffusionSizes, DiffusionState, DiffusionStep, LatentTarget, Linear, Norm,
};
use laptime_cuda::{Buffer, Cache, Device, Sizes, nn::Activation};

use super::super::{audio::Kit, size, weights::Number};
use super::backend::Cuda;
use super::tokenizer::Flow;
use crate::ModelError;
use crate::vibevoice::{
    DiffusionHead, DiffusionOps, Done, Guidance, HeadLayer, STREAMS, Solver, SolverStep, VibeVoiceConfig,
};

pub struct Diffusion<T> {
    sizes: DiffusionSizes,
    ffn: u32,
    eps: f32,
    adapted: AdaLn<T>,
    kernels: DiffusionStep<T>,
    pub drawing: DiffusionState<T>,
    conditions: Buffer<T>,
    times: Buffer<T>,
    /// Conditions and times together, one row of each stream per step.
    conditioning: Buffer<T>,
    /// Shifts, scales and gates of each layer, and shifts and scales of the last norm.
    adapts: Vec<Buffer<T>>,
    x: Buffer<T>,
    gated: Buffer<T>,
    pub row: Buffer<T>,
}

impl<T: Number> Diffusion<T> {
    pub fn new(device: &Device, config: &VibeVoiceConfig, steps: usize, capacity: usize) -> Result<Self, ModelError> {
        let (hidden, latent) = (config.decoder.hidden, config.acoustic.latent);
        let of_step = |numbers: usize| device.allocate::<T>(STREAMS * steps * numbers);
        let sizes = DiffusionSizes {
            latent: size(latent)?,
            hidden: size(hidden)?,
            steps: size(steps)?,
            capacity: size(capacity.max(1))?,
        };
        let mut adapts = (0..config.head.layers).map(|_| of_step(3 * hidden)).collect::<Result<Vec<_>, _>>()?;
        adapts.push(of_step(2 * hidden)?);
        let cache = Cache::of_user();
        let ffn = size(config.head.ffn)?;
        Ok(Self {
            ffn,
            eps: config.head.norm_eps as f32,
            adapted: AdaLn::load(device, &cache, AdaLnSizes { batch: STREAMS as u32, hidden: size(hidden)?, ffn })?,
            kernels: DiffusionStep::load(device, &cache)?,
            drawing: DiffusionState::new(device, sizes)?,
            conditions: device.allocate(STREAMS * hidden)?,
            times: device.allocate(steps * hidden)?,
            conditioning: of_step(hidden)?,
            adapts,
            x: device.allocate(STREAMS * hidden)?,
            gated: device.allocate(STREAMS * config.head.ffn)?,
            row: device.allocate(latent)?,
            sizes,
        })
    }

    /// Begins a generation of at most this many tokens: the noise of all of them, and the time embeddings.
    pub fn begin(
        &mut self,
        kit: &Kit<'_, T>,
        (config, head): (&VibeVoiceConfig, &DiffusionHead<Cuda<'_, T>>),
        guidance: &Guidance,
        tokens: usize,
    ) -> Done {
        let (latent, solver) = (config.acoustic.latent, Solver::new(guidance.steps)?);
        let noise: Vec<f32> = (0..tokens).flat_map(|token| guidance.noise_of(token, latent)).collect();
        let factors = solver.steps.iter().map(|step| {
            let SolverStep { clean_sample, clean_velocity, next_sample, next_clean, next_before, .. } = *step;
            [clean_sample, clean_velocity, next_sample, next_clean, next_before]
        });
        self.drawing.begin(&factors.collect::<Vec<_>>(), guidance.scale, &noise)?;
        let times: Vec<T> = solver.times(&config.head).into_iter().map(T::narrowed).collect();
        let times = kit.device.upload(&times)?;
        let (m, n) = (self.sizes.steps, self.sizes.hidden);
        let mut inner = kit.device.allocate(self.times.length())?;
        let sizes = Sizes { m, n, k: size(config.head.frequencies)?, b_is_transposed: true };
        kit.blas.multiply([&times, &head.time_in], &mut inner, sizes)?;
        kit.rows.bias_activation(kit.device.stream(), &mut inner, None, [m, n], Activation::Silu)?;
        Ok(kit.blas.multiply([&inner, &head.time_out], &mut self.times, Sizes { k: n, ..sizes })?)
    }

    fn product(&self, rows: u32, n: u32) -> Sizes {
        Sizes { m: rows, n, k: self.sizes.hidden, b_is_transposed: true }
    }
}

fn plain<T>(weight: &Buffer<T>) -> Linear<'_, T> {
    Linear { weight, bias: None, fp8: None }
}

fn rows(step: usize, width: usize) -> std::ops::Range<usize> {
    step * STREAMS * width..(step + 1) * STREAMS * width
}

impl<T: Number> DiffusionOps for Cuda<'_, T> {
    fn steps(&self) -> usize {
        self.diffusion.sizes.steps as usize
    }

    fn condition(&mut self, weight: &Buffer<T>) -> Done {
        let (Kit { device, blas, .. }, of) = (&self.kit, &mut self.diffusion);
        let DiffusionSizes { hidden, steps, .. } = of.sizes;
        let sizes = of.product(STREAMS as u32, hidden);
        blas.multiply([&self.language.hidden, weight], &mut of.conditions, sizes)?;
        let from = [&of.conditions, &of.times];
        Ok(of.kernels.condition(device.stream(), from, &mut of.conditioning, [steps, hidden])?)
    }

    fn adapt(&mut self, layer: usize, weight: &Buffer<T>) -> Done {
        let of = &mut self.diffusion;
        let width = weight.length() / of.sizes.hidden as usize;
        let sizes = of.product(STREAMS as u32 * of.sizes.steps, size(width)?);
        Ok(self.kit.blas.multiply([&of.conditioning, weight], &mut of.adapts[layer], sizes)?)
    }

    fn begin_step(&mut self, step: usize, enter: &Buffer<T>) -> Done {
        let of = &mut self.diffusion;
        Ok(of.kernels.begin(self.kit.device.stream(), &mut of.drawing, size(step)?, enter, &mut of.x)?)
    }

    fn gate_up(&mut self, step: usize, layer: usize, weights: &HeadLayer<Self>) -> Done {
        let of = &mut self.diffusion;
        let hidden = of.sizes.hidden;
        let adapt = of.adapts[layer].slice(rows(step, 3 * hidden as usize))?;
        let norm = Norm { weight: &weights.norm, epsilon: of.eps };
        let (x, shape, stream) = ((&of.x, &norm), [of.ffn, hidden], self.kit.device.stream());
        Ok(of.adapted.gate_up(stream, x, adapt, &plain(&weights.gate_up), &mut of.gated, shape)?)
    }

    fn add_gated(&mut self, step: usize, layer: usize, weights: &HeadLayer<Self>) -> Done {
        let of = &mut self.diffusion;
        let hidden = of.sizes.hidden;
        let adapt = of.adapts[layer].slice(rows(step, 3 * hidden as usize))?;
        let (down, shape, stream) = (plain(&weights.down), [hidden, of.ffn], self.kit.device.stream());
        Ok(of.adapted.add_gated(stream, &of.gated, adapt, &down, &mut of.x, shape)?)
    }

    fn velocity(&mut self, step: usize, leave: &Buffer<T>) -> Done {
        let of = &mut self.diffusion;
        let DiffusionSizes { hidden, latent, .. } = of.sizes;
        let adapt = of.adapts[of.adapts.len() - 1].slice(rows(step, 2 * hidden as usize))?;
        let (x, shape, stream) = ((&of.x, of.eps), [latent, hidden], self.kit.device.stream());
        Ok(of.adapted.linear(stream, x, adapt, &plain(leave), &mut of.drawing.velocity, shape)?)
    }

    fn end_steps(&mut self, decoder: &mut Flow<T>, [divisor, bias]: [f32; 2]) -> Done {
        let of = &mut self.diffusion;
        let to = LatentTarget { connector: &mut of.row, decoder: decoder.entrance(1)?, divisor, bias };
        Ok(of.kernels.end(self.kit.device.stream(), &mut of.drawing, to)?)
    }
}
