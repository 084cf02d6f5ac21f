//! The operations of connectors on a GPU.

use laptime_cuda::{Buffer, CudaError, Device, Sizes, Slice, SliceMut};

use super::{
    super::{size, weights::Number},
    backend::{Cuda, On},
    loader::LinearWeights,
};
use crate::{
    ModelError,
    vibevoice::{CONNECTOR_EPS, Connector, ConnectorOps, Latents},
};

/// What connectors compute in, for this many rows.
pub struct Connecting<T> {
    inner: Buffer<T>,
    normed: Buffer<T>,
    rows: u32,
    width: u32,
}

/// The latents of a voice, and the rows of the prompt that they become.
pub struct Voice<T> {
    latents: Buffer<T>,
    pub rows: Buffer<T>,
    connecting: Option<Connecting<T>>,
}

impl<T: Number> Connecting<T> {
    pub fn new(device: &Device, rows: usize, width: usize) -> Result<Self, CudaError> {
        let (inner, normed) = (device.allocate(rows * width)?, device.allocate(rows * width)?);
        Ok(Self { inner, normed, rows: size(rows)?, width: size(width)? })
    }

    fn sizes(&self, weights: &LinearWeights<T>) -> Result<Sizes, CudaError> {
        let inputs = size(weights.weight.length())? / self.width.max(1);
        Ok(Sizes { m: self.rows, n: self.width, k: inputs, b_is_transposed: true })
    }

    fn enter_norm<'a>(
        &mut self,
        on: &On<'_, T>,
        weights: &Connector<Cuda<'a, T>>,
        latents: Slice<'_, T>,
    ) -> Result<(), CudaError> {
        let (stream, shape, sizes) = (on.device.stream(), [self.rows, self.width], self.sizes(&weights.enter)?);
        on.blas.multiply_slices([latents, weights.enter.weight.all()], self.inner.all_mut(), sizes)?;
        on.kernels.operations.add_bias(stream, &mut self.inner, &weights.enter.bias, shape)?;
        on.kernels.operations.rms_norm(stream, &self.inner, &weights.norm, &mut self.normed, shape, CONNECTOR_EPS)
    }

    /// Puts the rows into `out`, or adds them to what is there.
    fn leave(
        &self,
        on: &On<'_, T>,
        weights: &LinearWeights<T>,
        mut out: SliceMut<'_, T>,
        is_added: bool,
    ) -> Result<(), CudaError> {
        let (of, sizes) = ([self.normed.all(), weights.weight.all()], self.sizes(weights)?);
        match is_added {
            true => on.blas.multiply_add(of, out.borrowed(), sizes)?,
            false => on.blas.multiply_slices(of, out.borrowed(), sizes)?,
        }
        on.kernels.operations.add_bias(on.device.stream(), out, weights.bias.all(), [self.rows, self.width])
    }
}

impl<T: Number> ConnectorOps for Cuda<'_, T> {
    type Voice = Voice<T>;

    fn voice(&mut self, latents: &[f32]) -> Result<Voice<T>, ModelError> {
        let (device, width) = (self.on.device, self.language.row.length());
        let rows = latents.len() / self.diffusion.row.length();
        let narrow: Vec<T> = latents.iter().map(|latent| T::narrowed(*latent)).collect();
        let (latents, out) = (device.upload(&narrow)?, device.allocate(rows * width)?);
        Ok(Voice { latents, rows: out, connecting: Some(Connecting::new(device, rows, width)?) })
    }

    fn enter_norm(&mut self, latents: &mut Latents<'_, Self>, weights: &Connector<Self>) -> Result<(), ModelError> {
        let Self { on, connecting, diffusion, .. } = self;
        match latents {
            Latents::Acoustic => connecting.enter_norm(on, weights, diffusion.row.all())?,
            Latents::Semantic(flow) => {
                let latent = weights.enter.weight.length() / weights.norm.length();
                connecting.enter_norm(on, weights, flow.x.slice(0..latent)?)?;
            }
            Latents::Voice(Voice { latents, connecting: Some(connecting), .. }) => {
                connecting.enter_norm(on, weights, latents.all())?;
            }
            Latents::Voice(_) => {}
        }
        Ok(())
    }

    fn connect(&mut self, latents: Latents<'_, Self>, weights: &Connector<Self>) -> Result<(), ModelError> {
        let Self { on, connecting, language, .. } = self;
        match latents {
            Latents::Acoustic => connecting.leave(on, &weights.leave, language.row.all_mut(), false)?,
            Latents::Semantic(_) => connecting.leave(on, &weights.leave, language.row.all_mut(), true)?,
            Latents::Voice(Voice { rows, connecting, .. }) => {
                if let Some(connecting) = connecting.take() {
                    connecting.leave(on, &weights.leave, rows.all_mut(), false)?;
                }
            }
        }
        Ok(())
    }
}
