//! The chain on a GPU, launched product by product or replayed as a graph.

// A graph stores addresses of buffers; the iteration keeps the buffers as long as the graph.
#![allow(unsafe_code)]

use laptime_bench::{Device, Iteration, Prepared, Work};
use laptime_cuda::{Blas, Buffer, CudaError, Graph, Pinned};
use laptime_probe::{stage, sync_point};

use super::{CudaDevice, WORKSPACE_BYTES, into_error};
use crate::chain::{LARGE_PRODUCTS, SMALL_PRODUCTS, Sizes, check_chain, rotation, start};

pub fn prepare<'a>(sizes: Sizes, has_graph: bool, gpu: &'a CudaDevice) -> anyhow::Result<Prepared<'a>> {
    let largest = sizes.small.max(sizes.large);
    if u32::try_from(largest).is_err() {
        return Ok(Prepared::DoesNotApply(format!("cuBLAS does not accept matrices of {largest} rows")));
    }
    let needed = sizes.matrix_bytes().saturating_add(WORKSPACE_BYTES);
    Prepared::if_it_fits(needed, gpu, || {
        let mut iteration = GpuChain::new(sizes, gpu)?;
        if has_graph {
            iteration.capture()?;
        }
        Ok(Box::new(iteration))
    })
}

/// A prepared chain. The graphs come first: they go before the buffers that they use.
struct GpuChain<'a> {
    graphs: Option<[Graph; 2]>,
    gpu: &'a CudaDevice,
    sizes: Sizes,
    blas: Blas,
    small: Products,
    large: Products,
}

/// Products of one size, each the next one's left factor.
struct Products {
    size: usize,
    sizes: laptime_cuda::Sizes,
    count: usize,
    host: [Vec<f32>; 2],
    start: Buffer<f32>,
    by: Buffer<f32>,
    results: [Buffer<f32>; 2],
    row: Pinned<f32>,
}

impl Products {
    fn new(size: usize, count: usize, gpu: &CudaDevice) -> anyhow::Result<Self> {
        let cuda = gpu.cuda();
        let side = u32::try_from(size)?;
        let host = [start(size, 3), rotation(size, 1)];
        let made = || -> Result<_, CudaError> {
            let results = [cuda.allocate(size * size)?, cuda.allocate(size * size)?];
            Ok((cuda.upload(&host[0])?, cuda.upload(&host[1])?, results, cuda.allocate_pinned(size)?))
        };
        let (start, by, results, row) = made().map_err(into_error)?;
        let sizes = laptime_cuda::Sizes { m: side, n: side, k: side, b_is_transposed: false };
        Ok(Self { size, sizes, count, host, start, by, results, row })
    }

    /// Puts all products on the stream.
    fn multiply(&mut self, blas: &Blas) -> Result<(), CudaError> {
        let Self { sizes, count, start, by, results: [one, other], .. } = self;
        blas.multiply([&*start, &*by], one, *sizes)?;
        let (mut from, mut to) = (one, other);
        for _ in 1..*count {
            blas.multiply([&*from, &*by], to, *sizes)?;
            std::mem::swap(&mut from, &mut to);
        }
        Ok(())
    }

    /// Puts the copy of the first row on the stream.
    fn begin_read(&mut self, gpu: &CudaDevice) -> Result<(), CudaError> {
        let result = &self.results[(self.count - 1) % 2];
        // SAFETY: the caller waits for the stream before it looks at the row or lets it go.
        unsafe { result.begin_read(&mut self.row, gpu.cuda().stream()) }
    }

    fn check(&self) -> anyhow::Result<()> {
        let result = self.results[(self.count - 1) % 2].read().map_err(into_error)?;
        anyhow::ensure!(result[..self.size] == self.row[..], "the row that was read differs from the result");
        check_chain(self.size, self.count, &self.host[0], &self.host[1], &result)
    }
}

impl<'a> GpuChain<'a> {
    fn new(sizes: Sizes, gpu: &'a CudaDevice) -> anyhow::Result<Self> {
        let _stage = stage!("prepare_inputs", small = sizes.small, large = sizes.large);
        let blas = Blas::new(gpu.cuda()).map_err(into_error)?;
        let small = Products::new(sizes.small, SMALL_PRODUCTS, gpu)?;
        let large = Products::new(sizes.large, LARGE_PRODUCTS, gpu)?;
        Ok(Self { graphs: None, gpu, sizes, blas, small, large })
    }

    /// Captures both stages, after one run that loads what they need.
    fn capture(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("capture");
        let stream = self.gpu.cuda().stream();
        self.run()?;
        let Self { blas, small, large, .. } = self;
        let small = Graph::capture(stream, || small.multiply(blas)).map_err(into_error)?;
        let large = Graph::capture(stream, || large.multiply(blas)).map_err(into_error)?;
        for graph in [&small, &large] {
            graph.upload(stream).map_err(into_error)?;
        }
        self.graphs = Some([small, large]);
        Ok(())
    }

    fn products(&mut self, which: usize) -> Result<(), CudaError> {
        match &self.graphs {
            // SAFETY: the buffers and the workspace live in this iteration, which waits for the stream before it goes.
            Some(graphs) => unsafe { graphs[which].launch(self.gpu.cuda().stream()) },
            None => [&mut self.small, &mut self.large][which].multiply(&self.blas),
        }
    }
}

impl Iteration for GpuChain<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        self.small.check()?;
        self.large.check()
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let lane = self.gpu.lane();
        {
            let _stage = stage!("small", on = lane, size = self.small.size, products = self.small.count);
            self.products(0).map_err(into_error)?;
        }
        {
            let _stage = stage!("large", on = lane, size = self.large.size, products = self.large.count);
            self.products(1).map_err(into_error)?;
        }
        let _stage = stage!("read_back", on = lane);
        self.small.begin_read(self.gpu).map_err(into_error)?;
        self.large.begin_read(self.gpu).map_err(into_error)?;
        sync_point!("read_result", self.gpu.cuda().stream().synchronise()).map_err(into_error)
    }

    fn work(&self) -> Option<Work> {
        Some(self.sizes.work())
    }
}

impl Drop for GpuChain<'_> {
    fn drop(&mut self) {
        // Work on the stream uses memory that is freed now, so it is waited for. A failed stream does nothing more.
        let _ = self.gpu.cuda().stream().synchronise();
    }
}
