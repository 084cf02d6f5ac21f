//! The product of two square matrices on a GPU, by cuBLAS.

use half::{bf16, f16};
use laptime_bench::{Device, Iteration, Prepared, Work};
use laptime_cuda::{Blas, Buffer, Element, Sizes};
use laptime_probe::stage;

use super::{CudaDevice, WORKSPACE_BYTES, into_error};
use crate::{
    crew::{Crew, all_threads},
    matmul::{product_work, random},
    product::{Multiplied, check_product},
};

/// Prepares a product; dtypes without a product do not apply.
pub fn prepare_matmul<'a>(size: usize, dtype: &str, gpu: &'a CudaDevice) -> anyhow::Result<Prepared<'a>> {
    match dtype {
        "f32" => prepare::<f32>(size, gpu),
        "bf16" => prepare::<bf16>(size, gpu),
        "f16" => prepare::<f16>(size, gpu),
        other => Ok(Prepared::DoesNotApply(format!("`matmul` on a GPU has no dtype `{other}`"))),
    }
}

fn prepare<'a, T: Multiplied + Element>(size: usize, gpu: &'a CudaDevice) -> anyhow::Result<Prepared<'a>> {
    let Ok(side) = u32::try_from(size) else {
        return Ok(Prepared::DoesNotApply(format!("cuBLAS does not accept matrices of {size} rows")));
    };
    let matrix = (size as u64).saturating_pow(2).saturating_mul(size_of::<T>() as u64);
    let needed = matrix.saturating_mul(3).saturating_add(WORKSPACE_BYTES);
    Prepared::if_it_fits(needed, gpu, || Ok(Box::new(GpuMatmul::<T>::new(size, side, gpu)?)))
}

struct GpuMatmul<'a, T> {
    gpu: &'a CudaDevice,
    blas: Blas,
    size: usize,
    sizes: Sizes,
    host: [Vec<T>; 2],
    a: Buffer<T>,
    b: Buffer<T>,
    c: Buffer<T>,
}

impl<'a, T: Multiplied + Element> GpuMatmul<'a, T> {
    fn new(size: usize, side: u32, gpu: &'a CudaDevice) -> anyhow::Result<Self> {
        let _stage = stage!("prepare_inputs", size = size);
        let blas = Blas::new(gpu.cuda()).map_err(into_error)?;
        let crew = Crew::new(all_threads())?;
        let host = [random::<T>(&crew, size, 1)?, random::<T>(&crew, size, 2)?];
        let [a, b] = [&host[0], &host[1]].map(|matrix| gpu.cuda().upload(matrix).map_err(into_error));
        let c = gpu.cuda().allocate(size * size).map_err(into_error)?;
        let sizes = Sizes { m: side, n: side, k: side, b_is_transposed: false };
        Ok(Self { gpu, blas, size, sizes, host, a: a?, b: b?, c })
    }
}

impl<T: Multiplied + Element> Iteration for GpuMatmul<'_, T> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        let product = self.c.read().map_err(into_error)?;
        check_product(self.size, &self.host[0], &self.host[1], &product)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("matmul", on = self.gpu.lane(), size = self.size);
        self.blas.multiply([&self.a, &self.b], &mut self.c, self.sizes).map_err(into_error)
    }

    fn work(&self) -> Option<Work> {
        Some(product_work(self.size, T::NAME, size_of::<T>()))
    }
}
