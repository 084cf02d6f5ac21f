//! The weights of a model on a GPU, packed as its kernels read them.

use laptime_cuda::{Buffer, Cache, CudaError, Device, Element, SliceMut, nn::Operations};
use laptime_probe::stage;

use super::{cache::GpuCache, device_cache::TypedCache};
use crate::{Config, Dtype, Fill, ModelError, TensorData, TensorSpec, Weights, weights::TensorSource};

/// A number type of weights on a GPU.
pub trait Number: Element {
    /// Its name.
    const DTYPE: Dtype;

    /// A cache of this type as one of any.
    fn typed(cache: &mut GpuCache<Self>) -> TypedCache<'_>;
    /// The cache, if it is of this type.
    fn known(cache: TypedCache<'_>) -> Option<&mut GpuCache<Self>>;
}

/// A number type, and which of [`Dtype`] and [`TypedCache`] it is.
macro_rules! number {
    ($number:ty, $name:ident) => {
        impl Number for $number {
            const DTYPE: Dtype = Dtype::$name;

            fn typed(cache: &mut GpuCache<Self>) -> TypedCache<'_> {
                TypedCache::$name(cache)
            }
            fn known(cache: TypedCache<'_>) -> Option<&mut GpuCache<Self>> {
                if let TypedCache::$name(cache) = cache { Some(cache) } else { None }
            }
        }
    };
}

number!(f32, F32);
number!(half::bf16, Bf16);
number!(half::f16, F16);

/// The weights of a model on a GPU.
#[derive(Debug)]
pub struct GpuWeights<T> {
    pub parameters: Parameters<T>,
    /// Made when the weights were, and used by all that runs on them.
    pub operations: Operations<T>,
}

/// A buffer for each parameter, packed as kernels read them: weights, or their gradients or moments.
#[derive(Debug)]
pub struct Parameters<T> {
    pub embedding: Buffer<T>,
    pub layers: Vec<LayerWeights<T>>,
    pub norm: Buffer<T>,
    /// None where it is the embedding.
    pub own_head: Option<Buffer<T>>,
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
        let _stage = stage!("weights");
        let loader = Loader { device, operations: &operations, weights };
        let embedding = loader.packed(&[config.embedding_tensor()])?;
        let layers = loader.layers(config)?;
        let norm = loader.packed(&[config.final_norm_tensor()])?;
        let own_head = config.head_tensor().map(|head| loader.packed(&[head])).transpose()?;
        device.stream().synchronise()?;
        Ok(Self { parameters: Parameters { embedding, layers, norm, own_head }, operations })
    }
}

impl<T: Number> Parameters<T> {
    /// What makes logits.
    pub fn head(&self) -> &Buffer<T> {
        self.own_head.as_ref().unwrap_or(&self.embedding)
    }

    /// As many buffers of the same sizes, of zeros.
    pub fn zeros(&self, device: &Device) -> Result<Self, CudaError> {
        let like = |buffer: &Buffer<T>| -> Result<Buffer<T>, CudaError> {
            let mut zeros = device.allocate(buffer.length())?;
            zeros.zero()?;
            Ok(zeros)
        };
        Ok(Self {
            embedding: like(&self.embedding)?,
            layers: self.layers.iter().map(|layer| layer.map(like)).collect::<Result<_, CudaError>>()?,
            norm: like(&self.norm)?,
            own_head: self.own_head.as_ref().map(like).transpose()?,
        })
    }

    /// All buffers, in one order for every set of one model.
    pub fn buffers(&self) -> Vec<&Buffer<T>> {
        let mut buffers = vec![&self.embedding];
        buffers.extend(self.layers.iter().flat_map(LayerWeights::buffers));
        buffers.push(&self.norm);
        buffers.extend(&self.own_head);
        buffers
    }

    /// The same, to be written.
    pub fn buffers_mut(&mut self) -> Vec<&mut Buffer<T>> {
        let mut buffers = vec![&mut self.embedding];
        buffers.extend(self.layers.iter_mut().flat_map(LayerWeights::buffers_mut));
        buffers.push(&mut self.norm);
        buffers.extend(&mut self.own_head);
        buffers
    }

    /// The numbers of a tensor of the checkpoint. Waits for the device.
    pub fn read(&self, config: &Config, tensor: &TensorSpec) -> Result<Vec<f32>, ModelError> {
        let unknown = || ModelError::Refused(format!("`{}` has no tensor `{}`", config.name, tensor.name));
        let (buffer, begin) = self.place(config, tensor).ok_or_else(unknown)?;
        let numbers = buffer.slice(begin..begin + tensor.count())?.read()?;
        Ok(numbers.into_iter().map(T::widened).collect())
    }

    /// The buffer that a tensor is in, and where it begins there.
    fn place(&self, config: &Config, tensor: &TensorSpec) -> Option<(&Buffer<T>, usize)> {
        let (q, kv) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        let Some((layer, part)) = tensor.name.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'))
        else {
            return match tensor.name.as_str() {
                "model.embed_tokens.weight" => Some((&self.embedding, 0)),
                "model.norm.weight" => Some((&self.norm, 0)),
                "lm_head.weight" => self.own_head.as_ref().map(|head| (head, 0)),
                _ => None,
            };
        };
        let layer = self.layers.get(layer.parse::<usize>().ok()?)?;
        let at = |buffer, begin| Some((buffer, begin));
        match part {
            "input_layernorm.weight" => at(&layer.attention_norm, 0),
            "self_attn.q_proj.weight" => at(&layer.qkv, 0),
            "self_attn.k_proj.weight" => at(&layer.qkv, q * config.hidden),
            "self_attn.v_proj.weight" => at(&layer.qkv, (q + kv) * config.hidden),
            "self_attn.q_proj.bias" => at(layer.qkv_bias.as_ref()?, 0),
            "self_attn.k_proj.bias" => at(layer.qkv_bias.as_ref()?, q),
            "self_attn.v_proj.bias" => at(layer.qkv_bias.as_ref()?, q + kv),
            "self_attn.q_norm.weight" => at(layer.query_norm.as_ref()?, 0),
            "self_attn.k_norm.weight" => at(layer.key_norm.as_ref()?, 0),
            "self_attn.o_proj.weight" => at(&layer.output, 0),
            "post_attention_layernorm.weight" => at(&layer.ffn_norm, 0),
            "mlp.gate_proj.weight" => at(&layer.gate_up, 0),
            "mlp.up_proj.weight" => at(&layer.gate_up, config.ffn * config.hidden),
            "mlp.gate_proj.bias" => at(layer.gate_up_bias.as_ref()?, 0),
            "mlp.up_proj.bias" => at(layer.gate_up_bias.as_ref()?, config.ffn),
            "mlp.down_proj.weight" => at(&layer.down, 0),
            "mlp.down_proj.bias" => at(layer.down_bias.as_ref()?, 0),
            _ => None,
        }
    }
}

impl<T: Number> LayerWeights<T> {
    fn map(&self, like: impl Fn(&Buffer<T>) -> Result<Buffer<T>, CudaError>) -> Result<Self, CudaError> {
        let some = |buffer: &Option<Buffer<T>>| buffer.as_ref().map(&like).transpose();
        Ok(Self {
            attention_norm: like(&self.attention_norm)?,
            qkv: like(&self.qkv)?,
            qkv_bias: some(&self.qkv_bias)?,
            query_norm: some(&self.query_norm)?,
            key_norm: some(&self.key_norm)?,
            output: like(&self.output)?,
            ffn_norm: like(&self.ffn_norm)?,
            gate_up: like(&self.gate_up)?,
            gate_up_bias: some(&self.gate_up_bias)?,
            down: like(&self.down)?,
            down_bias: some(&self.down_bias)?,
        })
    }

    fn buffers(&self) -> Vec<&Buffer<T>> {
        let always = [&self.attention_norm, &self.qkv, &self.output, &self.ffn_norm, &self.gate_up, &self.down];
        let sometimes = [&self.qkv_bias, &self.query_norm, &self.key_norm, &self.gate_up_bias, &self.down_bias];
        always.into_iter().chain(sometimes.into_iter().flatten()).collect()
    }

    fn buffers_mut(&mut self) -> Vec<&mut Buffer<T>> {
        let Self { attention_norm, qkv, qkv_bias, query_norm, key_norm, output, .. } = self;
        let Self { ffn_norm, gate_up, gate_up_bias, down, down_bias, .. } = self;
        let always = [attention_norm, qkv, output, ffn_norm, gate_up, down];
        let sometimes = [qkv_bias, query_norm, key_norm, gate_up_bias, down_bias];
        always.into_iter().chain(sometimes.into_iter().flatten()).collect()
    }
}

/// Puts tensors on a device.
pub struct Loader<'a, T> {
    pub device: &'a Device,
    pub operations: &'a Operations<T>,
    pub weights: &'a dyn TensorSource,
}

impl<T: Number> Loader<'_, T> {
    /// The layers of a decoder.
    pub fn layers(&self, config: &Config) -> Result<Vec<LayerWeights<T>>, ModelError> {
        (0..config.layers).map(|layer| self.layer(config.layer_tensors(layer))).collect()
    }

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
    pub fn packed(&self, tensors: &[TensorSpec]) -> Result<Buffer<T>, ModelError> {
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
