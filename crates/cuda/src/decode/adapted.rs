//! Products with adapted vectors: the layers of a diffusion head.

use std::marker::PhantomData;

use super::product::{Dealer, Operands, Product, Weights, shared_limit};
use super::{ADAPTED, Linear, Norm, Spread, StepSizes, Tuning, sizes::MUCH_SHARED};
use crate::launch::*;

/// The kernel variant if there is enough shared memory. A block of this size occupies a whole multiprocessor, so two
/// blocks never share one.
const TUNING: Tuning = Tuning { warps: 24, depth: 3, attention: Spread::PLAIN, together: None };

/// The sizes of adapted layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptedSizes {
    /// Vectors that are processed together.
    pub batch: u32,
    /// The width of a vector.
    pub hidden: u32,
    /// The width of the feed-forward part.
    pub ffn: u32,
}

/// The products of adapted layers on one device. They overlap with the previous kernel, like those of a
/// [`Step`](super::Step). `T` is the dtype of weights and activations.
///
/// A vector is adapted by a row of shift, scale and, for additions, gate, each as wide as the vector. The row is read
/// after the previous kernel is done.
#[derive(Debug)]
pub struct Adapted<T> {
    dealer: Dealer,
    linear: Product,
    gate_up: Product,
    add_gated: Product,
    overlaps: bool,
    of: PhantomData<T>,
}

impl<T: Element> Adapted<T> {
    /// Compiles the kernels for layers of these sizes, or loads them from the cache.
    pub fn load(device: &Device, cache: &Cache, sizes: AdaptedSizes) -> Result<Self, CudaError> {
        let is_small = shared_limit(device)? < MUCH_SHARED;
        Self::load_tuned(device, cache, sizes, if is_small { Tuning { warps: 8, depth: 4, ..TUNING } } else { TUNING })
    }

    /// The same with another kernel variant, to find the fastest.
    pub fn load_tuned(device: &Device, cache: &Cache, sizes: AdaptedSizes, tuning: Tuning) -> Result<Self, CudaError> {
        let AdaptedSizes { batch, hidden, ffn } = sizes;
        let step = StepSizes { batch, hidden, heads: 1, kv_heads: 1, head_dim: 2, ffn, vocab: 1, capacity: 1 };
        step.check()?;
        tuning.check()?;
        let dealer = Dealer::new::<T>(device, &step, tuning, Weights::Numbers)?;
        let module = Request::typed::<T>(ADAPTED, &dealer.options()).load(device, cache)?;
        let product = |name, has_norm, rows_each| dealer.product(&module, name, has_norm, rows_each);
        Ok(Self {
            linear: product("adapt_linear", true, 1)?,
            gate_up: product("adapt_gate_up", true, 2)?,
            add_gated: product("add_gated", false, 1)?,
            dealer,
            overlaps: device.is_hopper_or_later(),
            of: PhantomData,
        })
    }

    /// Multiplies weights `[rows, width]` with the adapted `x` `[batch, width]` into `out` `[batch, rows]`: `x` is normed
    /// by the root of its mean square, then scaled and shifted. `adapt` has a row of shift and scale, `2 * width` numbers,
    /// for each vector.
    pub fn linear(
        &self,
        stream: &Stream,
        (x, epsilon): (&Buffer<T>, f32),
        adapt: Slice<'_, T>,
        linear: &Linear<'_, T>,
        out: &mut Buffer<T>,
        [rows, width]: [u32; 2],
    ) -> Done {
        let norm = Some((None, epsilon));
        let adapt = Some((adapt, width.saturating_mul(2)));
        self.multiply(&self.linear, stream, &Operands { x, norm, linear, adapt, shape: [rows, width] }, out)
    }

    /// Puts `silu(gate) * up` into `out` `[batch, ffn]`: both are products with the adapted `x` `[batch, width]`, of the
    /// weights `[2 * ffn, width]`, the gate's first. `adapt` has a row of shift, scale and gate, `3 * width` numbers, for
    /// each vector.
    pub fn gate_up(
        &self,
        stream: &Stream,
        (x, norm): (&Buffer<T>, &Norm<'_, T>),
        adapt: Slice<'_, T>,
        linear: &Linear<'_, T>,
        out: &mut Buffer<T>,
        [ffn, width]: [u32; 2],
    ) -> Done {
        let norm = Some((Some(norm.weight), norm.epsilon));
        let adapt = Some((adapt, width.saturating_mul(3)));
        self.multiply(&self.gate_up, stream, &Operands { x, norm, linear, adapt, shape: [ffn, width] }, out)
    }

    /// Adds the product of weights `[rows, width]` with `a` `[batch, width]` to `x` `[batch, rows]`, each number times its
    /// gate. `adapt` has a row of shift, scale and gate, `3 * rows` numbers, for each vector.
    pub fn add_gated(
        &self,
        stream: &Stream,
        a: &Buffer<T>,
        adapt: Slice<'_, T>,
        linear: &Linear<'_, T>,
        x: &mut Buffer<T>,
        [rows, width]: [u32; 2],
    ) -> Done {
        let adapt = Some((adapt, rows.saturating_mul(3)));
        self.multiply(&self.add_gated, stream, &Operands { x: a, norm: None, linear, adapt, shape: [rows, width] }, x)
    }

    fn multiply(&self, product: &Product, stream: &Stream, operands: &Operands<'_, T>, out: &mut Buffer<T>) -> Done {
        self.dealer.multiply(product, stream, operands, out, self.overlaps)
    }
}
