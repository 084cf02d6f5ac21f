//! Syncs grouped by call and site.

use hashbrown::HashMap;

use laptime_stats::Sorted;
use laptime_trace::{Nanos, Trace};

use super::sites::{Site, Sites, without_number};
use super::{Cost, Wait, WaitKind, meanwhile::Meanwhile, total_cost};
use crate::waits::Found;
use crate::{devices::Devices, lap_unit::LapUnit, quantile::median_with_zeros};

/// Syncs of one call at one site.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitGroup {
    /// The call, or the name that the program gave the sync.
    pub call: String,
    /// Its kind.
    pub kind: WaitKind,
    /// The site: a Python function with file and line, or a path of stages and operations; empty if nothing is around
    /// it.
    pub site: String,
    /// The stage around it; none if there is none or it differs.
    pub stage: Option<String>,
    /// How often.
    pub count: u64,
    /// The median number of syncs per lap, including laps without any.
    pub a_lap: Option<f64>,
    /// The total time; none if no length is known.
    pub total: Option<Nanos>,
    /// The median length in nanoseconds.
    pub median: Option<f64>,
    /// The longest.
    pub longest: Option<Nanos>,
    /// The share of this time in which the busiest device was busy.
    pub busy_share: Option<f64>,
    /// Idle time of devices that would disappear without these syncs.
    pub cost: Option<Nanos>,
}

/// Syncs with their groups and stages.
pub(super) struct Grouped {
    pub(super) groups: Vec<WaitGroup>,
    pub(super) stages: Vec<String>,
    pub(super) waits: Vec<Wait>,
}

pub(super) fn grouped(
    trace: &Trace,
    devices: &Devices,
    unit: Option<&LapUnit>,
    found: &[Found],
    meanwhile: &Meanwhile,
    costs: &[Cost],
) -> Grouped {
    let first = trace.bounds().map_or(0, |(first, _)| first.0);
    let mut places = Places::new(trace, devices, unit, found);
    let waits: Vec<Wait> = std::iter::zip(found, costs)
        .map(|(wait, cost)| {
            let (group, stage) = places.of(wait);
            Wait {
                group,
                stage,
                lap: unit.and_then(|unit| unit.at(wait.start)),
                last_lap: unit.and_then(|unit| last_lap(unit, wait)),
                start: Nanos(wait.start.saturating_sub(first)),
                length: wait.end.map(|end| Nanos(end - wait.start)),
                busy: wait.end.and_then(|end| meanwhile.busy(wait.start, end)).map(Nanos),
                cost: total_cost([cost]),
            }
        })
        .collect();
    let mut of_group: Vec<Vec<usize>> = vec![Vec::new(); places.groups.len()];
    for (at, wait) in waits.iter().enumerate() {
        of_group[wait.group].push(at);
    }
    let laps = unit.map(|unit| unit.laps.len());
    let groups = std::iter::zip(&places.groups, of_group);
    let groups: Vec<WaitGroup> = groups
        .map(|(key, members)| {
            group(key, &members, &waits, &places.stages, laps, total_cost(members.iter().map(|&at| &costs[at])))
        })
        .collect();
    in_order(Grouped { groups, stages: places.stages, waits })
}

/// The lap in which a sync ended, or the last one before its end; none if it started in none.
fn last_lap(unit: &LapUnit, wait: &Found) -> Option<usize> {
    let first = unit.at(wait.start)?;
    let begun = unit.laps.partition_point(|lap| lap.start < wait.end.unwrap_or(wait.start));
    Some(begun.saturating_sub(1).max(first))
}

/// Sorts groups by time.
fn in_order(grouped: Grouped) -> Grouped {
    let Grouped { groups, stages, mut waits } = grouped;
    let mut order: Vec<usize> = (0..groups.len()).collect();
    let key = |at: &usize| {
        let group = &groups[*at];
        (std::cmp::Reverse((group.total, group.count)), &group.call, &group.site)
    };
    order.sort_by(|a, b| key(a).cmp(&key(b)));
    let mut places = vec![0; groups.len()];
    for (place, &at) in order.iter().enumerate() {
        places[at] = place;
    }
    for wait in &mut waits {
        wait.group = places[wait.group];
    }
    let mut groups: Vec<Option<WaitGroup>> = groups.into_iter().map(Some).collect();
    let groups = order.iter().filter_map(|&at| groups[at].take()).collect();
    Grouped { groups, stages, waits }
}

type GroupKey = (WaitKind, String, String);

/// Finds the group and stage of each sync; each site is formatted once.
struct Places<'a> {
    trace: &'a Trace,
    sites: Sites<'a>,
    lap: Option<&'a str>,
    known: HashMap<(WaitKind, &'a str, Site), (usize, Option<usize>)>,
    group_places: HashMap<GroupKey, usize>,
    groups: Vec<GroupKey>,
    stage_places: HashMap<String, usize>,
    stages: Vec<String>,
}

impl<'a> Places<'a> {
    fn new(trace: &'a Trace, devices: &Devices, unit: Option<&'a LapUnit>, found: &[Found]) -> Self {
        Self {
            trace,
            sites: Sites::of(trace, &devices.activities, found),
            lap: unit.map(|unit| unit.name.as_str()),
            known: HashMap::new(),
            group_places: HashMap::new(),
            groups: Vec::new(),
            stage_places: HashMap::new(),
            stages: Vec::new(),
        }
    }

    fn of(&mut self, wait: &Found) -> (usize, Option<usize>) {
        let trace = self.trace;
        let key = (wait.kind, wait.name(trace), self.sites.site(wait));
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let site = self.sites.text(&key.2, self.lap);
        let group = place(&mut self.group_places, &mut self.groups, (wait.kind, key.1.to_owned(), site));
        let stage = key.2.stage.map(|name| without_number(trace.name(name), self.lap));
        let stage = stage.map(|stage| place(&mut self.stage_places, &mut self.stages, stage));
        self.known.insert(key, (group, stage));
        (group, stage)
    }
}

/// The index of an item in a list; it is appended if it is new.
fn place<T: Clone + Eq + std::hash::Hash>(places: &mut HashMap<T, usize>, list: &mut Vec<T>, thing: T) -> usize {
    *places.entry(thing).or_insert_with_key(|thing| {
        list.push(thing.clone());
        list.len() - 1
    })
}

fn group(
    (kind, call, site): &GroupKey,
    members: &[usize],
    waits: &[Wait],
    stages: &[String],
    laps: Option<usize>,
    cost: Option<Nanos>,
) -> WaitGroup {
    let members: Vec<&Wait> = members.iter().map(|&at| &waits[at]).collect();
    let lengths: Vec<u64> = members.iter().filter_map(|wait| wait.length).map(|length| length.0).collect();
    let total = lengths.iter().fold(0_u64, |total, length| total.saturating_add(*length));
    let busy = members.iter().filter_map(|wait| wait.busy).fold(0_u64, |busy, more| busy.saturating_add(more.0));
    let has_busy = total > 0 && members.iter().any(|wait| wait.busy.is_some());
    let lengths = Sorted::<u64>::from_unsorted(lengths);
    let stage = members.first().and_then(|wait| wait.stage);
    let stage = stage.filter(|stage| members.iter().all(|wait| wait.stage == Some(*stage)));
    WaitGroup {
        call: call.clone(),
        kind: *kind,
        site: site.clone(),
        stage: stage.map(|stage| stages[stage].clone()),
        count: members.len() as u64,
        a_lap: laps.and_then(|laps| median_with_zeros(counts_by_lap(&members), laps)),
        total: (!lengths.is_empty()).then_some(Nanos(total)),
        median: lengths.median(),
        longest: lengths.max().map(Nanos),
        busy_share: has_busy.then(|| busy as f64 / total as f64),
        cost,
    }
}

/// How many syncs each lap has, for laps with any.
fn counts_by_lap(waits: &[&Wait]) -> Vec<u64> {
    // In order of time, so that syncs of one lap are adjacent.
    let laps: Vec<usize> = waits.iter().filter_map(|wait| wait.lap).collect();
    laps.chunk_by(|one, other| one == other).map(|lap| lap.len() as u64).collect()
}
