//! The weights of a fuser: synthetic or from a folder, and one table of tensors by their names in the state dict, which
//! devices load and predictions count.

use std::path::Path as FilePath;

use super::{FuserConfig, Path, checkpoint::Checkpoint};
use crate::decoder::{count::Specs, weights::Load};
use crate::{Config, Family, HasTensors, ModelError, Role, TensorSpec, WeightsOf, tensors::tensor};

/// The weights of a fuser, not yet on a device.
pub type FuserWeights = WeightsOf<FuserConfig>;

impl FuserWeights {
    /// Synthetic weights. All gates are open. Families do not differ in the tensors of a fuser.
    pub fn synthetic(seed: u64) -> Self {
        Self::filled(Family::Qwen3, seed)
    }

    /// The fuser of a folder for these two models: `projector_config.json`, and for every projector in it
    /// `projector_{i}.json` and `projector_{i}.pt` or `.safetensors`. Reads only names, shapes and dtypes of tensors.
    pub fn open(folder: &FilePath, receiver: &Config, sharer: &Config) -> Result<(FuserConfig, Self), ModelError> {
        let Checkpoint { config, tensors } = Checkpoint::open(folder, receiver, sharer)?;
        Ok((config, Self::stored(tensors)))
    }

    /// The gates. A gate is open if its logit is above 0.
    pub fn gates(&self, config: &FuserConfig) -> Result<Gates, ModelError> {
        let is_open = |projector: usize, path: Path| -> Result<bool, ModelError> {
            let logit = self.tensor(&FuserConfig::gate(projector, path))?.to_f32();
            Ok(logit.first().is_some_and(|logit| *logit > 0.0))
        };
        let layer = |projector| Ok([is_open(projector, Path::Keys)?, is_open(projector, Path::Values)?]);
        let layers = config.pairs.iter().map(|pair| layer(pair.projector)).collect::<Result<_, ModelError>>()?;
        Ok(Gates(layers))
    }
}

/// Which gates of a fuser are open: those of keys and of values, for every layer of the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gates(pub Vec<[bool; 2]>);

impl Gates {
    /// Open gates for this many layers.
    pub fn open(layers: usize) -> Self {
        Self(vec![[true; 2]; layers])
    }
}

/// The weights of paths, concatenated.
pub struct PathWeights<M, V> {
    pub input: Linear<M, V>,
    /// The block before both branches.
    pub common: Block<M, V>,
    /// The weight branch: a block, and a projection to one weight per head.
    pub weight: Block<M, V>,
    pub head: Linear<M, V>,
    /// The value branch: blocks, and a projection to the width of the receiver.
    pub value: Vec<Block<M, V>>,
    pub output: Linear<M, V>,
}

pub struct Linear<M, V> {
    pub weight: Packed<M>,
    pub bias: Packed<V>,
}

pub struct Block<M, V> {
    pub norm: Packed<V>,
    pub up: Packed<M>,
    pub down: Packed<M>,
}

/// The same tensor of several paths, `[paths, outputs, inputs]`. Vectors have one input.
pub struct Packed<P> {
    pub numbers: P,
    pub outputs: usize,
    pub inputs: usize,
}

impl<M, V> PathWeights<M, V> {
    pub fn load<L>(config: &FuserConfig, paths: &[(usize, Path)], loader: &mut L) -> Result<Self, L::Error>
    where
        L: Load<Matrix = M, Vector = V>,
    {
        let (hidden, inner) = (config.hidden, config.intermediate);
        let (own, shared) = (config.receiver.width(), config.sharer.width());
        let mut table = Table { hidden, paths, loader };
        Ok(Self {
            input: table.linear("in", [hidden, shared.saturating_add(own)])?,
            common: table.block("mlp1.blocks.0", inner)?,
            weight: table.block("scalar_mlp2.blocks.0", hidden)?,
            head: table.linear("scalar_head", [config.receiver.kv_heads, hidden])?,
            value: (0..config.blocks.saturating_sub(2))
                .map(|at| table.block(&format!("proj_mlp2.blocks.{at}"), inner))
                .collect::<Result<_, _>>()?,
            output: table.linear("proj_out", [own, hidden])?,
        })
    }
}

struct Table<'a, L> {
    hidden: usize,
    paths: &'a [(usize, Path)],
    loader: &'a mut L,
}

impl<L: Load> Table<'_, L> {
    fn tensors<const N: usize>(&self, part: &str, shape: [usize; N], role: Role) -> Vec<TensorSpec> {
        self.paths.iter().map(|(projector, path)| tensor(name(*projector, *path, part), shape, role)).collect()
    }

    fn matrix(&mut self, part: &str, [outputs, inputs]: [usize; 2]) -> Result<Packed<L::Matrix>, L::Error> {
        let tensors = self.tensors(part, [outputs, inputs], Role::Linear);
        Ok(Packed { numbers: self.loader.matrix(&tensors)?, outputs, inputs })
    }

    fn vectors(&mut self, part: &str, outputs: usize, role: Role) -> Result<Packed<L::Vector>, L::Error> {
        let tensors = self.tensors(part, [outputs], role);
        Ok(Packed { numbers: self.loader.vector(&tensors)?, outputs, inputs: 1 })
    }

    fn linear(&mut self, part: &str, shape: [usize; 2]) -> Result<Linear<L::Matrix, L::Vector>, L::Error> {
        let weight = self.matrix(&format!("{part}.weight"), shape)?;
        Ok(Linear { weight, bias: self.vectors(&format!("{part}.bias"), shape[0], Role::Bias)? })
    }

    fn block(&mut self, part: &str, inner: usize) -> Result<Block<L::Matrix, L::Vector>, L::Error> {
        Ok(Block {
            norm: self.vectors(&format!("{part}.norm.weight"), self.hidden, Role::Norm)?,
            up: self.matrix(&format!("{part}.w1.weight"), [inner, self.hidden])?,
            down: self.matrix(&format!("{part}.w2.weight"), [self.hidden, inner])?,
        })
    }
}

/// `projector_{i}.`, then the name in its state dict.
fn name(projector: usize, path: Path, part: &str) -> String {
    format!("projector_{projector}.{}_{part}", path.word())
}

impl FuserConfig {
    /// All tensors of a projector.
    pub fn projector_tensors(&self, projector: usize) -> Vec<TensorSpec> {
        Path::ALL.into_iter().flat_map(|path| self.path_tensors(projector, path)).collect()
    }

    /// The tensors of a path; the last one is its gate.
    pub(crate) fn path_tensors(&self, projector: usize, path: Path) -> Vec<TensorSpec> {
        let mut specs = Specs::default();
        let Ok(_) = PathWeights::load(self, &[(projector, path)], &mut specs);
        specs.0.push(Self::gate(projector, path));
        specs.0
    }

    /// The gate of a path.
    pub(crate) fn gate(projector: usize, path: Path) -> TensorSpec {
        tensor(name(projector, path, "gate_logit"), [], Role::Gate)
    }
}

impl HasTensors for FuserConfig {
    fn all_tensors(&self) -> Vec<TensorSpec> {
        self.projectors().into_iter().flat_map(|projector| self.projector_tensors(projector)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fill, fuser::Alignment, synthetic::key};

    #[test]
    fn synthetic_gates_are_open_and_weights_depend_on_their_names() {
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

    fn fuser() -> FuserConfig {
        let preset = |name| Config::from_preset(name).unwrap();
        FuserConfig::new(&preset("Qwen3-0.6B"), &preset("Qwen2.5-0.5B"), Alignment::LastAligned)
    }

    #[test]
    fn tensors_add_up_to_the_parameters() {
        for blocks in [3, 5] {
            let config = FuserConfig { blocks, intermediate: 700, ..fuser() };
            let numbers: u64 = config.all_tensors().iter().map(|tensor| tensor.count() as u64).sum();
            assert_eq!(numbers, config.parameters());
        }
    }

    #[test]
    fn names_and_shapes_are_those_of_a_state_dict() {
        let tensors = fuser().projector_tensors(3);
        let found: Vec<String> =
            tensors[..18].iter().map(|tensor| format!("{} {:?}", &tensor.name[12..], tensor.shape)).collect();
        assert_eq!(
            found,
            [
                "key_in.weight [1024, 1152]",
                "key_in.bias [1024]",
                "key_mlp1.blocks.0.norm.weight [1024]",
                "key_mlp1.blocks.0.w1.weight [1024, 1024]",
                "key_mlp1.blocks.0.w2.weight [1024, 1024]",
                "key_scalar_mlp2.blocks.0.norm.weight [1024]",
                "key_scalar_mlp2.blocks.0.w1.weight [1024, 1024]",
                "key_scalar_mlp2.blocks.0.w2.weight [1024, 1024]",
                "key_scalar_head.weight [8, 1024]",
                "key_scalar_head.bias [8]",
                "key_proj_mlp2.blocks.0.norm.weight [1024]",
                "key_proj_mlp2.blocks.0.w1.weight [1024, 1024]",
                "key_proj_mlp2.blocks.0.w2.weight [1024, 1024]",
                "key_proj_out.weight [1024, 1024]",
                "key_proj_out.bias [1024]",
                "key_gate_logit []",
                "value_in.weight [1024, 1152]",
                "value_in.bias [1024]",
            ]
        );
        assert_eq!(tensors.len(), 32);
        assert!(tensors.iter().all(|tensor| tensor.name.starts_with("projector_3.")));
    }
}
