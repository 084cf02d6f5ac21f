//! The kernels of a step, with the checks that make them safe to call.
#![allow(unsafe_code)]

use super::{
    State, StepSizes, TOKEN, Tuning,
    attention::AttentionKernel,
    product::{Linear, Norm, Operands, Product, Products},
};
use crate::{
    blas::Element,
    cache::Cache,
    device::Device,
    error::CudaError,
    kernel::{Argument, Kernel, Shape},
    kernels::expect,
    memory::Buffer,
    nvrtc,
    stream::Stream,
};

/// The kernels of one decode step for one decoder on one device. `T` is the dtype of weights and activations.
#[derive(Debug)]
pub struct Step<T> {
    pub(super) sizes: StepSizes,
    pub(super) attention: AttentionKernel<T>,
    products: Products<T>,
    embed: Kernel,
    argmax: Kernel,
    multiprocessors: u32,
    pub(super) overlaps: bool,
}

/// Threads per block of the first and the last kernel of a step.
const THREADS: u32 = 256;

impl<T: Element> Step<T> {
    /// Compiles the kernels for a step of these sizes, or loads them from the cache.
    pub fn load(device: &Device, cache: &Cache, sizes: StepSizes) -> Result<Self, CudaError> {
        Self::load_tuned(device, cache, sizes, Tuning::of(device, &sizes)?)
    }

    /// The same with another kernel variant, to find the fastest.
    pub fn load_tuned(device: &Device, cache: &Cache, sizes: StepSizes, tuning: Tuning) -> Result<Self, CudaError> {
        sizes.check()?;
        tuning.check()?;
        let (ends, _) = nvrtc::load(device, cache, TOKEN, &[T::OPTION.to_owned()])?;
        let end = |name| {
            let kernel = ends.kernel(name)?;
            kernel.prefer_shared_memory().map(|()| kernel)
        };
        Ok(Self {
            sizes,
            attention: AttentionKernel::load(device, cache, &sizes, tuning)?,
            products: Products::load(device, cache, &sizes, tuning)?,
            embed: end("embed_step")?,
            argmax: end("argmax_step")?,
            multiprocessors: device.facts().multiprocessors.max(1),
            overlaps: device.facts().capability.0 >= 9,
        })
    }

    /// The sizes it was created for.
    pub fn sizes(&self) -> StepSizes {
        self.sizes
    }

    /// Whether kernels overlap with the previous ones.
    pub fn overlaps(&self) -> bool {
        self.overlaps
    }

    /// The same step with one kernel after another, for comparison.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.overlaps = false;
        self
    }

    /// Writes the embedding of each sequence's token into `x` `[batch, hidden]`; a token outside the vocabulary gives
    /// NaN.
    ///
    /// Waits, on the device, for all work on the stream.
    pub fn embed(&self, stream: &Stream, state: &State, table: &Buffer<T>, x: &mut Buffer<T>) -> Result<(), CudaError> {
        let StepSizes { batch, hidden, vocab, .. } = self.sizes;
        let holds = |buffer: &Buffer<T>, rows| buffer.length() as u64 >= u64::from(rows) * u64::from(hidden);
        expect("embedding", state.batch == batch, "the state has a different number of sequences")?;
        expect("embedding", holds(table, vocab) && holds(x, batch), "a buffer is too small")?;
        let arguments: [Argument; 5] = [(&state.token).into(), table.into(), x.into(), hidden.into(), vocab.into()];
        // SAFETY: the kernel stays within the sizes, and the buffers are at least as large.
        unsafe { self.embed.launch(stream, Shape::line(batch, THREADS), &arguments) }
    }

    /// Multiplies weights `[rows, width]` with the normed `x` `[batch, width]` into `out` `[batch, rows]`.
    pub fn norm_linear(
        &self,
        stream: &Stream,
        x: &Buffer<T>,
        norm: &Norm<'_, T>,
        linear: &Linear<'_, T>,
        out: &mut Buffer<T>,
        [rows, width]: [u32; 2],
    ) -> Result<(), CudaError> {
        let operands = Operands { x, norm: Some(norm), linear, rows, width };
        self.multiply(&self.products.norm_linear, stream, &operands, out)
    }

    /// Adds the product of weights `[rows, width]` with `a` `[batch, width]` to `x` `[batch, rows]`.
    pub fn linear_add(
        &self,
        stream: &Stream,
        a: &Buffer<T>,
        linear: &Linear<'_, T>,
        x: &mut Buffer<T>,
        [rows, width]: [u32; 2],
    ) -> Result<(), CudaError> {
        let operands = Operands { x: a, norm: None, linear, rows, width };
        self.multiply(&self.products.linear_add, stream, &operands, x)
    }

    /// Puts `silu(gate) * up` into `out` `[batch, ffn]`: both are products with the normed `x` `[batch, width]`, of the
    /// weights `[2 * ffn, width]`, the gate's first.
    pub fn norm_gate_up(
        &self,
        stream: &Stream,
        x: &Buffer<T>,
        norm: &Norm<'_, T>,
        linear: &Linear<'_, T>,
        out: &mut Buffer<T>,
        [rows, width]: [u32; 2],
    ) -> Result<(), CudaError> {
        let operands = Operands { x, norm: Some(norm), linear, rows, width };
        self.multiply(&self.products.norm_gate_up, stream, &operands, out)
    }

    /// Selects the largest logit of each sequence, `[batch, vocab]`, as its next token, stores it, and advances the
    /// position. The first of equals wins; NaN never does, and token 0 is selected if all are NaN.
    pub fn argmax(&self, stream: &Stream, logits: &Buffer<T>, state: &mut State) -> Result<(), CudaError> {
        let StepSizes { batch, vocab, .. } = self.sizes;
        let fits = logits.length() as u64 >= u64::from(batch) * u64::from(vocab);
        expect("selecting a token", state.batch == batch, "the state has a different number of sequences")?;
        expect("selecting a token", fits && batch <= THREADS, "the logits are too few, or the sequences too many")?;
        let blocks = vocab.div_ceil(THREADS * 8).clamp(1, self.multiprocessors);
        let shape = Shape { grid: [blocks, batch, 1], block: [THREADS, 1, 1], shared_bytes: 0 };
        let arguments: [Argument; 9] = [
            logits.into(),
            vocab.into(),
            (&mut state.best).into(),
            (&mut state.done).into(),
            (&mut state.token).into(),
            (&mut state.position).into(),
            (&mut state.count).into(),
            (&mut state.chosen).into(),
            state.room.into(),
        ];
        // SAFETY: the kernel stays within the sizes, and the buffers are at least as large.
        unsafe { self.launch(&self.argmax, stream, shape, &arguments) }
    }

    fn multiply(
        &self,
        product: &Product,
        stream: &Stream,
        operands: &Operands<'_, T>,
        out: &mut Buffer<T>,
    ) -> Result<(), CudaError> {
        let ready = self.products.ready(product, operands, out)?;
        // SAFETY: the kernel stays within the sizes, the buffers were found to be at least as large, and their rows are
        // aligned where the fast form is chosen.
        unsafe { self.launch(ready.kernel, stream, ready.shape, &ready.arguments) }
    }

    /// # Safety
    ///
    /// As for [`Kernel::launch`]; the kernels of a step wait for the one before them.
    pub(super) unsafe fn launch(
        &self,
        kernel: &Kernel,
        stream: &Stream,
        shape: Shape,
        arguments: &[Argument],
    ) -> Result<(), CudaError> {
        // SAFETY: as the caller says.
        unsafe {
            if self.overlaps {
                kernel.launch_early(stream, shape, arguments)
            } else {
                kernel.launch(stream, shape, arguments)
            }
        }
    }
}
