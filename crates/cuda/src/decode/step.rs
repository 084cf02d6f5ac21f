//! The kernels of a step, with the checks that make them safe to call.

use std::marker::PhantomData;

use super::product::{Linear, Norm, Operands, Planner, Product, Products, Weights};
use super::{
    ATTENTION, State, StepSizes, TOKEN, Tuning,
    attention::{AttentionKernel, options},
};
use crate::{launch::*, nn::Fp8Scales};

/// The kernels of one decode step for one decoder on one device. `T` is the dtype of weights and activations.
#[derive(Debug)]
pub struct Step<T> {
    pub(super) sizes: StepSizes,
    pub(super) attention: AttentionKernel,
    pub(super) windowed: Option<AttentionKernel>,
    products: Products,
    quantised: Option<Products>,
    embed: Kernel,
    argmax: Kernel,
    multiprocessors: u32,
    pub(super) overlaps: bool,
    of: PhantomData<T>,
}

/// Threads per block of a step's first and last kernel.
const THREADS: u32 = 256;

impl<T: Element> Step<T> {
    /// The requests of [`Self::load`], to compile ahead.
    pub fn requests(device: &Device, sizes: &StepSizes) -> Result<[Request; 3], CudaError> {
        let tuning = Tuning::of::<T>(device, sizes)?;
        let planner = Planner::new::<T>(device, sizes, tuning, Weights::Dtype)?;
        let attention = Request::typed::<T>(ATTENTION, &options(sizes.head_dim, None, tuning.attention));
        Ok([Request::typed::<T>(TOKEN, &[]), attention, Request::typed::<T>(planner.source(), &planner.options())])
    }

    /// The request of [`Self::with_fp8`], to compile ahead.
    pub fn fp8_request(device: &Device, sizes: &StepSizes, scales: Fp8Scales) -> Result<Request, CudaError> {
        let planner = Planner::new::<T>(device, sizes, Tuning::of::<T>(device, sizes)?, Weights::Fp8(scales))?;
        Ok(Request::typed::<T>(planner.source(), &planner.options()))
    }

    /// Compiles the kernels for a step of these sizes, or loads them from the cache.
    pub fn load(device: &Device, cache: &Cache, sizes: StepSizes) -> Result<Self, CudaError> {
        Self::load_tuned(device, cache, sizes, Tuning::of::<T>(device, &sizes)?)
    }

    /// The same with a given kernel variant, to find the fastest.
    pub fn load_tuned(device: &Device, cache: &Cache, sizes: StepSizes, tuning: Tuning) -> Result<Self, CudaError> {
        sizes.check()?;
        tuning.check()?;
        let ends = Request::typed::<T>(TOKEN, &[]).load(device, cache)?;
        Ok(Self {
            sizes,
            attention: AttentionKernel::load::<T>(device, cache, &sizes, tuning.attention, None)?,
            windowed: None,
            products: Products::load::<T>(device, cache, &sizes, tuning, Weights::Dtype)?,
            quantised: None,
            embed: ends.step_kernel("embed_step")?,
            argmax: ends.step_kernel("argmax_step")?,
            multiprocessors: device.facts().multiprocessors.max(1),
            overlaps: device.is_hopper_or_later(),
            of: PhantomData,
        })
    }

    /// Adds sliding-window attention: a query sees this number of positions, up to its own.
    pub fn with_window(mut self, device: &Device, cache: &Cache, window: u32) -> Result<Self, CudaError> {
        let tuning = self.attention.tuning;
        self.windowed = Some(AttentionKernel::load::<T>(device, cache, &self.sizes, tuning, Some(window))?);
        Ok(self)
    }

    /// Adds products with FP8 weights.
    pub fn with_fp8(mut self, device: &Device, cache: &Cache, scales: Fp8Scales) -> Result<Self, CudaError> {
        let tuning = Tuning::of::<T>(device, &self.sizes)?;
        self.quantised = Some(Products::load::<T>(device, cache, &self.sizes, tuning, Weights::Fp8(scales))?);
        Ok(self)
    }

    /// The sizes it was created for.
    pub fn sizes(&self) -> StepSizes {
        self.sizes
    }

    /// Whether kernels overlap with the previous ones.
    pub fn overlaps(&self) -> bool {
        self.overlaps
    }

    /// The same step without overlap, for comparison.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.overlaps = false;
        self
    }

    /// Writes the embedding of each sequence's token into `x` `[batch, hidden]`; a token outside the vocabulary gives
    /// NaN.
    ///
    /// Waits, on the device, for all work on the stream.
    pub fn embed(&self, stream: &Stream, state: &State, table: &Buffer<T>, x: &mut Buffer<T>) -> Done {
        let StepSizes { batch, hidden, vocab, .. } = self.sizes;
        let launch = Launch::new(stream, "embedding")
            .require(state.batch == batch, "the state has a different number of sequences")
            .read(&state.token, batch)
            .read(table, area(vocab, hidden))
            .write(x, area(batch, hidden))
            .with_all([hidden, vocab])
            .with_timestamp();
        launch.run(&self.embed, Shape::line(batch, THREADS))
    }

    /// Multiplies weights `[rows, width]` with the RMS norm of `x` `[batch, width]` into `out` `[batch, rows]`.
    pub fn norm_linear(
        &self,
        stream: &Stream,
        x: &Buffer<T>,
        norm: &Norm<'_, T>,
        linear: &Linear<'_, T>,
        out: &mut Buffer<T>,
        shape: [u32; 2],
    ) -> Done {
        let operands = Operands { x, norm: Some((Some(norm.weight), norm.epsilon)), linear, modulation: None, shape };
        self.multiply(|products| &products.norm_linear, stream, &operands, out)
    }

    /// Adds the product of weights `[rows, width]` with `a` `[batch, width]` to `x` `[batch, rows]`.
    pub fn linear_add(
        &self,
        stream: &Stream,
        a: &Buffer<T>,
        linear: &Linear<'_, T>,
        x: &mut Buffer<T>,
        shape: [u32; 2],
    ) -> Done {
        let operands = Operands { x: a, norm: None, linear, modulation: None, shape };
        self.multiply(|products| &products.linear_add, stream, &operands, x)
    }

    /// SwiGLU of the RMS norm of `x` `[batch, width]` into `out` `[batch, ffn]`, with weights `[2 * ffn, width]`, the gate's
    /// first.
    pub fn norm_gate_up(
        &self,
        stream: &Stream,
        x: &Buffer<T>,
        norm: &Norm<'_, T>,
        linear: &Linear<'_, T>,
        out: &mut Buffer<T>,
        shape: [u32; 2],
    ) -> Done {
        let operands = Operands { x, norm: Some((Some(norm.weight), norm.epsilon)), linear, modulation: None, shape };
        self.multiply(|products| &products.norm_gate_up, stream, &operands, out)
    }

    /// Selects the largest logit of each sequence `[batch, vocab]` as its next token, stores it, and advances the position.
    /// Ties go to the lowest token, NaN is ignored, and a row of NaN gives token 0.
    pub fn argmax(&self, stream: &Stream, logits: &Buffer<T>, state: &mut State) -> Done {
        let StepSizes { batch, vocab, .. } = self.sizes;
        let launch = Launch::new(stream, "selecting a token")
            .require(state.batch == batch, "the state has a different number of sequences")
            .require(batch <= THREADS, "too many sequences")
            .read(logits, area(batch, vocab))
            .with(vocab)
            .write(&mut state.keys, batch)
            .write(&mut state.done, 1_u32)
            .write(&mut state.token, batch)
            .write(&mut state.position, 1_u32)
            .write(&mut state.count, 1_u32)
            .write(&mut state.generated, area(batch, state.capacity))
            .with(state.capacity)
            .with_timestamp();
        let blocks = vocab.div_ceil(THREADS * 8).clamp(1, self.multiprocessors);
        launch.run_early(&self.argmax, Shape::new([blocks, batch, 1], [THREADS, 1, 1]), self.overlaps)
    }

    fn multiply(
        &self,
        product: impl Fn(&Products) -> &Product,
        stream: &Stream,
        operands: &Operands<'_, T>,
        out: &mut Buffer<T>,
    ) -> Done {
        let weights = operands.linear.fp8.map_or(Weights::Dtype, Weights::Fp8);
        let products = [Some(&self.products), self.quantised.as_ref()].into_iter().flatten();
        let missing = || CudaError::refused("multiplying", 0, "the step has no kernels for this weight format");
        let products = products.into_iter().find(|products| products.planner.weights == weights).ok_or_else(missing)?;
        products.planner.multiply(product(products), stream, operands, out, self.overlaps)
    }
}
