//! The tensors of a projector, under the names that its state dict has.

use super::{FuserConfig, Path};
use crate::{LinearTensors, Role, TensorSpec, tensors::tensor};

const HARMLESS: &str = ".gate_temperature";

pub fn is_harmless(name: &str) -> bool {
    name.ends_with(HARMLESS)
}

#[derive(Debug, Clone)]
pub struct PathTensors {
    pub input: LinearTensors,
    /// The block before both paths.
    pub common: BlockTensors,
    /// The block of the weight path, and what makes a weight for every head.
    pub weight: BlockTensors,
    pub head: LinearTensors,
    /// The blocks of the value path, and what makes the value.
    pub value: Vec<BlockTensors>,
    pub output: LinearTensors,
    pub gate: TensorSpec,
}

#[derive(Debug, Clone)]
pub struct BlockTensors {
    pub norm: TensorSpec,
    pub up: TensorSpec,
    pub down: TensorSpec,
}

impl FuserConfig {
    /// Every tensor of a projector, named `projector_{i}.` and as in its state dict.
    pub fn projector_tensors(&self, projector: usize) -> Vec<TensorSpec> {
        Path::ALL.into_iter().flat_map(|path| self.path_tensors(projector, path).all()).collect()
    }

    /// Every tensor of the projectors that are used.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        self.projectors().into_iter().flat_map(|projector| self.projector_tensors(projector)).collect()
    }

    pub(crate) fn path_tensors(&self, projector: usize, path: Path) -> PathTensors {
        let prefix = format!("projector_{projector}.{}_", path.word());
        let (hidden, inner) = (self.hidden, self.intermediate);
        let (own, heard) = (self.receiver.width(), self.sharer.width());
        let block = |part: &str, inner: usize| BlockTensors::new(&format!("{prefix}{part}"), hidden, inner);
        let value = 0..self.blocks.saturating_sub(2);
        PathTensors {
            input: LinearTensors::new(&format!("{prefix}in"), [hidden, heard.saturating_add(own)]),
            common: block("mlp1.blocks.0", inner),
            weight: block("scalar_mlp2.blocks.0", hidden),
            head: LinearTensors::new(&format!("{prefix}scalar_head"), [self.receiver.kv_heads, hidden]),
            value: value.map(|at| block(&format!("proj_mlp2.blocks.{at}"), inner)).collect(),
            output: LinearTensors::new(&format!("{prefix}proj_out"), [own, hidden]),
            gate: tensor(format!("{prefix}gate_logit"), [], Role::Gate),
        }
    }
}

impl PathTensors {
    fn all(self) -> Vec<TensorSpec> {
        let Self { input, common, weight, head, value, output, gate } = self;
        let mut all = input.all();
        all.extend(common.all());
        all.extend(weight.all());
        all.extend(head.all());
        all.extend(value.into_iter().flat_map(BlockTensors::all));
        all.extend(output.all());
        all.push(gate);
        all
    }
}

impl BlockTensors {
    fn new(name: &str, hidden: usize, inner: usize) -> Self {
        Self {
            norm: tensor(format!("{name}.norm.weight"), [hidden], Role::Norm),
            up: tensor(format!("{name}.w1.weight"), [inner, hidden], Role::Linear),
            down: tensor(format!("{name}.w2.weight"), [hidden, inner], Role::Linear),
        }
    }

    fn all(self) -> Vec<TensorSpec> {
        vec![self.norm, self.up, self.down]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, fuser::Alignment};

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
