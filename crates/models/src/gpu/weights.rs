//! The weights of a model on a GPU, packed as its kernels read them.

use std::{fmt::Debug, marker::PhantomData, sync::Arc};

use laptime_cuda::nn::{Attention, Operations};
use laptime_cuda::{Buffer, Cache, CudaError, Device, Element, SliceMut, nvrtc::compile_ahead};
use laptime_probe::stage;

use super::{size, streamed::Homes};
use crate::decoder::{
    self,
    weights::{LoadAlike, Part, packed_tensors},
};
use crate::{Config, Dtype, Fill, ModelError, Role, TensorData, TensorSpec, Weights, weights::TensorSource};

pub trait Number: Element + Debug + Send + Sync {
    const DTYPE: Dtype;
}

macro_rules! numbers {
    ($($type:ty: $dtype:ident),*) => { $(impl Number for $type { const DTYPE: Dtype = Dtype::$dtype; })* };
}

numbers! { f32: F32, half::bf16: Bf16, half::f16: F16 }

#[derive(Debug)]
pub struct GpuWeights<T> {
    pub parameters: Parameters<T>,
    pub homes: Option<Arc<Homes>>,
    /// Made when the weights were, and used by all that runs on them.
    pub operations: Operations<T>,
}

pub type LayerWeights<T> = decoder::weights::LayerWeights<Buffer<T>>;

pub type Parameters<T> = decoder::weights::Parameters<Buffer<T>>;

impl<B> Part<B, B> {
    pub fn into_inner(self) -> B {
        let (Self::Matrix(part) | Self::Vector(part)) = self;
        part
    }
}

impl<T: Number> GpuWeights<T> {
    pub fn load(device: &Device, config: &Config, weights: &Weights) -> Result<Self, ModelError> {
        Self::load_with(device, config, weights, |_| Ok(None))
    }

    /// Puts all weights on a device but those of the first layers, which `keep` puts where they stay.
    ///
    /// These are first, so that the room in which they are made is free again when the others come.
    pub fn load_with(
        device: &Device,
        config: &Config,
        weights: &Weights,
        keep: impl FnOnce(&Loader<'_, T>) -> Result<Option<Homes>, ModelError>,
    ) -> Result<Self, ModelError> {
        let cache = Cache::of_user();
        let attention = Attention::<T>::requests(device, size(config.head_dim)?);
        compile_ahead(device, &cache, Operations::<T>::requests().chain(attention));
        let operations = Operations::load(device, &cache)?;
        let _stage = stage!("weights");
        let mut loader = Loader { device, operations: &operations, weights };
        let homes = keep(&loader)?;
        let streamed = homes.as_ref().map_or(0, Homes::layers);
        let parameters = Parameters::load(config, streamed, &mut loader)?;
        device.stream().synchronise()?;
        Ok(Self { parameters, homes: homes.map(Arc::new), operations })
    }
}

/// The alignment of the parts of a layer that lies in one buffer: that of a separate allocation.
const ALIGNED_BYTES: usize = 256;

fn count(tensors: &[TensorSpec]) -> usize {
    tensors.iter().map(TensorSpec::count).sum()
}

pub(super) fn layer_bytes(tensors: &[TensorSpec], number: u64) -> usize {
    let bytes = |tensors: &Vec<TensorSpec>| count(tensors).saturating_mul(number as usize);
    let parts = packed_tensors(tensors);
    parts.iter().map(|part| bytes(part).next_multiple_of(ALIGNED_BYTES)).fold(0, usize::saturating_add)
}

/// Places the parts of a layer one behind the other in one buffer, whose contents are those of the layer.
struct Within<'a, T> {
    whole: &'a Arc<Buffer<T>>,
    begin: usize,
}

/// The layer of such tensors that lies in one buffer of at least [`layer_bytes`].
pub fn layer_within<T: Number>(whole: &Arc<Buffer<T>>, tensors: &[TensorSpec]) -> Result<LayerWeights<T>, CudaError> {
    LayerWeights::load(tensors, &mut Within { whole, begin: 0 })
}

impl<T: Number> LoadAlike for Within<'_, T> {
    type Part = Buffer<T>;
    type Error = CudaError;

    fn part(&mut self, tensors: &[TensorSpec]) -> Result<Buffer<T>, CudaError> {
        let end = self.begin + count(tensors);
        let part = Buffer::part(self.whole, self.begin..end)?;
        self.begin = end.next_multiple_of(ALIGNED_BYTES / size_of::<T>());
        Ok(part)
    }
}

pub struct Zeros<'a, T> {
    pub device: &'a Device,
    pub of: PhantomData<T>,
}

impl<T: Number> LoadAlike for Zeros<'_, T> {
    type Part = Buffer<T>;
    type Error = CudaError;

    fn part(&mut self, tensors: &[TensorSpec]) -> Result<Buffer<T>, CudaError> {
        let mut zeros = self.device.allocate(count(tensors))?;
        zeros.zero()?;
        Ok(zeros)
    }
}

pub struct Loader<'a, T> {
    pub device: &'a Device,
    pub operations: &'a Operations<T>,
    pub weights: &'a dyn TensorSource,
}

impl<T: Number> LoadAlike for Loader<'_, T> {
    type Part = Buffer<T>;
    type Error = ModelError;

    fn part(&mut self, tensors: &[TensorSpec]) -> Result<Buffer<T>, ModelError> {
        self.packed(tensors)
    }
}

impl<T: Number> Loader<'_, T> {
    pub fn fill_layer(&self, tensors: &[TensorSpec], layer: &mut LayerWeights<T>) -> Result<(), ModelError> {
        for (tensors, part) in packed_tensors(tensors).iter().zip(layer.parts_mut()) {
            if let Some(part) = part {
                self.fill_all(tensors, part.into_inner())?;
            }
        }
        Ok(())
    }

    pub fn packed(&self, tensors: &[TensorSpec]) -> Result<Buffer<T>, ModelError> {
        let mut buffer = self.device.allocate(count(tensors))?;
        self.fill_all(tensors, &mut buffer)?;
        Ok(buffer)
    }

    fn fill_all(&self, tensors: &[TensorSpec], buffer: &mut Buffer<T>) -> Result<(), ModelError> {
        let mut begin = 0;
        for tensor in tensors {
            let end = begin + tensor.count();
            self.fill(tensor, buffer.slice_mut(begin..end)?)?;
            begin = end;
        }
        Ok(())
    }

    fn fill(&self, tensor: &TensorSpec, mut place: SliceMut<'_, T>) -> Result<(), ModelError> {
        let (device, operations) = (self.device, self.operations);
        let add = if tensor.role == Role::ZeroCentredNorm { 1.0 } else { 0.0 };
        match self.weights.tensor(tensor)? {
            TensorData::Filled { fill: Fill::Constant(value), .. } => {
                operations.fill(device.stream(), place, value + add)?;
            }
            TensorData::Filled { fill: Fill::Random { key, amplitude }, .. } => {
                operations.fill_random(device.stream(), place, key, amplitude)?;
            }
            stored @ TensorData::Stored { .. } if tensor.role == Role::ZeroCentredNorm => {
                let numbers = stored.to_f32().into_iter().map(|number| T::narrowed(number + add));
                place.write(&numbers.collect::<Vec<_>>())?;
            }
            stored @ TensorData::Stored { .. } => {
                let numbers = stored.to_bytes(T::DTYPE);
                place.write(&bytemuck::pod_collect_to_vec::<u8, T>(&numbers))?;
            }
        }
        Ok(())
    }
}
