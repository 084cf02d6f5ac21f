//! Peak FLOPS and bandwidth of a device: the workloads `matmul` and `copy` in the usual measuring loop.
//!
//! For each dtype and each direction of traffic, a few sizes and numbers of threads are tried briefly, and the best is
//! measured again for longer. The peak is an upper quantile of its iterations: other programs only slow iterations down,
//! so the median of a busy machine says little about the hardware.

use anyhow::{Context, anyhow, bail};
use laptime_bench::{
    Case, Depth, Device, Outcome, Settings, Stop, Traffic, WarmUp, Workload, measure, settle_l2, settle_timing,
};
use laptime_stats::Sorted;
use laptime_trace::run::{Bandwidth, Measured, PeakFlops, Peaks, SCHEMA};

use crate::matmul::{MATMUL_DTYPES, Matmul};
use crate::{copy::MemoryCopy, crew::all_threads, memory::beyond_caches_mib};

/// The quantile of rates that counts as the peak, in percent: the very fastest iterations may be clock errors.
const PEAK_QUANTILE: u8 = 90;

/// The minimum number of iterations of a final round.
const LEAST_ITERATIONS: usize = 6;

/// A saved peak is too low if a short test exceeds it by more than this factor.
const TOO_LOW: f64 = 1.05;

/// The maximum number of iterations of a final round.
const MOST_ITERATIONS: usize = 1000;

/// How peaks are measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeakSearch {
    /// The approximate total time of all iterations, in nanoseconds.
    pub budget_ns: u64,
    /// The smallest matrices; each next size is twice as large.
    pub smallest_size: usize,
    /// The largest matrices.
    pub largest_size: usize,
    /// MiB in a buffer for memory traffic.
    pub buffer_mib: usize,
    /// The numbers of threads to try.
    pub threads: Vec<usize>,
    /// The dtypes whose arithmetic is measured.
    pub dtypes: &'static [&'static str],
    /// The operations of `copy` that are measured.
    pub ops: &'static [(Traffic, &'static str)],
}

/// The operations of `copy` on a GPU; the CPU has the first three.
const OPS: &[(Traffic, &str)] = &[
    (Traffic::Read, "read"),
    (Traffic::Write, "write"),
    (Traffic::Copy, "copy"),
    (Traffic::Upload, "upload"),
    (Traffic::Download, "download"),
];

/// Rows of the largest matrices that are tried on a GPU.
const GPU_LARGEST: usize = 16_384;

/// MiB in a buffer on a GPU: many times its L2 cache.
const GPU_BUFFER_MIB: usize = 1024;

impl PeakSearch {
    /// The search for this device.
    pub fn of(device: &dyn Device) -> Self {
        if device.lane().is_none() {
            return Self::default();
        }
        Self {
            smallest_size: 2048,
            largest_size: GPU_LARGEST,
            buffer_mib: GPU_BUFFER_MIB,
            threads: vec![1],
            dtypes: &["f32", "bf16", "f16"],
            ops: OPS,
            ..Self::default()
        }
    }
}

impl Default for PeakSearch {
    /// Twelve seconds of iterations; with preparations and checks about 16 on two cores.
    fn default() -> Self {
        let mut threads = vec![all_threads(), 1];
        threads.dedup();
        let budget_ns = 12_000_000_000;
        Self {
            budget_ns,
            smallest_size: 512,
            largest_size: 8192,
            buffer_mib: beyond_caches_mib() as usize,
            threads,
            dtypes: MATMUL_DTYPES,
            ops: &OPS[..3],
        }
    }
}

/// The progress of a search.
#[derive(Debug, Clone, Copy)]
pub struct PeakProgress<'a> {
    /// The index of the peak.
    pub at: usize,
    /// The number of peaks.
    pub of: usize,
    /// The workload that measures it.
    pub workload: &'static str,
    /// The next case.
    pub case: &'a Case,
    /// Whether it is the final round with the best case.
    pub is_final: bool,
}

/// Measures the peaks of a device, for a machine with this fingerprint at this time.
///
/// `proceed` is called before each case; if it returns false, there are no peaks, not even those found so far.
pub fn measure_peaks(
    device: &dyn Device,
    search: &PeakSearch,
    machine: &str,
    measured: &str,
    proceed: &mut dyn FnMut(PeakProgress<'_>) -> bool,
) -> anyhow::Result<Option<Peaks>> {
    let of = search.dtypes.len() + search.ops.len();
    let mut search = Search { device, search, at: 0, of, proceed };
    let (flops, bandwidth) = match search.all() {
        Ok(found) => found,
        Err(error) if error.is::<Stopped>() => return Ok(None),
        Err(error) => return Err(error),
    };
    let (machine, measured) = (machine.to_owned(), measured.to_owned());
    let (device, gpu) = (device.name().to_owned(), crate::peak_gpu(device));
    Ok(Some(Peaks { schema: SCHEMA, machine, device, measured, flops, bandwidth, gpu }))
}

/// Checks briefly whether a device exceeds its saved peaks, as it does if they were measured on a busy machine.
///
/// Returns the largest ratio of a new peak to a saved one, if one is too low. Only arithmetic of the first dtype and
/// memory reads are measured: whatever slows one peak down slows the others too.
pub fn peaks_below(device: &dyn Device, search: &PeakSearch, saved: &Peaks) -> anyhow::Result<Option<f64>> {
    let search = PeakSearch { dtypes: &search.dtypes[..1], ops: &search.ops[..1], ..search.clone() };
    let Some(found) = measure_peaks(device, &search, &saved.machine, "", &mut |_| true)? else { return Ok(None) };
    let flops = found.flops.iter().filter_map(|peak| Some(peak.flops_s / saved.flops_s(&peak.dtype)?));
    let bytes = found.bandwidth.iter().filter_map(|peak| Some(peak.bytes_s / saved.bytes_s(peak.traffic)?));
    Ok(flops.chain(bytes).filter(|ratio| *ratio > TOO_LOW).reduce(f64::max))
}

#[derive(Debug, thiserror::Error)]
#[error("the search for peaks was stopped")]
struct Stopped;

/// A measured case.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rate {
    size: usize,
    threads: usize,
    /// Operations or bytes per second: an upper quantile of the iterations.
    peak: f64,
    median: f64,
    /// The median time of an iteration.
    wall_ns: f64,
}

struct Search<'a> {
    device: &'a dyn Device,
    search: &'a PeakSearch,
    at: usize,
    of: usize,
    proceed: &'a mut dyn FnMut(PeakProgress<'_>) -> bool,
}

impl Search<'_> {
    fn all(&mut self) -> anyhow::Result<(Vec<PeakFlops>, Vec<Bandwidth>)> {
        let PeakSearch { dtypes, ops, .. } = self.search;
        let flops = dtypes.iter().map(|dtype| self.flops(dtype)).collect::<anyhow::Result<_>>()?;
        let bandwidth = ops.iter().map(|(traffic, op)| self.bandwidth(*traffic, op)).collect::<anyhow::Result<_>>()?;
        Ok((flops, bandwidth))
    }

    fn flops(&mut self, dtype: &str) -> anyhow::Result<PeakFlops> {
        let (names, mut tried) = ([("dtype", dtype)], Vec::new());
        for &threads in &self.search.threads {
            let mut size = self.search.smallest_size;
            while let Some(found) = self.try_case(&Matmul, &names, (size, threads), self.brief())? {
                tried.push(found);
                size *= 2;
                // The next size has eight times the work; the final round must have time for it.
                let is_too_long = 8.0 * found.wall_ns * LEAST_ITERATIONS as f64 > self.final_ns();
                if size > self.search.largest_size || is_too_long {
                    break;
                }
            }
        }
        let Rate { size, threads, peak, median, .. } = self.best(&Matmul, &names, tried)?;
        let (dtype, size, threads) = (dtype.to_owned(), size as u64, threads as u32);
        Ok(PeakFlops { dtype, flops_s: peak, median: Some(median), size, threads })
    }

    fn bandwidth(&mut self, traffic: Traffic, op: &str) -> anyhow::Result<Bandwidth> {
        let (names, size, mut tried) = ([("op", op), ("dtype", "f32")], self.search.buffer_mib, Vec::new());
        for &threads in &self.search.threads {
            tried.extend(self.try_case(&MemoryCopy, &names, (size, threads), self.brief())?);
        }
        let Rate { size, threads, peak, median, .. } = self.best(&MemoryCopy, &names, tried)?;
        let (bytes, threads) = ((size as u64) << 20, threads as u32);
        Ok(Bandwidth { traffic, bytes_s: peak, median: Some(median), bytes, threads })
    }

    /// Measures the best case again for longer: the result of this peak.
    fn best(&mut self, workload: &dyn Workload, names: &[(&str, &str)], tried: Vec<Rate>) -> anyhow::Result<Rate> {
        let best = tried
            .into_iter()
            .max_by(|a, b| a.peak.total_cmp(&b.peak))
            .ok_or_else(|| anyhow!("no case of `{}` fits into memory", workload.name()))?;
        let iterations =
            (self.final_ns() / best.wall_ns.max(1.0)).clamp(LEAST_ITERATIONS as f64, MOST_ITERATIONS as f64) as usize;
        let found = self.try_case(workload, names, (best.size, best.threads), Stop::Iterations(iterations))?;
        self.at += 1;
        found.ok_or_else(|| anyhow!("the best case of `{}` no longer fits into memory", workload.name()))
    }

    /// Measures a case; none if it does not fit.
    fn try_case(
        &mut self,
        workload: &dyn Workload,
        names: &[(&str, &str)],
        (size, threads): (usize, usize),
        stop: Stop,
    ) -> anyhow::Result<Option<Rate>> {
        let case = case_of(names, size, threads);
        let is_final = matches!(stop, Stop::Iterations(_));
        let progress = PeakProgress { at: self.at, of: self.of, workload: workload.name(), case: &case, is_final };
        if !(self.proceed)(progress) {
            bail!(Stopped);
        }
        let (timing, l2) = (settle_timing(self.device, None)?, settle_l2(self.device, None)?);
        let (runs, isolate, timeout_ns, cold, depth) = (1, false, None, false, Depth::Pipeline);
        let settings =
            Settings { warmup: WarmUp::Iterations(1), stop, runs, isolate, timeout_ns, cold, timing, l2, depth };
        let failed = || format!("`{}` failed at {case}", workload.name());
        match measure(workload, &case, self.device, &settings, &mut ()) {
            Outcome::Measured(measured) => rate(&measured, size, threads).with_context(failed).map(Some),
            Outcome::OutOfMemory { .. } => Ok(None),
            Outcome::Skipped { reason } => Err(anyhow!(reason).context(failed())),
            Outcome::Failed { errors, .. } => Err(anyhow!(errors.join(": ")).context(failed())),
        }
    }

    /// A short test gets a fourteenth of the time per peak: about six cases are tried before the final round.
    fn brief(&self) -> Stop {
        Stop::Interval { within: 0.01, at_least: 5, least_ns: 0, at_most_ns: self.share_ns() / 14 }
    }

    /// The final round gets half of the time per peak.
    fn final_ns(&self) -> f64 {
        self.share_ns() as f64 / 2.0
    }

    fn share_ns(&self) -> u64 {
        self.search.budget_ns / self.of as u64
    }
}

fn case_of(names: &[(&str, &str)], size: usize, threads: usize) -> Case {
    let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX).into();
    let names = names.iter().map(|&(axis, name)| (axis.to_owned(), name.into()));
    let numbers = [("size".to_owned(), number(size)), ("threads".to_owned(), number(threads))];
    Case::new(names.chain(numbers).collect())
}

fn rate(measured: &Measured, size: usize, threads: usize) -> anyhow::Result<Rate> {
    let work = measured.work.as_ref().context("it does not count its work")?;
    let amount = if work.flops > 0 { work.flops } else { work.bytes } as f64;
    // Device time excludes launches and syncs, which do not limit the device.
    let device: Option<Vec<u64>> = measured.device_ns.iter().copied().collect();
    let iterations = device.filter(|iterations| !iterations.is_empty()).unwrap_or_else(|| measured.wall_ns.clone());
    let rates = iterations.iter().map(|&nanos| 1e9 * amount / nanos as f64).collect();
    let rates = Sorted::<f64>::from_unsorted(rates).context("an iteration took no time")?;
    let median = rates.median().context("there are no iterations")?;
    let peak = rates.p(PEAK_QUANTILE).context("there are no iterations")?;
    Ok(Rate { size, threads, peak, median, wall_ns: 1e9 * amount / median })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::product_bytes;
    use laptime_bench::{Nanos, Simulated};
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// A device whose clock advances by one step at each reading, so that everything takes the same time.
    struct Ticking {
        clock: AtomicU64,
        step_ns: u64,
        memory: Simulated,
    }

    impl Ticking {
        fn new(step_ns: u64, memory: Simulated) -> Self {
            Self { clock: AtomicU64::new(0), step_ns, memory }
        }
    }

    impl Device for Ticking {
        fn name(&self) -> &str {
            "ticking"
        }

        fn synchronise(&self) -> anyhow::Result<()> {
            Ok(())
        }

        fn now(&self) -> Nanos {
            Nanos(self.clock.fetch_add(self.step_ns, Relaxed))
        }

        fn reset_peak(&self) {}

        fn peak_bytes(&self) -> Option<u64> {
            None
        }

        fn available_bytes(&self) -> Option<u64> {
            self.memory.available_bytes()
        }
    }

    fn search() -> PeakSearch {
        PeakSearch {
            budget_ns: 7_000_000,
            smallest_size: 8,
            largest_size: 32,
            buffer_mib: 1,
            threads: vec![2, 1],
            ..PeakSearch::default()
        }
    }

    fn found(device: &Ticking, search: &PeakSearch) -> (anyhow::Result<Option<Peaks>>, Vec<String>) {
        let mut measured_cases = Vec::new();
        let peaks = measure_peaks(device, search, "abc", "today", &mut |progress| {
            let round = if progress.is_final { " again" } else { "" };
            measured_cases
                .push(format!("{}/{} {} {}{round}", progress.at, progress.of, progress.workload, progress.case));
            true
        });
        (peaks, measured_cases)
    }

    #[test]
    fn peaks_are_the_work_of_the_best_case_divided_by_its_time() {
        let (peaks, _) = found(&Ticking::new(1000, Simulated::new()), &search());
        let peaks = peaks.unwrap().unwrap();
        assert_eq!(
            (peaks.schema, &*peaks.machine, &*peaks.device, &*peaks.measured),
            (SCHEMA, "abc", "ticking", "today")
        );
        // All take the same time, so the largest has the highest rate.
        let rate = 2.0 * 32_f64.powi(3) / 1e-6;
        for (peak, dtype) in peaks.flops.iter().zip(MATMUL_DTYPES) {
            assert_eq!((&*peak.dtype, peak.size), (*dtype, 32));
            assert_eq!((peak.flops_s, peak.median), (rate, Some(rate)));
        }
        let bandwidth = |traffic| peaks.bytes_s(traffic).unwrap() * 1e-6 / (1 << 20) as f64;
        assert_eq!([Traffic::Read, Traffic::Write, Traffic::Copy].map(bandwidth), [1.0, 1.0, 2.0]);
        assert!(peaks.bandwidth.iter().all(|peak| peak.bytes == 1 << 20));
    }

    #[test]
    fn the_peak_is_a_high_quantile_and_not_the_median() {
        let work = laptime_trace::run::Work { flops: 1000, dtype: "f32".into(), bytes: 0, traffic: Traffic::Read };
        // Two of three iterations were slowed down by something else.
        let wall_ns = (0..30).map(|iteration| if iteration % 3 == 0 { 10 } else { 40 }).collect();
        let found = rate(&Measured { wall_ns, work: Some(work), ..Measured::default() }, 8, 1).unwrap();
        assert_eq!((found.peak, found.median), (1e11, 2.5e10));
    }

    #[test]
    fn peaks_exceeded_by_a_short_test_are_too_low() {
        let device = Ticking::new(1000, Simulated::new());
        let kept = found(&device, &search()).0.unwrap().unwrap();
        assert_eq!(peaks_below(&device, &search(), &kept).unwrap(), None);
        let mut poisoned = kept;
        poisoned.flops[0].flops_s /= 3.0;
        let ratio = peaks_below(&device, &search(), &poisoned).unwrap().unwrap();
        assert!((ratio - 3.0).abs() < 1e-9, "{ratio}");
    }

    #[test]
    fn sizes_and_threads_are_tried_and_the_best_is_measured_again() {
        let (_, measured_cases) = found(&Ticking::new(1000, Simulated::new()), &search());
        assert_eq!(
            measured_cases[..7],
            [
                "0/7 matmul dtype=f32 size=8 threads=2",
                "0/7 matmul dtype=f32 size=16 threads=2",
                "0/7 matmul dtype=f32 size=32 threads=2",
                "0/7 matmul dtype=f32 size=8 threads=1",
                "0/7 matmul dtype=f32 size=16 threads=1",
                "0/7 matmul dtype=f32 size=32 threads=1",
                "0/7 matmul dtype=f32 size=32 threads=1 again",
            ]
        );
        assert_eq!(measured_cases.last().unwrap(), "6/7 copy op=copy dtype=f32 size=1 threads=1 again");
        assert_eq!(measured_cases.len(), 4 * 7 + 3 * 3);
    }

    #[test]
    fn sizes_too_long_for_the_final_round_are_not_tried() {
        // Half a peak's time is 500 000 ns; six iterations of eight times 11 000 ns are more.
        let (peaks, measured_cases) = found(&Ticking::new(11_000, Simulated::new()), &search());
        assert!(peaks.unwrap().unwrap().flops.iter().all(|peak| peak.size == 8));
        assert_eq!(measured_cases.len(), 4 * 3 + 3 * 3);
    }

    #[test]
    fn sizes_that_do_not_fit_are_skipped_unless_none_fits() {
        let larger = PeakSearch { smallest_size: 128, largest_size: 512, threads: vec![1], ..search() };
        let memory = product_bytes::<f32>(512, 1) - 1;
        let (peaks, _) = found(&Ticking::new(10_000, Simulated::with_memory(memory)), &larger);
        let peaks = peaks.unwrap().unwrap();
        assert_eq!((&*peaks.flops[0].dtype, peaks.flops[0].size), ("f32", 256));
        let (peaks, _) = found(&Ticking::new(1000, Simulated::with_memory(1000)), &search());
        assert_eq!(format!("{:#}", peaks.unwrap_err()), "no case of `matmul` fits into memory");
    }

    #[test]
    fn a_stopped_search_has_no_peaks() {
        let device = Ticking::new(1000, Simulated::new());
        let mut asked = 0;
        let peaks = measure_peaks(&device, &search(), "abc", "today", &mut |_| {
            asked += 1;
            asked < 3
        });
        assert_eq!((peaks.unwrap(), asked), (None, 3));
    }
}
