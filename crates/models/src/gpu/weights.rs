//! The weights of a model on a GPU, packed as its kernels read them.

use std::{fmt::Debug, sync::Arc};

use laptime_cuda::nn::{Attention, Fp8, Fp8Scales, Operations};
use laptime_cuda::{Buffer, Cache, CudaError, Device, Element, Slice, SliceMut, Stream, nvrtc::compile_ahead};
use laptime_probe::stage;

use super::{size, streamed::HostLayers};
use crate::decoder;
use crate::decoder::weights::{LoadAlike, Part, packed_tensors};
use crate::fp8::{Layout, WeightScales, pack};
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
    pub host_layers: Option<Arc<HostLayers>>,
    /// What matrices of layers are multiplied with if they are in e4m3.
    pub fp8: Option<Fp8Weights<T>>,
    /// Made when the weights were, and used by all that runs on them.
    pub operations: Operations<T>,
}

/// What matrices in e4m3 are made and multiplied with. They lie in buffers of numbers.
#[derive(Debug)]
pub struct Fp8Weights<T> {
    kernels: Fp8<T>,
    stored: WeightScales,
}

impl From<WeightScales> for Fp8Scales {
    fn from(scales: WeightScales) -> Self {
        match scales {
            WeightScales::Rows => Self::Rows,
            WeightScales::Blocks => Self::Blocks,
        }
    }
}

impl<T: Number> Fp8Weights<T> {
    fn load(device: &Device, config: &Config) -> Result<Self, CudaError> {
        Ok(Self { kernels: Fp8::load(device, &Cache::of_user())?, stored: config.weight_scales })
    }

    pub fn scales(&self) -> Fp8Scales {
        self.stored.into()
    }

    /// Writes the numbers of a matrix to the beginning of a buffer.
    pub fn dequantise<'a>(
        &self,
        stream: &Stream,
        weight: &Buffer<T>,
        out: &'a mut Buffer<T>,
        [rows, width]: [u32; 2],
    ) -> Result<Slice<'a, T>, CudaError> {
        self.kernels.dequantise(stream, weight, &mut *out, [rows, width], self.scales())?;
        out.slice(0..rows as usize * width as usize)
    }
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
        Self::load_with((device, config, weights), T::DTYPE, |_| Ok(None))
    }

    /// Puts all weights on a device but those of the first layers, which `keep` puts where they stay.
    ///
    /// These are first, so that the memory in which they are made is free again when the others come.
    pub fn load_with(
        (device, config, weights): (&Device, &Config, &Weights),
        dtype: Dtype,
        keep: impl FnOnce(&Loader<'_, T>) -> Result<Option<HostLayers>, ModelError>,
    ) -> Result<Self, ModelError> {
        let cache = Cache::of_user();
        let attention = Attention::<T>::requests(device, size(config.head_dim)?, None);
        let fp8 = Fp8::<T>::requests().filter(|_| dtype == Dtype::Fp8);
        compile_ahead(device, &cache, Operations::<T>::requests().chain(attention).chain(fp8));
        let operations = Operations::load(device, &cache)?;
        let fp8 = (dtype == Dtype::Fp8).then(|| Fp8Weights::load(device, config)).transpose()?;
        let _stage = stage!("weights");
        let mut loader = Loader { device, operations: &operations, weights, fp8: fp8.as_ref() };
        let host_layers = keep(&loader)?;
        let streamed = host_layers.as_ref().map_or(0, |host_layers| host_layers.layers);
        let parameters = Parameters::load(config, streamed, &mut loader)?;
        device.stream().synchronise()?;
        Ok(Self { parameters, host_layers: host_layers.map(Arc::new), fp8, operations })
    }
}

/// The alignment of the parts of a layer that lies in one buffer: that of a separate allocation.
const ALIGNED_BYTES: usize = 256;

fn count(tensors: &[TensorSpec]) -> usize {
    tensors.iter().map(TensorSpec::count).sum()
}

/// Bytes of a part of a layer.
fn part_bytes(tensors: &[TensorSpec], number: usize, fp8: Option<WeightScales>) -> usize {
    let is_quantised = tensors.first().is_some_and(|tensor| tensor.role == Role::Linear);
    match fp8.filter(|_| is_quantised) {
        Some(scales) => Layout::of(tensors, scales).bytes(),
        None => count(tensors).saturating_mul(number),
    }
}

pub(super) fn layer_bytes(tensors: &[TensorSpec], number: u64, fp8: Option<WeightScales>) -> usize {
    let bytes = |tensors: &Vec<TensorSpec>| part_bytes(tensors, number as usize, fp8);
    let parts = packed_tensors(tensors);
    parts.iter().map(|part| bytes(part).next_multiple_of(ALIGNED_BYTES)).fold(0, usize::saturating_add)
}

/// The layer of such tensors that lies in one buffer of at least [`layer_bytes`], part behind part.
pub fn layer_within<T: Number>(
    whole: &Arc<Buffer<T>>,
    tensors: &[TensorSpec],
    fp8: Option<WeightScales>,
) -> Result<LayerWeights<T>, CudaError> {
    let mut begin = 0;
    LayerWeights::load(tensors, &mut |tensors: &[TensorSpec]| {
        let end = begin + part_bytes(tensors, size_of::<T>(), fp8) / size_of::<T>();
        let part = Buffer::part(whole, begin..end);
        begin = end.next_multiple_of(ALIGNED_BYTES / size_of::<T>());
        part
    })
}

pub fn zeros<T: Number>(device: &Device, config: &Config) -> Result<Parameters<T>, CudaError> {
    Parameters::load(config, 0, &mut |tensors: &[TensorSpec]| {
        let mut zeros = device.allocate(count(tensors))?;
        zeros.zero()?;
        Ok::<_, CudaError>(zeros)
    })
}

pub struct Loader<'a, T> {
    pub device: &'a Device,
    pub operations: &'a Operations<T>,
    pub weights: &'a dyn TensorSource,
    /// What makes matrices of layers if these are in e4m3.
    pub fp8: Option<&'a Fp8Weights<T>>,
}

impl<T: Number> LoadAlike for Loader<'_, T> {
    type Part = Buffer<T>;
    type Error = ModelError;

    fn part(&mut self, tensors: &[TensorSpec]) -> Result<Buffer<T>, ModelError> {
        let Some(fp8) = self.fp8_of(tensors) else { return self.packed(tensors) };
        let mut buffer = self.device.allocate(fp8.scales().elements::<T>(shape(tensors)?) as usize)?;
        self.quantise(fp8, tensors, &mut buffer)?;
        Ok(buffer)
    }
}

/// Rows and width of matrices of one width, row after row.
fn shape(tensors: &[TensorSpec]) -> Result<[u32; 2], CudaError> {
    let Layout { rows, width, .. } = Layout::of(tensors, WeightScales::Rows);
    Ok([size(rows)?, size(width)?])
}

impl<T: Number> Loader<'_, T> {
    fn fp8_of(&self, tensors: &[TensorSpec]) -> Option<&Fp8Weights<T>> {
        self.fp8.filter(|_| tensors.first().is_some_and(|tensor| tensor.role == Role::Linear))
    }

    fn fill_part(&self, tensors: &[TensorSpec], buffer: &mut Buffer<T>) -> Result<(), ModelError> {
        match self.fp8_of(tensors) {
            Some(fp8) => self.quantise(fp8, tensors, buffer),
            None => self.fill_all(tensors, buffer),
        }
    }

    /// Codes of a checkpoint are taken as they are. Others are made on the device.
    fn quantise(&self, fp8: &Fp8Weights<T>, tensors: &[TensorSpec], to: &mut Buffer<T>) -> Result<(), ModelError> {
        for tensor in tensors {
            if let TensorData::Quantised(_) = self.weights.tensor(tensor)? {
                let mut storage = vec![T::narrowed(0.0); to.length()];
                pack(self.weights, tensors, fp8.stored, bytemuck::cast_slice_mut(&mut storage))?;
                return Ok(to.write(&storage)?);
            }
        }
        let numbers = self.packed(tensors)?;
        Ok(fp8.kernels.quantise(self.device.stream(), &numbers, to, shape(tensors)?, fp8.scales())?)
    }

    pub fn fill_layer(&self, tensors: &[TensorSpec], layer: &mut LayerWeights<T>) -> Result<(), ModelError> {
        for (tensors, part) in packed_tensors(tensors).iter().zip(layer.parts_mut()) {
            if let Some(part) = part {
                self.fill_part(tensors, part.into_inner())?;
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
            stored @ (TensorData::Stored { .. } | TensorData::Quantised(_)) if tensor.role == Role::ZeroCentredNorm => {
                let numbers = stored.to_f32().into_iter().map(|number| T::narrowed(number + add));
                place.write(&numbers.collect::<Vec<_>>())?;
            }
            stored @ (TensorData::Stored { .. } | TensorData::Quantised(_)) => {
                let numbers = stored.to_bytes(T::DTYPE);
                place.write(&bytemuck::pod_collect_to_vec::<u8, T>(&numbers))?;
            }
        }
        Ok(())
    }
}
