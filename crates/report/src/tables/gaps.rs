//! Gaps of devices as a table: the time by cause, or the longest gaps one by one.

use laptime_analyze::{
    Cause, Delay, DeviceGaps, Gaps, HostTime, LAUNCH, LongGap, Note, Part, PartKind, TURNAROUND, VerdictKind,
};

use super::overview;
use crate::{Cell, Column, Table, kernel_name::short, layout::single, table::table};

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
    let mut table = Table::new(
        "parts",
        [
            Column::new("tree", "part").human_only(),
            Column::new("device", "device").machine_only(),
            Column::new("part", "part").machine_only(),
            Column::new("doing", "doing").machine_only(),
            Column::new("share", "share"),
            Column::new("time_ms", "time"),
            Column::new("count", "count"),
            Column::new("median_ms", "median").drop(1),
            Column::new("max_ms", "longest").in_unit_of("median_ms").drop(2),
        ],
    );
    for device in &answer.devices {
        add_device(&mut table, device, answer.devices.len() > 1);
    }
    add_around(&mut table, answer);
    table
}

fn add_device(table: &mut Table, device: &DeviceGaps, is_one_of_many: bool) {
    let depth = usize::from(is_one_of_many);
    if is_one_of_many {
        let tree = Cell::tree(0, device.name.clone(), device.name.clone());
        let mut row = vec![tree, Cell::text(device.name.clone()), Cell::text("window"), Cell::Empty];
        row.extend([Cell::Share(1.0), Cell::Nanos(device.window.0), Cell::Empty, Cell::Empty, Cell::Empty]);
        table.push(row);
    }
    for part in &device.parts {
        table.push(part_row(device, part, depth));
        if part.kind == PartKind::Gap(Cause::Host) {
            add_host(table, device, depth + 1);
        }
    }
}

fn part_row(device: &DeviceGaps, part: &Part, depth: usize) -> Vec<Cell> {
    let stretch = |time: u64| if part.count > 0 { Cell::Nanos(time) } else { Cell::Empty };
    vec![
        Cell::tree(depth, part.kind.words(), part.kind.key()),
        Cell::text(device.name.clone()),
        Cell::text(part.kind.key()),
        Cell::Empty,
        Cell::Share(part.share),
        Cell::Nanos(part.time.0),
        Cell::Count(part.count),
        stretch(part.median.round() as u64),
        stretch(part.longest.0),
    ]
}

/// What the host did, below the part that it causes.
fn add_host(table: &mut Table, device: &DeviceGaps, depth: usize) {
    let row = |label: String, doing: &str, time: u64, count: Option<u64>| {
        vec![
            Cell::tree(depth, label, doing),
            Cell::text(device.name.clone()),
            Cell::text("host"),
            Cell::text(doing),
            Cell::Share(time as f64 / device.window.0.max(1) as f64),
            Cell::Nanos(time),
            Cell::from(count.map(Cell::Count)),
            Cell::Empty,
            Cell::Empty,
        ]
    };
    for did in device.host.iter().take(NAMED) {
        table.push(row(short(doing(did), NAME_WIDTH).into_owned(), doing(did), did.time.0, Some(did.count)));
    }
    let rest = device.host.get(NAMED..).unwrap_or(&[]);
    if !rest.is_empty() {
        let time = rest.iter().map(|did| did.time.0).sum();
        table.push(row(format!("{} more", rest.len()), "(others)", time, None));
    }
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
        let are = if more == 1 { "gap is" } else { "gaps are" };
        table.note(format!("{} shorter {are} not shown.", single(&Cell::Count(more))));
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
    let count = |count: u64| single(&Cell::Count(count));
    if launches.launches == 0 {
        table.legend(format!("The trace does not contain the launches of the work{suffix}."));
        return;
    }
    let each = launches.launched as f64 / launches.launches as f64;
    let mut text = format!("{}{suffix}", number_of_launches(launches.launches));
    if launches.launched > launches.launches {
        text += &format!(", {each:.1} kernels and copies per launch");
    }
    // A graph that holds several laps is launched less than once per lap.
    if let (Some((least, median @ 1.0.., most)), Some((unit, _))) = (launches.per_lap, &answer.laps) {
        let median = single(&Cell::Number(median));
        text += &format!(", {median} per lap of `{unit}` ({} to {})", count(least), count(most));
    }
    if launches.unknown > 0 {
        text += &format!("; {} without a known launch", pieces(&count(launches.unknown)));
    }
    table.legend(format!("{text}."));
    let delay = |delay: Option<Delay>, what: &str| {
        let delay = delay?;
        let [median, p95] = [delay.median, delay.p95].map(|time| single(&Cell::Nanos(time.round() as u64)));
        Some(format!("{median} {what} (p95 {p95}, {})", number_of_launches(delay.count)))
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

fn pieces(amount: &str) -> String {
    let pieces = if amount == "1" { "kernel or copy" } else { "kernels and copies" };
    format!("{amount} {pieces}")
}

fn number_of_launches(count: u64) -> String {
    match count {
        1 => "1 launch".to_owned(),
        count => format!("{} launches", single(&Cell::Count(count))),
    }
}

fn add_idlest(table: &mut Table, device: &DeviceGaps, suffix: &str) {
    if let Some(lap) = &device.idlest {
        let [idle, median] =
            crate::layout::in_one_unit([Cell::Nanos(lap.idle.0), Cell::Nanos(lap.median.round() as u64)]);
        table.note(format!("Most idle time{suffix}: {}, {idle} (median lap: {median}).", lap_name(&lap.label)));
    }
}

/// The name of a lap in a sentence; detected laps only have a number.
fn lap_name(label: &str) -> String {
    let is_number = label.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { format!("lap {label}") } else { format!("`{label}`") }
}

/// The verdict in a sentence.
fn verdict(device: &DeviceGaps, is_one_of_many: bool) -> String {
    let verdict = &device.verdict;
    let name = if is_one_of_many { format!("{}: ", device.name) } else { String::new() };
    let figures = if verdict.kind == VerdictKind::TooLittle { too_little(device) } else { figures(device) };
    format!("{name}{}: {figures} [{}].", verdict.meaning(), verdict.kind.id())
}

fn too_little(device: &DeviceGaps) -> String {
    let basis = &device.verdict.basis;
    let extent = single(&Cell::Share(basis.extent));
    format!("{} in {extent} of the wall time", pieces(&single(&Cell::Count(basis.work))))
}

fn figures(device: &DeviceGaps) -> String {
    let verdict = &device.verdict;
    let busy = single(&Cell::Share(verdict.busy));
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
    if let Some(share) = verdict.share.map(|share| single(&Cell::Share(share))) {
        text += &match verdict.kind {
            VerdictKind::Saturated | VerdictKind::TooLittle => String::new(),
            VerdictKind::Host => format!("; {share} of the rest was spent waiting for the host"),
            VerdictKind::Sync => format!("; {share} of the rest follows host syncs"),
            VerdictKind::DataLoading => format!("; {share} of the rest was spent in data loading"),
            VerdictKind::ColdStart => format!("; {share} of the rest is initialisation"),
            VerdictKind::Allocation => format!("; {share} of the rest was spent on allocations"),
            VerdictKind::Launch => format!("; {share} of the rest was spent waiting for launches"),
            VerdictKind::Copies => format!("; {share} of the rest was spent on copies"),
            VerdictKind::Communication => format!("; {share} of the rest was spent on communication"),
            VerdictKind::Streams => format!("; {share} of the rest was spent waiting for other streams"),
            VerdictKind::Turnaround => format!("; {share} of the rest is pauses between kernels"),
            VerdictKind::Unexplained => format!("; {share} of the rest is unexplained"),
        };
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
        let [time, all] = crate::layout::in_one_unit([place.time, idle].map(|time| Cell::Nanos(time.0)));
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
