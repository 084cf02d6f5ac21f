//! Host syncs: where they are, how long they took, and what the devices did meanwhile.

mod budget;
mod groups;
mod meanwhile;
mod places;
mod sites;

use hashbrown::HashMap;

use laptime_trace::{Nanos, Trace, TrackId};

use self::groups::{Grouped, grouped};
use self::meanwhile::Meanwhile;
pub use self::{
    budget::{Budget, Judged, Limit, NoBudget, Over, Spent},
    groups::WaitGroup,
    places::{WaitPlace, WaitPlaces, wait_places},
};
use crate::devices::{Devices, launches_of};
use crate::fleet::{Figure, Unit};
use crate::lap_unit::{LapSource, LapTime, LapUnit, NoLaps, lap_names};
use crate::timeline::{Prepared, Timeline};
pub use crate::waits::WaitKind;
use crate::waits::{Found, waiting};
use crate::{intervals::Stretches, overview::Overview, quantile::median_with_zeros};

/// The syncs of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Syncs {
    /// Syncs by call and site, most time first.
    pub groups: Vec<WaitGroup>,
    /// Every sync, in order of start.
    pub waits: Vec<Wait>,
    /// The stages that contain syncs.
    pub stages: Vec<String>,
    /// The syncs per lap; none if nothing repeats.
    pub laps: Option<LapWaits>,
    /// Possible lap units, with their number of laps.
    pub lap_names: Vec<(String, u64)>,
    /// The launching thread that waits the most; the thread that waits the most if no launches are known.
    pub thread: Option<WaitingThread>,
    /// Devices with any work.
    pub devices: u64,
    /// Idle time of devices that would disappear without syncs; none if no sync has a known length or there is no
    /// device.
    pub cost: Option<Nanos>,
    /// The trace as a whole.
    pub overview: Overview,
}

/// One sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The index of its group.
    pub group: usize,
    /// The index of the innermost stage around it.
    pub stage: Option<usize>,
    /// The index of the lap in which it started.
    pub lap: Option<usize>,
    /// The index of the lap in which it ended, if it started in one.
    pub last_lap: Option<usize>,
    /// When it began, since the first event of the trace.
    pub start: Nanos,
    /// Its length; none if the trace only shows that it happened.
    pub length: Option<Nanos>,
    /// How long the busiest device was busy meanwhile.
    pub busy: Option<Nanos>,
    /// Idle time of devices that would disappear without it; none if its length is unknown or there is no
    /// device.
    pub cost: Option<Nanos>,
}

impl Wait {
    /// How long the busiest device was idle meanwhile.
    pub fn idle(&self) -> Option<Nanos> {
        Some(self.length?.saturating_sub(self.busy?))
    }
}

/// Syncs per lap.
#[derive(Debug, Clone, PartialEq)]
pub struct LapWaits {
    /// The unit of laps.
    pub name: String,
    /// The source of laps.
    pub source: LapSource,
    /// The laps in order of time.
    pub laps: Vec<LapWait>,
    /// Syncs outside all laps.
    pub outside: u64,
}

/// The syncs of one lap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LapWait {
    /// The label of the lap.
    pub label: String,
    /// When it began, since the first event of the trace.
    pub start: Nanos,
    /// When it ended.
    pub end: Nanos,
    /// The syncs that started in it, and its time in which any thread waited.
    pub spent: Spent,
}

/// Minimum, median and maximum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// The minimum.
    pub min: u64,
    /// The median.
    pub median: f64,
    /// The maximum.
    pub max: u64,
}

impl LapWaits {
    /// Syncs per lap.
    pub fn counts(&self) -> Option<Range> {
        self.range(|spent| spent.waits)
    }

    /// Time in syncs per lap.
    pub fn times(&self) -> Option<Range> {
        self.range(|spent| spent.time.0)
    }

    fn range(&self, of: fn(&Spent) -> u64) -> Option<Range> {
        let amounts = || self.laps.iter().map(|lap| of(&lap.spent));
        let median = median_with_zeros(amounts().collect(), self.laps.len())?;
        Some(Range { min: amounts().min()?, median, max: amounts().max()? })
    }
}

/// A thread and how long it waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingThread {
    /// Its name.
    pub name: String,
    /// From its first span to its last.
    pub wall: Nanos,
    /// How long it waited.
    pub waited: Nanos,
    /// It launches work.
    pub is_launching: bool,
}

impl WaitingThread {
    /// The share of its time that it waited.
    pub fn share(&self) -> Option<f64> {
        (self.wall > Nanos(0)).then(|| self.waited.0 as f64 / self.wall.0 as f64)
    }
}

/// Finds every host sync.
///
/// # Errors
///
/// If the named lap is not in the trace.
pub fn syncs(trace: &Trace, lap: Option<&str>) -> Result<Syncs, NoLaps> {
    Ok(syncs_of(&Timeline::of(&Prepared::of(trace), lap)?))
}

/// The same for a prepared trace.
pub(crate) fn syncs_of(timeline: &Timeline<'_>) -> Syncs {
    let (trace, devices, found) = (timeline.trace, timeline.devices, timeline.waits);
    let meanwhile = Meanwhile::of(devices);
    let costs = costs(timeline);
    let unit = timeline.unit.as_ref();
    let Grouped { groups, stages, waits } = grouped(trace, devices, unit, found, &meanwhile, &costs);
    Syncs {
        laps: unit.map(|unit| lap_waits(trace, unit, found, &waits)),
        lap_names: lap_names(trace, devices),
        thread: waiting_thread(trace, devices, found),
        devices: devices.devices.len() as u64,
        cost: total_cost(&costs),
        // This answer replaces the syncs of the overview.
        overview: Overview { waits: None, ..timeline.overview.clone() },
        groups,
        waits,
        stages,
    }
}

/// When any of these syncs was under way.
fn stretches<'w>(waits: impl IntoIterator<Item = &'w Wait>) -> Stretches {
    let stretch = |wait: &Wait| Some((wait.start.0, wait.start.saturating_add(wait.length?).0));
    Stretches::union(waits.into_iter().filter_map(stretch).collect())
}

/// When devices were idle because of a sync; none if unknown.
type Cost = Option<Vec<(u64, u64)>>;

/// The cost of each sync.
fn costs(timeline: &Timeline<'_>) -> Vec<Cost> {
    let has_devices = !timeline.devices.devices.is_empty();
    let known = |wait: &Found| wait.end.filter(|_| has_devices).map(|_| Vec::new());
    let mut costs: Vec<Cost> = timeline.waits.iter().map(known).collect();
    for charge in timeline.idle.iter().flat_map(|idle| &idle.charges) {
        if let Some(cost) = &mut costs[charge.wait] {
            cost.push((charge.from, charge.to));
        }
    }
    costs
}

/// The length of the union of these intervals.
fn total_cost<'c>(costs: impl IntoIterator<Item = &'c Cost>) -> Option<Nanos> {
    let known: Vec<&Vec<(u64, u64)>> = costs.into_iter().flatten().collect();
    let stretches = || known.iter().flat_map(|cost| cost.iter().copied()).collect();
    (!known.is_empty()).then(|| Nanos(Stretches::union(stretches()).length()))
}

fn lap_waits(trace: &Trace, unit: &LapUnit, found: &[Found], waits: &[Wait]) -> LapWaits {
    let first = trace.bounds().map_or(0, |(first, _)| first.0);
    let waiting = waiting(found);
    let empty = |lap: &LapTime| LapWait {
        label: lap.label.clone(),
        start: Nanos(lap.start.saturating_sub(first)),
        end: Nanos(lap.end.saturating_sub(first)),
        spent: Spent { waits: 0, time: Nanos(waiting.length_within(lap.start, lap.end)) },
    };
    let mut laps: Vec<LapWait> = unit.laps.iter().map(empty).collect();
    for lap in waits.iter().filter_map(|wait| wait.lap) {
        laps[lap].spent.waits += 1;
    }
    let outside = waits.iter().filter(|wait| wait.lap.is_none()).count() as u64;
    LapWaits { name: unit.name.clone(), source: unit.source, laps, outside }
}

fn waiting_thread(trace: &Trace, devices: &Devices, waits: &[Found]) -> Option<WaitingThread> {
    let launches = launches_of(trace, devices.work());
    let mut waited: HashMap<TrackId, Vec<(u64, u64)>> = HashMap::new();
    for wait in waits {
        waited.entry(wait.track).or_default().push((wait.start, wait.end.unwrap_or(wait.start)));
    }
    let waited: HashMap<TrackId, u64> =
        waited.into_iter().map(|(track, stretches)| (track, Stretches::union(stretches).length())).collect();
    let waited_by = |track: TrackId| waited.get(&track).copied().unwrap_or(0);
    let launching = launches.iter().map(|(&track, &count)| (waited_by(track), count, track));
    let waiting = waited.iter().map(|(&track, &waited)| (waited, 0, track));
    let most = |threads: &mut dyn Iterator<Item = (u64, u64, TrackId)>| {
        threads.max_by_key(|&(waited, count, track)| (waited, count, std::cmp::Reverse(track)))
    };
    let is_launching = !launches.is_empty();
    let (waited, _, track) = if is_launching { most(&mut { launching }) } else { most(&mut { waiting }) }?;
    let first = trace.spans_on(track).next().map_or(0, |span| span.start.0);
    let last = trace.spans_on(track).map(|span| span.end().0).max().unwrap_or(0);
    Some(WaitingThread {
        name: thread_name(trace, track),
        wall: Nanos(last.saturating_sub(first)),
        waited: Nanos(waited),
        is_launching,
    })
}

fn thread_name(trace: &Trace, track: TrackId) -> String {
    let track = trace.track(track);
    match (trace.name(track.name), track.number) {
        ("", Some(number)) => format!("thread {number}"),
        ("", None) => "a thread".to_owned(),
        (name, _) => name.to_owned(),
    }
}

impl Syncs {
    /// How long any thread waited; parallel waits count once.
    pub fn time(&self) -> Nanos {
        Nanos(stretches(&self.waits).length())
    }

    /// That time as a share of the wall time.
    pub fn share(&self) -> Option<f64> {
        let wall = self.overview.wall;
        (wall > Nanos(0)).then(|| self.time().0 as f64 / wall.0 as f64)
    }

    /// The figures for comparing traces.
    pub fn figures() -> [Figure; 5] {
        let figure = |key, label, unit| Figure { key, label, unit };
        [
            figure("waits", "waits", Unit::Count),
            figure("waits_a_lap", "a lap", Unit::Number),
            figure("waits_ms", "waited", Unit::Time),
            figure("wait_share", "share of wall", Unit::Share),
            figure("cost_ms", "cost", Unit::Time),
        ]
    }

    /// The values of these figures.
    pub fn values(&self) -> Vec<Option<f64>> {
        vec![
            Some(self.waits.len() as f64),
            self.laps.as_ref().and_then(|laps| Some(laps.counts()?.median)),
            Some(self.time().0 as f64),
            self.share(),
            self.cost.map(|cost| cost.0 as f64),
        ]
    }
}
