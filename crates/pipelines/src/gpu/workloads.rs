//! The workloads `matmul` (by cuBLAS), `copy` and `chain` (launched product by product, or replayed as a graph) on a GPU.

// Copies of pinned memory are asynchronous, and a graph stores addresses of buffers: iterations keep all buffers alive
// until the device is done.
#![allow(unsafe_code)]

use anyhow::{bail, ensure};
use half::{bf16, f16};
use laptime_bench::{Device, Iteration, Prepared, Traffic, Work};
use laptime_cuda::{Blas, Buffer, CudaError, Element, Graph, Pinned};
use laptime_probe::{stage, sync_point};

use super::{CudaDevice, SMALLEST_BYTES, WORKSPACE_BYTES};
use crate::chain::{LARGE_PRODUCTS, SMALL_PRODUCTS, Sizes, check_chain, rotation, start};
use crate::copy::{copy_work, pattern_at};
use crate::crew::{Crew, all_threads};
use crate::matmul::{product_work, random};
use crate::product::{Multiplied, check_product};

/// Prepares a product; dtypes without a product do not apply.
pub fn prepare_matmul<'a>(size: usize, dtype: &str, gpu: &'a CudaDevice) -> anyhow::Result<Prepared<'a>> {
    match dtype {
        "f32" => prepare_product::<f32>(size, gpu),
        "bf16" => prepare_product::<bf16>(size, gpu),
        "f16" => prepare_product::<f16>(size, gpu),
        other => Ok(Prepared::DoesNotApply(format!("`matmul` on a GPU has no dtype `{other}`"))),
    }
}

fn prepare_product<'a, T: Multiplied + Element>(size: usize, gpu: &'a CudaDevice) -> anyhow::Result<Prepared<'a>> {
    let Ok(side) = u32::try_from(size) else {
        return Ok(Prepared::DoesNotApply(format!("cuBLAS does not accept matrices of {size} rows")));
    };
    let matrix = (size as u64).saturating_pow(2).saturating_mul(size_of::<T>() as u64);
    let needed = matrix.saturating_mul(3).saturating_add(WORKSPACE_BYTES);
    Prepared::if_it_fits(needed, gpu, || Ok(Box::new(GpuMatmul::<T>::new(size, side, gpu)?)))
}

struct GpuMatmul<'a, T> {
    gpu: &'a CudaDevice,
    blas: Blas,
    size: usize,
    sizes: laptime_cuda::Sizes,
    host: [Vec<T>; 2],
    a: Buffer<T>,
    b: Buffer<T>,
    c: Buffer<T>,
}

impl<'a, T: Multiplied + Element> GpuMatmul<'a, T> {
    fn new(size: usize, side: u32, gpu: &'a CudaDevice) -> anyhow::Result<Self> {
        let _stage = stage!("prepare_inputs", size = size);
        let blas = Blas::new(gpu.cuda())?;
        let crew = Crew::new(all_threads())?;
        let host = [random::<T>(&crew, size, 1)?, random::<T>(&crew, size, 2)?];
        let (a, b) = (gpu.cuda().upload(&host[0])?, gpu.cuda().upload(&host[1])?);
        let c = gpu.cuda().allocate(size * size)?;
        let sizes = laptime_cuda::Sizes { m: side, n: side, k: side, b_is_transposed: false };
        Ok(Self { gpu, blas, size, sizes, host, a, b, c })
    }
}

impl<T: Multiplied + Element> Iteration for GpuMatmul<'_, T> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        let product = self.c.read()?;
        check_product(self.size, &self.host[0], &self.host[1], &product)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("matmul", on = self.gpu.lane(), size = self.size);
        Ok(self.blas.multiply([&self.a, &self.b], &mut self.c, self.sizes)?)
    }

    fn work(&self) -> Option<Work> {
        Some(product_work(self.size, T::NAME, size_of::<T>()))
    }
}

pub fn prepare_copy<'a>(op: &str, bytes: u64, dtype: &str, gpu: &'a CudaDevice) -> anyhow::Result<Prepared<'a>> {
    if dtype != "f32" {
        let reason = format!("`copy` on a GPU has no dtype `{dtype}`; it moves groups of 16 bytes");
        return Ok(Prepared::DoesNotApply(reason));
    }
    let buffers = if op == "copy" { 2 } else { 1 };
    // One of the ops has a sum.
    Prepared::if_it_fits(bytes.saturating_mul(buffers).saturating_add(SMALLEST_BYTES), gpu, || {
        let count = usize::try_from(bytes)? / size_of::<u32>();
        Ok(Box::new(GpuCopy { gpu, count, op: Op::new(op, count, gpu)? }))
    })
}

struct GpuCopy<'a> {
    gpu: &'a CudaDevice,
    /// Numbers in a buffer.
    count: usize,
    op: Op,
}

enum Op {
    /// Sums a buffer.
    Read { numbers: Buffer<u32>, sum: Buffer<u64> },
    /// Fills a buffer with a value that differs each time.
    Write { numbers: Buffer<f32>, value: u8 },
    /// Copies a buffer to another of the same GPU.
    Copy { from: Buffer<u32>, to: Buffer<u32> },
    /// Copies pinned memory of the host to the GPU.
    Upload { to: Buffer<u32>, from: Pinned<u32> },
    /// Copies memory of the GPU to pinned memory of the host.
    Download { from: Buffer<u32>, to: Pinned<u32> },
    /// Copies pageable host memory to the GPU; the call returns when the copy is done.
    PageableUpload { to: Buffer<u32>, from: Vec<u32> },
    /// Copies GPU memory to pageable host memory, which is allocated for each copy.
    PageableDownload { from: Buffer<u32>, to: Vec<u32> },
}

impl Op {
    fn new(op: &str, count: usize, gpu: &CudaDevice) -> anyhow::Result<Self> {
        let filled = || gpu.cuda().upload(&pattern(count));
        let empty = || gpu.cuda().allocate(count);
        let pinned = || gpu.cuda().allocate_pinned(count);
        Ok(match op {
            "read" => Self::Read { numbers: filled()?, sum: gpu.cuda().allocate(1)? },
            "write" => Self::Write { numbers: gpu.cuda().allocate(count)?, value: 0 },
            "copy" => Self::Copy { from: filled()?, to: empty()? },
            "upload" => {
                let mut from = pinned()?;
                from.copy_from_slice(&pattern(count));
                Self::Upload { to: empty()?, from }
            }
            "download" => Self::Download { from: filled()?, to: pinned()? },
            "upload_pageable" => Self::PageableUpload { to: empty()?, from: pattern(count) },
            "download_pageable" => Self::PageableDownload { from: filled()?, to: Vec::new() },
            other => bail!("`copy` has no op `{other}`"),
        })
    }
}

fn pattern(count: usize) -> Vec<u32> {
    let _stage = stage!("prepare_inputs", count = count);
    (0..count).map(pattern_at).collect()
}

fn same(from: &[u32], to: &[u32]) -> anyhow::Result<()> {
    let wrong = from.iter().zip(to).position(|(from, to)| from != to);
    ensure!(wrong.is_none() && from.len() == to.len(), "the copy is wrong: number {} differs", wrong.unwrap_or(0));
    Ok(())
}

impl Iteration for GpuCopy<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.ready()?;
        self.run()?;
        self.gpu.synchronise()?;
        match &self.op {
            Op::Read { sum, .. } => {
                let sum = sum.read()?.first().copied().unwrap_or(0);
                let expected: u64 = (0..self.count).map(|at| u64::from(pattern_at(at))).sum();
                ensure!(sum == expected, "the sum is wrong: it is {sum}, not {expected}");
            }
            Op::Write { numbers, value } => {
                let numbers = numbers.read()?;
                let wrong = numbers.iter().position(|&number| number != f32::from(*value));
                ensure!(wrong.is_none(), "the fill is wrong: number {} was not written", wrong.unwrap_or(0));
            }
            Op::Copy { from, to } => same(&from.read()?, &to.read()?)?,
            Op::Upload { to, from } => same(from, &to.read()?)?,
            Op::PageableUpload { to, from } => same(from, &to.read()?)?,
            Op::Download { to, .. } => same(&pattern(self.count), to)?,
            Op::PageableDownload { to, .. } => same(&pattern(self.count), to)?,
        }
        Ok(())
    }

    fn ready(&mut self) -> anyhow::Result<()> {
        if let Op::Read { sum, .. } = &mut self.op {
            sum.zero()?;
        }
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let Self { gpu, count, op } = self;
        let (lane, stream, bytes) = (gpu.lane(), gpu.cuda().stream(), *count * size_of::<u32>());
        let done = match op {
            Op::Read { numbers, sum } => {
                let _stage = stage!("read", on = lane, bytes = bytes);
                gpu.kernels()?.read_sum(stream, numbers, sum)
            }
            Op::Write { numbers, value } => {
                let _stage = stage!("write", on = lane, bytes = bytes);
                *value = *value % 100 + 1;
                gpu.kernels()?.fill(stream, numbers, f32::from(*value))
            }
            Op::Copy { from, to } => {
                let _stage = stage!("copy", on = lane, bytes = bytes);
                gpu.kernels()?.copy(stream, from, to)
            }
            Op::Upload { to, from } => {
                let _stage = stage!("upload", on = lane, bytes = bytes);
                // SAFETY: the stream is synchronised before the iteration is dropped or run again; `from` is not written.
                unsafe { to.begin_write(from, stream) }
            }
            Op::Download { from, to } => {
                let _stage = stage!("download", on = lane, bytes = bytes);
                // SAFETY: the stream is synchronised before the iteration is dropped or run again and before `to` is read.
                unsafe { from.begin_read(to, stream) }
            }
            Op::PageableUpload { to, from } => {
                let _stage = stage!("upload", on = lane, bytes = bytes);
                sync_point!("write_buffer", to.write(from))
            }
            Op::PageableDownload { from, to } => {
                let _stage = stage!("download", on = lane, bytes = bytes);
                sync_point!("read_buffer", from.read()).map(|read| *to = read)
            }
        };
        Ok(done?)
    }

    fn work(&self) -> Option<Work> {
        let traffic = match &self.op {
            Op::Read { .. } => Traffic::Read,
            Op::Write { .. } => Traffic::Write,
            Op::Copy { .. } => Traffic::Copy,
            Op::Upload { .. } | Op::PageableUpload { .. } => Traffic::Upload,
            Op::Download { .. } | Op::PageableDownload { .. } => Traffic::Download,
        };
        Some(copy_work(traffic, self.count * size_of::<u32>(), "f32"))
    }
}

impl Drop for GpuCopy<'_> {
    fn drop(&mut self) {
        if let Op::Upload { .. } | Op::Download { .. } = self.op {
            // The copy uses memory that is freed now. A failed stream does nothing more.
            let _ = self.gpu.cuda().stream().synchronise();
        }
    }
}

pub fn prepare_chain<'a>(sizes: Sizes, has_graph: bool, gpu: &'a CudaDevice) -> anyhow::Result<Prepared<'a>> {
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

/// A prepared chain. The graphs come first, so that they are dropped before the buffers that they use.
struct GpuChain<'a> {
    graphs: Option<[Graph; 2]>,
    gpu: &'a CudaDevice,
    sizes: Sizes,
    blas: Blas,
    small: Products,
    large: Products,
}

/// Products of one size; each result is the left factor of the next product.
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
        let (start, by) = (cuda.upload(&host[0])?, cuda.upload(&host[1])?);
        let results = [cuda.allocate(size * size)?, cuda.allocate(size * size)?];
        let row = cuda.allocate_pinned(size)?;
        let sizes = laptime_cuda::Sizes { m: side, n: side, k: side, b_is_transposed: false };
        Ok(Self { size, sizes, count, host, start, by, results, row })
    }

    /// Enqueues all products.
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

    /// Enqueues the copy of the first row.
    fn begin_read(&mut self, gpu: &CudaDevice) -> Result<(), CudaError> {
        let result = &self.results[(self.count - 1) % 2];
        // SAFETY: the caller synchronises the stream before it reads or drops the row.
        unsafe { result.begin_read(&mut self.row, gpu.cuda().stream()) }
    }

    fn check(&self) -> anyhow::Result<()> {
        let result = self.results[(self.count - 1) % 2].read()?;
        anyhow::ensure!(result[..self.size] == self.row[..], "the row that was read differs from the result");
        check_chain(self.size, self.count, &self.host[0], &self.host[1], &result)
    }
}

impl<'a> GpuChain<'a> {
    fn new(sizes: Sizes, gpu: &'a CudaDevice) -> anyhow::Result<Self> {
        let _stage = stage!("prepare_inputs", small = sizes.small, large = sizes.large);
        let blas = Blas::new(gpu.cuda())?;
        let small = Products::new(sizes.small, SMALL_PRODUCTS, gpu)?;
        let large = Products::new(sizes.large, LARGE_PRODUCTS, gpu)?;
        Ok(Self { graphs: None, gpu, sizes, blas, small, large })
    }

    /// Captures both stages, after one run that loads the kernels.
    fn capture(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("capture");
        let stream = self.gpu.cuda().stream();
        self.run()?;
        let Self { blas, small, large, .. } = self;
        let small = Graph::capture(stream, || small.multiply(blas))?;
        let large = Graph::capture(stream, || large.multiply(blas))?;
        for graph in [&small, &large] {
            graph.upload(stream)?;
        }
        self.graphs = Some([small, large]);
        Ok(())
    }

    fn products(&mut self, which: usize) -> Result<(), CudaError> {
        match &self.graphs {
            // SAFETY: the buffers and the workspace live in this iteration, which synchronises the stream before it is dropped.
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
            self.products(0)?;
        }
        {
            let _stage = stage!("large", on = lane, size = self.large.size, products = self.large.count);
            self.products(1)?;
        }
        let _stage = stage!("read_back", on = lane);
        self.small.begin_read(self.gpu)?;
        self.large.begin_read(self.gpu)?;
        Ok(sync_point!("read_result", self.gpu.cuda().stream().synchronise())?)
    }

    fn work(&self) -> Option<Work> {
        Some(self.sizes.work())
    }
}

impl Drop for GpuChain<'_> {
    fn drop(&mut self) {
        // Work on the stream uses memory that is freed now. A failed stream does nothing more.
        let _ = self.gpu.cuda().stream().synchronise();
    }
}
