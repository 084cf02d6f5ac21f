//! The weights of VibeVoice: one table of tensors by their names in `transformers`, which devices load and predictions count.
//!
//! The language model has another prefix than a separate one: [`VibeVoiceConfig::renamed`]. `weights.rs` has the names
//! of the first checkpoints.

use super::plan::{Coder, ConvShape, StageShape, TokenizerShape};
use super::{TokenizerConfig, VibeVoiceConfig, count::Count};
use crate::decoder::{count::Specs, weights::Load};
use crate::tts::{self, ConvTensors, LoadNamed, Loaded};
use crate::{HasTensors, Role, TensorSpec, tensors::tensor};

/// How a device stores weights.
pub trait Kinds: Sized {
    type Matrix;
    type Vector;
    type Conv;
    type Depthwise;
}

/// Loads published tensors as [`Kinds`].
pub trait VoiceLoad<K: Kinds>: Load<Matrix = K::Matrix, Vector = K::Vector> {
    fn conv(&mut self, tensors: &ConvTensors, shape: ConvShape) -> Loaded<K::Conv, Self>;
    fn depthwise(&mut self, tensors: &ConvTensors) -> Loaded<K::Depthwise, Self>;
}

pub type Linear<K> = tts::Linear<<K as Kinds>::Matrix, <K as Kinds>::Vector>;

/// A block of a tokenizer: a depthwise convolution over positions, then a feed-forward part, both with a scale per channel.
pub struct Mixer<K: Kinds> {
    pub norm: K::Vector,
    pub mixer: K::Depthwise,
    pub scale: K::Vector,
    pub ffn_norm: K::Vector,
    pub ffn_scale: K::Vector,
    pub up: Linear<K>,
    pub down: Linear<K>,
}

/// Projects latents to the width of the language model.
pub struct Connector<K: Kinds> {
    pub norm: K::Vector,
    pub enter: Linear<K>,
    pub leave: Linear<K>,
}

/// The diffusion head, without biases: `enter` projects a noisy latent, `condition` a hidden state of the language model,
/// `time_in` and `time_out` a time embedding (with SiLU between), and `leave` projects to a velocity. `adapt` gives shift
/// and scale of the last norm.
pub struct DiffusionHead<K: Kinds> {
    pub enter: K::Matrix,
    pub condition: K::Matrix,
    pub time_in: K::Matrix,
    pub time_out: K::Matrix,
    pub adapt: K::Matrix,
    pub leave: K::Matrix,
    pub layers: Vec<HeadLayer<K>>,
}

/// A layer of the diffusion head: `adapt` gives shift, scale and gate.
pub struct HeadLayer<K: Kinds> {
    pub norm: K::Vector,
    pub adapt: K::Matrix,
    pub gate_up: K::Matrix,
    pub down: K::Matrix,
}

/// All weights except those of the language model.
pub struct Weights<K: Kinds> {
    pub diffusion_head: DiffusionHead<K>,
    pub semantic_encoder: Tokenizer<K>,
    pub acoustic_decoder: Tokenizer<K>,
    pub acoustic_encoder: Tokenizer<K>,
    pub acoustic_connector: Connector<K>,
    pub semantic_connector: Connector<K>,
}

/// An encoder or a decoder of audio: stages, and the convolution to latents or samples.
pub struct Tokenizer<K: Kinds> {
    /// The first keeps the length, the others resample.
    pub stages: Vec<Stage<K>>,
    pub head: K::Conv,
    pub shape: TokenizerShape,
}

pub struct Stage<K: Kinds> {
    pub enter: K::Conv,
    pub blocks: Vec<Mixer<K>>,
}

impl VibeVoiceConfig {
    /// A tensor of a language model as the checkpoint names it.
    pub(crate) fn renamed(spec: &TensorSpec) -> TensorSpec {
        let name = match spec.name.strip_prefix("model.") {
            Some(rest) => format!("model.language_model.{rest}"),
            None => spec.name.clone(),
        };
        TensorSpec { name, ..spec.clone() }
    }

    /// Loads all weights except those of the language model.
    pub(crate) fn load<K: Kinds, L: VoiceLoad<K>>(&self, loader: &mut L) -> Loaded<Weights<K>, L> {
        let (hidden, [acoustic, semantic]) = (self.decoder.hidden, [self.acoustic.latent, self.semantic.latent]);
        Ok(Weights {
            diffusion_head: self.diffusion_head(loader)?,
            semantic_encoder: Tokenizer::load(loader, "semantic_tokenizer_encoder", &self.semantic, Coder::Encoder)?,
            acoustic_decoder: Tokenizer::load(loader, "audio_tower.decoder", &self.acoustic, Coder::Decoder)?,
            acoustic_encoder: Tokenizer::load(loader, "audio_tower.encoder", &self.acoustic, Coder::Encoder)?,
            acoustic_connector: Connector::load(loader, "model.multi_modal_projector", acoustic, hidden)?,
            semantic_connector: Connector::load(loader, "model.semantic_connector", semantic, hidden)?,
        })
    }

    /// The specs of these weights, and a list of all of them.
    pub(crate) fn specs(&self) -> (Weights<Count>, Vec<TensorSpec>) {
        let mut loader = Specs::default();
        let Ok(weights) = self.load(&mut loader);
        (weights, loader.0)
    }

    /// For the acoustic decoder, latents are divided by the first and the second is subtracted.
    pub(crate) fn factors(&self) -> [TensorSpec; 2] {
        let one = |name: &str, role| tensor(format!("model.{name}"), [], role);
        [one("latent_scaling_factor", Role::Norm), one("latent_bias_factor", Role::Bias)]
    }

    pub(super) fn diffusion_head<K: Kinds, L: VoiceLoad<K>>(&self, loader: &mut L) -> Loaded<DiffusionHead<K>, L> {
        let (hidden, latent) = (self.decoder.hidden, self.acoustic.latent);
        let named =
            |name: &str, shape: [usize; 2]| tensor(format!("model.diffusion_head.{name}.weight"), shape, Role::Linear);
        Ok(DiffusionHead {
            enter: loader.matrix(&[named("noisy_images_proj", [hidden, latent])])?,
            condition: loader.matrix(&[named("cond_proj", [hidden, hidden])])?,
            time_in: loader.matrix(&[named("timestep_proj.fc1", [hidden, self.head.frequencies])])?,
            time_out: loader.matrix(&[named("timestep_proj.fc2", [hidden, hidden])])?,
            adapt: loader.matrix(&[named("final_layer.linear_1", [hidden.saturating_mul(2), hidden])])?,
            leave: loader.matrix(&[named("final_layer.linear_2", [latent, hidden])])?,
            layers: (0..self.head.layers).map(|at| self.head_layer(loader, at)).collect::<Result<_, _>>()?,
        })
    }

    fn head_layer<K: Kinds, L: VoiceLoad<K>>(&self, loader: &mut L, at: usize) -> Loaded<HeadLayer<K>, L> {
        let (hidden, ffn, prefix) = (self.decoder.hidden, self.head.ffn, format!("model.diffusion_head.layers.{at}"));
        let named = |name: &str, shape: [usize; 2]| tensor(format!("{prefix}.{name}.weight"), shape, Role::Linear);
        Ok(HeadLayer {
            norm: loader.named_vector(format!("{prefix}.norm.weight"), hidden, Role::Norm)?,
            adapt: loader.matrix(&[named("linear", [hidden.saturating_mul(3), hidden])])?,
            gate_up: loader.matrix(&["ffn.gate_proj", "ffn.up_proj"].map(|name| named(name, [ffn, hidden])))?,
            down: loader.matrix(&[named("ffn.down_proj", [hidden, ffn])])?,
        })
    }
}

impl HasTensors for VibeVoiceConfig {
    fn all_tensors(&self) -> Vec<TensorSpec> {
        let decoder = self.decoder.tensors();
        decoder.iter().map(Self::renamed).chain(self.factors()).chain(self.specs().1).collect()
    }
}

impl<K: Kinds> DiffusionHead<K> {
    /// The adaptations of the layers, then that of the last norm.
    pub fn adapts(&self) -> impl Iterator<Item = &K::Matrix> {
        self.layers.iter().map(|layer| &layer.adapt).chain([&self.adapt])
    }
}

impl<K: Kinds> Connector<K> {
    fn load<L: VoiceLoad<K>>(loader: &mut L, name: &str, latent: usize, hidden: usize) -> Loaded<Self, L> {
        Ok(Self {
            norm: loader.named_vector(format!("{name}.act.weight"), hidden, Role::Norm)?,
            enter: loader.linear(&format!("{name}.linear_1"), [hidden, latent])?,
            leave: loader.linear(&format!("{name}.linear_2"), [hidden, hidden])?,
        })
    }
}

impl<K: Kinds> Tokenizer<K> {
    fn load<L: VoiceLoad<K>>(loader: &mut L, part: &str, config: &TokenizerConfig, coder: Coder) -> Loaded<Self, L> {
        let (name, shape) = (format!("model.{part}"), TokenizerShape::new(config, coder));
        let stage = |(at, of): (usize, &StageShape)| {
            let prefix =
                at.checked_sub(1).map_or_else(|| format!("{name}.stem"), |at| format!("{name}.conv_layers.{at}"));
            let ConvShape { inputs, outputs, kernel, .. } = of.enter;
            let enter = match of.enter.is_transposed {
                true => ConvTensors::transposed(&format!("{prefix}.convtr.convtr"), [inputs, outputs, kernel]),
                false => ConvTensors::new(&format!("{prefix}.conv.conv"), [outputs, inputs, kernel]),
            };
            let enter = loader.conv(&enter, of.enter)?;
            let blocks = (0..of.blocks).map(|at| Mixer::load(loader, &format!("{prefix}.stage.{at}"), of, shape.taps));
            Ok(Stage { enter, blocks: blocks.collect::<Result<_, _>>()? })
        };
        let stages = shape.stages.iter().enumerate().map(stage).collect::<Result<_, _>>()?;
        let head = ConvTensors::new(&format!("{name}.head.conv"), [shape.head.outputs, shape.head.inputs, shape.taps]);
        Ok(Self { stages, head: loader.conv(&head, shape.head)?, shape })
    }
}

impl<K: Kinds> Mixer<K> {
    fn load<L: VoiceLoad<K>>(loader: &mut L, name: &str, of: &StageShape, taps: usize) -> Loaded<Self, L> {
        let channels = of.enter.outputs;
        let mixer = ConvTensors::new(&format!("{name}.mixer.conv"), [channels, 1, taps]);
        let vector = |loader: &mut L, part: &str, role| loader.named_vector(format!("{name}.{part}"), channels, role);
        Ok(Self {
            norm: vector(loader, "norm.weight", Role::Norm)?,
            mixer: loader.depthwise(&mixer)?,
            scale: vector(loader, "gamma", Role::Scale)?,
            ffn_norm: vector(loader, "ffn_norm.weight", Role::Norm)?,
            ffn_scale: vector(loader, "ffn_gamma", Role::Scale)?,
            up: loader.linear(&format!("{name}.ffn.linear1"), [of.inner, channels])?,
            down: loader.linear(&format!("{name}.ffn.linear2"), [channels, of.inner])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_those_of_checkpoints() {
        let config = VibeVoiceConfig::from_preset("7b").unwrap();
        let all = config.all_tensors();
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
