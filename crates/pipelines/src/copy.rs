//! The workload `copy`: memory read, written and copied.

use std::{hint::black_box, slice::ChunksMut};

use anyhow::{bail, ensure};
use half::bf16;
use laptime_bench::{AxisSpec, Case, Cost, Device, Iteration, Prepared, Traffic, ValueKind, Work, Workload};
use laptime_probe::stage;

use crate::{
    caches::beyond_caches_mib,
    crew::{Crew, threads_axis},
    element::untouched,
    traffic::{Summed, fill, sum},
};

const MIB: u64 = 1 << 20;

/// The operations of the workload, by their names on the axis `op`.
pub const COPY_OPS: &[&str] = &["read", "write", "copy"];

/// All of that, and copies between the host and a GPU.
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
        let axis = |name, about, kind, default, cost| AxisSpec { name, about, kind, default, cost };
        let (ops, dtypes) = (ValueKind::OneOf(ALL_OPS), ValueKind::OneOf(&["f32", "f64", "bf16"]));
        let size = "MiB in one buffer; by default four times the largest caches of the machine";
        vec![
            axis("op", OP, ops, all_ops(), Cost::Middle),
            axis(
                "size",
                size,
                ValueKind::Int { least: 1, most: i64::MAX },
                vec![i64::from(beyond_caches_mib()).into()],
                Cost::Middle,
            ),
            axis(
                "dtype",
                "dtype of the values that read sums and write fills",
                dtypes,
                vec!["f32".into()],
                Cost::Middle,
            ),
            threads_axis(),
        ]
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = crate::gpu::gpu(device) {
            let bytes = (case.size("size")? as u64).saturating_mul(MIB);
            return crate::gpu::prepare_copy(case.text("op")?, bytes, case.text("dtype")?, gpu);
        }
        let op = case.text("op")?;
        if !COPY_OPS.contains(&op) {
            return Ok(Prepared::DoesNotApply(format!("`{op}` copies between the host and a GPU")));
        }
        match case.text("dtype")? {
            "f32" => prepare::<f32>(case, device),
            "f64" => prepare::<f64>(case, device),
            "bf16" => prepare::<bf16>(case, device),
            other => bail!("`copy` has no dtype `{other}`"),
        }
    }
}

const OP: &str = "read sums a buffer, write fills one, copy copies one to another; upload and download go between a GPU and \
                  pinned memory, or pageable";

fn all_ops() -> Vec<laptime_bench::AxisValue> {
    COPY_OPS.iter().map(|&op| op.into()).collect()
}

fn prepare<'a, T: Summed>(case: &Case, device: &dyn Device) -> anyhow::Result<Prepared<'a>> {
    let bytes = (case.size("size")? as u64).saturating_mul(MIB);
    let (op, threads) = (case.text("op")?, case.size("threads")?);
    let buffers = if op == "copy" { 2 } else { 1 };
    Prepared::if_it_fits(bytes.saturating_mul(buffers), device, || {
        let (crew, count) = (Crew::new(threads)?, usize::try_from(bytes)? / size_of::<T>());
        Ok(match op {
            "read" => Box::new(Read::<T> { numbers: pattern(&crew, count)?, sums: vec![0.0; threads], crew }),
            "write" => Box::new(Write::<T> { numbers: touched(&crew, count)?, value: 0, crew }),
            "copy" => Box::new(Copied::<T> { from: pattern(&crew, count)?, to: touched(&crew, count)?, crew }),
            other => bail!("`copy` has no op `{other}`"),
        })
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

/// A number from 0 to 7: the highest bits of a product with a large odd number.
pub(crate) fn pattern_at(at: usize) -> u32 {
    (at as u32).wrapping_mul(0x9E37_79B1) >> 29
}

fn work_of<T: Summed>(numbers: &[T], traffic: Traffic, times: u64) -> Option<Work> {
    let bytes = times * size_of_val(numbers) as u64;
    Some(Work { flops: 0, dtype: T::NAME.to_owned(), bytes, traffic })
}

/// Sums a buffer.
struct Read<T> {
    numbers: Vec<T>,
    /// A sum for each thread.
    sums: Vec<f64>,
    crew: Crew,
}

impl<T: Summed> Read<T> {
    fn verify(&self) -> anyhow::Result<()> {
        let expected: u64 = (0..self.numbers.len()).map(|at| u64::from(pattern_at(at))).sum();
        let sum: f64 = self.sums.iter().sum();
        ensure!(sum == expected as f64, "the sum is wrong: it is {sum}, not {expected}");
        Ok(())
    }
}

impl<T: Summed> Iteration for Read<T> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        self.verify()
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("read", bytes = size_of_val(&self.numbers[..]));
        let parts = self.numbers.chunks(self.crew.share(self.numbers.len()));
        self.crew.each(parts.zip(&mut self.sums), |(part, total)| *total = sum(part));
        black_box(&mut self.sums);
        Ok(())
    }

    fn work(&self) -> Option<Work> {
        work_of(&self.numbers, Traffic::Read, 1)
    }
}

/// Fills a buffer.
struct Write<T> {
    numbers: Vec<T>,
    /// The value that the last iteration wrote; it differs each time.
    value: u8,
    crew: Crew,
}

impl<T: Summed> Write<T> {
    fn verify(&self) -> anyhow::Result<()> {
        let wrong = self.numbers.iter().position(|&number| number != self.number());
        ensure!(wrong.is_none(), "the fill is wrong: number {} was not written", wrong.unwrap_or(0));
        Ok(())
    }

    fn number(&self) -> T {
        T::from_f64(f64::from(self.value))
    }
}

impl<T: Summed> Iteration for Write<T> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        self.verify()
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("write", bytes = size_of_val(&self.numbers[..]));
        self.value = self.value % 100 + 1;
        let number = self.number();
        self.crew.each(parts(&self.crew, &mut self.numbers), |part| fill(part, number));
        black_box(&mut self.numbers);
        Ok(())
    }

    fn work(&self) -> Option<Work> {
        work_of(&self.numbers, Traffic::Write, 1)
    }
}

/// Copies a buffer to another.
struct Copied<T> {
    from: Vec<T>,
    to: Vec<T>,
    crew: Crew,
}

impl<T: Summed> Copied<T> {
    fn verify(&self) -> anyhow::Result<()> {
        let wrong = self.from.iter().zip(&self.to).position(|(from, to)| from != to);
        ensure!(wrong.is_none(), "the copy is wrong: number {} differs", wrong.unwrap_or(0));
        Ok(())
    }
}

impl<T: Summed> Iteration for Copied<T> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        self.verify()
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("copy", bytes = size_of_val(&self.from[..]));
        let from = self.from.chunks(self.crew.share(self.from.len()));
        self.crew.each(from.zip(parts(&self.crew, &mut self.to)), |(from, to)| to.copy_from_slice(from));
        black_box(&mut self.to);
        Ok(())
    }

    fn work(&self) -> Option<Work> {
        work_of(&self.from, Traffic::Copy, 2)
    }
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
            _ => panic!("there is memory without end"),
        }
    }

    #[test]
    fn every_op_does_what_it_says_in_every_type_with_any_threads() {
        for op in COPY_OPS {
            for dtype in ["f32", "f64", "bf16"] {
                for threads in [1, 2, 7] {
                    ready(&case(op, 1, dtype, threads), |iteration| iteration.check().unwrap());
                }
            }
        }
    }

    #[test]
    fn the_work_is_the_bytes_that_the_program_reads_and_writes() {
        let work = |op| ready(&case(op, 3, "bf16", 2), |iteration| iteration.work().unwrap());
        let expected = |bytes, traffic| Work { flops: 0, dtype: "bf16".to_owned(), bytes, traffic };
        assert_eq!(work("read"), expected(3 * MIB, Traffic::Read));
        assert_eq!(work("write"), expected(3 * MIB, Traffic::Write));
        assert_eq!(work("copy"), expected(6 * MIB, Traffic::Copy));
    }

    #[test]
    fn what_does_not_fit_is_told_before_anything_is_allocated() {
        let needed =
            |op, size| match MemoryCopy.prepare(&case(op, size, "f32", 1), &Simulated::with_memory(MIB)).unwrap() {
                Prepared::DoesNotFit { needed, available } => (needed, available),
                _ => panic!("it does not fit"),
            };
        assert_eq!(needed("write", 2), (2 * MIB, MIB));
        assert_eq!(needed("copy", 1), (2 * MIB, MIB));
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
        let mut read = Read { numbers: numbers.clone(), sums: vec![0.0; 2], crew: crew() };
        read.check().unwrap();
        read.sums[1] += 1.0;
        let mut write = Write { numbers: numbers.clone(), value: 0, crew: crew() };
        write.check().unwrap();
        write.numbers[999] += 1.0;
        let mut copied = Copied { from: numbers.clone(), to: numbers, crew: crew() };
        copied.check().unwrap();
        copied.to[0] += 1.0;
        let errors = [read.verify(), write.verify(), copied.verify()].map(|result| result.unwrap_err().to_string());
        assert!(errors[0].starts_with("the sum is wrong: it is "), "{}", errors[0]);
        assert_eq!(errors[1], "the fill is wrong: number 999 was not written");
        assert_eq!(errors[2], "the copy is wrong: number 0 differs");
    }

    #[test]
    fn every_take_writes_another_value() {
        let crew = Crew::new(1).unwrap();
        let mut write = Write::<bf16> { numbers: touched(&crew, 10).unwrap(), value: 0, crew };
        for _ in 0..250 {
            let before = write.numbers[9];
            write.check().unwrap();
            assert_ne!(write.numbers[9], before);
        }
    }
}
