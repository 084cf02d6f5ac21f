//! The workload `chain`: many small and a few large matrix products, one after the other, in three stages.
//!
//! It serves to compare timings: one stage is launch-bound, one compute-bound, and one a host sync.

use std::hint::black_box;

use anyhow::{bail, ensure};
use laptime_bench::{
    AxisSpec, Case, Device, Iteration, ParsedCase, Prepared, Traffic, ValueKind::OneOf, Work, Workload,
};
use laptime_probe::{Lane, stage, sync_point};
use laptime_stats::Rng;

use crate::axis::{ABOUT_THREADS, SIZE, THREADS, axes, default_threads, describe};
use crate::product::{Element, Multiplied, product_bytes, untouched};
use crate::{backend::if_gpu, crew::Crew};

pub const SMALL_PRODUCTS: usize = 200;

pub const LARGE_PRODUCTS: usize = 20;

/// A chain of 200 small and 20 large products in f32.
#[derive(Debug, Clone, Copy, Default)]
pub struct Chain;

impl Workload for Chain {
    describe!(
        "chain",
        "multiplies 200 small and 20 large matrices of f32 one after the other and reads a row of each result"
    );

    fn axes(&self) -> Vec<AxisSpec> {
        axes! {
            "small", SIZE, [64], Middle, "rows and columns of the small matrices";
            "large", SIZE, [512], Middle, "rows and columns of the large matrices; use more on a GPU, such as 2048";
            "graph", OneOf(&["off", "on"]), ["off"], Middle,
                "whether the products are captured once and replayed as a CUDA graph";
            "threads", THREADS, [default_threads()], Low, ABOUT_THREADS;
        }
    }

    fn parse<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Box<dyn ParsedCase<'a> + 'a>> {
        let sizes = Sizes { small: case.size("small")?, large: case.size("large")? };
        let (graph, threads) = (case.text("graph")?.to_owned(), case.size("threads")?);
        Ok(Box::new((sizes.work(), move || {
            if_gpu!(device, gpu => crate::gpu::workloads::prepare_chain(sizes, graph == "on", gpu));
            match &*graph {
                "off" => prepare_on_cpu(sizes, threads, device),
                "on" => Ok(Prepared::DoesNotApply(format!("device `{}` has no graphs", device.name()))),
                other => bail!("`chain` has no graph `{other}`"),
            }
        })))
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub small: usize,
    pub large: usize,
}

impl Sizes {
    /// Four matrices of each size: the start of a chain, its factor, and two results that alternate.
    pub fn matrix_bytes(self) -> u64 {
        self.sum(|size| size.saturating_pow(2).saturating_mul(16))
    }

    fn sum(self, each: impl Fn(u64) -> u64) -> u64 {
        each(self.small as u64).saturating_add(each(self.large as u64))
    }

    pub fn work(self) -> Work {
        let times = |power: u32, factor: u64| {
            let of = |size: usize, products: usize| {
                (size as u64).saturating_pow(power).saturating_mul(factor).saturating_mul(products as u64)
            };
            of(self.small, SMALL_PRODUCTS).saturating_add(of(self.large, LARGE_PRODUCTS))
        };
        Work { flops: times(3, 2), dtype: "f32".to_owned(), bytes: times(2, 12), traffic: Traffic::Read }
    }
}

fn prepare_on_cpu<'a>(sizes: Sizes, threads: usize, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
    // One more matrix of each size than a product has.
    let needed = product_bytes::<f32>(sizes.small, threads)
        .saturating_add(product_bytes::<f32>(sizes.large, threads))
        .saturating_add(sizes.matrix_bytes() / 4);
    Prepared::if_it_fits(needed, device, || {
        let _stage = stage!("prepare_inputs", small = sizes.small, large = sizes.large);
        let (small, large) = (Products::new(sizes.small, SMALL_PRODUCTS)?, Products::new(sizes.large, LARGE_PRODUCTS)?);
        let (crew, lane) = (Crew::for_products(threads)?, device.lane());
        Ok(Box::new(ChainIteration { sizes, crew, lane, small, large, read: Vec::new() }))
    })
}

struct ChainIteration<'a> {
    sizes: Sizes,
    crew: Crew,
    lane: Option<&'a Lane>,
    small: Products,
    large: Products,
    /// The rows that the host read last.
    read: Vec<f32>,
}

/// Products of one size; each result is the left factor of the next product.
struct Products {
    size: usize,
    count: usize,
    start: Vec<f32>,
    by: Vec<f32>,
    results: [Vec<f32>; 2],
}

impl Products {
    fn new(size: usize, count: usize) -> anyhow::Result<Self> {
        let results = [untouched(size * size)?, untouched(size * size)?];
        Ok(Self { size, count, start: start(size, 3), by: rotation(size, 1), results })
    }

    fn multiply(&mut self, crew: &Crew) {
        let Self { size, count, start, by, results: [one, other] } = self;
        f32::multiply(crew, *size, start, by, one, &mut ());
        let (mut from, mut to) = (one, other);
        for _ in 1..*count {
            f32::multiply(crew, *size, from, by, to, &mut ());
            std::mem::swap(&mut from, &mut to);
        }
        black_box(from);
    }

    fn result(&self) -> &[f32] {
        &self.results[(self.count - 1) % 2]
    }

    fn check(&self) -> anyhow::Result<()> {
        check_chain(self.size, self.count, &self.start, &self.by, self.result())
    }
}

impl Iteration for ChainIteration<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        self.small.check()?;
        self.large.check()
    }

    fn run(&mut self) -> anyhow::Result<()> {
        {
            let _stage = stage!("small", on = self.lane, size = self.small.size, products = self.small.count);
            self.small.multiply(&self.crew);
        }
        {
            let _stage = stage!("large", on = self.lane, size = self.large.size, products = self.large.count);
            self.large.multiply(&self.crew);
        }
        let _stage = stage!("read_back", on = self.lane);
        sync_point!("read_result", {
            self.read.clear();
            self.read.extend_from_slice(&self.small.result()[..self.small.size]);
            self.read.extend_from_slice(&self.large.result()[..self.large.size]);
        });
        Ok(())
    }

    fn work(&self) -> Option<Work> {
        Some(self.sizes.work())
    }
}

/// The tolerance in multiples of the expected rounding error.
const SLACK: f64 = 8.0;

/// A row-major rotation in the plane of two random directions: the product of two reflections.
pub fn rotation(size: usize, seed: u64) -> Vec<f32> {
    let (v, w) = (direction(size, seed), direction(size, seed + 1));
    let along: f64 = v.iter().zip(&w).map(|(v, w)| v * w).sum();
    let entry = &|row: usize, column: usize| {
        let identity = if row == column { 1.0 } else { 0.0 };
        identity - 2.0 * v[row] * v[column] - 2.0 * w[row] * w[column] + 4.0 * along * v[row] * w[column]
    };
    // A growing list would be reallocated and stay larger than predicted.
    let mut entries = Vec::with_capacity(size * size);
    entries.extend((0..size).flat_map(|row| (0..size).map(move |column| entry(row, column) as f32)));
    entries
}

/// A random direction of length one.
fn direction(size: usize, seed: u64) -> Vec<f64> {
    let mut rng = Rng::new(seed);
    let numbers: Vec<f64> = (0..size).map(|_| rng.uniform() + 0.1).collect();
    let length = numbers.iter().map(|number| number * number).sum::<f64>().sqrt();
    numbers.into_iter().map(|number| number / length).collect()
}

/// The start of a chain: random numbers between -1 and 1.
pub fn start(size: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    (0..size * size).map(|_| (2.0 * rng.uniform() - 1.0) as f32).collect()
}

/// Checks the first, the last and the middle row of a chain of products against f64.
pub fn check_chain(size: usize, products: usize, start: &[f32], by: &[f32], result: &[f32]) -> anyhow::Result<()> {
    for row in [0, size / 2, size - 1] {
        let should = expected_row(size, products, &start[row * size..][..size], by);
        let length = should.iter().map(|number| number * number).sum::<f64>().sqrt();
        // Rotations preserve the length of a row, so each addition errs by at most a rounding of it.
        let tolerance = SLACK * (size as f64 * products as f64).sqrt() * f32::ROUNDING * length;
        for (column, (&is, should)) in result[row * size..][..size].iter().zip(&should).enumerate() {
            // NaN is never within the tolerance.
            ensure!(
                (f64::from(is) - should).abs() <= tolerance,
                "the chain of {products} products is wrong: row {row}, column {column} is {is}, not {should} within \
                 {tolerance:.1e}"
            );
        }
    }
    Ok(())
}

/// A row of the result, which depends only on the same row of the start.
fn expected_row(size: usize, products: usize, start: &[f32], by: &[f32]) -> Vec<f64> {
    let mut row: Vec<f64> = start.iter().map(|&number| f64::from(number)).collect();
    for _ in 0..products {
        let mut next = vec![0.0; size];
        for (&factor, line) in row.iter().zip(by.chunks(size)) {
            next.iter_mut().zip(line).for_each(|(sum, &number)| *sum += factor * f64::from(number));
        }
        row = next;
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_bench::{Iteration, Simulated};

    fn case(small: i64, large: i64, graph: &str, threads: i64) -> Case {
        let values = [("small", small.into()), ("large", large.into()), ("graph", graph.into())];
        let values = values.into_iter().chain([("threads", threads.into())]);
        Case::new(values.map(|(axis, value)| (axis.to_owned(), value)).collect())
    }

    fn ready(case: &Case, act: impl FnOnce(&mut dyn Iteration)) {
        match Chain.prepare(case, &Simulated::new()).unwrap() {
            Prepared::Ready(mut iteration) => act(&mut *iteration),
            _ => panic!("memory is unlimited"),
        }
    }

    #[test]
    fn a_chain_of_any_sizes_is_correct() {
        for (small, large, threads) in [(1, 1, 1), (2, 3, 1), (64, 130, 2), (33, 200, 3)] {
            ready(&case(small, large, "off", threads), |iteration| iteration.check().unwrap());
        }
    }

    #[test]
    fn the_work_is_that_of_all_products() {
        ready(&case(10, 20, "off", 1), |iteration| {
            let flops = 2 * (200 * 1000 + 20 * 8000);
            let bytes = 12 * (200 * 100 + 20 * 400);
            let work = Work { flops, dtype: "f32".to_owned(), bytes, traffic: Traffic::Read };
            assert_eq!(iteration.work(), Some(work));
        });
    }

    #[test]
    fn graphs_do_not_apply_on_a_device_without_graphs() {
        let device = Simulated::new();
        let prepared = Chain.prepare(&case(8, 8, "on", 1), &device).unwrap();
        assert!(matches!(prepared, Prepared::DoesNotApply(reason) if reason == "device `simulated` has no graphs"));
    }

    #[test]
    fn a_case_that_does_not_fit_is_reported_before_anything_is_allocated() {
        for large in [1 << 20, i64::MAX] {
            let device = Simulated::with_memory(1 << 30);
            let prepared = Chain.prepare(&case(8, large, "off", 1), &device).unwrap();
            assert!(matches!(prepared, Prepared::DoesNotFit { needed, available } if needed > available));
        }
    }
}

#[cfg(test)]
mod rotation_tests {
    use super::*;

    #[test]
    fn a_rotation_keeps_the_length_of_a_row() {
        for size in [1, 2, 7, 64] {
            let row: Vec<f32> = (0..size).map(|at| at as f32 - 1.5).collect();
            let length = |row: &[f64]| row.iter().map(|number| number * number).sum::<f64>().sqrt();
            let before: Vec<f64> = row.iter().map(|&number| f64::from(number)).collect();
            let after = expected_row(size, 200, &row, &rotation(size, 1));
            assert!((length(&before) - length(&after)).abs() < 1e-4 * length(&before), "{size}");
        }
    }

    #[test]
    fn a_chain_that_lacks_a_product_is_refused() {
        let size = 40;
        let (start, by) = (start(size, 3), rotation(size, 1));
        let result = |products: usize| -> Vec<f32> {
            let rows = start.chunks(size).flat_map(|row| expected_row(size, products, row, &by));
            rows.map(|number| number as f32).collect()
        };
        check_chain(size, 20, &start, &by, &result(20)).unwrap();
        let error = check_chain(size, 20, &start, &by, &result(19)).unwrap_err().to_string();
        assert!(error.starts_with("the chain of 20 products is wrong: row 0, column 0 is "), "{error}");
    }
}
