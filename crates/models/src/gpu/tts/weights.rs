//! The weights of the talker and the code predictor on a GPU.

use laptime_cuda::{
    Blas, Buffer, Cache, Device, Sizes,
    nn::{AudioRows, Convolutions, Operations},
};
use laptime_probe::stage;

use super::{
    super::{
        size,
        weights::{LayerWeights, Loader, Number},
    },
    codec_weights::CodecWeights,
};
use crate::{
    LinearTensors, ModelError, TensorSpec,
    decoder::weights::load_layers,
    tts::{Part, PredictorTensors, TtsConfig, TtsWeights},
};

/// The weights of a text-to-speech model on a GPU, and the operations of all that runs on them.
pub struct TtsGpuWeights<T> {
    pub operations: Operations<T>,
    pub rows: AudioRows<T>,
    pub convolutions: Convolutions<T>,
    pub talker: TalkerWeights<T>,
    pub predictor: PredictorWeights<T>,
    pub codec: CodecWeights<T>,
}

/// What the talker has.
pub struct TalkerWeights<T> {
    pub text_embedding: Buffer<T>,
    pub text_up: LinearWeights<T>,
    pub text_down: LinearWeights<T>,
    pub embedding: Buffer<T>,
    pub layers: Vec<LayerWeights<T>>,
    pub norm: Buffer<T>,
    pub head: Buffer<T>,
}

/// What the code predictor has.
pub struct PredictorWeights<T> {
    /// Rows of the talker's width for every group but the first, one behind the other.
    pub embeddings: Buffer<T>,
    /// What brings rows of the talker's width to the predictor's, where they differ.
    pub bridge: Option<Bridge<T>>,
    pub layers: Vec<LayerWeights<T>>,
    pub norm: Buffer<T>,
    /// For every group but the first.
    pub heads: Vec<Buffer<T>>,
}

/// A matrix, `[outputs, inputs]`, and what is added.
pub struct LinearWeights<T> {
    pub weight: Buffer<T>,
    pub bias: Buffer<T>,
}

/// What stands between the talker and a predictor of another width. All rows that codes can stand for went through it when
/// it was made.
pub struct Bridge<T> {
    pub linear: LinearWeights<T>,
    /// Rows of semantic codes.
    pub first: Buffer<T>,
    /// Rows of all other codes, group by group.
    pub others: Buffer<T>,
}

impl<T: Number> TtsGpuWeights<T> {
    /// Puts all weights on a device.
    pub fn load(device: &Device, config: &TtsConfig, weights: &TtsWeights) -> Result<Self, ModelError> {
        let operations = Operations::load(device, &Cache::of_user())?;
        let rows = AudioRows::load(device, &Cache::of_user())?;
        let convolutions = Convolutions::load(device, &Cache::of_user())?;
        let _stage = stage!("weights");
        let load = Load { device, config, weights, operations: &operations };
        let talker = load.talker()?;
        let predictor = load.predictor(&talker)?;
        let codec = CodecWeights::load(&load, &rows, &convolutions)?;
        device.stream().synchronise()?;
        Ok(Self { operations, rows, convolutions, talker, predictor, codec })
    }
}

/// Puts the tensors of a text-to-speech model on a device.
pub struct Load<'a, T> {
    pub device: &'a Device,
    pub config: &'a TtsConfig,
    pub weights: &'a TtsWeights,
    pub operations: &'a Operations<T>,
}

impl<T: Number> Load<'_, T> {
    fn loader(&self) -> Loader<'_, T> {
        Loader { device: self.device, operations: self.operations, weights: self.weights }
    }

    /// Tensors one behind the other.
    pub fn packed(&self, tensors: &[TensorSpec]) -> Result<Buffer<T>, ModelError> {
        self.loader().packed(tensors)
    }

    /// One tensor.
    pub fn one(&self, tensor: &TensorSpec) -> Result<Buffer<T>, ModelError> {
        self.packed(std::slice::from_ref(tensor))
    }

    /// A matrix and what is added.
    pub fn linear(&self, tensors: &LinearTensors) -> Result<LinearWeights<T>, ModelError> {
        Ok(LinearWeights { weight: self.one(&tensors.weight)?, bias: self.one(&tensors.bias)? })
    }

    /// The layers of one of the decoders, and the norm behind them.
    pub fn body(&self, part: Part) -> Result<(Vec<LayerWeights<T>>, Buffer<T>), ModelError> {
        let (weights, config) = (self.weights.part(part), self.config.part(part));
        let mut loader = Loader { device: self.device, operations: self.operations, weights: &weights };
        Ok((load_layers(config, 0, &mut loader)?, loader.packed(&[config.final_norm_tensor()])?))
    }

    fn talker(&self) -> Result<TalkerWeights<T>, ModelError> {
        let tensors = self.config.talker_tensors();
        let (layers, norm) = self.body(Part::Talker)?;
        Ok(TalkerWeights {
            text_embedding: self.one(&tensors.text_embedding)?,
            text_up: self.linear(&tensors.text_up)?,
            text_down: self.linear(&tensors.text_down)?,
            embedding: self.one(&tensors.embedding)?,
            layers,
            norm,
            head: self.one(&tensors.head)?,
        })
    }

    fn predictor(&self, talker: &TalkerWeights<T>) -> Result<PredictorWeights<T>, ModelError> {
        let PredictorTensors { bridge, embeddings, heads } = self.config.predictor_tensors();
        let (layers, norm) = self.body(Part::Predictor)?;
        let embeddings = self.packed(&embeddings)?;
        let bridge = match bridge {
            None => None,
            Some(tensors) => {
                let linear = self.linear(&tensors)?;
                let (first, others) = (self.bridged(&linear, &talker.embedding)?, self.bridged(&linear, &embeddings)?);
                Some(Bridge { linear, first, others })
            }
        };
        let heads = heads.iter().map(|head| self.one(head)).collect::<Result<_, _>>()?;
        Ok(PredictorWeights { embeddings, bridge, layers, norm, heads })
    }

    /// Rows of the talker's width, brought to the predictor's.
    fn bridged(&self, linear: &LinearWeights<T>, rows: &Buffer<T>) -> Result<Buffer<T>, ModelError> {
        let (k, n) = (size(self.config.talker.hidden)?, size(self.config.predictor.hidden)?);
        let m = size(rows.length())? / k;
        let mut out = self.device.allocate(m as usize * n as usize)?;
        let blas = Blas::new(self.device)?;
        blas.multiply([rows, &linear.weight], &mut out, Sizes { m, n, k, b_is_transposed: true })?;
        self.operations.add_bias(self.device.stream(), &mut out, &linear.bias, [m, n])?;
        Ok(out)
    }
}
