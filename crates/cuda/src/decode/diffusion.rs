//! From noise to a latent: both ends of the steps of a diffusion head, without the host.

use super::DIFFUSION;
use crate::launch::*;

/// The sizes of the diffusion state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrawingSizes {
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
pub struct Drawing<T> {
    /// The initial noise of each latent, `[capacity, latent]`.
    noise: Buffer<f32>,
    /// The generated latents, `[capacity, latent]`.
    pub latents: Buffer<f32>,
    /// The index of the current latent. Who writes it keeps it below `capacity`.
    pub token: Buffer<u32>,
    scale: Buffer<f32>,
    factors: Buffer<[f32; 5]>,
    /// The output of the head at a step, `[2, latent]`.
    pub velocity: Buffer<T>,
    samples: Buffer<f32>,
    guesses: Buffer<f32>,
    sizes: DrawingSizes,
}

/// Where a latent is written in addition to its place in the list.
#[derive(Debug)]
pub struct LatentTarget<'a, T> {
    /// Unchanged, `[latent]`.
    pub row: &'a mut Buffer<T>,
    /// Divided, minus a bias.
    pub sound: SliceMut<'a, T>,
    /// The divisor.
    pub divisor: f32,
    /// The bias.
    pub bias: f32,
}

impl<T: Element> Drawing<T> {
    /// Allocates this number of latents, all zero.
    pub fn new(device: &Device, sizes: DrawingSizes) -> Result<Self, CudaError> {
        let DrawingSizes { latent, hidden, steps, capacity } = sizes;
        let all = [latent, hidden, steps, capacity];
        expect("allocating latents", all.iter().all(|size| *size > 0), "a size is zero")?;
        expect("allocating latents", latent <= MOST_LATENT, "a latent is too wide")?;
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
            scale: device.upload(&[1.0])?,
            factors: device.upload(&vec![[0.0; 5]; steps as usize])?,
            velocity,
            samples: zeros(steps + 1)?,
            guesses: zeros(steps)?,
            sizes,
        })
    }

    /// The sizes it was created for.
    pub fn sizes(&self) -> DrawingSizes {
        self.sizes
    }

    /// Resets the state: the factors of each step, the guidance scale, and the noise of the first latents. Waits for
    /// the device.
    ///
    /// With factors `[a, b, c, d, e]`, a step estimates the clean latent as `a * sample + b * velocity`; the next sample is
    /// `c * sample + d * estimate + e * previous estimate`. If `e` is 0, the previous estimate is ignored.
    pub fn begin(&mut self, factors: &[[f32; 5]], scale: f32, noise: &[f32]) -> Done {
        let is_right = factors.len() == self.sizes.steps as usize;
        expect("beginning a diffusion", is_right, "the number of factors differs from the number of steps")?;
        self.factors.write(factors)?;
        self.scale.write(&[scale])?;
        self.noise.write(noise)
    }

    fn arguments<'l>(&mut self, launch: Launch<'l>, step: u32) -> Launch<'l> {
        launch
            .read(&self.noise, 0_u32)
            .read(&self.token, 1_u32)
            .write(&mut self.samples, 0_u32)
            .write(&mut self.guesses, 0_u32)
            .read(&self.velocity, 0_u32)
            .read(&self.factors, 0_u32)
            .read(&self.scale, 1_u32)
            .with_all([step, self.sizes.latent])
    }
}

/// The maximum width of a latent: it is in the shared memory of a block.
const MOST_LATENT: u32 = 8192;
const THREADS: u32 = 256;

kernels! {
    /// The kernels at both ends of a step, on one device.
    DrawingStep
    DIFFUSION {
        conditioning: Kernel = step_kernel("conditioning_rows"),
        begin: Kernel = step_kernel("begin_drawing"),
        end: Kernel = step_kernel("end_drawing"),
    }
    |device| {
        multiprocessors: u32 = device.facts().multiprocessors.max(1),
        overlaps: bool = device.is_hopper_or_later(),
    }
}

impl<T: Element> DrawingStep<T> {
    /// Writes the conditioning of the head into `conditioning`, `[steps, 2, width]`: the silu of each condition, `[2,
    /// width]`, plus the embedding of the step's time, `[steps, width]`.
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
        let grid = [width.div_ceil(THREADS), rows, 1];
        launch.run(&self.conditioning, Shape { grid, block: [THREADS, 1, 1], shared_bytes: 0 })
    }

    /// Begins a step: the sample of the previous step, or noise in the first, goes through `enter`, `[hidden, latent]`,
    /// into both rows of `x`, `[2, hidden]`.
    pub fn begin(
        &self,
        stream: &Stream,
        drawing: &mut Drawing<T>,
        step: u32,
        enter: &Buffer<T>,
        x: &mut Buffer<T>,
    ) -> Done {
        let DrawingSizes { latent, hidden, steps, .. } = drawing.sizes;
        let launch =
            Launch::new(stream, "beginning a step of diffusion").require(step < steps, "there is no such step");
        let launch =
            drawing.arguments(launch, step).read(enter, area(hidden, latent)).write(x, area(2, hidden)).with(hidden);
        let blocks = hidden.div_ceil(THREADS / 32).min(self.multiprocessors).max(1);
        let shape = Shape { shared_bytes: 4 * latent, ..Shape::line(blocks, THREADS) };
        launch.run_early(&self.begin, shape, self.overlaps)
    }

    /// Ends the last step: stores the latent in the list and in its other targets.
    pub fn end(&self, stream: &Stream, drawing: &mut Drawing<T>, to: LatentTarget<'_, T>) -> Done {
        let DrawingSizes { latent, steps, .. } = drawing.sizes;
        let launch = drawing
            .arguments(Launch::new(stream, "ending a diffusion"), steps)
            .write(&mut drawing.latents, 0_u32)
            .write(to.row, latent)
            .write(to.sound, latent)
            .with_all([to.divisor, to.bias]);
        launch.run_early(&self.end, Shape::line(1, THREADS), self.overlaps)
    }
}
