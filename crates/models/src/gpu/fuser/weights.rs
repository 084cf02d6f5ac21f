//! The weights of a fuser, those of all open paths one behind the other.

use std::ops::Range;

use laptime_cuda::{Buffer, CudaError, Device, Slice, nn::CacheTable, nn::Operations};

use super::super::{
    device_cache::KnownCache,
    weights::{Loader, Number},
};
use crate::{
    LinearTensors, ModelError, TensorSpec,
    fuser::{BlockTensors, FuserConfig, FuserWeights, Gates, Path, PathTensors},
};

/// A path that is open.
#[derive(Debug, Clone, Copy)]
pub struct OpenPath {
    /// The layer of the receiver.
    pub layer: usize,
    /// The layer of the sharer.
    pub sharer_layer: usize,
    pub path: Path,
}

/// The weights of a fuser, and where its caches are. A projector that several layers share is there for each of them, so
/// that every product is one batch.
pub struct Packed<T> {
    /// Layer by layer, keys first.
    pub paths: Vec<OpenPath>,
    pub input: Linear<T>,
    pub common: Block<T>,
    pub weight: Block<T>,
    pub head: Linear<T>,
    pub value: Vec<Block<T>>,
    pub output: Linear<T>,
    pub tables: Tables,
}

/// Matrices, [paths, outputs, inputs], and what is added, [paths, outputs].
pub struct Linear<T> {
    pub weight: Matrix<T>,
    pub bias: Vectors<T>,
}

/// Feed-forward blocks.
pub struct Block<T> {
    pub norm: Vectors<T>,
    pub up: Matrix<T>,
    pub down: Matrix<T>,
}

/// A matrix a path.
pub struct Matrix<T> {
    numbers: Buffer<T>,
    pub outputs: usize,
    pub inputs: usize,
}

/// A vector a path.
pub struct Vectors<T> {
    numbers: Buffer<T>,
    width: usize,
}

/// Where the caches of each path are.
pub struct Tables {
    /// Of the sharer.
    pub heard: CacheTable,
    /// Of the receiver, to be read.
    pub own: CacheTable,
    /// Of the receiver, to be added to.
    pub target: CacheTable,
}

impl<T: Number> Packed<T> {
    /// Puts the open paths on a device.
    pub fn load(
        device: &Device,
        operations: &Operations<T>,
        (config, gates): (&FuserConfig, &Gates),
        weights: &FuserWeights,
    ) -> Result<Self, ModelError> {
        let paths = open_paths(config, gates);
        let projector = |path: &OpenPath| config.pairs[path.layer].projector;
        let tensors: Vec<PathTensors> =
            paths.iter().map(|path| config.path_tensors(projector(path), path.path)).collect();
        let stack = Stack { loader: Loader { device, operations, weights }, paths: &tensors };
        let value_blocks = 0..config.blocks.saturating_sub(2);
        Ok(Self {
            input: stack.linear(|path| &path.input)?,
            common: stack.block(|path| &path.common)?,
            weight: stack.block(|path| &path.weight)?,
            head: stack.linear(|path| &path.head)?,
            value: value_blocks.map(|at| stack.block(|path| &path.value[at])).collect::<Result<_, _>>()?,
            output: stack.linear(|path| &path.output)?,
            tables: Tables::new(device, paths.len())?,
            paths,
        })
    }
}

/// Every open path, layer by layer, keys first.
fn open_paths(config: &FuserConfig, gates: &Gates) -> Vec<OpenPath> {
    let of_layer = |(layer, pair): (usize, &crate::fuser::Pair)| {
        let sharer_layer = pair.sharer_layer;
        Path::ALL.map(|path| OpenPath { layer, sharer_layer, path })
    };
    let all = config.pairs.iter().enumerate().flat_map(of_layer);
    all.filter(|open| gates.is_open(open.layer, open.path)).collect()
}

impl Tables {
    fn new(device: &Device, paths: usize) -> Result<Self, CudaError> {
        let table = || CacheTable::new(device, paths);
        Ok(Self { heard: table()?, own: table()?, target: table()? })
    }

    /// Notes where the caches of these paths are. `clean` has the address of what is read of each path of the receiver,
    /// if that is not its cache.
    pub fn set<T: Number>(
        &mut self,
        stream: &laptime_cuda::Stream,
        paths: &[OpenPath],
        [heard, own]: [&KnownCache<'_, T>; 2],
        clean: Option<&[[u64; 2]]>,
    ) -> Result<(), CudaError> {
        let of_heard = |open: &OpenPath| heard.cache.layers[open.sharer_layer][open.path as usize].all().pointer();
        let of_own = |open: &OpenPath| own.cache.layers[open.layer][open.path as usize].all().pointer();
        let read = |open: &OpenPath| clean.map_or_else(|| of_own(open), |clean| clean[open.layer][open.path as usize]);
        self.heard.set(stream, paths.iter().map(of_heard).collect())?;
        self.own.set(stream, paths.iter().map(read).collect())?;
        self.target.set(stream, paths.iter().map(of_own).collect())
    }
}

/// The tensors of all paths, from which one of each is packed.
struct Stack<'a, T> {
    loader: Loader<'a, T>,
    paths: &'a [PathTensors],
}

impl<T: Number> Stack<'_, T> {
    fn linear(&self, of: impl Fn(&PathTensors) -> &LinearTensors) -> Result<Linear<T>, ModelError> {
        Ok(Linear { weight: self.matrix(|path| &of(path).weight)?, bias: self.vectors(|path| &of(path).bias)? })
    }

    fn block(&self, of: impl Fn(&PathTensors) -> &BlockTensors) -> Result<Block<T>, ModelError> {
        Ok(Block {
            norm: self.vectors(|path| &of(path).norm)?,
            up: self.matrix(|path| &of(path).up)?,
            down: self.matrix(|path| &of(path).down)?,
        })
    }

    fn matrix(&self, of: impl Fn(&PathTensors) -> &TensorSpec) -> Result<Matrix<T>, ModelError> {
        let shape = self.paths.first().map(|path| of(path).shape.clone()).unwrap_or_default();
        let [outputs, inputs] = [0, 1].map(|at| shape.get(at).copied().unwrap_or(0));
        Ok(Matrix { numbers: self.packed(of)?, outputs, inputs })
    }

    fn vectors(&self, of: impl Fn(&PathTensors) -> &TensorSpec) -> Result<Vectors<T>, ModelError> {
        let width = self.paths.first().map_or(0, |path| of(path).count());
        Ok(Vectors { numbers: self.packed(of)?, width })
    }

    fn packed(&self, of: impl Fn(&PathTensors) -> &TensorSpec) -> Result<Buffer<T>, ModelError> {
        self.loader.packed(&self.paths.iter().map(|path| of(path).clone()).collect::<Vec<_>>())
    }
}

impl<T: Number> Matrix<T> {
    /// Those of some paths.
    pub fn of(&self, paths: &Range<usize>) -> Result<Slice<'_, T>, CudaError> {
        let numbers = self.outputs * self.inputs;
        self.numbers.slice(paths.start * numbers..paths.end * numbers)
    }
}

impl<T: Number> Vectors<T> {
    /// Those of some paths.
    pub fn of(&self, paths: &Range<usize>) -> Result<Slice<'_, T>, CudaError> {
        self.numbers.slice(paths.start * self.width..paths.end * self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, fuser::Alignment};

    #[test]
    fn closed_paths_are_left_out_and_open_ones_lie_layer_by_layer() {
        let preset = |name| Config::from_preset(name).unwrap();
        let config = FuserConfig::new(&preset("tiny"), &preset("tiny-qwen2"), Alignment::LastAligned);
        let open = open_paths(&config, &Gates::new(vec![[false, true], [true, true]]));
        let told: Vec<(usize, Path)> = open.iter().map(|open| (open.layer, open.path)).collect();
        assert_eq!(told, [(0, Path::Values), (1, Path::Keys), (1, Path::Values)]);
        assert!(open.iter().all(|open| open.sharer_layer == config.pairs[open.layer].sharer_layer));
    }
}
