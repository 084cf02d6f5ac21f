//! The weights of tokenizers on a GPU, packed as their products take them.

use laptime_cuda::{Buffer, nn::Convolution};

use super::{
    super::{size, weights::Number},
    plan::TokenizerShape,
    weights::{LinearWeights, Load},
};
use crate::{
    ModelError,
    tts::ConvTensors,
    vibevoice::{MixerTensors, StageTensors, TokenizerConfig, TokenizerTensors, Way},
};

/// A tokenizer, one way.
pub struct TokenizerWeights<T> {
    pub stages: Vec<StageWeights<T>>,
    pub head: LastWeights<T>,
    pub shape: TokenizerShape,
    pub eps: f32,
}

/// A stage of a tokenizer.
pub struct StageWeights<T> {
    pub enter: ConvWeights<T>,
    pub blocks: Vec<MixerWeights<T>>,
}

/// A convolution that goes on from what came before, packed.
pub struct ConvWeights<T> {
    pub of: Convolution,
    pub packed: Buffer<T>,
}

/// The convolution at the end: to latents, or to samples.
pub enum LastWeights<T> {
    Latents(ConvWeights<T>),
    /// To one channel: the weights as they are stored.
    Samples(Convolution, LinearWeights<T>),
}

/// A block: what mixes positions channel by channel, and a feed-forward part.
pub struct MixerWeights<T> {
    pub norm: Buffer<T>,
    /// `[taps, channels]`.
    pub mixer: LinearWeights<T>,
    pub scale: Buffer<T>,
    pub ffn_norm: Buffer<T>,
    pub up: LinearWeights<T>,
    pub down: LinearWeights<T>,
    pub ffn_scale: Buffer<T>,
}

impl<T: Number> TokenizerWeights<T> {
    /// Puts them on the device.
    pub fn load(
        load: &Load<'_, T>,
        tensors: &TokenizerTensors,
        config: &TokenizerConfig,
        way: Way,
    ) -> Result<Self, ModelError> {
        let shape = TokenizerShape::new(tensors, config, way)?;
        let stages = tensors.stages.iter().zip(&shape.stages).map(|(stage, shape)| load.stage(stage, shape.enter));
        Ok(Self {
            stages: stages.collect::<Result<_, _>>()?,
            head: load.last(&tensors.head, &shape)?,
            eps: config.norm_eps as f32,
            shape,
        })
    }
}

impl<T: Number> Load<'_, T> {
    fn stage(&self, tensors: &StageTensors, enter: Convolution) -> Result<StageWeights<T>, ModelError> {
        let blocks = tensors.blocks.iter().map(|block| self.block(block)).collect::<Result<_, _>>()?;
        Ok(StageWeights { enter: self.conv(enter, &tensors.enter)?, blocks })
    }

    fn last(&self, tensors: &ConvTensors, shape: &TokenizerShape) -> Result<LastWeights<T>, ModelError> {
        if !shape.makes_samples {
            return Ok(LastWeights::Latents(self.conv(shape.head, tensors)?));
        }
        let (weight, bias) = (self.one(&tensors.weight)?, self.one(&tensors.bias)?);
        Ok(LastWeights::Samples(shape.head, LinearWeights { weight, bias }))
    }

    fn conv(&self, of: Convolution, tensors: &ConvTensors) -> Result<ConvWeights<T>, ModelError> {
        let (stored, bias) = (self.one(&tensors.weight)?, self.one(&tensors.bias)?);
        let mut packed = self.loader.device.allocate(of.packed_numbers() as usize)?;
        let stream = self.loader.device.stream();
        self.kernels.convolutions.pack(stream, &of, &stored, Some(bias.all()), &mut packed)?;
        Ok(ConvWeights { of, packed })
    }

    fn block(&self, tensors: &MixerTensors) -> Result<MixerWeights<T>, ModelError> {
        let stored = self.one(&tensors.mixer.weight)?;
        let channels = size(tensors.mixer.bias.count())?;
        let taps = size(stored.length())? / channels.max(1);
        let mut turned = self.loader.device.allocate(stored.length())?;
        let stream = self.loader.device.stream();
        self.kernels.streams.turn_taps(stream, &stored, &mut turned, [channels, taps])?;
        Ok(MixerWeights {
            norm: self.one(&tensors.norm)?,
            mixer: LinearWeights { weight: turned, bias: self.one(&tensors.mixer.bias)? },
            scale: self.one(&tensors.scale)?,
            ffn_norm: self.one(&tensors.ffn_norm)?,
            up: self.linear(&tensors.up)?,
            down: self.linear(&tensors.down)?,
            ffn_scale: self.one(&tensors.ffn_scale)?,
        })
    }
}
