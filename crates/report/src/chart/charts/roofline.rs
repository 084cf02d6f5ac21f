//! What was reached, under what the machine was measured to allow.

use super::{axis, chart, lines_panel};
use crate::chart::{Chart, Line, Quantity, Reference, Scale};

/// Measured points and roofs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Roofline {
    /// Machine and method in a line, and where the roofs come from.
    pub subtitle: String,
    /// The memory that most bytes come from.
    pub memory: MemoryRoof,
    /// One for each type of number that something below was computed in, from `laptime peaks`.
    pub compute: Vec<ComputeRoof>,
    /// What was reached: operations a byte (`x`) and operations a second (`y`), one line for each kind of work. Label a
    /// point with what tells it from its neighbours, such as `4096`.
    pub reached: Vec<Line>,
}

/// How fast bytes come.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MemoryRoof {
    /// What it is, such as `memory, 4.1 TB/s`.
    pub name: String,
    /// Bytes a second.
    pub bytes_s: f64,
}

/// How fast a type of number is computed with.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ComputeRoof {
    /// What it is, such as `bf16, 790 TFLOP/s`.
    pub name: String,
    /// Operations a second.
    pub flops_s: f64,
}

/// Draws points under roofs. Points are not joined; without a roof or without a point there is no chart.
pub fn roofline(roofline: &Roofline) -> Option<Chart> {
    let loose = |line: &Line| Line { is_loose: true, ..line.clone() };
    let intensity = axis("intensity (FLOP/byte)", Quantity::Number, Scale::Log);
    let speed = axis("reached", Quantity::FlopsPerSecond, Scale::Log);
    let mut panel = lines_panel("", intensity, speed, roofline.reached.iter().map(loose).collect())?;
    panel.references = roofs(roofline);
    let chart = chart("roofline", "Reached, under the measured roof", &roofline.subtitle, vec![panel])?;
    (!chart.panels[0].references.is_empty()).then_some(chart)
}

fn roofs(roofline: &Roofline) -> Vec<Reference> {
    let is_rate = |rate: f64| rate.is_finite() && rate > 0.0;
    let mut compute: Vec<&ComputeRoof> = roofline.compute.iter().filter(|roof| is_rate(roof.flops_s)).collect();
    compute.sort_by(|one, other| other.flops_s.total_cmp(&one.flops_s));
    let compute = compute.into_iter().filter(|_| is_rate(roofline.memory.bytes_s)).enumerate();
    // The rising part is one line for all roofs, so it is named once.
    let slope_label = |at: usize| if at == 0 { roofline.memory.name.clone() } else { String::new() };
    let roof = |(at, roof): (usize, &ComputeRoof)| Reference::Roof {
        slope: roofline.memory.bytes_s,
        most: roof.flops_s,
        slope_label: slope_label(at),
        label: roof.name.clone(),
    };
    compute.map(roof).collect()
}
