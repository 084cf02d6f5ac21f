//! Attention over sequence length: time, memory, and what sparseness saves.

use super::{LENGTHS, axis, chart, lines_panel};
use crate::chart::{
    Axis, BarSeries, Bars, Chart, Content, Line, Panel, Point, Quantity, Reading, Reference, Scale, panel::has_values,
};

/// The cost of attention kinds over sequence length.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Attention {
    /// Machine and method.
    pub subtitle: String,
    /// One per line: an attention kind, at a batch size if that varies.
    pub kinds: Vec<AttentionKind>,
    /// Dense / another kind, over sequence length, one per kind and metric: the name says which, such as
    /// `time, sparse`.
    pub ratios: Vec<Line>,
}

/// The cost of one attention kind. The three lines have the same name, and an exponent as their note where it is known;
/// one without points is left out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AttentionKind {
    /// Nanoseconds per iteration, over sequence length.
    pub time_ns: Line,
    /// The peak memory in bytes, over sequence length.
    pub peak_bytes: Line,
    /// The share of causal entries that are not computed, over sequence length. Dense has none.
    pub sparsity: Line,
}

/// Slopes are drawn next to the lines, by this factor above and below.
const SLOPE_DISTANCE: f64 = 1.6;

/// Draws the time of each kind over sequence length, with slopes.
pub fn attention_latency(attention: &Attention) -> Option<Chart> {
    let lines = attention.kinds.iter().map(|kind| kind.time_ns.clone());
    let y = axis("time of an iteration", Quantity::Nanos, Scale::Log);
    growth("attention_latency", "Attention: time over sequence length", attention, y, lines.collect())
}

/// Draws the memory of each kind over sequence length, with slopes.
pub fn attention_memory(attention: &Attention) -> Option<Chart> {
    let lines = attention.kinds.iter().map(|kind| kind.peak_bytes.clone());
    let y = axis("peak memory", Quantity::Bytes, Scale::Log);
    growth("attention_memory", "Attention: memory over sequence length", attention, y, lines.collect())
}

/// Draws what sparsity leaves out and saves, as bars per sequence length.
pub fn attention_efficiency(attention: &Attention) -> Option<Chart> {
    let sparsity: Vec<&Line> = attention.kinds.iter().map(|kind| &kind.sparsity).collect();
    let ratios: Vec<&Line> = attention.ratios.iter().collect();
    let left_out = axis("entries not computed", Quantity::Share, Scale::Linear);
    let saved = axis("dense / this kind", Quantity::Ratio, Scale::Linear);
    let left_out = bars_panel("Sparsity", left_out, &sparsity, Vec::new());
    let equal = Reference::Level { y: 1.0, label: "equal".to_owned() };
    let saved = bars_panel("What it saves", saved, &ratios, vec![equal]);
    let panels = [left_out, saved].into_iter().flatten().collect();
    let chart = chart("attention_efficiency", "Attention: what sparseness saves", &attention.subtitle, panels)?;
    Some(Chart { known_subjects: names(attention), ..chart })
}

fn growth(name: &'static str, title: &str, attention: &Attention, y: Axis, lines: Vec<Line>) -> Option<Chart> {
    let mut panel = lines_panel("", LENGTHS, y, lines)?;
    if let Content::Lines(lines) = &panel.content {
        panel.references = slopes(lines);
    }
    Some(Chart { known_subjects: names(attention), ..chart(name, title, &attention.subtitle, vec![panel])? })
}

fn names(attention: &Attention) -> Vec<String> {
    let lines = |kind: &AttentionKind| [&kind.time_ns, &kind.peak_bytes, &kind.sparsity].map(|line| line.name.clone());
    attention.kinds.iter().flat_map(lines).filter(|name| !name.is_empty()).collect()
}

/// Pos the longest length, N² above the highest cost, and N below the lowest.
fn slopes(lines: &[Line]) -> Vec<Reference> {
    // A single length has no growth.
    let ends: Vec<[f64; 2]> = lines.iter().filter(|line| line.points.len() > 1).filter_map(last_figure).collect();
    let greatest = ends.iter().map(|end| end[0]).fold(0.0, f64::max);
    let ends: Vec<[f64; 2]> = ends.into_iter().filter(|end| end[0] == greatest).collect();
    let most = ends.iter().copied().max_by(|one, other| one[1].total_cmp(&other[1]));
    let least = ends.iter().copied().min_by(|one, other| one[1].total_cmp(&other[1]));
    let slope = |[x, y]: [f64; 2], exponent, label: &str| Reference::Slope {
        through: [x, y],
        exponent,
        label: label.to_owned(),
    };
    let above = most.map(|[x, y]| slope([x, y * SLOPE_DISTANCE], 2.0, "∝ N²"));
    let below = least.map(|[x, y]| slope([x, y / SLOPE_DISTANCE], 1.0, "∝ N"));
    [above, below].into_iter().flatten().collect()
}

fn last_figure(line: &Line) -> Option<[f64; 2]> {
    let figures = line.points.iter().filter_map(|point| match point.reading {
        Reading::Measured { value, .. } if value.is_finite() && value > 0.0 => Some([point.x, value]),
        _ => None,
    });
    figures.max_by(|one, other| one[0].total_cmp(&other[0]))
}

/// Lines over length as bars: one group per length, in order.
fn bars_panel(title: &str, y: Axis, lines: &[&Line], references: Vec<Reference>) -> Option<Panel> {
    let mut lengths: Vec<f64> = lines.iter().flat_map(|line| line.points.iter().map(|point| point.x)).collect();
    lengths.sort_by(f64::total_cmp);
    lengths.dedup();
    let at = |points: &[Point], length: f64| {
        let found = points.iter().find(|point| point.x == length);
        found.map_or(Reading::Missing, |point| point.reading.clone())
    };
    let series = lines.iter().filter(|line| !line.points.is_empty()).map(|line| BarSeries {
        name: line.name.clone(),
        subject: line.subject.clone(),
        readings: lengths.iter().map(|&length| at(&line.points, length)).collect(),
    });
    let series: Vec<BarSeries> = series.collect();
    let groups = lengths.iter().map(|&length| Quantity::Tokens.text(length)).collect();
    let content = Content::Bars(Bars { groups, series });
    let panel = Panel { title: title.to_owned(), x: LENGTHS, y, content, references, highlights: Vec::new() };
    Some(panel).filter(has_values)
}
