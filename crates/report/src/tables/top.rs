//! The ranking of names as a table.

use laptime_analyze::{GroupTime, Operation, Top, plural};
use laptime_trace::Nanos;

use super::overview;
use crate::{Cell, Table, table::table};

/// Which names are shown, and in which order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranking {
    /// The most names that are shown; a note counts the rest.
    pub most: usize,
    /// Whose rows are shown.
    pub side: Side,
    /// What comes first.
    pub sort: Sort,
    /// Shows only names that contain this, ignoring case; empty for all.
    pub matching: String,
}

impl Ranking {
    /// All names of both sides, by their own time.
    pub fn all() -> Self {
        Self { most: usize::MAX, side: Side::Both, sort: Sort::Own, matching: String::new() }
    }
}

/// The host, devices, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The host.
    Host,
    /// Devices.
    Device,
    /// Both.
    Both,
}

/// The sort key, largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Their own time.
    Own,
    /// Their whole time.
    Total,
    /// The device time of the work that they launched; for a kernel, its own.
    Device,
    /// How often they ran.
    Count,
}

/// Lays out names.
pub fn top(answer: &Top, ranking: &Ranking) -> Table {
    let chosen = chosen(answer, ranking);
    let mut table = table!("operations", chosen.iter().copied().take(ranking.most), operation: &Operation => {
        let time = |time: Option<Nanos>| Cell::from(time.map(|time| Cell::Nanos(time.0)));
        let is_on_device = operation.kind.is_on_device();
        let on_host = |time: Nanos| (!is_on_device).then_some(time);
        let device_total = if is_on_device { Some(operation.total) } else { operation.launched };
    } [
        ("name", "name") => Cell::name(operation.name.clone()),
        ("kind", "kind").drop(2) => Cell::text(operation.kind.word()),
        ("group", "group").drop(5) => Cell::text(operation.group.word()),
        ("count", "count") => Cell::Count(operation.count),
        ("self_ms", "self") => Cell::Nanos(operation.own.0),
        ("self_share", "share") => Cell::Share(operation.own_share),
        ("total_ms", "total").in_unit_of("self_ms").drop(1) => Cell::Nanos(operation.total.0),
        ("launched_self", "device self").in_unit_of("self_ms").human_only().drop(3) => time(operation.launched_own),
        ("launched", "device total").in_unit_of("self_ms").human_only().drop(4) => time(operation.launched),
        ("median_ms", "median").drop(6) => Cell::Nanos(operation.median.round() as u64),
        ("max_ms", "longest").in_unit_of("median_ms").drop(7) => Cell::Nanos(operation.longest.0),
        ("host_self_ms", "").machine_only() => time(on_host(operation.own)),
        ("host_total_ms", "").machine_only() => time(on_host(operation.total)),
        ("device_self_ms", "").machine_only() => time(device_own(operation)),
        ("device_total_ms", "").machine_only() => time(device_total),
    ]);
    add_facts(&mut table, answer);
    add_profiler(&mut table, answer);
    add_overlap(&mut table, answer, chosen.iter().copied());
    if let Some(more @ 1..) = chosen.len().checked_sub(ranking.most) {
        let names = plural(more, "more name is", "more names are");
        table.note(format!("{names} not shown; `--most {}` shows all.", chosen.len()));
    }
    if chosen.is_empty() && !ranking.matching.is_empty() {
        table.note(format!("No name contains `{}`.", ranking.matching));
    }
    table
}

fn chosen<'a>(answer: &'a Top, ranking: &Ranking) -> Vec<&'a Operation> {
    let pattern = ranking.matching.to_lowercase();
    let is_chosen = |operation: &&Operation| {
        let is_of_side = match ranking.side {
            Side::Both => true,
            side => operation.kind.is_on_device() == (side == Side::Device),
        };
        is_of_side && (pattern.is_empty() || operation.name.to_lowercase().contains(&pattern))
    };
    let mut chosen: Vec<&Operation> = answer.operations.iter().filter(is_chosen).collect();
    let key = |operation: &Operation| match ranking.sort {
        Sort::Own => operation.own.0,
        Sort::Total => operation.total.0,
        Sort::Device => device_own(operation).map_or(0, |time| time.0),
        Sort::Count => operation.count,
    };
    // Names with equal figures keep their order.
    chosen.sort_by_key(|operation| std::cmp::Reverse(key(operation)));
    chosen
}

fn device_own(operation: &Operation) -> Option<Nanos> {
    if operation.kind.is_on_device() { Some(operation.own) } else { operation.launched_own }
}

fn add_facts(table: &mut Table, answer: &Top) {
    overview::add(table, &answer.overview);
    if let Some(device) = answer.device {
        table.fact("device_ms", "device time", Cell::Nanos(device.0));
    }
}

/// Lists host spans of the profiler, which have no row.
fn add_profiler(table: &mut Table, answer: &Top) {
    match &answer.of_profiler {
        Some((name, 1)) => table.legend(format!("`{name}` belongs to the profiler and has no row.")),
        Some((name, count)) => {
            table.legend(format!(
                "`{name}` and {} more spans belong to the profiler and have no row.",
                count.saturating_sub(1)
            ));
        }
        None => {}
    }
}

/// Explains the shares; shares of a device exceed 100 % if work overlaps.
fn add_overlap<'a>(table: &mut Table, answer: &Top, mut shown: impl Iterator<Item = &'a Operation>) {
    if !shown.any(|operation| operation.kind.is_on_device()) {
        return;
    }
    let on_device = answer.operations.iter().filter(|operation| operation.kind.is_on_device());
    let all: f64 = on_device.map(|operation| operation.own_share).sum();
    table.legend(
        "Shares of host functions are of all host self time, shares of kernels of the busy time of the device.",
    );
    if all > 1.0005 {
        let all = 100.0 * all;
        table.legend(format!("Device work overlaps, so its shares add up to {all:.1} %."));
    }
}

/// Lays out the time per kind of work.
pub fn groups(answer: &Top) -> Table {
    let mut groups: Vec<&GroupTime> = answer.groups.iter().collect();
    groups.sort_by_key(|group| std::cmp::Reverse((group.device, group.host)));
    let mut table = table!("groups", groups, group: &GroupTime => {
        let time = |time: Option<Nanos>| Cell::from(time.map(|time| Cell::Nanos(time.0)));
        let count = |count: u64| if count == 0 { Cell::Empty } else { Cell::Count(count) };
    } [
        ("group", "group") => Cell::text(group.group.word()),
        ("device_ms", "device") => time(group.device),
        ("device_share", "share") => Cell::share(group.device_share),
        ("device_count", "kernels") => count(group.device_count),
        ("host_self_ms", "host self") => time(group.host),
        ("host_share", "share") => Cell::share(group.host_share),
        ("host_count", "host spans").drop(1) => count(group.host_count),
    ]);
    add_facts(&mut table, answer);
    add_profiler(&mut table, answer);
    let all: f64 = answer.groups.iter().filter_map(|group| group.device_share).sum();
    if all > 1.0005 {
        let all = 100.0 * all;
        table.legend(format!("Groups overlap on the device, so their shares add up to {all:.1} %."));
    }
    table
}
