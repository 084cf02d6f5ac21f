//! Memory of a GPU read, written and copied, and copies between it and the host.

// Copies from and to pinned memory go on while the host does; the iterations here hold both ends until they are done.
#![allow(unsafe_code)]

use anyhow::{bail, ensure};
use laptime_bench::{Device, Iteration, Prepared, Traffic, Work};
use laptime_cuda::{Buffer, Pinned};
use laptime_probe::{stage, sync_point};

use super::{CudaDevice, into_error};
use crate::copy::pattern_at;

/// Prepares an operation on a buffer.
pub fn prepare_copy<'a>(op: &str, bytes: u64, dtype: &str, gpu: &'a CudaDevice) -> anyhow::Result<Prepared<'a>> {
    if dtype != "f32" {
        return Ok(Prepared::DoesNotApply(format!(
            "`copy` on a GPU has no dtype `{dtype}`; it moves groups of 16 bytes"
        )));
    }
    let buffers = if op == "copy" { 2 } else { 1 };
    let op = op.to_owned();
    Prepared::if_it_fits(bytes.saturating_mul(buffers), gpu, || {
        let count = usize::try_from(bytes)? / size_of::<u32>();
        Ok(match op.as_str() {
            "read" => Box::new(Read::new(count, gpu)?),
            "write" => Box::new(Write { gpu, numbers: gpu.cuda().allocate(count).map_err(into_error)?, value: 0 }),
            "copy" => Box::new(Copied::new(count, gpu)?),
            "upload" => Box::new(Upload::new(count, gpu)?),
            "download" => Box::new(Download::new(count, gpu)?),
            "upload_pageable" => Box::new(PageableUpload::new(count, gpu)?),
            "download_pageable" => Box::new(PageableDownload::new(count, gpu)?),
            other => bail!("`copy` has no op `{other}`"),
        })
    })
}

fn pattern(count: usize) -> Vec<u32> {
    let _stage = stage!("prepare_inputs", count = count);
    (0..count).map(pattern_at).collect()
}

fn work_of(bytes: usize, traffic: Traffic, times: u64) -> Option<Work> {
    Some(Work { flops: 0, dtype: "f32".to_owned(), bytes: times * bytes as u64, traffic })
}

fn same(from: &[u32], to: &[u32]) -> anyhow::Result<()> {
    let wrong = from.iter().zip(to).position(|(from, to)| from != to);
    ensure!(wrong.is_none() && from.len() == to.len(), "the copy is wrong: number {} differs", wrong.unwrap_or(0));
    Ok(())
}

/// Sums a buffer.
struct Read<'a> {
    gpu: &'a CudaDevice,
    numbers: Buffer<u32>,
    sum: Buffer<u64>,
}

impl<'a> Read<'a> {
    fn new(count: usize, gpu: &'a CudaDevice) -> anyhow::Result<Self> {
        let numbers = gpu.cuda().upload(&pattern(count)).map_err(into_error)?;
        Ok(Self { gpu, numbers, sum: gpu.cuda().allocate(1).map_err(into_error)? })
    }
}

impl Iteration for Read<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.ready()?;
        self.run()?;
        let sum = self.sum.read().map_err(into_error)?.first().copied().unwrap_or(0);
        let expected: u64 = (0..self.numbers.length()).map(|at| u64::from(pattern_at(at))).sum();
        ensure!(sum == expected, "the sum is wrong: it is {sum}, not {expected}");
        Ok(())
    }

    fn ready(&mut self) -> anyhow::Result<()> {
        self.sum.zero().map_err(into_error)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("read", on = self.gpu.lane(), bytes = self.numbers.bytes());
        let (kernels, stream) = (self.gpu.kernels()?, self.gpu.cuda().stream());
        kernels.read_sum(stream, &self.numbers, &mut self.sum).map_err(into_error)
    }

    fn work(&self) -> Option<Work> {
        work_of(self.numbers.bytes(), Traffic::Read, 1)
    }
}

/// Fills a buffer.
struct Write<'a> {
    gpu: &'a CudaDevice,
    numbers: Buffer<f32>,
    /// The value that the last iteration wrote; it differs each time.
    value: u8,
}

impl Iteration for Write<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        let wrong = self.numbers.read().map_err(into_error)?.iter().position(|&number| number != f32::from(self.value));
        ensure!(wrong.is_none(), "the fill is wrong: number {} was not written", wrong.unwrap_or(0));
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("write", on = self.gpu.lane(), bytes = self.numbers.bytes());
        self.value = self.value % 100 + 1;
        let (kernels, stream) = (self.gpu.kernels()?, self.gpu.cuda().stream());
        kernels.fill(stream, &mut self.numbers, f32::from(self.value)).map_err(into_error)
    }

    fn work(&self) -> Option<Work> {
        work_of(self.numbers.bytes(), Traffic::Write, 1)
    }
}

/// Copies a buffer to another of the same GPU.
struct Copied<'a> {
    gpu: &'a CudaDevice,
    from: Buffer<u32>,
    to: Buffer<u32>,
}

impl<'a> Copied<'a> {
    fn new(count: usize, gpu: &'a CudaDevice) -> anyhow::Result<Self> {
        let from = gpu.cuda().upload(&pattern(count)).map_err(into_error)?;
        Ok(Self { gpu, from, to: gpu.cuda().allocate(count).map_err(into_error)? })
    }
}

impl Iteration for Copied<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        same(&self.from.read().map_err(into_error)?, &self.to.read().map_err(into_error)?)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("copy", on = self.gpu.lane(), bytes = self.from.bytes());
        let (kernels, stream) = (self.gpu.kernels()?, self.gpu.cuda().stream());
        kernels.copy(stream, &self.from, &mut self.to).map_err(into_error)
    }

    fn work(&self) -> Option<Work> {
        work_of(self.from.bytes(), Traffic::Copy, 2)
    }
}

/// Copies pinned memory of the host to the GPU.
struct Upload<'a> {
    gpu: &'a CudaDevice,
    to: Buffer<u32>,
    from: Pinned<u32>,
}

impl<'a> Upload<'a> {
    fn new(count: usize, gpu: &'a CudaDevice) -> anyhow::Result<Self> {
        let mut from = gpu.cuda().allocate_pinned(count).map_err(into_error)?;
        from.copy_from_slice(&pattern(count));
        Ok(Self { gpu, to: gpu.cuda().allocate(count).map_err(into_error)?, from })
    }
}

impl Iteration for Upload<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        same(&self.from, &self.to.read().map_err(into_error)?)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("upload", on = self.gpu.lane(), bytes = self.to.bytes());
        // SAFETY: the stream is waited for before the iteration is dropped or run again, and nobody writes to `from`.
        unsafe { self.to.begin_write(&self.from, self.gpu.cuda().stream()) }.map_err(into_error)
    }

    fn work(&self) -> Option<Work> {
        work_of(self.to.bytes(), Traffic::Upload, 1)
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        // The copy reads memory that goes now; a stream that failed copies no more.
        let _ = self.gpu.cuda().stream().synchronise();
    }
}

/// Copies memory of the GPU to pinned memory of the host.
struct Download<'a> {
    gpu: &'a CudaDevice,
    from: Buffer<u32>,
    to: Pinned<u32>,
}

impl<'a> Download<'a> {
    fn new(count: usize, gpu: &'a CudaDevice) -> anyhow::Result<Self> {
        let from = gpu.cuda().upload(&pattern(count)).map_err(into_error)?;
        Ok(Self { gpu, from, to: gpu.cuda().allocate_pinned(count).map_err(into_error)? })
    }
}

impl Iteration for Download<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        self.gpu.synchronise()?;
        same(&pattern(self.to.len()), &self.to)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("download", on = self.gpu.lane(), bytes = self.from.bytes());
        // SAFETY: the stream is waited for before the iteration is dropped or run again, and before anybody looks at `to`.
        unsafe { self.from.begin_read(&mut self.to, self.gpu.cuda().stream()) }.map_err(into_error)
    }

    fn work(&self) -> Option<Work> {
        work_of(self.from.bytes(), Traffic::Download, 1)
    }
}

impl Drop for Download<'_> {
    fn drop(&mut self) {
        // The copy writes memory that goes now; a stream that failed copies no more.
        let _ = self.gpu.cuda().stream().synchronise();
    }
}

/// Copies pageable host memory to the GPU; the call returns when the copy is done.
struct PageableUpload<'a> {
    gpu: &'a CudaDevice,
    to: Buffer<u32>,
    from: Vec<u32>,
}

impl<'a> PageableUpload<'a> {
    fn new(count: usize, gpu: &'a CudaDevice) -> anyhow::Result<Self> {
        Ok(Self { gpu, to: gpu.cuda().allocate(count).map_err(into_error)?, from: pattern(count) })
    }
}

impl Iteration for PageableUpload<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        same(&self.from, &self.to.read().map_err(into_error)?)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("upload", on = self.gpu.lane(), bytes = self.to.bytes());
        sync_point!("write_buffer", self.to.write(&self.from)).map_err(into_error)
    }

    fn work(&self) -> Option<Work> {
        work_of(self.to.bytes(), Traffic::Upload, 1)
    }
}

/// Copies GPU memory to pageable host memory, which is allocated for each copy.
struct PageableDownload<'a> {
    gpu: &'a CudaDevice,
    from: Buffer<u32>,
    to: Vec<u32>,
}

impl<'a> PageableDownload<'a> {
    fn new(count: usize, gpu: &'a CudaDevice) -> anyhow::Result<Self> {
        Ok(Self { gpu, from: gpu.cuda().upload(&pattern(count)).map_err(into_error)?, to: Vec::new() })
    }
}

impl Iteration for PageableDownload<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        same(&pattern(self.from.length()), &self.to)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("download", on = self.gpu.lane(), bytes = self.from.bytes());
        self.to = sync_point!("read_buffer", self.from.read()).map_err(into_error)?;
        Ok(())
    }

    fn work(&self) -> Option<Work> {
        work_of(self.from.bytes(), Traffic::Download, 1)
    }
}
