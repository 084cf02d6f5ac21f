//! The weights of a model on a GPU, packed as its kernels read them.

use laptime_cuda::{Buffer, Cache, Device, Element, SliceMut, nn::Operations};

use crate::{Config, Dtype, Fill, ModelError, TensorData, TensorSpec, Weights};

/// A number type of weights on a GPU.
pub trait Number: Element {
    /// Its name.
    const DTYPE: Dtype;
}

impl Number for f32 {
    const DTYPE: Dtype = Dtype::F32;
}
impl Number for half::bf16 {
    const DTYPE: Dtype = Dtype::Bf16;
}
impl Number for half::f16 {
    const DTYPE: Dtype = Dtype::F16;
}

/// The weights of a model on a GPU.
#[derive(Debug)]
pub struct GpuWeights<T> {
    pub embedding: Buffer<T>,
    pub layers: Vec<LayerWeights<T>>,
    pub norm: Buffer<T>,
    /// None where it is the embedding.
    head: Option<Buffer<T>>,
    /// Made when the weights were, and used by every decoder over them.
    pub operations: Operations<T>,
}

/// The weights of a layer.
#[derive(Debug)]
pub struct LayerWeights<T> {
    pub attention_norm: Buffer<T>,
    /// Queries, then keys, then values.
    pub qkv: Buffer<T>,
    pub qkv_bias: Option<Buffer<T>>,
    pub query_norm: Option<Buffer<T>>,
    pub key_norm: Option<Buffer<T>>,
    pub output: Buffer<T>,
    pub ffn_norm: Buffer<T>,
    /// Gates, then what they let through.
    pub gate_up: Buffer<T>,
    pub gate_up_bias: Option<Buffer<T>>,
    pub down: Buffer<T>,
    pub down_bias: Option<Buffer<T>>,
}

impl<T: Number> GpuWeights<T> {
    /// Puts all weights on a device.
    pub fn load(device: &Device, config: &Config, weights: &Weights) -> Result<Self, ModelError> {
        let operations = Operations::load(device, &Cache::of_user())?;
        let loader = Loader { device, operations: &operations, weights };
        let embedding = loader.packed(&[config.embedding_tensor()])?;
        let layers = (0..config.layers).map(|layer| loader.layer(config.layer_tensors(layer)));
        let layers = layers.collect::<Result<_, ModelError>>()?;
        let norm = loader.packed(&[config.final_norm_tensor()])?;
        let head = config.head_tensor().map(|head| loader.packed(&[head])).transpose()?;
        device.stream().synchronise()?;
        Ok(Self { embedding, layers, norm, head, operations })
    }

    /// What makes logits.
    pub fn head(&self) -> &Buffer<T> {
        self.head.as_ref().unwrap_or(&self.embedding)
    }
}

struct Loader<'a, T> {
    device: &'a Device,
    operations: &'a Operations<T>,
    weights: &'a Weights,
}

impl<T: Number> Loader<'_, T> {
    fn layer(&self, tensors: Vec<TensorSpec>) -> Result<LayerWeights<T>, ModelError> {
        let found = |parts: &[&str]| -> Vec<TensorSpec> {
            let of = |part: &str| tensors.iter().find(|tensor| tensor.name.ends_with(part)).cloned();
            parts.iter().filter_map(|part| of(part)).collect()
        };
        let all = |parts: &[&str]| self.packed(&found(parts));
        let some = |parts: &[&str]| match found(parts).as_slice() {
            [] => Ok(None),
            tensors => self.packed(tensors).map(Some),
        };
        Ok(LayerWeights {
            attention_norm: all(&["input_layernorm.weight"])?,
            qkv: all(&["q_proj.weight", "k_proj.weight", "v_proj.weight"])?,
            qkv_bias: some(&["q_proj.bias", "k_proj.bias", "v_proj.bias"])?,
            query_norm: some(&["q_norm.weight"])?,
            key_norm: some(&["k_norm.weight"])?,
            output: all(&["o_proj.weight"])?,
            ffn_norm: all(&["post_attention_layernorm.weight"])?,
            gate_up: all(&["gate_proj.weight", "up_proj.weight"])?,
            gate_up_bias: some(&["gate_proj.bias", "up_proj.bias"])?,
            down: all(&["down_proj.weight"])?,
            down_bias: some(&["down_proj.bias"])?,
        })
    }

    /// Tensors one behind the other in one buffer.
    fn packed(&self, tensors: &[TensorSpec]) -> Result<Buffer<T>, ModelError> {
        let mut buffer = self.device.allocate(tensors.iter().map(TensorSpec::count).sum())?;
        let mut begin = 0;
        for tensor in tensors {
            let end = begin + tensor.count();
            self.fill(tensor, buffer.slice_mut(begin..end)?)?;
            begin = end;
        }
        Ok(buffer)
    }

    fn fill(&self, tensor: &TensorSpec, mut place: SliceMut<'_, T>) -> Result<(), ModelError> {
        let (device, operations) = (self.device, self.operations);
        match self.weights.tensor(tensor)? {
            TensorData::Filled { fill: Fill::Constant(value), .. } => operations.fill(device.stream(), place, value)?,
            TensorData::Filled { fill: Fill::Random { key, amplitude }, .. } => {
                operations.fill_random(device.stream(), place, key, amplitude)?;
            }
            stored @ TensorData::Stored { .. } => {
                let numbers = stored.to_bytes(T::DTYPE);
                place.write(&bytemuck::pod_collect_to_vec::<u8, T>(&numbers))?;
            }
        }
        Ok(())
    }
}
