//! The ranking of names as a table.

use laptime_analyze::{GroupTime, Operation, Top};
use laptime_trace::Nanos;

use super::overview;
use crate::{Cell, Column, Table};

/// Which names are shown, and in which order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranking {
    /// Names that are shown at most; the rest is told in a note.
    pub most: usize,
    /// Whose rows are shown.
    pub side: Side,
    /// What comes first.
    pub sort: Sort,
    /// Names that have this in them alone, in small or capital letters; empty for all.
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

/// What names are ordered by, largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Their own time.
    Own,
    /// Their whole time.
    Total,
    /// The device time of the work they launched themselves; of a kernel its own.
    Device,
    /// How often they ran.
    Count,
}

/// Lays out names.
pub fn top(answer: &Top, ranking: &Ranking) -> Table {
    let mut table = Table::new("operations", columns());
    let chosen = chosen(answer, ranking);
    for operation in chosen.iter().take(ranking.most) {
        table.push(row(operation));
    }
    add_facts(&mut table, answer);
    add_profiler(&mut table, answer);
    add_overlap(&mut table, answer, chosen.iter().copied());
    if let Some(more @ 1..) = chosen.len().checked_sub(ranking.most) {
        let names = if more == 1 { "1 more name is".to_owned() } else { format!("{more} more names are") };
        table.note(format!("{names} not shown; `--most {}` shows all.", chosen.len()));
    }
    if chosen.is_empty() && !ranking.matching.is_empty() {
        table.note(format!("No name has `{}` in it.", ranking.matching));
    }
    table
}

fn columns() -> [Column; 15] {
    let in_own = |key: &'static str, label: &'static str| Column::new(key, label).in_unit_of("self_ms");
    [
        Column::new("name", "name"),
        Column::new("kind", "kind").drop(2),
        Column::new("group", "group").drop(5),
        Column::new("count", "count"),
        Column::new("self_ms", "self"),
        Column::new("self_share", "share"),
        in_own("total_ms", "total").drop(1),
        in_own("launched_self", "device self").human_only().drop(3),
        in_own("launched", "device total").human_only().drop(4),
        Column::new("median_ms", "median").drop(6),
        Column::new("max_ms", "longest").in_unit_of("median_ms").drop(7),
        Column::new("host_self_ms", "").machine_only(),
        Column::new("host_total_ms", "").machine_only(),
        Column::new("device_self_ms", "").machine_only(),
        Column::new("device_total_ms", "").machine_only(),
    ]
}

fn chosen<'a>(answer: &'a Top, ranking: &Ranking) -> Vec<&'a Operation> {
    let wanted = ranking.matching.to_lowercase();
    let is_chosen = |operation: &&Operation| {
        let is_of_side = match ranking.side {
            Side::Both => true,
            side => operation.kind.is_on_device() == (side == Side::Device),
        };
        is_of_side && (wanted.is_empty() || operation.name.to_lowercase().contains(&wanted))
    };
    let mut chosen: Vec<&Operation> = answer.operations.iter().filter(is_chosen).collect();
    let key = |operation: &Operation| match ranking.sort {
        Sort::Own => operation.own.0,
        Sort::Total => operation.total.0,
        Sort::Device => device_own(operation).map_or(0, |time| time.0),
        Sort::Count => operation.count,
    };
    // Names of equal figures stay in their order.
    chosen.sort_by_key(|operation| std::cmp::Reverse(key(operation)));
    chosen
}

fn device_own(operation: &Operation) -> Option<Nanos> {
    if operation.kind.is_on_device() { Some(operation.own) } else { operation.launched_own }
}

fn row(operation: &Operation) -> Vec<Cell> {
    let time = |time: Option<Nanos>| Cell::from(time.map(|time| Cell::Nanos(time.0)));
    let is_on_device = operation.kind.is_on_device();
    let on_host = |time: Nanos| (!is_on_device).then_some(time);
    let device_total = if is_on_device { Some(operation.total) } else { operation.launched };
    vec![
        Cell::name(operation.name.clone()),
        Cell::text(operation.kind.word()),
        Cell::text(operation.group.word()),
        Cell::Count(operation.count),
        Cell::Nanos(operation.own.0),
        Cell::Share(operation.own_share),
        Cell::Nanos(operation.total.0),
        time(operation.launched_own),
        time(operation.launched),
        Cell::Nanos(operation.median.round() as u64),
        Cell::Nanos(operation.longest.0),
        time(on_host(operation.own)),
        time(on_host(operation.total)),
        time(device_own(operation)),
        time(device_total),
    ]
}

fn add_facts(table: &mut Table, answer: &Top) {
    overview::add(table, &answer.overview);
    if let Some(device) = answer.device {
        table.fact("device_ms", "device time", Cell::Nanos(device.0));
    }
}

/// Says which spans of the host have no row.
fn add_profiler(table: &mut Table, answer: &Top) {
    match &answer.of_profiler {
        Some((name, 1)) => table.note(format!("`{name}` is the span of the profiler itself and has no row.")),
        Some((name, count)) => {
            table.note(format!(
                "`{name}` and {} more are spans of the profiler itself and have no row.",
                count.saturating_sub(1)
            ));
        }
        None => {}
    }
}

/// Says what shares are of, and by how much those of a device are more than one because work overlaps.
fn add_overlap<'a>(table: &mut Table, answer: &Top, mut shown: impl Iterator<Item = &'a Operation>) {
    if !shown.any(|operation| operation.kind.is_on_device()) {
        return;
    }
    let on_device = answer.operations.iter().filter(|operation| operation.kind.is_on_device());
    let all: f64 = on_device.map(|operation| operation.own_share).sum();
    table.note("Shares are of all self time on the host, and of the time in which a device worked.");
    if all > 1.0005 {
        let all = 100.0 * all;
        table.note(format!("Work of devices overlaps, so that shares of devices add up to {all:.1} %."));
    }
}

/// Lays out the time by kind of work.
pub fn groups(answer: &Top) -> Table {
    let columns = [
        Column::new("group", "group"),
        Column::new("device_ms", "device"),
        Column::new("device_share", "share"),
        Column::new("device_count", "kernels"),
        Column::new("host_self_ms", "host self"),
        Column::new("host_share", "share"),
        Column::new("host_count", "host spans").drop(1),
    ];
    let mut table = Table::new("groups", columns);
    let mut groups: Vec<&GroupTime> = answer.groups.iter().collect();
    groups.sort_by_key(|group| std::cmp::Reverse((group.device, group.host)));
    for group in groups {
        table.push(group_row(group));
    }
    add_facts(&mut table, answer);
    add_profiler(&mut table, answer);
    let all: f64 = answer.groups.iter().filter_map(|group| group.device_share).sum();
    if all > 1.0005 {
        let all = 100.0 * all;
        table.note(format!("Groups overlap on devices, so that their shares add up to {all:.1} %."));
    }
    table
}

fn group_row(group: &GroupTime) -> Vec<Cell> {
    let time = |time: Option<Nanos>| Cell::from(time.map(|time| Cell::Nanos(time.0)));
    let count = |count: u64| if count == 0 { Cell::Empty } else { Cell::Count(count) };
    vec![
        Cell::text(group.group.word()),
        time(group.device),
        Cell::from(group.device_share.map(Cell::Share)),
        count(group.device_count),
        time(group.host),
        Cell::from(group.host_share.map(Cell::Share)),
        count(group.host_count),
    ]
}
