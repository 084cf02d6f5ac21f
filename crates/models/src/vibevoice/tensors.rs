//! The weights of VibeVoice: one table of the tensors under the names that `transformers` publishes, and one loader.
//!
//! A part of the model is one type over [`Kinds`]: with [`Published`] it is the table, with a device it is what that device
//! has loaded. The tensors of the language model are those of a decoder under other names: [`VibeVoiceConfig::renamed`].
//! The older names are in `names.rs`.

use super::{
    TokenizerConfig, VibeVoiceConfig,
    plan::{ConvShape, StageShape, TokenizerShape, Way},
};
use crate::{Done, ModelError, Role, TensorSpec, tensors::tensor, tts::ConvTensors};

/// What weights are where they are.
pub trait Kinds: Sized {
    type Matrix;
    type Vector;
    /// A convolution over time.
    type Conv;
    /// A convolution of each channel by itself.
    type Depthwise;
}

/// Weights as published tensors. Matrices of one width are packed, row after row.
pub struct Published;

impl Kinds for Published {
    type Matrix = Vec<TensorSpec>;
    type Vector = TensorSpec;
    type Conv = ConvTensors;
    type Depthwise = ConvTensors;
}

/// Puts published tensors on a device.
pub trait Load<On: Kinds> {
    fn matrix(&mut self, tensors: &[TensorSpec]) -> Result<On::Matrix, ModelError>;
    fn vector(&mut self, tensor: &TensorSpec) -> Result<On::Vector, ModelError>;
    fn conv(&mut self, tensors: &ConvTensors, shape: ConvShape) -> Result<On::Conv, ModelError>;
    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<On::Depthwise, ModelError>;
}

/// Lists the tensors of a table.
#[derive(Default)]
pub struct All(pub Vec<TensorSpec>);

impl Kinds for () {
    type Matrix = ();
    type Vector = ();
    type Conv = ();
    type Depthwise = ();
}

impl Load<()> for All {
    fn matrix(&mut self, tensors: &[TensorSpec]) -> Done {
        self.0.extend_from_slice(tensors);
        Ok(())
    }

    fn vector(&mut self, tensor: &TensorSpec) -> Done {
        self.matrix(std::slice::from_ref(tensor))
    }

    fn conv(&mut self, tensors: &ConvTensors, _: ConvShape) -> Done {
        self.depthwise(tensors)
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Done {
        self.matrix(&tensors.clone().all())
    }
}

/// Defines a part of the weights: fields of a kind, which a method of the loader loads, then parts and lists of parts.
macro_rules! part {
    (
        $(#[$doc:meta])*
        $name:ident { $($field:ident: $kind:ident $load:ident,)* } { $($inner:ident: $part:ident,)* } $([$list:ident: $of:ident])?
    ) => {
        $(#[$doc])*
        pub struct $name<K: Kinds> {
            $(pub $field: K::$kind,)*
            $(pub $inner: $part<K>,)*
            $(pub $list: Vec<$of<K>>,)?
        }

        impl $name<Published> {
            pub fn load<K: Kinds>(&self, loader: &mut impl Load<K>) -> Result<$name<K>, ModelError> {
                Ok($name {
                    $($field: loader.$load(&self.$field)?,)*
                    $($inner: self.$inner.load(loader)?,)*
                    $($list: self.$list.iter().map(|part| part.load(loader)).collect::<Result<_, _>>()?,)?
                })
            }
        }
    };
}

part! {
    Linear { weight: Matrix matrix, bias: Vector vector, } {}
}

part! {
    /// A block of a tokenizer: it mixes positions channel by channel, then comes a feed-forward part. The scales multiply
    /// what each adds.
    Mixer {
        norm: Vector vector,
        mixer: Depthwise depthwise,
        scale: Vector vector,
        ffn_norm: Vector vector,
        ffn_scale: Vector vector,
    } { up: Linear, down: Linear, }
}

part! {
    /// Projects latents to the width of the language model.
    Connector { norm: Vector vector, } { enter: Linear, leave: Linear, }
}

part! {
    /// The diffusion head, without biases: `enter` projects a noisy latent, `condition` a hidden state of the language model,
    /// `time` a time with `silu` between its matrices, and `leave` projects to a velocity. `adapt` gives shift and scale of
    /// the last norm.
    DiffusionHead {
        enter: Matrix matrix,
        condition: Matrix matrix,
        time_in: Matrix matrix,
        time_out: Matrix matrix,
        adapt: Matrix matrix,
        leave: Matrix matrix,
    } {} [layers: HeadLayer]
}

part! {
    /// A layer of the diffusion head: `adapt` gives shift, scale and gate.
    HeadLayer { norm: Vector vector, adapt: Matrix matrix, gate_up: Matrix matrix, down: Matrix matrix, } {}
}

part! {
    Weights {} {
        diffusion_head: DiffusionHead,
        semantic_encoder: Tokenizer,
        acoustic_decoder: Tokenizer,
        acoustic_encoder: Tokenizer,
        acoustic_connector: Connector,
        semantic_connector: Connector,
    }
}

/// An encoder or a decoder of audio: stages, and the convolution to latents or samples.
pub struct Tokenizer<K: Kinds> {
    /// The first keeps the length; each other shortens or lengthens.
    pub stages: Vec<Stage<K>>,
    pub head: K::Conv,
    pub shape: TokenizerShape,
}

/// A stage of a tokenizer: a convolution to its channels, and blocks.
pub struct Stage<K: Kinds> {
    pub enter: K::Conv,
    pub blocks: Vec<Mixer<K>>,
}

impl VibeVoiceConfig {
    /// The tensor of a decoder alone, as the checkpoint names it.
    pub fn renamed(spec: &TensorSpec) -> TensorSpec {
        let name = match spec.name.strip_prefix("model.") {
            Some(rest) => format!("model.language_model.{rest}"),
            None => spec.name.clone(),
        };
        TensorSpec { name, ..spec.clone() }
    }

    /// The table of all weights except those of the language model.
    pub(crate) fn published(&self) -> Weights<Published> {
        let (hidden, [acoustic, semantic]) = (self.decoder.hidden, [self.acoustic.latent, self.semantic.latent]);
        Weights {
            diffusion_head: self.diffusion_head(),
            semantic_encoder: Tokenizer::new("model.semantic_tokenizer_encoder", &self.semantic, Way::Encoder),
            acoustic_decoder: Tokenizer::new("model.audio_tower.decoder", &self.acoustic, Way::Decoder),
            acoustic_encoder: Tokenizer::new("model.audio_tower.encoder", &self.acoustic, Way::Encoder),
            acoustic_connector: Connector::new("model.multi_modal_projector", acoustic, hidden),
            semantic_connector: Connector::new("model.semantic_connector", semantic, hidden),
        }
    }

    /// The factors of latents: they are divided by the first, and the second is subtracted, for the acoustic decoder.
    pub(crate) fn factors(&self) -> [TensorSpec; 2] {
        let one = |name: &str, role| tensor(format!("model.{name}"), [], role);
        [one("latent_scaling_factor", Role::Norm), one("latent_bias_factor", Role::Bias)]
    }

    fn diffusion_head(&self) -> DiffusionHead<Published> {
        let (hidden, latent, ffn) = (self.decoder.hidden, self.acoustic.latent, self.head.ffn);
        let named =
            |name: &str, shape: [usize; 2]| tensor(format!("model.diffusion_head.{name}.weight"), shape, Role::Linear);
        let linear = |name: &str, shape| vec![named(name, shape)];
        let layer = |at: usize| HeadLayer {
            norm: tensor(format!("model.diffusion_head.layers.{at}.norm.weight"), [hidden], Role::Norm),
            adapt: linear(&format!("layers.{at}.linear"), [hidden.saturating_mul(3), hidden]),
            gate_up: ["gate", "up"].map(|part| named(&format!("layers.{at}.ffn.{part}_proj"), [ffn, hidden])).into(),
            down: linear(&format!("layers.{at}.ffn.down_proj"), [hidden, ffn]),
        };
        DiffusionHead {
            enter: linear("noisy_images_proj", [hidden, latent]),
            condition: linear("cond_proj", [hidden, hidden]),
            time_in: linear("timestep_proj.fc1", [hidden, self.head.frequencies]),
            time_out: linear("timestep_proj.fc2", [hidden, hidden]),
            layers: (0..self.head.layers).map(layer).collect(),
            adapt: linear("final_layer.linear_1", [hidden.saturating_mul(2), hidden]),
            leave: linear("final_layer.linear_2", [latent, hidden]),
        }
    }

    /// Every tensor of its checkpoint.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let decoder = self.decoder.tensors();
        let mut all = All(decoder.iter().map(Self::renamed).chain(self.factors()).collect());
        // Listing cannot fail.
        let _ = self.published().load(&mut all);
        all.0
    }
}

impl Linear<Published> {
    fn new(name: &str, [outputs, inputs]: [usize; 2]) -> Self {
        Self {
            weight: vec![tensor(format!("{name}.weight"), [outputs, inputs], Role::Linear)],
            bias: tensor(format!("{name}.bias"), [outputs], Role::Bias),
        }
    }
}

impl Connector<Published> {
    fn new(name: &str, latent: usize, hidden: usize) -> Self {
        Self {
            enter: Linear::new(&format!("{name}.linear_1"), [hidden, latent]),
            norm: tensor(format!("{name}.act.weight"), [hidden], Role::Norm),
            leave: Linear::new(&format!("{name}.linear_2"), [hidden, hidden]),
        }
    }
}

impl Tokenizer<Published> {
    fn new(name: &str, config: &TokenizerConfig, way: Way) -> Self {
        let shape = TokenizerShape::new(config, way);
        let stage = |(at, of): (usize, &StageShape)| {
            let prefix =
                at.checked_sub(1).map_or_else(|| format!("{name}.stem"), |at| format!("{name}.conv_layers.{at}"));
            let block = |block: usize| Mixer::new(&format!("{prefix}.stage.{block}"), of, shape.taps);
            let ConvShape { inputs, outputs, kernel, .. } = of.enter;
            let enter = match of.enter.is_transposed {
                true => ConvTensors::lengthening(&format!("{prefix}.convtr.convtr"), [inputs, outputs, kernel]),
                false => ConvTensors::new(&format!("{prefix}.conv.conv"), [outputs, inputs, kernel]),
            };
            Stage { enter, blocks: (0..of.blocks).map(block).collect() }
        };
        let stages = shape.stages.iter().enumerate().map(stage).collect();
        let head = ConvTensors::new(&format!("{name}.head.conv"), [shape.head.outputs, shape.head.inputs, shape.taps]);
        Self { stages, head, shape }
    }

    pub fn load<K: Kinds>(&self, loader: &mut impl Load<K>) -> Result<Tokenizer<K>, ModelError> {
        let stages = self.stages.iter().zip(&self.shape.stages).map(|(stage, shape)| {
            let enter = loader.conv(&stage.enter, shape.enter)?;
            let blocks = stage.blocks.iter().map(|block| block.load(loader)).collect::<Result<_, _>>()?;
            Ok(Stage { enter, blocks })
        });
        let stages = stages.collect::<Result<_, ModelError>>()?;
        Ok(Tokenizer { stages, head: loader.conv(&self.head, self.shape.head)?, shape: self.shape.clone() })
    }
}

impl Mixer<Published> {
    fn new(name: &str, of: &StageShape, taps: usize) -> Self {
        let channels = of.enter.outputs;
        let vector = |part: &str, role| tensor(format!("{name}.{part}"), [channels], role);
        Self {
            norm: vector("norm.weight", Role::Norm),
            mixer: ConvTensors::new(&format!("{name}.mixer.conv"), [channels, 1, taps]),
            scale: vector("gamma", Role::Scale),
            ffn_norm: vector("ffn_norm.weight", Role::Norm),
            up: Linear::new(&format!("{name}.ffn.linear1"), [of.inner, channels]),
            down: Linear::new(&format!("{name}.ffn.linear2"), [channels, of.inner]),
            ffn_scale: vector("ffn_gamma", Role::Scale),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_different_and_those_of_checkpoints() {
        let config = VibeVoiceConfig::from_preset("7b").unwrap();
        let all = config.tensors();
        let shape = |name: &str| {
            let found = all.iter().find(|spec| spec.name == name).unwrap_or_else(|| panic!("no `{name}`"));
            found.shape.clone()
        };
        assert_eq!(shape("model.language_model.layers.27.mlp.down_proj.weight"), [3584, 18_944]);
        assert_eq!(shape("lm_head.weight"), [152_064, 3584]);
        assert_eq!(shape("model.audio_tower.encoder.stem.conv.conv.weight"), [32, 1, 7]);
        assert_eq!(shape("model.audio_tower.encoder.conv_layers.0.conv.conv.weight"), [64, 32, 4]);
        assert_eq!(shape("model.audio_tower.encoder.conv_layers.5.conv.conv.weight"), [2048, 1024, 16]);
        assert_eq!(shape("model.audio_tower.encoder.conv_layers.5.stage.7.mixer.conv.weight"), [2048, 1, 7]);
        assert_eq!(shape("model.audio_tower.decoder.stem.stage.7.ffn.linear1.weight"), [8192, 2048]);
        assert_eq!(shape("model.audio_tower.decoder.conv_layers.0.convtr.convtr.weight"), [2048, 1024, 16]);
        assert_eq!(shape("model.audio_tower.decoder.conv_layers.5.convtr.convtr.weight"), [64, 32, 4]);
        assert_eq!(shape("model.audio_tower.decoder.head.conv.weight"), [1, 32, 7]);
        assert_eq!(shape("model.semantic_tokenizer_encoder.head.conv.weight"), [128, 2048, 7]);
        assert_eq!(shape("model.semantic_connector.linear_1.weight"), [3584, 128]);
        assert_eq!(shape("model.diffusion_head.layers.3.linear.weight"), [10_752, 3584]);
        assert_eq!(shape("model.latent_scaling_factor"), [0; 0]);
        let names: HashSet<&str> = all.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
    }
}
