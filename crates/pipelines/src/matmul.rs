//! The workload `matmul`: the product of two square matrices.

use std::hint::black_box;

use anyhow::bail;
use half::{bf16, f16};
use laptime_bench::{
    AxisSpec, Case, Device, Iteration, ParsedCase, Prepared, Traffic, ValueKind::OneOf, Work, Workload,
};
use laptime_probe::stage;
use laptime_stats::Rng;

use crate::axis::{ABOUT_THREADS, SIZE, THREADS, axes, default_threads, describe};
use crate::product::{Multiplied, check_product, product_bytes, untouched};
use crate::{backend::if_gpu, crew::Crew};

/// The dtypes of the workload.
pub const MATMUL_DTYPES: &[&str] = &["f32", "f64", "bf16", "f16"];

/// The product of two square matrices.
#[derive(Debug, Clone, Copy, Default)]
pub struct Matmul;

impl Workload for Matmul {
    describe!("matmul", "matrix multiplication of square matrices; bf16 and f16 accumulate in f32");

    fn axes(&self) -> Vec<AxisSpec> {
        axes! {
            "size", SIZE, [1024], Middle, "rows and columns of the matrices";
            "dtype", OneOf(MATMUL_DTYPES), ["f32"], Middle,
                "dtype of the matrices; on the CPU bf16 is converted to f32 and back in the iteration; a GPU has no f64";
            "threads", THREADS, [default_threads()], Low, ABOUT_THREADS;
        }
    }

    fn parse<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Box<dyn ParsedCase<'a> + 'a>> {
        let (size, threads, dtype) = (case.size("size")?, case.size("threads")?, case.text("dtype")?.to_owned());
        let bytes = match &*dtype {
            "f64" => 8,
            "f32" => 4,
            _ => 2,
        };
        Ok(Box::new((product_work(size, &dtype, bytes), move || {
            if_gpu!(device, gpu => crate::gpu::workloads::prepare_matmul(size, &dtype, gpu));
            match &*dtype {
                "f32" => prepare::<f32>(size, threads, device),
                "f64" => prepare::<f64>(size, threads, device),
                "bf16" => prepare::<bf16>(size, threads, device),
                "f16" => prepare::<f16>(size, threads, device),
                other => bail!("`matmul` has no dtype `{other}`"),
            }
        })))
    }
}

fn prepare<'a, T: Multiplied>(size: usize, threads: usize, device: &dyn Device) -> anyhow::Result<Prepared<'a>> {
    Prepared::if_it_fits(product_bytes::<T>(size, threads), device, || {
        Ok(Box::new(MatmulIteration::<T>::new(size, Crew::for_products(threads)?)?))
    })
}

struct MatmulIteration<T: Multiplied> {
    size: usize,
    crew: Crew,
    a: Vec<T>,
    b: Vec<T>,
    c: Vec<T>,
    scratch: T::Scratch,
}

impl<T: Multiplied> MatmulIteration<T> {
    fn new(size: usize, crew: Crew) -> anyhow::Result<Self> {
        let _stage = stage!("prepare_inputs", size = size);
        let (a, b) = (random::<T>(&crew, size, 1)?, random::<T>(&crew, size, 2)?);
        Ok(Self { a, b, c: untouched(size * size)?, scratch: T::scratch(size)?, size, crew })
    }
}

/// A matrix of random numbers between -1 and 1, the same for every number of threads.
pub(crate) fn random<T: Multiplied>(crew: &Crew, size: usize, seed: u64) -> anyhow::Result<Vec<T>> {
    let mut matrix = untouched(size * size)?;
    let rows = crew.share(size);
    crew.each(matrix.chunks_mut(rows * size).enumerate(), |(part, numbers)| {
        for (row, numbers) in numbers.chunks_mut(size).enumerate() {
            let mut rng = Rng::new(seed << 56 | (part * rows + row) as u64);
            numbers.fill_with(|| T::from_f64(2.0 * rng.uniform() - 1.0));
        }
    });
    Ok(matrix)
}

impl<T: Multiplied> Iteration for MatmulIteration<T> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        check_product(self.size, &self.a, &self.b, &self.c)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("matmul", size = self.size);
        T::multiply(&self.crew, self.size, &self.a, &self.b, &mut self.c, &mut self.scratch);
        black_box(&mut self.c);
        Ok(())
    }

    fn work(&self) -> Option<Work> {
        Some(product_work(self.size, T::NAME, size_of::<T>()))
    }
}

/// The work of a product of square matrices with numbers of this size.
pub(crate) fn product_work(size: usize, dtype: &str, number_bytes: usize) -> Work {
    let size = size as u64;
    let flops = size.saturating_pow(3).saturating_mul(2);
    let bytes = size.saturating_pow(2).saturating_mul(3 * number_bytes as u64);
    Work { flops, dtype: dtype.to_owned(), bytes, traffic: Traffic::Read }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_bench::Simulated;

    fn case(size: i64, dtype: &str, threads: i64) -> Case {
        Case::new(vec![
            ("size".to_owned(), size.into()),
            ("dtype".to_owned(), dtype.into()),
            ("threads".to_owned(), threads.into()),
        ])
    }

    fn ready(size: i64, dtype: &str, threads: i64, act: impl FnOnce(&mut dyn Iteration)) {
        match Matmul.prepare(&case(size, dtype, threads), &Simulated::new()).unwrap() {
            Prepared::Ready(mut iteration) => act(&mut *iteration),
            _ => panic!("memory is unlimited"),
        }
    }

    #[test]
    fn products_are_correct_for_all_dtypes_sizes_and_threads() {
        for dtype in MATMUL_DTYPES {
            for size in [1, 2, 3, 17, 64, 129] {
                for threads in [1, 2, 5] {
                    ready(size, dtype, threads, |iteration| iteration.check().unwrap());
                }
            }
        }
    }

    #[test]
    fn products_deeper_than_a_block_are_correct() {
        for dtype in MATMUL_DTYPES {
            ready(1100, dtype, 2, |iteration| iteration.check().unwrap());
        }
    }

    fn a_wrong_result_is_refused<T: Multiplied>() {
        let mut iteration = MatmulIteration::<T>::new(33, Crew::new(2).unwrap()).unwrap();
        iteration.check().unwrap();
        // Changing an input after the product makes the product wrong.
        iteration.a[40] = T::from_f64(iteration.a[40].to_f64() + 1.0);
        let error = check_product(33, &iteration.a, &iteration.b, &iteration.c).unwrap_err();
        assert!(error.to_string().starts_with("the product is wrong: row 1,"), "{error}");
    }

    #[test]
    fn a_wrong_result_of_any_dtype_is_refused() {
        a_wrong_result_is_refused::<f32>();
        a_wrong_result_is_refused::<f64>();
        a_wrong_result_is_refused::<f16>();
        a_wrong_result_is_refused::<bf16>();
    }

    #[test]
    fn the_inputs_do_not_depend_on_the_threads() {
        let matrix = |threads| random::<f32>(&Crew::new(threads).unwrap(), 7, 1).unwrap();
        assert_eq!(matrix(1), matrix(3));
        assert_ne!(matrix(1), random::<f32>(&Crew::new(1).unwrap(), 7, 2).unwrap());
        assert!(matrix(1).iter().all(|number| (-1.0..=1.0).contains(number)));
    }

    #[test]
    fn the_work_is_counted_from_the_shapes() {
        ready(10, "bf16", 1, |iteration| {
            let work = Work { flops: 2000, dtype: "bf16".to_owned(), bytes: 600, traffic: Traffic::Read };
            assert_eq!(iteration.work(), Some(work));
        });
    }

    #[test]
    fn a_case_that_does_not_fit_is_reported_before_anything_is_allocated() {
        for size in [1 << 20, i64::MAX] {
            let device = Simulated::with_memory(1 << 30);
            match Matmul.prepare(&case(size, "f32", 1), &device).unwrap() {
                Prepared::DoesNotFit { needed, available } => assert!(needed > available && available == 1 << 30),
                _ => panic!("it does not fit"),
            }
        }
    }
}
