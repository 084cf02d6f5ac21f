//! What brings latents to the width of the language model.

use laptime_cuda::{Blas, Buffer, CudaError, Device, Sizes, Slice, SliceMut};

use super::{
    super::{size, weights::Number},
    weights::{ConnectorWeights, Kernels, LinearWeights},
};

/// What is added under the root of the norms of connectors, as in the published classes.
const CONNECTOR_EPS: f32 = 1e-6;

/// What connectors compute in, for this many rows.
pub struct Connecting<T> {
    inner: Buffer<T>,
    normed: Buffer<T>,
    rows: u32,
    width: u32,
}

impl<T: Number> Connecting<T> {
    pub fn new(device: &Device, rows: usize, width: usize) -> Result<Self, CudaError> {
        let (inner, normed) = (device.allocate(rows * width)?, device.allocate(rows * width)?);
        Ok(Self { inner, normed, rows: size(rows)?, width: size(width)? })
    }

    /// Puts the rows of latents into `out`, or adds them to what is there.
    pub fn run(
        &mut self,
        (device, blas, kernels): (&Device, &Blas, &Kernels<T>),
        weights: &ConnectorWeights<T>,
        latents: Slice<'_, T>,
        mut out: SliceMut<'_, T>,
        is_added: bool,
    ) -> Result<(), CudaError> {
        let Self { inner, normed, rows, width } = self;
        let (stream, shape) = (device.stream(), [*rows, *width]);
        let inputs = size(weights.enter.weight.length())? / (*width).max(1);
        let sizes = Sizes { m: *rows, n: *width, k: inputs, b_is_transposed: true };
        blas.multiply_slices([latents, weights.enter.weight.all()], inner.all_mut(), sizes)?;
        kernels.operations.add_bias(stream, &mut *inner, &weights.enter.bias, shape)?;
        kernels.operations.rms_norm(stream, &*inner, &weights.norm, &mut *normed, shape, CONNECTOR_EPS)?;
        let LinearWeights { weight, bias } = &weights.leave;
        let sizes = Sizes { k: *width, ..sizes };
        match is_added {
            true => blas.multiply_add([normed.all(), weight.all()], out.borrowed(), sizes)?,
            false => blas.multiply_slices([normed.all(), weight.all()], out.borrowed(), sizes)?,
        }
        kernels.operations.add_bias(stream, out, bias.all(), shape)
    }
}
