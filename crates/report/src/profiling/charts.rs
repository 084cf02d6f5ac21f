//! The charts of a report, filled from runs.

mod attention;
mod model;
mod roofline;
mod warmup;

use laptime_analyze::{CaseId, LengthPoint, LengthSeries, Profiling, ProfilingPart, TroubleKind, distinct};
use laptime_trace::run::{AxisValue, Machine};

use crate::chart::{Chart, Line, Point, charts as drawn};

/// Draws all charts that have data.
pub fn charts(answer: &Profiling) -> Vec<Chart> {
    let attention = attention::attention(answer);
    let all = [
        drawn::attention_latency(&attention),
        drawn::attention_memory(&attention),
        drawn::attention_efficiency(&attention),
        drawn::model_performance(&model::models(answer)),
        drawn::crossover(&attention::crossovers(answer)),
        drawn::warmup_laps(&warmup::laps(answer)),
        roofline::roofline(answer).as_ref().and_then(drawn::roofline),
    ];
    let mut charts: Vec<Chart> = all.into_iter().flatten().collect();
    // A colour means the same in every chart of a report.
    let subjects = distinct(charts.iter().flat_map(Chart::subjects));
    for chart in &mut charts {
        chart.known_subjects.clone_from(&subjects);
    }
    charts
}

/// The time of a series over its length.
fn time_line(name: &str, series: &LengthSeries) -> Line {
    let point = |point: &LengthPoint| {
        let at = point.length as f64;
        let Some(time) = series.time(point) else { return without_figure(at, point.trouble.as_ref()) };
        let drawn = Point::measured(at, time.median);
        time.interval.map_or(drawn.clone(), |ends| drawn.within(ends.low, ends.high))
    };
    Line::new(name, series.points.iter().map(point).collect())
}

/// The peak memory of a series over its length.
fn memory_line(name: &str, series: &LengthSeries) -> Line {
    let point = |point: &LengthPoint| {
        let at = point.length as f64;
        match point.peak_bytes {
            Some(bytes) => Point::measured(at, bytes as f64),
            None => without_figure(at, point.trouble.as_ref()),
        }
    };
    Line::new(name, series.points.iter().map(point).collect())
}

/// A position without a value: marked if the case failed.
fn without_figure(at: f64, trouble: Option<&TroubleKind>) -> Point {
    match trouble {
        Some(TroubleKind::OutOfMemory { .. }) => Point::failed(at, "out of memory"),
        Some(TroubleKind::Failed { .. }) => Point::failed(at, "failed"),
        _ => Point::missing(at),
    }
}

/// Machine and method: what all cases of a part share.
fn subtitle(answer: &Profiling, part: &ProfilingPart, method: &str) -> String {
    let ids = || part.cases.iter().map(|case| &case.id);
    let words = [machine(answer, ids()), common(ids(), "dtype", |dtype| dtype.to_string())];
    let batch = common(ids(), "batch_size", |batch| format!("batch {batch}"));
    let heads = common(ids(), "heads", |heads| format!("{heads} heads"));
    let size = common(ids(), "head_dim", |size| format!("of {size}"));
    let heads = heads.map(|heads| [Some(heads), size].into_iter().flatten().collect::<Vec<_>>().join(" "));
    let parts: Vec<String> = words.into_iter().chain([batch, heads]).flatten().collect();
    if parts.is_empty() { method.to_owned() } else { format!("{}; {method}", parts.join(", ")) }
}

/// The machine, if all runs of some cases share it.
fn machine<'a>(answer: &Profiling, mut ids: impl Iterator<Item = &'a CaseId>) -> Option<String> {
    let first = ids.next()?;
    if ids.any(|id| id.device != first.device) {
        return None;
    }
    let of_workload =
        answer.runs.iter().filter_map(|run| run.read.run.as_ref()).filter(|run| run.device == first.device);
    let mut machines = of_workload.map(|run| device_name(&run.environment.machine, &run.device));
    let name = machines.next()??;
    machines.all(|other| other.as_ref() == Some(&name)).then_some(name)
}

pub(super) fn device_name(machine: &Machine, device: &str) -> Option<String> {
    if let Some(number) = device.strip_prefix("cuda:") {
        return machine.gpus.get(number.parse::<usize>().ok()?).map(|gpu| gpu.name.clone());
    }
    let cpu = machine.cpu.as_deref()?;
    Some(if machine.cpus == 1 { cpu.to_owned() } else { format!("{} x {cpu}", machine.cpus) })
}

/// The value of an axis that all cases share, in words.
fn common<'a>(mut ids: impl Iterator<Item = &'a CaseId>, axis: &str, word: fn(&AxisValue) -> String) -> Option<String> {
    let first = ids.next()?.case.get(axis)?;
    ids.all(|id| id.case.get(axis) == Some(first)).then(|| word(first))
}

#[cfg(test)]
mod tests {
    use laptime_analyze::{ProfiledRun, profiling};
    use laptime_trace::run::{Case, CaseResult, Measured, Outcome, StopReason};

    use super::*;

    fn result(workload: &str, values: &[(&str, AxisValue)], nanos: u64) -> CaseResult {
        let case = Case::new(values.iter().map(|(axis, value)| ((*axis).to_owned(), value.clone())).collect());
        let wall_ns = (0..20).map(|iteration| nanos + nanos * (iteration % 5) / 500).collect();
        let stopped = StopReason::Iterations(20);
        let measured = Measured { wall_ns, stopped, peak_bytes: Some(nanos), ..Measured::default() };
        CaseResult::new(workload, "cpu", case, 0, "", Outcome::Measured(measured))
    }

    /// Sparse attention is slower at first, and a model is measured next to it.
    fn report() -> Vec<Chart> {
        let mut results = Vec::new();
        for (length, dense, sparse) in [(512, 1_000, 2_000), (1024, 4_000, 4_000), (2048, 16_000, 8_000)] {
            for (kind, nanos) in [("dense", dense), ("sparse", sparse)] {
                let values = [("attention", kind.into()), ("seq_len", AxisValue::Int(length))];
                results.push(result("attention", &values, nanos * 1000));
            }
            for (pass, nanos) in [("forward", dense), ("step", 3 * dense)] {
                let values =
                    [("model", "tiny".into()), ("pass_type", pass.into()), ("seq_len", AxisValue::Int(length))];
                results.push(result("model", &values, nanos * 1000));
            }
        }
        charts(&profiling(vec![ProfiledRun { folder: "run".to_owned(), run: None, results }]))
    }

    #[test]
    fn a_colour_means_the_same_in_all_charts_of_a_report() {
        let charts = report();
        assert!(charts.len() > 3, "{}", charts.len());
        for chart in &charts {
            assert_eq!(chart.known_subjects, ["dense", "sparse", "tiny"], "{}", chart.name);
        }
    }

    #[test]
    fn a_crossing_names_its_kind() {
        let charts = report();
        let crossover = charts.iter().find(|chart| chart.name == "crossover").unwrap();
        let highlights: Vec<&str> =
            crossover.panels[0].highlights.iter().map(|highlight| highlight.label.as_str()).collect();
        assert!(
            !highlights.is_empty() && highlights.iter().all(|label| label.starts_with("sparse: ")),
            "{highlights:?}"
        );
    }
}
