//! The work of devices, prepared once for all analyses.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use laptime_trace::{Activity, NameId, Nanos, SpanId, Trace, TrackId, TrackKind};

use crate::{group::Group, intervals::Stretches, lap_unit::is_lap};

/// Idle time before the first work belongs to the window of a device from this share of the window on.
const LEAST_HEAD: f64 = 0.05;

/// The longest delay of the first work after its launch, as a share of the idle time before it.
const MOST_DELAY: f64 = 0.1;

/// The work of every device of a trace, with what launched it.
#[derive(Debug, Clone)]
pub struct Devices {
    /// The devices, in order of their numbers.
    pub devices: Vec<DeviceWork>,
    /// What each span is, by its place in the trace.
    pub activities: Vec<Activity>,
}

/// What one device did.
#[derive(Debug, Clone)]
pub struct DeviceWork {
    /// Its name: `device 0`, or the name of the process where it has no number.
    pub name: String,
    /// Its number.
    pub number: Option<i64>,
    /// Its work, in order of start.
    pub work: Vec<Work>,
    /// The work is stages between two marks on a stream, idle time included: nothing finer was recorded.
    pub is_stages: bool,
    /// Graphs that the trace also shows as kernels; only the kernels count.
    pub graphs_with_kernels: u64,
    /// Idle time in which recording was paused: what happened is unknown, so it is not a gap.
    pub not_recorded: Stretches,
    /// The start of the lap that launched its first work, if the device was idle from then on for long.
    pub idle_since: Option<u64>,
}

/// One kernel, copy or other work of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Its span.
    pub id: SpanId,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Its stream.
    pub stream: TrackId,
    /// What it is.
    pub kind: WorkKind,
    /// The host call that launched it, if the trace has it.
    pub launch: Option<SpanId>,
}

/// The kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkKind {
    /// A kernel, or a graph as a whole.
    Compute,
    /// A kernel that exchanges data with other devices.
    Communication,
    /// A copy or a memset.
    Copy,
}

impl Work {
    /// How long it lasted.
    pub fn length(&self) -> u64 {
        self.end - self.start
    }
}

impl Devices {
    /// The work of all devices.
    pub fn work(&self) -> impl Iterator<Item = &Work> {
        self.devices.iter().flat_map(|device| &device.work)
    }
}

/// How much of some work each thread launched.
pub fn launches_of<'w>(trace: &Trace, work: impl Iterator<Item = &'w Work>) -> HashMap<TrackId, u64> {
    let mut launches: HashMap<TrackId, u64> = HashMap::new();
    for launch in work.filter_map(|work| work.launch) {
        *launches.entry(trace.span_track(launch)).or_default() += 1;
    }
    launches
}

impl DeviceWork {
    /// The thread that launches most of its work.
    pub fn launching_thread(&self, trace: &Trace) -> Option<TrackId> {
        let launches = launches_of(trace, self.work.iter());
        launches.into_iter().max_by_key(|&(track, count)| (count, track)).map(|(track, _)| track)
    }

    /// From the start of its first work, or [`Self::idle_since`], to the end of its last; none if it did nothing.
    pub fn window(&self) -> Option<(u64, u64)> {
        let last = self.work.iter().map(|work| work.end).max()?;
        Some((self.idle_since.unwrap_or(self.work.first()?.start), last))
    }

    /// How much of its window was recorded.
    pub fn recorded_length(&self) -> u64 {
        self.window().map_or(0, |(first, last)| last - first - self.not_recorded.length())
    }

    /// When it did anything.
    pub fn busy(&self) -> Stretches {
        self.stretches(|_| true)
    }

    /// When it did work of a kind.
    pub fn busy_with(&self, kind: WorkKind) -> Stretches {
        self.stretches(|work| work.kind == kind)
    }

    /// When it did work that matches a filter.
    pub fn stretches(&self, is_wanted: impl Fn(&Work) -> bool) -> Stretches {
        Stretches::union(self.work.iter().filter(|work| is_wanted(work)).map(|work| (work.start, work.end)).collect())
    }
}

/// Collects the work of each device.
///
/// Work is kernels, graphs, copies and memsets. A graph whose kernels are shown too is left out. If a device has none of
/// these but stages on its streams, the stages are its work.
pub fn devices(trace: &Trace) -> Devices {
    let activities = trace.activities();
    let launches = launches(trace, &activities);
    let beside = graphs_with_kernels(trace, &activities, &launches);
    let mut kinds: HashMap<NameId, WorkKind> = HashMap::new();
    let mut found: Vec<DeviceWork> = Vec::new();
    let pauses = pauses(trace);
    for ((number, name), tracks) in tracks_of_devices(trace) {
        let mut device = DeviceWork {
            name,
            number,
            work: Vec::new(),
            is_stages: false,
            graphs_with_kernels: 0,
            not_recorded: Stretches::default(),
            idle_since: None,
        };
        for span in tracks.iter().flat_map(|&track| trace.spans_on(track)) {
            if !activities[span.id.index()].is_device_work() {
                continue;
            }
            if beside.contains(&span.id) {
                device.graphs_with_kernels += 1;
                continue;
            }
            let kind = *kinds.entry(trace.span_name(span.id)).or_insert_with(|| kind_of(span.activity(), span.name));
            device.work.push(work(&span, kind, launches.get(&span.id).copied()));
        }
        if device.work.is_empty() {
            device.work = stages_of(trace, &tracks, &activities, &launches);
            device.is_stages = true;
        }
        device.work.sort_by_key(|work| (work.start, work.end, work.id));
        device.idle_since = idle_since(trace, &activities, &device);
        device.not_recorded = not_recorded(&device, &pauses);
        if !device.work.is_empty() {
            found.push(device);
        }
    }
    Devices { devices: found, activities }
}

/// The start of the lap that launched the first work of a device, if the device was idle until then: a host that loads data
/// for most of a single step would otherwise go unnoticed. Earlier work that was not recorded would have delayed the first
/// one, so a first work that starts late after its launch proves nothing.
fn idle_since(trace: &Trace, activities: &[Activity], device: &DeviceWork) -> Option<u64> {
    let (first, last) = device.window()?;
    let launch = device.work.first()?.launch.filter(|launch| activities[launch.index()].is_call())?;
    // A step may overlap with Python functions without nesting, so it is not always an ancestor.
    let moment = trace.span_start(launch);
    let before = trace.spans_on(trace.span_track(launch)).take_while(|span| span.start <= moment);
    let lap = before.filter(|span| span.end() > moment).find(is_lap)?.id;
    let since = trace.span_start(lap).0;
    // Clocks that disagree can put the lap behind the work that it launched.
    let idle = first.checked_sub(since).filter(|idle| *idle > 0)? as f64;
    let delay = first.saturating_sub(trace.span_end(launch).0);
    (idle >= LEAST_HEAD * (last - since) as f64 && delay as f64 <= MOST_DELAY * idle).then_some(since)
}

/// The times in which a process did not record everything.
pub fn pauses(trace: &Trace) -> Stretches {
    Stretches::union(trace.metadata.not_recorded().iter().map(|pause| (pause.start_ns, pause.end_ns)).collect())
}

/// The idle stretches that a pause of the recording touches, whole: what ran there is not known.
fn not_recorded(device: &DeviceWork, pauses: &Stretches) -> Stretches {
    let Some((first, last)) = device.window().filter(|_| pauses.length() > 0) else { return Stretches::default() };
    let idle = device.busy().gaps_in(first, last);
    let is_touched = |&&(from, to): &&(u64, u64)| pauses.length_within(from, to) > 0;
    Stretches::union(idle.parts().iter().filter(is_touched).copied().collect())
}

fn work(span: &laptime_trace::Span<'_>, kind: WorkKind, launch: Option<SpanId>) -> Work {
    Work { id: span.id, start: span.start.0, end: span.end().0, stream: span.track, kind, launch }
}

fn kind_of(activity: Activity, name: &str) -> WorkKind {
    match Group::of(activity, name) {
        Group::Communication => WorkKind::Communication,
        _ if matches!(activity, Activity::Copy | Activity::Memset) => WorkKind::Copy,
        _ => WorkKind::Compute,
    }
}

/// The tracks of each device. Streams with the same device number belong together, whatever process used them.
fn tracks_of_devices(trace: &Trace) -> BTreeMap<(Option<i64>, String), Vec<TrackId>> {
    let mut found: BTreeMap<(Option<i64>, String), Vec<TrackId>> = BTreeMap::new();
    for (id, track) in trace.tracks().filter(|(_, track)| track.kind.is_device()) {
        let name = match track.device {
            Some(number) => format!("device {number}"),
            None => named_process(trace, track.process),
        };
        found.entry((track.device, name)).or_default().push(id);
    }
    found
}

fn named_process(trace: &Trace, process: laptime_trace::ProcessId) -> String {
    match trace.name(trace.process(process).name) {
        "" => "device".to_owned(),
        name => format!("device of {name}"),
    }
}

/// When the call of the host began that led to each span of a device, where the trace says.
pub fn launch_starts(trace: &Trace) -> HashMap<SpanId, u64> {
    launches(trace, &trace.activities()).into_iter().map(|(work, call)| (work, trace.span_start(call).0)).collect()
}

/// The host call that launched each device span.
fn launches(trace: &Trace, activities: &[Activity]) -> HashMap<SpanId, SpanId> {
    let is_on_host = |id: SpanId| !trace.track(trace.span_track(id)).kind.is_device();
    let flows = trace.flows().iter().filter(|flow| is_on_host(flow.from) && !is_on_host(flow.to));
    let mut found: HashMap<SpanId, SpanId> = HashMap::new();
    for flow in flows {
        let known = found.entry(flow.to).or_insert(flow.from);
        // A driver call inside a runtime call: the flow of the call counts, not that of an operation.
        if !activities[known.index()].is_call() && activities[flow.from.index()].is_call() {
            *known = flow.from;
        }
    }
    found
}

fn graphs_with_kernels(trace: &Trace, activities: &[Activity], launches: &HashMap<SpanId, SpanId>) -> HashSet<SpanId> {
    let graphs: Vec<SpanId> = trace.span_ids().filter(|id| activities[id.index()] == Activity::Graph).collect();
    if graphs.is_empty() {
        return HashSet::new();
    }
    let is_inner = |id: &SpanId| matches!(activities[id.index()], Activity::Kernel | Activity::Copy | Activity::Memset);
    let with_kernels: HashSet<SpanId> =
        launches.iter().filter(|(id, _)| is_inner(id)).map(|(_, launch)| *launch).collect();
    graphs.into_iter().filter(|id| launches.get(id).is_some_and(|launch| with_kernels.contains(launch))).collect()
}

/// The outermost stages of a device's streams.
fn stages_of(
    trace: &Trace,
    tracks: &[TrackId],
    activities: &[Activity],
    launches: &HashMap<SpanId, SpanId>,
) -> Vec<Work> {
    let stages = tracks.iter().flat_map(|&track| trace.spans_on(track));
    let is_stage = |activity| matches!(activity, Activity::Stage | Activity::Other);
    stages
        .filter(|span| span.parent.is_none() && is_stage(activities[span.id.index()]))
        .map(|span| {
            let is_copy = trace.track(span.track).kind == TrackKind::Copy;
            let kind = if is_copy { WorkKind::Copy } else { WorkKind::Compute };
            work(&span, kind, launches.get(&span.id).copied())
        })
        .collect()
}

/// The uncertainty between host and device times; zero if the trace has none.
pub fn uncertainty(trace: &Trace) -> u64 {
    trace.clock_uncertainty.unwrap_or(Nanos(0)).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::{TraceBuilder, activity::category};

    #[test]
    fn work_is_collected_per_device_with_its_launches() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let stream = builder.stream(1, 7, "stream 7");
        let launch = builder.span(main, Nanos(0), Nanos(5), "cudaLaunchKernel", category::RUNTIME);
        let kernel = builder.span(stream, Nanos(9), Nanos(10), "gemm", category::KERNEL);
        builder.span(stream, Nanos(30), Nanos(10), "ncclDevKernel_AllReduce", category::KERNEL);
        builder.span(stream, Nanos(50), Nanos(10), "Memcpy HtoD (Pinned -> Device)", category::COPY);
        builder.span(stream, Nanos(5), Nanos(70), "step", category::DEVICE_STAGE);
        builder.flow(launch, kernel);
        let trace = builder.build().unwrap();
        let found = devices(&trace);
        let device = &found.devices[0];
        let shown: Vec<_> = device.work.iter().map(|work| (work.start, work.kind, work.launch.is_some())).collect();
        let expected =
            [(9, WorkKind::Compute, true), (30, WorkKind::Communication, false), (50, WorkKind::Copy, false)];
        assert_eq!(shown, expected);
        assert_eq!((device.window(), device.busy().length(), device.is_stages), (Some((9, 60)), 30, false));
    }

    #[test]
    fn the_window_begins_with_the_lap_that_launched_the_first_work_long_after_its_start() {
        let window = |loading: u64, delay: u64, lap: &str| {
            let mut builder = TraceBuilder::default();
            let (main, stream) = (builder.thread(1, 1, "main"), builder.stream(1, 7, "stream 7"));
            builder.span(main, Nanos(5), Nanos(100), "train.py(3): load", category::PYTHON);
            builder.span(main, Nanos(10), Nanos(1000), lap, category::USER);
            let launch = builder.span(main, Nanos(10 + loading), Nanos(2), "cudaLaunchKernel", category::RUNTIME);
            let kernel = builder.span(stream, Nanos(12 + loading + delay), Nanos(500), "gemm", category::KERNEL);
            builder.flow(launch, kernel);
            devices(&builder.build().unwrap()).devices[0].window().unwrap()
        };
        assert_eq!(window(300, 5, "ProfilerStep#6"), (10, 817));
        // Little idle time, work that may have waited for other work, and no lap.
        assert_eq!(window(10, 1, "ProfilerStep#6"), (23, 523));
        assert_eq!(window(300, 100, "ProfilerStep#6"), (412, 912));
        assert_eq!(window(300, 5, "forward"), (317, 817));
    }

    #[test]
    fn a_lap_that_starts_after_the_work_it_launched_does_not_move_the_window() {
        let mut builder = TraceBuilder::default();
        let (main, stream) = (builder.thread(1, 1, "main"), builder.stream(1, 7, "stream 7"));
        builder.span(main, Nanos(100), Nanos(100), "ProfilerStep#6", category::USER);
        let launch = builder.span(main, Nanos(110), Nanos(2), "cudaLaunchKernel", category::RUNTIME);
        let kernel = builder.span(stream, Nanos(10), Nanos(50), "gemm", category::KERNEL);
        builder.flow(launch, kernel);
        assert_eq!(devices(&builder.build().unwrap()).devices[0].window(), Some((10, 60)));
    }

    #[test]
    fn a_graph_and_its_kernels_count_once() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let stream = builder.stream(1, 7, "stream 7");
        let launch = builder.span(main, Nanos(0), Nanos(5), "cudaGraphLaunch", category::RUNTIME);
        let graph = builder.span(stream, Nanos(10), Nanos(50), "graph 3", category::GRAPH);
        let kernel = builder.span(stream, Nanos(12), Nanos(10), "gemm", category::KERNEL);
        builder.flow(launch, graph);
        builder.flow(launch, kernel);
        let other = builder.span(main, Nanos(100), Nanos(5), "cudaGraphLaunch", category::RUNTIME);
        let alone = builder.span(stream, Nanos(110), Nanos(50), "graph 4", category::GRAPH);
        builder.flow(other, alone);
        let found = devices(&builder.build().unwrap());
        let device = &found.devices[0];
        assert_eq!(device.work.iter().map(|work| work.start).collect::<Vec<_>>(), [12, 110]);
        assert_eq!(device.graphs_with_kernels, 1);
    }

    #[test]
    fn stages_replace_kernels_if_none_were_recorded() {
        let mut builder = TraceBuilder::default();
        let stream = builder.stream(1, 7, "stream 7");
        builder.span(stream, Nanos(0), Nanos(50), "decode", "");
        builder.span(stream, Nanos(10), Nanos(10), "attention", "");
        let found = devices(&builder.build().unwrap());
        assert!(found.devices[0].is_stages);
        assert_eq!(found.devices[0].work.len(), 1);
    }
}
