//! The weights of a speech model on a GPU.

use std::sync::Arc;

use laptime_cuda::{
    Buffer, Cache, Device, Region,
    nn::{AudioRows, Convolutions, Operations, StreamRows},
};
use laptime_probe::stage;

use super::{
    super::{
        streamed::Homes,
        weights::{LayerWeights, Loader, Number},
    },
    tokenizer_weights::TokenizerWeights,
};
use crate::{
    LinearTensors, ModelError, Offload, TensorSpec,
    decoder::weights::load_layers,
    vibevoice::{
        ConnectorTensors, HeadLayerTensors, TokenizerConfig, TokenizerTensors, VibeVoiceConfig, VibeVoiceWeights, Way,
    },
};

/// The weights of a speech model on a GPU, and the kernels of all that runs on them.
pub struct SpeechGpuWeights<T> {
    pub kernels: Kernels<T>,
    pub embedding: Buffer<T>,
    /// The rows of the language model's head that belong to tokens which may be chosen.
    pub choices: Buffer<T>,
    /// The layers that stay on the device.
    pub layers: Vec<LayerWeights<T>>,
    /// Where the offloaded layers are.
    pub homes: Option<Arc<Homes>>,
    pub norm: Buffer<T>,
    pub head: HeadWeights<T>,
    pub encoder: TokenizerWeights<T>,
    pub decoder: TokenizerWeights<T>,
    pub semantic: TokenizerWeights<T>,
    /// What brings acoustic latents, and semantic ones, to the width of the language model.
    pub connectors: [ConnectorWeights<T>; 2],
    /// What latents are divided by, and what is then taken from them.
    pub factors: [f32; 2],
}

/// The kernels of numbers of one type.
pub struct Kernels<T> {
    pub operations: Operations<T>,
    pub rows: AudioRows<T>,
    pub streams: StreamRows<T>,
    pub convolutions: Convolutions<T>,
}

/// The diffusion head.
pub struct HeadWeights<T> {
    pub enter: Buffer<T>,
    pub condition: Buffer<T>,
    pub time: [Buffer<T>; 2],
    pub layers: Vec<HeadLayerWeights<T>>,
    pub last_adapt: Buffer<T>,
    pub leave: Buffer<T>,
}

/// A layer of the diffusion head.
pub struct HeadLayerWeights<T> {
    pub norm: Buffer<T>,
    pub adapt: Buffer<T>,
    pub gate_up: Buffer<T>,
    pub down: Buffer<T>,
}

/// What brings latents to the width of the language model.
pub struct ConnectorWeights<T> {
    pub enter: LinearWeights<T>,
    pub norm: Buffer<T>,
    pub leave: LinearWeights<T>,
}

/// A matrix, `[outputs, inputs]`, and what is added.
pub struct LinearWeights<T> {
    pub weight: Buffer<T>,
    pub bias: Buffer<T>,
}

impl<T: Number> Kernels<T> {
    fn load(device: &Device) -> Result<Self, ModelError> {
        let cache = Cache::of_user();
        Ok(Self {
            operations: Operations::load(device, &cache)?,
            rows: AudioRows::load(device, &cache)?,
            streams: StreamRows::load(device, &cache)?,
            convolutions: Convolutions::load(device, &cache)?,
        })
    }
}

impl<T: Number> SpeechGpuWeights<T> {
    /// Loads all weights on a device, except those of offloaded layers. Synthetic weights are generated there.
    pub fn load(
        device: &Device,
        config: &VibeVoiceConfig,
        weights: &VibeVoiceWeights,
        offload: Option<&Offload>,
    ) -> Result<Self, ModelError> {
        let kernels = Kernels::load(device)?;
        let _stage = stage!("weights");
        let language_model = weights.decoder();
        let mut own = Loader { device, operations: &kernels.operations, weights: &language_model };
        let homes = offload.map(|offload| Homes::of(&own, &config.decoder, offload, &Region::pinned)).transpose()?;
        let homes = homes.flatten().map(Arc::new);
        let first = homes.as_ref().map_or(0, |homes| homes.layers());
        // The head lies there for a moment as a whole, as a layer before it, so both come before all others.
        let own_choices = config.decoder.head_tensor().map(|head| choices(&own, config, &own.packed(&[head])?));
        let own_choices = own_choices.transpose()?;
        let embedding = own.packed(&[config.decoder.embedding_tensor()])?;
        let choices = own_choices.map_or_else(|| choices(&own, config, &embedding), Ok)?;
        let layers = load_layers(&config.decoder, first, &mut own)?;
        let norm = own.packed(&[config.decoder.final_norm_tensor()])?;
        let load = Load { loader: Loader { device, operations: &kernels.operations, weights }, kernels: &kernels };
        let head = load.head(config)?;
        let encoder = |tensors: &TokenizerTensors, part: &TokenizerConfig| {
            TokenizerWeights::load(&load, tensors, part, Way::Encoder)
        };
        let semantic = encoder(&config.semantic_encoder_tensors(), &config.semantic)?;
        let (way, tensors) = (Way::Decoder, config.acoustic_decoder_tensors());
        let decoder = TokenizerWeights::load(&load, &tensors, &config.acoustic, way)?;
        let encoder = encoder(&config.acoustic_encoder_tensors(), &config.acoustic)?;
        let [acoustic, heard] = config.connector_tensors();
        let connectors = [load.connector(&acoustic)?, load.connector(&heard)?];
        let factor = |spec: &TensorSpec| -> Result<f32, ModelError> {
            let number = weights.tensor(spec)?.to_f32().first().copied().unwrap_or_default();
            Ok(T::narrowed(number).widened())
        };
        let [scale, bias] = config.factor_tensors();
        let factors = [factor(&scale)?, factor(&bias)?];
        device.stream().synchronise()?;
        Ok(Self {
            embedding,
            choices,
            layers,
            homes,
            norm,
            head,
            encoder,
            decoder,
            semantic,
            connectors,
            factors,
            kernels,
        })
    }
}

/// The rows of a head that belong to tokens which may be chosen.
fn choices<T: Number>(
    loader: &Loader<'_, T>,
    config: &VibeVoiceConfig,
    head: &Buffer<T>,
) -> Result<Buffer<T>, ModelError> {
    let (ids, hidden) = (config.ids.all(), config.decoder.hidden);
    let mut rows = loader.device.allocate(ids.len() * hidden)?;
    for (at, id) in ids.into_iter().enumerate() {
        let from = head.slice(id as usize * hidden..(id as usize + 1) * hidden)?;
        rows.slice_mut(at * hidden..(at + 1) * hidden)?.copy_from(loader.device.stream(), from)?;
    }
    Ok(rows)
}

/// Puts the tensors of a speech model on a device.
pub struct Load<'a, T> {
    pub loader: Loader<'a, T>,
    pub kernels: &'a Kernels<T>,
}

impl<T: Number> Load<'_, T> {
    /// One tensor.
    pub fn one(&self, tensor: &TensorSpec) -> Result<Buffer<T>, ModelError> {
        self.loader.packed(std::slice::from_ref(tensor))
    }

    /// A matrix and what is added.
    pub fn linear(&self, tensors: &LinearTensors) -> Result<LinearWeights<T>, ModelError> {
        Ok(LinearWeights { weight: self.one(&tensors.weight)?, bias: self.one(&tensors.bias)? })
    }

    fn connector(&self, tensors: &ConnectorTensors) -> Result<ConnectorWeights<T>, ModelError> {
        Ok(ConnectorWeights {
            enter: self.linear(&tensors.enter)?,
            norm: self.one(&tensors.norm)?,
            leave: self.linear(&tensors.leave)?,
        })
    }

    fn head(&self, config: &VibeVoiceConfig) -> Result<HeadWeights<T>, ModelError> {
        let tensors = config.head_tensors();
        let [first, second] = &tensors.time;
        let layer = |layer: &HeadLayerTensors| -> Result<HeadLayerWeights<T>, ModelError> {
            Ok(HeadLayerWeights {
                norm: self.one(&layer.norm)?,
                adapt: self.one(&layer.adapt)?,
                gate_up: self.loader.packed(&layer.gate_up)?,
                down: self.one(&layer.down)?,
            })
        };
        Ok(HeadWeights {
            enter: self.one(&tensors.enter)?,
            condition: self.one(&tensors.condition)?,
            time: [self.one(first)?, self.one(second)?],
            layers: tensors.layers.iter().map(layer).collect::<Result<_, _>>()?,
            last_adapt: self.one(&tensors.last_adapt)?,
            leave: self.one(&tensors.leave)?,
        })
    }
}
