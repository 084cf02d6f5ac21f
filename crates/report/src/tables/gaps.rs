//! Gaps of devices as a table: the time by cause, or the longest gaps one by one.

use std::borrow::Cow;

use laptime_analyze::{
    Cause, Delay, DeviceGaps, Gaps, HostTime, LAUNCH, LongGap, Note, PartKind, TURNAROUND, Verdict, VerdictKind,
};

use super::overview;
use crate::layout::{counted, in_one_unit, single};
use crate::{Cell, Table, kernel_name::short, table::table};

/// Host functions that are named; the rest is summed up.
const NAMED: usize = 6;

/// The width of a name.
const NAME_WIDTH: usize = 40;

/// A place in host code is named if it takes this share of the idle time.
const LEAST_PLACE: f64 = 0.1;

/// From this share of the wall time on, the device was in use during the whole trace.
const WHOLE: f64 = 0.9;

/// Lays out the time of each device by cause: rows that add up to its window.
pub fn gaps(answer: &Gaps) -> Table {
    let depth = usize::from(answer.devices.len() > 1);
    let rows = answer.devices.iter().flat_map(|device| rows(device, depth).into_iter().map(move |row| (device, row)));
    let mut table = table!("parts", rows, (device, (tree, part, doing, [share, time], count, ends)): (&DeviceGaps, Row<'_>) => [
        ("tree", "part").human_only() => tree,
        ("device", "device").machine_only() => Cell::text(device.name.clone()),
        ("part", "part").machine_only() => Cell::text(part),
        ("doing", "doing").machine_only() => doing.map(Cell::text).into(),
        ("share", "share") => share,
        ("time_ms", "time") => time,
        ("count", "count") => count.map(Cell::Count).into(),
        ("median_ms", "median").drop(1) => ends.map(|[median, _]| Cell::Nanos(median)).into(),
        ("max_ms", "longest").in_unit_of("median_ms").drop(2) => ends.map(|[_, longest]| Cell::Nanos(longest)).into(),
    ]);
    add_around(&mut table, answer);
    table
}

/// A node of the tree, the part, what the host did, share and time, the count, and the median and longest gap.
type Row<'a> = (Cell, &'a str, Option<&'a str>, [Cell; 2], Option<u64>, Option<[u64; 2]>);

/// The parts of a device, below a row for the device if there are several.
fn rows(device: &DeviceGaps, depth: usize) -> Vec<Row<'_>> {
    let (name, window) = (&device.name, device.window.0);
    let whole = (Cell::tree(0, name, name), "window", None, [Cell::Share(1.0), Cell::Nanos(window)], None, None);
    let mut rows: Vec<Row<'_>> = (depth > 0).then_some(whole).into_iter().collect();
    for part in &device.parts {
        let tree = Cell::tree(depth, part.kind.words(), part.kind.key());
        let ends = (part.count > 0).then_some([part.median.round() as u64, part.longest.0]);
        let times = [Cell::Share(part.share), Cell::Nanos(part.time.0)];
        rows.push((tree, part.kind.key(), None, times, Some(part.count), ends));
        if part.kind == PartKind::Gap(Cause::Host) {
            rows.extend(host_rows(device, depth + 1));
        }
    }
    rows
}

/// What the host did, below the part that it causes.
fn host_rows(device: &DeviceGaps, depth: usize) -> Vec<Row<'_>> {
    let row = |label: Cow<'_, str>, doing, time: u64, count| -> Row<'_> {
        let times = [Cell::Share(time as f64 / device.window.0.max(1) as f64), Cell::Nanos(time)];
        (Cell::tree(depth, label, doing), "host", Some(doing), times, count, None)
    };
    let named = device.host.iter().take(NAMED);
    let mut rows: Vec<Row<'_>> =
        named.map(|did| row(short(doing(did), NAME_WIDTH), doing(did), did.time.0, Some(did.count))).collect();
    let rest = device.host.get(NAMED..).unwrap_or(&[]);
    if !rest.is_empty() {
        let time = rest.iter().map(|did| did.time.0).sum();
        rows.push(row(format!("{} more", rest.len()).into(), "(others)", time, None));
    }
    rows
}

fn doing(did: &HostTime) -> &str {
    match (&did.name, did.is_launched) {
        (Some(name), _) => name,
        (None, true) => "(launching)",
        (None, false) => "(nothing recorded)",
    }
}

/// Lays out the longest gaps one by one.
pub fn gap_list(answer: &Gaps) -> Table {
    let has_several = answer.devices.len() > 1;
    let longest = answer.devices.iter().flat_map(|device| device.longest.iter().map(move |gap| (device, gap)));
    let mut table = table!("gaps", longest, (device, gap): (&DeviceGaps, &LongGap) => {
        let short = |name: Option<&str>| Cell::from(name.map(|name| Cell::text(short(name, NAME_WIDTH))));
        let whole = |name: Option<&str>| Cell::from(name.map(Cell::text));
    } [
        ("device", "device").shown_if(has_several) => Cell::text(device.name.clone()),
        ("start_ms", "at") => Cell::Nanos(gap.start.0),
        ("length_ms", "gap") => Cell::Nanos(gap.length.0),
        ("why", "cause").human_only() => Cell::text(gap.cause.words()),
        ("cause", "cause").machine_only() => Cell::text(gap.cause.key()),
        ("did", "host").human_only().drop(1) => short(gap.host.as_deref()),
        ("host", "host").machine_only() => whole(gap.host.as_deref()),
        ("next", "next work").human_only().drop(2) => short(Some(&gap.after)),
        ("after", "after").machine_only() => whole(Some(&gap.after)),
        ("last", "previous work").human_only().drop(3) => short(gap.before.as_deref()),
        ("before", "before").machine_only() => whole(gap.before.as_deref()),
        ("lap", "lap").drop(4) => whole(gap.lap.as_deref()),
    ]);
    let more: u64 = answer.devices.iter().map(|device| device.count - device.longest.len() as u64).sum();
    if more > 0 {
        table.note(format!("{} not shown.", counted(more, "shorter gap is", "shorter gaps are")));
    }
    add_around(&mut table, answer);
    table
}

/// What both tables show below their rows: the verdict, then launches, laps and how to read the parts.
fn add_around(table: &mut Table, answer: &Gaps) {
    overview::add(table, &answer.overview);
    let has_several = answer.devices.len() > 1;
    for device in &answer.devices {
        table.note(verdict(device, has_several));
        add_places(table, device, has_several);
        table.note(format!("Try: {}.", device.verdict.next()));
    }
    for device in &answer.devices {
        let suffix = if has_several { format!(" of {}", device.name) } else { String::new() };
        add_facts(table, answer, device);
        add_launches(table, answer, device, &suffix);
        add_idlest(table, device, &suffix);
        add_findings(table, device, has_several);
    }
    if answer.devices.iter().any(|device| device.is_stages) {
        table.warn(Note::new("stages-only", "no kernels were recorded; gaps are the gaps between stages"));
    }
    table.machine_fact("turnaround_limit_ms", Cell::Nanos(TURNAROUND));
    table.machine_fact("launch_limit_ms", Cell::Nanos(LAUNCH));
    add_legend(table, answer);
}

/// How to read the parts.
fn add_legend(table: &mut Table, answer: &Gaps) {
    let has = |kind: PartKind| answer.devices.iter().any(|device| device.parts.iter().any(|part| part.kind == kind));
    if has(PartKind::Gap(Cause::HeldBack)) {
        let (turnaround, launch) = (single(&Cell::Nanos(TURNAROUND)), single(&Cell::Nanos(LAUNCH)));
        table.legend(format!(
            "Queued work is unexplained if it starts more than {turnaround} after the previous work or {launch} after its \
             launch."
        ));
    }
    if has(PartKind::Gap(Cause::StreamWait)) {
        table.legend(
            "Stream wait: the host made the stream wait for an event (`cudaStreamWaitEvent` or similar) before the launch. \
             The trace does not show what it waited for.",
        );
    }
}

/// Notes about further findings; the verdict covers syncs if they are the main cause.
fn add_findings(table: &mut Table, device: &DeviceGaps, is_one_of_many: bool) {
    for finding in &device.findings {
        let name = if is_one_of_many { format!("{}: ", device.name) } else { String::new() };
        if device.verdict.kind != VerdictKind::Sync {
            table.warn(Note::new(finding.rule, format!("{name}{}", finding.evidence)));
        }
        table.machine_fact(key_of(device, &overview::key(finding), is_one_of_many), Cell::text(finding.to_string()));
    }
}

/// The key of a fact, with the device if there are several.
fn key_of(device: &DeviceGaps, key: &str, is_one_of_many: bool) -> String {
    if is_one_of_many { format!("{key}@{}", device.name.replace(' ', "_")) } else { key.to_owned() }
}

fn add_facts(table: &mut Table, answer: &Gaps, device: &DeviceGaps) {
    let key = |key: &str| key_of(device, key, answer.devices.len() > 1);
    let timed = |key: String| format!("{key}_ms");
    let launches = &device.launches;
    let nanos = |delay: Option<Delay>, of: fn(Delay) -> f64| {
        Cell::from(delay.map(|delay| Cell::Nanos(of(delay).round() as u64)))
    };
    table.machine_fact(timed(key("window")), Cell::Nanos(device.window.0));
    table.machine_fact(timed(key("idle")), Cell::Nanos(device.idle().0));
    table.machine_fact(key("window_share"), Cell::Share(device.verdict.basis.extent));
    table.machine_fact(key("busy_share"), Cell::Share(device.verdict.busy));
    table.machine_fact(key("gaps"), Cell::Count(device.count));
    table.machine_fact(key("launches"), Cell::Count(launches.launches));
    table.machine_fact(key("launched_work"), Cell::Count(launches.launched));
    table.machine_fact(key("work_without_launch"), Cell::Count(launches.unknown));
    table
        .machine_fact(key("launches_per_lap"), Cell::from(launches.per_lap.map(|(_, median, _)| Cell::Number(median))));
    table.machine_fact(timed(key("latency_median")), nanos(launches.latency, |delay| delay.median));
    table.machine_fact(timed(key("latency_p95")), nanos(launches.latency, |delay| delay.p95));
    table.machine_fact(timed(key("queued_median")), nanos(launches.queued, |delay| delay.median));
    table.machine_fact(timed(key("queued_p95")), nanos(launches.queued, |delay| delay.p95));
    table.machine_fact(key("queue_depth"), Cell::number(launches.depth));
    table.machine_fact(key("queue_empty_share"), Cell::share(launches.empty_share));
    table.machine_fact(key("verdict"), Cell::text(device.verdict.kind.key()));
    table.machine_fact(key("verdict_share"), Cell::share(device.verdict.share));
}

fn add_launches(table: &mut Table, answer: &Gaps, device: &DeviceGaps, suffix: &str) {
    let launches = &device.launches;
    let launched = |count: u64| counted(count, "launch", "launches");
    if launches.launches == 0 {
        table.legend(format!("The trace does not contain the launches of the work{suffix}."));
        return;
    }
    let each = launches.launched as f64 / launches.launches as f64;
    let mut text = format!("{}{suffix}", launched(launches.launches));
    if launches.launched > launches.launches {
        text += &format!(", {each:.1} kernels and copies per launch");
    }
    // A graph that holds several laps is launched less than once per lap.
    if let (Some((least, median @ 1.0.., most)), Some((unit, _))) = (launches.per_lap, &answer.laps) {
        let [least, most] = [least, most].map(|count| single(&Cell::Count(count)));
        text += &format!(", {} per lap of `{unit}` ({least} to {most})", single(&Cell::Number(median)));
    }
    if launches.unknown > 0 {
        text += &format!("; {} without a known launch", pieces(launches.unknown));
    }
    table.legend(format!("{text}."));
    let delay = |delay: Option<Delay>, what: &str| {
        let delay = delay?;
        let [median, p95] = [delay.median, delay.p95].map(|time| single(&Cell::Nanos(time.round() as u64)));
        Some(format!("{median} {what} (p95 {p95}, {})", launched(delay.count)))
    };
    let delays =
        [delay(launches.latency, "to an idle stream"), delay(launches.queued, "to a busy stream, queueing included")];
    let delays: Vec<String> = delays.into_iter().flatten().collect();
    if !delays.is_empty() {
        table.legend(format!("Launch latency: median {}.", delays.join("; ")));
    }
    if let (Some(depth), Some(empty)) = (launches.depth, launches.empty_share) {
        let depth = if depth > 0.0 && depth < 0.001 { "<0.001".to_owned() } else { single(&Cell::Number(depth)) };
        let empty = single(&Cell::Share(empty));
        table.legend(format!("Queue depth: {depth} on average; the queue was empty {empty} of the time."));
    }
}

fn pieces(count: u64) -> String {
    counted(count, "kernel or copy", "kernels and copies")
}

fn add_idlest(table: &mut Table, device: &DeviceGaps, suffix: &str) {
    if let Some(lap) = &device.idlest {
        let [idle, median] = in_one_unit([lap.idle.0, lap.median.round() as u64].map(Cell::Nanos));
        // Detected laps only have a number.
        let is_number = lap.label.bytes().all(|byte| byte.is_ascii_digit());
        let name = if is_number { format!("lap {}", lap.label) } else { format!("`{}`", lap.label) };
        table.note(format!("Most idle time{suffix}: {name}, {idle} (median lap: {median})."));
    }
}

/// The verdict in a sentence.
fn verdict(device: &DeviceGaps, is_one_of_many: bool) -> String {
    let verdict = &device.verdict;
    let name = if is_one_of_many { format!("{}: ", device.name) } else { String::new() };
    format!("{name}{}: {} [{}].", verdict.meaning(), figures(verdict), verdict.kind.id())
}

fn figures(verdict: &Verdict) -> String {
    let [busy, extent] = [verdict.busy, verdict.basis.extent].map(|share| single(&Cell::Share(share)));
    if verdict.kind == VerdictKind::TooLittle {
        return format!("{} in {extent} of the wall time", pieces(verdict.basis.work));
    }
    let mut text = format!("kernels ran {busy} of the time");
    // The time from the first work to the last may be a small part of the trace.
    if verdict.basis.extent < WHOLE {
        let extent = single(&Cell::Share(verdict.basis.extent));
        let window = if verdict.basis.is_since_lap {
            "from the first lap to the last work"
        } else {
            "between first and last work"
        };
        text += &format!(" {window} ({extent} of the wall time)");
    }
    let of_rest = match verdict.kind {
        VerdictKind::Saturated | VerdictKind::TooLittle => return text,
        VerdictKind::Host => "was spent waiting for the host",
        VerdictKind::Sync => "follows host syncs",
        VerdictKind::DataLoading => "was spent in data loading",
        VerdictKind::ColdStart => "is initialisation",
        VerdictKind::Allocation => "was spent on allocations",
        VerdictKind::Launch => "was spent waiting for launches",
        VerdictKind::Copies => "was spent on copies",
        VerdictKind::Communication => "was spent on communication",
        VerdictKind::Streams => "was spent waiting for other streams",
        VerdictKind::Turnaround => "is pauses between kernels",
        VerdictKind::Unexplained => "is unexplained",
    };
    if let Some(share) = verdict.share.map(|share| single(&Cell::Share(share))) {
        text += &format!("; {share} of the rest {of_rest}");
    }
    text
}

/// The places in which the host spent the idle time, children included.
fn add_places(table: &mut Table, device: &DeviceGaps, is_one_of_many: bool) {
    let host = &device.verdict.host;
    let idle = device.idle();
    for (key, place) in [("loading", &host.loading_place), ("starting", &host.starting_place), ("place", &host.place)] {
        let Some(place) = place.as_ref().filter(|place| place.time.0 as f64 >= LEAST_PLACE * idle.0 as f64) else {
            continue;
        };
        let [time, all] = in_one_unit([place.time, idle].map(|time| Cell::Nanos(time.0)));
        let inside = place.inside.as_ref().map_or_else(String::new, |(name, time)| {
            format!(" ({} of it in `{}`)", single(&Cell::Nanos(time.0)), short(name, NAME_WIDTH))
        });
        let on = if is_one_of_many { format!(" of {}", device.name) } else { String::new() };
        table.note(format!("{time} of {all} idle time{on} is spent in `{}`{inside}.", short(&place.name, NAME_WIDTH)));
        let key = |suffix: &str| key_of(device, &format!("{key}_{suffix}"), is_one_of_many);
        table.machine_fact(key("name"), Cell::text(place.name.clone()));
        table.machine_fact(format!("{}_ms", key("time")), Cell::Nanos(place.time.0));
    }
}
