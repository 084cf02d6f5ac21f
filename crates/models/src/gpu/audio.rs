//! Kernels and convolutions of both speech models on a GPU.

use laptime_cuda::nn::{CodecOperations, Convolution, Convolutions, Operations};
use laptime_cuda::{Blas, Buffer, Cache, CudaError, Device, Sizes, Slice, SliceMut};

use super::pass::{Context, DeviceRope};
use super::{
    size,
    weights::{Loader, Number},
};
use crate::tts::{ConvTensors, Linear};
use crate::{Config, Done, Marks, ModelError, TensorSpec, decoder::weights::LoadAlike, weights::TensorSource};

pub struct Kit<'a, T> {
    pub device: &'a Device,
    pub blas: Blas,
    pub operations: Operations<T>,
    pub rows: CodecOperations<T>,
    pub convolutions: Convolutions<T>,
}

impl<'a, T: Number> Kit<'a, T> {
    pub fn load(device: &'a Device) -> Result<Self, CudaError> {
        Ok(Self {
            device,
            blas: Blas::new(device)?,
            operations: Operations::load(device, &Cache::of_user())?,
            rows: CodecOperations::load(device, &Cache::of_user())?,
            convolutions: Convolutions::load(device, &Cache::of_user())?,
        })
    }

    pub fn context<'c>(&'c self, config: &'c Config, marks: &'c Marks, rope: &'c DeviceRope) -> Context<'c, T> {
        let Self { device, blas, operations, .. } = self;
        Context { stream: device.stream(), blas, config, marks, operations, rope, fp8: None }
    }

    /// `out = x weight^T`, for a weight `[n, k]` and an output `[m, n]`.
    pub fn product<'x, 'o>(
        &self,
        x: impl Into<Slice<'x, T>>,
        weight: &Buffer<T>,
        out: impl Into<SliceMut<'o, T>>,
        [m, n]: [u32; 2],
    ) -> Done {
        let sizes = Sizes { m, n, k: size(weight.length())? / n.max(1), b_is_transposed: true };
        Ok(self.blas.multiply_slices([x.into(), weight.all()], out.into(), sizes)?)
    }
}

/// A convolution: packed with its bias, or as stored with a separate one.
pub struct ConvWeights<T> {
    pub of: Convolution,
    pub weight: Buffer<T>,
    pub bias: Option<Buffer<T>>,
}

/// Loads weights with a kit, and with more kernels if a model needs them.
pub struct KitLoader<'k, T, K = ()> {
    pub kit: &'k Kit<'k, T>,
    pub kernels: K,
    pub loader: Loader<'k, T>,
}

impl<'k, T: Number, K> KitLoader<'k, T, K> {
    pub fn new(kit: &'k Kit<'k, T>, kernels: K, weights: &'k dyn TensorSource) -> Self {
        let loader = Loader { device: kit.device, operations: &kit.operations, weights, fp8: None };
        Self { kit, kernels, loader }
    }

    pub fn one(&self, tensor: &TensorSpec) -> Result<Buffer<T>, ModelError> {
        self.loader.packed(std::slice::from_ref(tensor))
    }

    pub fn stored(&self, ConvTensors { weight, bias }: &ConvTensors) -> Result<Linear<Buffer<T>>, ModelError> {
        Ok(Linear { weight: self.one(weight)?, bias: self.one(bias)? })
    }

    pub fn packed(&self, of: Convolution, tensors: &ConvTensors) -> Result<ConvWeights<T>, ModelError> {
        let (Linear { weight, bias }, Kit { device, convolutions, .. }) = (self.stored(tensors)?, self.kit);
        let mut packed = device.allocate(of.packed_elements() as usize)?;
        convolutions.pack(device.stream(), &of, &weight, Some(bias.all()), &mut packed)?;
        Ok(ConvWeights { of, weight: packed, bias: None })
    }

    pub fn as_stored(&self, of: Convolution, tensors: &ConvTensors) -> Result<ConvWeights<T>, ModelError> {
        let Linear { weight, bias } = self.stored(tensors)?;
        Ok(ConvWeights { of, weight, bias: Some(bias) })
    }
}

impl<T: Number, K> LoadAlike for KitLoader<'_, T, K> {
    type Part = Buffer<T>;
    type Error = ModelError;

    fn part(&mut self, tensors: &[TensorSpec]) -> Result<Buffer<T>, ModelError> {
        self.loader.packed(tensors)
    }
}
