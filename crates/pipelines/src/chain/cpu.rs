//! The chain on the CPU.

use std::hint::black_box;

use laptime_bench::{Device, Iteration, Prepared, Work};
use laptime_probe::{Lane, stage, sync_point};

use super::{
    LARGE_PRODUCTS, SMALL_PRODUCTS, Sizes,
    rotation::{check_chain, rotation, start},
};
use crate::{
    crew::Crew,
    element::untouched,
    product::{Multiplied, product_bytes},
};

pub fn prepare<'a>(sizes: Sizes, threads: usize, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
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

/// A prepared chain.
struct ChainIteration<'a> {
    sizes: Sizes,
    crew: Crew,
    lane: Option<&'a Lane>,
    small: Products,
    large: Products,
    /// The rows that the host read last.
    read: Vec<f32>,
}

/// Products of one size, each the next one's left factor.
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
