//! What a fresh process pays for before its takes are steady, as far as its trace shows it.

use std::collections::BTreeMap;

use laptime_stats::spread::median;
use laptime_trace::{NameId, Span, Trace, TrackId, Value};

use crate::measured::is_iteration;

/// Takes without which the later half of them is no steady state.
const LEAST_TAKES: usize = 6;

/// What a fresh process pays for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ColdWork {
    /// The driver and a context.
    Context,
    /// Libraries that are read and started.
    Libraries,
    /// Kernels that are compiled.
    Compile,
    /// Compiled kernels that are put on the device.
    Load,
    /// The first product of each size, for which cuBLAS chooses and loads a kernel.
    FirstProducts,
    /// A step that is captured as a graph.
    Capture,
    /// Weights and inputs that are made or read.
    Weights,
    /// Memory that is allocated.
    Allocate,
    /// Threads that are started.
    Threads,
    /// What a cache holds before the first take.
    Prompt,
    /// Variants that are tried to find the fastest.
    Autotune,
    /// Memory that is touched for the first time.
    FirstTouch,
    /// What nothing marks.
    Rest,
}

impl ColdWork {
    /// All of them, in the order in which they are told.
    pub const ALL: [Self; 13] = [
        Self::Context,
        Self::Libraries,
        Self::Compile,
        Self::Load,
        Self::FirstProducts,
        Self::Capture,
        Self::Weights,
        Self::Allocate,
        Self::Threads,
        Self::Prompt,
        Self::Autotune,
        Self::FirstTouch,
        Self::Rest,
    ];

    /// The name by which machines know it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Libraries => "libraries",
            Self::Compile => "compile",
            Self::Load => "load",
            Self::FirstProducts => "first_products",
            Self::Capture => "capture",
            Self::Weights => "weights",
            Self::Allocate => "allocate",
            Self::Threads => "threads",
            Self::Prompt => "prompt",
            Self::Autotune => "autotune",
            Self::FirstTouch => "first_touch",
            Self::Rest => "rest",
        }
    }

    /// What a stage of this name is, and whether it counts as one of its kind.
    fn of_stage(name: &str) -> Option<(Self, bool)> {
        Some(match name {
            "context" => (Self::Context, true),
            "open_device" => (Self::Context, false),
            "load_library" => (Self::Libraries, true),
            "start_cublas" => (Self::Libraries, false),
            "compile" => (Self::Compile, true),
            "load" => (Self::Load, true),
            "load_kernel" => (Self::Load, false),
            "first_product" => (Self::FirstProducts, true),
            "capture" => (Self::Capture, true),
            "weights" => (Self::Weights, true),
            "load_weights" | "prepare_inputs" => (Self::Weights, false),
            "allocate" => (Self::Allocate, true),
            "start_threads" => (Self::Threads, true),
            "prompt" => (Self::Prompt, true),
            "autotune" => (Self::Autotune, true),
            _ => return None,
        })
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// A part of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColdPart {
    /// What it was.
    pub work: ColdWork,
    /// How long, in nanoseconds; beyond the steady takes it may be less than nothing.
    pub nanos: i64,
    /// How often it was done; pages for memory that was touched.
    pub count: u64,
}

/// What a take did longer in a stage, beside what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageShift {
    /// The stage, right inside the take; none for what lies outside of them.
    pub stage: Option<String>,
    /// How much longer, in nanoseconds.
    pub nanos: i64,
}

/// What a fresh process paid for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdStart {
    /// From the first stage of the process to its first take, in nanoseconds.
    pub before_ns: u64,
    /// What that time went to: parts that add up to it.
    pub before: Vec<ColdPart>,
    /// The first take, in nanoseconds.
    pub first_ns: u64,
    /// A take as it is later: the median of the later half of them; none if there are fewer than six.
    pub steady_ns: Option<u64>,
    /// What the first take did beyond that: parts that add up to the difference. Empty without a steady take.
    pub beyond: Vec<ColdPart>,
    /// Where in the first take the part that nothing marks lies: stages that took longer, by how much longer.
    pub rest_in: Vec<StageShift>,
}

impl ColdStart {
    /// What the first take took beyond a steady one, in nanoseconds.
    pub fn beyond_ns(&self) -> Option<i64> {
        self.steady_ns.map(|steady| difference(self.first_ns, steady))
    }

    /// The part of the time before the first take.
    pub fn before_part(&self, work: ColdWork) -> Option<&ColdPart> {
        self.before.iter().find(|part| part.work == work)
    }

    /// The part of what the first take did beyond a steady one.
    pub fn beyond_part(&self, work: ColdWork) -> Option<&ColdPart> {
        self.beyond.iter().find(|part| part.work == work)
    }
}

/// Says what a process paid for, from the trace of its start and its takes; none if it has no take.
///
/// Every moment belongs to the innermost stage that says what it is. What a take allocates or loads again and again is no
/// part of the cold start, so the median of the later half of takes is taken away, part by part.
pub fn cold_start(trace: &Trace) -> Option<ColdStart> {
    let seen = Seen::of(trace)?;
    let (takes, later) = (&seen.takes, seen.takes.len() / 2);
    let first = takes.first()?;
    let steady: &[Taken] = if takes.len() < LEAST_TAKES { &[] } else { &takes[later..] };
    let steady_ns = middle(steady.iter().map(|take| take.nanos));
    let mut start = ColdStart {
        before_ns: seen.before_ns,
        before: before(&seen),
        first_ns: first.nanos,
        steady_ns,
        beyond: Vec::new(),
        rest_in: Vec::new(),
    };
    if let Some(beyond) = start.beyond_ns() {
        start.beyond = parts_beyond(first, steady, beyond, seen.page);
        start.rest_in = rest_in(&seen, later);
    }
    Some(start)
}

/// The process in the middle by its first take: one that was, so that its parts add up.
pub fn middle_start(mut starts: Vec<&ColdStart>) -> Option<&ColdStart> {
    starts.sort_by_key(|start| start.first_ns);
    starts.get(starts.len().checked_sub(1)? / 2).copied()
}

/// Time and count of each kind of work.
type Parts = [(u64, u64); ColdWork::ALL.len()];

/// A take, divided.
#[derive(Debug, Default)]
struct Taken {
    start: u64,
    nanos: u64,
    parts: Parts,
    /// Pages touched for the first time.
    pages: Option<u64>,
}

/// What one thread did until its last take.
#[derive(Debug, Default)]
struct Seen {
    before_ns: u64,
    before: Parts,
    takes: Vec<Taken>,
    /// The time of each stage right inside takes that nothing explains, by take; `None` is outside of them.
    unmarked: BTreeMap<Option<NameId>, BTreeMap<usize, u64>>,
    names: BTreeMap<NameId, String>,
    /// What the first touch of a page costs, in nanoseconds of the process.
    page: Option<f64>,
}

/// Where a span lies, and what it is.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    take: Option<usize>,
    stage: Option<NameId>,
    work: Option<ColdWork>,
}

impl Seen {
    fn of(trace: &Trace) -> Option<Self> {
        let first = trace.spans().filter(is_iteration).min_by_key(|span| span.start)?;
        let spans: Vec<Span<'_>> = trace.spans_on(first.track).collect();
        let (begin, own) = (spans.first()?.start, trace.own_times());
        let mut seen = Self { before_ns: first.start.0.saturating_sub(begin.0), ..Self::default() };
        let base = spans[0].id.index();
        let mut places: Vec<Place> = Vec::with_capacity(spans.len());
        for span in &spans {
            let parent = span.parent.and_then(|parent| places.get(parent.index().checked_sub(base)?));
            let around = parent.copied().unwrap_or_default();
            let place = seen.place(trace, span, around);
            places.push(place);
            seen.add(span, place, own[span.id.index()].0, first.start.0);
        }
        let faults = faults(trace, first.track);
        for take in &mut seen.takes {
            take.pages = between(&faults, take.start, take.start.saturating_add(take.nanos));
        }
        seen.page = page_cost(&spans, &faults);
        Some(seen)
    }

    fn place(&mut self, trace: &Trace, span: &Span<'_>, around: Place) -> Place {
        if is_iteration(span) && around.take.is_none() {
            let (start, nanos) = (span.start.0, span.duration.0);
            self.takes.push(Taken { start, nanos, ..Taken::default() });
            return Place { take: Some(self.takes.len() - 1), ..Place::default() };
        }
        let work = ColdWork::of_stage(span.name).map(|(work, _)| work).or(around.work);
        let stage = around.stage.or_else(|| around.take.map(|_| trace.span_name(span.id)));
        if let Some(stage) = stage {
            self.names.entry(stage).or_insert_with(|| trace.name(stage).to_owned());
        }
        Place { take: around.take, stage, work }
    }

    /// Gives a span's own time to what it is.
    fn add(&mut self, span: &Span<'_>, place: Place, own: u64, first_take: u64) {
        let parts = match place.take {
            Some(take) => &mut self.takes[take].parts,
            None if span.end().0 <= first_take => &mut self.before,
            None => return,
        };
        match place.work {
            Some(work) => {
                let is_one = ColdWork::of_stage(span.name).is_some_and(|(_, counts)| counts);
                let (nanos, count) = &mut parts[work.index()];
                *nanos = nanos.saturating_add(own);
                *count += u64::from(is_one);
            }
            None => {
                if let Some(take) = place.take {
                    let nanos = self.unmarked.entry(place.stage).or_default().entry(take).or_default();
                    *nanos = nanos.saturating_add(own);
                }
            }
        }
    }
}

/// The points of the curve of page faults in order of time: those of the process whose takes these are.
fn faults(trace: &Trace, track: TrackId) -> Vec<(u64, f64)> {
    let process = trace.track(track).process;
    let is_counter = |id: TrackId| {
        let counter = trace.track(id);
        counter.process == process && trace.name(counter.name) == "page_faults"
    };
    let points = trace.values().filter(|point| is_counter(point.track));
    let mut points: Vec<(u64, f64)> = points.map(|point| (point.time.0, point.number.as_f64())).collect();
    points.sort_by_key(|point| point.0);
    points
}

/// Page faults between two moments, by the points around them.
fn between(faults: &[(u64, f64)], start: u64, end: u64) -> Option<u64> {
    let before = faults.partition_point(|point| point.0 <= start).checked_sub(1)?;
    let after = faults.partition_point(|point| point.0 < end);
    Some((faults.get(after)?.1 - faults[before].1).max(0.0) as u64)
}

/// What a page costs the process: by the stage that did nothing but touch some, shared by the threads that there are.
fn page_cost(spans: &[Span<'_>], faults: &[(u64, f64)]) -> Option<f64> {
    let touching = spans.iter().rfind(|span| span.name == "touch_memory")?;
    let pages = between(faults, touching.start.0, touching.end().0).filter(|pages| *pages > 0)?;
    let threads = spans.iter().filter(|span| span.name == "start_threads").filter_map(threads).max().unwrap_or(1);
    Some(touching.duration.0 as f64 / pages as f64 / threads.max(1) as f64)
}

fn threads(span: &Span<'_>) -> Option<u64> {
    match span.fields.get("threads")? {
        Value::Int(threads) => u64::try_from(threads).ok(),
        _ => None,
    }
}

fn before(seen: &Seen) -> Vec<ColdPart> {
    let whole = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
    let known = seen.before.iter().fold(0_u64, |sum, (nanos, _)| sum.saturating_add(*nanos));
    let parts = ColdWork::ALL.into_iter().zip(seen.before);
    let mut parts: Vec<ColdPart> = parts
        .filter(|(_, (nanos, count))| *nanos > 0 || *count > 0)
        .map(|(work, (nanos, count))| ColdPart { work, nanos: whole(nanos), count })
        .collect();
    parts.push(ColdPart { work: ColdWork::Rest, nanos: difference(seen.before_ns, known), count: 0 });
    parts
}

/// What the first take did beyond the steady ones. Touched memory is an estimate, and never more than what is left.
fn parts_beyond(first: &Taken, steady: &[Taken], beyond: i64, page: Option<f64>) -> Vec<ColdPart> {
    let mut parts = Vec::new();
    for work in ColdWork::ALL {
        let (nanos, count) = first.parts[work.index()];
        let usual = middle(steady.iter().map(|take| take.parts[work.index()].0)).unwrap_or(0);
        if nanos > 0 || count > 0 {
            parts.push(ColdPart { work, nanos: difference(nanos, usual), count });
        }
    }
    let sum = |parts: &[ColdPart]| parts.iter().fold(0_i64, |sum, part| sum.saturating_add(part.nanos));
    let left = beyond.saturating_sub(sum(&parts));
    parts.extend(touched(first, steady, page, &parts, left));
    parts.push(ColdPart { work: ColdWork::Rest, nanos: beyond.saturating_sub(sum(&parts)), count: 0 });
    parts
}

/// Memory that the first take touched and steady ones do not; what was allocated in it was touched there.
fn touched(first: &Taken, steady: &[Taken], page: Option<f64>, parts: &[ColdPart], left: i64) -> Option<ColdPart> {
    let usual = middle(steady.iter().filter_map(|take| take.pages)).unwrap_or(0);
    let pages = first.pages?.saturating_sub(usual);
    let allocated = parts.iter().find(|part| part.work == ColdWork::Allocate).map_or(0, |part| part.nanos);
    let nanos = (pages as f64 * page?) as i64;
    let nanos = nanos.saturating_sub(allocated).min(left);
    (nanos > 0).then_some(ColdPart { work: ColdWork::FirstTouch, nanos, count: pages })
}

/// Stages that took longer in the first take than later, by how much longer.
fn rest_in(seen: &Seen, later: usize) -> Vec<StageShift> {
    let shift = |(stage, by_take): (&Option<NameId>, &BTreeMap<usize, u64>)| {
        let at = |take: usize| by_take.get(&take).copied().unwrap_or(0);
        let usual = middle((later..seen.takes.len()).map(at)).unwrap_or(0);
        let stage = stage.and_then(|stage| seen.names.get(&stage).cloned());
        StageShift { stage, nanos: difference(at(0), usual) }
    };
    let mut shifts: Vec<StageShift> = seen.unmarked.iter().map(shift).filter(|shift| shift.nanos > 0).collect();
    shifts.sort_by_key(|shift| std::cmp::Reverse(shift.nanos));
    shifts
}

fn middle(numbers: impl Iterator<Item = u64>) -> Option<u64> {
    let numbers: Vec<f64> = numbers.map(|number| number as f64).collect();
    median(&numbers).map(|middle| middle.round() as u64)
}

fn difference(a: u64, b: u64) -> i64 {
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    whole(a).saturating_sub(whole(b))
}

#[cfg(test)]
mod tests;
