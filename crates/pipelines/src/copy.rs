//! The workload `copy`: memory read, written and copied.

use std::{hint::black_box, slice::ChunksMut};

use anyhow::{bail, ensure};
use half::bf16;
use laptime_bench::{AxisSpec, Case, Device, Iteration, Prepared, Traffic, ValueKind::OneOf, Work, Workload};
use laptime_probe::stage;
use pulp::{Arch, NullaryFnOnce};

use crate::axis::{ABOUT_THREADS, SIZE, THREADS, axes, default_threads};
use crate::product::{Element, untouched};
use crate::{backend::if_gpu, crew::Crew, memory::beyond_caches_mib};

const MIB: u64 = 1 << 20;

/// The operations of the workload, by their names on the axis `op`.
pub const COPY_OPS: &[&str] = &["read", "write", "copy"];

/// The same, and copies between the host and a GPU.
const ALL_OPS: &[&str] = &["read", "write", "copy", "upload", "download", "upload_pageable", "download_pageable"];

/// Memory read, written and copied.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryCopy;

impl Workload for MemoryCopy {
    fn name(&self) -> &'static str {
        "copy"
    }

    fn about(&self) -> &'static str {
        "reads, writes and copies memory that does not fit into the caches"
    }

    fn axes(&self) -> Vec<AxisSpec> {
        axes! {
            "op", OneOf(ALL_OPS), [COPY_OPS[0], COPY_OPS[1], COPY_OPS[2]], Middle,
                "read sums a buffer, write fills one, copy copies one to another; upload and download go between a GPU and pinned memory, or pageable";
            "size", SIZE, [i64::from(beyond_caches_mib())], Middle,
                "MiB in one buffer; by default four times the largest caches of the machine";
            "dtype", OneOf(&["f32", "f64", "bf16"]), ["f32"], Middle, "dtype of the values that read sums and write fills";
            "threads", THREADS, [default_threads()], Low, ABOUT_THREADS;
        }
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        let (op, dtype) = (case.text("op")?, case.text("dtype")?);
        let bytes = (case.size("size")? as u64).saturating_mul(MIB);
        if_gpu!(device, gpu => crate::gpu::workloads::prepare_copy(op, bytes, dtype, gpu));
        if !COPY_OPS.contains(&op) {
            return Ok(Prepared::DoesNotApply(format!("`{op}` copies between the host and a GPU")));
        }
        let threads = case.size("threads")?;
        match dtype {
            "f32" => prepare::<f32>(op, bytes, threads, device),
            "f64" => prepare::<f64>(op, bytes, threads, device),
            "bf16" => prepare::<bf16>(op, bytes, threads, device),
            other => bail!("`copy` has no dtype `{other}`"),
        }
    }
}

/// Memory of threads and tasks.
const SMALL_BYTES: u64 = 128 << 10;

fn prepare<'a, T: Summed>(op: &str, bytes: u64, threads: usize, device: &dyn Device) -> anyhow::Result<Prepared<'a>> {
    let buffers = if op == "copy" { 2 } else { 1 };
    Prepared::if_it_fits(bytes.saturating_mul(buffers).saturating_add(SMALL_BYTES), device, || {
        let (crew, count) = (Crew::new(threads)?, usize::try_from(bytes)? / size_of::<T>());
        let op = match op {
            "read" => Op::<T>::Read { numbers: pattern(&crew, count)?, sums: vec![0.0; threads] },
            "write" => Op::Write { numbers: touched(&crew, count)?, value: 0 },
            "copy" => Op::Copy { from: pattern(&crew, count)?, to: touched(&crew, count)? },
            other => bail!("`copy` has no op `{other}`"),
        };
        Ok(Box::new(Moved { op, crew }))
    })
}

/// The parts of a buffer, one for each thread.
fn parts<'a, T: Summed>(crew: &Crew, numbers: &'a mut [T]) -> ChunksMut<'a, T> {
    numbers.chunks_mut(crew.share(numbers.len()))
}

/// Zeros, each page first touched by the thread that will use it.
fn touched<T: Summed>(crew: &Crew, count: usize) -> anyhow::Result<Vec<T>> {
    let _stage = stage!("prepare_inputs", count = count);
    let mut numbers = untouched(count)?;
    crew.each(parts(crew, &mut numbers), |part| fill(part, T::zeroed()));
    Ok(numbers)
}

/// Small whole numbers that every dtype represents exactly; each page is first touched by the thread that uses it.
fn pattern<T: Summed>(crew: &Crew, count: usize) -> anyhow::Result<Vec<T>> {
    let _stage = stage!("prepare_inputs", count = count);
    let mut numbers = untouched(count)?;
    let share = crew.share(count);
    crew.each(parts(crew, &mut numbers).enumerate(), |(part, numbers)| {
        for (at, number) in numbers.iter_mut().enumerate() {
            *number = T::from_f64(f64::from(pattern_at(part * share + at)));
        }
    });
    Ok(numbers)
}

/// A pseudorandom number from 0 to 7: the highest bits of a product with a large odd number.
pub(crate) fn pattern_at(at: usize) -> u32 {
    (at as u32).wrapping_mul(0x9E37_79B1) >> 29
}

struct Moved<T> {
    op: Op<T>,
    crew: Crew,
}

enum Op<T> {
    /// Sums a buffer; each thread has a sum.
    Read {
        numbers: Vec<T>,
        sums: Vec<f64>,
    },
    /// Fills a buffer with a value that differs each time.
    Write {
        numbers: Vec<T>,
        value: u8,
    },
    Copy {
        from: Vec<T>,
        to: Vec<T>,
    },
}

impl<T: Summed> Op<T> {
    fn verify(&self) -> anyhow::Result<()> {
        match self {
            Self::Read { numbers, sums } => {
                let expected: u64 = (0..numbers.len()).map(|at| u64::from(pattern_at(at))).sum();
                let sum: f64 = sums.iter().sum();
                ensure!(sum == expected as f64, "the sum is wrong: it is {sum}, not {expected}");
            }
            Self::Write { numbers, value } => {
                let wrong = numbers.iter().position(|&number| number != T::from_f64(f64::from(*value)));
                ensure!(wrong.is_none(), "the fill is wrong: number {} was not written", wrong.unwrap_or(0));
            }
            Self::Copy { from, to } => {
                let wrong = from.iter().zip(to).position(|(from, to)| from != to);
                ensure!(wrong.is_none(), "the copy is wrong: number {} differs", wrong.unwrap_or(0));
            }
        }
        Ok(())
    }
}

impl<T: Summed> Iteration for Moved<T> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        self.op.verify()
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let Self { op, crew } = self;
        match op {
            Op::Read { numbers, sums } => {
                let _stage = stage!("read", bytes = size_of_val(&numbers[..]));
                crew.each(numbers.chunks(crew.share(numbers.len())).zip(&mut *sums), |(part, total)| {
                    *total = sum(part)
                });
                black_box(sums);
            }
            Op::Write { numbers, value } => {
                let _stage = stage!("write", bytes = size_of_val(&numbers[..]));
                *value = *value % 100 + 1;
                let number = T::from_f64(f64::from(*value));
                crew.each(parts(crew, numbers), |part| fill(part, number));
                black_box(numbers);
            }
            Op::Copy { from, to } => {
                let _stage = stage!("copy", bytes = size_of_val(&from[..]));
                let from = from.chunks(crew.share(from.len()));
                crew.each(from.zip(parts(crew, to)), |(from, to)| to.copy_from_slice(from));
                black_box(to);
            }
        }
        Ok(())
    }

    fn work(&self) -> Option<Work> {
        let (numbers, traffic) = match &self.op {
            Op::Read { numbers, .. } => (numbers, Traffic::Read),
            Op::Write { numbers, .. } => (numbers, Traffic::Write),
            Op::Copy { from, .. } => (from, Traffic::Copy),
        };
        Some(copy_work(traffic, size_of_val(&numbers[..]), T::NAME))
    }
}

/// The work of moving a buffer once; a copy reads and writes.
pub(crate) fn copy_work(traffic: Traffic, buffer_bytes: usize, dtype: &str) -> Work {
    let times = if traffic == Traffic::Copy { 2 } else { 1 };
    Work { flops: 0, dtype: dtype.to_owned(), bytes: times * buffer_bytes as u64, traffic }
}

/// The number of independent sums: enough to be bound by memory and not by the latency of additions.
const LANES: usize = 64;

/// The block after which sums are accumulated in f64, so that whole numbers stay exact.
const BLOCK: usize = 1 << 16;

pub trait Summed: Element {
    /// The type in which it is summed.
    type Sum: std::ops::AddAssign + Copy + Default + Into<f64>;

    fn widened(self) -> Self::Sum;
}

impl Summed for f32 {
    type Sum = f32;

    #[inline(always)]
    fn widened(self) -> f32 {
        self
    }
}

impl Summed for f64 {
    type Sum = f64;

    #[inline(always)]
    fn widened(self) -> f64 {
        self
    }
}

impl Summed for bf16 {
    type Sum = f32;

    /// By its bits: the library's conversion also checks for NaN, which would slow down reading.
    #[inline(always)]
    fn widened(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

/// Adds up the numbers, with the widest vectors that the processor has.
pub fn sum<T: Summed>(numbers: &[T]) -> f64 {
    struct Sum<'a, T>(&'a [T]);

    impl<T: Summed> NullaryFnOnce for Sum<'_, T> {
        type Output = f64;

        #[inline(always)]
        fn call(self) -> f64 {
            self.0.chunks(BLOCK).map(sum_block).sum()
        }
    }

    Arch::new().dispatch(Sum(numbers))
}

#[inline(always)]
fn sum_block<T: Summed>(numbers: &[T]) -> f64 {
    let mut sums = [T::Sum::default(); LANES];
    let (rows, rest) = numbers.as_chunks::<LANES>();
    for row in rows {
        for (sum, number) in sums.iter_mut().zip(row) {
            *sum += number.widened();
        }
    }
    let rest = rest.iter().map(|number| number.to_f64());
    sums.into_iter().map(Into::<f64>::into).sum::<f64>() + rest.sum::<f64>()
}

/// Sets all numbers to one value, with the widest vectors that the processor has.
pub fn fill<T: Element>(numbers: &mut [T], value: T) {
    struct Fill<'a, T>(&'a mut [T], T);

    impl<T: Element> NullaryFnOnce for Fill<'_, T> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            for number in self.0 {
                *number = self.1;
            }
        }
    }

    Arch::new().dispatch(Fill(numbers, value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_bench::Simulated;

    fn case(op: &str, size: i64, dtype: &str, threads: i64) -> Case {
        Case::new(vec![
            ("op".to_owned(), op.into()),
            ("size".to_owned(), size.into()),
            ("dtype".to_owned(), dtype.into()),
            ("threads".to_owned(), threads.into()),
        ])
    }

    fn ready<T>(case: &Case, act: impl FnOnce(&mut dyn Iteration) -> T) -> T {
        match MemoryCopy.prepare(case, &Simulated::new()).unwrap() {
            Prepared::Ready(mut iteration) => act(&mut *iteration),
            _ => panic!("memory is unlimited"),
        }
    }

    #[test]
    fn every_op_is_correct_for_every_dtype_and_any_threads() {
        for op in COPY_OPS {
            for dtype in ["f32", "f64", "bf16"] {
                for threads in [1, 2, 7] {
                    ready(&case(op, 1, dtype, threads), |iteration| iteration.check().unwrap());
                }
            }
        }
    }

    #[test]
    fn the_work_is_the_bytes_read_and_written() {
        let work = |op| ready(&case(op, 3, "bf16", 2), |iteration| iteration.work().unwrap());
        let expected = |bytes, traffic| Work { flops: 0, dtype: "bf16".to_owned(), bytes, traffic };
        assert_eq!(work("read"), expected(3 * MIB, Traffic::Read));
        assert_eq!(work("write"), expected(3 * MIB, Traffic::Write));
        assert_eq!(work("copy"), expected(6 * MIB, Traffic::Copy));
    }

    #[test]
    fn a_case_that_does_not_fit_is_reported_before_anything_is_allocated() {
        let needed =
            |op, size| match MemoryCopy.prepare(&case(op, size, "f32", 1), &Simulated::with_memory(MIB)).unwrap() {
                Prepared::DoesNotFit { needed, available } => (needed, available),
                _ => panic!("it does not fit"),
            };
        assert_eq!(needed("write", 2), (2 * MIB + SMALL_BYTES, MIB));
        assert_eq!(needed("copy", 1), (2 * MIB + SMALL_BYTES, MIB));
        assert_eq!(needed("read", i64::MAX), (u64::MAX, MIB));
    }

    #[test]
    fn copies_to_a_gpu_do_not_apply_on_the_cpu() {
        let device = Simulated::new();
        let prepared = MemoryCopy.prepare(&case("upload", 1, "f32", 1), &device).unwrap();
        assert!(
            matches!(prepared, Prepared::DoesNotApply(reason) if reason == "`upload` copies between the host and a GPU")
        );
    }

    #[test]
    fn a_wrong_result_is_refused() {
        let crew = || Crew::new(2).unwrap();
        let numbers = pattern::<f32>(&crew(), 1000).unwrap();
        let ops = [
            Op::Read { numbers: numbers.clone(), sums: vec![0.0; 2] },
            Op::Write { numbers: numbers.clone(), value: 0 },
            Op::Copy { from: numbers.clone(), to: numbers },
        ];
        let errors = ops.map(|op| {
            let mut moved = Moved { op, crew: crew() };
            moved.check().unwrap();
            match &mut moved.op {
                Op::Read { sums, .. } => sums[1] += 1.0,
                Op::Write { numbers, .. } => numbers[999] += 1.0,
                Op::Copy { to, .. } => to[0] += 1.0,
            }
            moved.op.verify().unwrap_err().to_string()
        });
        assert!(errors[0].starts_with("the sum is wrong: it is "), "{}", errors[0]);
        assert_eq!(errors[1], "the fill is wrong: number 999 was not written");
        assert_eq!(errors[2], "the copy is wrong: number 0 differs");
    }

    #[test]
    fn every_iteration_writes_another_value() {
        let crew = Crew::new(1).unwrap();
        let mut write = Moved::<bf16> { op: Op::Write { numbers: touched(&crew, 10).unwrap(), value: 0 }, crew };
        let ninth =
            |write: &Moved<bf16>| if let Op::Write { numbers, .. } = &write.op { Some(numbers[9]) } else { None };
        for _ in 0..250 {
            let before = ninth(&write).unwrap();
            write.check().unwrap();
            assert_ne!(ninth(&write), Some(before));
        }
    }
}

#[cfg(test)]
mod traffic_tests {
    use super::*;

    fn sums_are_exact<T: Summed>() {
        for length in [0, 1, 63, 64, 65, BLOCK - 1, BLOCK, 3 * BLOCK + 17] {
            let numbers: Vec<T> = (0..length).map(|at| T::from_f64((at % 8) as f64)).collect();
            let expected: usize = (0..length).map(|at| at % 8).sum();
            assert_eq!(sum(&numbers), expected as f64, "{} of {}", length, T::NAME);
        }
    }

    #[test]
    fn sums_of_small_whole_numbers_are_exact() {
        sums_are_exact::<f32>();
        sums_are_exact::<f64>();
        sums_are_exact::<bf16>();
    }

    #[test]
    fn a_fill_reaches_every_number() {
        for length in [0, 1, 31, 1000] {
            let mut numbers = vec![bf16::ZERO; length];
            fill(&mut numbers, bf16::ONE);
            assert_eq!(numbers, vec![bf16::ONE; length]);
        }
    }
}
