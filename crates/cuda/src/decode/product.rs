//! Products of weights with a few vectors: selects the kernel and its launch size.
#![allow(unsafe_code)]

use std::sync::Arc;

use cudarc::driver::sys;

use super::{LINEAR, LINEAR_TENSOR, StepSizes, Tuning, tensor, tiles::Tiles};
use crate::launch::*;
use crate::{context::driver, kernel::Module, nn::Fp8Scales};

/// An RMS norm.
#[derive(Debug)]
pub struct Norm<'a, T> {
    /// The norm weight.
    pub weight: &'a Buffer<T>,
    /// The epsilon.
    pub epsilon: f32,
}

/// Weights `[rows, width]` with a bias.
#[derive(Debug)]
pub struct Linear<'a, T> {
    /// The weights.
    pub weight: &'a Buffer<T>,
    /// One bias per row.
    pub bias: Option<&'a Buffer<T>>,
    /// The scales of FP8 weights (see [`Fp8Scales::elements`]); none for weights in the dtype.
    pub fp8: Option<Fp8Scales>,
}

/// How weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weights {
    /// In the dtype of activations.
    Dtype,
    /// In FP8.
    Fp8(Fp8Scales),
}

impl Weights {
    /// Elements per step of a warp: 16 bytes per lane.
    fn chunk<T>(self) -> u32 {
        match self {
            Self::Dtype => 32 * 16 / size_of::<T>().max(1) as u32,
            Self::Fp8(_) => 32 * 16,
        }
    }

    /// Bytes of the ring per step of a warp on a pair of rows, with block scales.
    fn slot_bytes(self) -> u32 {
        if self == Self::Fp8(Fp8Scales::Blocks) { 1024 + 256 } else { 1024 }
    }

    /// The size of a matrix in elements of `T`.
    fn elements<T>(self, shape: [u32; 2]) -> u64 {
        match self {
            Self::Dtype => area(shape[0], shape[1]),
            Self::Fp8(scales) => scales.elements::<T>(shape),
        }
    }

    fn width_is_aligned<T>(self, width: u32) -> bool {
        let bytes = if self == Self::Dtype { size_of::<T>() } else { 1 };
        (width as usize * bytes).is_multiple_of(16)
    }
}

pub(super) struct Operands<'a, T> {
    pub x: &'a Buffer<T>,
    /// The weight of the norm, if any, and its epsilon.
    pub norm: Option<(Option<&'a Buffer<T>>, f32)>,
    pub linear: &'a Linear<'a, T>,
    /// The modulation of each vector, and its stride.
    pub modulation: Option<(Slice<'a, T>, u32)>,
    pub shape: [u32; 2],
}

/// The two kernels of a product: the fast one, and one for any width.
#[derive(Debug)]
pub(super) struct Product {
    name: &'static str,
    fast: Kernel,
    any: Kernel,
    has_norm: bool,
    /// Rows of weights per row of the result.
    rows_each: u32,
}

/// Plans the launches of products.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planner {
    batch: u32,
    tuning: Tuning,
    pub weights: Weights,
    vectors: u32,
    multiprocessors: u32,
    shared_limit: u32,
}

#[derive(Debug)]
pub(super) struct Products {
    pub norm_linear: Product,
    pub linear_add: Product,
    pub norm_gate_up: Product,
    pub planner: Planner,
}

/// The maximum number of vectors per block.
const MAX_VECTORS: u32 = 8;

fn options(vectors: u32, tuning: Tuning, weights: Weights) -> Vec<String> {
    let sizes = vec![("BATCH", vectors), ("WARPS", tuning.warps), ("DEPTH", tuning.depth)];
    let tensor = tuning.tensor.map(|tensor| [("VECTORS", tensor.vectors), ("SPLIT", tensor.splits)]);
    let stored: &[&str] = match weights {
        Weights::Dtype => &[],
        Weights::Fp8(Fp8Scales::Rows) => &["-DWEIGHTS_FP8"],
        Weights::Fp8(Fp8Scales::Blocks) => &["-DWEIGHTS_FP8", "-DSCALED_BLOCKS"],
    };
    let sizes = sizes.into_iter().chain(tensor.into_iter().flatten());
    let sizes = sizes.map(|(name, value)| format!("-D{name}={value}"));
    sizes.chain(stored.iter().map(|&option| option.to_owned())).collect()
}

impl Products {
    pub fn load<T: Element>(
        device: &Device,
        cache: &Cache,
        sizes: &StepSizes,
        tuning: Tuning,
        weights: Weights,
    ) -> Result<Self, CudaError> {
        let planner = Planner::new::<T>(device, sizes, tuning, weights)?;
        let module = Request::typed::<T>(planner.source(), &planner.options()).load(device, cache)?;
        let product = |name, has_norm, rows_each| planner.product(&module, name, has_norm, rows_each);
        Ok(Self {
            norm_linear: product("norm_linear", true, 1)?,
            linear_add: product("linear_add", false, 1)?,
            norm_gate_up: product("norm_gate_up", true, 2)?,
            planner,
        })
    }
}

impl Planner {
    pub fn new<T: Element>(
        device: &Device,
        sizes: &StepSizes,
        tuning: Tuning,
        weights: Weights,
    ) -> Result<Self, CudaError> {
        let shared_limit = shared_limit(device)?;
        let tensor = tuning.tensor.filter(|_| weights == Weights::Dtype);
        let tuning = match tensor {
            Some(tensor) => Tuning { warps: tensor.warps, depth: tensor.depth, ..tuning },
            None => Tuning { tensor, ..tuning },
        };
        Ok(Self {
            batch: sizes.batch,
            tuning,
            weights,
            vectors: vectors_that_fit::<T>(sizes, tuning, weights, shared_limit),
            multiprocessors: device.facts().multiprocessors.max(1),
            shared_limit,
        })
    }

    pub fn source(&self) -> Source<'static> {
        if self.tuning.tensor.is_some() { LINEAR_TENSOR } else { LINEAR }
    }

    pub fn options(&self) -> Vec<String> {
        options(self.vectors, self.tuning, self.weights)
    }

    pub fn product(
        &self,
        module: &Arc<Module>,
        name: &'static str,
        has_norm: bool,
        rows_each: u32,
    ) -> Result<Product, CudaError> {
        let (fast, any) = (module.step_kernel(name)?, module.step_kernel(&format!("any_{name}"))?);
        fast.allow_shared_bytes(self.shared_limit)?;
        any.allow_shared_bytes(self.shared_limit)?;
        Ok(Product { name, fast, any, has_norm, rows_each })
    }

    pub fn multiply<T: Element>(
        &self,
        product: &Product,
        stream: &Stream,
        operands: &Operands<'_, T>,
        out: &mut Buffer<T>,
        overlaps: bool,
    ) -> Done {
        let Operands { x, norm, linear, modulation, shape: [rows, width] } = *operands;
        let all_rows = rows.saturating_mul(product.rows_each);
        let is_valid = rows > 0 && width > 0 && width < 1 << 24 && all_rows < 1 << 31;
        let mut launch = Launch::new(stream, product.name)
            .require(is_valid, "a size is zero or too large")
            .read(x, area(self.batch, width))
            .read(norm.and_then(|(weight, _)| weight), width)
            .with(norm.map_or(0.0, |(_, epsilon)| epsilon))
            .read(linear.weight, self.weights.elements::<T>([all_rows, width]))
            .read(linear.bias, all_rows)
            .write(out, area(self.batch, rows));
        launch.check()?;
        let (kernel, tiles, shape) = self.plan::<T>(product, rows, width)?;
        launch = launch.with_all([self.batch, rows, width, tiles.segments, tiles.segment]).with_timestamp();
        if let Some((modulation, stride)) = modulation {
            // The fast kernel loads shifts and scales as 16-byte vectors.
            let is_aligned = norm.is_none() || modulation.pointer().is_multiple_of(16);
            launch = launch.read(modulation, area(self.batch, stride)).with(stride);
            launch = launch.require(is_aligned, "the modulation is not aligned to 16 bytes");
        }
        launch.run_early(kernel, shape, overlaps)
    }

    fn plan<'a, T>(
        &self,
        product: &'a Product,
        rows: u32,
        width: u32,
    ) -> Result<(&'a Kernel, Tiles, Shape), CudaError> {
        let pairs = if product.rows_each == 2 { rows } else { rows.div_ceil(2) };
        let is_aligned = self.weights.width_is_aligned::<T>(width);
        if let Some(tensor) = self.tuning.tensor.filter(|_| is_aligned) {
            let of_tiles = tensor::Product { pairs, width, has_norm: product.has_norm };
            let mut shape = tensor.shape(of_tiles, self.batch, self.multiprocessors);
            shape.shared_bytes = shape.shared_bytes.max(self.shared_limit / 3 + 1);
            if shape.shared_bytes <= self.shared_limit {
                return Ok((&product.fast, Tiles::whole(0), shape));
            }
        }
        let is_fast = is_aligned && self.tuning.tensor.is_none();
        let blocks = pairs.min(self.multiprocessors);
        let chunks = width.div_ceil(self.weights.chunk::<T>());
        let each = pairs.div_ceil(blocks);
        let bytes = |tiles: Tiles| {
            let is_kept = is_fast && (tiles.segments > 1 || !product.has_norm);
            let parts = if is_kept { each.saturating_mul(tiles.segments) } else { 0 };
            let scales = if self.weights == Weights::Fp8(Fp8Scales::Rows) { each.saturating_mul(8) } else { 0 };
            shared_bytes::<T>(self.tuning, self.weights, self.vectors, tiles, product.has_norm, parts)
                .saturating_add(scales)
        };
        let (even, whole) = (Tiles::even(each, chunks, self.tuning.warps), Tiles::whole(chunks));
        let tiles = if is_fast && bytes(even) <= self.shared_limit { even } else { whole };
        // Shared memory for two blocks, not three: so a kernel that starts early has one block per multiprocessor, next to
        // one of the previous kernel.
        let shared_bytes = bytes(tiles).max(self.shared_limit / 3 + 1);
        expect(
            product.name,
            shared_bytes <= self.shared_limit,
            "the vectors do not fit in the shared memory of a block",
        )?;
        let grid = [blocks, self.batch.div_ceil(self.vectors), 1];
        let kernel = if is_fast { &product.fast } else { &product.any };
        Ok((kernel, tiles, Shape::new(grid, [self.tuning.warps * 32, 1, 1]).with_shared(shared_bytes)))
    }
}

/// The shared memory of a block: the kernels' `Memory`.
fn shared_bytes<T>(tuning: Tuning, weights: Weights, vectors: u32, tiles: Tiles, has_norm: bool, parts: u32) -> u32 {
    let ring = tuning.warps * tuning.depth * weights.slot_bytes();
    let elements = tiles.padded(weights.chunk::<T>()).saturating_mul(vectors + u32::from(has_norm));
    let sums = vectors * tuning.warps + parts.saturating_mul(2 * vectors);
    ring.saturating_add(elements.saturating_mul(size_of::<T>() as u32)).saturating_add(sums.saturating_mul(4))
}

/// The number of vectors that a block can multiply at once, for the largest width.
fn vectors_that_fit<T>(sizes: &StepSizes, tuning: Tuning, weights: Weights, limit: u32) -> u32 {
    let wide = |width: u32| Tiles::whole(width.div_ceil(weights.chunk::<T>()).saturating_add(1));
    let (normed, plain) = (wide(sizes.hidden), wide(sizes.ffn.max(sizes.attended())));
    // Partial sums need some memory too.
    let bytes = |vectors, tiles, has_norm| shared_bytes::<T>(tuning, weights, vectors, tiles, has_norm, 64);
    let mut vectors = sizes.batch.clamp(1, MAX_VECTORS).next_power_of_two();
    while vectors > 1 && bytes(vectors, normed, true).max(bytes(vectors, plain, false)) > limit {
        vectors /= 2;
    }
    vectors
}

/// The shared memory limit of a block in bytes.
pub(super) fn shared_limit(device: &Device) -> Result<u32, CudaError> {
    let mut bytes = 0;
    let limit = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    driver!("querying the shared memory", cuDeviceGetAttribute(&mut bytes, limit, device.context().device))?;
    Ok(bytes.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::{
        super::{AttentionTuning, sizes::tests::QWEN3_4B},
        *,
    };

    const H200_LIMIT: u32 = 227 << 10;

    #[test]
    fn a_block_has_a_power_of_two_of_vectors_that_fit() {
        let vectors = |batch, tuning| {
            vectors_that_fit::<bf16>(&StepSizes { batch, ..QWEN3_4B }, tuning, Weights::Dtype, H200_LIMIT)
        };
        let tuning = Tuning { warps: 8, depth: 8, attention: AttentionTuning::PLAIN, tensor: None };
        assert_eq!([1, 2, 3, 4, 5, 8, 9].map(|batch| vectors(batch, tuning)), [1, 2, 4, 4, 8, 8, 8]);
        assert_eq!(vectors(8, Tuning { depth: 4, ..tuning }), 8);
        let eight = StepSizes { batch: 8, ..QWEN3_4B };
        assert_eq!(vectors_that_fit::<f32>(&eight, tuning, Weights::Dtype, H200_LIMIT), 4);
        // Vectors are padded to longer chunks.
        let fp8 = |depth| {
            let tuning = Tuning { depth, ..tuning };
            vectors_that_fit::<bf16>(&eight, tuning, Weights::Fp8(Fp8Scales::Rows), H200_LIMIT)
        };
        assert_eq!([fp8(8), fp8(4)], [4, 8]);
    }

    #[test]
    fn a_pair_of_chunks_is_a_kibibyte_of_the_ring() {
        assert_eq!((Weights::Dtype.chunk::<f32>(), Weights::Dtype.chunk::<bf16>()), (128, 256));
        assert_eq!(Weights::Fp8(Fp8Scales::Rows).chunk::<bf16>(), 512);
    }
}
