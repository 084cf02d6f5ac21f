//! Attention over length, and crossovers.

use std::collections::HashMap;

use laptime_analyze::{
    Crossing, Crossover, CrossoverAnswer, Ends, Exponent, LengthSeries, Profiling, ProfilingPart, Ratio,
};

use super::{memory_line, subtitle, time_line};
use crate::chart::{Highlight, Line, Point, charts as drawn};
use crate::profiling::labels::Labels;

/// The reference kind of the ratios.
const BASE: &str = "dense";

/// Fills the charts of attention.
pub(super) fn attention(answer: &Profiling) -> drawn::Attention {
    let part = &answer.attention;
    let labels = Labels::of(part.cases.iter().map(|case| &case.id), &["attention"]);
    let sparsity = sparsity(part);
    let kind = |series: &LengthSeries| {
        let name = labels.label(&series.id);
        let grown = part.scaling.series.iter().find(|grown| grown.id == series.id);
        // An exponent of time without an interval is left out.
        let of_time = grown.and_then(|grown| grown.time.overall).filter(|time| time.interval.is_some());
        let of_memory = grown.and_then(|grown| grown.memory.overall);
        drawn::AttentionKind {
            time_ns: with_exponent(time_line(&name, series), of_time),
            peak_bytes: with_exponent(memory_line(&name, series), of_memory),
            sparsity: sparsity_line(&name, series, &sparsity),
        }
    };
    drawn::Attention {
        subtitle: subtitle(answer, part, "medians"),
        kinds: part.series.iter().map(kind).collect(),
        ratios: ratios(part),
    }
}

/// Writes the exponent in the legend, after the name.
fn with_exponent(line: Line, exponent: Option<Exponent>) -> Line {
    let Some(Exponent { value, interval, .. }) = exponent else { return line };
    let interval = interval.map_or_else(String::new, |ends| format!(" [{:.2}, {:.2}]", ends.low, ends.high));
    Line { note: format!("exponent {value:.2}{interval}"), ..line }
}

/// The sparsity of each case, by label.
fn sparsity(part: &ProfilingPart) -> HashMap<String, f64> {
    let known = part.measured().filter_map(|(case, measured)| {
        let share = measured.number("sparsity").filter(|share| *share > 0.0)?;
        let length = case.id.case.get("seq_len")?;
        let rest: Vec<String> =
            case.id.case.values().filter(|(axis, _)| *axis != "seq_len" && *axis != "test").map(word).collect();
        Some((format!("{} {length} {}", case.id.device, rest.join(" ")), share))
    });
    known.collect()
}

fn word((axis, value): (&str, &laptime_trace::run::AxisValue)) -> String {
    format!("{axis}={value}")
}

fn sparsity_line(name: &str, series: &LengthSeries, known: &HashMap<String, f64>) -> Line {
    let of_case = |length: u64| format!("{} {length} {}", series.id.device, series.id.case);
    let point = |length: u64| Some(Point::measured(length as f64, *known.get(&of_case(length))?));
    Line::new(name, series.points.iter().filter_map(|at| point(at.length)).collect())
}

/// Dense / another kind, in time and in memory.
fn ratios(part: &ProfilingPart) -> Vec<Line> {
    let of_pair = |(name, pair): (String, &Crossover)| {
        let time = ratio_line(&format!("time, {name}"), &pair.faster).of(&name);
        [time, ratio_line(&format!("memory, {name}"), &pair.smaller).of(&name)]
    };
    named_pairs(part).into_iter().flat_map(of_pair).filter(|line| !line.points.is_empty()).collect()
}

/// The pairs that are drawn, each with its kind and label.
fn named_pairs(part: &ProfilingPart) -> Vec<(String, &Crossover)> {
    let pairs = || part.crossovers.iter().filter(|pair| is_drawn(pair));
    let labels = Labels::of(pairs().map(|pair| &pair.id), &["model"]);
    let name = |pair: &Crossover| {
        let parts = [pair.kind.clone(), labels.label(&pair.id)];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    };
    pairs().map(|pair| (name(pair), pair)).collect()
}

fn is_drawn(pair: &Crossover) -> bool {
    pair.base == BASE && pair.kind != "naive"
}

fn ratio_line(name: &str, ratios: &[Ratio]) -> Line {
    let point = |ratio: &Ratio| {
        let drawn = Point::measured(ratio.length as f64, ratio.ratio);
        ratio.interval.map_or(drawn.clone(), |ends| drawn.within(ends.low, ends.high))
    };
    Line::new(name, ratios.iter().map(point).collect())
}

/// Fills the chart of crossovers, for attention alone or whole models.
pub(super) fn crossovers(answer: &Profiling) -> drawn::Crossovers {
    let parts = [&answer.attention, &answer.models];
    let ratios = parts.iter().flat_map(|part| ratios(part)).collect();
    let pairs = parts.iter().flat_map(|part| named_pairs(part));
    let part = if answer.attention.cases.is_empty() { &answer.models } else { &answer.attention };
    drawn::Crossovers {
        subtitle: subtitle(answer, part, "ratios of medians"),
        ratios,
        crossings: pairs.flat_map(|(name, pair)| crossings(&name, pair)).collect(),
    }
}

fn crossings(name: &str, pair: &Crossover) -> Vec<Highlight> {
    let time = pair.time.as_ref().and_then(|answer| crossing(name, answer, &pair.faster, ["faster", "slower"]));
    let memory = pair.memory.as_ref().and_then(|answer| crossing(name, answer, &pair.smaller, ["smaller", "larger"]));
    [time, memory].into_iter().flatten().collect()
}

fn crossing(name: &str, answer: &CrossoverAnswer, points: &[Ratio], [less, more]: [&str; 2]) -> Option<Highlight> {
    let (crossing, word) = match answer {
        CrossoverAnswer::From(crossing) => (crossing, less),
        CrossoverAnswer::Until(crossing) => (crossing, more),
        _ => return None,
    };
    let Crossing { length, ends } = *crossing;
    // An end outside the measured lengths is drawn at the edge.
    let edges = [points.first()?.length as f64, points.last()?.length as f64];
    let interval = ends.map(|Ends { low, high }| [low.unwrap_or(edges[0]), high.unwrap_or(edges[1])]);
    Some(Highlight { at: length, interval, label: format!("{name}: {word} from {length:.0} on") })
}
