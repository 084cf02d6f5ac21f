//! Where the weights of a fuser come from: a seed, or a folder.

use std::path::Path as FilePath;

use super::{FuserConfig, Path, checkpoint::Checkpoint};
use crate::{Config, Family, HasTensors, ModelError, TensorSpec, WeightsOf};

/// The weights of a fuser, before they are on a device.
pub type FuserWeights = WeightsOf<FuserConfig>;

impl HasTensors for FuserConfig {
    fn all_tensors(&self) -> Vec<TensorSpec> {
        self.tensors()
    }
}

impl FuserWeights {
    /// Weights by formula, from a seed. Every gate is open. A fuser has no tensor that families fill differently.
    pub fn synthetic(seed: u64) -> Self {
        Self::filled(Family::Qwen3, seed)
    }

    /// The fuser of a folder, once it is seen to join these two models: `projector_config.json`, and for every projector
    /// that it names `projector_{i}.json` and `projector_{i}.pt` or `.safetensors`. Of tensors only names, shapes and
    /// types are read.
    pub fn open(folder: &FilePath, receiver: &Config, sharer: &Config) -> Result<(FuserConfig, Self), ModelError> {
        let Checkpoint { config, tensors } = Checkpoint::open(folder, receiver, sharer)?;
        Ok((config, Self::stored(tensors)))
    }

    /// Which gates are open: those whose logit is above 0.
    pub fn gates(&self, config: &FuserConfig) -> Result<Gates, ModelError> {
        let is_open = |projector: usize, path: Path| -> Result<bool, ModelError> {
            let logit = self.tensor(&FuserConfig::gate(projector, path))?.to_f32();
            Ok(logit.first().is_some_and(|logit| *logit > 0.0))
        };
        let layer = |projector| Ok([is_open(projector, Path::Keys)?, is_open(projector, Path::Values)?]);
        let layers = config.pairs.iter().map(|pair| layer(pair.projector)).collect::<Result<_, ModelError>>()?;
        Ok(Gates::new(layers))
    }
}

/// Which gates of a fuser are open, for the keys and the values of every layer of the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gates {
    layers: Vec<[bool; 2]>,
}

impl Gates {
    /// Those of every layer: of keys, then of values.
    pub fn new(layers: Vec<[bool; 2]>) -> Self {
        Self { layers }
    }

    /// All of this many layers are open.
    pub fn open(layers: usize) -> Self {
        Self::new(vec![[true; 2]; layers])
    }

    /// Those of every layer: of keys, then of values.
    pub fn layers(&self) -> &[[bool; 2]] {
        &self.layers
    }

    /// Whether a path of a layer is open.
    pub fn is_open(&self, layer: usize, path: Path) -> bool {
        self.layers.get(layer).is_some_and(|open| open[path as usize])
    }

    /// Paths that are open.
    pub fn open_paths(&self) -> usize {
        self.layers.iter().flatten().filter(|open| **open).count()
    }

    /// Paths that are closed, and skipped.
    pub fn closed_paths(&self) -> usize {
        2 * self.layers.len() - self.open_paths()
    }

    /// Layers with at least one path that is open.
    pub fn open_layers(&self) -> usize {
        self.layers.iter().filter(|open| open.contains(&true)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fill, fuser::Alignment, synthetic::key};

    #[test]
    fn synthetic_gates_are_open_and_numbers_are_those_of_their_names() {
        let preset = |name| Config::from_preset(name).unwrap();
        let config = FuserConfig::new(&preset("tiny"), &preset("tiny-qwen2"), Alignment::LastAligned);
        let weights = FuserWeights::synthetic(7);
        assert_eq!(weights.gates(&config).unwrap(), Gates::open(2));
        weights.check_finite(&config).unwrap();
        let mut tensors = config.path_tensors(1, Path::Values).into_iter();
        let spec = tensors.find(|tensor| tensor.name.ends_with("proj_out.weight")).unwrap();
        assert_eq!(spec.name, "projector_1.value_proj_out.weight");
        let amplitude = (3.0_f64.sqrt() * (2.0_f64 / 96.0).sqrt()) as f32;
        let fill = Fill::Random { key: key(7, &spec.name), amplitude };
        assert_eq!(weights.tensor(&spec).unwrap().to_f32(), fill.numbers(32 * 64));
    }
}
