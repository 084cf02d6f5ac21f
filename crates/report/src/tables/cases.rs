//! The cases of a benchmark as a table.

use laptime_analyze::{CaseFigures, Cases, Figures, MeasuredFigures, MetricFigures, SharedDoubt, StateFigures};
use laptime_trace::run::{Steady, StopReason};

use super::{
    axes::{self, Axes, Taken},
    troubles,
};
use crate::{Cell, Column, Table, layout::single};

/// Lays out the cases of a run, with the doubts about them as notes.
pub fn cases(answer: &Cases, doubts: &[SharedDoubt]) -> Table {
    let axes = Axes::of(answer.cases.iter().map(|case| &case.id));
    let (metrics, facts) = (metric_names(answer), fact_names(answer));
    let mut table = Table::new("cases", columns(answer, &axes, &metrics, &facts));
    for case in &answer.cases {
        table.push(row(case, &axes, &metrics, &facts));
    }
    if let Some(first) = answer.cases.first() {
        axes.add_common(&mut table, &first.id);
    }
    let processes = |case: &CaseFigures| case.measured.as_ref().map_or(0, |figures| figures.wall.processes);
    let outcomes = answer.cases.iter().map(|case| troubles::Outcome {
        id: &case.id,
        troubles: &case.troubles,
        measured: processes(case),
    });
    troubles::add_notes(&mut table, &axes, outcomes);
    add_peaks(&mut table, answer);
    doubts.iter().for_each(|doubt| table.warn(doubt.note()));
    table
}

fn metric_names(answer: &Cases) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for metric in answer.cases.iter().filter_map(|case| case.measured.as_ref()).flat_map(|case| &case.metrics) {
        if !names.contains(&metric.name) {
            names.push(metric.name.clone());
        }
    }
    names
}

/// Facts about cases that people see, with their labels.
const SHOWN_FACTS: [(&str, &str); 2] = [("mass_kept", "mass kept"), ("output_error", "output error")];

/// The names of all facts about cases.
fn fact_names(answer: &Cases) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for fact in answer.cases.iter().filter_map(|case| case.measured.as_ref()).flat_map(|case| &case.facts) {
        if !names.contains(&fact.name) {
            names.push(fact.name.clone());
        }
    }
    names
}

fn columns(answer: &Cases, axes: &Axes, metrics: &[String], facts: &[String]) -> Vec<Column> {
    let (before, after) = (figure_columns(answer), other_columns());
    let mut taken = Taken::by(&before);
    after.iter().for_each(|column| drop(taken.take(&column.key)));
    let mut columns = axes.columns(&mut taken);
    columns.extend(before);
    for name in metrics {
        columns.push(Column::new(taken.take(name), name.clone()).drop(2));
        columns.push(Column::new(taken.take(&format!("{name}_lo")), "").machine_only());
        columns.push(Column::new(taken.take(&format!("{name}_hi")), "").machine_only());
    }
    columns.extend(after);
    columns.extend(facts.iter().map(|name| {
        let key = taken.take(name);
        match SHOWN_FACTS.iter().find(|(fact, _)| fact == name) {
            Some((_, label)) => Column::new(key, *label).drop(2),
            None => Column::new(key, "").machine_only(),
        }
    }));
    columns
}

/// The times of an iteration.
fn figure_columns(answer: &Cases) -> Vec<Column> {
    let some = |is_shown: fn(&CaseFigures) -> bool, column: Column| match answer.cases.iter().any(is_shown) {
        true => column,
        false => column.machine_only(),
    };
    let several = |case: &CaseFigures| case.measured.as_ref().is_some_and(|figures| figures.wall.processes > 1);
    let has_device = |case: &CaseFigures| case.measured.as_ref().is_some_and(|figures| figures.device_ns.is_some());
    let has_busy = |case: &CaseFigures| case.measured.as_ref().is_some_and(|figures| figures.busy_ns.is_some());
    let in_median = |key: &'static str, label: &'static str| Column::new(key, label).in_unit_of("median_ms");
    vec![
        some(|case| case.measured.is_none(), Column::new("outcome", "outcome")),
        Column::new("n", "n").drop(1),
        Column::new("median_ms", "median"),
        in_median("median_lo_ms", "").machine_only(),
        in_median("median_hi_ms", "").machine_only(),
        in_median("median_ci", "95 % CI").human_only(),
        Column::new("mean_ms", "mean").machine_only(),
        Column::new("std_ms", "std").machine_only(),
        some(has_device, in_median("device_ms", "device").drop(4)),
        some(has_busy, in_median("busy_ms", "busy").drop(4)),
        Column::new("min_ms", "min").machine_only(),
        Column::new("max_ms", "max").machine_only(),
        Column::new("p5_ms", "p5").machine_only(),
        in_median("p95_ms", "p95").drop(7),
        Column::new("p99_ms", "p99").machine_only(),
        Column::new("between", "process spread").drop(8),
        Column::new("within", "iteration spread").drop(9),
        some(several, Column::new("processes", "processes").drop(4)),
    ]
}

/// Rates relative to the hardware, and how the measurement went.
fn other_columns() -> Vec<Column> {
    let machine = |key: &'static str| Column::new(key, "").machine_only();
    vec![
        machine("gflop"),
        machine("gb"),
        Column::new("gflop_s", "GFLOP/s").drop(5),
        Column::new("gb_s", "GB/s").drop(6),
        machine("limit_ms"),
        machine("limit_by"),
        Column::new("x_limit", "x limit").drop(3),
        Column::new("mfu", "mfu").drop(6),
        Column::new("mbu", "mbu").drop(6),
        Column::new("peak_mib", "peak (MiB)").drop(4),
        machine("peak_rss_mib"),
        machine("clock_mhz"),
        machine("power_w"),
        machine("temperature_c"),
        machine("throttled_iterations"),
        machine("prepare_ms"),
        machine("check_ms"),
        machine("first_iteration_ms"),
        machine("warmup_iterations"),
        machine("stop_reason"),
        machine("half_width"),
        machine("steady_state"),
        machine("outliers"),
        machine("troubled_processes"),
        machine("reason"),
    ]
}

fn row(case: &CaseFigures, axes: &Axes, metrics: &[String], facts: &[String]) -> Vec<Cell> {
    let measured = case.measured.as_ref();
    let mut cells = axes.cells(&case.id);
    cells.push(Cell::text(case.outcome()));
    cells.extend(wall_cells(measured));
    for name in metrics {
        let known = measured.and_then(|figures| figures.metrics.iter().find(|metric| metric.name == *name));
        cells.extend(metric_cells(known));
    }
    cells.extend(limit_cells(measured));
    cells.extend(state_cells(measured));
    cells.push(Cell::Count(case.troubles.len() as u64));
    cells.push(Cell::from(case.troubles.first().map(|trouble| Cell::text(troubles::reason(&trouble.kind)))));
    cells.extend(facts.iter().map(|name| Cell::from(measured.and_then(|figures| figures.fact(name)).map(axes::value))));
    cells
}

/// A time in fractional nanoseconds.
pub(super) fn nanos(value: Option<f64>) -> Cell {
    Cell::from(value.filter(|value| value.is_finite()).map(|value| Cell::Nanos(value.round() as u64)))
}

fn wall_cells(measured: Option<&MeasuredFigures>) -> [Cell; 17] {
    let wall = measured.map(|figures| &figures.wall);
    let time = |figure: fn(&Figures) -> Option<f64>| nanos(wall.and_then(figure));
    let share = |figure: fn(&Figures) -> Option<f64>| Cell::from(wall.and_then(figure).map(Cell::Share));
    let count = |figure: fn(&Figures) -> usize| Cell::from(wall.map(|wall| Cell::Count(figure(wall) as u64)));
    [
        count(|wall| wall.n),
        time(|wall| Some(wall.median)),
        time(|wall| wall.interval.map(|interval| interval.low)),
        time(|wall| wall.interval.map(|interval| interval.high)),
        Cell::range(
            time(|wall| wall.interval.map(|interval| interval.low)),
            time(|wall| wall.interval.map(|interval| interval.high)),
        ),
        time(|wall| Some(wall.mean)),
        time(|wall| wall.std),
        nanos(measured.and_then(|figures| figures.device_ns)),
        nanos(measured.and_then(|figures| figures.busy_ns)),
        time(|wall| Some(wall.min)),
        time(|wall| Some(wall.max)),
        time(|wall| wall.p5),
        time(|wall| wall.p95),
        time(|wall| wall.p99),
        share(|wall| wall.between),
        share(|wall| wall.within),
        count(|wall| wall.processes),
    ]
}

fn metric_cells(metric: Option<&MetricFigures>) -> [Cell; 3] {
    let figures = metric.map(|metric| metric.figures);
    let interval = figures.and_then(|figures| figures.interval);
    let values = [figures.map(|figures| figures.median), interval.map(|ends| ends.low), interval.map(|ends| ends.high)];
    values.map(|value| Cell::from(value.map(Cell::Number)))
}

fn limit_cells(measured: Option<&MeasuredFigures>) -> [Cell; 9] {
    let limits = measured.and_then(|figures| figures.limits).unwrap_or_default();
    [
        Cell::from(limits.gflop.map(Cell::Number)),
        Cell::from(limits.gb.map(Cell::Number)),
        Cell::from(limits.gflop_s.map(Cell::Number)),
        Cell::from(limits.gb_s.map(Cell::Number)),
        nanos(limits.limit_ns),
        Cell::from(limits.bound.map(|bound| Cell::text(bound.word()))),
        Cell::from(limits.x_limit.map(Cell::Number)),
        Cell::from(limits.mfu.map(Cell::Share)),
        Cell::from(limits.mbu.map(Cell::Share)),
    ]
}

fn state_cells(measured: Option<&MeasuredFigures>) -> [Cell; 14] {
    let mib = |bytes: u64| Cell::Number(bytes as f64 / f64::from(1 << 20));
    let known = |cell: fn(&MeasuredFigures) -> Cell| Cell::from(measured.map(cell));
    let known_state = measured.map(|figures| &figures.state).filter(|state| state.of > 0);
    let state = |figure: fn(&StateFigures) -> Option<f64>| Cell::from(known_state.and_then(figure).map(Cell::Number));
    [
        Cell::from(measured.and_then(|figures| figures.peak_bytes).map(mib)),
        Cell::from(measured.and_then(|figures| figures.peak_rss_bytes).map(mib)),
        state(|state| state.clock_mhz),
        state(|state| state.power_watts),
        state(|state| state.temperature_c),
        Cell::from(known_state.map(|state| Cell::Count(state.throttled as u64))),
        known(|figures| nanos(Some(figures.prepare_ns))),
        known(|figures| nanos(Some(figures.check_ns))),
        known(|figures| nanos(Some(figures.first_iteration_ns))),
        known(|figures| Cell::Count(figures.warmup_iterations as u64)),
        known(|figures| Cell::text(stopped(figures.stopped).0)),
        known(|figures| Cell::from(stopped(figures.stopped).1.map(Cell::Share))),
        known(|figures| Cell::text(steady(figures.steady))),
        known(|figures| Cell::Count(figures.course.outliers as u64)),
    ]
}

/// Why sampling stopped, and the half-width of the interval then, as a share of the median.
fn stopped(reason: StopReason) -> (&'static str, Option<f64>) {
    match reason {
        StopReason::Iterations(_) => ("iterations", None),
        StopReason::MaxIterations(_) => ("max_iterations", None),
        StopReason::NarrowInterval { half_width } => ("narrow_interval", Some(half_width)),
        StopReason::MaxTime { half_width } => ("max_time", half_width),
        StopReason::Interrupted => ("interrupted", None),
    }
}

fn steady(steady: Steady) -> &'static str {
    match steady {
        Steady::NotChecked => "not_checked",
        Steady::Reached => "reached",
        Steady::NotReached => "not_reached",
        Steady::Unknown => "unknown",
    }
}

/// The FLOPs and bytes of an iteration if there is one case; for several cases, machines read the columns.
fn numerators(answer: &Cases) -> String {
    let [only] = answer.cases.as_slice() else { return String::new() };
    let limits = only.measured.as_ref().and_then(|figures| figures.limits).unwrap_or_default();
    let text =
        |amount: Option<f64>, unit: &str| amount.map(|amount| format!("{} {unit}", single(&Cell::Number(amount))));
    let amounts: Vec<String> = [text(limits.gflop, "GFLOP"), text(limits.gb, "GB")].into_iter().flatten().collect();
    if amounts.is_empty() { String::new() } else { format!(" ({})", amounts.join(", ")) }
}

/// Explains the peaks behind `mfu` and `mbu`, if there are any.
fn add_peaks(table: &mut Table, answer: &Cases) {
    let has_limits = |case: &CaseFigures| {
        let limits = case.measured.as_ref().and_then(|figures| figures.limits);
        limits.is_some_and(|limits| limits.mfu.or(limits.mbu).is_some())
    };
    let Some(peaks) = answer.peaks.as_ref().filter(|_| answer.cases.iter().any(has_limits)) else { return };
    let mut rates = Vec::new();
    for peak in &peaks.flops {
        rates.push(format!("{} {:.1} GFLOP/s", peak.dtype, peak.flops_s / 1e9));
        table.machine_fact(format!("peak_{}_gflop_s", peak.dtype), Cell::Number(peak.flops_s / 1e9));
    }
    for peak in &peaks.bandwidth {
        rates.push(format!("{} {:.1} GB/s", peak.traffic.word(), peak.bytes_s / 1e9));
        table.machine_fact(format!("peak_{}_gb_s", peak.traffic.word()), Cell::Number(peak.bytes_s / 1e9));
    }
    table.machine_fact("peaks_measured", Cell::text(&peaks.measured));
    table.legend(format!(
        "`mfu` and `mbu` are the FLOPs and bytes of an iteration{}, divided by the peaks that `laptime peaks` measured \
         on `{}` at {}: {}.",
        numerators(answer),
        peaks.device,
        peaks.measured,
        rates.join(", ")
    ));
}
