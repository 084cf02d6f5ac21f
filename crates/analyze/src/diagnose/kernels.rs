//! Findings about kernels: too small for the device, slowing down, or at a limit of the hardware.

use std::{collections::HashMap, hash::Hash};

use laptime_stats::spread::median;
use laptime_trace::run::{Peaks, Traffic};
use laptime_trace::{Activity, SpanId, Trace};

use super::{charges::Charges, limits::FindingLimits};
use crate::devices::{DeviceWork, Work, WorkKind};
use crate::fields::{as_text, text};
use crate::timeline::Timeline;

/// Kernels of one kind are compared from this many in each third of the trace on.
const LEAST_KERNELS: usize = 8;

/// The GPU slows down if this share of the kernel time does.
const MOST_KERNELS: f64 = 0.8;

/// A product is at a limit from this share of the peak on.
const AT_PEAK: f64 = 0.6;

/// Charges kernels of each device.
pub(super) fn charge(
    timeline: &Timeline<'_>,
    peaks: Option<&Peaks>,
    limits: &FindingLimits,
    charges: &mut Charges<'_>,
) {
    for at in charges.judged().to_vec() {
        let device = &timeline.devices.devices[at];
        let kernels: Vec<&Work> = device.work.iter().filter(|work| work.kind == WorkKind::Compute).collect();
        if device.is_stages || kernels.is_empty() {
            continue;
        }
        small(timeline.trace, at, device, &kernels, limits, charges);
        slowing(timeline.trace, at, &kernels, limits, charges);
        if let Some(peaks) = peaks {
            at_peak(timeline, at, &kernels, peaks, limits, charges);
        }
    }
}

fn total<'w>(kernels: impl IntoIterator<Item = &'w &'w Work>) -> f64 {
    kernels.into_iter().map(|work| work.length() as f64).sum()
}

/// Kernels with fewer blocks than the device has multiprocessors: their idle share is charged.
fn small(
    trace: &Trace,
    at: usize,
    device: &DeviceWork,
    kernels: &[&Work],
    limits: &FindingLimits,
    charges: &mut Charges<'_>,
) {
    let properties = trace.metadata.devices();
    let of_device = properties.iter().find(|known| Some(known.id) == device.number);
    let Some(processors) = of_device.and_then(|known| known.multiprocessors) else { return };
    let Some(grid) = trace.known_name("grid") else { return };
    let blocks = |work: &Work| {
        trace.span(work.id).fields.named(grid).and_then(as_text).map(|text| numbers(text).product::<u64>())
    };
    let small: Vec<(&Work, u64)> =
        kernels.iter().filter_map(|work| Some((*work, blocks(work).filter(|blocks| *blocks < processors)?))).collect();
    let time: f64 = small.iter().map(|(work, _)| work.length() as f64).sum();
    if time < limits.of("low-occupancy") * total(kernels) {
        return;
    }
    for (work, blocks) in small {
        let idle = work.length() as f64 * (1.0 - blocks as f64 / processors as f64);
        charges.add("low-occupancy", at, work.end.saturating_sub(idle as u64), work.end, Some(work.id));
    }
}

/// Kernels that take longer in the last third than in the first.
fn slowing(trace: &Trace, at: usize, kernels: &[&Work], limits: &FindingLimits, charges: &mut Charges<'_>) {
    let is_most = |slower: &[(Vec<&Work>, f64)]| {
        let time: f64 = slower.iter().map(|(works, _)| total(works)).sum();
        time >= MOST_KERNELS * total(kernels) && time > 0.0
    };
    let limit = limits.of("throttled");
    // Names alone are cheap to compare, and enough for most traces.
    if !is_most(&slower(kernels, limit, |work| trace.span_name(work.id))) {
        return;
    }
    let grid = trace.known_name("grid");
    let grid = |work: &Work| trace.span(work.id).fields.named(grid?).and_then(as_text);
    let slower = slower(kernels, limit, |work| (trace.span_name(work.id), grid(work)));
    if !is_most(&slower) {
        return;
    }
    for (works, before) in slower {
        for work in works {
            let more = (work.length() as f64 - before).max(0.0) as u64;
            charges.add("throttled", at, work.end.saturating_sub(more), work.end, Some(work.id));
        }
    }
}

/// The kinds of kernels that take longer in the last third of the time than in the first, each with the first median.
fn slower<'w, K: Eq + Hash>(
    kernels: &[&'w Work],
    limit: f64,
    kind: impl Fn(&'w Work) -> K,
) -> Vec<(Vec<&'w Work>, f64)> {
    let (first, last) = (kernels[0].start, kernels[kernels.len() - 1].end);
    let third = last.saturating_sub(first) / 3;
    let mut kinds: HashMap<K, Vec<&Work>> = HashMap::new();
    for &work in kernels {
        kinds.entry(kind(work)).or_default().push(work);
    }
    let typical = |works: &[&Work], from: u64, to: u64| {
        let inside = works.iter().filter(|work| (from..to).contains(&work.start));
        let lengths: Vec<f64> = inside.map(|work| work.length() as f64).collect();
        (lengths.len() >= LEAST_KERNELS).then(|| median(&lengths)).flatten()
    };
    let slower = kinds.into_values().filter_map(|works| {
        let before = typical(&works, first, first + third)?;
        let after = typical(&works, last - third, u64::MAX)?;
        (after >= (1.0 + limit) * before).then_some((works, before))
    });
    slower.collect()
}

/// Products with recorded shapes that reach the measured peaks.
fn at_peak(
    timeline: &Timeline<'_>,
    at: usize,
    kernels: &[&Work],
    peaks: &Peaks,
    limits: &FindingLimits,
    charges: &mut Charges<'_>,
) {
    let mut of_operation: HashMap<SpanId, Vec<&Work>> = HashMap::new();
    for work in kernels {
        if let Some(operation) = work.launch.and_then(|launch| product_around(timeline, launch)) {
            of_operation.entry(operation).or_default().push(work);
        }
    }
    let mut bound: HashMap<&'static str, Vec<&Work>> = HashMap::new();
    for (operation, works) in of_operation {
        let Some((flops, bytes, dtype)) = product(timeline.trace, operation) else { continue };
        let nanos = total(&works);
        let share = |amount: f64, peak: Option<f64>| peak.map_or(0.0, |peak| amount / (peak * nanos / 1e9).max(1.0));
        let arithmetic = share(flops, peaks.flops_s(dtype));
        let memory = share(bytes, peaks.bytes_s(Traffic::Read));
        if arithmetic.max(memory) >= AT_PEAK {
            let id = if arithmetic >= memory { "compute-bound" } else { "memory-bound" };
            bound.entry(id).or_default().extend(works);
        }
    }
    for (id, works) in bound {
        if total(&works) >= limits.of(id) * total(kernels) {
            works.iter().for_each(|work| charges.add(id, at, work.start, work.end, Some(work.id)));
        }
    }
}

/// The matrix product that contains a launch.
fn product_around(timeline: &Timeline<'_>, launch: SpanId) -> Option<SpanId> {
    let trace = timeline.trace;
    let around = std::iter::successors(Some(launch), |id| trace.span_parent(*id)).take(16);
    let is_operation = |id: &SpanId| timeline.devices.activities[id.index()] == Activity::Operation;
    let is_product = |id: &SpanId| matches!(trace.span(*id).name, "aten::mm" | "aten::addmm" | "aten::bmm");
    around.filter(is_operation).find(is_product)
}

/// FLOPs, bytes and dtype of a matrix product, from its recorded shapes.
fn product(trace: &Trace, operation: SpanId) -> Option<(f64, f64, &'static str)> {
    let span = trace.span(operation);
    let shapes: Vec<Vec<u64>> = shapes(text(&span.fields, "Input Dims")?);
    let (a, b) = match (span.name, shapes.as_slice()) {
        ("aten::addmm", [_, a, b, ..]) | ("aten::mm" | "aten::bmm", [a, b, ..]) => (a, b),
        _ => return None,
    };
    let (dtype, size) = match text(&span.fields, "Input type")? {
        types if types.contains("BFloat16") => ("bf16", 2.0),
        types if types.contains("Half") => ("f16", 2.0),
        types if types.contains("float") => ("f32", 4.0),
        _ => return None,
    };
    let batch: f64 = if a.len() == 3 { a[0] as f64 } else { 1.0 };
    let (m, k) = (*a.get(a.len().checked_sub(2)?)? as f64, *a.last()? as f64);
    let n = *b.last()? as f64;
    Some((2.0 * batch * m * n * k, batch * size * (m * k + k * n + m * n), dtype))
}

/// The lists of numbers in a text: `[[8, 512], [512, 64], []]`.
fn shapes(text: &str) -> Vec<Vec<u64>> {
    let inner = text.strip_prefix('[').unwrap_or(text);
    inner.split('[').skip(1).map(|list| numbers(list.split(']').next().unwrap_or("")).collect()).collect()
}

/// The numbers in a text: `[4, 1, 1]`.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split(|letter: char| !letter.is_ascii_digit()).filter_map(|word| word.parse().ok())
}
