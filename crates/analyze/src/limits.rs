//! What a take could take at best: work over peaks.

use laptime_trace::run::{Peaks, Work};

/// How much of the machine a case uses. What cannot be known is none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Billions of floating-point operations of a take: what `mfu` divides.
    pub gflop: Option<f64>,
    /// Billions of bytes of a take: what `mbu` divides.
    pub gb: Option<f64>,
    /// Billions of floating-point operations a second at the median.
    pub gflop_s: Option<f64>,
    /// Billions of bytes a second at the median.
    pub gb_s: Option<f64>,
    /// The least time a take needs, in nanoseconds: the larger of operations over their peak and bytes over theirs.
    pub limit_ns: Option<f64>,
    /// Which of the two it is.
    pub bound: Option<Bound>,
    /// The median over the limit.
    pub x_limit: Option<f64>,
    /// Operations a second over their peak.
    pub mfu: Option<f64>,
    /// Bytes a second over their peak.
    pub mbu: Option<f64>,
}

/// What a limit comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Arithmetic.
    Arithmetic,
    /// Memory.
    Memory,
}

impl Bound {
    /// The word by which tables tell it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Arithmetic => "arithmetic",
            Self::Memory => "memory",
        }
    }
}

/// Holds the work of a take against the time it took, and against peaks.
///
/// A kind of work of which there is nothing has no rate. If there is some and its peak is not known, neither is the
/// limit: the other part alone might be far below it.
pub fn limits(work: &Work, median_ns: f64, peaks: Option<&Peaks>) -> Limits {
    let operations = Part::of(work.flops, peaks.and_then(|peaks| peaks.flops_s(&work.dtype)));
    let bytes = Part::of(work.bytes, peaks.and_then(|peaks| peaks.bytes_s(work.traffic)));
    // Below a nanosecond no clock could tell.
    let limit = limit(&operations, &bytes).filter(|(nanos, _)| *nanos >= 1.0);
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

fn limit(operations: &Part, bytes: &Part) -> Option<(f64, Bound)> {
    let (arithmetic, memory) = (operations.least_ns()?, bytes.least_ns()?);
    let limit = if memory > arithmetic { (memory, Bound::Memory) } else { (arithmetic, Bound::Arithmetic) };
    (limit.0 > 0.0).then_some(limit)
}

/// One kind of work.
struct Part {
    amount: f64,
    /// The most of it in a nanosecond.
    peak: Option<f64>,
}

impl Part {
    fn of(amount: u64, peak_s: Option<f64>) -> Self {
        Self { amount: amount as f64, peak: peak_s.filter(|&peak| peak > 0.0).map(|peak| peak / 1e9) }
    }

    fn billions(&self) -> Option<f64> {
        (self.amount > 0.0).then(|| self.amount / 1e9)
    }

    /// Billions a second are as many a nanosecond.
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
    fn without_peaks_there_are_rates_only() {
        let rates = limits(&work(1000, 500), 10.0, None);
        let (gflop, gb) = (Some(1e-6), Some(5e-7));
        assert_eq!(rates, Limits { gflop, gb, gflop_s: Some(100.0), gb_s: Some(50.0), ..Limits::default() });
    }

    #[test]
    fn a_type_without_a_peak_has_no_limit() {
        let half = Work { dtype: "f16".into(), ..work(1000, 500) };
        let found = limits(&half, 10.0, Some(&peaks()));
        assert_eq!((found.limit_ns, found.mfu, found.mbu), (None, None, Some(2.5)));
    }

    #[test]
    fn a_copy_is_limited_by_memory_alone() {
        let found = limits(&work(0, 20), 2.0, Some(&peaks()));
        assert_eq!((found.gflop_s, found.limit_ns, found.bound), (None, Some(1.0), Some(Bound::Memory)));
    }

    #[test]
    fn no_work_has_no_limit() {
        assert_eq!(limits(&work(0, 0), 2.0, Some(&peaks())), Limits::default());
    }
}
