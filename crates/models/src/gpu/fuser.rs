//! Fusers on a GPU: as many paths as fit in memory are computed together, each product as one batched GEMM.

// Kernels get addresses of caches, which a fuse borrows until all work is enqueued.
#![allow(unsafe_code)]

use laptime_cuda::nn::{Additions, CacheSection, CacheTable, Fuse, FuseSizes, Operations};
use laptime_cuda::{Batch, Blas, Buffer, Cache, CudaError, Device, Done, Matrices};

use super::memory::{SMALL_BYTES, WORKSPACE_BYTES};
use super::weights::{Loader, Number};
use super::{cache::KnownCache, size};
use crate::{
    Decoder, ModelError,
    dtype::typed,
    fuser::{
        CacheShape, FuseMode, FuseOptions, FuserConfig, FuserWeights, Fusing, Path,
        engine::{Backend, Block, EPS, Engine, Linear, Matrix, OpenPath, Paths, Request, Vectors},
        fuser_bytes,
    },
    tensors::sum,
};

/// The memory for paths that are computed together, unless a single one needs more: enough for 28 layers of 4096 tokens.
const TOGETHER_BYTES: u64 = 4 << 30;

/// Loads the open paths of the fusers of one receiver on a device, one fuser per sharer. Synthetic weights are generated
/// there.
///
/// A fuse runs on the device's stream. If decoders have other streams, events order them, and the host does not wait.
pub fn fuser<'a>(
    device: &'a Device,
    fusers: Vec<(FuserConfig, &FuserWeights)>,
    options: FuseOptions,
) -> Result<Box<dyn Fusing + 'a>, ModelError> {
    options.dtype.refuse_quantised("cache-to-cache fusion")?;
    let fuser: Box<dyn Fusing + 'a> =
        typed!(options.dtype, |T| Box::new(Engine::new(Cuda::<T>::new(device)?, fusers, options)?));
    // Loading must not overlap the first timed fuse.
    device.stream().synchronise()?;
    Ok(fuser)
}

/// Peak GPU bytes of fusers with all gates open, to fuse this many tokens of this many sequences at a time.
pub fn needed_fuser_bytes(configs: &[FuserConfig], options: &FuseOptions, [batch, tokens]: [usize; 2]) -> u64 {
    let rows = batch.saturating_mul(tokens);
    let of_receiver = |config: &FuserConfig| config.receiver.width().saturating_mul(2 * config.pairs.len());
    let is_kept = options.mode == FuseMode::Parallel && configs.len() > 1;
    let clean = configs.first().filter(|_| is_kept).map_or(0, of_receiver) as u64;
    let clean = clean.saturating_mul(rows as u64).saturating_mul(options.dtype.bytes());
    sum([fuser_bytes(configs, options, rows, Some(TOGETHER_BYTES)), clean, WORKSPACE_BYTES, SMALL_BYTES])
}

struct Cuda<'a, T> {
    device: &'a Device,
    blas: Blas,
    fill: Operations<T>,
    operations: Fuse<T>,
    tables: Vec<Option<Tables>>,
    /// The original keys and values of the receiver, if several sharers read them.
    clean: Option<Buffer<T>>,
}

struct Tables {
    shared: CacheTable,
    own: CacheTable,
    target: CacheTable,
}

struct Caches<'c, T> {
    own: KnownCache<'c, T>,
    shared: Vec<Option<KnownCache<'c, T>>>,
    /// Whether sharers read the original of the receiver.
    is_kept: bool,
}

impl<T> Caches<'_, T> {
    fn devices(&self) -> impl Iterator<Item = &Device> {
        std::iter::once(&self.own).chain(self.shared.iter().flatten()).map(|cache| cache.device)
    }
}

impl<'a, T: Number> Cuda<'a, T> {
    fn new(device: &'a Device) -> Result<Self, CudaError> {
        Ok(Self {
            device,
            blas: Blas::new(device)?,
            fill: Operations::load(device, &Cache::of_user())?,
            operations: Fuse::load(device, &Cache::of_user())?,
            tables: Vec::new(),
            clean: None,
        })
    }

    /// Copies the receiver's keys and values for sharers that read the originals. Returns the addresses of the copies.
    fn keep_clean(&mut self, own: &KnownCache<'_, T>, start: usize, length: usize) -> Result<Vec<[u64; 2]>, CudaError> {
        let (layers, numbers) = (own.cache.layers.len(), own.cache.section_numbers(length));
        if self.clean.as_ref().is_none_or(|clean| clean.length() < 2 * layers * numbers) {
            self.clean = None;
            self.clean = Some(self.device.allocate(2 * layers * numbers)?);
        }
        let (Some(clean), stream) = (&mut self.clean, self.device.stream()) else { return Ok(Vec::new()) };
        let mut keep = |layer: usize, path: Path| -> Result<u64, CudaError> {
            let begin = (2 * layer + path as usize) * numbers;
            let to = clean.slice_mut(begin..begin + numbers)?;
            let (address, from) = (to.pointer(), &own.cache.layers[layer][path as usize]);
            own.cache.copy_section(stream, from, start..start + length, to)?;
            Ok(address)
        };
        (0..layers).map(|layer| Ok([keep(layer, Path::Keys)?, keep(layer, Path::Values)?])).collect()
    }

    /// Sets the addresses of the caches of a sharer's paths. `clean` has those of the receiver's originals, if copied.
    fn set_tables(
        &mut self,
        sharer: usize,
        paths: &[OpenPath],
        [shared, own]: [&KnownCache<'_, T>; 2],
        clean: Option<&[[u64; 2]]>,
    ) -> Done {
        let of_shared = |open: &OpenPath| shared.cache.layers[open.sharer_layer][open.path as usize].pointer();
        let of_own = |open: &OpenPath| own.cache.layers[open.layer][open.path as usize].pointer();
        let read = |open: &OpenPath| clean.map_or_else(|| of_own(open), |clean| clean[open.layer][open.path as usize]);
        let stream = self.device.stream();
        let table = || CacheTable::new(self.device, paths.len());
        if self.tables.len() <= sharer {
            self.tables.resize_with(sharer + 1, || None);
        }
        let tables = match &mut self.tables[sharer] {
            Some(tables) => tables,
            none => none.insert(Tables { shared: table()?, own: table()?, target: table()? }),
        };
        tables.shared.set(stream, paths.iter().map(of_shared).collect())?;
        tables.own.set(stream, paths.iter().map(read).collect())?;
        tables.target.set(stream, paths.iter().map(of_own).collect())
    }

    fn tables(&self, paths: &Paths<'_>) -> Result<&Tables, CudaError> {
        let tables = self.tables.get(paths.sharer).and_then(Option::as_ref);
        tables.ok_or_else(|| CudaError::refused("fusing", 0, "the caches of a sharer are not open"))
    }

    fn multiply(
        &self,
        paths: &Paths<'_>,
        matrix: &Matrix<Self>,
        rows: &Buffer<T>,
        to: &mut Buffer<T>,
        is_added: bool,
    ) -> Done {
        let (m, n, k) = (size(paths.rows())?, size(matrix.outputs)?, size(matrix.inputs)?);
        let (a, b, c) = (Matrices::plain(m, k), Matrices::transposed(k, n), Matrices::plain(m, n));
        let batch = Batch { count: size(paths.range.len())?, m, n, k, a, b, c, scale: 1.0, is_added };
        self.blas.multiply_batch([rows.all(), matrix.numbers.slice(matrix.of(paths))?], to.all_mut(), &batch)
    }
}

impl<'a, T: Number> Backend for Cuda<'a, T> {
    type Matrix = Buffer<T>;
    type Vector = Buffer<T>;
    type Rows = Buffer<T>;
    type Caches<'c> = Caches<'c, T>;
    type Loader<'l>
        = Loader<'l, T>
    where
        Self: 'l;

    const TOGETHER_BYTES: Option<u64> = Some(TOGETHER_BYTES);

    fn loader<'l>(&'l self, weights: &'l FuserWeights) -> Loader<'l, T> {
        Loader { device: self.device, operations: &self.fill, weights, fp8: None }
    }

    fn rows(&self, numbers: usize) -> Result<Buffer<T>, ModelError> {
        Ok(self.device.allocate(numbers)?)
    }

    fn open<'c>(
        &mut self,
        request: &Request<'_>,
        receiver: &'c mut dyn Decoder,
        sharers: Vec<Option<&'c mut dyn Decoder>>,
    ) -> Result<Caches<'c, T>, ModelError> {
        let own = KnownCache::of(receiver, self.device)?;
        let known = |sharer: Option<&'c mut dyn Decoder>| sharer.map(|sharer| KnownCache::of(sharer, self.device));
        let shared: Vec<_> =
            sharers.into_iter().map(|sharer| known(sharer).transpose()).collect::<Result<_, ModelError>>()?;
        let is_kept = request.mode == FuseMode::Parallel && shared.iter().flatten().count() > 1;
        let caches = Caches { own, shared, is_kept };
        caches.devices().try_for_each(|other| wait(self.device, other))?;
        let positions = &request.section.positions;
        let clean = is_kept.then(|| self.keep_clean(&caches.own, positions.start, positions.len())).transpose()?;
        for (sharer, shared) in caches.shared.iter().enumerate() {
            if let Some(shared) = shared {
                self.set_tables(sharer, &request.open[sharer], [shared, &caches.own], clean.as_deref())?;
            }
        }
        Ok(caches)
    }

    fn join(&self, paths: &Paths<'_>, caches: &mut Caches<'_, T>, out: &mut Buffer<T>) -> Result<(), ModelError> {
        let Some(theirs) = &caches.shared[paths.sharer] else { return Ok(()) };
        let (config, start) = (paths.config(), paths.request.section.sharer_starts[paths.sharer]);
        let shared = place(&config.sharer, theirs.cache.capacity, start)?;
        let own = match caches.is_kept {
            true => place(&config.receiver, paths.length(), 0)?,
            false => target(paths, caches)?,
        };
        let (tables, range) = (self.tables(paths)?, &paths.range);
        let shared = (tables.shared.paths(range.start, range.len())?, &shared);
        let own = (tables.own.paths(range.start, range.len())?, &own);
        // SAFETY: the tables point to caches that the fuse borrows, and decoders wait for the stream before they are dropped.
        unsafe { self.operations.join(self.device.stream(), [shared, own], out, &sizes(paths)?)? };
        Ok(())
    }

    fn linear(
        &self,
        paths: &Paths<'_>,
        linear: &Linear<Self>,
        x: &Buffer<T>,
        out: &mut Buffer<T>,
    ) -> Result<(), ModelError> {
        Ok(self.multiply(paths, &linear.weight, x, out, false)?)
    }

    fn block(
        &self,
        paths: &Paths<'_>,
        block: &Block<Self>,
        bias: Option<&Vectors<Self>>,
        x: &mut Buffer<T>,
        copy: Option<&mut Buffer<T>>,
        [normed, inner]: [&mut Buffer<T>; 2],
    ) -> Result<(), ModelError> {
        let of = |vectors: &'_ Vectors<Self>| vectors.of(paths);
        let bias = bias.map(|bias| bias.numbers.slice(of(bias))).transpose()?;
        let by_path = [bias, Some(block.norm.numbers.slice(of(&block.norm))?)];
        let (stream, sizes) = (self.device.stream(), sizes(paths)?);
        let width = (&sizes, size(block.up.inputs)?);
        self.operations.norm(stream, &mut *x, by_path, &mut *normed, copy.map(Buffer::all_mut), width, EPS)?;
        self.multiply(paths, &block.up, normed, inner, false)?;
        let numbers = paths.range.len() * paths.rows() * block.up.outputs;
        self.operations.gelu(stream, inner.slice_mut(0..numbers)?)?;
        Ok(self.multiply(paths, &block.down, inner, x, true)?)
    }

    fn add(
        &self,
        paths: &Paths<'_>,
        caches: &mut Caches<'_, T>,
        (values, value_bias): (&Buffer<T>, &Vectors<Self>),
        (weights, weight_bias): (&Buffer<T>, &Vectors<Self>),
    ) -> Result<(), ModelError> {
        let additions = Additions {
            values: values.all(),
            value_bias: value_bias.numbers.slice(value_bias.of(paths))?,
            weights: weights.all(),
            weight_bias: weight_bias.numbers.slice(weight_bias.of(paths))?,
        };
        let own = (self.tables(paths)?.target.paths(paths.range.start, paths.range.len())?, &target(paths, caches)?);
        // SAFETY: as above; each path has another cache.
        unsafe { self.operations.add(self.device.stream(), own, &additions, &sizes(paths)?)? };
        Ok(())
    }

    fn close(&self, caches: Caches<'_, T>) -> Result<(), ModelError> {
        Ok(caches.devices().try_for_each(|other| wait(other, self.device))?)
    }
}

impl<T> Drop for Cuda<'_, T> {
    fn drop(&mut self) {
        // Pending work uses memory that is freed now.
        let _ = self.device.stream().synchronise();
    }
}

fn sizes(paths: &Paths<'_>) -> Result<FuseSizes, CudaError> {
    let (batch, length) = (size(paths.request.batch)?, size(paths.length())?);
    Ok(FuseSizes { paths: size(paths.range.len())?, batch, length })
}

fn target<T>(paths: &Paths<'_>, caches: &Caches<'_, T>) -> Result<CacheSection, CudaError> {
    place(&paths.config().receiver, caches.own.cache.capacity, paths.request.section.positions.start)
}

fn place(shape: &CacheShape, capacity: usize, start: usize) -> Result<CacheSection, CudaError> {
    let (heads, head_dim) = (size(shape.kv_heads)?, size(shape.head_dim)?);
    Ok(CacheSection { heads, head_dim, capacity: size(capacity)?, start: size(start)? })
}

/// Makes one stream wait for the other, unless they are the same.
fn wait(device: &Device, other: &Device) -> Done {
    match device.stream().raw() == other.stream().raw() {
        true => Ok(()),
        false => device.stream().wait_for(other.stream()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;
    use crate::{Config, fuser::Alignment};

    #[test]
    fn parallel_sharers_need_a_copy_of_the_receiver() {
        let preset = |name| Config::from_preset(name).unwrap();
        let config = FuserConfig::new(&preset("Qwen3-0.6B"), &preset("Qwen3-4B"), Alignment::LastAligned);
        let options = FuseOptions { mode: FuseMode::Parallel, ..FuseOptions::new(Dtype::Bf16) };
        let two = [config.clone(), config];
        let copy = needed_fuser_bytes(&two, &options, [1, 512])
            - needed_fuser_bytes(&two, &FuseOptions::new(Dtype::Bf16), [1, 512]);
        assert_eq!(copy, 56 * 512 * 1024 * 2);
    }
}
