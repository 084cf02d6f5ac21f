//! Memory: the peak of a case, out-of-memory errors, a lost context, and bandwidths.

use std::env;
use std::io::{self, Write};
use std::process::{Command, ExitCode};

use laptime_cuda::{Buffer, CudaError, Graph};

use crate::{Answer, Bench, Failed, expect, seconds};

/// The argument with which this program starts itself to lose a context.
pub const LOSE_CONTEXT: &str = "--lose-context";

const MEBIBYTE: usize = 1 << 20;

pub fn peak(bench: &Bench) -> Answer {
    let device = &bench.device;
    device.synchronise()?;
    device.reset_peak()?;
    let base = device.peak_memory()?.bytes();
    let first = device.allocate::<u8>(64 * MEBIBYTE)?;
    let second = device.allocate::<u8>(32 * MEBIBYTE)?;
    drop(second);
    let third = device.allocate::<u8>(16 * MEBIBYTE)?;
    device.synchronise()?;
    let peak = device.peak_memory()?.bytes() - base;
    drop((first, third));
    device.synchronise()?;
    device.reset_peak()?;
    let after = device.peak_memory()?.bytes();
    expect(peak == 96 * MEBIBYTE as u64, || format!("{peak} bytes and not 96 MiB"))?;
    expect(after == base, || format!("{after} bytes after the reset, {base} before"))?;
    Ok(format!("96 MiB of 64 + 32 - 32 + 16; {base} bytes in use otherwise"))
}

pub fn graph_peak(bench: &Bench) -> Answer {
    let (device, stream) = (&bench.device, bench.device.stream());
    device.synchronise()?;
    device.reset_peak()?;
    let graph = Graph::capture(stream, || {
        let mut inner = device.allocate::<f32>(8 * MEBIBYTE)?;
        bench.kernels.fill(stream, &mut inner, 1.0)
    })?;
    launch(&graph, bench)?;
    device.synchronise()?;
    let peak = device.peak_memory()?;
    drop(graph);
    device.give_back_memory()?;
    expect(peak.graph_bytes >= 32 * MEBIBYTE as u64, || format!("{peak:?}"))?;
    Ok(format!("graph {} MiB, pool {} bytes", peak.graph_bytes >> 20, peak.pool_bytes))
}

#[allow(unsafe_code)]
fn launch(graph: &Graph, bench: &Bench) -> Result<(), CudaError> {
    // SAFETY: what was captured allocates and frees inside the graph.
    unsafe { graph.launch(bench.device.stream()) }
}

/// Allocates until no memory is left, and returns the error.
fn use_all_memory(bench: &Bench) -> Result<CudaError, Failed> {
    let mut held: Vec<Buffer<u8>> = Vec::new();
    // Allocating a tenth of the total at a time ends after at most ten steps.
    let step = bench.device.free_memory()?.total as usize / 10;
    for _ in 0..20 {
        match bench.device.allocate(step) {
            Ok(buffer) => held.push(buffer),
            Err(error) => return Ok(error),
        }
    }
    Err(Failed::Wrong("the device gives twice the memory it has".to_owned()))
}

fn small_work(bench: &Bench) -> Result<(), Failed> {
    let mut small = bench.device.allocate::<f32>(1_000)?;
    bench.kernels.fill(bench.device.stream(), &mut small, 2.0)?;
    expect(small.read()? == [2.0; 1_000], || "a kernel after a lack of memory is wrong".to_owned())
}

pub fn ten_lacks(bench: &Bench) -> Answer {
    let device = &bench.device;
    // The first pass loads lazily loaded code, which is not a leak.
    use_all_memory(bench)?;
    small_work(bench)?;
    device.give_back_memory()?;
    let before = device.free_memory()?;
    let mut message = String::new();
    for _ in 0..10 {
        let error = use_all_memory(bench)?;
        expect(error.is_out_of_memory(), || error.to_string())?;
        message = error.to_string();
        device.give_back_memory()?;
        small_work(bench)?;
    }
    device.give_back_memory()?;
    let after = device.free_memory()?;
    expect(after == before, || format!("{before:?} before, {after:?} after"))?;
    Ok(format!("{message}; {} MiB free before and after", after.free >> 20))
}

/// The child: loses its context, and reports the kind of error in its exit status.
pub fn lose_context() -> io::Result<ExitCode> {
    let Ok(bench) = Bench::open("") else { return Ok(ExitCode::from(2)) };
    let lost = lose(&bench);
    let again = bench.device.allocate::<u8>(1).map(drop);
    if let Err(error) = &lost {
        writeln!(io::stdout(), "{error}")?;
    }
    let is_sticky = |result: Result<(), CudaError>| result.is_err_and(|error| error.is_sticky());
    Ok(ExitCode::from(if is_sticky(lost) && is_sticky(again) { 3 } else { 4 }))
}

#[allow(unsafe_code)]
fn lose(bench: &Bench) -> Result<(), CudaError> {
    // SAFETY: nothing of this process is used afterwards.
    unsafe { bench.kernels.lose_context(bench.device.stream()) }?;
    bench.device.synchronise()
}

pub fn lost_context(bench: &Bench) -> Answer {
    let program = env::current_exe().map_err(|error| Failed::Wrong(error.to_string()))?;
    let child = Command::new(program).arg(LOSE_CONTEXT).output().map_err(|error| Failed::Wrong(error.to_string()))?;
    let said = String::from_utf8_lossy(&child.stdout).trim().to_owned();
    expect(child.status.code() == Some(3), || format!("{}: {said}", child.status))?;
    let mut out = bench.device.allocate::<f32>(8)?;
    bench.kernels.fill(bench.device.stream(), &mut out, 1.0)?;
    expect(out.read()? == [1.0; 8], || "the parent's device is wrong".to_owned())?;
    Ok(said)
}

pub fn copies(bench: &Bench) -> Answer {
    const LENGTH: usize = 256 * MEBIBYTE;
    let device = &bench.device;
    let mut there = device.allocate::<u8>(LENGTH)?;
    let mut pinned = device.allocate_pinned::<u8>(LENGTH)?;
    for (at, value) in pinned.iter_mut().enumerate() {
        *value = (at % 251) as u8;
    }
    let pageable = pinned.to_vec();
    let pageable_in = seconds(5, || there.write(&pageable))?;
    let pinned_in = seconds(9, || copy_in(&mut there, &pinned, bench))?;
    pinned.fill(0);
    let pinned_out = seconds(9, || copy_out(&there, &mut pinned, bench))?;
    expect(pinned[..] == pageable[..], || "what came back differs".to_owned())?;
    let speed = |taken: f64| LENGTH as f64 / taken / 1e9;
    Ok(format!(
        "to the device {:.1} GB/s pinned, {:.1} pageable; from it {:.1} pinned",
        speed(pinned_in),
        speed(pageable_in),
        speed(pinned_out)
    ))
}

#[allow(unsafe_code)]
fn copy_in(to: &mut Buffer<u8>, from: &laptime_cuda::Pinned<u8>, bench: &Bench) -> Result<(), CudaError> {
    // SAFETY: both live, and nothing touches them until the stream is synchronised.
    unsafe { to.begin_write(from, bench.device.stream()) }?;
    bench.device.stream().synchronise()
}

#[allow(unsafe_code)]
fn copy_out(from: &Buffer<u8>, to: &mut laptime_cuda::Pinned<u8>, bench: &Bench) -> Result<(), CudaError> {
    // SAFETY: as above.
    unsafe { from.begin_read(to, bench.device.stream()) }?;
    bench.device.stream().synchronise()
}

pub fn device_bandwidth(bench: &Bench) -> Answer {
    const LENGTH: usize = 1 << 30;
    const TIMES: usize = 10;
    let (device, stream) = (&bench.device, bench.device.stream());
    let mut from = device.allocate::<u32>(LENGTH)?;
    from.zero()?;
    let mut to = device.allocate::<u32>(LENGTH)?;
    let mut sum = device.upload(&[0_u64])?;
    let read = seconds(5, || {
        (0..TIMES).try_for_each(|_| bench.kernels.read_sum(stream, &from, &mut sum))?;
        device.synchronise()
    })?;
    let copied = seconds(5, || {
        (0..TIMES).try_for_each(|_| bench.kernels.copy(stream, &from, &mut to))?;
        device.synchronise()
    })?;
    let bytes = (LENGTH * 4 * TIMES) as f64;
    let (read, copied) = (bytes / read / 1e12, 2.0 * bytes / copied / 1e12);
    expect(read > 0.0 && sum.read()?[0] == 0, || "zeros add up to something".to_owned())?;
    Ok(format!("read {read:.2} TB/s, copy {copied:.2} TB/s counting both ways"))
}
