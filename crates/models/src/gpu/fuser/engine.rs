//! Fusers on a GPU whose numbers are all of one type.

// Kernels are given addresses of caches; the fuse borrows them until all is on the stream.
#![allow(unsafe_code)]

use std::ops::Range;

use laptime_cuda::{
    Blas, Buffer, Cache, CudaError, Device,
    nn::{CacheSection, Fuse, FuseSizes, Operations},
};

use super::{
    super::{device_cache::KnownCache, size, weights::Number},
    buffers::{BufferSizes, Buffers},
    path::Run,
    weights::{OpenPath, Packed},
};
use crate::{
    Decoder, ModelError,
    fuser::{
        CacheShape, FuseMode, FuseOptions, FuseOrder, Fused, FuserConfig, FuserWeights, Fusing, Gates, Path, Section,
        check_section,
    },
    marks::stage_mark,
};

/// Fusers on a GPU whose numbers are all of one type.
pub struct Engine<'a, T> {
    device: &'a Device,
    configs: Vec<FuserConfig>,
    options: FuseOptions,
    gates: Vec<Gates>,
    packed: Vec<Packed<T>>,
    blas: Blas,
    operations: Fuse<T>,
    buffers: Buffers<T>,
    /// Keys and values of every layer of the receiver as they were, where several sharers read them.
    clean: Option<Buffer<T>>,
}

/// Paths of a sharer that are computed together.
struct Together {
    sharer: usize,
    paths: Range<usize>,
}

/// How much is fused.
#[derive(Clone, Copy)]
struct Tokens {
    batch: usize,
    length: usize,
}

impl Tokens {
    fn rows(self) -> usize {
        self.batch.saturating_mul(self.length)
    }
}

impl<'a, T: Number> Engine<'a, T> {
    /// Puts the weights of open paths on a device.
    pub fn new(
        device: &'a Device,
        fusers: Vec<(FuserConfig, &FuserWeights)>,
        options: FuseOptions,
    ) -> Result<Self, ModelError> {
        let gates: Vec<Gates> =
            fusers.iter().map(|(config, weights)| weights.gates(config)).collect::<Result<_, _>>()?;
        let fill = Operations::load(device, &Cache::of_user())?;
        let load = |((config, weights), gates): (&(FuserConfig, &FuserWeights), &Gates)| {
            Packed::load(device, &fill, (config, gates), weights)
        };
        let packed = fusers.iter().zip(&gates).map(load).collect::<Result<_, _>>()?;
        device.stream().synchronise()?;
        Ok(Self {
            device,
            configs: fusers.into_iter().map(|(config, _)| config).collect(),
            options,
            gates,
            packed,
            blas: Blas::new(device)?,
            operations: Fuse::load(device, &Cache::of_user())?,
            buffers: Buffers::new(device, BufferSizes::default())?,
            clean: None,
        })
    }

    /// What is computed one after another: paths of one sharer each. Layers come in order where each path is alone.
    fn order(&self, section: &Section, rows: usize) -> Vec<Together> {
        let mut order = Vec::new();
        for (sharer, packed) in self.packed.iter().enumerate().filter(|(at, _)| section.mask.has(*at)) {
            let step = self.at_once(sharer, rows);
            let count = packed.paths.len();
            let together = |start: usize| Together { sharer, paths: start..count.min(start.saturating_add(step)) };
            order.extend((0..count).step_by(step).map(together));
        }
        if self.options.order == FuseOrder::ByLayer {
            order.sort_by_key(|together| self.first(together).map_or(0, |open| open.layer));
        }
        order
    }

    /// How many paths of a sharer are computed together.
    fn at_once(&self, sharer: usize, rows: usize) -> usize {
        match self.options.order {
            FuseOrder::ByLayer => 1,
            FuseOrder::Batched => {
                let sizes = BufferSizes::of_path(&self.configs[sharer], rows);
                sizes.paths_at_once(self.options.dtype.bytes())
            }
        }
    }

    fn first(&self, together: &Together) -> Option<&OpenPath> {
        self.packed[together.sharer].paths.get(together.paths.start)
    }

    /// Makes room for all that is computed.
    fn make_ready(&mut self, order: &[Together], rows: usize) -> Result<(), CudaError> {
        let sizes = |together: &Together| {
            BufferSizes::of_path(&self.configs[together.sharer], rows).times(together.paths.len())
        };
        let sizes = order.iter().map(sizes).fold(BufferSizes::default(), BufferSizes::max);
        self.buffers.fit(self.device, sizes)
    }

    /// Keeps the receiver's keys and values beside, for sharers that all read them as they were. Gives where.
    fn keep_clean(
        &mut self,
        own: &KnownCache<'_, T>,
        start: usize,
        tokens: Tokens,
    ) -> Result<Vec<[u64; 2]>, CudaError> {
        let (layers, numbers) = (own.cache.layers.len(), own.cache.section_numbers(tokens.length));
        if self.clean.as_ref().is_none_or(|clean| clean.length() < 2 * layers * numbers) {
            self.clean = None;
            self.clean = Some(self.device.allocate(2 * layers * numbers)?);
        }
        let (Some(clean), stream) = (&mut self.clean, self.device.stream()) else { return Ok(Vec::new()) };
        let mut keep = |layer: usize, path: Path| -> Result<u64, CudaError> {
            let begin = (2 * layer + path as usize) * numbers;
            let to = clean.slice_mut(begin..begin + numbers)?;
            let address = to.pointer();
            own.cache.copy_section(
                stream,
                &own.cache.layers[layer][path as usize],
                start..start + tokens.length,
                to,
            )?;
            Ok(address)
        };
        (0..layers).map(|layer| Ok([keep(layer, Path::Keys)?, keep(layer, Path::Values)?])).collect()
    }

    /// Notes where all caches are.
    fn set_tables(
        &mut self,
        own: &KnownCache<'_, T>,
        heard: &[Option<KnownCache<'_, T>>],
        clean: Option<&[[u64; 2]]>,
    ) -> Result<(), CudaError> {
        for (packed, heard) in self.packed.iter_mut().zip(heard) {
            if let Some(heard) = heard {
                let Packed { tables, paths, .. } = packed;
                tables.set(self.device.stream(), paths, [heard, own], clean)?;
            }
        }
        Ok(())
    }

    /// Computes some paths.
    fn run(
        &mut self,
        together: &Together,
        [heard, own, target]: [CacheSection; 3],
        tokens: Tokens,
    ) -> Result<(), CudaError> {
        let _stage = self.mark(together);
        let Together { sharer, paths } = together;
        let run = Run {
            stream: self.device.stream(),
            blas: &self.blas,
            operations: &self.operations,
            marks: &self.options.marks,
            weights: &self.packed[*sharer],
            paths: paths.clone(),
            sizes: FuseSizes { paths: size(paths.len())?, batch: size(tokens.batch)?, length: size(tokens.length)? },
            heard,
            own,
            target,
        };
        // SAFETY: the tables were set from caches that the fuse borrows; decoders wait for the stream before they go.
        unsafe { run.add(&mut self.buffers) }
    }

    /// Marks a path, where each is a stage of its own.
    fn mark(&self, together: &Together) -> Option<impl Sized + use<T>> {
        let marks = &self.options.marks;
        if self.options.order == FuseOrder::Batched {
            return None;
        }
        let (layer, sharer) = (self.first(together)?.layer, together.sharer);
        match self.first(together)?.path {
            Path::Keys => stage_mark!(marks, Pipeline, "fuse_keys", layer = layer, sharer = sharer),
            Path::Values => stage_mark!(marks, Pipeline, "fuse_values", layer = layer, sharer = sharer),
        }
    }

    /// Fuses a section with everybody who is heard, whose caches these are.
    fn fuse_caches(
        &mut self,
        own: &KnownCache<'_, T>,
        heard: &[Option<KnownCache<'_, T>>],
        section: &Section,
        tokens: Tokens,
    ) -> Result<(), CudaError> {
        let order = self.order(section, tokens.rows());
        self.make_ready(&order, tokens.rows())?;
        let start = section.positions.start;
        let is_kept = self.options.mode == FuseMode::Parallel && heard.iter().flatten().count() > 1;
        let clean = is_kept.then(|| self.keep_clean(own, start, tokens)).transpose()?;
        self.set_tables(own, heard, clean.as_deref())?;
        for together in &order {
            let Some(theirs) = &heard[together.sharer] else { continue };
            let config = &self.configs[together.sharer];
            let heard_start = section.sharer_starts[together.sharer];
            let target = place(&config.receiver, own.cache.capacity, start)?;
            let read = if is_kept { place(&config.receiver, tokens.length, 0)? } else { target };
            let heard = place(&config.sharer, theirs.cache.capacity, heard_start)?;
            self.run(together, [heard, read, target], tokens)?;
        }
        Ok(())
    }
}

/// Where a section lies in caches of a shape.
fn place(shape: &CacheShape, capacity: usize, start: usize) -> Result<CacheSection, CudaError> {
    let (heads, head_dim) = (size(shape.kv_heads)?, size(shape.head_dim)?);
    Ok(CacheSection { heads, head_dim, capacity: size(capacity)?, start: size(start)? })
}

/// Lets one device's stream wait for the other's, if they are two.
fn wait(device: &Device, other: &Device) -> Result<(), CudaError> {
    match device.stream().raw() == other.stream().raw() {
        true => Ok(()),
        false => device.stream().wait_for(other.stream()),
    }
}

impl<T: Number> Fusing for Engine<'_, T> {
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
        check_section(self, receiver, sharers, section)?;
        let tokens = Tokens { batch: receiver.options().batch, length: section.positions.len() };
        if tokens.length == 0 {
            return Ok(Fused::default());
        }
        let is_heard = self.gates.iter().enumerate().filter(|(at, _)| section.mask.has(*at));
        let fused = is_heard.map(|(_, gates)| Fused::of(gates)).fold(Fused::default(), Fused::plus);
        let own = KnownCache::<T>::of(receiver, self.device)?;
        let mut heard = Vec::with_capacity(sharers.len());
        for (at, sharer) in sharers.iter_mut().enumerate() {
            let is_heard = section.mask.has(at);
            heard.push(if is_heard { Some(KnownCache::<T>::of(&mut **sharer, self.device)?) } else { None });
        }
        let marks = self.options.marks.clone();
        let _stage = stage_mark!(marks, Pipeline, "projector", tokens = tokens.length, layers = fused.layers);
        let others = || std::iter::once(&own).chain(heard.iter().flatten()).map(|cache| cache.device);
        others().try_for_each(|other| wait(self.device, other))?;
        self.fuse_caches(&own, &heard, section, tokens)?;
        others().try_for_each(|other| wait(other, self.device))?;
        Ok(fused)
    }
}

impl<T> Drop for Engine<'_, T> {
    fn drop(&mut self) {
        // What is on the stream uses memory that goes now; a stream that failed does no more.
        let _ = self.device.stream().synchronise();
    }
}
