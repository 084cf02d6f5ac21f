//! Benchmarks Python functions with the measuring loop and statistics of `laptime bench` and `laptime ab`.

use std::time::Instant;

use laptime::{Benchmark, Timings, library::Failure};
use laptime_report::{Cell, Column, Table, tables};
use laptime_stats::{Rng, Summary};
use pyo3::{prelude::*, types::PyTuple};

use crate::{raise, table::NativeTable};

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(bench_function, module)?)?;
    module.add_function(wrap_pyfunction!(ab, module)?)
}

/// A function, its arguments, and a function that waits for the device.
struct Step<'py> {
    function: Bound<'py, PyAny>,
    arguments: Bound<'py, PyTuple>,
    wait: Option<Bound<'py, PyAny>>,
}

impl Step<'_> {
    fn run(&self) -> PyResult<()> {
        self.function.call1(&self.arguments)?;
        self.wait()?;
        self.function.py().check_signals()
    }

    fn wait(&self) -> PyResult<()> {
        self.wait.as_ref().map_or(Ok(()), |wait| wait.call0().map(drop))
    }
}

/// Times a function. Returns a table of one row, the iterations, and the warm-up iterations.
#[pyfunction]
#[pyo3(name = "bench", signature = (name, function, arguments, wait, warmup, iterations, within, max_time))]
#[allow(clippy::too_many_arguments, reason = "the options of the Python function")]
fn bench_function<'py>(
    py: Python<'py>,
    name: &str,
    function: Bound<'py, PyAny>,
    arguments: Bound<'py, PyTuple>,
    wait: Option<Bound<'py, PyAny>>,
    warmup: Option<usize>,
    iterations: Option<usize>,
    within: Option<f64>,
    max_time: Option<f64>,
) -> PyResult<(NativeTable, Vec<f64>, Vec<f64>)> {
    let step = Step { function, arguments, wait };
    let mut benchmark = Benchmark::new();
    benchmark = warmup.map_or(benchmark, |count| benchmark.warmup(count));
    benchmark = iterations.map_or(benchmark, |count| benchmark.iterations(count));
    benchmark = within.map_or(benchmark, |share| benchmark.within(share));
    benchmark = max_time.map_or(benchmark, |seconds| benchmark.max_time(seconds));
    let timings = timed(py, benchmark, &step)?;
    Ok((table(name, &timings.summary).into(), timings.iterations, timings.warmup))
}

/// Times a function. Exceptions of the function are raised unchanged.
fn timed(py: Python<'_>, benchmark: Benchmark, step: &Step<'_>) -> PyResult<Timings> {
    step.wait()?;
    let mut raised = None;
    let timings = benchmark.run(|| {
        step.run().map_err(|error| {
            raised = Some(error);
            anyhow::anyhow!("the function raised an exception")
        })
    });
    match raised {
        Some(error) => Err(error),
        None => timings.map_err(|error| raise(py, "BenchError", &Failure::from(error))),
    }
}

fn table(name: &str, summary: &Summary) -> Table {
    let time = |key: &'static str, label: &'static str| Column::new(key, label).in_unit_of("median_ms");
    let columns = [
        Column::new("function", "function"),
        Column::new("n", "iterations"),
        Column::new("median_ms", "median"),
        time("median_lo_ms", "").machine_only(),
        time("median_hi_ms", "").machine_only(),
        time("median_ci", "95 % CI").human_only(),
        time("mean_ms", "mean"),
        time("std_ms", "std"),
        time("min_ms", "min"),
        time("max_ms", "max"),
    ];
    let mut table = Table::new("timings", columns);
    let nanos = |ms: f64| Cell::Nanos((ms * 1e6).round() as u64);
    let (low, high) =
        summary.median_interval.map_or((Cell::Empty, Cell::Empty), |ends| (nanos(ends.low), nanos(ends.high)));
    table.push([
        Cell::name(name),
        Cell::Count(summary.n as u64),
        nanos(summary.median),
        low.clone(),
        high.clone(),
        Cell::range(low, high),
        nanos(summary.mean),
        summary.std.map(nanos).into(),
        nanos(summary.min),
        nanos(summary.max),
    ]);
    table
}

/// The minimum time of a block of iterations, in milliseconds.
const BLOCK_MS: f64 = 20.0;

/// Compares two functions in this process, in blocks of iterations in random order.
#[pyfunction]
#[pyo3(signature = (names, functions, wait, blocks, warmup, threshold, seed))]
#[allow(clippy::too_many_arguments, reason = "the options of the Python function")]
fn ab<'py>(
    py: Python<'py>,
    names: [String; 2],
    functions: [Bound<'py, PyAny>; 2],
    wait: Option<Bound<'py, PyAny>>,
    blocks: usize,
    warmup: Option<usize>,
    threshold: Option<f64>,
    seed: u64,
) -> PyResult<NativeTable> {
    let steps = functions.map(|function| Step { function, arguments: PyTuple::empty(py), wait: wait.clone() });
    let benchmark = warmup.map_or(Benchmark::new(), |count| Benchmark::new().warmup(count)).iterations(3);
    let mut counts = [0, 0];
    for (count, step) in counts.iter_mut().zip(&steps) {
        let median = timed(py, benchmark, step)?.summary.median;
        *count = ((BLOCK_MS / median.max(1e-6)).ceil() as usize).clamp(3, 1000);
    }
    let mut measured = [Vec::new(), Vec::new()];
    let mut order = [0, 1];
    let mut random = Rng::new(seed);
    for _ in 0..blocks {
        random.shuffle(&mut order);
        for side in order {
            let block: PyResult<Vec<f64>> = (0..counts[side]).map(|_| nanos(&steps[side])).collect();
            measured[side].push(block?);
        }
    }
    let variants = [(names[0].as_str(), measured[0].as_slice()), (names[1].as_str(), measured[1].as_slice())];
    let answer = laptime_analyze::ab(variants, threshold)
        .map_err(|error| raise(py, "BenchError", &Failure::from(anyhow::Error::new(error))))?;
    Ok(in_blocks(tables::ab(&answer)).into())
}

fn nanos(step: &Step<'_>) -> PyResult<f64> {
    let start = Instant::now();
    step.run()?;
    Ok(start.elapsed().as_nanos() as f64)
}

/// Relabels a table about processes as one about blocks.
fn in_blocks(mut table: Table) -> Table {
    let in_blocks = |text: &str| text.replace("process", "block").replace("blockes", "blocks");
    for column in &mut table.columns {
        column.key = in_blocks(&column.key).into();
        column.label = in_blocks(&column.label).into();
    }
    for note in &mut table.notes {
        *note = in_blocks(note);
    }
    table
}
