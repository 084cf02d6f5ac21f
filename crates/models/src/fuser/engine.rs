//! Fusers on any device: the order of paths, their operations and their stages.
//!
//! A path is the keys or the values of a layer. The weights of all open paths are concatenated, so that a backend can
//! compute many paths as one batched GEMM.

use std::ops::Range;

use super::{
    FuseMode, FuseOptions, FuseOrder, Fused, FuserConfig, FuserWeights, Fusing, Gates, Path, Section,
    fusing::check_section,
    sizes::{Parts, Sizes},
    weights::{self, PathWeights},
};
use crate::{Decoder, Done, ModelError, decoder::weights::Load, marks::stage_mark};

pub(crate) const EPS: f32 = 1e-6;

/// The operations of a fuser on a device. They only enqueue work. The bias of a linear layer is added by
/// [`Backend::linear`] or by the operation that reads the result, which gets the bias too.
pub(crate) trait Backend: Sized {
    type Matrix;
    type Vector;
    type Rows;
    type Caches<'c>;
    type Loader<'l>: Load<Matrix = Self::Matrix, Vector = Self::Vector, Error = ModelError>
    where
        Self: 'l;

    /// The memory for paths that are computed together. Without it, paths are computed one by one, and layers with the same
    /// projector share its weights.
    const TOGETHER_BYTES: Option<u64>;

    fn loader<'l>(&'l self, weights: &'l FuserWeights) -> Self::Loader<'l>;
    fn rows(&self, numbers: usize) -> Result<Self::Rows, ModelError>;

    fn open<'c>(
        &mut self,
        request: &Request<'_>,
        receiver: &'c mut dyn Decoder,
        sharers: Vec<Option<&'c mut dyn Decoder>>,
    ) -> Result<Self::Caches<'c>, ModelError>;
    /// Concatenates the heads of each token: the sharer's, then the receiver's.
    fn join(&self, paths: &Paths<'_>, caches: &mut Self::Caches<'_>, out: &mut Self::Rows) -> Done;
    fn linear(&self, paths: &Paths<'_>, linear: &Linear<Self>, x: &Self::Rows, out: &mut Self::Rows) -> Done;
    /// Adds `down(gelu(up(norm(x))))` to `x`, after the pending bias of `x` if given, and copies the old `x` to `copy`.
    fn block(
        &self,
        paths: &Paths<'_>,
        block: &Block<Self>,
        bias: Option<&Vectors<Self>>,
        x: &mut Self::Rows,
        copy: Option<&mut Self::Rows>,
        scratch: [&mut Self::Rows; 2],
    ) -> Done;
    /// Adds each head's value times the sigmoid of its weight to the receiver's cache. Both have a pending bias.
    fn add(
        &self,
        paths: &Paths<'_>,
        caches: &mut Self::Caches<'_>,
        value: (&Self::Rows, &Vectors<Self>),
        weight: (&Self::Rows, &Vectors<Self>),
    ) -> Done;
    fn close(&self, caches: Self::Caches<'_>) -> Done;
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenPath {
    pub layer: usize,
    pub sharer_layer: usize,
    pub path: Path,
    unit: usize,
}

pub(crate) struct Request<'a> {
    pub configs: &'a [FuserConfig],
    pub mode: FuseMode,
    pub open: &'a [Vec<OpenPath>],
    pub section: &'a Section,
    pub batch: usize,
}

pub(crate) struct Paths<'a> {
    pub request: &'a Request<'a>,
    pub sharer: usize,
    pub range: Range<usize>,
}

impl Paths<'_> {
    pub fn first(&self) -> OpenPath {
        self.request.open[self.sharer][self.range.start]
    }

    pub fn config(&self) -> &FuserConfig {
        &self.request.configs[self.sharer]
    }

    pub fn length(&self) -> usize {
        self.request.section.positions.len()
    }

    pub fn rows(&self) -> usize {
        self.request.batch * self.length()
    }

    fn sizes(&self) -> Sizes {
        Sizes::of_path(self.config(), self.rows()).times(self.range.len())
    }
}

pub(crate) type Linear<B> = weights::Linear<<B as Backend>::Matrix, <B as Backend>::Vector>;
pub(crate) type Block<B> = weights::Block<<B as Backend>::Matrix, <B as Backend>::Vector>;
pub(crate) type Matrix<B> = weights::Packed<<B as Backend>::Matrix>;
pub(crate) type Vectors<B> = weights::Packed<<B as Backend>::Vector>;
type Weights<B> = PathWeights<<B as Backend>::Matrix, <B as Backend>::Vector>;

impl<P> weights::Packed<P> {
    /// The range of these paths.
    pub fn of(&self, paths: &Paths<'_>) -> Range<usize> {
        let (each, first) = (self.outputs * self.inputs, paths.first().unit);
        first * each..(first + paths.range.len()) * each
    }
}

/// All open paths, layer by layer, keys first; and the paths of projectors to load.
fn open_paths(config: &FuserConfig, gates: &Gates, are_shared: bool) -> (Vec<OpenPath>, Vec<(usize, Path)>) {
    let (mut open, mut units) = (Vec::new(), Vec::new());
    for (layer, (pair, gates)) in config.pairs.iter().zip(&gates.0).enumerate() {
        for path in Path::ALL.into_iter().filter(|path| gates[*path as usize]) {
            let of = (pair.projector, path);
            let known = units.iter().position(|unit| are_shared && *unit == of);
            let unit = known.unwrap_or(units.len());
            if known.is_none() {
                units.push(of);
            }
            open.push(OpenPath { layer, sharer_layer: pair.sharer_layer, path, unit });
        }
    }
    (open, units)
}

struct Buffers<B: Backend> {
    parts: Parts<B::Rows>,
    sizes: Sizes,
}

impl<B: Backend> Buffers<B> {
    fn new(backend: &B, sizes: Sizes) -> Result<Self, ModelError> {
        Ok(Self { parts: sizes.try_map(|numbers| backend.rows(numbers))?, sizes })
    }

    fn fit(&mut self, backend: &B, sizes: Sizes) -> Done {
        let wanted = self.sizes.max(sizes);
        if wanted != self.sizes {
            // Frees the old buffers first.
            *self = Self::new(backend, Sizes::default())?;
            *self = Self::new(backend, wanted)?;
        }
        Ok(())
    }
}

pub(crate) struct Engine<B: Backend> {
    /// Dropped first: it waits for work that uses the other fields.
    backend: B,
    configs: Vec<FuserConfig>,
    options: FuseOptions,
    gates: Vec<Gates>,
    open: Vec<Vec<OpenPath>>,
    weights: Vec<Weights<B>>,
    buffers: Buffers<B>,
}

impl<B: Backend> Engine<B> {
    pub fn new(
        backend: B,
        fusers: Vec<(FuserConfig, &FuserWeights)>,
        options: FuseOptions,
    ) -> Result<Self, ModelError> {
        let (mut gates, mut open, mut loaded) = (Vec::new(), Vec::new(), Vec::new());
        for (config, weights) in &fusers {
            config.check()?;
            let of_config = weights.gates(config)?;
            let (paths, units) = open_paths(config, &of_config, B::TOGETHER_BYTES.is_none());
            loaded.push(PathWeights::load(config, &units, &mut backend.loader(weights))?);
            open.push(paths);
            gates.push(of_config);
        }
        let buffers = Buffers::new(&backend, Sizes::default())?;
        let configs = fusers.into_iter().map(|(config, _)| config).collect();
        Ok(Self { backend, configs, options, gates, open, weights: loaded, buffers })
    }
}

/// The batches of paths in order: by sharer, or by layer if paths are computed one by one.
fn order<'a, B: Backend>(options: &FuseOptions, request: &'a Request<'a>) -> Vec<Paths<'a>> {
    let mut order = Vec::new();
    let together = B::TOGETHER_BYTES.filter(|_| options.order == FuseOrder::Batched);
    for (sharer, open) in request.open.iter().enumerate().filter(|(at, _)| request.section.mask.has(*at)) {
        let rows = request.batch * request.section.positions.len();
        let step = Sizes::of_path(&request.configs[sharer], rows).paths_at_once(options.dtype, together);
        let of = |start: usize| start..open.len().min(start.saturating_add(step));
        order.extend((0..open.len()).step_by(step).map(|start| Paths { request, sharer, range: of(start) }));
    }
    if together.is_none() {
        order.sort_by_key(|paths| paths.first().layer);
    }
    order
}

fn run<B: Backend>(
    backend: &B,
    options: &FuseOptions,
    weights: &Weights<B>,
    buffers: &mut Parts<B::Rows>,
    paths: &Paths<'_>,
    caches: &mut B::Caches<'_>,
) -> Done {
    let (OpenPath { layer, path, .. }, sharer, marks) = (paths.first(), paths.sharer, &options.marks);
    let _stage = match (options.order, path) {
        (FuseOrder::Batched, _) => None,
        (_, Path::Keys) => stage_mark!(marks, Pipeline, "fuse_keys", layer = layer, sharer = sharer),
        (_, Path::Values) => stage_mark!(marks, Pipeline, "fuse_values", layer = layer, sharer = sharer),
    };
    let Parts { input, stream, second, normed, inner, value, weights: by_head } = buffers;
    {
        let _stage = stage_mark!(marks, Ops, "fuse_input");
        backend.join(paths, caches, input)?;
        backend.linear(paths, &weights.input, input, stream)?;
    }
    {
        let _stage = stage_mark!(marks, Ops, "fuse_common");
        backend.block(paths, &weights.common, Some(&weights.input.bias), stream, None, [normed, inner])?;
    }
    {
        let _stage = stage_mark!(marks, Ops, "fuse_weight");
        backend.block(paths, &weights.weight, None, stream, Some(second), [normed, inner])?;
        backend.linear(paths, &weights.head, stream, by_head)?;
    }
    {
        let _stage = stage_mark!(marks, Ops, "fuse_value");
        for block in &weights.value {
            backend.block(paths, block, None, second, None, [normed, inner])?;
        }
        backend.linear(paths, &weights.output, second, value)?;
    }
    let _stage = stage_mark!(marks, Ops, "fuse_add");
    backend.add(paths, caches, (value, &weights.output.bias), (by_head, &weights.head.bias))
}

impl<B: Backend> Fusing for Engine<B> {
    fn configs(&self) -> &[FuserConfig] {
        &self.configs
    }

    fn options(&self) -> &FuseOptions {
        &self.options
    }

    fn gates(&self) -> &[Gates] {
        &self.gates
    }

    fn fuse(
        &mut self,
        receiver: &mut dyn Decoder,
        sharers: &mut [&mut dyn Decoder],
        section: &Section,
    ) -> Result<Fused, ModelError> {
        check_section(&self.configs, receiver, sharers, section)?;
        let (tokens, mask) = (section.positions.len(), section.mask);
        if tokens == 0 {
            return Ok(Fused::default());
        }
        let Self { backend, configs, options, gates, open, weights, buffers } = self;
        let used = gates.iter().enumerate().filter(|(at, _)| mask.has(*at));
        let fused = used.map(|(_, gates)| Fused::of(gates)).fold(Fused::default(), Fused::plus);
        let request = Request { configs, mode: options.mode, open, section, batch: receiver.options().batch };
        let order = order::<B>(options, &request);
        let sizes = order.iter().map(Paths::sizes).fold(Sizes::default(), Sizes::max);
        let used = sharers.iter_mut().enumerate();
        let used = used.map(|(at, sharer)| mask.has(at).then_some(&mut **sharer as &mut dyn Decoder)).collect();
        let _stage = stage_mark!(options.marks, Pipeline, "projector", tokens = tokens, layers = fused.layers);
        buffers.fit(backend, sizes)?;
        let mut caches = backend.open(&request, receiver, used)?;
        for paths in &order {
            run(backend, options, &weights[paths.sharer], &mut buffers.parts, paths, &mut caches)?;
        }
        backend.close(caches)?;
        Ok(fused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, fuser::Alignment};

    fn config() -> FuserConfig {
        let preset = |name| Config::from_preset(name).unwrap();
        FuserConfig::new(&preset("tiny"), &preset("tiny-qwen2"), Alignment::LastAligned)
    }

    #[test]
    fn closed_paths_are_left_out_and_open_ones_are_ordered_by_layer() {
        let config = config();
        let (open, units) = open_paths(&config, &Gates(vec![[false, true], [true, true]]), false);
        let found: Vec<(usize, Path, usize)> = open.iter().map(|open| (open.layer, open.path, open.unit)).collect();
        assert_eq!(found, [(0, Path::Values, 0), (1, Path::Keys, 1), (1, Path::Values, 2)]);
        assert_eq!(units, [(0, Path::Values), (1, Path::Keys), (1, Path::Values)]);
        assert!(open.iter().all(|open| open.sharer_layer == config.pairs[open.layer].sharer_layer));
    }

    #[test]
    fn layers_with_one_projector_share_its_weights_if_paths_are_computed_one_by_one() {
        let mut config = config();
        config.pairs.iter_mut().for_each(|pair| pair.projector = 0);
        let units = |are_shared| {
            let (open, units) = open_paths(&config, &Gates::open(2), are_shared);
            (open.iter().map(|open| open.unit).collect::<Vec<_>>(), units.len())
        };
        assert_eq!(units(true), (vec![0, 1, 0, 1], 2));
        assert_eq!(units(false), (vec![0, 1, 2, 3], 4));
    }
}
