//! Assembles the recordings of all processes into one trace.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use laptime_capture::part::{Payload, RangeAction, State};
use laptime_trace::{
    InvalidTrace, Metadata, NameId, Nanos, NotRecorded, Number, Origin, PYTHON_SAMPLE, SpanEntry, Trace, TraceBuilder,
    Track, TrackId, TrackKind, Value, activity::category, metadata,
};
use serde_json::json;

use super::append::{OwnTrace, append};
use super::clocks::Reading;
use super::parts::{Process, Range};
use super::python::{Line, Samples};

/// The start of the trace.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// On the monotonic clock.
    pub host_ns: u64,
    /// Since 1970.
    pub unix_ns: i64,
}

/// What was observed from outside of the processes, and the traces that they recorded themselves.
#[derive(Debug, Default)]
pub struct Observations {
    pub samples: Samples,
    pub clocks: Vec<Reading>,
    pub own: Vec<OwnTrace>,
}

impl Observations {
    /// Drops observations before this time of the monotonic clock.
    pub fn forget_before(&mut self, oldest_ns: u64) {
        self.samples.samples.retain(|sample| sample.host_ns >= oldest_ns);
        self.clocks.retain(|reading| reading.host_ns >= oldest_ns);
    }
}

/// Assembles a trace. Renumbers the devices in `processes`.
pub fn assemble(processes: &mut [Process], observations: &Observations, start: Start) -> Result<Trace, InvalidTrace> {
    let mut builder = TraceBuilder::default();
    builder.origin = Origin { name: "start of the program".to_owned(), unix_nanos: Some(start.unix_ns) };
    let numbers = number_devices(processes, &mut builder.metadata);
    let end_ns = processes.iter().map(last_time).max().unwrap_or(start.host_ns);
    processes.iter_mut().for_each(|process| drop_work_in_pauses(process, end_ns));
    let mut pauses = Vec::new();
    for process in processes.iter() {
        let number = i64::from(process.pid);
        let id = builder.process(number);
        builder.name_process(id, &process.title());
        let mut threads = Threads { process: number, tracks: HashMap::new() };
        for (thread, name) in &process.threads {
            threads.track(*thread, &mut builder);
            threads.rename(*thread, name, &mut builder);
        }
        for own in observations.own.iter().filter(|own| own.pid == process.pid) {
            append(own, start.host_ns, &mut threads.tracks, &mut builder);
        }
        add_ranges(process, start, end_ns, &mut threads, &mut builder);
        builder.add_kernels(number, &process.records, start.host_ns);
        add_memory(process, start, &mut builder);
        pauses.extend(not_recorded(process, end_ns).into_iter().map(|(from, to)| {
            let since = |at: u64| at.saturating_sub(start.host_ns);
            NotRecorded { process: number, start_ns: since(from), end_ns: since(to) }
        }));
    }
    // A process without CUDA may have recorded itself too.
    for own in observations.own.iter().filter(|own| !processes.iter().any(|process| process.pid == own.pid)) {
        append(own, start.host_ns, &mut HashMap::new(), &mut builder);
    }
    add_samples(&observations.samples, start, &mut builder);
    add_clocks(&observations.clocks, &numbers, start, &mut builder);
    builder.metadata.set_text(metadata::SOURCE, "laptime record");
    if let Some(distributed) = distributed(processes) {
        builder.metadata.set(metadata::DISTRIBUTED, &distributed.to_string());
    }
    if !pauses.is_empty() {
        builder.metadata.set(metadata::NOT_RECORDED, &serde_json::json!(pauses).to_string());
    }
    builder.build()
}

/// The number of ranks, and the rank if all processes with a rank have the same one.
fn distributed(processes: &[Process]) -> Option<serde_json::Value> {
    let ranks: HashSet<u64> = processes.iter().filter_map(Process::rank).collect();
    let size = processes.iter().find_map(|process| process.infos.get("WORLD_SIZE")?.parse::<u64>().ok());
    let mut found = serde_json::Map::new();
    found.extend(size.map(|size| ("world_size".to_owned(), size.into())));
    let rank = ranks.iter().next().filter(|_| ranks.len() == 1);
    found.extend(rank.map(|rank| ("rank".to_owned(), (*rank).into())));
    (!ranks.is_empty()).then_some(found.into())
}

/// Periods in which a process did not record everything, except before and after the recording.
pub fn not_recorded(process: &Process, end_ns: u64) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    let mut since = None;
    for &(at, state) in &process.states {
        match (state, since) {
            (State::Recording, Some(from)) => {
                found.push((from, at));
                since = None;
            }
            (State::Paused | State::Light | State::TakenOver, None) => since = Some(at),
            _ => {}
        }
    }
    found.extend(since.map(|from| (from, end_ns.max(from))));
    found
}

/// Drops copies and syncs in pauses. They are recorded there to measure the overhead, but without the kernels around them
/// they would look like exposed copies.
fn drop_work_in_pauses(process: &mut Process, end_ns: u64) {
    let pauses = not_recorded(process, end_ns);
    let is_recorded = |start_ns: u64| {
        let before = pauses.partition_point(|(from, _)| *from <= start_ns);
        before.checked_sub(1).is_none_or(|at| start_ns >= pauses[at].1)
    };
    process.records.work.retain(|work| is_recorded(work.time.start_ns));
}

fn last_time(process: &Process) -> u64 {
    let work = process.records.work.iter().map(|work| work.time.end_ns);
    let calls = process.records.calls.iter().map(|call| call.time.end_ns);
    let ranges = process.ranges.iter().map(|range| range.host_ns);
    let states = process.states.iter().map(|(at, _)| *at);
    work.chain(calls).chain(ranges).chain(states).max().unwrap_or(process.start_ns)
}

/// Numbers GPUs by their bus address: processes may number them differently (`CUDA_VISIBLE_DEVICES`).
fn number_devices(processes: &mut [Process], metadata: &mut Metadata) -> HashMap<String, u32> {
    let mut buses: Vec<&str> = processes.iter().flat_map(|process| &process.devices).map(|gpu| &*gpu.bus).collect();
    buses.sort_unstable();
    buses.dedup();
    let numbers: HashMap<String, u32> = buses.iter().zip(0..).map(|(bus, at)| ((*bus).to_owned(), at)).collect();
    let first_with = |bus: &str| processes.iter().flat_map(|process| &process.devices).find(|gpu| gpu.bus == bus);
    let described: Vec<serde_json::Value> = buses
        .iter()
        .filter_map(|bus| {
            let gpu = first_with(bus)?;
            Some(json!({
                "id": numbers[*bus],
                "name": gpu.name,
                "totalGlobalMem": gpu.memory_bytes,
                "numSms": gpu.multiprocessors,
                "computeMajor": gpu.capability.0,
                "computeMinor": gpu.capability.1,
            }))
        })
        .collect();
    if !described.is_empty() {
        metadata.set(metadata::DEVICES, &serde_json::Value::from(described).to_string());
    }
    for process in processes.iter_mut() {
        let of_process: HashMap<u32, u32> =
            process.devices.iter().map(|gpu| (gpu.number, numbers[gpu.bus.as_str()])).collect();
        let number = |device: u32| of_process.get(&device).copied().unwrap_or(device);
        process.records.work.iter_mut().for_each(|work| work.device = number(work.device));
        process.memory.iter_mut().for_each(|(_, device, _)| *device = number(*device));
    }
    numbers
}

/// Adds clocks, power, temperature and throttling of the used GPUs as counters.
fn add_clocks(readings: &[Reading], numbers: &HashMap<String, u32>, start: Start, builder: &mut TraceBuilder) {
    // The driver and NVML pad bus addresses differently.
    let bare = |bus: &str| bus.trim_start_matches(['0', ':']).to_ascii_lowercase();
    let numbers: HashMap<String, u32> = numbers.iter().map(|(bus, number)| (bare(bus), *number)).collect();
    let mut curves: HashMap<(u32, &str), TrackId> = HashMap::new();
    for reading in readings.iter().filter(|reading| reading.host_ns >= start.host_ns) {
        let Some(&device) = numbers.get(&bare(&reading.bus)) else { continue };
        let values = [
            ("SM clock", "MHz", reading.sm_mhz.map(|mhz| Number::Int(mhz.into()))),
            ("power", "W", reading.power_mw.map(|power| Number::Float(f64::from(power) / 1e3))),
            ("temperature", "°C", reading.celsius.map(|celsius| Number::Int(celsius.into()))),
            ("throttled", "", Some(Number::Int(reading.is_throttled.into()))),
        ];
        for (name, unit, number) in values {
            let Some(number) = number else { continue };
            let track = *curves.entry((device, name)).or_insert_with(|| {
                let track = builder.counter(0, name, unit);
                builder.track_mut(track).device = Some(i64::from(device));
                track
            });
            builder.value(track, Nanos(reading.host_ns - start.host_ns), number);
        }
    }
    if !curves.is_empty() {
        let process = builder.process(0);
        builder.name_process(process, "GPUs");
    }
}

/// The tracks of the threads of a process.
struct Threads {
    process: i64,
    tracks: HashMap<u32, TrackId>,
}

impl Threads {
    fn track(&mut self, thread: u32, builder: &mut TraceBuilder) -> TrackId {
        let process = self.process;
        *self.tracks.entry(thread).or_insert_with(|| {
            let is_main = i64::from(thread) == process;
            let name = if is_main { "main thread".to_owned() } else { format!("thread {thread}") };
            builder.thread(process, i64::from(thread), &name)
        })
    }

    fn rename(&mut self, thread: u32, name: &str, builder: &mut TraceBuilder) {
        let (track, name) = (self.track(thread, builder), builder.name(name));
        builder.track_mut(track).name = name;
    }
}

/// Adds NVTX: push/pop ranges and marks on their threads, start/end ranges on a lane of the process.
fn add_ranges(process: &Process, start: Start, end_ns: u64, threads: &mut Threads, builder: &mut TraceBuilder) {
    let time = |at: u64| Nanos(at.saturating_sub(start.host_ns));
    let mut open: HashMap<(u32, Arc<str>), Vec<SpanEntry>> = HashMap::new();
    let mut started: HashMap<u64, SpanEntry> = HashMap::new();
    let mut lane = None;
    let mut ranges: Vec<&Range> = process.ranges.iter().collect();
    ranges.sort_by_key(|range| range.host_ns);
    for range in ranges {
        match range.action {
            RangeAction::Push => {
                let track = threads.track(range.thread, builder);
                let span = add_span(range, track, time(range.host_ns), builder);
                open.entry((range.thread, Arc::clone(&range.domain))).or_default().push(span);
            }
            RangeAction::Pop => {
                let innermost = open.get_mut(&(range.thread, Arc::clone(&range.domain))).and_then(Vec::pop);
                if let Some(span) = innermost {
                    builder.end_span(span, time(range.host_ns));
                }
            }
            RangeAction::Start(number) => {
                let track = *lane.get_or_insert_with(|| lane_of(process.pid, "NVTX ranges", None, builder));
                let span = add_span(range, track, time(range.host_ns), builder);
                started.insert(number, span);
            }
            RangeAction::End(number) => {
                if let Some(span) = started.remove(&number) {
                    builder.end_span(span, time(range.host_ns));
                }
            }
            RangeAction::Mark => {
                let track = threads.track(range.thread, builder);
                let mark = builder.mark(track, time(range.host_ns), &range.name, category::NVTX);
                for (name, value) in fields(range) {
                    builder.mark_field(mark, name, value);
                }
            }
        }
    }
    for span in open.into_values().flatten().chain(started.into_values()) {
        builder.end_span(span, time(end_ns));
        builder.leave_open(span);
    }
}

fn lane_of(pid: u32, name: &str, number: Option<i64>, builder: &mut TraceBuilder) -> TrackId {
    let (process, name, unit) = (builder.process(i64::from(pid)), builder.name(name), NameId::EMPTY);
    builder.track(Track { process, kind: TrackKind::Lane, name, number, device: None, unit })
}

fn add_span(range: &Range, track: TrackId, start: Nanos, builder: &mut TraceBuilder) -> SpanEntry {
    let span = builder.span(track, start, Nanos(0), &range.name, category::NVTX);
    for (name, value) in fields(range) {
        builder.span_field(span, name, value);
    }
    span
}

fn fields(range: &Range) -> impl Iterator<Item = (&'static str, Value<'_>)> {
    let text = |name, text: &Arc<str>| (!text.is_empty()).then_some(name);
    let payload = range.payload.map(|payload| match payload {
        Payload::Unsigned(number) => Value::Uint(number),
        Payload::Signed(number) => Value::Int(number),
        Payload::Float(number) => Value::Float(number),
    });
    let domain = text("domain", &range.domain).map(|name| (name, Value::Str(&range.domain)));
    let category = text("category", &range.category).map(|name| (name, Value::Str(&range.category)));
    [domain, category, payload.map(|payload| ("payload", payload))].into_iter().flatten()
}

/// Adds allocated memory as a counter per device.
fn add_memory(process: &Process, start: Start, builder: &mut TraceBuilder) {
    let mut curves: HashMap<u32, (TrackId, i64)> = HashMap::new();
    let mut changes = process.memory.clone();
    changes.sort_by_key(|(at, _, _)| *at);
    for (at, device, change) in changes {
        let (track, bytes) = curves.entry(device).or_insert_with(|| {
            let track = builder.counter(i64::from(process.pid), "device memory allocated", "bytes");
            builder.track_mut(track).device = Some(i64::from(device));
            (track, 0)
        });
        *bytes = bytes.saturating_add(change);
        builder.value(*track, Nanos(at.saturating_sub(start.host_ns)), Number::Int(*bytes));
    }
}

/// Adds a mark per sample, on a lane per thread, named by the innermost line of user code.
fn add_samples(samples: &Samples, start: Start, builder: &mut TraceBuilder) {
    let texts: Vec<SampleText> = samples.stacks.iter().map(|stack| SampleText::of(stack)).collect();
    let mut lanes: HashMap<(u32, u32), TrackId> = HashMap::new();
    for sample in &samples.samples {
        let lane = *lanes
            .entry((sample.pid, sample.thread))
            .or_insert_with(|| lane_of(sample.pid, "Python, sampled", Some(i64::from(sample.thread)), builder));
        let text = &texts[sample.stack as usize];
        let time = Nanos(sample.host_ns.saturating_sub(start.host_ns));
        let mark = builder.mark(lane, time, &text.line, PYTHON_SAMPLE);
        if let Some(inside) = &text.inside {
            builder.mark_field(mark, "inside", inside.as_str());
        }
        builder.mark_field(mark, "stack", text.stack.as_str());
    }
}

struct SampleText {
    line: String,
    inside: Option<String>,
    stack: String,
}

impl SampleText {
    fn of(stack: &[Line]) -> Self {
        let shown: Vec<String> = stack.iter().map(short).collect();
        // Without user code, the innermost line.
        let own = stack.iter().position(is_own).unwrap_or(0);
        let inside = (own > 0).then(|| shown[0].clone());
        let whole: Vec<&str> = shown.iter().rev().map(String::as_str).collect();
        Self { line: shown.get(own).cloned().unwrap_or_default(), inside, stack: whole.join(";") }
    }
}

/// Folders of installed packages.
const PACKAGES: [&str; 2] = ["/site-packages/", "/dist-packages/"];

fn is_own(line: &Line) -> bool {
    let is_package = PACKAGES.iter().any(|folder| line.file.contains(folder));
    !is_package && !line.file.starts_with('<') && standard_library(&line.file).is_none()
}

/// The path within the standard library: `threading.py` of `.../lib/python3.12/threading.py`.
fn standard_library(file: &str) -> Option<&str> {
    let (_, after) = file.split_once("/lib/python3.")?;
    after.split_once('/').map(|(_, path)| path)
}

/// `train.py:88 in step`; with the path inside the package for installed code.
fn short(line: &Line) -> String {
    let of_package = PACKAGES.iter().find_map(|folder| line.file.split_once(folder)).map(|(_, path)| path);
    let path = of_package.or_else(|| standard_library(&line.file));
    let file = path.unwrap_or_else(|| line.file.rsplit('/').next().unwrap_or_default());
    format!("{file}:{} in {}", line.number, line.function)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(file: &str, number: u32, function: &str) -> Line {
        Line { file: file.into(), function: function.into(), number }
    }

    #[test]
    fn clocks_of_the_used_gpus_are_counters() {
        let reading = |bus: &str, host_ns, sm_mhz| Reading {
            host_ns,
            bus: bus.to_owned(),
            sm_mhz: Some(sm_mhz),
            ..Reading::default()
        };
        let numbers = HashMap::from([("0000:41:00.0".to_owned(), 1)]);
        let readings = [
            reading("00000000:41:00.0", 1_500, 1_980),
            reading("00000000:01:00.0", 1_500, 345),
            reading("00000000:41:00.0", 1_700, 1_410),
        ];
        let mut builder = TraceBuilder::default();
        add_clocks(&readings, &numbers, Start { host_ns: 1_000, unix_ns: 0 }, &mut builder);
        let trace = builder.build().unwrap();
        let (clock, track) = trace.tracks().find(|(_, track)| trace.name(track.name) == "SM clock").unwrap();
        assert_eq!(track.device, Some(1));
        let points = trace.values().filter(|point| point.track == clock);
        let points: Vec<(u64, Number)> = points.map(|point| (point.time.0, point.number)).collect();
        assert_eq!(points, [(500, Number::Int(1_980)), (700, Number::Int(1_410))]);
    }

    #[test]
    fn work_in_pauses_is_not_in_the_trace() {
        use laptime_trace::kernels::{DeviceWork, Stretch, WorkKind};
        let copy = |start_ns| DeviceWork {
            time: Stretch { start_ns, end_ns: start_ns + 10 },
            device: 0,
            stream: Some(7),
            correlation: 0,
            kind: WorkKind::Memset { bytes: 4 },
        };
        let mut process = Process {
            states: vec![(0, State::Recording), (200, State::Light), (300, State::Recording), (500, State::Ended)],
            ..Process::default()
        };
        process.records.work = [100, 200, 299, 300, 400].map(copy).into();
        drop_work_in_pauses(&mut process, 500);
        let starts: Vec<u64> = process.records.work.iter().map(|work| work.time.start_ns).collect();
        assert_eq!(starts, [100, 300, 400]);
    }

    #[test]
    fn a_sample_is_named_by_the_innermost_line_of_user_code() {
        let text = SampleText::of(&[
            line("/usr/lib/python3.12/threading.py", 355, "Condition.wait"),
            line(
                "/venv/lib/python3.12/site-packages/torch/utils/data/dataloader.py",
                633,
                "_BaseDataLoaderIter.__next__",
            ),
            line("/project/train.py", 41, "main"),
            line("/project/train.py", 90, "<module>"),
        ]);
        assert_eq!(text.line, "train.py:41 in main");
        assert_eq!(text.inside.as_deref(), Some("threading.py:355 in Condition.wait"));
        assert_eq!(
            text.stack,
            "train.py:90 in <module>;train.py:41 in main;torch/utils/data/dataloader.py:633 in \
             _BaseDataLoaderIter.__next__;threading.py:355 in Condition.wait"
        );
        let text = SampleText::of(&[line("<frozen importlib._bootstrap>", 1, "load")]);
        assert_eq!((text.line.as_str(), text.inside), ("<frozen importlib._bootstrap>:1 in load", None));
    }
}
