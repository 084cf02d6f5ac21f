//! The weights of Qwen3-TTS: one table of published tensors, which devices load and predictions count.
//!
//! The three decoders have the tensors of a language model with other prefixes: [`TtsConfig::renamed`].

use std::sync::Arc;

use super::{Part, TtsConfig, codec::NEXT_WIDENING};
use crate::decoder::weights::{Body, Load};
use crate::{ModelError, Role, TensorSpec, tensors::tensor, weights::TensorSource};

/// The minimum usage of a codebook vector, as in the official package.
const LEAST_USE: f32 = 1e-5;

/// Kernel widths: before the transformer, and of all other convolutions over time.
const INPUT_KERNEL: usize = 3;
const KERNEL: usize = 7;

/// Dilations of a block's residual units.
const DILATIONS: [usize; 3] = [1, 3, 9];

/// The tensors of a convolution: `[outputs, inputs, kernel]`, or `[inputs, outputs, kernel]` if transposed, and a bias.
pub type ConvTensors = Linear<TensorSpec>;

impl Linear<TensorSpec> {
    fn named(name: &str, weight: TensorSpec, outputs: usize) -> Self {
        Self { weight, bias: tensor(format!("{name}.bias"), [outputs], Role::Bias) }
    }

    fn of_matrix(name: &str, shape: [usize; 2]) -> Self {
        Self::named(name, tensor(format!("{name}.weight"), shape, Role::Linear), shape[0])
    }

    /// `[outputs, inputs, kernel]`.
    pub fn new(name: &str, shape: [usize; 3]) -> Self {
        Self::named(name, tensor(format!("{name}.weight"), shape, Role::Conv), shape[0])
    }

    /// A transposed convolution, `[inputs, outputs, kernel]`.
    pub fn transposed(name: &str, shape: [usize; 3]) -> Self {
        Self::named(name, tensor(format!("{name}.weight"), shape, Role::Lengthen), shape[1])
    }
}

/// How a device stores weights.
pub trait Parts {
    type Matrix;
    type Vector;
    type Conv;
    type Depthwise;
    type Snake;
    /// The projection from the talker's width to the predictor's.
    type Bridge;
}

/// A linear layer, `[outputs, inputs]`, with a bias.
#[derive(Debug, Clone)]
pub struct Linear<M, V = M> {
    pub weight: M,
    pub bias: V,
}

pub type LinearOf<P> = Linear<<P as Parts>::Matrix, <P as Parts>::Vector>;
type BodyOf<P> = Body<<P as Parts>::Matrix, <P as Parts>::Vector>;

pub struct LoadedWeights<P: Parts> {
    pub talker: TalkerWeights<P>,
    pub predictor: PredictorWeights<P>,
    pub codec: CodecWeights<P>,
}

pub struct TalkerWeights<P: Parts> {
    pub text_embedding: P::Matrix,
    /// The text projection: a linear layer, SiLU, and another linear layer.
    pub text_up: LinearOf<P>,
    pub text_down: LinearOf<P>,
    pub embedding: P::Matrix,
    pub body: Arc<BodyOf<P>>,
    pub head: P::Matrix,
}

pub struct PredictorWeights<P: Parts> {
    /// None if the talker has the same width.
    pub bridge: Option<P::Bridge>,
    /// `[groups - 1, vocab, width of the talker]`.
    pub embeddings: P::Matrix,
    pub body: Arc<BodyOf<P>>,
    /// One per group but the first.
    pub heads: Vec<P::Matrix>,
}

pub struct CodecWeights<P: Parts> {
    pub codebooks: P::Vector,
    /// Projects the first group's vector, concatenated with the sum of all others.
    pub projection: P::Matrix,
    pub input: P::Conv,
    pub enter: P::Conv,
    /// The scales of the residual branches are folded into the matrices before them.
    pub body: Arc<BodyOf<P>>,
    pub leave: P::Conv,
    pub next: Vec<NextWeights<P>>,
    pub first: P::Conv,
    pub blocks: Vec<BlockWeights<P>>,
    pub snake: P::Snake,
    pub last: P::Conv,
}

pub struct NextWeights<P: Parts> {
    pub lengthen: P::Conv,
    pub depthwise: P::Depthwise,
    pub norm: [P::Vector; 2],
    pub up: LinearOf<P>,
    pub down: LinearOf<P>,
    pub scale: P::Vector,
}

/// A snake activation, a transposed convolution, and residual units of twice a snake and a convolution.
pub struct BlockWeights<P: Parts> {
    pub snake: P::Snake,
    pub lengthen: P::Conv,
    pub units: Vec<[(P::Snake, P::Conv); 2]>,
}

type PartsOf<L> = <L as TtsLoad>::Parts;
pub type Loaded<P, L> = Result<P, <L as Load>::Error>;

/// Loads single tensors and linear layers by their names.
pub trait LoadNamed: Load {
    fn named_matrix(&mut self, name: &str, shape: [usize; 2], role: Role) -> Loaded<Self::Matrix, Self> {
        self.matrix(&[tensor(format!("{name}.weight"), shape, role)])
    }

    fn named_vector(&mut self, name: String, width: usize, role: Role) -> Loaded<Self::Vector, Self> {
        self.vector(&[tensor(name, [width], role)])
    }

    fn linear(&mut self, name: &str, shape: [usize; 2]) -> Loaded<Linear<Self::Matrix, Self::Vector>, Self> {
        let Linear { weight, bias } = ConvTensors::of_matrix(name, shape);
        Ok(Linear { weight: self.matrix(&[weight])?, bias: self.vector(&[bias])? })
    }
}

impl<L: Load> LoadNamed for L {}

pub trait TtsLoad: Load {
    type Parts: Parts<Matrix = <Self as Load>::Matrix, Vector = <Self as Load>::Vector>;

    /// A convolution with this dilation, or this stride if transposed.
    fn conv(&mut self, tensors: &ConvTensors, step: usize) -> Loaded<<PartsOf<Self> as Parts>::Conv, Self>;

    /// The last convolution, to one channel.
    fn to_one(&mut self, tensors: &ConvTensors) -> Loaded<<PartsOf<Self> as Parts>::Conv, Self> {
        self.conv(tensors, 1)
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Loaded<<PartsOf<Self> as Parts>::Depthwise, Self>;
    fn snake(&mut self, tensors: &[TensorSpec; 2]) -> Loaded<<PartsOf<Self> as Parts>::Snake, Self>;
    fn codebooks(&mut self, tensors: &[[TensorSpec; 2]]) -> Loaded<Self::Vector, Self>;

    /// Two matrices concatenated by columns.
    fn side_by_side(&mut self, tensors: &[TensorSpec; 2]) -> Loaded<Self::Matrix, Self>;

    /// Multiplies each row of a matrix by a factor.
    fn scale_rows(&mut self, matrix: &mut Self::Matrix, scale: &TensorSpec) -> Loaded<(), Self>;

    /// The bridge of a linear layer, and the two embedding tables that it projects.
    fn bridge(
        &mut self,
        linear: LinearOf<Self::Parts>,
        tables: [&Self::Matrix; 2],
    ) -> Loaded<<PartsOf<Self> as Parts>::Bridge, Self>;
}

/// The vectors of a codebook: sums divided by usages.
pub fn codebook(weights: &dyn TensorSource, [sums, uses]: &[TensorSpec; 2]) -> Result<Vec<f32>, ModelError> {
    let (mut vectors, uses) = (weights.tensor(sums)?.to_f32(), weights.tensor(uses)?.to_f32());
    let width = vectors.len() / uses.len().max(1);
    for (vector, uses) in vectors.chunks_mut(width.max(1)).zip(uses) {
        vector.iter_mut().for_each(|number| *number /= uses.max(LEAST_USE));
    }
    Ok(vectors)
}

struct Renamed<'l, L>(&'l mut L, Part);

impl<L> Renamed<'_, L> {
    fn renamed(&self, tensors: &[TensorSpec]) -> Vec<TensorSpec> {
        tensors.iter().map(|spec| TtsConfig::renamed(self.1, spec)).collect()
    }
}

impl<L: Load> Load for Renamed<'_, L> {
    type Matrix = L::Matrix;
    type Vector = L::Vector;
    type Error = L::Error;

    fn matrix(&mut self, tensors: &[TensorSpec]) -> Result<L::Matrix, L::Error> {
        self.0.matrix(&self.renamed(tensors))
    }

    fn vector(&mut self, tensors: &[TensorSpec]) -> Result<L::Vector, L::Error> {
        self.0.vector(&self.renamed(tensors))
    }
}

pub struct Table<'a, L> {
    pub config: &'a TtsConfig,
    pub loader: &'a mut L,
}

impl<P: Parts> LoadedWeights<P> {
    pub fn load<L: TtsLoad<Parts = P>>(config: &TtsConfig, loader: &mut L) -> Result<Self, L::Error> {
        let mut table = Table { config, loader };
        let talker = table.talker()?;
        let predictor = table.predictor(&talker)?;
        Ok(Self { talker, predictor, codec: table.codec()? })
    }
}

impl<L: TtsLoad> Table<'_, L> {
    fn conv(&mut self, name: &str, shape: [usize; 3], dilation: usize) -> Loaded<<L::Parts as Parts>::Conv, L> {
        self.loader.conv(&ConvTensors::new(name, shape), dilation)
    }

    /// A linear layer as a convolution of kernel width 1.
    fn point(&mut self, name: &str, shape: [usize; 2]) -> Loaded<<L::Parts as Parts>::Conv, L> {
        self.loader.conv(&ConvTensors::of_matrix(name, shape), 1)
    }

    fn snake(&mut self, name: &str, channels: usize) -> Loaded<<L::Parts as Parts>::Snake, L> {
        self.loader.snake(&["alpha", "beta"].map(|part| tensor(format!("{name}.{part}"), [channels], Role::Bias)))
    }

    fn body(&mut self, part: Part) -> Loaded<BodyOf<L::Parts>, L> {
        Body::load(self.config.part(part), 0, &mut Renamed(self.loader, part))
    }

    pub fn talker(&mut self) -> Loaded<TalkerWeights<L::Parts>, L> {
        let (width, hidden, vocab) = (self.config.text_width, self.config.talker.hidden, self.config.talker.vocab);
        let text = [self.config.text_vocab, width];
        Ok(TalkerWeights {
            text_embedding: self.loader.named_matrix("talker.model.text_embedding", text, Role::Embedding)?,
            text_up: self.loader.linear("talker.text_projection.linear_fc1", [width, width])?,
            text_down: self.loader.linear("talker.text_projection.linear_fc2", [hidden, width])?,
            embedding: self.loader.named_matrix("talker.model.codec_embedding", [vocab, hidden], Role::Embedding)?,
            body: Arc::new(self.body(Part::Talker)?),
            head: self.loader.named_matrix("talker.codec_head", [vocab, hidden], Role::Head)?,
        })
    }

    pub fn predictor(&mut self, talker: &TalkerWeights<L::Parts>) -> Loaded<PredictorWeights<L::Parts>, L> {
        let (groups, wide) = (0..self.config.predicted(), self.config.talker.hidden);
        let (own, vocab) = (self.config.predictor.hidden, self.config.predictor.vocab);
        let name = |part: &str, group: usize| format!("talker.code_predictor.{part}.{group}");
        let table = |at| tensor(name("model.codec_embedding", at) + ".weight", [vocab, wide], Role::Embedding);
        let embeddings = self.loader.matrix(&groups.clone().map(table).collect::<Vec<_>>())?;
        let bridge = match self.config.has_bridge() {
            false => None,
            true => {
                let linear = self.loader.linear("talker.code_predictor.small_to_mtp_projection", [own, wide])?;
                Some(self.loader.bridge(linear, [&talker.embedding, &embeddings])?)
            }
        };
        let body = Arc::new(self.body(Part::Predictor)?);
        let heads = groups.map(|group| self.loader.named_matrix(&name("lm_head", group), [vocab, own], Role::Head));
        Ok(PredictorWeights { bridge, embeddings, body, heads: heads.collect::<Result<_, _>>()? })
    }

    pub fn codec(&mut self) -> Loaded<CodecWeights<L::Parts>, L> {
        let (config, codec) = (self.config, &self.config.codec);
        let (latent, hidden, width) = (codec.latent, codec.transformer.hidden, codec.code_width);
        let projection = |part: &str| {
            let name = format!("decoder.quantizer.{part}.output_proj.weight");
            tensor(name, [width, codec.vector_width(), 1], Role::Conv)
        };
        let books: Vec<_> = (0..codec.groups).map(|group| config.codebook(group)).collect();
        let blocks = codec.rates.len();
        let (channels, last) = (codec.channels_after(blocks), format!("decoder.decoder.{}.conv", blocks + 2));
        let next = codec.ratios.iter().enumerate().map(|(at, ratio)| self.next(at, *ratio));
        Ok(CodecWeights {
            next: next.collect::<Result<_, _>>()?,
            codebooks: self.loader.codebooks(&books)?,
            projection: self.loader.side_by_side(&[projection("rvq_first"), projection("rvq_rest")])?,
            input: self.conv("decoder.pre_conv.conv", [latent, width, INPUT_KERNEL], 1)?,
            enter: self.point("decoder.pre_transformer.input_proj", [hidden, latent])?,
            body: Arc::new(self.scaled_body()?),
            leave: self.point("decoder.pre_transformer.output_proj", [latent, hidden])?,
            first: self.conv("decoder.decoder.0.conv", [codec.channels, latent, KERNEL], 1)?,
            blocks: (0..blocks).map(|at| self.block(at)).collect::<Result<_, _>>()?,
            snake: self.snake(&format!("decoder.decoder.{}", blocks + 1), channels)?,
            last: self.loader.to_one(&ConvTensors::new(&last, [1, channels, KERNEL]))?,
        })
    }

    /// Folds the scales of the residual branches into the matrices before them.
    fn scaled_body(&mut self) -> Loaded<BodyOf<L::Parts>, L> {
        let (mut body, hidden) = (self.body(Part::Codec)?, self.config.codec.transformer.hidden);
        for (at, layer) in body.layers.iter_mut().enumerate() {
            for (matrix, part) in [(&mut layer.output, "self_attn_layer"), (&mut layer.down, "mlp_layer")] {
                let name = format!("decoder.pre_transformer.layers.{at}.{part}_scale.scale");
                self.loader.scale_rows(matrix, &tensor(name, [hidden], Role::Scale))?;
            }
        }
        Ok(body)
    }

    fn next(&mut self, at: usize, ratio: usize) -> Loaded<NextWeights<L::Parts>, L> {
        let (width, name) = (self.config.codec.latent, format!("decoder.upsample.{at}.1"));
        let inner = width.saturating_mul(NEXT_WIDENING);
        let lengthen = ConvTensors::transposed(&format!("decoder.upsample.{at}.0.conv"), [width, width, ratio]);
        let depthwise = ConvTensors::new(&format!("{name}.dwconv.conv"), [width, 1, KERNEL]);
        Ok(NextWeights {
            lengthen: self.loader.conv(&lengthen, ratio)?,
            depthwise: self.loader.depthwise(&depthwise)?,
            norm: [
                self.loader.named_vector(format!("{name}.norm.weight"), width, Role::Norm)?,
                self.loader.named_vector(format!("{name}.norm.bias"), width, Role::Bias)?,
            ],
            up: self.loader.linear(&format!("{name}.pwconv1"), [inner, width])?,
            down: self.loader.linear(&format!("{name}.pwconv2"), [width, inner])?,
            scale: self.loader.named_vector(format!("{name}.gamma"), width, Role::Scale)?,
        })
    }

    fn block(&mut self, at: usize) -> Loaded<BlockWeights<L::Parts>, L> {
        let (codec, name) = (&self.config.codec, format!("decoder.decoder.{}.block", at + 1));
        let (inputs, outputs, rate) = (codec.channels_after(at), codec.channels_after(at + 1), codec.rates[at]);
        let shape = [inputs, outputs, rate.saturating_mul(2)];
        let mut half = |at: usize, part: usize, kernel: usize, dilation: usize| -> Loaded<_, L> {
            let snake = self.snake(&format!("{name}.{at}.act{part}"), outputs)?;
            let conv = format!("{name}.{at}.conv{part}.conv");
            Ok((snake, self.conv(&conv, [outputs, outputs, kernel], dilation)?))
        };
        let mut unit = |at, dilation| -> Loaded<_, L> { Ok([half(at, 1, KERNEL, dilation)?, half(at, 2, 1, 1)?]) };
        Ok(BlockWeights {
            units: (2..).zip(DILATIONS).map(|(at, dilation)| unit(at, dilation)).collect::<Result<_, _>>()?,
            snake: self.snake(&format!("{name}.0"), inputs)?,
            lengthen: self.loader.conv(&ConvTensors::transposed(&format!("{name}.1.conv"), shape), rate)?,
        })
    }
}

impl TtsConfig {
    /// A tensor of a language model as the checkpoint names it.
    pub(crate) fn renamed(part: Part, spec: &TensorSpec) -> TensorSpec {
        let name = match (part, spec.name.as_str()) {
            (Part::Talker, name) => format!("talker.{name}"),
            (Part::Predictor, name) => format!("talker.code_predictor.{name}"),
            (Part::Codec, name) => format!("decoder.pre_transformer.{}", name.trim_start_matches("model.")),
        };
        TensorSpec { name, ..spec.clone() }
    }

    fn codebook(&self, group: usize) -> [TensorSpec; 2] {
        let place = match group {
            0 => "rvq_first.vq.layers.0".to_owned(),
            _ => format!("rvq_rest.vq.layers.{}", group - 1),
        };
        let (prefix, count) = (format!("decoder.quantizer.{place}._codebook"), self.codec.codebook);
        [
            tensor(format!("{prefix}.embedding_sum"), [count, self.codec.vector_width()], Role::Embedding),
            tensor(format!("{prefix}.cluster_usage"), [count], Role::Norm),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_those_of_checkpoints() {
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
