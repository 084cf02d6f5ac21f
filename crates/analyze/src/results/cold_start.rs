//! The cost of a cold start: what a fresh process does before its iterations are steady, as far as its trace shows.

use std::collections::BTreeMap;

use laptime_stats::spread::median_of;
use laptime_trace::{NameId, Span, Trace, TrackId};

use crate::{fields::whole, measured::is_iteration};

/// With fewer iterations, the second half is not a steady state.
const LEAST_ITERATIONS: usize = 6;

laptime_trace::words! {
    /// A part of a cold start.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum ColdWork, ALL: word, meaning {
        /// The driver and a context.
        Context = ("context", "opening the device"),
        /// Reading and starting libraries.
        Libraries = ("libraries", "starting libraries"),
        Compile = ("compile", "compiling kernels"),
        /// Loading compiled kernels on the device.
        Load = ("load", "loading kernels"),
        /// The first matrix product of each size, for which cuBLAS selects and loads a kernel.
        FirstProducts = ("first_products", "loading cuBLAS kernels"),
        /// Capturing a step as a graph.
        Capture = ("capture", "capturing a graph"),
        /// Generating or reading weights and inputs.
        Weights = ("weights", "weights and inputs"),
        Allocate = ("allocate", "allocating memory"),
        Threads = ("threads", "starting threads"),
        /// Filling the KV cache before the first iteration.
        Prompt = ("prompt", "filling the KV cache"),
        /// Autotuning: trying variants to find the fastest.
        Autotune = ("autotune", "trying variants"),
        /// Page faults: memory that is touched for the first time.
        FirstTouch = ("first_touch", "page faults (estimate)"),
        /// Code without a mark.
        Rest = ("rest", "not marked"),
    }
}

impl ColdWork {
    /// The part that a stage of this name belongs to, and whether it is counted.
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
    /// The part.
    pub work: ColdWork,
    /// Its time in nanoseconds; the difference to a steady iteration can be negative.
    pub nanos: i64,
    /// How often; for page faults, the number of pages.
    pub count: u64,
}

/// The extra unmarked time of an iteration in a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageShift {
    /// The stage, directly inside the iteration; none for time outside all stages.
    pub stage: Option<String>,
    /// How much longer, in nanoseconds.
    pub nanos: i64,
}

/// The cost of a cold start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdStart {
    /// From the first stage of the process to its first iteration, in nanoseconds.
    pub before_ns: u64,
    /// The parts of that time; they add up to it.
    pub before: Vec<ColdPart>,
    /// The first iteration, in nanoseconds.
    pub first_ns: u64,
    /// A steady iteration: the median of the second half; none if there are fewer than six.
    pub steady_ns: Option<u64>,
    /// The parts of the extra time of the first iteration; they add up to it. Empty without a steady iteration.
    pub beyond: Vec<ColdPart>,
    /// Where the unmarked part of the first iteration is: stages that took longer, and by how much.
    pub rest_in: Vec<StageShift>,
}

impl ColdStart {
    /// The extra time of the first iteration over a steady one, in nanoseconds.
    pub fn beyond_ns(&self) -> Option<i64> {
        self.steady_ns.map(|steady| difference(self.first_ns, steady))
    }

    /// The part of the time before the first iteration.
    pub fn before_part(&self, work: ColdWork) -> Option<&ColdPart> {
        self.before.iter().find(|part| part.work == work)
    }

    /// The part of the extra time of the first iteration.
    pub fn beyond_part(&self, work: ColdWork) -> Option<&ColdPart> {
        self.beyond.iter().find(|part| part.work == work)
    }
}

/// Computes the cost of a cold start from the trace of a process; none if it has no iteration.
///
/// Every moment belongs to the innermost stage with a known part. Work that every iteration repeats is not part of the
/// cold start, so the median of the second half of the iterations is subtracted, part by part.
pub fn cold_start(trace: &Trace) -> Option<ColdStart> {
    let seen = Seen::of(trace)?;
    let (iterations, later) = (&seen.iterations, seen.iterations.len() / 2);
    let first = iterations.first()?;
    let steady: &[IterationParts] = if iterations.len() < LEAST_ITERATIONS { &[] } else { &iterations[later..] };
    let steady_ns = middle(steady.iter().map(|iteration| iteration.nanos));
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

/// The process with the median first iteration.
pub fn middle_start(mut starts: Vec<&ColdStart>) -> Option<&ColdStart> {
    starts.sort_by_key(|start| start.first_ns);
    starts.get(starts.len().checked_sub(1)? / 2).copied()
}

/// Time and count of each part.
type Parts = [(u64, u64); ColdWork::ALL.len()];

/// The parts of an iteration.
#[derive(Debug, Default)]
struct IterationParts {
    start: u64,
    nanos: u64,
    parts: Parts,
    /// Page faults.
    pages: Option<u64>,
}

/// What one thread did until its last iteration.
#[derive(Debug, Default)]
struct Seen {
    before_ns: u64,
    before: Parts,
    iterations: Vec<IterationParts>,
    /// The unexplained time of each stage directly inside iterations, per iteration; `None` is outside all stages.
    unmarked: BTreeMap<Option<NameId>, BTreeMap<usize, u64>>,
    names: BTreeMap<NameId, String>,
    /// The cost of a page fault, in nanoseconds.
    page: Option<f64>,
}

/// The position of a span, and its part.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    iteration: Option<usize>,
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
        for iteration in &mut seen.iterations {
            iteration.pages = between(&faults, iteration.start, iteration.start.saturating_add(iteration.nanos));
        }
        seen.page = page_cost(&spans, &faults);
        Some(seen)
    }

    fn place(&mut self, trace: &Trace, span: &Span<'_>, around: Place) -> Place {
        if is_iteration(span) && around.iteration.is_none() {
            let (start, nanos) = (span.start.0, span.duration.0);
            self.iterations.push(IterationParts { start, nanos, ..IterationParts::default() });
            return Place { iteration: Some(self.iterations.len() - 1), ..Place::default() };
        }
        let work = ColdWork::of_stage(span.name).map(|(work, _)| work).or(around.work);
        let stage = around.stage.or_else(|| around.iteration.map(|_| trace.span_name(span.id)));
        if let Some(stage) = stage {
            self.names.entry(stage).or_insert_with(|| trace.name(stage).to_owned());
        }
        Place { iteration: around.iteration, stage, work }
    }

    /// Adds the self time of a span to its part.
    fn add(&mut self, span: &Span<'_>, place: Place, own: u64, first_iteration: u64) {
        let parts = match place.iteration {
            Some(iteration) => &mut self.iterations[iteration].parts,
            None if span.end().0 <= first_iteration => &mut self.before,
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
                if let Some(iteration) = place.iteration {
                    let nanos = self.unmarked.entry(place.stage).or_default().entry(iteration).or_default();
                    *nanos = nanos.saturating_add(own);
                }
            }
        }
    }
}

/// The counter values of page faults in order, for the process of these iterations.
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

/// Page faults between two moments, interpolated.
fn between(faults: &[(u64, f64)], start: u64, end: u64) -> Option<u64> {
    let before = faults.partition_point(|point| point.0 <= start).checked_sub(1)?;
    let after = faults.partition_point(|point| point.0 < end);
    Some((faults.get(after)?.1 - faults[before].1).max(0.0) as u64)
}

/// The cost of a page fault, from a stage that only touches memory, divided by the number of threads.
fn page_cost(spans: &[Span<'_>], faults: &[(u64, f64)]) -> Option<f64> {
    let touching = spans.iter().rfind(|span| span.name == "touch_memory")?;
    let pages = between(faults, touching.start.0, touching.end().0).filter(|pages| *pages > 0)?;
    let threads = spans.iter().filter(|span| span.name == "start_threads");
    let threads = threads.filter_map(|span| whole(&span.fields, "threads")).max().unwrap_or(1);
    Some(touching.duration.0 as f64 / pages as f64 / threads.max(1) as f64)
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

/// The extra time of the first iteration. The cost of page faults is an estimate, limited to the remaining time.
fn parts_beyond(first: &IterationParts, steady: &[IterationParts], beyond: i64, page: Option<f64>) -> Vec<ColdPart> {
    let mut parts = Vec::new();
    for work in ColdWork::ALL {
        let (nanos, count) = first.parts[work.index()];
        let usual = middle(steady.iter().map(|iteration| iteration.parts[work.index()].0)).unwrap_or(0);
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

/// Memory that only the first iteration touches, without memory that was allocated in it.
fn touched(
    first: &IterationParts,
    steady: &[IterationParts],
    page: Option<f64>,
    parts: &[ColdPart],
    left: i64,
) -> Option<ColdPart> {
    let usual = middle(steady.iter().filter_map(|iteration| iteration.pages)).unwrap_or(0);
    let pages = first.pages?.saturating_sub(usual);
    let allocated = parts.iter().find(|part| part.work == ColdWork::Allocate).map_or(0, |part| part.nanos);
    let nanos = (pages as f64 * page?) as i64;
    let nanos = nanos.saturating_sub(allocated).min(left);
    (nanos > 0).then_some(ColdPart { work: ColdWork::FirstTouch, nanos, count: pages })
}

/// Stages that took longer in the first iteration, and by how much.
fn rest_in(seen: &Seen, later: usize) -> Vec<StageShift> {
    let shift = |(stage, by_iteration): (&Option<NameId>, &BTreeMap<usize, u64>)| {
        let at = |iteration: usize| by_iteration.get(&iteration).copied().unwrap_or(0);
        let usual = middle((later..seen.iterations.len()).map(at)).unwrap_or(0);
        let stage = stage.and_then(|stage| seen.names.get(&stage).cloned());
        StageShift { stage, nanos: difference(at(0), usual) }
    };
    let mut shifts: Vec<StageShift> = seen.unmarked.iter().map(shift).filter(|shift| shift.nanos > 0).collect();
    shifts.sort_by_key(|shift| std::cmp::Reverse(shift.nanos));
    shifts
}

fn middle(numbers: impl Iterator<Item = u64>) -> Option<u64> {
    median_of(numbers.map(|number| number as f64)).map(|middle| middle.round() as u64)
}

fn difference(a: u64, b: u64) -> i64 {
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    whole(a).saturating_sub(whole(b))
}

#[cfg(test)]
mod tests;
