//! The elementwise operations of a cache-to-cache (C2C) fuser, for all paths at once.
#![allow(unsafe_code)]

use super::FUSE;
use super::operations::{copying_threads, norm_kernel};
use crate::launch::*;

const THREADS: u32 = 256;

/// A range of positions of caches `[batch, heads, capacity, head_dim]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSection {
    /// Key and value heads.
    pub heads: u32,
    /// The head size.
    pub head_dim: u32,
    /// The capacity of a cache in positions.
    pub capacity: u32,
    /// The first position.
    pub start: u32,
}

impl CacheSection {
    /// Elements per token.
    pub fn width(&self) -> u32 {
        self.heads.saturating_mul(self.head_dim)
    }

    fn arguments(&self) -> [u32; 4] {
        [self.heads, self.head_dim, self.capacity, self.start]
    }
}

/// The dimensions of a fusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FuseSizes {
    /// Paths: the keys or the values of a layer.
    pub paths: u32,
    /// Sequences.
    pub batch: u32,
    /// Tokens per sequence.
    pub length: u32,
}

impl FuseSizes {
    /// Tokens of all sequences.
    pub fn rows(&self) -> u32 {
        self.batch.saturating_mul(self.length)
    }

    fn elements(&self, width: u32) -> u64 {
        area(self.paths, self.rows()).saturating_mul(width.into())
    }

    fn is_empty(&self) -> bool {
        self.paths == 0 || self.rows() == 0
    }

    fn check(&self, doing: &str) -> Done {
        let rows = u64::from(self.batch) * u64::from(self.length);
        expect(doing, rows < 1 << 31 && self.paths <= MAX_BLOCKS_Y, "too many tokens or paths")
    }

    /// One block per token and path.
    fn shape(&self, threads: u32) -> Shape {
        Shape::new([self.rows(), self.paths, 1], [threads, 1, 1])
    }
}

/// The address of a cache for each path, on the device.
#[derive(Debug)]
pub struct CacheTable {
    host: Vec<u64>,
    device: Buffer<u64>,
}

impl CacheTable {
    /// Allocates this number of addresses. None of them is set yet.
    pub fn new(device: &Device, paths: usize) -> Result<Self, CudaError> {
        Ok(Self { host: Vec::new(), device: device.allocate(paths)? })
    }

    /// Sets the addresses in stream order, if they have changed. Does not wait.
    pub fn set(&mut self, stream: &Stream, addresses: Vec<u64>) -> Done {
        if self.host != addresses {
            // If this fails, the next call tries again.
            self.host.clear();
            // SAFETY: a `Vec` is not pinned memory.
            unsafe { self.device.begin_write(&addresses, stream)? };
            self.host = addresses;
        }
        Ok(())
    }

    /// The addresses of some paths.
    pub fn paths(&self, first: usize, count: usize) -> Result<CacheAddresses<'_>, CudaError> {
        let end = first.saturating_add(count);
        expect("selecting cache addresses", end <= self.host.len(), "there are fewer paths")?;
        Ok(CacheAddresses { host: &self.host[first..end], device: self.device.slice(first..end)? })
    }
}

/// The addresses of some paths' caches.
#[derive(Debug, Clone, Copy)]
pub struct CacheAddresses<'a> {
    host: &'a [u64],
    device: Slice<'a, u64>,
}

/// What a fuser adds to caches, before biases.
#[derive(Debug)]
pub struct Additions<'a, T> {
    /// Values, `[paths, rows, width]`.
    pub values: Slice<'a, T>,
    /// `[paths, width]`.
    pub value_bias: Slice<'a, T>,
    /// A weight per head, before its sigmoid, `[paths, rows, heads]`.
    pub weights: Slice<'a, T>,
    /// `[paths, heads]`.
    pub weight_bias: Slice<'a, T>,
}

kernels! {
    /// The operations of a fuser for one dtype on one device.
    Fuse
    FUSE {
        join: Kernel = kernel("fuse_join"),
        norm: Pair = pair("fuse_norm"),
        gelu: Kernel = kernel("fuse_gelu"),
        add: Kernel = kernel("fuse_add"),
    }
    |device| {
        max_blocks: u32 = device.facts().multiprocessors.max(1) * 16,
    }
}

impl<T: Element> Fuse<T> {
    /// Concatenates each token's heads in the source's and the receiver's cache into a row of `out` `[paths, rows, both
    /// widths]`.
    ///
    /// # Safety
    ///
    /// Every address is that of a cache with the dimensions of its section, which lives until this is done.
    pub unsafe fn join(
        &self,
        stream: &Stream,
        [source, own]: [(CacheAddresses<'_>, &CacheSection); 2],
        out: impl Write<T>,
        sizes: &FuseSizes,
    ) -> Done {
        const DOING: &str = "joining caches";
        check_sections(DOING, &[source, own], sizes)?;
        let width = source.1.width().saturating_add(own.1.width());
        let launch = Launch::new(stream, DOING)
            .read(source.0.device, sizes.paths)
            .read(own.0.device, sizes.paths)
            .rows_at(source.0.host)
            .rows_at(own.0.host)
            .write_rows(out, sizes.elements(width))
            .with(sizes.length)
            .with_all(source.1.arguments())
            .with_all(own.1.arguments());
        let is_aligned = launch.is_aligned::<T>(source.1.head_dim) && launch.is_aligned::<T>(own.1.head_dim);
        let shape = sizes.shape(copying_threads::<T>(width));
        launch.with(is_aligned).skip_if(sizes.is_empty()).run(&self.join, shape)
    }

    /// RMS norm of each row of `x` `[paths, rows, width]` into `out`, with a weight per path `[paths, width]`. The bias
    /// `[paths, width]` is added to `x` first, and the sum also goes to `copy`.
    #[allow(clippy::too_many_arguments)]
    pub fn norm(
        &self,
        stream: &Stream,
        x: impl Write<T>,
        [bias, weight]: [Option<Slice<'_, T>>; 2],
        out: impl Write<T>,
        copy: Option<SliceMut<'_, T>>,
        (sizes, width): (&FuseSizes, u32),
        epsilon: f32,
    ) -> Done {
        const DOING: &str = "normalising paths";
        sizes.check(DOING)?;
        let (elements, per_path) = (sizes.elements(width), area(sizes.paths, width));
        let launch = Launch::new(stream, DOING)
            .require(weight.is_some(), "there is no weight")
            .write_rows(x, elements)
            .read_rows(bias, per_path)
            .read_rows(weight, per_path)
            .write_rows(out, elements)
            .write_rows(copy, elements)
            .with(width)
            .with(epsilon)
            .skip_if(sizes.is_empty());
        let (kernel, threads) = norm_kernel::<T>(&self.norm, width, launch.is_aligned::<T>(width));
        launch.run(kernel, sizes.shape(threads))
    }

    /// Applies the exact GELU: `x (1 + erf(x / √2)) / 2`.
    pub fn gelu<'a>(&self, stream: &Stream, x: impl Into<SliceMut<'a, T>>) -> Done {
        let x = x.into();
        let count = x.length() as u64;
        let launch = Launch::new(stream, "applying GELU").write_rows(x, count).with(count);
        let is_aligned = launch.is_aligned::<T>(0);
        let threads = count.div_ceil(if is_aligned { 16 / size_of::<T>() as u64 } else { 1 });
        let blocks = threads.div_ceil(THREADS.into()).min(self.max_blocks.into()) as u32;
        launch.with(is_aligned).run(&self.gelu, Shape::line(blocks, THREADS))
    }

    /// Adds to each head of each token in the caches its value times the sigmoid of its weight.
    ///
    /// # Safety
    ///
    /// Every address is that of a cache with the dimensions of the section, which lives until this is done; no two are the
    /// same, and nothing else accesses them meanwhile.
    pub unsafe fn add(
        &self,
        stream: &Stream,
        own: (CacheAddresses<'_>, &CacheSection),
        additions: &Additions<'_, T>,
        sizes: &FuseSizes,
    ) -> Done {
        const DOING: &str = "adding to caches";
        let Additions { values, value_bias, weights, weight_bias } = *additions;
        check_sections(DOING, &[own], sizes)?;
        let (width, heads) = (own.1.width(), own.1.heads);
        let launch = Launch::new(stream, DOING)
            .read(own.0.device, sizes.paths)
            .rows_at(own.0.host)
            .read_rows(values, sizes.elements(width))
            .read_rows(value_bias, area(sizes.paths, width))
            .read(weights, sizes.elements(heads))
            .read(weight_bias, area(sizes.paths, heads))
            .with(sizes.length)
            .with_all(own.1.arguments())
            .with_alignment::<T>(own.1.head_dim)
            .skip_if(sizes.is_empty());
        launch.run(&self.add, sizes.shape(copying_threads::<T>(width)))
    }
}

fn check_sections(doing: &str, sections: &[(CacheAddresses<'_>, &CacheSection)], sizes: &FuseSizes) -> Done {
    sizes.check(doing)?;
    expect(
        doing,
        sections.iter().all(|(caches, _)| caches.host.len() == sizes.paths as usize),
        "there are fewer paths",
    )?;
    let fits = |section: &CacheSection| {
        let end = u64::from(section.start) + u64::from(sizes.length);
        end <= section.capacity.into() && section.head_dim > 0 && area(section.heads, section.head_dim) < 1 << 31
    };
    expect(doing, sections.iter().all(|(_, section)| fits(section)), "the positions are beyond the caches")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_a_grid_are_refused() {
        let sizes = FuseSizes { paths: 56, batch: 1, length: 512 };
        assert!(sizes.check("x").is_ok());
        assert!(FuseSizes { paths: 65_536, ..sizes }.check("x").is_err());
        assert!(FuseSizes { batch: 1 << 16, length: 1 << 15, ..sizes }.check("x").is_err());
        assert_eq!((sizes.rows(), sizes.elements(10)), (512, 56 * 512 * 10));
    }
}
