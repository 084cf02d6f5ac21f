//! Measures the peaks of this machine: `cargo run --release -p laptime-pipelines --example peaks`.

use std::io::{Write, stdout};

use laptime_pipelines::{CountingHeap, CpuDevice, PeakSearch, measure_peaks};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

fn main() -> anyhow::Result<()> {
    let mut out = stdout();
    let peaks = measure_peaks(&CpuDevice::new(), &PeakSearch::default(), "this machine", "now", &mut |progress| {
        let again = if progress.is_final { ", for the record" } else { "" };
        writeln!(out, "{}/{} {} {}{again}", progress.at + 1, progress.of, progress.workload, progress.case).is_ok()
    })?;
    for peak in peaks.iter().flat_map(|peaks| &peaks.flops) {
        let [rate, median] = [peak.flops_s, peak.median.unwrap_or(peak.flops_s)].map(|rate| rate / 1e9);
        let (dtype, size, threads) = (&peak.dtype, peak.size, peak.threads);
        writeln!(stdout(), "{dtype:5} {rate:7.1} GFLOP/s (median {median:.1}), size {size}, threads {threads}")?;
    }
    for peak in peaks.iter().flat_map(|peaks| &peaks.bandwidth) {
        let [rate, median] = [peak.bytes_s, peak.median.unwrap_or(peak.bytes_s)].map(|rate| rate / 1e9);
        let (traffic, mib, threads) = (peak.traffic, peak.bytes >> 20, peak.threads);
        writeln!(stdout(), "{traffic:?} {rate:.1} GB/s (median {median:.1}), {mib} MiB, threads {threads}")?;
    }
    Ok(())
}
