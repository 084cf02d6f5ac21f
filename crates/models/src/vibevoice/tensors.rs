//! The weights of VibeVoice: one table of the tensors under the names that `transformers` publishes, and one loader.
//!
//! A part of the model is one type over [`Kinds`]: with [`Published`] it is the table, with a device it is what that device
//! has loaded. The tensors of the language model are those of a decoder under other names: [`VibeVoiceConfig::renamed`].
//! The older names are in `names.rs`.

use super::{
    TokenizerConfig, VibeVoiceConfig,
    plan::{ConvShape, StageShape, TokenizerShape},
};
use crate::{LinearTensors, ModelError, Role, TensorSpec, tensors::tensor, tts::ConvTensors};

/// What weights are where they are.
pub trait Kinds {
    type Matrix;
    type Vector;
    /// A matrix and a bias.
    type Linear;
    /// A convolution over time.
    type Conv;
    /// A convolution of each channel by itself.
    type Depthwise;
    /// One number.
    type Number;
}

/// Weights as published tensors.
#[derive(Debug, Clone)]
pub struct Published;

impl Kinds for Published {
    /// Matrices of one width are packed, row after row.
    type Matrix = Vec<TensorSpec>;
    type Vector = TensorSpec;
    type Linear = LinearTensors;
    type Conv = ConvTensors;
    type Depthwise = ConvTensors;
    type Number = TensorSpec;
}

/// Puts published tensors on a device.
pub trait Load {
    type On: Kinds;

    fn matrix(&mut self, tensors: &[TensorSpec]) -> Result<<Self::On as Kinds>::Matrix, ModelError>;
    fn vector(&mut self, tensor: &TensorSpec) -> Result<<Self::On as Kinds>::Vector, ModelError>;
    fn linear(&mut self, tensors: &LinearTensors) -> Result<<Self::On as Kinds>::Linear, ModelError>;
    fn conv(&mut self, tensors: &ConvTensors, shape: ConvShape) -> Result<<Self::On as Kinds>::Conv, ModelError>;
    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<<Self::On as Kinds>::Depthwise, ModelError>;
    fn number(&mut self, tensor: &TensorSpec) -> Result<<Self::On as Kinds>::Number, ModelError>;
}

/// All weights except those of the language model.
pub struct Weights<K: Kinds> {
    pub diffusion_head: DiffusionHead<K>,
    pub semantic_encoder: Tokenizer<K>,
    pub acoustic_decoder: Tokenizer<K>,
    pub acoustic_encoder: Tokenizer<K>,
    /// Of acoustic latents, then of semantic ones.
    pub connectors: [Connector<K>; 2],
    /// Latents are divided by the first, and the second is subtracted: those of the acoustic decoder.
    pub factors: [K::Number; 2],
}

/// Which way a tokenizer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From audio to latents.
    Encoder,
    /// From latents to audio.
    Decoder,
}

/// An encoder or a decoder of audio, in the order in which it needs its weights.
pub struct Tokenizer<K: Kinds> {
    /// The first keeps the length; each other shortens or lengthens.
    pub stages: Vec<Stage<K>>,
    /// The convolution to latents or samples.
    pub head: K::Conv,
    pub shape: TokenizerShape,
    pub eps: f32,
}

/// A stage of a tokenizer: a convolution to its channels, and blocks.
pub struct Stage<K: Kinds> {
    pub enter: K::Conv,
    pub blocks: Vec<Mixer<K>>,
}

/// A block: it mixes positions channel by channel, then comes a feed-forward part. The scales multiply what each adds.
pub struct Mixer<K: Kinds> {
    pub norm: K::Vector,
    pub mixer: K::Depthwise,
    pub scale: K::Vector,
    pub ffn_norm: K::Vector,
    pub up: K::Linear,
    pub down: K::Linear,
    pub ffn_scale: K::Vector,
}

/// Projects latents to the width of the language model.
pub struct Connector<K: Kinds> {
    pub enter: K::Linear,
    pub norm: K::Vector,
    pub leave: K::Linear,
}

/// The diffusion head. None of its linear layers has a bias.
pub struct DiffusionHead<K: Kinds> {
    /// Projects a noisy latent.
    pub enter: K::Matrix,
    /// Projects the hidden state of the language model.
    pub condition: K::Matrix,
    /// Project a time, with `silu` between them.
    pub time: [K::Matrix; 2],
    pub layers: Vec<HeadLayer<K>>,
    /// Shift and scale of the last norm.
    pub last_adapt: K::Matrix,
    /// Projects to a velocity.
    pub leave: K::Matrix,
}

/// A layer of the diffusion head.
pub struct HeadLayer<K: Kinds> {
    pub norm: K::Vector,
    /// Shift, scale and gate.
    pub adapt: K::Matrix,
    pub gate_up: K::Matrix,
    pub down: K::Matrix,
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
        let one = |name: &str, role| tensor(format!("model.{name}"), [], role);
        Weights {
            diffusion_head: self.diffusion_head(),
            semantic_encoder: self.semantic_encoder(),
            acoustic_decoder: self.acoustic_decoder(),
            acoustic_encoder: self.acoustic_encoder(),
            connectors: self.connectors(),
            factors: [one("latent_scaling_factor", Role::Norm), one("latent_bias_factor", Role::Bias)],
        }
    }

    pub(crate) fn acoustic_encoder(&self) -> Tokenizer<Published> {
        Tokenizer::new("model.audio_tower.encoder", &self.acoustic, Way::Encoder)
    }

    pub(crate) fn acoustic_decoder(&self) -> Tokenizer<Published> {
        Tokenizer::new("model.audio_tower.decoder", &self.acoustic, Way::Decoder)
    }

    pub(crate) fn semantic_encoder(&self) -> Tokenizer<Published> {
        Tokenizer::new("model.semantic_tokenizer_encoder", &self.semantic, Way::Encoder)
    }

    /// The connector of acoustic latents, and that of semantic ones.
    pub(crate) fn connectors(&self) -> [Connector<Published>; 2] {
        let (hidden, latents) = (self.decoder.hidden, [self.acoustic.latent, self.semantic.latent]);
        let connector = |name: &str, latent: usize| Connector {
            enter: LinearTensors::new(&format!("model.{name}.linear_1"), [hidden, latent]),
            norm: tensor(format!("model.{name}.act.weight"), [hidden], Role::Norm),
            leave: LinearTensors::new(&format!("model.{name}.linear_2"), [hidden, hidden]),
        };
        [connector("multi_modal_projector", latents[0]), connector("semantic_connector", latents[1])]
    }

    pub(crate) fn diffusion_head(&self) -> DiffusionHead<Published> {
        let (hidden, latent, ffn) = (self.decoder.hidden, self.acoustic.latent, self.head.ffn);
        let linear =
            |name: &str, shape: [usize; 2]| tensor(format!("model.diffusion_head.{name}.weight"), shape, Role::Linear);
        let one = |name: &str, shape| vec![linear(name, shape)];
        let layer = |at: usize| HeadLayer {
            norm: tensor(format!("model.diffusion_head.layers.{at}.norm.weight"), [hidden], Role::Norm),
            adapt: one(&format!("layers.{at}.linear"), [hidden.saturating_mul(3), hidden]),
            gate_up: ["gate", "up"].map(|part| linear(&format!("layers.{at}.ffn.{part}_proj"), [ffn, hidden])).into(),
            down: one(&format!("layers.{at}.ffn.down_proj"), [hidden, ffn]),
        };
        DiffusionHead {
            enter: one("noisy_images_proj", [hidden, latent]),
            condition: one("cond_proj", [hidden, hidden]),
            time: [
                one("timestep_proj.fc1", [hidden, self.head.frequencies]),
                one("timestep_proj.fc2", [hidden, hidden]),
            ],
            layers: (0..self.head.layers).map(layer).collect(),
            last_adapt: one("final_layer.linear_1", [hidden.saturating_mul(2), hidden]),
            leave: one("final_layer.linear_2", [latent, hidden]),
        }
    }

    /// Every tensor of its checkpoint.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let mut all = All(self.decoder.tensors().iter().map(Self::renamed).collect());
        // Listing cannot fail.
        let _ = self.published().load(&mut all);
        all.0
    }
}

/// Lists the tensors of a table.
pub struct All(pub Vec<TensorSpec>);

impl Kinds for All {
    type Matrix = ();
    type Vector = ();
    type Linear = ();
    type Conv = ();
    type Depthwise = ();
    type Number = ();
}

impl Load for All {
    type On = Self;

    fn matrix(&mut self, tensors: &[TensorSpec]) -> Result<(), ModelError> {
        self.0.extend_from_slice(tensors);
        Ok(())
    }

    fn vector(&mut self, tensor: &TensorSpec) -> Result<(), ModelError> {
        self.matrix(std::slice::from_ref(tensor))
    }

    fn linear(&mut self, tensors: &LinearTensors) -> Result<(), ModelError> {
        self.matrix(&tensors.clone().all())
    }

    fn conv(&mut self, tensors: &ConvTensors, _: ConvShape) -> Result<(), ModelError> {
        self.matrix(&tensors.clone().all())
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<(), ModelError> {
        self.matrix(&tensors.clone().all())
    }

    fn number(&mut self, tensor: &TensorSpec) -> Result<(), ModelError> {
        self.vector(tensor)
    }
}

impl Weights<Published> {
    /// Loads all of them.
    pub fn load<L: Load>(&self, loader: &mut L) -> Result<Weights<L::On>, ModelError> {
        let ([acoustic, semantic], [scale, bias]) = (&self.connectors, &self.factors);
        Ok(Weights {
            diffusion_head: self.diffusion_head.load(loader)?,
            semantic_encoder: self.semantic_encoder.load(loader)?,
            acoustic_decoder: self.acoustic_decoder.load(loader)?,
            acoustic_encoder: self.acoustic_encoder.load(loader)?,
            connectors: [acoustic.load(loader)?, semantic.load(loader)?],
            factors: [loader.number(scale)?, loader.number(bias)?],
        })
    }
}

impl DiffusionHead<Published> {
    pub fn load<L: Load>(&self, loader: &mut L) -> Result<DiffusionHead<L::On>, ModelError> {
        let (enter, condition) = (loader.matrix(&self.enter)?, loader.matrix(&self.condition)?);
        let time = [loader.matrix(&self.time[0])?, loader.matrix(&self.time[1])?];
        let mut layer = |layer: &HeadLayer<Published>| -> Result<_, ModelError> {
            Ok(HeadLayer {
                norm: loader.vector(&layer.norm)?,
                adapt: loader.matrix(&layer.adapt)?,
                gate_up: loader.matrix(&layer.gate_up)?,
                down: loader.matrix(&layer.down)?,
            })
        };
        let layers = self.layers.iter().map(&mut layer).collect::<Result<_, _>>()?;
        let (last_adapt, leave) = (loader.matrix(&self.last_adapt)?, loader.matrix(&self.leave)?);
        Ok(DiffusionHead { enter, condition, time, layers, last_adapt, leave })
    }
}

impl Connector<Published> {
    fn load<L: Load>(&self, loader: &mut L) -> Result<Connector<L::On>, ModelError> {
        let (enter, norm) = (loader.linear(&self.enter)?, loader.vector(&self.norm)?);
        Ok(Connector { enter, norm, leave: loader.linear(&self.leave)? })
    }
}

impl Tokenizer<Published> {
    fn new(name: &str, config: &TokenizerConfig, way: Way) -> Self {
        let last = config.ratios.len();
        // Stages are counted in the order in which they run: from the audio, or from latents.
        let place = |stage: usize| if way == Way::Encoder { stage } else { last.saturating_sub(stage) };
        let mut shape = TokenizerShape::new(config, way);
        let mut stage = |at: usize| {
            let (channels, prefix) = (config.channels(place(at)), stage_name(name, at));
            let depth = config.depths.get(place(at)).copied().unwrap_or_default();
            let of = match at.checked_sub(1).map(place) {
                None => shape.stem(config, channels),
                // The ratio between two stages is that of the lower one.
                Some(before) => {
                    shape.changing([config.channels(before), channels], config.ratios[before.min(place(at))])
                }
            };
            let inner = channels.saturating_mul(config.widening);
            shape.stages.push(StageShape { enter: of, blocks: depth, inner });
            let blocks = (0..depth).map(|block| Mixer::new(&prefix, block, channels, config)).collect();
            Stage { enter: of.tensors(&prefix), blocks }
        };
        let stages = (0..=last).map(&mut stage).collect();
        let head =
            ConvTensors::new(&format!("{name}.head.conv"), [shape.head.outputs, shape.head.inputs, config.kernel]);
        Self { stages, head, shape, eps: config.norm_eps as f32 }
    }

    /// All of its tensors, in order.
    pub fn all(&self) -> Vec<TensorSpec> {
        let mut all = All(Vec::new());
        let _ = self.load(&mut all);
        all.0
    }

    fn load<L: Load>(&self, loader: &mut L) -> Result<Tokenizer<L::On>, ModelError> {
        let stages = self.stages.iter().zip(&self.shape.stages).map(|(stage, shape)| {
            let enter = loader.conv(&stage.enter, shape.enter)?;
            let blocks = stage.blocks.iter().map(|block| block.load(loader)).collect::<Result<_, _>>()?;
            Ok(Stage { enter, blocks })
        });
        let stages = stages.collect::<Result<_, ModelError>>()?;
        let head = loader.conv(&self.head, self.shape.head)?;
        Ok(Tokenizer { stages, head, shape: self.shape.clone(), eps: self.eps })
    }
}

fn stage_name(name: &str, stage: usize) -> String {
    match stage.checked_sub(1) {
        None => format!("{name}.stem"),
        Some(layer) => format!("{name}.conv_layers.{layer}"),
    }
}

impl ConvShape {
    /// Its tensors, at the beginning of a stage.
    fn tensors(self, stage: &str) -> ConvTensors {
        match self.is_transposed {
            true => {
                ConvTensors::lengthening(&format!("{stage}.convtr.convtr"), [self.inputs, self.outputs, self.kernel])
            }
            false => ConvTensors::new(&format!("{stage}.conv.conv"), [self.outputs, self.inputs, self.kernel]),
        }
    }
}

impl Mixer<Published> {
    fn new(prefix: &str, block: usize, channels: usize, config: &TokenizerConfig) -> Self {
        let name = |part: &str| format!("{prefix}.stage.{block}.{part}");
        let inner = channels.saturating_mul(config.widening);
        Self {
            norm: tensor(name("norm.weight"), [channels], Role::Norm),
            mixer: ConvTensors::new(&name("mixer.conv"), [channels, 1, config.kernel]),
            scale: tensor(name("gamma"), [channels], Role::Scale),
            ffn_norm: tensor(name("ffn_norm.weight"), [channels], Role::Norm),
            up: LinearTensors::new(&name("ffn.linear1"), [inner, channels]),
            down: LinearTensors::new(&name("ffn.linear2"), [channels, inner]),
            ffn_scale: tensor(name("ffn_gamma"), [channels], Role::Scale),
        }
    }

    fn load<L: Load>(&self, loader: &mut L) -> Result<Mixer<L::On>, ModelError> {
        Ok(Mixer {
            norm: loader.vector(&self.norm)?,
            mixer: loader.depthwise(&self.mixer)?,
            scale: loader.vector(&self.scale)?,
            ffn_norm: loader.vector(&self.ffn_norm)?,
            up: loader.linear(&self.up)?,
            down: loader.linear(&self.down)?,
            ffn_scale: loader.vector(&self.ffn_scale)?,
        })
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
