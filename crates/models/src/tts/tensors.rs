//! The weights of Qwen3-TTS: one table of published tensors, which every device loads and every prediction counts.
//!
//! Layers and norms of the three decoders are those of a decoder alone under other names: [`TtsConfig::renamed`].

use std::{convert::Infallible, sync::Arc};

use super::{KERNELS, Part, TtsConfig, codec::NEXT_WIDENING};
use crate::{
    LinearTensors, ModelError, Role, TensorSpec,
    decoder::weights::{Body, Load},
    tensors::tensor,
    weights::TensorSource,
};

/// The minimum usage of a vector of a codebook, as in the official package.
const LEAST_USE: f32 = 1e-5;

/// A convolution: `[outputs, inputs, kernel]`, or `[inputs, outputs, kernel]` if it is transposed, and a bias.
#[derive(Debug, Clone)]
pub struct ConvTensors {
    /// The kernel.
    pub weight: TensorSpec,
    /// The bias.
    pub bias: TensorSpec,
}

impl ConvTensors {
    /// `[outputs, inputs, kernel]`.
    pub(crate) fn new(name: &str, shape: [usize; 3]) -> Self {
        let weight = tensor(format!("{name}.weight"), shape, Role::Conv);
        Self { weight, bias: tensor(format!("{name}.bias"), [shape[0]], Role::Bias) }
    }

    /// `[inputs, outputs, kernel]`, as torch stores transposed convolutions.
    pub(crate) fn lengthening(name: &str, shape: [usize; 3]) -> Self {
        let weight = tensor(format!("{name}.weight"), shape, Role::Lengthen);
        Self { weight, bias: tensor(format!("{name}.bias"), [shape[1]], Role::Bias) }
    }

    pub(crate) fn all(self) -> Vec<TensorSpec> {
        vec![self.weight, self.bias]
    }
}

/// How a device holds the weights.
pub trait Parts {
    type Matrix;
    type Vector;
    /// A convolution with its bias.
    type Conv;
    /// A convolution of each channel by itself.
    type Depthwise;
    /// A convolution with a single output channel.
    type ToOne;
    /// The parameters of a snake activation.
    type Snake;
    /// The vectors of all groups.
    type Codebooks;
    /// The projection from the talker's width to the predictor's.
    type Bridge;
}

/// A linear layer with a bias.
#[derive(Debug)]
pub struct Linear<M, V = M> {
    /// `[outputs, inputs]`.
    pub weight: M,
    pub bias: V,
}

type LinearOf<P> = Linear<<P as Parts>::Matrix, <P as Parts>::Vector>;
type BodyOf<P> = Arc<Body<<P as Parts>::Matrix, <P as Parts>::Vector>>;

/// All weights.
pub struct LoadedWeights<P: Parts> {
    pub talker: TalkerWeights<P>,
    pub predictor: PredictorWeights<P>,
    pub codec: CodecWeights<P>,
}

/// The weights of the talker.
pub struct TalkerWeights<P: Parts> {
    /// A row for each token of text.
    pub text_embedding: P::Matrix,
    /// The projection of text to the talker's width: a linear layer, SiLU, and another.
    pub text_up: LinearOf<P>,
    pub text_down: LinearOf<P>,
    /// A row for each id of the codec's vocabulary.
    pub embedding: P::Matrix,
    pub body: BodyOf<P>,
    pub head: P::Matrix,
}

/// The weights of the code predictor.
pub struct PredictorWeights<P: Parts> {
    /// None where the talker is as wide.
    pub bridge: Option<P::Bridge>,
    /// Rows of the talker's width for every group but the first, one group after another.
    pub embeddings: P::Matrix,
    pub body: BodyOf<P>,
    /// One for every group but the first.
    pub heads: Vec<P::Matrix>,
}

/// The weights of the codec decoder, in the order in which it uses them.
pub struct CodecWeights<P: Parts> {
    pub codebooks: P::Codebooks,
    /// Projects the first group's vector, and next to it the sum of all others, to the width of codes.
    pub projection: P::Matrix,
    pub input: P::Conv,
    pub enter: P::Conv,
    /// The scales of the residual branches are multiplied into the matrices before them.
    pub body: BodyOf<P>,
    pub leave: P::Conv,
    pub next: Vec<NextWeights<P>>,
    pub first: P::Conv,
    pub blocks: Vec<BlockWeights<P>>,
    pub snake: P::Snake,
    pub last: P::ToOne,
}

/// A transposed convolution and a ConvNeXt block.
pub struct NextWeights<P: Parts> {
    pub lengthen: P::Conv,
    pub depthwise: P::Depthwise,
    /// Weight and bias of the layer norm.
    pub norm: [P::Vector; 2],
    pub up: LinearOf<P>,
    pub down: LinearOf<P>,
    pub scale: P::Vector,
}

/// A snake, a transposed convolution, and residual units.
pub struct BlockWeights<P: Parts> {
    pub snake: P::Snake,
    pub lengthen: P::Conv,
    pub units: Vec<UnitWeights<P>>,
}

/// A residual unit.
pub struct UnitWeights<P: Parts> {
    pub snake: P::Snake,
    pub wide: P::Conv,
    pub snake_between: P::Snake,
    pub narrow: P::Conv,
}

/// Loads published tensors as [`Parts`].
pub trait TtsLoad: Load {
    type Parts: Parts<Matrix = <Self as Load>::Matrix, Vector = <Self as Load>::Vector>;

    /// A convolution with this dilation, or with this stride if it is transposed.
    fn conv(&mut self, tensors: &ConvTensors, step: usize) -> Result<<Self::Parts as Parts>::Conv, Self::Error>;

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<<Self::Parts as Parts>::Depthwise, Self::Error>;

    fn to_one(&mut self, tensors: &ConvTensors) -> Result<<Self::Parts as Parts>::ToOne, Self::Error>;

    /// The snake of these logarithms of alpha and beta.
    fn snake(&mut self, tensors: &[TensorSpec; 2]) -> Result<<Self::Parts as Parts>::Snake, Self::Error>;

    /// The codebooks of these pairs of sums and usages.
    fn codebooks(&mut self, tensors: &[[TensorSpec; 2]]) -> Result<<Self::Parts as Parts>::Codebooks, Self::Error>;

    /// Two matrices side by side.
    fn side_by_side(&mut self, tensors: &[TensorSpec; 2]) -> Result<<Self as Load>::Matrix, Self::Error>;

    /// Multiplies each row of a matrix with a number of its own.
    fn scale_rows(&mut self, matrix: &mut <Self as Load>::Matrix, scale: &TensorSpec) -> Result<(), Self::Error>;

    /// The bridge of a linear layer and the two tables of rows that go through it.
    fn bridge(
        &mut self,
        linear: LinearOf<Self::Parts>,
        tables: [&<Self as Load>::Matrix; 2],
    ) -> Result<<Self::Parts as Parts>::Bridge, Self::Error>;
}

/// The vectors of a codebook in f32: sums divided by usages.
pub fn codebook(weights: &dyn TensorSource, [sums, uses]: &[TensorSpec; 2]) -> Result<Vec<f32>, ModelError> {
    let (mut vectors, uses) = (weights.tensor(sums)?.to_f32(), weights.tensor(uses)?.to_f32());
    let width = vectors.len() / uses.len().max(1);
    for (vector, uses) in vectors.chunks_mut(width.max(1)).zip(uses) {
        vector.iter_mut().for_each(|number| *number /= uses.max(LEAST_USE));
    }
    Ok(vectors)
}

/// Loads a decoder of the model under its published names.
struct Renamed<'l, L> {
    loader: &'l mut L,
    part: Part,
}

impl<L: Load> Load for Renamed<'_, L> {
    type Matrix = L::Matrix;
    type Vector = L::Vector;
    type Error = L::Error;

    fn matrix(&mut self, tensors: &[TensorSpec]) -> Result<L::Matrix, L::Error> {
        self.loader.matrix(&tensors.iter().map(|spec| TtsConfig::renamed(self.part, spec)).collect::<Vec<_>>())
    }

    fn vector(&mut self, tensors: &[TensorSpec]) -> Result<L::Vector, L::Error> {
        self.loader.vector(&tensors.iter().map(|spec| TtsConfig::renamed(self.part, spec)).collect::<Vec<_>>())
    }
}

/// The table of published tensors.
struct Table<'a, L> {
    config: &'a TtsConfig,
    loader: &'a mut L,
}

impl<P: Parts> LoadedWeights<P> {
    /// Loads all weights.
    pub fn load<L: TtsLoad<Parts = P>>(config: &TtsConfig, loader: &mut L) -> Result<Self, L::Error> {
        let mut table = Table { config, loader };
        let talker = table.talker()?;
        let predictor = table.predictor(&talker)?;
        Ok(Self { talker, predictor, codec: table.codec()? })
    }
}

impl<L: TtsLoad> Table<'_, L> {
    fn embedding(&mut self, name: &str, shape: [usize; 2]) -> Result<L::Matrix, L::Error> {
        self.loader.matrix(&[tensor(format!("{name}.weight"), shape, Role::Embedding)])
    }

    fn linear(&mut self, name: &str, shape: [usize; 2]) -> Result<LinearOf<L::Parts>, L::Error> {
        let LinearTensors { weight, bias } = LinearTensors::new(name, shape);
        Ok(Linear { weight: self.loader.matrix(&[weight])?, bias: self.loader.vector(&[bias])? })
    }

    fn body(&mut self, part: Part) -> Result<Body<L::Matrix, L::Vector>, L::Error> {
        Body::load(self.config.part(part), 0, &mut Renamed { loader: self.loader, part })
    }

    fn talker(&mut self) -> Result<TalkerWeights<L::Parts>, L::Error> {
        let TtsConfig { talker, text_vocab, text_width: width, .. } = self.config;
        Ok(TalkerWeights {
            text_embedding: self.embedding("talker.model.text_embedding", [*text_vocab, *width])?,
            text_up: self.linear("talker.text_projection.linear_fc1", [*width, *width])?,
            text_down: self.linear("talker.text_projection.linear_fc2", [talker.hidden, *width])?,
            embedding: self.embedding("talker.model.codec_embedding", [talker.vocab, talker.hidden])?,
            body: Arc::new(self.body(Part::Talker)?),
            head: self.loader.matrix(&[tensor(
                "talker.codec_head.weight".to_owned(),
                [talker.vocab, talker.hidden],
                Role::Head,
            )])?,
        })
    }

    fn predictor(&mut self, talker: &TalkerWeights<L::Parts>) -> Result<PredictorWeights<L::Parts>, L::Error> {
        let prefix = "talker.code_predictor.";
        let (groups, wide) = (0..self.config.predicted(), self.config.talker.hidden);
        let (own, vocab) = (self.config.predictor.hidden, self.config.predictor.vocab);
        let table =
            |group| tensor(format!("{prefix}model.codec_embedding.{group}.weight"), [vocab, wide], Role::Embedding);
        let head = |group| tensor(format!("{prefix}lm_head.{group}.weight"), [vocab, own], Role::Head);
        let embeddings = self.loader.matrix(&groups.clone().map(table).collect::<Vec<_>>())?;
        let bridge = match self.config.has_bridge() {
            false => None,
            true => {
                let linear = self.linear(&format!("{prefix}small_to_mtp_projection"), [own, wide])?;
                Some(self.loader.bridge(linear, [&talker.embedding, &embeddings])?)
            }
        };
        let body = Arc::new(self.body(Part::Predictor)?);
        let heads = groups.map(|group| self.loader.matrix(&[head(group)])).collect::<Result<_, _>>()?;
        Ok(PredictorWeights { bridge, embeddings, body, heads })
    }

    fn codec(&mut self) -> Result<CodecWeights<L::Parts>, L::Error> {
        let codec = &self.config.codec;
        let (latent, hidden, width) = (codec.latent, codec.transformer.hidden, codec.code_width);
        let projection = |part: &str| {
            let name = format!("decoder.quantizer.{part}.output_proj.weight");
            tensor(name, [width, codec.vector_width(), 1], Role::Conv)
        };
        let blocks = codec.rates.len();
        let behind = codec.channels_behind(blocks);
        let (books, last) = (codec.groups, format!("decoder.decoder.{}.conv", blocks + 2));
        let books: Vec<_> = (0..books).map(|group| self.config.codebook_tensors(group)).collect();
        let next = (0..codec.ratios.len()).map(|at| (at, codec.ratios[at]));
        Ok(CodecWeights {
            codebooks: self.loader.codebooks(&books)?,
            projection: self.loader.side_by_side(&[projection("rvq_first"), projection("rvq_rest")])?,
            input: self.loader.conv(&ConvTensors::new("decoder.pre_conv.conv", [latent, width, KERNELS.input]), 1)?,
            enter: self.point("decoder.pre_transformer.input_proj", [hidden, latent])?,
            body: Arc::new(self.scaled_body()?),
            leave: self.point("decoder.pre_transformer.output_proj", [latent, hidden])?,
            next: next.map(|(at, ratio)| self.next(at, ratio)).collect::<Result<_, _>>()?,
            first: self
                .loader
                .conv(&ConvTensors::new("decoder.decoder.0.conv", [codec.channels, latent, KERNELS.outer]), 1)?,
            blocks: (0..blocks).map(|at| self.block(at)).collect::<Result<_, _>>()?,
            snake: self.snake(&format!("decoder.decoder.{}", blocks + 1), behind)?,
            last: self.loader.to_one(&ConvTensors::new(&last, [1, behind, KERNELS.outer]))?,
        })
    }

    /// A linear layer as a convolution that sees one position.
    fn point(&mut self, name: &str, shape: [usize; 2]) -> Result<<L::Parts as Parts>::Conv, L::Error> {
        let LinearTensors { weight, bias } = LinearTensors::new(name, shape);
        self.loader.conv(&ConvTensors { weight, bias }, 1)
    }

    /// The transformer of the codec with the scales of its residual branches in the matrices before them.
    fn scaled_body(&mut self) -> Result<Body<L::Matrix, L::Vector>, L::Error> {
        let (mut body, hidden) = (self.body(Part::Codec)?, self.config.codec.transformer.hidden);
        let scale = |layer: usize, part: &str| {
            tensor(format!("decoder.pre_transformer.layers.{layer}.{part}.scale"), [hidden], Role::Scale)
        };
        for (at, layer) in body.layers.iter_mut().enumerate() {
            self.loader.scale_rows(&mut layer.output, &scale(at, "self_attn_layer_scale"))?;
            self.loader.scale_rows(&mut layer.down, &scale(at, "mlp_layer_scale"))?;
        }
        Ok(body)
    }

    fn snake(&mut self, name: &str, channels: usize) -> Result<<L::Parts as Parts>::Snake, L::Error> {
        self.loader.snake(&["alpha", "beta"].map(|part| tensor(format!("{name}.{part}"), [channels], Role::Bias)))
    }

    fn next(&mut self, at: usize, ratio: usize) -> Result<NextWeights<L::Parts>, L::Error> {
        let (width, name) = (self.config.codec.latent, format!("decoder.upsample.{at}.1"));
        let inner = width.saturating_mul(NEXT_WIDENING);
        let lengthen = ConvTensors::lengthening(&format!("decoder.upsample.{at}.0.conv"), [width, width, ratio]);
        let depthwise = ConvTensors::new(&format!("{name}.dwconv.conv"), [width, 1, KERNELS.depthwise]);
        Ok(NextWeights {
            lengthen: self.loader.conv(&lengthen, ratio)?,
            depthwise: self.loader.depthwise(&depthwise)?,
            norm: [
                self.loader.vector(&[tensor(format!("{name}.norm.weight"), [width], Role::Norm)])?,
                self.loader.vector(&[tensor(format!("{name}.norm.bias"), [width], Role::Bias)])?,
            ],
            up: self.linear(&format!("{name}.pwconv1"), [inner, width])?,
            down: self.linear(&format!("{name}.pwconv2"), [width, inner])?,
            scale: self.loader.vector(&[tensor(format!("{name}.gamma"), [width], Role::Scale)])?,
        })
    }

    fn block(&mut self, at: usize) -> Result<BlockWeights<L::Parts>, L::Error> {
        let (codec, name) = (&self.config.codec, format!("decoder.decoder.{}.block", at + 1));
        let (inputs, outputs, rate) = (codec.channels_behind(at), codec.channels_behind(at + 1), codec.rates[at]);
        let lengthen = ConvTensors::lengthening(&format!("{name}.1.conv"), [inputs, outputs, rate.saturating_mul(2)]);
        let units = (2..).zip(KERNELS.dilations);
        Ok(BlockWeights {
            snake: self.snake(&format!("{name}.0"), inputs)?,
            lengthen: self.loader.conv(&lengthen, rate)?,
            units: units
                .map(|(at, dilation)| self.unit(&format!("{name}.{at}"), outputs, dilation))
                .collect::<Result<_, _>>()?,
        })
    }

    fn unit(&mut self, name: &str, channels: usize, dilation: usize) -> Result<UnitWeights<L::Parts>, L::Error> {
        let conv = |part: &str, kernel| ConvTensors::new(&format!("{name}.{part}.conv"), [channels, channels, kernel]);
        Ok(UnitWeights {
            snake: self.snake(&format!("{name}.act1"), channels)?,
            wide: self.loader.conv(&conv("conv1", KERNELS.unit), dilation)?,
            snake_between: self.snake(&format!("{name}.act2"), channels)?,
            narrow: self.loader.conv(&conv("conv2", 1), 1)?,
        })
    }
}

/// Loads nothing and records the tensors: weights are their own descriptions.
#[derive(Debug, Default)]
pub struct Specs {
    pub all: Vec<TensorSpec>,
}

/// A convolution with its dilation, or with its stride if it is transposed.
#[derive(Debug)]
pub struct ConvSpec {
    pub tensors: ConvTensors,
    pub step: usize,
}

impl Parts for Specs {
    type Matrix = Vec<TensorSpec>;
    type Vector = Vec<TensorSpec>;
    type Conv = ConvSpec;
    type Depthwise = ConvTensors;
    type ToOne = ConvTensors;
    type Snake = Vec<TensorSpec>;
    type Codebooks = ();
    type Bridge = LinearOf<Self>;
}

impl Load for Specs {
    type Matrix = Vec<TensorSpec>;
    type Vector = Vec<TensorSpec>;
    type Error = Infallible;

    fn matrix(&mut self, tensors: &[TensorSpec]) -> Result<Vec<TensorSpec>, Infallible> {
        self.all.extend_from_slice(tensors);
        Ok(tensors.to_vec())
    }

    fn vector(&mut self, tensors: &[TensorSpec]) -> Result<Vec<TensorSpec>, Infallible> {
        self.matrix(tensors)
    }
}

impl TtsLoad for Specs {
    type Parts = Self;

    fn conv(&mut self, tensors: &ConvTensors, step: usize) -> Result<ConvSpec, Infallible> {
        Ok(ConvSpec { tensors: self.depthwise(tensors)?, step })
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<ConvTensors, Infallible> {
        self.all.extend(tensors.clone().all());
        Ok(tensors.clone())
    }

    fn to_one(&mut self, tensors: &ConvTensors) -> Result<ConvTensors, Infallible> {
        self.depthwise(tensors)
    }

    fn snake(&mut self, tensors: &[TensorSpec; 2]) -> Result<Vec<TensorSpec>, Infallible> {
        self.matrix(tensors)
    }

    fn codebooks(&mut self, tensors: &[[TensorSpec; 2]]) -> Result<(), Infallible> {
        self.matrix(tensors.as_flattened()).map(drop)
    }

    fn side_by_side(&mut self, tensors: &[TensorSpec; 2]) -> Result<Vec<TensorSpec>, Infallible> {
        self.matrix(tensors)
    }

    fn scale_rows(&mut self, _: &mut Vec<TensorSpec>, scale: &TensorSpec) -> Result<(), Infallible> {
        self.all.push(scale.clone());
        Ok(())
    }

    fn bridge(&mut self, linear: LinearOf<Self>, _: [&Vec<TensorSpec>; 2]) -> Result<LinearOf<Self>, Infallible> {
        Ok(linear)
    }
}

impl TtsConfig {
    /// The tensor of a decoder alone, as the checkpoint names it.
    pub fn renamed(part: Part, spec: &TensorSpec) -> TensorSpec {
        let name = match (part, spec.name.as_str()) {
            (Part::Talker, name) => format!("talker.{name}"),
            (Part::Predictor, name) => format!("talker.code_predictor.{name}"),
            (Part::Codec, name) => format!("decoder.pre_transformer.{}", name.trim_start_matches("model.")),
        };
        TensorSpec { name, ..spec.clone() }
    }

    fn codebook_tensors(&self, group: usize) -> [TensorSpec; 2] {
        let place = match group {
            0 => "rvq_first.vq.layers.0".to_owned(),
            _ => format!("rvq_rest.vq.layers.{}", group - 1),
        };
        let (codebook, width) = (self.codec.codebook, self.codec.vector_width());
        [
            tensor(format!("decoder.quantizer.{place}._codebook.embedding_sum"), [codebook, width], Role::Embedding),
            tensor(format!("decoder.quantizer.{place}._codebook.cluster_usage"), [codebook], Role::Norm),
        ]
    }

    /// The descriptions of the codec decoder's weights, and all its tensors.
    pub(super) fn codec_specs(&self) -> (CodecWeights<Specs>, Vec<TensorSpec>) {
        let mut loader = Specs::default();
        let Ok(codec) = Table { config: self, loader: &mut loader }.codec();
        (codec, loader.all)
    }

    /// The descriptions of the weights of talker and code predictor, and all their tensors.
    pub(super) fn talker_specs(&self) -> (TalkerWeights<Specs>, PredictorWeights<Specs>, Vec<TensorSpec>) {
        let mut loader = Specs::default();
        let mut table = Table { config: self, loader: &mut loader };
        let Ok(talker) = table.talker();
        let Ok(predictor) = table.predictor(&talker);
        (talker, predictor, loader.all)
    }

    /// Every tensor of the talker and the predictor: those of `model.safetensors`.
    pub fn talker_file_tensors(&self) -> Vec<TensorSpec> {
        self.talker_specs().2
    }

    /// Every tensor of the codec decoder: those of `speech_tokenizer/model.safetensors` that are needed.
    pub fn codec_file_tensors(&self) -> Vec<TensorSpec> {
        self.codec_specs().1
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_different_and_those_of_checkpoints() {
        let config = TtsConfig::from_preset("1.7b").unwrap();
        let all = [config.talker_file_tensors(), config.codec_file_tensors()].concat();
        let names: HashSet<&str> = all.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
        let shape = |name: &str| all.iter().find(|spec| spec.name == name).unwrap().shape.clone();
        assert_eq!(shape("talker.model.text_embedding.weight"), [151_936, 2048]);
        assert_eq!(shape("talker.text_projection.linear_fc2.bias"), [2048]);
        assert_eq!(shape("talker.model.codec_embedding.weight"), [3072, 2048]);
        assert_eq!(shape("talker.model.layers.27.self_attn.q_norm.weight"), [128]);
        assert_eq!(shape("talker.codec_head.weight"), [3072, 2048]);
        assert_eq!(shape("talker.code_predictor.small_to_mtp_projection.weight"), [1024, 2048]);
        assert_eq!(shape("talker.code_predictor.model.codec_embedding.14.weight"), [2048, 2048]);
        assert_eq!(shape("talker.code_predictor.lm_head.14.weight"), [2048, 1024]);
        assert_eq!(shape("talker.code_predictor.model.norm.weight"), [1024]);
        assert_eq!(shape("decoder.quantizer.rvq_rest.vq.layers.14._codebook.embedding_sum"), [2048, 256]);
        assert_eq!(shape("decoder.quantizer.rvq_first.output_proj.weight"), [512, 256, 1]);
        assert_eq!(shape("decoder.pre_transformer.layers.7.mlp.down_proj.weight"), [512, 1024]);
        assert_eq!(shape("decoder.upsample.1.1.dwconv.conv.weight"), [1024, 1, 7]);
        assert_eq!(shape("decoder.decoder.1.block.1.conv.weight"), [1536, 768, 16]);
        assert_eq!(shape("decoder.decoder.4.block.4.conv1.conv.weight"), [96, 96, 7]);
        assert_eq!(shape("decoder.decoder.6.conv.weight"), [1, 96, 7]);
    }
}
