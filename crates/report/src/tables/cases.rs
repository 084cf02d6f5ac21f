//! The cases of a benchmark as a table.

use laptime_analyze::{
    CaseFigures, Cases, Figures, MeasuredFigures, MetricFigures, SharedDoubt, StateFigures, distinct,
};
use laptime_trace::run::{Steady, StopReason};

use super::axes::{self, Axes, UsedKeys};
use super::troubles;
use crate::{Cell, Column, Table, layout::single, table::fields};

/// Lays out the cases of a run, with the doubts about them as notes.
pub fn cases(answer: &Cases, doubts: &[SharedDoubt]) -> Table {
    let axes = Axes::of(answer.cases.iter().map(|case| &case.id));
    let measured = || answer.cases.iter().filter_map(|case| case.measured.as_ref());
    let metrics = distinct(measured().flat_map(|case| &case.metrics).map(|metric| &metric.name));
    let facts = distinct(measured().flat_map(|case| &case.facts).map(|fact| &fact.name));
    let any = |is: fn(&MeasuredFigures) -> bool| measured().any(is);
    // The times of an iteration.
    let (of_times, times) = fields!(case: &CaseFigures => {
        let measured = case.measured.as_ref();
        let wall = measured.map(|figures| &figures.wall);
        let time = |figure: fn(&Figures) -> Option<f64>| Cell::nanos(wall.and_then(figure));
        let share = |figure: fn(&Figures) -> Option<f64>| Cell::share(wall.and_then(figure));
        let count = |figure: fn(&Figures) -> usize| Cell::from(wall.map(|wall| Cell::Count(figure(wall) as u64)));
        let low = || time(|wall| wall.interval.map(|interval| interval.low));
        let high = || time(|wall| wall.interval.map(|interval| interval.high));
    } [
        ("outcome", "outcome").shown_if(answer.cases.iter().any(|case| case.measured.is_none())) =>
            Cell::text(case.outcome()),
        ("n", "n").drop(1) => count(|wall| wall.all.n),
        ("median_ms", "median") => time(|wall| Some(wall.median)),
        ("median_lo_ms", "").in_unit_of("median_ms").machine_only() => low(),
        ("median_hi_ms", "").in_unit_of("median_ms").machine_only() => high(),
        ("median_ci", "95 % CI").in_unit_of("median_ms").human_only() => Cell::range(low(), high()),
        ("mean_ms", "mean").machine_only() => time(|wall| Some(wall.all.mean)),
        ("std_ms", "std").machine_only() => time(|wall| wall.all.std),
        ("device_ms", "device").in_unit_of("median_ms").drop(4).shown_if(any(|figures| figures.device_ns.is_some())) =>
            Cell::nanos(measured.and_then(|figures| figures.device_ns)),
        ("busy_ms", "busy").in_unit_of("median_ms").drop(4).shown_if(any(|figures| figures.busy_ns.is_some())) =>
            Cell::nanos(measured.and_then(|figures| figures.busy_ns)),
        ("min_ms", "min").machine_only() => time(|wall| Some(wall.all.min)),
        ("max_ms", "max").machine_only() => time(|wall| Some(wall.all.max)),
        ("p5_ms", "p5").machine_only() => time(|wall| wall.all.p5),
        ("p95_ms", "p95").in_unit_of("median_ms").drop(7) => time(|wall| wall.all.p95),
        ("p99_ms", "p99").machine_only() => time(|wall| wall.all.p99),
        ("between", "process spread").drop(8) => share(|wall| wall.between),
        ("within", "iteration spread").drop(9) => share(|wall| wall.within),
        ("processes", "processes").drop(4).shown_if(any(|figures| figures.wall.processes > 1)) =>
            count(|wall| wall.processes),
    ]);
    // Rates relative to the hardware, and how the measurement went.
    let (of_rates, rates) = fields!(case: &CaseFigures => {
        let measured = case.measured.as_ref();
        let limits = measured.and_then(|figures| figures.limits).unwrap_or_default();
        let mib = |bytes: u64| Cell::Number(bytes as f64 / f64::from(1 << 20));
        let known = |cell: fn(&MeasuredFigures) -> Cell| Cell::from(measured.map(cell));
        let known_state = measured.map(|figures| &figures.state).filter(|state| state.of > 0);
        let state =
            |figure: fn(&StateFigures) -> Option<f64>| Cell::number(known_state.and_then(figure));
    } [
        ("gflop", "").machine_only() => Cell::number(limits.gflop),
        ("gb", "").machine_only() => Cell::number(limits.gb),
        ("gflop_s", "GFLOP/s").drop(5) => Cell::number(limits.gflop_s),
        ("gb_s", "GB/s").drop(6) => Cell::number(limits.gb_s),
        ("limit_ms", "").machine_only() => Cell::nanos(limits.limit_ns),
        ("limit_by", "").machine_only() => Cell::from(limits.bound.map(|bound| Cell::text(bound.word()))),
        ("x_limit", "x limit").drop(3) => Cell::number(limits.x_limit),
        ("mfu", "mfu").drop(6) => Cell::share(limits.mfu),
        ("mbu", "mbu").drop(6) => Cell::share(limits.mbu),
        ("peak_mib", "peak (MiB)").drop(4) => Cell::from(measured.and_then(|figures| figures.peak_bytes).map(mib)),
        ("peak_rss_mib", "").machine_only() =>
            Cell::from(measured.and_then(|figures| figures.peak_rss_bytes).map(mib)),
        ("clock_mhz", "").machine_only() => state(|state| state.clock_mhz),
        ("power_w", "").machine_only() => state(|state| state.power_watts),
        ("temperature_c", "").machine_only() => state(|state| state.temperature_c),
        ("throttled_iterations", "").machine_only() =>
            Cell::from(known_state.map(|state| Cell::Count(state.throttled as u64))),
        ("prepare_ms", "").machine_only() => known(|figures| Cell::nanos(figures.prepare_ns)),
        ("check_ms", "").machine_only() => known(|figures| Cell::nanos(figures.check_ns)),
        ("first_iteration_ms", "").machine_only() => known(|figures| Cell::nanos(figures.first_iteration_ns)),
        ("warmup_iterations", "").machine_only() => known(|figures| Cell::Count(figures.warmup_iterations as u64)),
        ("stop_reason", "").machine_only() => known(|figures| Cell::text(stopped(figures.stopped).0)),
        ("half_width", "").machine_only() => known(|figures| Cell::share(stopped(figures.stopped).1)),
        ("steady_state", "").machine_only() => known(|figures| Cell::text(steady(figures.steady))),
        ("outliers", "").machine_only() => known(|figures| Cell::Count(figures.stability.outliers as u64)),
        ("troubled_processes", "").machine_only() => Cell::Count(case.troubles.len() as u64),
        ("reason", "").machine_only() =>
            Cell::from(case.troubles.first().map(|trouble| Cell::text(troubles::reason(&trouble.kind)))),
    ]);
    let mut used = UsedKeys::by(&of_times);
    of_rates.iter().for_each(|column| drop(used.reserve(&column.key)));
    let mut columns = axes.columns(&mut used);
    columns.extend(of_times);
    for name in &metrics {
        columns.push(Column::new(used.reserve(name), (*name).clone()).drop(2));
        columns.push(Column::new(used.reserve(&format!("{name}_lo")), "").machine_only());
        columns.push(Column::new(used.reserve(&format!("{name}_hi")), "").machine_only());
    }
    columns.extend(of_rates);
    columns.extend(facts.iter().map(|name| {
        let shown = SHOWN_FACTS.iter().find(|(fact, _)| fact == *name);
        Column::new(used.reserve(name), shown.map_or("", |(_, label)| *label)).drop(2).shown_if(shown.is_some())
    }));
    let mut table = Table::new("cases", columns);
    for case in &answer.cases {
        let measured = case.measured.as_ref();
        let mut cells = [axes.cells(&case.id), times(case)].concat();
        for name in &metrics {
            let known = measured.and_then(|figures| figures.metrics.iter().find(|metric| metric.name == **name));
            cells.extend(metric_cells(known));
        }
        cells.extend(rates(case));
        let fact = |name: &&String| Cell::from(measured.and_then(|figures| figures.fact(name)).map(axes::value));
        cells.extend(facts.iter().map(fact));
        table.push(cells);
    }
    axes.add_common(&mut table);
    troubles::add_cases(&mut table, &axes, answer.cases.iter());
    add_peaks(&mut table, answer);
    doubts.iter().for_each(|doubt| table.warn(doubt.note()));
    table
}

/// Facts about cases that people see, with their labels.
const SHOWN_FACTS: [(&str, &str); 2] = [("mass_kept", "mass kept"), ("output_error", "output error")];

fn metric_cells(metric: Option<&MetricFigures>) -> [Cell; 3] {
    let figures = metric.map(|metric| metric.figures);
    let interval = figures.and_then(|figures| figures.interval);
    let values = [figures.map(|figures| figures.median), interval.map(|ends| ends.low), interval.map(|ends| ends.high)];
    values.map(Cell::number)
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

/// Lists the peaks used for `mfu` and `mbu`, if there are any.
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
