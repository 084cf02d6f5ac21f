//! Fusers on the CPU.

use std::marker::PhantomData;

use super::memory::{SMALL_BYTES, product_bytes};
use super::product::{Put, project};
use super::steps::{Norm, add_bias, gelu};
use super::{
    cache::zeros, crew::Crew, model::Loader, number::Number, panels::panel_bytes, rows::Rows, vectors::sigmoid,
};
use crate::{
    Decoder, Done, Dtype, KeysValues, ModelError,
    dtype::typed,
    fuser::{
        CacheShape, FuseMode, FuseOptions, FuserConfig, FuserWeights, Fusing, Path,
        engine::{Backend, Block, EPS, Engine, Linear, Matrix, Paths, Request, Vectors},
        fuser_bytes,
    },
    tensors::{product, sum},
};

/// Loads the open paths of the fusers of one receiver, one per sharer. They run on this many threads, including the caller's.
///
/// Layers are fused one after another in either order, since every product already uses all threads. The order only selects
/// which stages are marked.
pub fn fuser(
    fusers: Vec<(FuserConfig, &FuserWeights)>,
    options: FuseOptions,
    threads: usize,
) -> Result<Box<dyn Fusing>, ModelError> {
    options.dtype.refuse_quantised("cache-to-cache fusion")?;
    let crew = Crew::new(threads)?;
    Ok(typed!(options.dtype, |T| Box::new(Engine::new(Cpu::<T> { crew, of: PhantomData }, fusers, options)?)))
}

/// Peak heap bytes of fusers with all gates open, to fuse this many tokens of this many sequences at a time.
pub fn needed_fuser_bytes(
    configs: &[FuserConfig],
    options: &FuseOptions,
    [batch, tokens]: [usize; 2],
    threads: usize,
) -> u64 {
    let rows = batch.saturating_mul(tokens);
    let most = |size: &dyn Fn(&FuserConfig) -> u64| configs.iter().map(size).max().unwrap_or(0);
    sum([
        SMALL_BYTES,
        fuser_bytes(configs, options, rows, None),
        most(&|config| cache_copies(config, options.mode, rows)),
        most(&|config| thread_bytes(config, options.dtype, rows, threads)).saturating_mul(threads as u64),
    ])
}

/// Keys and values of a layer in f32: the receiver's, their originals if several sharers read them, and the sharer's.
fn cache_copies(config: &FuserConfig, mode: FuseMode, rows: usize) -> u64 {
    let of_receiver = if mode == FuseMode::Parallel { 4 } else { 2 };
    let (own, shared) = (config.receiver.width(), config.sharer.width());
    let widths = own.saturating_mul(of_receiver).saturating_add(shared.saturating_mul(2));
    product(&[widths, rows, 4])
}

/// Scratch bytes per thread for products with this many rows.
fn thread_bytes(config: &FuserConfig, dtype: Dtype, rows: usize, threads: usize) -> u64 {
    let widest = config.sharer.width().saturating_add(config.receiver.width());
    product_bytes(panel_bytes(dtype, rows, widest.max(config.hidden).max(config.intermediate), threads))
}

/// The operations for a dtype. Vectors are stored in f32, rounded to the dtype.
struct Cpu<T> {
    crew: Crew,
    of: PhantomData<T>,
}

struct Caches<'c> {
    receiver: &'c mut dyn Decoder,
    sharers: Vec<Option<&'c mut dyn Decoder>>,
    /// The first position of the section in the receiver.
    start: usize,
    layer: Option<OpenLayer>,
}

struct OpenLayer {
    layer: usize,
    /// The original, if several sharers read it.
    clean: Option<KeysValues>,
    fused: KeysValues,
    /// A sharer and its paired layer.
    shared: Option<(usize, KeysValues)>,
}

impl Caches<'_> {
    fn at(&mut self, paths: &Paths<'_>) -> Result<&mut OpenLayer, ModelError> {
        let (open, section) = (paths.first(), paths.request.section);
        let mut layer = match self.layer.take() {
            Some(layer) if layer.layer == open.layer => layer,
            other => {
                self.write_back(other)?;
                let fused = self.receiver.read_positions(open.layer, section.positions.clone())?;
                let clean = (paths.request.mode == FuseMode::Parallel).then(|| fused.clone());
                OpenLayer { layer: open.layer, clean, fused, shared: None }
            }
        };
        if layer.shared.as_ref().is_none_or(|(sharer, _)| *sharer != paths.sharer) {
            layer.shared = None;
            if let Some(sharer) = &mut self.sharers[paths.sharer] {
                let start = section.sharer_starts[paths.sharer];
                let shared = sharer.read_positions(open.sharer_layer, start..start + paths.length())?;
                layer.shared = Some((paths.sharer, shared));
            }
        }
        Ok(self.layer.insert(layer))
    }

    fn write_back(&mut self, layer: Option<OpenLayer>) -> Done {
        layer.map_or(Ok(()), |layer| self.receiver.write_cache(layer.layer, self.start, &layer.fused))
    }
}

impl KeysValues {
    fn of(&self, path: Path) -> &[f32] {
        if path == Path::Keys { &self.keys } else { &self.values }
    }
}

impl<T: Number> Cpu<T> {
    fn multiply(&self, paths: &Paths<'_>, matrix: &Matrix<Self>, x: &[T], out: &mut [T], put: Put) {
        let weights = Rows::dense(&matrix.numbers[matrix.of(paths)], matrix.outputs, matrix.inputs);
        project(&self.crew, Rows::dense(x, paths.rows(), matrix.inputs), weights, out, put);
    }
}

impl<T: Number> Backend for Cpu<T> {
    type Matrix = Vec<T>;
    type Vector = Vec<f32>;
    type Rows = Vec<T>;
    type Caches<'c> = Caches<'c>;
    type Loader<'l> = Loader<'l, T>;

    const TOGETHER_BYTES: Option<u64> = None;

    fn loader<'l>(&'l self, weights: &'l FuserWeights) -> Loader<'l, T> {
        Loader::new(Some(weights), &self.crew)
    }

    fn rows(&self, numbers: usize) -> Result<Vec<T>, ModelError> {
        zeros(numbers)
    }

    fn open<'c>(
        &mut self,
        request: &Request<'_>,
        receiver: &'c mut dyn Decoder,
        sharers: Vec<Option<&'c mut dyn Decoder>>,
    ) -> Result<Self::Caches<'c>, ModelError> {
        Ok(Caches { receiver, sharers, start: request.section.positions.start, layer: None })
    }

    fn join(&self, paths: &Paths<'_>, caches: &mut Self::Caches<'_>, out: &mut Vec<T>) -> Done {
        let OpenLayer { clean, fused, shared, .. } = caches.at(paths)?;
        let Some((_, shared)) = shared else { return Ok(()) };
        let (path, config) = (paths.first().path, paths.config());
        let shared = Heads::new(&config.sharer, shared.of(path), paths.length());
        let own = Heads::new(&config.receiver, clean.as_ref().unwrap_or(fused).of(path), paths.length());
        for (token, out) in out.chunks_mut(shared.width() + own.width()).take(paths.rows()).enumerate() {
            let numbers = shared.of_token(token).chain(own.of_token(token)).flatten();
            out.iter_mut().zip(numbers).for_each(|(out, number)| *out = T::narrow(*number));
        }
        Ok(())
    }

    fn linear(&self, paths: &Paths<'_>, linear: &Linear<Self>, x: &Vec<T>, out: &mut Vec<T>) -> Done {
        self.multiply(paths, &linear.weight, x, out, Put::OVER);
        let bias = &linear.bias.numbers[linear.bias.of(paths)];
        add_bias(&self.crew, bias, &mut out[..paths.rows() * linear.weight.outputs]);
        Ok(())
    }

    fn block(
        &self,
        paths: &Paths<'_>,
        block: &Block<Self>,
        _: Option<&Vectors<Self>>,
        x: &mut Vec<T>,
        copy: Option<&mut Vec<T>>,
        [normed, inner]: [&mut Vec<T>; 2],
    ) -> Done {
        let numbers = paths.rows() * block.up.inputs;
        if let Some(copy) = copy {
            copy[..numbers].copy_from_slice(&x[..numbers]);
        }
        let norm = Norm { weight: &block.norm.numbers[block.norm.of(paths)], eps: EPS };
        norm.rows(&self.crew, 1, &x[..numbers], normed);
        self.multiply(paths, &block.up, normed, inner, Put::OVER);
        gelu(&self.crew, &mut inner[..paths.rows() * block.up.outputs]);
        self.multiply(paths, &block.down, inner, x, Put::ONTO);
        Ok(())
    }

    fn add(
        &self,
        paths: &Paths<'_>,
        caches: &mut Self::Caches<'_>,
        (values, _): (&Vec<T>, &Vectors<Self>),
        (weights, _): (&Vec<T>, &Vectors<Self>),
    ) -> Done {
        let KeysValues { keys, values: own_values, .. } = &mut caches.at(paths)?.fused;
        let to = if paths.first().path == Path::Keys { keys } else { own_values };
        let shape = Heads::new(&paths.config().receiver, &[], paths.length());
        let values = values.chunks(shape.width()).zip(weights.chunks(shape.kv_heads)).take(paths.rows());
        for (token, (values, weights)) in values.enumerate() {
            for (head, (values, weight)) in values.chunks(shape.head_dim).zip(weights).enumerate() {
                let weight = T::narrow(sigmoid(weight.wide())).wide();
                let to = &mut to[shape.place(token, head)..][..shape.head_dim];
                to.iter_mut().zip(values).for_each(|(to, value)| *to += weight * value.wide());
            }
        }
        Ok(())
    }

    fn close(&self, mut caches: Self::Caches<'_>) -> Done {
        let last = caches.layer.take();
        caches.write_back(last)
    }
}

/// Keys or values of a section, `[batch, kv_heads, length, head_dim]`.
#[derive(Clone, Copy)]
struct Heads<'a> {
    numbers: &'a [f32],
    kv_heads: usize,
    head_dim: usize,
    length: usize,
}

impl<'a> Heads<'a> {
    fn new(shape: &CacheShape, numbers: &'a [f32], length: usize) -> Self {
        Self { numbers, kv_heads: shape.kv_heads, head_dim: shape.head_dim, length }
    }

    fn width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    fn of_token(self, token: usize) -> impl Iterator<Item = &'a [f32]> {
        (0..self.kv_heads).map(move |head| &self.numbers[self.place(token, head)..][..self.head_dim])
    }

    fn place(&self, token: usize, head: usize) -> usize {
        let (sequence, position) = (token / self.length, token % self.length);
        ((sequence * self.kv_heads + head) * self.length + position) * self.head_dim
    }
}
