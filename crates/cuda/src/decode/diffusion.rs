//! Diffusion from noise to a latent without the host: the parts of the steps around the head's layers.

use super::DIFFUSION;
use crate::launch::*;

/// The dimensions of the diffusion state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiffusionSizes {
    /// The width of a latent.
    pub latent: u32,
    /// The width of the head's vectors.
    pub hidden: u32,
    /// Steps per latent.
    pub steps: u32,
    /// The capacity in latents.
    pub capacity: u32,
}

/// The diffusion state on the device: noise in, latents out, and the current index.
#[derive(Debug)]
pub struct DiffusionState<T> {
    /// The initial noise of each latent, `[capacity, latent]`.
    noise: Buffer<f32>,
    /// The generated latents, `[capacity, latent]`.
    pub latents: Buffer<f32>,
    /// The index of the current latent, which must be less than the capacity.
    pub token: Buffer<u32>,
    guidance: Buffer<f32>,
    factors: Buffer<[f32; 5]>,
    /// The output of the head at a step, `[2, latent]`.
    pub velocity: Buffer<T>,
    samples: Buffer<f32>,
    estimates: Buffer<f32>,
    sizes: DiffusionSizes,
}

/// Where a latent is written, besides the list of latents.
#[derive(Debug)]
pub struct LatentTarget<'a, T> {
    /// The input of the connector, `[latent]`.
    pub connector: &'a mut Buffer<T>,
    /// The input of the decoder: `latent / divisor - bias`.
    pub decoder: SliceMut<'a, T>,
    /// The divisor.
    pub divisor: f32,
    /// The bias.
    pub bias: f32,
}

impl<T: Element> DiffusionState<T> {
    /// Allocates this number of latents, all zero.
    pub fn new(device: &Device, sizes: DiffusionSizes) -> Result<Self, CudaError> {
        let DiffusionSizes { latent, hidden, steps, capacity } = sizes;
        let all = [latent, hidden, steps, capacity];
        expect("allocating latents", all.iter().all(|size| *size > 0), "a size is zero")?;
        expect("allocating latents", latent <= MAX_LATENT, "a latent is too wide")?;
        let zeros = |rows: u32| {
            let mut zeros = device.allocate::<f32>(rows as usize * latent as usize)?;
            zeros.zero().map(|()| zeros)
        };
        let mut velocity = device.allocate(2 * latent as usize)?;
        velocity.zero()?;
        Ok(Self {
            noise: zeros(capacity)?,
            latents: zeros(capacity)?,
            token: device.upload(&[0])?,
            guidance: device.upload(&[1.0])?,
            factors: device.upload(&vec![[0.0; 5]; steps as usize])?,
            velocity,
            samples: zeros(steps + 1)?,
            estimates: zeros(steps)?,
            sizes,
        })
    }

    /// The sizes it was created for.
    pub fn sizes(&self) -> DiffusionSizes {
        self.sizes
    }

    /// Sets the factors of each step, the guidance scale, and the noise of the first latents. Waits for the device.
    ///
    /// With factors `[a, b, c, d, e]`, a step estimates the clean latent as `a * sample + b * velocity`; the next sample is
    /// `c * sample + d * estimate + e * previous estimate`. If `e` is 0, the previous estimate is ignored.
    pub fn begin(&mut self, factors: &[[f32; 5]], guidance: f32, noise: &[f32]) -> Done {
        let is_right = factors.len() == self.sizes.steps as usize;
        expect("beginning a diffusion", is_right, "the number of factors differs from the number of steps")?;
        self.factors.write(factors)?;
        self.guidance.write(&[guidance])?;
        self.noise.write(noise)
    }

    fn arguments<'l>(&mut self, launch: Launch<'l>, step: u32) -> Launch<'l> {
        launch
            .read(&self.noise, 0_u32)
            .read(&self.token, 1_u32)
            .write(&mut self.samples, 0_u32)
            .write(&mut self.estimates, 0_u32)
            .read(&self.velocity, 0_u32)
            .read(&self.factors, 0_u32)
            .read(&self.guidance, 1_u32)
            .with_all([step, self.sizes.latent])
    }
}

/// The maximum width of a latent, which is in the shared memory of a block.
const MAX_LATENT: u32 = 8192;
const THREADS: u32 = 256;

kernels! {
    /// The kernels of diffusion steps on one device.
    DiffusionStep
    DIFFUSION {
        conditioning: Kernel = step_kernel("conditioning_rows"),
        begin: Kernel = step_kernel("begin_diffusion_step"),
        end: Kernel = step_kernel("end_diffusion"),
    }
    |device| {
        multiprocessors: u32 = device.facts().multiprocessors.max(1),
        overlaps: bool = device.is_hopper_or_later(),
    }
}

impl<T: Element> DiffusionStep<T> {
    /// Writes the conditioning of the head, `[steps, 2, width]`: the SiLU of the conditions `[2, width]` plus the embeddings of
    /// the steps' times `[steps, width]`.
    ///
    /// Waits, on the device, for all work on the stream.
    pub fn condition(
        &self,
        stream: &Stream,
        [conditions, times]: [&Buffer<T>; 2],
        conditioning: &mut Buffer<T>,
        [steps, width]: [u32; 2],
    ) -> Done {
        let rows = steps.saturating_mul(2);
        let launch = Launch::new(stream, "adding step times")
            .require(steps < 1 << 15, "too many steps")
            .read(conditions, area(2, width))
            .read(times, area(steps, width))
            .write(conditioning, area(rows, width))
            .with(width);
        launch.run(&self.conditioning, Shape::new([width.div_ceil(THREADS), rows, 1], [THREADS, 1, 1]))
    }

    /// Begins a step: projects the previous step's sample, or noise in the first step, with `enter` `[hidden, latent]` into
    /// both rows of `x` `[2, hidden]`.
    pub fn begin(
        &self,
        stream: &Stream,
        state: &mut DiffusionState<T>,
        step: u32,
        enter: &Buffer<T>,
        x: &mut Buffer<T>,
    ) -> Done {
        let DiffusionSizes { latent, hidden, steps, .. } = state.sizes;
        let launch =
            Launch::new(stream, "beginning a step of diffusion").require(step < steps, "there is no such step");
        let launch =
            state.arguments(launch, step).read(enter, area(hidden, latent)).write(x, area(2, hidden)).with(hidden);
        let blocks = hidden.div_ceil(THREADS / 32).min(self.multiprocessors).max(1);
        let shape = Shape::line(blocks, THREADS).with_shared(4 * latent);
        launch.run_early(&self.begin, shape, self.overlaps)
    }

    /// Ends the last step: writes the latent to the list and to its targets.
    pub fn end(&self, stream: &Stream, state: &mut DiffusionState<T>, to: LatentTarget<'_, T>) -> Done {
        let DiffusionSizes { latent, steps, .. } = state.sizes;
        let launch = state
            .arguments(Launch::new(stream, "ending a diffusion"), steps)
            .write(&mut state.latents, 0_u32)
            .write(to.connector, latent)
            .write(to.decoder, latent)
            .with_all([to.divisor, to.bias]);
        launch.run_early(&self.end, Shape::line(1, THREADS), self.overlaps)
    }
}
