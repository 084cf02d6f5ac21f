//! The tensors of a speech checkpoint, under the names that `transformers` publishes it with.
//!
//! Those of the language model are those of a decoder alone under other names: [`VibeVoiceConfig::renamed`]. The older names are
//! in `names.rs`.

use super::{TokenizerConfig, VibeVoiceConfig};
use crate::{LinearTensors, Role, TensorSpec, tensors::tensor, tts::ConvTensors};

/// Which way a tokenizer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From audio to latents.
    Encoder,
    /// From latents to audio.
    Decoder,
}

/// A tokenizer, in the order in which it needs its tensors.
#[derive(Debug, Clone)]
pub struct TokenizerTensors {
    /// The stages: the first keeps the length, each other shortens or lengthens.
    pub stages: Vec<StageTensors>,
    /// The convolution that makes latents or samples.
    pub head: ConvTensors,
}

/// A stage of a tokenizer.
#[derive(Debug, Clone)]
pub struct StageTensors {
    /// The convolution that brings rows to its channels.
    pub enter: ConvTensors,
    /// Its blocks.
    pub blocks: Vec<MixerTensors>,
}

/// A block: what mixes positions channel by channel, and a feed-forward part.
#[derive(Debug, Clone)]
pub struct MixerTensors {
    /// The norm before positions are mixed.
    pub norm: TensorSpec,
    /// What mixes them.
    pub mixer: ConvTensors,
    /// What is multiplied with what that adds.
    pub scale: TensorSpec,
    /// The norm before the feed-forward part.
    pub ffn_norm: TensorSpec,
    /// Its first linear part.
    pub up: LinearTensors,
    /// Its second.
    pub down: LinearTensors,
    /// What is multiplied with what that adds.
    pub ffn_scale: TensorSpec,
}

/// What brings latents to the width of the language model.
#[derive(Debug, Clone)]
pub struct ConnectorTensors {
    /// The first linear part.
    pub enter: LinearTensors,
    /// The norm behind it.
    pub norm: TensorSpec,
    /// The second linear part.
    pub leave: LinearTensors,
}

/// The diffusion head. None of its linear parts has a bias.
#[derive(Debug, Clone)]
pub struct HeadTensors {
    /// What brings a noisy latent to the width of the head.
    pub enter: TensorSpec,
    /// What brings the language model's row in.
    pub condition: TensorSpec,
    /// What brings a time to the width of the head: one linear part, `silu`, and another.
    pub time: [TensorSpec; 2],
    /// The layers.
    pub layers: Vec<HeadLayerTensors>,
    /// What makes shift and scale of the last norm.
    pub last_adapt: TensorSpec,
    /// What makes a velocity.
    pub leave: TensorSpec,
}

/// A layer of the diffusion head.
#[derive(Debug, Clone)]
pub struct HeadLayerTensors {
    /// The norm, before it is shifted and scaled.
    pub norm: TensorSpec,
    /// What makes shift, scale and gate.
    pub adapt: TensorSpec,
    /// Gate and up of the feed-forward part.
    pub gate_up: [TensorSpec; 2],
    /// Its last linear part.
    pub down: TensorSpec,
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

    /// The acoustic encoder.
    pub fn acoustic_encoder_tensors(&self) -> TokenizerTensors {
        TokenizerTensors::new("model.audio_tower.encoder", &self.acoustic, Way::Encoder)
    }

    /// The acoustic decoder.
    pub fn acoustic_decoder_tensors(&self) -> TokenizerTensors {
        TokenizerTensors::new("model.audio_tower.decoder", &self.acoustic, Way::Decoder)
    }

    /// The semantic encoder.
    pub fn semantic_encoder_tensors(&self) -> TokenizerTensors {
        TokenizerTensors::new("model.semantic_tokenizer_encoder", &self.semantic, Way::Encoder)
    }

    /// What brings acoustic latents, and semantic ones, to the width of the language model.
    pub fn connector_tensors(&self) -> [ConnectorTensors; 2] {
        let hidden = self.decoder.hidden;
        [
            ConnectorTensors::new("model.multi_modal_projector", self.acoustic.latent, hidden),
            ConnectorTensors::new("model.semantic_connector", self.semantic.latent, hidden),
        ]
    }

    /// What latents of the language model are divided by, and what is then taken from them: those of the tokenizer.
    pub fn factor_tensors(&self) -> [TensorSpec; 2] {
        let one = |name: &str, role| tensor(format!("model.{name}"), [], role);
        [one("latent_scaling_factor", Role::Norm), one("latent_bias_factor", Role::Bias)]
    }

    /// The diffusion head.
    pub fn head_tensors(&self) -> HeadTensors {
        let (hidden, latent, ffn) = (self.decoder.hidden, self.acoustic.latent, self.head.ffn);
        let linear =
            |name: &str, shape: [usize; 2]| tensor(format!("model.diffusion_head.{name}.weight"), shape, Role::Linear);
        let layer = |at: usize| HeadLayerTensors {
            norm: tensor(format!("model.diffusion_head.layers.{at}.norm.weight"), [hidden], Role::Norm),
            adapt: linear(&format!("layers.{at}.linear"), [hidden.saturating_mul(3), hidden]),
            gate_up: ["gate", "up"].map(|part| linear(&format!("layers.{at}.ffn.{part}_proj"), [ffn, hidden])),
            down: linear(&format!("layers.{at}.ffn.down_proj"), [hidden, ffn]),
        };
        HeadTensors {
            enter: linear("noisy_images_proj", [hidden, latent]),
            condition: linear("cond_proj", [hidden, hidden]),
            time: [
                linear("timestep_proj.fc1", [hidden, self.head.frequencies]),
                linear("timestep_proj.fc2", [hidden, hidden]),
            ],
            layers: (0..self.head.layers).map(layer).collect(),
            last_adapt: linear("final_layer.linear_1", [hidden.saturating_mul(2), hidden]),
            leave: linear("final_layer.linear_2", [latent, hidden]),
        }
    }

    /// The tensors of the language model.
    pub fn decoder_tensors(&self) -> Vec<TensorSpec> {
        self.decoder.tensors().iter().map(Self::renamed).collect()
    }

    /// Every tensor of its checkpoint.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let mut all = self.decoder_tensors();
        all.extend(self.head_tensors().all());
        all.extend(self.connector_tensors().into_iter().flat_map(ConnectorTensors::all));
        all.extend(self.factor_tensors());
        let tokenizers =
            [self.acoustic_encoder_tensors(), self.acoustic_decoder_tensors(), self.semantic_encoder_tensors()];
        all.extend(tokenizers.into_iter().flat_map(TokenizerTensors::all));
        all
    }
}

impl HeadTensors {
    /// All of them, in order.
    pub fn all(self) -> Vec<TensorSpec> {
        let Self { enter, condition, time, layers, last_adapt, leave } = self;
        let mut all = vec![enter, condition];
        all.extend(time);
        for HeadLayerTensors { norm, adapt, gate_up, down } in layers {
            all.extend([norm, adapt]);
            all.extend(gate_up);
            all.push(down);
        }
        all.extend([last_adapt, leave]);
        all
    }
}

impl ConnectorTensors {
    fn new(name: &str, latent: usize, hidden: usize) -> Self {
        Self {
            enter: LinearTensors::new(&format!("{name}.linear_1"), [hidden, latent]),
            norm: tensor(format!("{name}.act.weight"), [hidden], Role::Norm),
            leave: LinearTensors::new(&format!("{name}.linear_2"), [hidden, hidden]),
        }
    }

    /// All of them, in order.
    pub fn all(self) -> Vec<TensorSpec> {
        let mut all = self.enter.all();
        all.push(self.norm);
        all.extend(self.leave.all());
        all
    }
}

impl TokenizerTensors {
    fn new(name: &str, config: &TokenizerConfig, way: Way) -> Self {
        let last = config.ratios.len();
        // Stages are counted in the order in which they run: from the audio, or from latents.
        let place = |stage: usize| if way == Way::Encoder { stage } else { last.saturating_sub(stage) };
        let stage = |at: usize| {
            let (channels, prefix) = (config.channels(place(at)), stage_name(name, at));
            let depth = config.depths.get(place(at)).copied().unwrap_or_default();
            StageTensors {
                enter: enter_tensors(&prefix, config, way, at, place),
                blocks: (0..depth).map(|block| MixerTensors::new(&prefix, block, channels, config)).collect(),
            }
        };
        let ends = match way {
            Way::Encoder => [config.latent, config.channels(last), config.kernel],
            Way::Decoder => [1, config.filters, config.kernel],
        };
        let stages = (0..=last).map(stage).collect();
        Self { stages, head: ConvTensors::new(&format!("{name}.head.conv"), ends) }
    }

    /// All of them, in order.
    pub fn all(self) -> Vec<TensorSpec> {
        let mut all = Vec::new();
        for StageTensors { enter, blocks } in self.stages {
            all.extend(enter.all());
            all.extend(blocks.into_iter().flat_map(MixerTensors::all));
        }
        all.extend(self.head.all());
        all
    }
}

fn stage_name(name: &str, stage: usize) -> String {
    match stage.checked_sub(1) {
        None => format!("{name}.stem"),
        Some(layer) => format!("{name}.conv_layers.{layer}"),
    }
}

/// The convolution that a stage begins with.
fn enter_tensors(
    prefix: &str,
    config: &TokenizerConfig,
    way: Way,
    at: usize,
    place: impl Fn(usize) -> usize,
) -> ConvTensors {
    let outputs = config.channels(place(at));
    let Some(before) = at.checked_sub(1) else {
        let inputs = if way == Way::Encoder { 1 } else { config.latent };
        return ConvTensors::new(&format!("{prefix}.conv.conv"), [outputs, inputs, config.kernel]);
    };
    let inputs = config.channels(place(before));
    // The ratio between two stages is that of the lower one.
    let ratio = config.ratios.get(place(before).min(place(at))).copied().unwrap_or(1).saturating_mul(2);
    match way {
        Way::Encoder => ConvTensors::new(&format!("{prefix}.conv.conv"), [outputs, inputs, ratio]),
        Way::Decoder => ConvTensors::lengthening(&format!("{prefix}.convtr.convtr"), [inputs, outputs, ratio]),
    }
}

impl MixerTensors {
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

    /// All of them, in order.
    pub fn all(self) -> Vec<TensorSpec> {
        let Self { norm, mixer, scale, ffn_norm, up, down, ffn_scale } = self;
        let mut all = vec![norm];
        all.extend(mixer.all());
        all.extend([scale, ffn_norm]);
        all.extend([up, down].into_iter().flat_map(LinearTensors::all));
        all.push(ffn_scale);
        all
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
