//! A roofline chart: measured rates below measured peaks.

use super::{axis, chart, lines_panel};
use crate::chart::{Chart, Line, Quantity, Reference, Scale};

/// Measured points and roofs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Roofline {
    /// Machine and method, and the source of the roofs.
    pub subtitle: String,
    /// The memory bandwidth.
    pub memory: Roof,
    /// One per dtype of the points, from `laptime peaks`.
    pub compute: Vec<Roof>,
    /// The measured points: FLOP per byte (`x`) and FLOP/s (`y`), one line per kind of work. Label a
    /// point by what differs from its neighbours, such as `4096`.
    pub reached: Vec<Line>,
}

/// A peak.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Roof {
    /// Its label, such as `memory, 4.1 TB/s` or `bf16, 790 TFLOP/s`.
    pub name: String,
    /// Bytes or FLOPs per second.
    pub rate: f64,
}

/// Draws points below roofs. Points are not joined; without a roof or a point there is no chart.
pub fn roofline(roofline: &Roofline) -> Option<Chart> {
    let loose = |line: &Line| Line { is_scatter: true, ..line.clone() };
    let intensity = axis("intensity (FLOP/byte)", Quantity::Number, Scale::Log);
    let speed = axis("reached", Quantity::FlopsPerSecond, Scale::Log);
    let mut panel = lines_panel("", intensity, speed, roofline.reached.iter().map(loose).collect())?;
    panel.references = roofs(roofline);
    let chart = chart("roofline", "Reached, under the measured roof", &roofline.subtitle, vec![panel])?;
    (!chart.panels[0].references.is_empty()).then_some(chart)
}

fn roofs(roofline: &Roofline) -> Vec<Reference> {
    let is_rate = |rate: f64| rate.is_finite() && rate > 0.0;
    let mut compute: Vec<&Roof> = roofline.compute.iter().filter(|roof| is_rate(roof.rate)).collect();
    compute.sort_by(|one, other| other.rate.total_cmp(&one.rate));
    let compute = compute.into_iter().filter(|_| is_rate(roofline.memory.rate)).enumerate();
    // All roofs share the rising part, so it has one label.
    let slope_label = |at: usize| if at == 0 { roofline.memory.name.clone() } else { String::new() };
    let roof = |(at, roof): (usize, &Roof)| Reference::Roof {
        slope: roofline.memory.rate,
        most: roof.rate,
        slope_label: slope_label(at),
        label: roof.name.clone(),
    };
    compute.map(roof).collect()
}
