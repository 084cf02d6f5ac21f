//! The connectors on a GPU.

use laptime_cuda::{Buffer, Device, Sizes, Slice, SliceMut};

use super::super::{audio::Kit, size, weights::Number};
use super::backend::Cuda;
use crate::tts::Linear;
use crate::vibevoice::{CONNECTOR_EPS, Connector};
use crate::{Done, ModelError};

pub struct Connecting<T> {
    inner: Buffer<T>,
    normed: Buffer<T>,
    rows: u32,
    width: u32,
}

impl<T: Number> Connecting<T> {
    pub fn new(device: &Device, rows: usize, width: usize) -> Result<Self, ModelError> {
        let (inner, normed) = (device.allocate(rows * width)?, device.allocate(rows * width)?);
        Ok(Self { inner, normed, rows: size(rows)?, width: size(width)? })
    }

    pub fn run(
        &mut self,
        kit: &Kit<'_, T>,
        weights: &Connector<Cuda<'_, T>>,
        latents: Slice<'_, T>,
        mut out: SliceMut<'_, T>,
        is_added: bool,
    ) -> Done {
        let Self { inner, normed, rows, width } = self;
        let (stream, shape, operations) = (kit.device.stream(), [*rows, *width], &kit.operations);
        let Linear { weight, bias } = &weights.enter;
        let sizes = Sizes { m: *rows, n: *width, k: size(weight.length())? / (*width).max(1), b_is_transposed: true };
        kit.blas.multiply_slices([latents, weight.all()], inner.all_mut(), sizes)?;
        operations.add_bias(stream, &mut *inner, bias, shape)?;
        operations.rms_norm(stream, &*inner, &weights.norm, &mut *normed, shape, CONNECTOR_EPS)?;
        let Linear { weight, bias } = &weights.leave;
        let (of, sizes) = ([normed.all(), weight.all()], Sizes { k: *width, ..sizes });
        match is_added {
            true => kit.blas.multiply_add(of, out.borrowed(), sizes)?,
            false => kit.blas.multiply_slices(of, out.borrowed(), sizes)?,
        }
        Ok(operations.add_bias(stream, out, bias.all(), shape)?)
    }
}
