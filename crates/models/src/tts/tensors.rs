//! The tensors of a text-to-speech checkpoint, under the names that it is published with.
//!
//! Layers and norms of the three decoders are those of a decoder alone under other names: [`TtsConfig::renamed`].

use super::{KERNELS, Part, TtsConfig, codec::NEXT_WIDENING};
use crate::{LinearTensors, Role, TensorSpec, tensors::tensor};

/// What the talker has beside its layers and its norm.
#[derive(Debug, Clone)]
pub struct TalkerTensors {
    /// A row for each token of text.
    pub text_embedding: TensorSpec,
    /// What brings it to the width of the talker: one linear part, `silu`, and another.
    pub text_up: LinearTensors,
    /// The other.
    pub text_down: LinearTensors,
    /// A row for each id of the codec's vocabulary.
    pub embedding: TensorSpec,
    /// What makes logits.
    pub head: TensorSpec,
}

/// What the code predictor has beside its layers and its norm.
#[derive(Debug, Clone)]
pub struct PredictorTensors {
    /// What brings rows of the talker's width to the predictor's, where they differ.
    pub bridge: Option<LinearTensors>,
    /// A row of the talker's width for each code, for every group but the first.
    pub embeddings: Vec<TensorSpec>,
    /// What makes logits, for every group but the first.
    pub heads: Vec<TensorSpec>,
}

/// What the codec decoder has beside the layers and the norm of its transformer, in the order in which it needs them.
#[derive(Debug, Clone)]
pub struct CodecTensors {
    /// For each group, the sum of what a vector stands for, and how often it was used: a vector is the one over the other.
    pub codebooks: Vec<[TensorSpec; 2]>,
    /// What brings the first group's vector, and the sum of all others, to the width of codes.
    pub projections: [TensorSpec; 2],
    /// The convolution before the transformer.
    pub input: ConvTensors,
    /// What brings rows to the width of the transformer.
    pub enter: LinearTensors,
    /// What each layer multiplies what it adds with: behind attention, and behind the feed-forward part.
    pub scales: Vec<[TensorSpec; 2]>,
    /// What brings rows back.
    pub leave: LinearTensors,
    /// The blocks that follow.
    pub next: Vec<NextTensors>,
    /// The convolution behind them.
    pub first: ConvTensors,
    /// The last blocks.
    pub blocks: Vec<BlockTensors>,
    /// The activation behind them.
    pub snake: SnakeTensors,
    /// The convolution that makes samples.
    pub last: ConvTensors,
}

/// A convolution: `[outputs, inputs, kernel]`, or `[inputs, outputs, kernel]` where it lengthens, and a bias.
#[derive(Debug, Clone)]
pub struct ConvTensors {
    /// The kernel.
    pub weight: TensorSpec,
    /// What is added.
    pub bias: TensorSpec,
}

/// A block that lengthens, and a ConvNeXt block behind it.
#[derive(Debug, Clone)]
pub struct NextTensors {
    /// The transposed convolution.
    pub lengthen: ConvTensors,
    /// The convolution channel by channel.
    pub depthwise: ConvTensors,
    /// Weight and bias of the norm.
    pub norm: LinearTensors,
    /// The first linear part.
    pub up: LinearTensors,
    /// The second.
    pub down: LinearTensors,
    /// What the block multiplies what it adds with.
    pub scale: TensorSpec,
}

/// A block that lengthens, and three residual units behind it.
#[derive(Debug, Clone)]
pub struct BlockTensors {
    /// The activation before it.
    pub snake: SnakeTensors,
    /// The transposed convolution.
    pub lengthen: ConvTensors,
    /// The units.
    pub units: Vec<UnitTensors>,
}

/// A residual unit.
#[derive(Debug, Clone)]
pub struct UnitTensors {
    /// The first activation.
    pub snake: SnakeTensors,
    /// The first convolution.
    pub wide: ConvTensors,
    /// The second activation.
    pub snake_between: SnakeTensors,
    /// The second convolution, which sees one position.
    pub narrow: ConvTensors,
}

/// What an activation has for every channel: the logarithms of how fast it swings and of what swings are divided by.
#[derive(Debug, Clone)]
pub struct SnakeTensors {
    /// How fast it swings.
    pub alpha: TensorSpec,
    /// What swings are divided by.
    pub beta: TensorSpec,
}

impl TtsConfig {
    /// The tensor of a decoder alone, as the checkpoint names it.
    pub fn renamed(part: Part, spec: &TensorSpec) -> TensorSpec {
        let name = match (part, spec.name.as_str()) {
            (Part::Talker, "model.embed_tokens.weight") => "talker.model.codec_embedding.weight".to_owned(),
            (Part::Talker, "lm_head.weight") => "talker.codec_head.weight".to_owned(),
            (Part::Talker, name) => format!("talker.{name}"),
            (Part::Predictor, name) => format!("talker.code_predictor.{name}"),
            (Part::Codec, name) => format!("decoder.pre_transformer.{}", name.trim_start_matches("model.")),
        };
        TensorSpec { name, ..spec.clone() }
    }

    /// The tensors of the layers of one of its decoders, and of the norm behind them.
    pub fn layers_tensors(&self, part: Part) -> Vec<TensorSpec> {
        let config = self.part(part);
        let layers = (0..config.layers).flat_map(|layer| config.layer_tensors(layer));
        layers.chain([config.final_norm_tensor()]).map(|spec| Self::renamed(part, &spec)).collect()
    }

    /// What the talker has beside its layers.
    pub fn talker_tensors(&self) -> TalkerTensors {
        let (hidden, vocab, width) = (self.talker.hidden, self.talker.vocab, self.text_width);
        let embedding = |name: &str, shape| tensor(format!("talker.model.{name}.weight"), shape, Role::Embedding);
        TalkerTensors {
            text_embedding: embedding("text_embedding", [self.text_vocab, width]),
            text_up: LinearTensors::new("talker.text_projection.linear_fc1", [width, width]),
            text_down: LinearTensors::new("talker.text_projection.linear_fc2", [hidden, width]),
            embedding: embedding("codec_embedding", [vocab, hidden]),
            head: tensor("talker.codec_head.weight".to_owned(), [vocab, hidden], Role::Head),
        }
    }

    /// What the code predictor has beside its layers.
    pub fn predictor_tensors(&self) -> PredictorTensors {
        let prefix = "talker.code_predictor.";
        let (wide, own, vocab) = (self.talker.hidden, self.predictor.hidden, self.predictor.vocab);
        let bridge = || LinearTensors::new(&format!("{prefix}small_to_mtp_projection"), [own, wide]);
        let embedding = |group| {
            let name = format!("{prefix}model.codec_embedding.{group}.weight");
            tensor(name, [vocab, wide], Role::Embedding)
        };
        let head = |group| tensor(format!("{prefix}lm_head.{group}.weight"), [vocab, own], Role::Head);
        PredictorTensors {
            bridge: self.has_bridge().then(bridge),
            embeddings: (0..self.predicted()).map(embedding).collect(),
            heads: (0..self.predicted()).map(head).collect(),
        }
    }

    /// What the codec decoder has beside the layers of its transformer.
    pub fn codec_tensors(&self) -> CodecTensors {
        let codec = &self.codec;
        let (latent, hidden, width) = (codec.latent, codec.transformer.hidden, codec.code_width);
        let projection = |part: &str| {
            let name = format!("decoder.quantizer.{part}.output_proj.weight");
            tensor(name, [width, codec.vector_width(), 1], Role::Conv)
        };
        let blocks = codec.rates.len();
        let behind = codec.channels_behind(blocks);
        CodecTensors {
            codebooks: (0..codec.groups).map(|group| self.codebook_tensors(group)).collect(),
            projections: [projection("rvq_first"), projection("rvq_rest")],
            input: ConvTensors::new("decoder.pre_conv.conv", [latent, width, KERNELS.input]),
            enter: LinearTensors::new("decoder.pre_transformer.input_proj", [hidden, latent]),
            scales: (0..codec.transformer.layers).map(|layer| scale_tensors(layer, hidden)).collect(),
            leave: LinearTensors::new("decoder.pre_transformer.output_proj", [latent, hidden]),
            next: codec.ratios.iter().enumerate().map(|(at, ratio)| NextTensors::new(at, latent, *ratio)).collect(),
            first: ConvTensors::new("decoder.decoder.0.conv", [codec.channels, latent, KERNELS.outer]),
            blocks: (0..blocks).map(|at| self.block_tensors(at)).collect(),
            snake: SnakeTensors::new(&format!("decoder.decoder.{}", blocks + 1), behind),
            last: ConvTensors::new(&format!("decoder.decoder.{}.conv", blocks + 2), [1, behind, KERNELS.outer]),
        }
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

    fn block_tensors(&self, at: usize) -> BlockTensors {
        let prefix = format!("decoder.decoder.{}.block", at + 1);
        let (inputs, outputs) = (self.codec.channels_behind(at), self.codec.channels_behind(at + 1));
        let kernel = self.codec.rates[at].saturating_mul(2);
        BlockTensors {
            snake: SnakeTensors::new(&format!("{prefix}.0"), inputs),
            lengthen: ConvTensors::lengthening(&format!("{prefix}.1.conv"), [inputs, outputs, kernel]),
            units: (2..2 + KERNELS.dilations.len())
                .map(|at| UnitTensors::new(&format!("{prefix}.{at}"), outputs))
                .collect(),
        }
    }

    /// Every tensor of the talker and the predictor: those of `model.safetensors`.
    pub fn talker_file_tensors(&self) -> Vec<TensorSpec> {
        let TalkerTensors { text_embedding, text_up, text_down, embedding, head } = self.talker_tensors();
        let PredictorTensors { bridge, embeddings, heads } = self.predictor_tensors();
        let mut all = vec![text_embedding];
        all.extend(text_up.all());
        all.extend(text_down.all());
        all.push(embedding);
        all.extend(self.layers_tensors(Part::Talker));
        all.push(head);
        all.extend(bridge.into_iter().flat_map(LinearTensors::all));
        all.extend(embeddings);
        all.extend(self.layers_tensors(Part::Predictor));
        all.extend(heads);
        all
    }

    /// Every tensor of the codec decoder: those of `speech_tokenizer/model.safetensors` that are needed.
    pub fn codec_file_tensors(&self) -> Vec<TensorSpec> {
        let CodecTensors { codebooks, projections, input, enter, scales, leave, next, first, blocks, snake, last } =
            self.codec_tensors();
        let mut all: Vec<TensorSpec> = codebooks.into_iter().flatten().chain(projections).collect();
        all.extend(input.all());
        all.extend(enter.all());
        all.extend(self.layers_tensors(Part::Codec));
        all.extend(scales.into_iter().flatten());
        all.extend(leave.all());
        all.extend(next.into_iter().flat_map(NextTensors::all));
        all.extend(first.all());
        all.extend(blocks.into_iter().flat_map(BlockTensors::all));
        all.extend(snake.all());
        all.extend(last.all());
        all
    }
}

fn scale_tensors(layer: usize, hidden: usize) -> [TensorSpec; 2] {
    ["self_attn_layer_scale", "mlp_layer_scale"]
        .map(|part| tensor(format!("decoder.pre_transformer.layers.{layer}.{part}.scale"), [hidden], Role::Scale))
}

impl ConvTensors {
    /// `[outputs, inputs, kernel]`.
    pub(crate) fn new(name: &str, shape: [usize; 3]) -> Self {
        let weight = tensor(format!("{name}.weight"), shape, Role::Conv);
        Self { weight, bias: tensor(format!("{name}.bias"), [shape[0]], Role::Bias) }
    }

    /// `[inputs, outputs, kernel]`, as torch keeps transposed convolutions.
    pub(crate) fn lengthening(name: &str, shape: [usize; 3]) -> Self {
        let weight = tensor(format!("{name}.weight"), shape, Role::Lengthen);
        Self { weight, bias: tensor(format!("{name}.bias"), [shape[1]], Role::Bias) }
    }

    pub(crate) fn all(self) -> Vec<TensorSpec> {
        vec![self.weight, self.bias]
    }
}

impl NextTensors {
    fn new(at: usize, width: usize, ratio: usize) -> Self {
        let (lengthen, next) = (format!("decoder.upsample.{at}.0.conv"), format!("decoder.upsample.{at}.1"));
        let inner = width.saturating_mul(NEXT_WIDENING);
        Self {
            lengthen: ConvTensors::lengthening(&lengthen, [width, width, ratio]),
            depthwise: ConvTensors::new(&format!("{next}.dwconv.conv"), [width, 1, KERNELS.depthwise]),
            norm: LinearTensors {
                weight: tensor(format!("{next}.norm.weight"), [width], Role::Norm),
                bias: tensor(format!("{next}.norm.bias"), [width], Role::Bias),
            },
            up: LinearTensors::new(&format!("{next}.pwconv1"), [inner, width]),
            down: LinearTensors::new(&format!("{next}.pwconv2"), [width, inner]),
            scale: tensor(format!("{next}.gamma"), [width], Role::Scale),
        }
    }

    fn all(self) -> Vec<TensorSpec> {
        let Self { lengthen, depthwise, norm, up, down, scale } = self;
        let linear = [norm, up, down].into_iter().flat_map(LinearTensors::all);
        lengthen.all().into_iter().chain(depthwise.all()).chain(linear).chain([scale]).collect()
    }
}

impl BlockTensors {
    fn all(self) -> Vec<TensorSpec> {
        let Self { snake, lengthen, units } = self;
        let units = units.into_iter().flat_map(UnitTensors::all);
        snake.all().into_iter().chain(lengthen.all()).chain(units).collect()
    }
}

impl UnitTensors {
    fn new(name: &str, channels: usize) -> Self {
        Self {
            snake: SnakeTensors::new(&format!("{name}.act1"), channels),
            wide: ConvTensors::new(&format!("{name}.conv1.conv"), [channels, channels, KERNELS.unit]),
            snake_between: SnakeTensors::new(&format!("{name}.act2"), channels),
            narrow: ConvTensors::new(&format!("{name}.conv2.conv"), [channels, channels, 1]),
        }
    }

    fn all(self) -> Vec<TensorSpec> {
        let Self { snake, wide, snake_between, narrow } = self;
        [snake.all(), wide.all(), snake_between.all(), narrow.all()].concat()
    }
}

impl SnakeTensors {
    fn new(name: &str, channels: usize) -> Self {
        let one = |part: &str| tensor(format!("{name}.{part}"), [channels], Role::Bias);
        Self { alpha: one("alpha"), beta: one("beta") }
    }

    fn all(self) -> Vec<TensorSpec> {
        vec![self.alpha, self.beta]
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
