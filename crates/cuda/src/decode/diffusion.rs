//! From noise to a latent: both ends of the steps of a diffusion head, without the host.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::DIFFUSION;
use crate::{
    blas::Element,
    cache::Cache,
    device::Device,
    error::CudaError,
    kernel::{Argument, Kernel, Shape},
    kernels::expect,
    memory::Buffer,
    nvrtc,
    slice::SliceMut,
    stream::Stream,
};

/// The factors of a solver step: the clean latent is estimated as `sample * clean_sample + velocity * clean_velocity`,
/// and the next sample is `sample * next_sample + estimate * next_clean + previous estimate * next_before`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factors {
    /// See above.
    pub clean_sample: f32,
    /// See above.
    pub clean_velocity: f32,
    /// See above.
    pub next_sample: f32,
    /// See above.
    pub next_clean: f32,
    /// See above; with 0, the previous estimate is ignored.
    pub next_before: f32,
}

impl Factors {
    /// All factors, in kernel order.
    fn all(&self) -> [f32; 5] {
        let Self { clean_sample, clean_velocity, next_sample, next_clean, next_before } = *self;
        [clean_sample, clean_velocity, next_sample, next_clean, next_before]
    }
}

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
    pub room: u32,
}

/// The diffusion state on the device: noise in, latents out, and the current index.
#[derive(Debug)]
pub struct Drawing<T> {
    /// The initial noise of each latent, `[room, latent]`.
    noise: Buffer<f32>,
    /// The generated latents, `[room, latent]`.
    pub latents: Buffer<f32>,
    /// The index of the current latent.
    pub token: Buffer<u32>,
    /// The classifier-free guidance scale.
    scale: Buffer<f32>,
    /// The factors of each step.
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
        let DrawingSizes { latent, hidden, steps, room } = sizes;
        let all = [latent, hidden, steps, room];
        expect("allocating latents", all.iter().all(|size| *size > 0), "a size is zero")?;
        expect("allocating latents", latent <= MOST_LATENT, "a latent is too wide")?;
        let zeros = |rows: u32| {
            let mut zeros = device.allocate::<f32>(rows as usize * latent as usize)?;
            zeros.zero().map(|()| zeros)
        };
        let mut velocity = device.allocate(2 * latent as usize)?;
        velocity.zero()?;
        Ok(Self {
            noise: zeros(room)?,
            latents: zeros(room)?,
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
    pub fn begin(&mut self, factors: &[Factors], scale: f32, noise: &[f32]) -> Result<(), CudaError> {
        let is_right = factors.len() == self.sizes.steps as usize;
        expect("beginning a diffusion", is_right, "the number of factors differs from the number of steps")?;
        let factors: Vec<[f32; 5]> = factors.iter().map(Factors::all).collect();
        self.factors.write(&factors)?;
        self.scale.write(&[scale])?;
        self.noise.write(noise)
    }

    fn arguments(&mut self, step: u32) -> Vec<Argument> {
        vec![
            (&self.noise).into(),
            (&self.token).into(),
            (&mut self.samples).into(),
            (&mut self.guesses).into(),
            (&self.velocity).into(),
            (&self.factors).into(),
            (&self.scale).into(),
            step.into(),
            self.sizes.latent.into(),
        ]
    }
}

/// The maximum width of a latent: it is in the shared memory of a block.
const MOST_LATENT: u32 = 8192;
const THREADS: u32 = 256;

/// The kernels at both ends of a step, on one device.
#[derive(Debug)]
pub struct DrawingStep<T> {
    conditioning: Kernel,
    begin: Kernel,
    end: Kernel,
    multiprocessors: u32,
    overlaps: bool,
    of: PhantomData<T>,
}

impl<T: Element> DrawingStep<T> {
    /// Compiles the kernels, or loads them from the cache.
    pub fn load(device: &Device, cache: &Cache) -> Result<Self, CudaError> {
        let (module, _) = nvrtc::load(device, cache, DIFFUSION, &[T::OPTION.to_owned()])?;
        let kernel = |name| {
            let kernel = module.kernel(name)?;
            kernel.prefer_shared_memory().map(|()| kernel)
        };
        Ok(Self {
            conditioning: kernel("conditioning_rows")?,
            begin: kernel("begin_drawing")?,
            end: kernel("end_drawing")?,
            multiprocessors: device.facts().multiprocessors.max(1),
            overlaps: device.facts().capability.0 >= 9,
            of: PhantomData,
        })
    }

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
    ) -> Result<(), CudaError> {
        const DOING: &str = "adding step times";
        let holds = |buffer: &Buffer<T>, rows: u64| buffer.length() as u64 >= rows.saturating_mul(width.into());
        let fits = holds(conditions, 2) && holds(times, steps.into()) && holds(conditioning, 2 * u64::from(steps));
        expect(DOING, fits && steps < 1 << 15, "a buffer is too small, or the steps are too many")?;
        if steps == 0 || width == 0 {
            return Ok(());
        }
        let arguments: [Argument; 4] = [conditions.into(), times.into(), conditioning.into(), width.into()];
        let grid = [width.div_ceil(THREADS), 2 * steps, 1];
        // SAFETY: the kernel writes a number for each column of each row, and reads as many.
        unsafe { self.conditioning.launch(stream, Shape { grid, block: [THREADS, 1, 1], shared_bytes: 0 }, &arguments) }
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
    ) -> Result<(), CudaError> {
        const DOING: &str = "beginning a step of diffusion";
        let DrawingSizes { latent, hidden, steps, .. } = drawing.sizes;
        expect(DOING, step < steps, "there is no such step")?;
        let weights = u64::from(hidden) * u64::from(latent);
        let fits = enter.length() as u64 >= weights && x.length() as u64 >= 2 * u64::from(hidden);
        expect(DOING, fits, "a buffer is too small")?;
        let mut arguments = drawing.arguments(step);
        arguments.extend([enter.into(), Argument::from(x), hidden.into()]);
        let blocks = hidden.div_ceil(THREADS / 32).min(self.multiprocessors).max(1);
        let shape = Shape { shared_bytes: 4 * latent, ..Shape::line(blocks, THREADS) };
        // SAFETY: the kernel stays within the sizes, and the buffers are at least as large; the token is within the room,
        // as its owner answers for.
        unsafe { self.launch(&self.begin, stream, shape, &arguments) }
    }

    /// Ends the last step: stores the latent in the list and in its other targets.
    pub fn end(&self, stream: &Stream, drawing: &mut Drawing<T>, to: LatentTarget<'_, T>) -> Result<(), CudaError> {
        let DrawingSizes { latent, steps, .. } = drawing.sizes;
        let fits = to.row.length() >= latent as usize && to.sound.length() >= latent as usize;
        expect("ending a diffusion", fits, "a buffer is too small")?;
        let mut arguments = drawing.arguments(steps);
        arguments.push((&mut drawing.latents).into());
        arguments.extend([Argument::from(to.row), (&to.sound).into(), to.divisor.into(), to.bias.into()]);
        // SAFETY: as above.
        unsafe { self.launch(&self.end, stream, Shape::line(1, THREADS), &arguments) }
    }

    /// # Safety
    ///
    /// As for [`Kernel::launch`]; these kernels wait for the one before them.
    unsafe fn launch(
        &self,
        kernel: &Kernel,
        stream: &Stream,
        shape: Shape,
        arguments: &[Argument],
    ) -> Result<(), CudaError> {
        // SAFETY: as the caller says.
        unsafe {
            match self.overlaps {
                true => kernel.launch_early(stream, shape, arguments),
                false => kernel.launch(stream, shape, arguments),
            }
        }
    }
}
