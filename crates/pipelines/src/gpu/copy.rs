//! Memory of a GPU read, written and copied, and copies between it and the host.

// Copies from and to pinned memory go on while the host does; the iteration holds both ends until they are done.
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
        let reason = format!("`copy` on a GPU has no dtype `{dtype}`; it moves groups of 16 bytes");
        return Ok(Prepared::DoesNotApply(reason));
    }
    let buffers = if op == "copy" { 2 } else { 1 };
    Prepared::if_it_fits(bytes.saturating_mul(buffers), gpu, || {
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
        let filled = || gpu.cuda().upload(&pattern(count)).map_err(into_error);
        let empty = || gpu.cuda().allocate(count).map_err(into_error);
        let pinned = || gpu.cuda().allocate_pinned(count).map_err(into_error);
        Ok(match op {
            "read" => Self::Read { numbers: filled()?, sum: gpu.cuda().allocate(1).map_err(into_error)? },
            "write" => Self::Write { numbers: gpu.cuda().allocate(count).map_err(into_error)?, value: 0 },
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
                let sum = sum.read().map_err(into_error)?.first().copied().unwrap_or(0);
                let expected: u64 = (0..self.count).map(|at| u64::from(pattern_at(at))).sum();
                ensure!(sum == expected, "the sum is wrong: it is {sum}, not {expected}");
            }
            Op::Write { numbers, value } => {
                let numbers = numbers.read().map_err(into_error)?;
                let wrong = numbers.iter().position(|&number| number != f32::from(*value));
                ensure!(wrong.is_none(), "the fill is wrong: number {} was not written", wrong.unwrap_or(0));
            }
            Op::Copy { from, to } => same(&from.read().map_err(into_error)?, &to.read().map_err(into_error)?)?,
            Op::Upload { to, from } => same(from, &to.read().map_err(into_error)?)?,
            Op::PageableUpload { to, from } => same(from, &to.read().map_err(into_error)?)?,
            Op::Download { to, .. } => same(&pattern(self.count), to)?,
            Op::PageableDownload { to, .. } => same(&pattern(self.count), to)?,
        }
        Ok(())
    }

    fn ready(&mut self) -> anyhow::Result<()> {
        if let Op::Read { sum, .. } = &mut self.op { sum.zero().map_err(into_error) } else { Ok(()) }
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
                // SAFETY: the stream is waited for before the iteration is dropped or run again; nobody writes to `from`.
                unsafe { to.begin_write(from, stream) }
            }
            Op::Download { from, to } => {
                let _stage = stage!("download", on = lane, bytes = bytes);
                // SAFETY: the stream is waited for before the iteration is dropped or run again, and before anybody looks
                // at `to`.
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
        done.map_err(into_error)
    }

    fn work(&self) -> Option<Work> {
        let (traffic, times) = match &self.op {
            Op::Read { .. } => (Traffic::Read, 1),
            Op::Write { .. } => (Traffic::Write, 1),
            Op::Copy { .. } => (Traffic::Copy, 2),
            Op::Upload { .. } | Op::PageableUpload { .. } => (Traffic::Upload, 1),
            Op::Download { .. } | Op::PageableDownload { .. } => (Traffic::Download, 1),
        };
        let bytes = times * (self.count * size_of::<u32>()) as u64;
        Some(Work { flops: 0, dtype: "f32".to_owned(), bytes, traffic })
    }
}

impl Drop for GpuCopy<'_> {
    fn drop(&mut self) {
        if let Op::Upload { .. } | Op::Download { .. } = self.op {
            // The copy uses memory that goes now; a stream that failed copies no more.
            let _ = self.gpu.cuda().stream().synchronise();
        }
    }
}
