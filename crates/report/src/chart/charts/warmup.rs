//! The first laps or iterations of a process, one line per number of warm-up iterations.

use super::{axis, chart, lines_panel};
use crate::chart::{Chart, Line, Point, Quantity, Reference, Scale};

/// With more steps, the axis is logarithmic, so that the first ones stay separate.
const MOST_LINEAR: usize = 40;

/// The time of each step of some processes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WarmupLaps {
    /// Machine and method.
    pub subtitle: String,
    /// One line per number of warm-up iterations, or per process.
    pub rows: Vec<WarmupRow>,
    /// The steady level in nanoseconds, if there is one.
    pub steady_ns: Option<f64>,
}

/// The steps of one process.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WarmupRow {
    /// Its name, such as `5 warm-up iterations`.
    pub name: String,
    /// All steps in order in nanoseconds, counted or not.
    pub laps_ns: Vec<u64>,
    /// How many of the first are not counted; they are drawn hollow.
    pub not_counted: usize,
}

/// Draws the time of each step over its number, counted from 1.
pub fn warmup_laps(warmup: &WarmupLaps) -> Option<Chart> {
    let longest = warmup.rows.iter().map(|row| row.laps_ns.len()).max().unwrap_or(0);
    let scale = if longest > MOST_LINEAR { Scale::Log } else { Scale::Linear };
    let steps = axis("step", Quantity::Count, scale);
    let time = axis("time of a step", Quantity::Nanos, Scale::Log);
    let mut panel = lines_panel("", steps, time, warmup.rows.iter().map(line).collect())?;
    panel.references =
        warmup.steady_ns.map(|y| Reference::Level { y, label: "steady".to_owned() }).into_iter().collect();
    let has_hollow = warmup.rows.iter().any(|row| row.not_counted > 0);
    let hollow = if has_hollow { " (hollow: not counted)" } else { "" };
    chart("warmup_laps", &format!("Warm-up: the time of each step{hollow}"), &warmup.subtitle, vec![panel])
}

fn line(row: &WarmupRow) -> Line {
    let points = row.laps_ns.iter().enumerate().map(|(at, &nanos)| Point {
        is_hollow: at < row.not_counted,
        // Zeros, which a coarse clock can return, have no place on a logarithmic axis.
        ..Point::measured((at + 1) as f64, nanos.max(1) as f64)
    });
    Line::new(row.name.clone(), points.collect())
}
