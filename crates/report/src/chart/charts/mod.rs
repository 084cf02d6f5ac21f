//! The charts of a report, one function each from plain figures to a [`Chart`], or to none if there is
//! nothing to draw.
//!
//! Units: times are nanoseconds, memory is bytes, sequence lengths are tokens, shares are from 0 to 1. A case
//! without a result is [`Point::missing`], one that failed or did not fit is [`Point::failed`] with
//! a word or two (`out of memory`, `failed`, `timed out`), and a skipped one is missing. `subtitle` is a line on machine
//! and method, such as `NVIDIA H200, bf16, batch 1, 16 heads of 64; medians of 30 iterations`. A name is what tells a line
//! from the others (`dense`, or `dense, batch 4`). Nothing is computed from the figures: ratios, exponents and
//! crossings come from the analyses, with their intervals.
//!
//! [`Point::failed`]: super::Point::failed
//! [`Point::missing`]: super::Point::missing

mod attention;
mod crossover;
mod model;
mod roofline;
mod warmup;

pub use attention::{Attention, AttentionKind, attention_efficiency, attention_latency, attention_memory};
pub use crossover::{Crossovers, crossover};
pub use model::{Models, model_performance};
pub use roofline::{Roof, Roofline, roofline};
pub use warmup::{WarmupLaps, WarmupRow, warmup_laps};

use super::{Axis, Chart, Content, Line, Panel, Quantity, Reading, Scale, panel::has_values};

/// The label of all intervals.
const INTERVAL: &str = "95 % interval";

const fn axis(label: &'static str, quantity: Quantity, scale: Scale) -> Axis {
    Axis { label, quantity, scale }
}

const LENGTHS: Axis = axis("sequence length (tokens)", Quantity::Tokens, Scale::Log);

/// A panel with lines only; none if no value can be drawn.
fn lines_panel(title: &str, x: Axis, y: Axis, lines: Vec<Line>) -> Option<Panel> {
    let is_something = |line: &Line| line.points.iter().any(|point| point.reading != Reading::Missing);
    let lines = lines.into_iter().filter(is_something).collect();
    let (references, highlights) = (Vec::new(), Vec::new());
    let panel = Panel { title: title.to_owned(), x, y, content: Content::Lines(lines), references, highlights };
    Some(panel).filter(has_values)
}

fn chart(name: &'static str, title: &str, subtitle: &str, panels: Vec<Panel>) -> Option<Chart> {
    let (title, subtitle) = (title.to_owned(), subtitle.to_owned());
    let chart = Chart { name, title, subtitle, panels, interval: INTERVAL, known_subjects: Vec::new() };
    (!chart.panels.is_empty()).then_some(chart)
}
