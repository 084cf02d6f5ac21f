//! Multiplies matrices for `scripts/matmul-against-numpy`: each line of input is a dtype, a size,
//! a number of threads and a number of iterations; each line of output the seconds of the iterations.
//!
//! The type `loop` is three plain loops over f32, on one thread.

use std::{
    hint::black_box,
    io::{Write, stdin, stdout},
    time::Instant,
};

use anyhow::{Context, bail};
use laptime_bench::{Case, Prepared, Workload};
use laptime_pipelines::{CpuDevice, Matmul};

fn main() -> anyhow::Result<()> {
    for line in stdin().lines() {
        let line = line?;
        let [dtype, size, threads, iterations] = line.split(' ').collect::<Vec<_>>()[..] else {
            bail!("four words a line")
        };
        let (size, iterations) = (size.parse::<i64>()?, iterations.parse()?);
        let seconds = match dtype {
            "loop" => plain_loops(usize::try_from(size)?, iterations),
            _ => workload(dtype, size, threads.parse()?, iterations).with_context(|| line.clone())?,
        };
        let words: Vec<String> = seconds.iter().map(ToString::to_string).collect();
        writeln!(stdout(), "{}", words.join(" "))?;
    }
    Ok(())
}

fn workload(dtype: &str, size: i64, threads: i64, iterations: usize) -> anyhow::Result<Vec<f64>> {
    let values = [("size", size.into()), ("dtype", dtype.into()), ("threads", threads.into())];
    let case = Case::new(values.map(|(axis, value)| (axis.to_owned(), value)).to_vec());
    let device = CpuDevice::new();
    let Prepared::Ready(mut iteration) = Matmul.prepare(&case, &device)? else { bail!("it does not fit") };
    iteration.check()?;
    (0..iterations)
        .map(|_| {
            let start = Instant::now();
            iteration.run()?;
            Ok(start.elapsed().as_secs_f64())
        })
        .collect()
}

fn plain_loops(size: usize, iterations: usize) -> Vec<f64> {
    let (a, b) = (vec![0.5_f32; size * size], vec![0.25_f32; size * size]);
    let mut c = vec![0_f32; size * size];
    let mut iteration = || {
        let start = Instant::now();
        for (a, c) in a.chunks(size).zip(c.chunks_mut(size)) {
            c.fill(0.0);
            for (a, b) in a.iter().zip(b.chunks(size)) {
                c.iter_mut().zip(b).for_each(|(c, b)| *c += a * b);
            }
        }
        black_box(&mut c);
        start.elapsed().as_secs_f64()
    };
    (0..iterations).map(|_| iteration()).collect()
}
