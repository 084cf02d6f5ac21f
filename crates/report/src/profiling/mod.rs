//! The parts of a report of several runs: tables, charts and a document, one function each.
//!
//! What was not measured is left out: no row, no sentence, no chart.

mod attention_summary;
mod charts;
mod document;
mod labels;
mod model_summary;

pub use self::{
    attention_summary::attention_summary,
    charts::charts,
    document::{Fact, ReportFiles, document, facts},
    model_summary::model_summary,
};

use crate::Cell;

/// Bytes in MiB, which Nano XYZ calls megabytes.
fn megabytes(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

/// The mean of the known values; empty if there are none.
fn mean(values: impl Iterator<Item = f64>) -> Cell {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    if count == 0 { Cell::Empty } else { Cell::Number(sum / f64::from(count)) }
}

/// The maximum of the known values.
fn largest(values: impl Iterator<Item = f64>) -> Cell {
    Cell::number(values.reduce(f64::max))
}

/// The minimum of the known values.
fn smallest(values: impl Iterator<Item = f64>) -> Cell {
    Cell::number(values.reduce(f64::min))
}
