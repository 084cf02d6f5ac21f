//! The operations of the diffusion head on a GPU: all steps without the host.

use laptime_cuda::decode::{
    AdaLn, AdaLnSizes, DiffusionSizes, DiffusionState, DiffusionStep, LatentTarget, Linear, Norm,
};
use laptime_cuda::{Buffer, Cache, Device, nn::Activation};

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
    pub state: DiffusionState<T>,
    conditions: Buffer<T>,
    times: Buffer<T>,
    /// Conditions plus times: `[steps, streams, hidden]`.
    conditioning: Buffer<T>,
    /// Shifts, scales and gates of each layer, then shifts and scales of the last norm.
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
            state: DiffusionState::new(device, sizes)?,
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

    /// Prepares the noise of at most this many tokens, and the time embeddings.
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
        self.state.begin(&factors.collect::<Vec<_>>(), guidance.scale, &noise)?;
        let times: Vec<T> = solver.times(&config.head).into_iter().map(T::narrowed).collect();
        let times = kit.device.upload(&times)?;
        let (m, n) = (self.sizes.steps, self.sizes.hidden);
        let mut inner = kit.device.allocate(self.times.length())?;
        kit.product(&times, &head.time_in, &mut inner, [m, n])?;
        kit.rows.bias_activation(kit.device.stream(), &mut inner, None, [m, n], Activation::Silu)?;
        kit.product(&inner, &head.time_out, &mut self.times, [m, n])
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

    fn condition(&mut self, head: &DiffusionHead<Self>) -> Done {
        let (kit, of) = (&self.kit, &mut self.diffusion);
        let DiffusionSizes { hidden, steps, .. } = of.sizes;
        let (stream, streams) = (kit.device.stream(), STREAMS as u32);
        kit.product(&self.language.hidden, &head.condition, &mut of.conditions, [streams, hidden])?;
        of.kernels.condition(stream, [&of.conditions, &of.times], &mut of.conditioning, [steps, hidden])?;
        for (weight, to) in head.adapts().zip(&mut of.adapts) {
            let width = size(weight.length())? / hidden;
            kit.product(&of.conditioning, weight, to, [streams * steps, width])?;
        }
        Ok(())
    }

    fn begin_step(&mut self, step: usize, enter: &Buffer<T>) -> Done {
        let of = &mut self.diffusion;
        Ok(of.kernels.begin(self.kit.device.stream(), &mut of.state, size(step)?, enter, &mut of.x)?)
    }

    fn layer(&mut self, step: usize, layer: usize, weights: &HeadLayer<Self>) -> Done {
        let (stream, of) = (self.kit.device.stream(), &mut self.diffusion);
        let (hidden, norm) = (of.sizes.hidden, Norm { weight: &weights.norm, epsilon: of.eps });
        let adapt = || of.adapts[layer].slice(rows(step, 3 * hidden as usize));
        let (gate_up, down) = (plain(&weights.gate_up), plain(&weights.down));
        of.adapted.gate_up(stream, (&of.x, &norm), adapt()?, &gate_up, &mut of.gated, [of.ffn, hidden])?;
        Ok(of.adapted.add_gated(stream, &of.gated, adapt()?, &down, &mut of.x, [hidden, of.ffn])?)
    }

    fn velocity(&mut self, step: usize, leave: &Buffer<T>) -> Done {
        let of = &mut self.diffusion;
        let DiffusionSizes { hidden, latent, .. } = of.sizes;
        let adapt = of.adapts[of.adapts.len() - 1].slice(rows(step, 2 * hidden as usize))?;
        let (x, shape, stream) = ((&of.x, of.eps), [latent, hidden], self.kit.device.stream());
        Ok(of.adapted.linear(stream, x, adapt, &plain(leave), &mut of.state.velocity, shape)?)
    }

    fn end_steps(&mut self, decoder: &mut Flow<T>, [divisor, bias]: [f32; 2]) -> Done {
        let of = &mut self.diffusion;
        let to = LatentTarget { connector: &mut of.row, decoder: decoder.entrance(1)?, divisor, bias };
        Ok(of.kernels.end(self.kit.device.stream(), &mut of.state, to)?)
    }
}
