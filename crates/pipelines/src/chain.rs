//! The workload `chain`: many small and a few large matrix products, one after the other, in three stages.
//!
//! It is the shape that timings are compared on: a stage bound by launching, one bound by arithmetic, and one in which
//! the host waits.

mod cpu;
#[cfg(feature = "cuda")]
mod gpu;
mod rotation;

use anyhow::bail;
use laptime_bench::{AxisSpec, Case, Cost, Device, ParsedCase, Prepared, Traffic, ValueKind, Work, Workload};

use crate::crew::threads_axis;

/// Products of the stage `small`.
pub const SMALL_PRODUCTS: usize = 200;

/// Products of the stage `large`.
pub const LARGE_PRODUCTS: usize = 20;

/// A chain of 200 small and 20 large products in f32.
#[derive(Debug, Clone, Copy, Default)]
pub struct Chain;

impl Workload for Chain {
    fn name(&self) -> &'static str {
        "chain"
    }

    fn about(&self) -> &'static str {
        "multiplies 200 small and 20 large matrices of f32 one after the other and reads a row of each result"
    }

    fn axes(&self) -> Vec<AxisSpec> {
        let size = |name, about, default: i64| AxisSpec {
            name,
            about,
            kind: ValueKind::Int { least: 1, most: i64::MAX },
            default: vec![default.into()],
            cost: Cost::Middle,
        };
        let graph = AxisSpec {
            name: "graph",
            about: "whether the products are captured once and replayed as a CUDA graph",
            kind: ValueKind::OneOf(&["off", "on"]),
            default: vec!["off".into()],
            cost: Cost::Middle,
        };
        let small = size("small", "rows and columns of the small matrices", 64);
        let large = size("large", "rows and columns of the large matrices; use more on a GPU, such as 2048", 512);
        vec![small, large, graph, threads_axis()]
    }

    fn parse<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Box<dyn ParsedCase<'a> + 'a>> {
        let sizes = Sizes { small: case.size("small")?, large: case.size("large")? };
        let (graph, threads) = (case.text("graph")?.to_owned(), case.size("threads")?);
        Ok(Box::new((sizes.work(), move || {
            #[cfg(feature = "cuda")]
            if let Some(gpu) = crate::gpu::gpu(device) {
                return gpu::prepare(sizes, graph == "on", gpu);
            }
            match &*graph {
                "off" => cpu::prepare(sizes, threads, device),
                "on" => Ok(Prepared::DoesNotApply(format!("device `{}` has no graphs", device.name()))),
                other => bail!("`chain` has no graph `{other}`"),
            }
        })))
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        self.parse(case, device)?.prepare()
    }
}

/// The sizes of both kinds of matrices.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    small: usize,
    large: usize,
}

impl Sizes {
    /// Four matrices of each size: the start of a chain, its factor, and two results that alternate.
    fn matrix_bytes(self) -> u64 {
        self.sum(|size| size.saturating_pow(2).saturating_mul(16))
    }

    fn sum(self, each: impl Fn(u64) -> u64) -> u64 {
        each(self.small as u64).saturating_add(each(self.large as u64))
    }

    fn work(self) -> Work {
        let times = |power: u32, factor: u64| {
            let of = |size: usize, products: usize| {
                (size as u64).saturating_pow(power).saturating_mul(factor).saturating_mul(products as u64)
            };
            of(self.small, SMALL_PRODUCTS).saturating_add(of(self.large, LARGE_PRODUCTS))
        };
        Work { flops: times(3, 2), dtype: "f32".to_owned(), bytes: times(2, 12), traffic: Traffic::Read }
    }
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
            _ => panic!("there is memory without end"),
        }
    }

    #[test]
    fn a_chain_of_any_sizes_is_right() {
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
    fn a_device_without_graphs_has_no_case_with_one() {
        let device = Simulated::new();
        let prepared = Chain.prepare(&case(8, 8, "on", 1), &device).unwrap();
        assert!(matches!(prepared, Prepared::DoesNotApply(reason) if reason == "device `simulated` has no graphs"));
    }

    #[test]
    fn what_does_not_fit_is_told_before_anything_is_allocated() {
        for large in [1 << 20, i64::MAX] {
            let device = Simulated::with_memory(1 << 30);
            let prepared = Chain.prepare(&case(8, large, "off", 1), &device).unwrap();
            assert!(matches!(prepared, Prepared::DoesNotFit { needed, available } if needed > available));
        }
    }
}
