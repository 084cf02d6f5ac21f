//! Benchmarks of a function, measured as `laptime bench` measures a case.

use std::fmt;

use laptime_bench::{GivenSettings, Iteration, Outcome, Seconds, Share, WarmUp};
use laptime_pipelines::CpuDevice;
use laptime_stats::{Sorted, Summary};

/// Times a function: warms up until the timings are steady, then iterates until the median is known within 2 %, for at
/// most 10 seconds. [`Benchmark`] sets the number of iterations.
///
/// ```
/// # fn main() -> anyhow::Result<()> {
/// let mut numbers: Vec<u64> = (0..1000).rev().collect();
/// let timings = laptime::Benchmark::new().warmup(2).iterations(10).run(|| {
///     numbers.sort_unstable();
///     anyhow::Ok(())
/// })?;
/// assert_eq!(timings.summary.n, 10);
/// println!("sorting takes {timings}");
/// # Ok(())
/// # }
/// ```
pub fn benchmark<E: Into<anyhow::Error>>(step: impl FnMut() -> Result<(), E>) -> anyhow::Result<Timings> {
    Benchmark::new().run(step)
}

/// How to time a function.
#[derive(Debug, Clone, Copy, Default)]
pub struct Benchmark {
    settings: GivenSettings,
}

impl Benchmark {
    /// A benchmark with automatic warm-up and number of iterations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of warm-up iterations.
    pub fn warmup(mut self, iterations: usize) -> Self {
        self.settings.warmup = Some(WarmUp::Iterations(iterations));
        self
    }

    /// Sets the number of measured iterations.
    pub fn iterations(mut self, iterations: usize) -> Self {
        self.settings.iterations = Some(iterations);
        self
    }

    /// Sets the maximum measuring time; excludes [`Benchmark::iterations`].
    pub fn max_time(mut self, seconds: f64) -> Self {
        self.settings.max_time = Some(Seconds(seconds));
        self
    }

    /// Sets the target width of the median's interval, as a share of the median; excludes [`Benchmark::iterations`].
    pub fn within(mut self, share: f64) -> Self {
        self.settings.within = Some(Share(share));
        self
    }

    /// Times a function. An error or panic of the function ends the benchmark.
    pub fn run<E: Into<anyhow::Error>>(self, step: impl FnMut() -> Result<(), E>) -> anyhow::Result<Timings> {
        let settings = self.settings.settle()?;
        match laptime_bench::measure_ready(&mut Function { step }, &CpuDevice::new(), &settings, &mut ()) {
            Outcome::Measured(measured) => Timings::of(measured.wall_ns, measured.warmup_ns, measured.peak_bytes),
            Outcome::Failed { errors, .. } => Err(laptime_bench::chained(errors, "the benchmark failed")),
            Outcome::Skipped { reason } => Err(anyhow::anyhow!(reason)),
            Outcome::OutOfMemory { needed_bytes, .. } => Err(match needed_bytes {
                Some(bytes) => anyhow::anyhow!("out of memory: cannot allocate {bytes} bytes"),
                None => anyhow::anyhow!("out of memory"),
            }),
        }
    }
}

/// The timings of a function, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Timings {
    /// Mean, standard deviation, median with its 95 % interval, and quantiles.
    pub summary: Summary,
    /// The measured iterations, in order.
    pub iterations: Vec<f64>,
    /// The warm-up iterations, in order.
    pub warmup: Vec<f64>,
    /// Peak heap memory above that at the start; none unless the program installs [`crate::CountingHeap`].
    pub peak_bytes: Option<u64>,
}

impl Timings {
    fn of(wall_ns: Vec<u64>, warmup_ns: Vec<u64>, peak_bytes: Option<u64>) -> anyhow::Result<Self> {
        let in_ms = |nanos: Vec<u64>| nanos.into_iter().map(|nanos| nanos as f64 / 1e6).collect::<Vec<f64>>();
        let (iterations, warmup) = (in_ms(wall_ns), in_ms(warmup_ns));
        let sorted = Sorted::<f64>::from_unsorted(iterations.clone())?;
        let summary = Summary::of(&sorted, 0).ok_or_else(|| anyhow::anyhow!("nothing was measured"))?;
        Ok(Self { summary, iterations, warmup, peak_bytes })
    }
}

impl fmt::Display for Timings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { n, mean, std, .. } = self.summary;
        match std {
            Some(std) => write!(out, "{mean:.3} ms ± {std:.3} ms (n = {n})"),
            None => write!(out, "{mean:.3} ms (n = {n})"),
        }
    }
}

struct Function<F> {
    step: F,
}

impl<F, E> Iteration for Function<F>
where
    F: FnMut() -> Result<(), E>,
    E: Into<anyhow::Error>,
{
    fn check(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<()> {
        (self.step)().map_err(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_runs_as_often_as_requested() {
        let mut calls = 0;
        let timings = Benchmark::new().warmup(3).iterations(5).run(|| {
            calls += 1;
            anyhow::Ok(())
        });
        let timings = timings.unwrap();
        assert_eq!((calls, timings.warmup.len(), timings.iterations.len()), (8, 3, 5));
        assert_eq!(timings.summary.n, 5);
    }

    #[test]
    fn an_error_ends_the_benchmark_with_its_causes() {
        let failed = benchmark(|| Err(anyhow::anyhow!("no disk").context("cannot load the batch")));
        assert_eq!(format!("{:#}", failed.unwrap_err()), "cannot load the batch: no disk");
    }

    #[test]
    fn zero_iterations_are_an_error() {
        let none = Benchmark::new().iterations(0).run(|| anyhow::Ok(()));
        assert_eq!(none.unwrap_err().to_string(), "`iterations` must be at least 1");
    }

    #[test]
    fn timings_are_shown_with_their_spread_and_count() {
        let timings = Timings::of(vec![1_000_000, 3_000_000], Vec::new(), None).unwrap();
        assert_eq!(timings.to_string(), "2.000 ms ± 1.414 ms (n = 2)");
        assert_eq!(Timings::of(vec![1_000_000], Vec::new(), None).unwrap().to_string(), "1.000 ms (n = 1)");
    }
}
