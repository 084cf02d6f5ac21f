//! The weights of a fuser as its paths want them.

use super::super::{linear::Linear, model::Source, number::Number};
use crate::{
    ModelError,
    fuser::{BlockTensors, FuserConfig, Gates, Path, PathTensors},
};

/// The projectors of a fuser, by index. Each has the paths of keys and values whose gates are open.
pub struct Projectors<T> {
    paths: Vec<(usize, [Option<PathWeights<T>>; 2])>,
}

/// The weights of one path. What is added or multiplied number by number is kept in f32, after it was rounded to the type
/// of the others.
pub struct PathWeights<T> {
    pub input: Linear<T>,
    pub common: Block<T>,
    pub weight: Block<T>,
    pub head: Linear<T>,
    pub value: Vec<Block<T>>,
    pub output: Linear<T>,
}

/// A feed-forward block.
pub struct Block<T> {
    pub norm: Vec<f32>,
    pub up: Vec<T>,
    pub down: Vec<T>,
}

impl<T: Number> Projectors<T> {
    /// Loads the paths that are open.
    pub fn load(config: &FuserConfig, gates: &Gates, source: Source<'_>) -> Result<Self, ModelError> {
        let layer_of =
            |projector| config.pairs.iter().position(|pair| pair.projector == projector).unwrap_or(usize::MAX);
        let load = |projector: usize| {
            let path = |path: Path| match gates.is_open(layer_of(projector), path) {
                true => PathWeights::load(config.path_tensors(projector, path), source).map(Some),
                false => Ok(None),
            };
            Ok((projector, [path(Path::Keys)?, path(Path::Values)?]))
        };
        Ok(Self { paths: config.projectors().into_iter().map(load).collect::<Result<_, ModelError>>()? })
    }

    /// A path of a projector, if it is open.
    pub fn path(&self, projector: usize, path: Path) -> Option<&PathWeights<T>> {
        let at = self.paths.binary_search_by_key(&projector, |(number, _)| *number).ok()?;
        self.paths[at].1[path as usize].as_ref()
    }
}

impl<T: Number> PathWeights<T> {
    fn load(tensors: PathTensors, source: Source<'_>) -> Result<Self, ModelError> {
        let PathTensors { input, common, weight, head, value, output, .. } = &tensors;
        Ok(Self {
            input: Linear::load(input, source)?,
            common: Block::load(common, source)?,
            weight: Block::load(weight, source)?,
            head: Linear::load(head, source)?,
            value: value.iter().map(|block| Block::load(block, source)).collect::<Result<_, _>>()?,
            output: Linear::load(output, source)?,
        })
    }
}

impl<T: Number> Block<T> {
    fn load(tensors: &BlockTensors, source: Source<'_>) -> Result<Self, ModelError> {
        Ok(Self {
            norm: source.rounded::<T>(&[&tensors.norm])?,
            up: source.stacked(&[&tensors.up])?,
            down: source.stacked(&[&tensors.down])?,
        })
    }
}
