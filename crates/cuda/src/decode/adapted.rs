//! Products with adapted vectors: the layers of a diffusion head.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::{
    ADAPTED, Linear, Norm, StepSizes, Tuning,
    product::{Dealer, Product, shared_limit},
    sizes::MUCH_SHARED,
};
use crate::{
    blas::Element, cache::Cache, device::Device, error::CudaError, kernel::Argument, kernels::expect, memory::Buffer,
    nvrtc, slice::Slice, stream::Stream,
};

/// The kernel variant if there is enough shared memory. A block of this size occupies a whole multiprocessor, so two
/// blocks never share one.
pub(super) const TUNING: Tuning = Tuning { warps: 24, depth: 3, heads: 1 };

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

/// The factors and their sizes.
struct Operands<'a, T> {
    x: &'a Buffer<T>,
    /// The weight, if any, and what is added under the root.
    norm: Option<(Option<&'a Buffer<T>>, f32)>,
    linear: &'a Linear<'a, T>,
    /// The adaptation of each vector, and the distance from one to the next.
    adapt: (Slice<'a, T>, u32),
    /// Rows and width of the weights.
    shape: [u32; 2],
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
        let dealer = Dealer::new::<T>(device, &step, tuning)?;
        let (module, _) = nvrtc::load(device, cache, ADAPTED, &dealer.options::<T>())?;
        let product = |name, has_norm, rows_each| dealer.product(&module, name, has_norm, rows_each);
        Ok(Self {
            linear: product("adapt_linear", true, 1)?,
            gate_up: product("adapt_gate_up", true, 2)?,
            add_gated: product("add_gated", false, 1)?,
            dealer,
            overlaps: device.facts().capability.0 >= 9,
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
    ) -> Result<(), CudaError> {
        let norm = Some((None, epsilon));
        let adapt = (adapt, width.saturating_mul(2));
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
    ) -> Result<(), CudaError> {
        let norm = Some((Some(norm.weight), norm.epsilon));
        let adapt = (adapt, width.saturating_mul(3));
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
    ) -> Result<(), CudaError> {
        let adapt = (adapt, rows.saturating_mul(3));
        self.multiply(&self.add_gated, stream, &Operands { x: a, norm: None, linear, adapt, shape: [rows, width] }, x)
    }

    fn multiply(
        &self,
        product: &Product,
        stream: &Stream,
        operands: &Operands<'_, T>,
        out: &mut Buffer<T>,
    ) -> Result<(), CudaError> {
        self.check(product, operands, out)?;
        let Operands { x, norm, linear, adapt: (adapt, adapt_width), shape: [rows, width] } = *operands;
        let (kernel, tiles, shape) = self.dealer.deal::<T>(product, rows, width)?;
        let optional = |buffer: Option<&Buffer<T>>| buffer.map_or(Argument::from(0_u64), Argument::from);
        let arguments: [Argument; 13] = [
            x.into(),
            optional(norm.and_then(|(weight, _)| weight)),
            norm.map_or(0.0, |(_, epsilon)| epsilon).into(),
            linear.weight.into(),
            optional(linear.bias),
            out.into(),
            self.dealer.batch.into(),
            rows.into(),
            width.into(),
            tiles.segments.into(),
            tiles.segment.into(),
            adapt.into(),
            adapt_width.into(),
        ];
        // SAFETY: the kernel stays within the sizes, the buffers were found to be at least as large, and their rows are
        // aligned where the fast form is chosen.
        unsafe {
            match self.overlaps {
                true => kernel.launch_early(stream, shape, &arguments),
                false => kernel.launch(stream, shape, &arguments),
            }
        }
    }

    fn check(&self, product: &Product, operands: &Operands<'_, T>, out: &Buffer<T>) -> Result<(), CudaError> {
        let Operands { x, norm, linear, adapt: (adapt, adapt_width), shape: [rows, width] } = *operands;
        let batch = self.dealer.batch;
        let holds = |length: usize, rows: u32, columns: u32| length as u64 >= u64::from(rows) * u64::from(columns);
        let all_rows = rows.saturating_mul(product.rows_each);
        let weight = norm.and_then(|(weight, _)| weight);
        let fits = holds(x.length(), batch, width)
            && holds(out.length(), batch, rows)
            && holds(linear.weight.length(), all_rows, width)
            && weight.is_none_or(|weight| holds(weight.length(), 1, width))
            && linear.bias.is_none_or(|bias| holds(bias.length(), 1, all_rows))
            && holds(adapt.length(), batch, adapt_width);
        let sensible = rows > 0 && width > 0 && width < 1 << 24 && all_rows < 1 << 31;
        expect(product.name, sensible, "a size is zero or too large")?;
        expect(product.name, fits, "a buffer is too small")?;
        // The fast form takes shifts and scales 16 bytes at a time.
        let is_aligned = norm.is_none() || adapt.pointer().is_multiple_of(16);
        expect(product.name, is_aligned, "what adapts the vectors begins at no multiple of 16 bytes")
    }
}
