//! The weights of a model on a GPU, packed as its kernels read them.

use std::sync::Arc;

use laptime_cuda::{Buffer, Cache, CudaError, Device, Element, SliceMut, nn::Operations};
use laptime_probe::stage;

use super::{cache::GpuCache, device_cache::TypedCache, streamed::Homes};
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
    /// Of the layers, those that stay on the device.
    pub parameters: Parameters<T>,
    /// Where the first layers are, if they do not stay.
    pub homes: Option<Arc<Homes>>,
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
        let operations = Operations::load(device, &Cache::of_user())?;
        let _stage = stage!("weights");
        let loader = Loader { device, operations: &operations, weights };
        let homes = keep(&loader)?;
        let streamed = homes.as_ref().map_or(0, Homes::layers);
        let embedding = loader.packed(&[config.embedding_tensor()])?;
        let layers = (streamed..config.layers).map(|layer| loader.layer(&config.layer_tensors(layer)));
        let layers = layers.collect::<Result<_, _>>()?;
        let norm = loader.packed(&[config.final_norm_tensor()])?;
        let own_head = config.head_tensor().map(|head| loader.packed(&[head])).transpose()?;
        device.stream().synchronise()?;
        let parameters = Parameters { embedding, layers, norm, own_head };
        Ok(Self { parameters, homes: homes.map(Arc::new), operations })
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

/// The ends of the names of the tensors that each buffer of a layer packs, in the order of its fields.
const PACKED: [&[&str]; 11] = [
    &["input_layernorm.weight"],
    &["q_proj.weight", "k_proj.weight", "v_proj.weight"],
    &["q_proj.bias", "k_proj.bias", "v_proj.bias"],
    &["q_norm.weight"],
    &["k_norm.weight"],
    &["o_proj.weight"],
    &["post_attention_layernorm.weight"],
    &["gate_proj.weight", "up_proj.weight"],
    &["gate_proj.bias", "up_proj.bias"],
    &["down_proj.weight"],
    &["down_proj.bias"],
];

/// What every buffer begins at a multiple of where a layer lies in one piece: as if it were allocated.
const ALIGNED_BYTES: usize = 256;

/// Those of a layer's tensors that one buffer packs.
fn found(tensors: &[TensorSpec], ends: &[&str]) -> Vec<TensorSpec> {
    let of = |end: &str| tensors.iter().find(|tensor| tensor.name.ends_with(end)).cloned();
    ends.iter().filter_map(|end| of(end)).collect()
}

fn count(tensors: &[TensorSpec]) -> usize {
    tensors.iter().map(TensorSpec::count).sum()
}

/// Bytes of a layer that lies in one piece, in numbers of so many bytes.
pub(super) fn layer_bytes(tensors: &[TensorSpec], number: u64) -> usize {
    let bytes = |ends: &&[&str]| count(&found(tensors, ends)).saturating_mul(number as usize);
    PACKED.iter().map(|ends| bytes(ends).next_multiple_of(ALIGNED_BYTES)).fold(0, usize::saturating_add)
}

impl<T: Number> LayerWeights<T> {
    /// A layer of these tensors, whose buffers are made in the order of the fields.
    fn made<E: From<CudaError>>(
        tensors: &[TensorSpec],
        mut make: impl FnMut(&[TensorSpec]) -> Result<Buffer<T>, E>,
    ) -> Result<Self, E> {
        let [
            attention_norm,
            qkv,
            qkv_bias,
            query_norm,
            key_norm,
            output,
            ffn_norm,
            gate_up,
            gate_up_bias,
            down,
            down_bias,
        ] = PACKED;
        let mut some = |ends: &[&str]| match found(tensors, ends).as_slice() {
            [] => Ok(None),
            tensors => make(tensors).map(Some),
        };
        let lacks = || CudaError::refused("packing a layer", 0, "it lacks a part that every layer has");
        let all = |made: Option<Buffer<T>>| made.ok_or_else(|| E::from(lacks()));
        Ok(Self {
            attention_norm: all(some(attention_norm)?)?,
            qkv: all(some(qkv)?)?,
            qkv_bias: some(qkv_bias)?,
            query_norm: some(query_norm)?,
            key_norm: some(key_norm)?,
            output: all(some(output)?)?,
            ffn_norm: all(some(ffn_norm)?)?,
            gate_up: all(some(gate_up)?)?,
            gate_up_bias: some(gate_up_bias)?,
            down: all(some(down)?)?,
            down_bias: some(down_bias)?,
        })
    }

    /// A layer of such tensors that lies in one buffer, of at least [`layer_bytes`]; what is in it, is in the layer.
    pub fn within(whole: &Arc<Buffer<T>>, tensors: &[TensorSpec]) -> Result<Self, CudaError> {
        let mut begin = 0;
        Self::made(tensors, |tensors| {
            let end = begin + count(tensors);
            let part = Buffer::part(whole, begin..end)?;
            begin = end.next_multiple_of(ALIGNED_BYTES / size_of::<T>());
            Ok(part)
        })
    }

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

    /// The buffers that there are, in the order of the fields.
    fn in_order(&mut self) -> Vec<&mut Buffer<T>> {
        let Self { attention_norm, qkv, qkv_bias, query_norm, key_norm, output, .. } = self;
        let Self { ffn_norm, gate_up, gate_up_bias, down, down_bias, .. } = self;
        let first = [Some(attention_norm), Some(qkv), qkv_bias.as_mut(), query_norm.as_mut(), key_norm.as_mut()];
        let rest = [Some(output), Some(ffn_norm), Some(gate_up), gate_up_bias.as_mut(), Some(down), down_bias.as_mut()];
        first.into_iter().chain(rest).flatten().collect()
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
        (0..config.layers).map(|layer| self.layer(&config.layer_tensors(layer))).collect()
    }

    /// The layer of these tensors.
    pub fn layer(&self, tensors: &[TensorSpec]) -> Result<LayerWeights<T>, ModelError> {
        LayerWeights::made(tensors, |tensors| self.packed(tensors))
    }

    /// Fills a layer with what these tensors hold.
    pub fn fill_layer(&self, tensors: &[TensorSpec], layer: &mut LayerWeights<T>) -> Result<(), ModelError> {
        let filled = PACKED.iter().map(|ends| found(tensors, ends)).filter(|tensors| !tensors.is_empty());
        for (tensors, buffer) in filled.zip(layer.in_order()) {
            self.fill_all(&tensors, buffer)?;
        }
        Ok(())
    }

    /// Tensors one behind the other in one buffer.
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
