//! The lower bound of an iteration: work divided by peaks.

use laptime_trace::run::{Peaks, Work};

/// How much of the hardware a case uses. Unknown values are none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// GFLOP per iteration: the numerator of `mfu`.
    pub gflop: Option<f64>,
    /// GB per iteration: the numerator of `mbu`.
    pub gb: Option<f64>,
    /// GFLOP/s at the median.
    pub gflop_s: Option<f64>,
    /// GB/s at the median.
    pub gb_s: Option<f64>,
    /// The lower bound of an iteration in nanoseconds: the larger of FLOPs / peak and bytes / peak.
    pub limit_ns: Option<f64>,
    /// Which of the two it is.
    pub bound: Option<Bound>,
    /// The median / the lower bound.
    pub x_limit: Option<f64>,
    /// FLOP/s / peak.
    pub mfu: Option<f64>,
    /// Bytes per second / peak.
    pub mbu: Option<f64>,
}

laptime_trace::words! {
    /// The origin of a lower bound.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Bound: word {
        Arithmetic = "arithmetic",
        Memory = "memory",
    }
}

/// Relates the work of an iteration to its time and to the peaks.
///
/// Work of size zero has no rate. If there is work and its peak is unknown, so is the bound: the other part alone might be
/// far below it.
pub fn limits(work: &Work, median_ns: f64, peaks: Option<&Peaks>) -> Limits {
    let operations = Part::of(work.flops, peaks.and_then(|peaks| peaks.flops_s(&work.dtype)));
    let bytes = Part::of(work.bytes, peaks.and_then(|peaks| peaks.bytes_s(work.traffic)));
    let limit = operations.least_ns().zip(bytes.least_ns()).map(|(arithmetic, memory)| {
        if memory > arithmetic { (memory, Bound::Memory) } else { (arithmetic, Bound::Arithmetic) }
    });
    // Shorter times cannot be measured.
    let limit = limit.filter(|(nanos, _)| *nanos >= 1.0);
    Limits {
        gflop: operations.billions(),
        gb: bytes.billions(),
        gflop_s: operations.rate(median_ns),
        gb_s: bytes.rate(median_ns),
        limit_ns: limit.map(|(nanos, _)| nanos),
        bound: limit.map(|(_, bound)| bound),
        x_limit: limit.map(|(nanos, _)| median_ns / nanos),
        mfu: operations.share(median_ns),
        mbu: bytes.share(median_ns),
    }
}

/// One kind of work.
struct Part {
    amount: f64,
    /// The peak per nanosecond.
    peak: Option<f64>,
}

impl Part {
    fn of(amount: u64, peak_s: Option<f64>) -> Self {
        Self { amount: amount as f64, peak: peak_s.filter(|&peak| peak > 0.0).map(|peak| peak / 1e9) }
    }

    fn billions(&self) -> Option<f64> {
        (self.amount > 0.0).then(|| self.amount / 1e9)
    }

    /// Billions per second equal units per nanosecond.
    fn rate(&self, nanos: f64) -> Option<f64> {
        (self.amount > 0.0 && nanos > 0.0).then(|| self.amount / nanos)
    }

    fn share(&self, nanos: f64) -> Option<f64> {
        Some(self.rate(nanos)? / self.peak?)
    }

    fn least_ns(&self) -> Option<f64> {
        if self.amount == 0.0 { Some(0.0) } else { Some(self.amount / self.peak?) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::run::{Bandwidth, PeakFlops, SCHEMA, Traffic};

    fn peaks() -> Peaks {
        let flops = PeakFlops { dtype: "f32".into(), flops_s: 100e9, median: None, size: 1024, threads: 2 };
        let bandwidth = Bandwidth { traffic: Traffic::Read, bytes_s: 20e9, median: None, bytes: 1 << 30, threads: 2 };
        Peaks {
            schema: SCHEMA,
            machine: String::new(),
            device: "cpu".into(),
            measured: String::new(),
            flops: vec![flops],
            bandwidth: vec![bandwidth],
            gpu: None,
        }
    }

    fn work(flops: u64, bytes: u64) -> Work {
        Work { flops, dtype: "f32".into(), bytes, traffic: Traffic::Read }
    }

    #[test]
    fn the_limit_is_the_larger_of_the_two() {
        let much = limits(&work(1_000_000_000, 20_000_000), 20e6, Some(&peaks()));
        assert_eq!((much.limit_ns, much.bound), (Some(10e6), Some(Bound::Arithmetic)));
        assert_eq!((much.x_limit, much.mfu, much.mbu), (Some(2.0), Some(0.5), Some(0.05)));
        assert_eq!((much.gflop_s, much.gb_s), (Some(50.0), Some(1.0)));
        let little = limits(&work(1000, 20_000_000), 2e6, Some(&peaks()));
        assert_eq!((little.limit_ns, little.bound), (Some(1e6), Some(Bound::Memory)));
    }

    #[test]
    fn without_peaks_only_rates_are_reported() {
        let rates = limits(&work(1000, 500), 10.0, None);
        let (gflop, gb) = (Some(1e-6), Some(5e-7));
        assert_eq!(rates, Limits { gflop, gb, gflop_s: Some(100.0), gb_s: Some(50.0), ..Limits::default() });
    }

    #[test]
    fn a_dtype_without_a_peak_has_no_limit() {
        let half = Work { dtype: "f16".into(), ..work(1000, 500) };
        let found = limits(&half, 10.0, Some(&peaks()));
        assert_eq!((found.limit_ns, found.mfu, found.mbu), (None, None, Some(2.5)));
    }

    #[test]
    fn a_copy_is_limited_by_memory_only() {
        let found = limits(&work(0, 20), 2.0, Some(&peaks()));
        assert_eq!((found.gflop_s, found.limit_ns, found.bound), (None, Some(1.0), Some(Bound::Memory)));
    }

    #[test]
    fn no_work_has_no_limit() {
        assert_eq!(limits(&work(0, 0), 2.0, Some(&peaks())), Limits::default());
    }
}
