//! The operations of cache-to-cache (C2C) fusion between the products: all paths of a fuser at once.
#![allow(unsafe_code)]

use super::FUSE;
use super::operations::{copying_threads, norm_kernel};
use crate::launch::*;

const THREADS: u32 = 256;

/// Positions of caches, [batch, heads, capacity, head_dim] each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSection {
    /// Heads of keys or values.
    pub heads: u32,
    /// Numbers of a head.
    pub head_dim: u32,
    /// The capacity of a cache in positions.
    pub capacity: u32,
    /// The first position.
    pub start: u32,
}

impl CacheSection {
    /// Numbers of a token.
    pub fn width(&self) -> u32 {
        self.heads.saturating_mul(self.head_dim)
    }

    fn arguments(&self) -> [u32; 4] {
        [self.heads, self.head_dim, self.capacity, self.start]
    }
}

/// The fused tokens and the number of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FuseSizes {
    /// Paths: the keys or the values of a layer each.
    pub paths: u32,
    /// Sequences.
    pub batch: u32,
    /// Tokens of each sequence.
    pub length: u32,
}

impl FuseSizes {
    /// Tokens of all sequences.
    pub fn rows(&self) -> u32 {
        self.batch.saturating_mul(self.length)
    }

    fn numbers(&self, width: u32) -> u64 {
        area(self.paths, self.rows()).saturating_mul(width.into())
    }

    fn is_empty(&self) -> bool {
        self.paths == 0 || self.rows() == 0
    }

    fn check(&self, doing: &str) -> Done {
        let rows = u64::from(self.batch) * u64::from(self.length);
        expect(doing, rows < 1 << 31 && self.paths <= MOST_BLOCKS_Y, "too many tokens or paths")
    }

    /// A block for each token of each path.
    fn shape(&self, threads: u32) -> Shape {
        Shape { grid: [self.rows(), self.paths, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }
}

/// The addresses of a cache for each path, on the device.
#[derive(Debug)]
pub struct CacheTable {
    known: Vec<u64>,
    there: Buffer<u64>,
}

impl CacheTable {
    /// Allocates this number of addresses, none of which is set yet.
    pub fn new(device: &Device, paths: usize) -> Result<Self, CudaError> {
        Ok(Self { known: Vec::new(), there: device.allocate(paths)? })
    }

    /// Puts addresses on a stream, unless they are there already, and does not wait for it.
    pub fn set(&mut self, stream: &Stream, addresses: Vec<u64>) -> Done {
        if self.known != addresses {
            // What is not known to be there is put anew, should this fail.
            self.known.clear();
            // SAFETY: a list of the host's own memory is no pinned memory.
            unsafe { self.there.begin_write(&addresses, stream)? };
            self.known = addresses;
        }
        Ok(())
    }

    /// Those of some paths.
    pub fn paths(&self, first: usize, count: usize) -> Result<CachePlaces<'_>, CudaError> {
        let end = first.saturating_add(count);
        expect("taking addresses", end <= self.known.len(), "there are fewer paths")?;
        Ok(CachePlaces { known: &self.known[first..end], there: self.there.slice(first..end)? })
    }
}

/// The addresses of some paths.
#[derive(Debug, Clone, Copy)]
pub struct CachePlaces<'a> {
    known: &'a [u64],
    there: Slice<'a, u64>,
}

impl CachePlaces<'_> {
    fn are(&self, paths: u32) -> bool {
        self.known.len() == paths as usize
    }
}

/// What a fuser adds to caches, before biases.
#[derive(Debug)]
pub struct Additions<'a, T> {
    /// Values, [paths, rows, width].
    pub values: Slice<'a, T>,
    /// [paths, width].
    pub value_bias: Slice<'a, T>,
    /// A weight for each head, before its sigmoid, [paths, rows, heads].
    pub weights: Slice<'a, T>,
    /// [paths, heads].
    pub weight_bias: Slice<'a, T>,
}

kernels! {
    /// The operations of a fuser on numbers of one type, on one device.
    Fuse
    FUSE {
        join: Kernel = kernel("fuse_join"),
        norm: Pair = pair("fuse_norm"),
        gelu: Kernel = kernel("fuse_gelu"),
        add: Kernel = kernel("fuse_add"),
    }
    |device| {
        most_blocks: u32 = device.facts().multiprocessors.max(1) * 16,
    }
}

impl<T: Element> Fuse<T> {
    /// Puts what was heard of each token, and behind it what is there, all heads side by side, into a row of `out`,
    /// [paths, rows, both widths].
    ///
    /// # Safety
    ///
    /// Every address is that of a cache of the sizes of its section, which lives until this is done.
    pub unsafe fn join<'a>(
        &self,
        stream: &Stream,
        [heard, own]: [(CachePlaces<'_>, &CacheSection); 2],
        out: impl Into<SliceMut<'a, T>>,
        sizes: &FuseSizes,
    ) -> Done {
        const DOING: &str = "joining caches";
        check_sections(DOING, &[heard, own], sizes)?;
        let width = heard.1.width().saturating_add(own.1.width());
        let launch = Launch::new(stream, DOING)
            .read(heard.0.there, sizes.paths)
            .read(own.0.there, sizes.paths)
            .rows_at(heard.0.known)
            .rows_at(own.0.known)
            .write_rows(out.into(), sizes.numbers(width))
            .with(sizes.length)
            .with_all(heard.1.arguments())
            .with_all(own.1.arguments());
        let is_aligned = launch.is_aligned::<T>(heard.1.head_dim) && launch.is_aligned::<T>(own.1.head_dim);
        let shape = sizes.shape(copying_threads::<T>(width));
        launch.with(is_aligned).skip_if(sizes.is_empty()).run(&self.join, shape)
    }

    /// Puts the RMS norm of each row of `x`, [paths, rows, width], into `out`, with a weight a path, [paths, width].
    ///
    /// A bias, [paths, width], is added to `x` first, where there is one. What `x` then is goes to `copy` too, where that
    /// is.
    #[allow(clippy::too_many_arguments)]
    pub fn norm<'a>(
        &self,
        stream: &Stream,
        x: impl Into<SliceMut<'a, T>>,
        [bias, weight]: [Option<Slice<'_, T>>; 2],
        out: impl Into<SliceMut<'a, T>>,
        copy: Option<SliceMut<'_, T>>,
        (sizes, width): (&FuseSizes, u32),
        epsilon: f32,
    ) -> Done {
        const DOING: &str = "normalising paths";
        sizes.check(DOING)?;
        let (numbers, a_path) = (sizes.numbers(width), area(sizes.paths, width));
        let launch = Launch::new(stream, DOING)
            .require(weight.is_some(), "there is no weight")
            .write_rows(x.into(), numbers)
            .read_rows(bias, a_path)
            .read_rows(weight, a_path)
            .write_rows(out.into(), numbers)
            .write_rows(copy, numbers)
            .with(width)
            .with(epsilon)
            .skip_if(sizes.is_empty());
        let (kernel, threads) = norm_kernel::<T>(&self.norm, width, launch.is_aligned::<T>(width));
        launch.run(kernel, sizes.shape(threads))
    }

    /// Makes every number of `x` its gelu, the exact one: `x (1 + erf(x / √2)) / 2`.
    pub fn gelu<'a>(&self, stream: &Stream, x: impl Into<SliceMut<'a, T>>) -> Done {
        let x = x.into();
        let count = x.length() as u64;
        let launch = Launch::new(stream, "applying GELU").write_rows(x, count).with(count);
        let is_aligned = launch.is_aligned::<T>(0);
        let threads = count.div_ceil(if is_aligned { 16 / size_of::<T>() as u64 } else { 1 });
        let blocks = threads.div_ceil(THREADS.into()).min(self.most_blocks.into()) as u32;
        launch.with(is_aligned).run(&self.gelu, Shape::line(blocks, THREADS))
    }

    /// Adds to each head of each token its value times the sigmoid of its weight, where it lies in the caches.
    ///
    /// # Safety
    ///
    /// Every address is that of a cache of the sizes of the section, which lives until this is done; no two are the same,
    /// and nothing else reads or writes them meanwhile.
    pub unsafe fn add(
        &self,
        stream: &Stream,
        own: (CachePlaces<'_>, &CacheSection),
        additions: &Additions<'_, T>,
        sizes: &FuseSizes,
    ) -> Done {
        const DOING: &str = "adding to caches";
        let Additions { values, value_bias, weights, weight_bias } = *additions;
        check_sections(DOING, &[own], sizes)?;
        let (width, heads) = (own.1.width(), own.1.heads);
        let launch = Launch::new(stream, DOING)
            .read(own.0.there, sizes.paths)
            .rows_at(own.0.known)
            .read_rows(values, sizes.numbers(width))
            .read_rows(value_bias, area(sizes.paths, width))
            .read(weights, sizes.numbers(heads))
            .read(weight_bias, area(sizes.paths, heads))
            .with(sizes.length)
            .with_all(own.1.arguments())
            .with_alignment::<T>(own.1.head_dim)
            .skip_if(sizes.is_empty());
        launch.run(&self.add, sizes.shape(copying_threads::<T>(width)))
    }
}

fn check_sections(doing: &str, sections: &[(CachePlaces<'_>, &CacheSection)], sizes: &FuseSizes) -> Done {
    sizes.check(doing)?;
    expect(doing, sections.iter().all(|(places, _)| places.are(sizes.paths)), "there are fewer paths")?;
    let fits = |section: &CacheSection| {
        let end = u64::from(section.start) + u64::from(sizes.length);
        end <= section.capacity.into() && section.head_dim > 0 && area(section.heads, section.head_dim) < 1 << 31
    };
    expect(doing, sections.iter().all(|(_, section)| fits(section)), "the positions are not in the caches")
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
        assert_eq!((sizes.rows(), sizes.numbers(10)), (512, 56 * 512 * 10));
    }
}
