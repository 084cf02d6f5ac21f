//! The weights of a projector: one table of the tensors under the names that its state dict has, which every device loads
//! and every prediction counts.

use super::{FuserConfig, Path};
use crate::decoder::{count::Specs, weights::Load};
use crate::{Role, TensorSpec, tensors::tensor};

const HARMLESS: &str = ".gate_temperature";

pub fn is_harmless(name: &str) -> bool {
    name.ends_with(HARMLESS)
}

/// The weights of paths, which lie one behind the other.
pub struct PathWeights<M, V> {
    pub input: Linear<M, V>,
    /// The block before both paths.
    pub common: Block<M, V>,
    /// The block of the weight path, and what makes a weight for every head.
    pub weight: Block<M, V>,
    pub head: Linear<M, V>,
    /// The blocks of the value path, and what makes the value.
    pub value: Vec<Block<M, V>>,
    pub output: Linear<M, V>,
}

pub struct Linear<M, V> {
    pub weight: Matrix<M>,
    pub bias: Vectors<V>,
}

pub struct Block<M, V> {
    pub norm: Vectors<V>,
    pub up: Matrix<M>,
    pub down: Matrix<M>,
}

pub struct Matrix<M> {
    pub numbers: M,
    pub outputs: usize,
    pub inputs: usize,
}

pub struct Vectors<V> {
    pub numbers: V,
    pub width: usize,
}

impl<M, V> PathWeights<M, V> {
    /// Loads these paths of projectors.
    pub fn load<L>(config: &FuserConfig, paths: &[(usize, Path)], loader: &mut L) -> Result<Self, L::Error>
    where
        L: Load<Matrix = M, Vector = V>,
    {
        let (hidden, inner) = (config.hidden, config.intermediate);
        let (own, heard) = (config.receiver.width(), config.sharer.width());
        let mut table = Table { hidden, paths, loader };
        Ok(Self {
            input: table.linear("in", [hidden, heard.saturating_add(own)])?,
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

    fn matrix(&mut self, part: &str, [outputs, inputs]: [usize; 2]) -> Result<Matrix<L::Matrix>, L::Error> {
        let tensors = self.tensors(part, [outputs, inputs], Role::Linear);
        Ok(Matrix { numbers: self.loader.matrix(&tensors)?, outputs, inputs })
    }

    fn vectors(&mut self, part: &str, width: usize, role: Role) -> Result<Vectors<L::Vector>, L::Error> {
        let tensors = self.tensors(part, [width], role);
        Ok(Vectors { numbers: self.loader.vector(&tensors)?, width })
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

/// The name of a part of a path, `projector_{i}.` and as in its state dict.
fn name(projector: usize, path: Path, part: &str) -> String {
    format!("projector_{projector}.{}_{part}", path.word())
}

impl FuserConfig {
    /// Every tensor of a projector.
    pub fn projector_tensors(&self, projector: usize) -> Vec<TensorSpec> {
        Path::ALL.into_iter().flat_map(|path| self.path_tensors(projector, path)).collect()
    }

    /// Every tensor of the projectors that are used.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        self.projectors().into_iter().flat_map(|projector| self.projector_tensors(projector)).collect()
    }

    /// The tensors of a path, of which the last is its gate.
    pub(crate) fn path_tensors(&self, projector: usize, path: Path) -> Vec<TensorSpec> {
        let mut specs = Specs::default();
        let Ok(_) = PathWeights::load(self, &[(projector, path)], &mut specs);
        specs.0.push(Self::gate(projector, path));
        specs.0
    }

    /// What says whether a path is open.
    pub(crate) fn gate(projector: usize, path: Path) -> TensorSpec {
        tensor(name(projector, path, "gate_logit"), [], Role::Gate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, HasTensors, fuser::Alignment};

    fn fuser() -> FuserConfig {
        let preset = |name| Config::from_preset(name).unwrap();
        FuserConfig::new(&preset("Qwen3-0.6B"), &preset("Qwen2.5-0.5B"), Alignment::LastAligned)
    }

    #[test]
    fn the_tensors_have_as_many_numbers_as_there_are_parameters() {
        for blocks in [3, 5] {
            let config = FuserConfig { blocks, intermediate: 700, ..fuser() };
            let numbers: u64 = config.tensors().iter().map(|tensor| tensor.count() as u64).sum();
            assert_eq!(numbers, config.parameters());
        }
    }

    #[test]
    fn names_and_shapes_are_those_of_a_state_dict() {
        let tensors = fuser().projector_tensors(3);
        let told: Vec<String> =
            tensors[..18].iter().map(|tensor| format!("{} {:?}", &tensor.name[12..], tensor.shape)).collect();
        assert_eq!(
            told,
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
