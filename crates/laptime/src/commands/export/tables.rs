//! The tables of analyses and of the results of runs.

use laptime_analyze::{Cause, DeviceSummary, Group, Laps, PartKind, Prepared, Reported, TraceSummary, Traffic};
use laptime_stats::Sorted;
use laptime_trace::format::{
    WriteError,
    parquet::{self, Column, Part},
};
use laptime_trace::run::{CaseResult, Outcome, Run};
use laptime_trace::{Nanos, Trace};

/// The table that is written last, and marks a rank as complete.
pub const LAST: &str = "summary";

pub fn write_trace(trace: &Trace, source: &str, part: &Part) -> Result<(), WriteError> {
    // Mark the rank as incomplete.
    part.write(LAST, 0, &[])?;
    for write in [parquet::spans, parquet::flows, parquet::marks, parquet::values] {
        write(trace, part)?;
    }
    write_collectives(trace, part)?;
    let prepared = Prepared::of(trace);
    let laps = prepared.laps(None).ok();
    write_laps(laps.as_ref(), part)?;
    let summary = prepared.summary();
    drop(prepared);
    write_findings(&summary, part)?;
    write_summary(trace, source, &summary, laps.as_ref(), part)
}

fn write_laps(found: Option<&Laps>, part: &Part) -> Result<(), WriteError> {
    let Some(found) = found else { return part.write("laps", 0, &[]) };
    let laps = &found.laps;
    let columns = [
        Column::delta("lap", |row| row as u64),
        Column::text("unit", |_| found.name.as_str()),
        Column::text("unit_source", |_| found.source.word()),
        Column::text("label", |row| laps[row].label.as_str()),
        Column::delta("start_ns", |row| laps[row].start),
        Column::delta("duration_ns", |row| laps[row].length()),
        Column::optional_delta("busy_ns", |row| laps[row].busy),
        Column::optional_delta("idle_ns", |row| laps[row].idle()),
        Column::count("syncs", |row| Some(laps[row].waits)),
        Column::delta("sync_ns", |row| laps[row].waiting),
        Column::count("launches", |row| laps[row].launches),
        Column::flag("is_cold", |row| laps[row].is_cold),
        Column::flag("is_slow", |row| laps[row].is_slow),
    ];
    part.write("laps", laps.len(), &columns)
}

/// Writes the collectives of this rank. A query can join those of all ranks by communicator and sequence number.
fn write_collectives(trace: &Trace, part: &Part) -> Result<(), WriteError> {
    let found = laptime_analyze::rank_collectives(trace);
    let columns = [
        Column::text("communicator", |row| found[row].communicator.as_str()),
        Column::count("sequence", |row| found[row].sequence),
        Column::text("operation", |row| found[row].operation.as_str()),
        Column::optional_text("algorithm", |row| found[row].algorithm.as_deref()),
        Column::count("step", |row| found[row].step),
        Column::delta("start_ns", |row| found[row].start_ns),
        Column::delta("duration_ns", |row| found[row].duration_ns),
        Column::count("bytes", |row| found[row].bytes),
        Column::optional_text("dtype", |row| found[row].dtype.as_deref()),
        Column::count("group_size", |row| found[row].group_size),
    ];
    part.write("collectives", found.len(), &columns)
}

fn write_findings(summary: &TraceSummary, part: &Part) -> Result<(), WriteError> {
    let diagnosis = &summary.diagnosis;
    let found: Vec<Reported> = diagnosis.findings.iter().map(|finding| finding.reported(diagnosis.whole_ns)).collect();
    let next = |row: usize| found[row].fixes.first().map(|fix| fix.text.as_str());
    let line = |row: usize| found[row].evidence.iter().find_map(|evidence| evidence.line.as_deref());
    let columns = [
        Column::text("id", |row| found[row].id.as_str()),
        Column::text("severity", |row| found[row].severity.word()),
        Column::text("title", |row| found[row].title.as_str()),
        Column::text("summary", |row| found[row].summary.as_str()),
        Column::text("meaning", |row| found[row].meaning.as_str()),
        Column::optional_text("fix", next),
        Column::optional_text("line", line),
        Column::count("gain_ns", |row| found[row].gain.as_ref().map(|gain| rounded(gain.ns))),
        Column::number("gain_share", |row| found[row].gain.as_ref().and_then(|gain| gain.share)),
    ];
    part.write("findings", found.len(), &columns)
}

/// Writes a row per device, or one row for a trace without devices.
fn write_summary(
    trace: &Trace,
    source: &str,
    summary: &TraceSummary,
    laps: Option<&Laps>,
    part: &Part,
) -> Result<(), WriteError> {
    let (devices, overview) = (&summary.devices, &summary.overview);
    let worst = summary.diagnosis.findings.first().map(|finding| finding.finding.rule);
    let (world_size, origin) = (trace.metadata.world_size(), trace.origin.unix_nanos);
    let mut columns = vec![
        Column::text("trace", |_| source),
        Column::count("world_size", move |_| world_size),
        Column::whole("clock_origin_unix_ns", move |_| origin),
        Column::count("clock_uncertainty_ns", |_| overview.clock_uncertainty.map(|nanos| nanos.0)),
        Column::count("wall_ns", |_| Some(overview.wall.0)),
        Column::count("not_recorded_ns", |_| Some(overview.not_recorded.0)),
        Column::count("spans", |_| Some(overview.spans)),
        Column::count("dropped_events", |_| Some(overview.dropped)),
        Column::flag("is_cut_off", |_| trace.is_cut_off),
        Column::count("syncs", |_| Some(overview.waits.map_or(0, |waits| waits.count))),
        Column::count("sync_ns", |_| Some(overview.waits.map_or(0, |waits| waits.time.0))),
        Column::optional_text("lap_unit", |_| laps.map(|laps| laps.name.as_str())),
        Column::count("laps", |_| laps.map(|laps| laps.laps.len() as u64)),
        Column::count("lap_median_ns", |_| laps.map(|laps| rounded(laps.figures.length.median))),
        Column::optional_text("bottleneck", move |_| worst),
        Column::whole("device", |row| devices.get(row)?.number),
        Column::optional_text("device_name", |row| Some(devices.get(row)?.gaps.name.as_str())),
    ];
    let mut figure = |name: String, value: fn(&DeviceSummary) -> Option<Nanos>| {
        columns.push(Column::count(name, move |row| value(devices.get(row)?).map(|nanos| nanos.0)));
    };
    figure("window_ns".to_owned(), |device| Some(device.gaps.window));
    figure("busy_ns".to_owned(), |device| Some(busy(device)));
    figure("kernel_ns".to_owned(), |device| Some(part_time(device, PartKind::Kernels)));
    figure("exposed_communication_ns".to_owned(), |device| Some(part_time(device, PartKind::Communication)));
    figure("exposed_copy_ns".to_owned(), |device| Some(part_time(device, PartKind::Copies)));
    figure("idle_ns".to_owned(), |device| Some(device.gaps.window.saturating_sub(busy(device))));
    figure("communication_ns".to_owned(), |device| traffic(device.overlap.all_communication).0);
    figure("hidden_communication_ns".to_owned(), |device| traffic(device.overlap.all_communication).1);
    figure("copy_ns".to_owned(), |device| traffic(device.overlap.all_copies).0);
    figure("hidden_copy_ns".to_owned(), |device| traffic(device.overlap.all_copies).1);
    columns.push(Column::count("launches", |row| Some(devices.get(row)?.gaps.launches.launches)));
    columns.push(Column::count("gaps", |row| Some(devices.get(row)?.gaps.count)));
    for cause in Cause::ALL {
        let time = move |row: usize| Some(part_time(devices.get(row)?, PartKind::Gap(cause)).0);
        columns.push(Column::count(format!("idle_{}_ns", cause.key()), time));
    }
    for group in Group::ALL {
        let of_group = move |device: &DeviceSummary| {
            device.groups.iter().find(|(known, _)| *known == group).map_or(0, |(_, time)| time.0)
        };
        columns.push(Column::count(format!("group_{}_ns", group.word()), move |row| devices.get(row).map(of_group)));
    }
    part.write(LAST, devices.len().max(1), &columns)
}

/// The time of a part of a device's window.
fn part_time(device: &DeviceSummary, kind: PartKind) -> Nanos {
    Nanos(device.gaps.parts.iter().filter(|part| part.kind == kind).map(|part| part.time.0).sum())
}

fn busy(device: &DeviceSummary) -> Nanos {
    let work = [PartKind::Kernels, PartKind::Communication, PartKind::Copies];
    Nanos(work.into_iter().map(|kind| part_time(device, kind).0).sum())
}

/// The time of copies or communication, and its hidden part.
fn traffic(found: Option<Traffic>) -> (Option<Nanos>, Option<Nanos>) {
    let of = |time: fn(&Traffic) -> Nanos| Some(found.as_ref().map_or(Nanos(0), time));
    (of(|traffic| traffic.time), of(|traffic| traffic.hidden))
}

fn rounded(nanos: f64) -> u64 {
    nanos.round().max(0.0) as u64
}

/// Writes the results of a run and all of their samples.
pub fn write_results(run: Option<&Run>, results: &[CaseResult], part: &Part) -> Result<(), WriteError> {
    write_samples(results, part)?;
    let cases: Vec<String> = results.iter().map(|result| result.case.to_string()).collect();
    let troubles: Vec<Option<String>> = results.iter().map(|result| trouble(&result.outcome)).collect();
    let walls: Vec<Option<Sorted<u64>>> =
        results.iter().map(|result| Some(Sorted::<u64>::from_unsorted(result.measured()?.wall_ns.clone()))).collect();
    let measured = |row: usize| results[row].measured();
    let mut columns = case_columns(&cases, move |row| &results[row], |row| row);
    columns.extend([
        Column::text("environment", |row| results[row].environment.as_str()),
        Column::optional_text("node", |row| node_of(run?, &results[row].environment)),
        Column::optional_text("build_commit", |_| Some(run?.environment.build.commit.as_str())),
        Column::optional_text("started_at", |_| Some(run?.started.as_str())),
        Column::text("outcome", |row| results[row].outcome.word()),
        Column::optional_text("reason", |row| troubles[row].as_deref()),
        Column::count("iterations", |row| Some(measured(row)?.wall_ns.len() as u64)),
        Column::count("median_ns", |row| walls[row].as_ref()?.median().map(rounded)),
        Column::count("min_ns", |row| walls[row].as_ref()?.quantile(0.0).map(rounded)),
        Column::count("max_ns", |row| walls[row].as_ref()?.quantile(1.0).map(rounded)),
        Column::count("prepare_ns", |row| Some(measured(row)?.prepare_ns)),
        Column::count("peak_bytes", |row| measured(row)?.peak_bytes),
        Column::count("peak_rss_bytes", |row| measured(row)?.peak_rss_bytes),
    ]);
    part.write("results", results.len(), &columns)
}

fn node_of<'a>(run: &'a Run, environment: &str) -> Option<&'a str> {
    run.environment.machine.node.as_deref().filter(|_| run.environment_fingerprint == environment)
}

/// One iteration: the result it belongs to, its number, and whether it was a warm-up.
type Sample = (usize, usize, bool);

fn write_samples(results: &[CaseResult], part: &Part) -> Result<(), WriteError> {
    let of = |(at, result): (usize, &CaseResult)| -> Vec<Sample> {
        let Some(measured) = result.measured() else { return Vec::new() };
        let warmups = (0..measured.warmup_ns.len()).map(|iteration| (at, iteration, true));
        warmups.chain((0..measured.wall_ns.len()).map(|iteration| (at, iteration, false))).collect()
    };
    let samples: Vec<Sample> = results.iter().enumerate().flat_map(of).collect();
    let cases: Vec<String> = results.iter().map(|result| result.case.to_string()).collect();
    let measured = |row: usize| results[samples[row].0].measured().map(|measured| (measured, samples[row].1));
    let counted = |row: usize| measured(row).filter(|_| !samples[row].2);
    let wall = |row: usize| {
        let (measured, at) = measured(row)?;
        if samples[row].2 { measured.warmup_ns.get(at) } else { measured.wall_ns.get(at) }.copied()
    };
    let metrics = |row: usize| {
        let Some((measured, at)) = measured(row) else { return Vec::new() };
        let metrics = if samples[row].2 { &measured.warmup_metrics } else { &measured.metrics };
        metrics.iter().map(|metric| (metric.name.as_str(), metric.values.get(at).copied().flatten())).collect()
    };
    let mut columns = case_columns(&cases, |row| &results[samples[row].0], |row| samples[row].0);
    columns.extend([
        Column::delta("iteration", |row| samples[row].1 as u64),
        Column::flag("is_warmup", |row| samples[row].2),
        Column::optional_delta("wall_ns", wall),
        Column::optional_delta("device_ns", |row| {
            counted(row).and_then(|(measured, at)| *measured.device_ns.get(at)?)
        }),
        Column::optional_delta("busy_ns", |row| counted(row).and_then(|(measured, at)| *measured.busy_ns.get(at)?)),
        Column::number_map("metrics", metrics),
    ]);
    part.write("samples", samples.len(), &columns)
}

/// The columns that name a case.
fn case_columns<'a>(
    cases: &'a [String],
    result: impl Fn(usize) -> &'a CaseResult + Copy + 'a,
    at: impl Fn(usize) -> usize + 'a,
) -> Vec<Column<'a>> {
    let axes = move |row| result(row).case.values().map(|(axis, value)| (axis, value.to_string())).collect();
    vec![
        Column::text("workload", move |row| result(row).workload.as_str()),
        Column::text("device", move |row| result(row).device.as_str()),
        Column::text("case_name", move |row| cases[at(row)].as_str()),
        Column::text_map("axes", axes),
        Column::whole("process", move |row| Some(i64::from(result(row).run))),
    ]
}

/// Why a case was not measured.
fn trouble(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Measured(_) => None,
        Outcome::Skipped { reason } => Some(reason.clone()),
        Outcome::OutOfMemory { .. } => Some("out of memory".to_owned()),
        Outcome::Failed { errors, .. } => Some(errors.join(": ")),
    }
}
