//! Gaps of devices as a table: how their time divides, or the longest gaps one by one.

use laptime_analyze::{
    Cause, Delay, DeviceGaps, Gaps, HostTime, LAUNCH, LEAST_EXTENT, LEAST_WORK, LongGap, Part, PartKind, TURNAROUND,
    VerdictKind,
};

use super::overview;
use crate::{Cell, Column, Table, kernel_name::short, layout::single};

/// Names of what the host did that are shown; the rest is summed up.
const NAMED: usize = 6;

/// Columns that a name gets.
const NAME_WIDTH: usize = 40;

/// A place of the host is named if it takes this share of the idle time.
const LEAST_PLACE: f64 = 0.1;

/// Lays out how the time of each device divides: rows that add up to its window.
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

/// What the host did, below the part that it is the cause of.
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
        (None, true) => "(launch under way)",
        (None, false) => "(nothing recorded)",
    }
}

/// Lays out the longest gaps one by one.
pub fn gap_list(answer: &Gaps) -> Table {
    let has_several = answer.devices.len() > 1;
    let device = Column::new("device", "device");
    let mut table = Table::new(
        "gaps",
        [
            if has_several { device } else { device.machine_only() },
            Column::new("start_ms", "at"),
            Column::new("length_ms", "gap"),
            Column::new("why", "cause").human_only(),
            Column::new("cause", "cause").machine_only(),
            Column::new("did", "the host did").human_only().drop(1),
            Column::new("host", "host").machine_only(),
            Column::new("next", "then").human_only().drop(2),
            Column::new("after", "after").machine_only(),
            Column::new("last", "before it").human_only().drop(3),
            Column::new("before", "before").machine_only(),
            Column::new("lap", "lap").drop(4),
        ],
    );
    for device in &answer.devices {
        device.longest.iter().for_each(|gap| table.push(gap_row(device, gap)));
    }
    let more: u64 = answer.devices.iter().map(|device| device.count - device.longest.len() as u64).sum();
    if more > 0 {
        let are = if more == 1 { "gap is" } else { "gaps are" };
        table.note(format!("{} shorter {are} not shown.", single(&Cell::Count(more))));
    }
    add_around(&mut table, answer);
    table
}

fn gap_row(device: &DeviceGaps, gap: &LongGap) -> Vec<Cell> {
    let short = |name: Option<&str>| Cell::from(name.map(|name| Cell::text(short(name, NAME_WIDTH))));
    let whole = |name: Option<&str>| Cell::from(name.map(Cell::text));
    vec![
        Cell::text(device.name.clone()),
        Cell::Nanos(gap.start.0),
        Cell::Nanos(gap.length.0),
        Cell::text(gap.cause.words()),
        Cell::text(gap.cause.key()),
        short(gap.host.as_deref()),
        whole(gap.host.as_deref()),
        short(Some(&gap.after)),
        whole(Some(&gap.after)),
        short(gap.before.as_deref()),
        whole(gap.before.as_deref()),
        whole(gap.lap.as_deref()),
    ]
}

/// What is told below either table: the trace, launches, laps, and the verdict at the end.
fn add_around(table: &mut Table, answer: &Gaps) {
    overview::add(table, &answer.overview);
    for device in &answer.devices {
        let suffix = if answer.devices.len() > 1 { format!(" of {}", device.name) } else { String::new() };
        add_facts(table, answer, device);
        add_launches(table, answer, device, &suffix);
        add_idlest(table, device, &suffix);
    }
    if answer.devices.iter().any(|device| device.is_stages) {
        table.note(
            "Only stages of streams were recorded, no kernels: gaps are those between stages, and kernels are stages.",
        );
    }
    let (turnaround, launch) = (single(&Cell::Nanos(TURNAROUND)), single(&Cell::Nanos(LAUNCH)));
    table.machine_fact("turnaround_limit_ms", Cell::Nanos(TURNAROUND));
    table.machine_fact("launch_limit_ms", Cell::Nanos(LAUNCH));
    let has = |kind: PartKind| answer.devices.iter().any(|device| device.parts.iter().any(|part| part.kind == kind));
    if has(PartKind::Gap(Cause::HeldBack)) {
        table.note(format!(
            "Queued work counts as unexplained if it began more than {turnaround} after the work before it, or {launch} \
             after its launch."
        ));
    }
    if has(PartKind::Gap(Cause::ToldToWait)) {
        table.note(
            "Told to wait: the host made a stream wait (`cudaStreamWaitEvent` or the like) before the launch, and no work \
             of another device ended when the work began. What it waited for is not in the trace.",
        );
    }
    for device in &answer.devices {
        add_places(table, device, answer.devices.len() > 1);
        add_findings(table, device, answer.devices.len() > 1);
    }
    for device in &answer.devices {
        table.note(verdict(device, answer.devices.len() > 1));
    }
}

fn add_findings(table: &mut Table, device: &DeviceGaps, is_one_of_many: bool) {
    for finding in &device.findings {
        let name = if is_one_of_many { format!("{}: ", device.name) } else { String::new() };
        table.note(format!("{name}{finding}"));
        table.machine_fact(
            key_of(device, &format!("finding_{}", finding.rule), is_one_of_many),
            Cell::text(finding.to_string()),
        );
    }
}

/// The key of a fact; where there are several devices it names the one.
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
    table.machine_fact(key("queue_depth"), Cell::from(launches.depth.map(Cell::Number)));
    table.machine_fact(key("queue_empty_share"), Cell::from(launches.empty_share.map(Cell::Share)));
    table.machine_fact(key("verdict"), Cell::text(device.verdict.kind.key()));
    table.machine_fact(key("verdict_share"), Cell::from(device.verdict.share.map(Cell::Share)));
}

fn add_launches(table: &mut Table, answer: &Gaps, device: &DeviceGaps, suffix: &str) {
    let launches = &device.launches;
    let count = |count: u64| single(&Cell::Count(count));
    if launches.launches == 0 {
        table.note(format!("No launch{suffix} is known: the trace does not tie work to calls."));
        return;
    }
    let each = launches.launched as f64 / launches.launches as f64;
    let mut told = format!("{}{suffix}", number_of_launches(launches.launches));
    if launches.launched > launches.launches {
        told += &format!(", {each:.1} kernels and copies a launch");
    }
    // A graph that holds several laps is launched less than once a lap.
    if let (Some((least, median @ 1.0.., most)), Some((unit, _))) = (launches.per_lap, &answer.laps) {
        let median = single(&Cell::Number(median));
        told += &format!(", {median} a lap of `{unit}` ({} to {})", count(least), count(most));
    }
    if launches.unknown > 0 {
        told += &format!("; of {} the launch is not known", pieces(&count(launches.unknown), "more "));
    }
    table.note(format!("{told}."));
    let delay = |delay: Option<Delay>, what: &str| {
        let delay = delay?;
        let [median, p95] = [delay.median, delay.p95].map(|time| single(&Cell::Nanos(time.round() as u64)));
        Some(format!("{median} {what} (p95 {p95}, {})", number_of_launches(delay.count)))
    };
    let delays =
        [delay(launches.latency, "to an idle stream"), delay(launches.queued, "to a busy one, its queue included")];
    let delays: Vec<String> = delays.into_iter().flatten().collect();
    if !delays.is_empty() {
        table.note(format!("From call to work: median {}.", delays.join("; ")));
    }
    if let (Some(depth), Some(empty)) = (launches.depth, launches.empty_share) {
        table.note(format!(
            "Launched and not begun: {} on average, none for {} of the time.",
            pieces(&if depth > 0.0 && depth < 0.001 { "<0.001".to_owned() } else { single(&Cell::Number(depth)) }, ""),
            single(&Cell::Share(empty))
        ));
    }
}

fn pieces(amount: &str, more: &str) -> String {
    let pieces = if amount == "1" { "piece" } else { "pieces" };
    format!("{amount} {more}{pieces} of work")
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
        table.note(format!(
            "The lap with most idle time{suffix} is {}: {idle}; the median lap has {median}.",
            lap_name(&lap.label)
        ));
    }
}

/// What a lap is called in a sentence; laps that were found have a number alone.
fn lap_name(label: &str) -> String {
    let is_number = label.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { format!("lap {label}") } else { format!("`{label}`") }
}

/// The sentence that the answer ends in.
fn verdict(device: &DeviceGaps, is_one_of_many: bool) -> String {
    let verdict = &device.verdict;
    let name = if is_one_of_many { format!("{}: ", device.name) } else { String::new() };
    let told = if verdict.kind == VerdictKind::TooLittle { too_little(device) } else { judged(device) };
    format!("{name}{}: {told}. Next: {}.", verdict.meaning(), verdict.next())
}

fn too_little(device: &DeviceGaps) -> String {
    let basis = &device.verdict.basis;
    let [extent, least] = [basis.extent, LEAST_EXTENT].map(|share| single(&Cell::Share(share)));
    let work = pieces(&single(&Cell::Count(basis.work)), "");
    format!("{work} in {extent} of the wall time (at least {LEAST_WORK} in {least} are needed)")
}

fn judged(device: &DeviceGaps) -> String {
    let verdict = &device.verdict;
    let [busy, extent] = [verdict.busy, verdict.basis.extent].map(|share| single(&Cell::Share(share)));
    let mut told =
        format!("kernels ran {busy} of the time from first to last work, which is {extent} of the wall time");
    if let Some(share) = verdict.share.map(|share| single(&Cell::Share(share))) {
        told += &match verdict.kind {
            VerdictKind::Saturated | VerdictKind::TooLittle => String::new(),
            VerdictKind::Host => format!("; the host was late for {share} of the rest"),
            VerdictKind::Sync => format!("; {share} of the rest would vanish if the host had not waited"),
            VerdictKind::DataLoading => format!("; the host loaded data for {share} of the rest"),
            VerdictKind::ColdStart => format!("; one-off initialisation is {share} of the rest"),
            VerdictKind::Copies => format!("; copies are {share} of the rest"),
            VerdictKind::Communication => format!("; communication alone is {share} of the rest"),
            VerdictKind::Streams => format!("; other streams are {share} of the rest"),
            VerdictKind::Turnaround => format!("; turnaround is {share} of the rest"),
            VerdictKind::Unexplained => format!("; {share} of the rest is unexplained"),
        };
    }
    told
}

/// The places inside which the host spent the idle time: inclusive, with what was inside.
fn add_places(table: &mut Table, device: &DeviceGaps, is_one_of_many: bool) {
    let host = &device.verdict.host;
    let idle = device.idle();
    for (key, place) in [("loading", &host.loading_place), ("starting", &host.starting_place), ("place", &host.place)] {
        let Some(place) = place.as_ref().filter(|place| place.time.0 as f64 >= LEAST_PLACE * idle.0 as f64) else {
            continue;
        };
        let [time, all] = crate::layout::in_one_unit([place.time, idle].map(|time| Cell::Nanos(time.0)));
        let inside = place.inside.as_ref().map_or_else(String::new, |(name, time)| {
            format!(", of which {} in `{}`", single(&Cell::Nanos(time.0)), short(name, NAME_WIDTH))
        });
        let on = if is_one_of_many { format!(" of {}", device.name) } else { String::new() };
        table.note(format!("{time} of {all} of idle time{on} inside `{}`{inside}.", short(&place.name, NAME_WIDTH)));
        let key = |suffix: &str| key_of(device, &format!("{key}_{suffix}"), is_one_of_many);
        table.machine_fact(key("name"), Cell::text(place.name.clone()));
        table.machine_fact(format!("{}_ms", key("time")), Cell::Nanos(place.time.0));
    }
}
