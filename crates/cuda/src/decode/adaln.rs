//! Products with adaptive layer norm (adaLN): the layers of a diffusion head.

use std::marker::PhantomData;

use super::product::{Operands, Planner, Product, Weights, shared_limit};
use super::{AttentionTuning, LINEAR, Linear, Norm, StepSizes, Tuning, sizes::MUCH_SHARED};
use crate::launch::*;

/// The kernel variant if there is enough shared memory. One block occupies a multiprocessor.
const TUNING: Tuning = Tuning { warps: 24, depth: 3, attention: AttentionTuning::PLAIN, tensor: None };

/// The dimensions of adaptive layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaLnSizes {
    /// The number of vectors.
    pub batch: u32,
    /// The width of a vector.
    pub hidden: u32,
    /// The feed-forward width.
    pub ffn: u32,
}

/// The products of adaptive layers on one device. They overlap with the previous kernel, like those of a
/// [`Step`](super::Step). `T` is the dtype of weights and activations.
///
/// Each vector has a row of modulation: shift, scale and gate, each as wide as the vector. It is read after the previous
/// kernel is done.
#[derive(Debug)]
pub struct AdaLn<T> {
    planner: Planner,
    linear: Product,
    gate_up: Product,
    add_gated: Product,
    overlaps: bool,
    of: PhantomData<T>,
}

impl<T: Element> AdaLn<T> {
    /// Compiles the kernels for layers of these sizes, or loads them from the cache.
    pub fn load(device: &Device, cache: &Cache, sizes: AdaLnSizes) -> Result<Self, CudaError> {
        let is_small = shared_limit(device)? < MUCH_SHARED;
        Self::load_tuned(device, cache, sizes, if is_small { Tuning { warps: 8, depth: 4, ..TUNING } } else { TUNING })
    }

    /// The same with a given kernel variant, to find the fastest.
    pub fn load_tuned(device: &Device, cache: &Cache, sizes: AdaLnSizes, tuning: Tuning) -> Result<Self, CudaError> {
        let AdaLnSizes { batch, hidden, ffn } = sizes;
        let step = StepSizes { batch, hidden, heads: 1, kv_heads: 1, head_dim: 2, ffn, vocab: 1, capacity: 1 };
        step.check()?;
        tuning.check()?;
        let planner = Planner::new::<T>(device, &step, tuning, Weights::Dtype)?;
        let options = [planner.options(), vec!["-DADALN".to_owned()]].concat();
        let module = Request::typed::<T>(LINEAR, &options).load(device, cache)?;
        let product = |name, has_norm, rows_each| planner.product(&module, name, has_norm, rows_each);
        Ok(Self {
            linear: product("adaln_linear", true, 1)?,
            gate_up: product("adaln_gate_up", true, 2)?,
            add_gated: product("add_gated", false, 1)?,
            planner,
            overlaps: device.is_hopper_or_later(),
            of: PhantomData,
        })
    }

    /// Multiplies weights `[rows, width]` with the modulated RMS norm of `x` `[batch, width]` into `out` `[batch, rows]`. The
    /// modulation of a vector is shift and scale, `[2, width]`.
    pub fn linear(
        &self,
        stream: &Stream,
        (x, epsilon): (&Buffer<T>, f32),
        modulation: Slice<'_, T>,
        linear: &Linear<'_, T>,
        out: &mut Buffer<T>,
        [rows, width]: [u32; 2],
    ) -> Done {
        let (norm, modulation) = (Some((None, epsilon)), Some((modulation, width.saturating_mul(2))));
        self.multiply(&self.linear, stream, &Operands { x, norm, linear, modulation, shape: [rows, width] }, out)
    }

    /// SwiGLU of the modulated RMS norm of `x` `[batch, width]` into `out` `[batch, ffn]`, with weights `[2 * ffn, width]`, the
    /// gate's first. The modulation of a vector is shift, scale and gate, `[3, width]`.
    pub fn gate_up(
        &self,
        stream: &Stream,
        (x, norm): (&Buffer<T>, &Norm<'_, T>),
        modulation: Slice<'_, T>,
        linear: &Linear<'_, T>,
        out: &mut Buffer<T>,
        [ffn, width]: [u32; 2],
    ) -> Done {
        let norm = Some((Some(norm.weight), norm.epsilon));
        let modulation = Some((modulation, width.saturating_mul(3)));
        self.multiply(&self.gate_up, stream, &Operands { x, norm, linear, modulation, shape: [ffn, width] }, out)
    }

    /// Adds the product of weights `[rows, width]` with `a` `[batch, width]`, times the gate, to `x` `[batch, rows]`. The
    /// modulation of a vector is shift, scale and gate, `[3, rows]`.
    pub fn add_gated(
        &self,
        stream: &Stream,
        a: &Buffer<T>,
        modulation: Slice<'_, T>,
        linear: &Linear<'_, T>,
        x: &mut Buffer<T>,
        [rows, width]: [u32; 2],
    ) -> Done {
        let modulation = Some((modulation, rows.saturating_mul(3)));
        let operands = Operands { x: a, norm: None, linear, modulation, shape: [rows, width] };
        self.multiply(&self.add_gated, stream, &operands, x)
    }

    fn multiply(&self, product: &Product, stream: &Stream, operands: &Operands<'_, T>, out: &mut Buffer<T>) -> Done {
        self.planner.multiply(product, stream, operands, out, self.overlaps)
    }
}
