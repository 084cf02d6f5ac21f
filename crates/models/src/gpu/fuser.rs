//! Fusers on a GPU: all paths of all layers together, each product one batch of cuBLAS.
//!
//! Paths are computed together as far as memory allows; one after another, it is the same with one path at a time.

// Kernels are given addresses of caches; the fuse borrows them until all is on the stream.
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

/// Bytes that paths are computed in at most, unless one alone takes more: enough for 28 layers of 4096 tokens at once.
const TOGETHER_BYTES: u64 = 4 << 30;

/// Puts the fusers of one receiver on a device, one for each sharer. Weights by formula are made there; paths whose gate is
/// closed are left out.
///
/// A fuse works on the device's stream. Decoders may have streams of their own: those wait for each other as is needed,
/// and the host waits for nothing.
pub fn fuser<'a>(
    device: &'a Device,
    fusers: Vec<(FuserConfig, &FuserWeights)>,
    options: FuseOptions,
) -> Result<Box<dyn Fusing + 'a>, ModelError> {
    options.dtype.refuse_quantised("cache-to-cache fusion")?;
    let fuser: Box<dyn Fusing + 'a> =
        typed!(options.dtype, |T| Box::new(Engine::new(Cuda::<T>::new(device)?, fusers, options)?));
    // The weights are there before the first fuse is timed.
    device.stream().synchronise()?;
    Ok(fuser)
}

/// Bytes that fusers need at most on a GPU, all gates open, to fuse this many tokens of this many sequences at a time.
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
    /// Keys and values of every layer of the receiver as they were, where several sharers read them.
    clean: Option<Buffer<T>>,
}

struct Tables {
    heard: CacheTable,
    own: CacheTable,
    target: CacheTable,
}

struct Caches<'c, T> {
    own: KnownCache<'c, T>,
    heard: Vec<Option<KnownCache<'c, T>>>,
    /// Whether the receiver is read as it was.
    is_kept: bool,
}

impl<T> Caches<'_, T> {
    fn devices(&self) -> impl Iterator<Item = &Device> {
        std::iter::once(&self.own).chain(self.heard.iter().flatten()).map(|cache| cache.device)
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

    /// Keeps the receiver's keys and values beside, for sharers that all read them as they were. Gives where.
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

    /// Notes where the caches of a sharer's paths are. `clean` has the address of what is read of each path of the
    /// receiver, if that is not its cache.
    fn set_tables(
        &mut self,
        sharer: usize,
        paths: &[OpenPath],
        [heard, own]: [&KnownCache<'_, T>; 2],
        clean: Option<&[[u64; 2]]>,
    ) -> Done {
        let of_heard = |open: &OpenPath| heard.cache.layers[open.sharer_layer][open.path as usize].pointer();
        let of_own = |open: &OpenPath| own.cache.layers[open.layer][open.path as usize].pointer();
        let read = |open: &OpenPath| clean.map_or_else(|| of_own(open), |clean| clean[open.layer][open.path as usize]);
        let stream = self.device.stream();
        let table = || CacheTable::new(self.device, paths.len());
        if self.tables.len() <= sharer {
            self.tables.resize_with(sharer + 1, || None);
        }
        let tables = match &mut self.tables[sharer] {
            Some(tables) => tables,
            none => none.insert(Tables { heard: table()?, own: table()?, target: table()? }),
        };
        tables.heard.set(stream, paths.iter().map(of_heard).collect())?;
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
        let heard: Vec<_> =
            sharers.into_iter().map(|sharer| known(sharer).transpose()).collect::<Result<_, ModelError>>()?;
        let is_kept = request.mode == FuseMode::Parallel && heard.iter().flatten().count() > 1;
        let caches = Caches { own, heard, is_kept };
        caches.devices().try_for_each(|other| wait(self.device, other))?;
        let positions = &request.section.positions;
        let clean = is_kept.then(|| self.keep_clean(&caches.own, positions.start, positions.len())).transpose()?;
        for (sharer, heard) in caches.heard.iter().enumerate() {
            if let Some(heard) = heard {
                self.set_tables(sharer, &request.open[sharer], [heard, &caches.own], clean.as_deref())?;
            }
        }
        Ok(caches)
    }

    fn join(&self, paths: &Paths<'_>, caches: &mut Caches<'_, T>, out: &mut Buffer<T>) -> Result<(), ModelError> {
        let Some(theirs) = &caches.heard[paths.sharer] else { return Ok(()) };
        let (config, start) = (paths.config(), paths.request.section.sharer_starts[paths.sharer]);
        let heard = place(&config.sharer, theirs.cache.capacity, start)?;
        let own = match caches.is_kept {
            true => place(&config.receiver, paths.length(), 0)?,
            false => target(paths, caches)?,
        };
        let (tables, range) = (self.tables(paths)?, &paths.range);
        let heard = (tables.heard.paths(range.start, range.len())?, &heard);
        let own = (tables.own.paths(range.start, range.len())?, &own);
        // SAFETY: the tables were set from caches that the fuse borrows; decoders wait for the stream before they go.
        unsafe { self.operations.join(self.device.stream(), [heard, own], out, &sizes(paths)?)? };
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
        // What is on the stream uses memory that goes now; a stream that failed does no more.
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

/// Lets one device's stream wait for the other's, if they are two.
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
    fn what_parallel_sharers_read_is_kept_beside() {
        let preset = |name| Config::from_preset(name).unwrap();
        let config = FuserConfig::new(&preset("Qwen3-0.6B"), &preset("Qwen3-4B"), Alignment::LastAligned);
        let options = FuseOptions { mode: FuseMode::Parallel, ..FuseOptions::new(Dtype::Bf16) };
        let two = [config.clone(), config];
        let beside = needed_fuser_bytes(&two, &options, [1, 512])
            - needed_fuser_bytes(&two, &FuseOptions::new(Dtype::Bf16), [1, 512]);
        assert_eq!(beside, 56 * 512 * 1024 * 2);
    }
}
