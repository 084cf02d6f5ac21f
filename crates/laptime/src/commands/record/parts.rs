//! Reads the parts that the recorded processes wrote.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::{fs, sync::Arc};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use laptime_capture::cupti;
use laptime_capture::kernels::{device_wait, device_work};
use laptime_capture::part::{self, Anchor, Call, Device, Event, Kind, Part, RangeAction, State};
use laptime_capture::{PART_ENDING, demangle::readable};
use laptime_trace::kernels::{DeviceWork, HostCall, Stretch, WorkKind};
use laptime_trace::{KernelRecords, metadata::rank_title};
use rayon::prelude::*;

/// The recording of one process, on the monotonic clock.
#[derive(Debug, Default)]
pub struct Process {
    pub pid: u32,
    /// When the library was loaded.
    pub start_ns: u64,
    pub infos: BTreeMap<String, String>,
    /// Problems, by the names that the library uses.
    pub problems: Vec<String>,
    pub devices: Vec<Device>,
    pub states: Vec<(u64, State)>,
    pub records: KernelRecords,
    pub ranges: Vec<Range>,
    /// Changes of device memory: time, device, bytes (negative for a release).
    pub memory: Vec<(u64, u32, i64)>,
    /// Names of threads.
    pub threads: Vec<(u32, String)>,
    pub dropped: BTreeMap<Kind, u64>,
    /// Omitted calls inside other calls: driver calls of the runtime, and runtime calls of the runtime itself.
    pub inner_calls: usize,
    pub launches: usize,
    pub launches_without_kernel: usize,
    /// Bytes at the end of the parts that could not be read.
    pub cut_bytes: usize,
}

/// An NVTX event. Without a domain or category, these are empty.
#[derive(Debug, Clone)]
pub struct Range {
    pub host_ns: u64,
    pub thread: u32,
    pub action: RangeAction,
    pub name: Arc<str>,
    pub domain: Arc<str>,
    pub category: Arc<str>,
    pub payload: Option<part::Payload>,
}

impl Process {
    /// The name and rank of the process.
    pub fn title(&self) -> String {
        let name = self.infos.get("name").map_or("", String::as_str);
        match self.rank() {
            Some(rank) => rank_title(rank, name),
            None => name.to_owned(),
        }
    }

    pub fn rank(&self) -> Option<u64> {
        let names = ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "LOCAL_RANK"];
        names.iter().find_map(|name| self.infos.get(*name)?.parse().ok())
    }

    pub fn has_ended(&self) -> bool {
        self.states.iter().any(|(_, state)| *state == State::Ended)
    }

    pub fn kernels(&self) -> usize {
        self.records.work.iter().filter(is_kernel).count()
    }
}

/// Reads all parts in a folder. The processes are in order of their start.
pub fn read(folder: &Path) -> Vec<Process> {
    let mut files: BTreeMap<(u64, u32), Vec<(u32, PathBuf)>> = BTreeMap::new();
    for path in self::files(folder) {
        if let Some((pid, start, number)) = named(&path) {
            files.entry((start, pid)).or_default().push((number, path));
        }
    }
    let files: Vec<_> = files.into_iter().collect();
    files.into_par_iter().map(|((start, pid), parts)| process(pid, start, parts)).collect()
}

pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| named(path).is_some()).collect()
}

/// The pids of the processes that wrote parts to a folder.
pub fn pids(folder: &Path) -> Vec<u32> {
    files(folder).iter().filter_map(|path| named(path)).map(|(pid, _, _)| pid).collect()
}

/// Parses `PID-START.NUMBER.part` and `PID-START.NUMBER.part.gz`.
fn named(path: &Path) -> Option<(u32, u64, u32)> {
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix(COMPRESSED).unwrap_or(name).strip_suffix(PART_ENDING)?.strip_suffix('.')?;
    let (process, number) = stem.split_once('.')?;
    let (pid, start) = process.split_once('-')?;
    Some((pid.parse().ok()?, start.parse().ok()?, number.parse().ok()?))
}

const COMPRESSED: &str = ".gz";

/// Compresses a part into a folder.
pub fn compress(path: &Path, folder: &Path) -> io::Result<()> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| !name.ends_with(COMPRESSED)) else {
        return Err(io::Error::from(io::ErrorKind::AlreadyExists));
    };
    let to = folder.join(format!("{name}{COMPRESSED}"));
    let mut encoder = GzEncoder::new(fs::File::create(&to)?, Compression::fast());
    let written = fs::File::open(path).and_then(|mut file| io::copy(&mut file, &mut encoder));
    let finished = written.and_then(|_| encoder.finish()).map(drop);
    if finished.is_err() {
        let _ = fs::remove_file(&to);
    }
    finished
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = fs::read(path)?;
    if path.extension().is_none_or(|ending| ending != "gz") {
        return Ok(bytes);
    }
    let mut unpacked = Vec::new();
    GzDecoder::new(&bytes[..]).read_to_end(&mut unpacked)?;
    Ok(unpacked)
}

fn process(pid: u32, start_ns: u64, mut files: Vec<(u32, PathBuf)>) -> Process {
    files.sort();
    let parts: Vec<Part> = files.iter().filter_map(|(_, path)| Some(part::read(&bytes(path).ok()?))).collect();
    let mut process = Process { pid, start_ns, ..Process::default() };
    let clock = Clock::new(&parts);
    process.records.uncertainty_ns = clock.uncertainty();
    let mut calls = Vec::new();
    for part in &parts {
        process.cut_bytes += part.cut_bytes;
        let mut names = Names { part, readable: HashMap::new() };
        for event in &part.events {
            process.add(event, &mut names, &clock, &mut calls);
        }
    }
    let all = calls.len();
    process.records.calls = outer_calls(calls, &mut process.records.work);
    process.inner_calls = all - process.records.calls.len();
    (process.launches, process.launches_without_kernel) = launches(&process.records);
    process.records.lost = process.dropped.values().sum();
    process.states.sort_by_key(|(at, _)| *at);
    process.states.dedup();
    process
}

/// The names in one part; kernel names are demangled.
struct Names<'a> {
    part: &'a Part,
    readable: HashMap<u32, Arc<str>>,
}

impl Names<'_> {
    fn plain(&self, number: u32) -> Arc<str> {
        self.part.names.get(number as usize).cloned().unwrap_or_default()
    }

    fn readable(&mut self, number: u32) -> Arc<str> {
        let name = self.plain(number);
        Arc::clone(self.readable.entry(number).or_insert_with(|| readable(&name).into()))
    }
}

impl Process {
    fn add(&mut self, event: &Event, names: &mut Names<'_>, clock: &Clock, calls: &mut Vec<HostCall>) {
        match event {
            Event::Info { key, value } if key == "problem" => {
                if !self.problems.contains(value) {
                    self.problems.push(value.clone());
                }
            }
            Event::Info { key, value } => {
                self.infos.insert(key.clone(), value.clone());
            }
            Event::Device(device) => {
                if !self.devices.iter().any(|known| known.number == device.number) {
                    self.devices.push(device.clone());
                }
            }
            Event::Anchor(_) => {}
            Event::State { host_nanos, state } => self.states.push((*host_nanos, *state)),
            Event::Work(work) => {
                let name = |name: &u32| names.readable(*name);
                self.records.work.push(device_work(work, name, |start, end| clock.stretch(start, end)));
            }
            Event::Wait(wait) => self.records.work.push(device_wait(wait, |start, end| clock.stretch(start, end))),
            Event::Call(call) => calls.push(host_call(call, names, clock)),
            Event::Memory(memory) => {
                let bytes = i64::try_from(memory.bytes).unwrap_or(i64::MAX);
                if memory.memory == cupti::MemoryKind::Device {
                    let change = if memory.is_release { -bytes } else { bytes };
                    self.memory.push((clock.host(memory.nanos), memory.device, change));
                }
            }
            Event::Range(range) => self.ranges.push(Range {
                host_ns: range.host_nanos,
                thread: range.thread,
                action: range.action,
                name: names.plain(range.name),
                domain: names.plain(range.domain),
                category: names.plain(range.category),
                payload: range.payload,
            }),
            Event::Thread { thread, name } => self.threads.push((*thread, names.plain(*name).to_string())),
            Event::Dropped { kind, count } => {
                let known = self.dropped.entry(*kind).or_default();
                *known = (*known).max(*count);
            }
        }
    }
}

fn host_call(call: &Call, names: &Names<'_>, clock: &Clock) -> HostCall {
    HostCall {
        time: clock.stretch(call.start_nanos, call.end_nanos),
        thread: i64::from(call.thread),
        name: names.plain(call.name),
        is_driver: call.is_driver,
        correlation: u64::from(call.correlation),
    }
}

fn is_kernel(work: &&DeviceWork) -> bool {
    matches!(work.kind, WorkKind::Kernel { .. } | WorkKind::Graph { .. })
}

/// The number of launches, and of launches without a kernel.
fn launches(records: &KernelRecords) -> (usize, usize) {
    let with_work: HashSet<u64> = records.work.iter().map(|work| work.correlation).collect();
    let launches = records.calls.iter().filter(|call| call.name.contains("Launch"));
    launches
        .fold((0, 0), |(all, without), call| (all + 1, without + usize::from(!with_work.contains(&call.correlation))))
}

/// Leaves out calls that the CUDA runtime made inside other calls. Work launched by an inner call is assigned to the
/// outer one.
fn outer_calls(mut calls: Vec<HostCall>, work: &mut [DeviceWork]) -> Vec<HostCall> {
    calls.sort_by_key(|call| (call.thread, call.time.start_ns, std::cmp::Reverse(call.time.end_ns), call.is_driver));
    let mut kept: Vec<HostCall> = Vec::with_capacity(calls.len());
    let mut aliases: HashMap<u64, u64> = HashMap::new();
    for call in calls {
        let outer = kept.last().filter(|outer| {
            let is_made_by_runtime = call.is_driver || call.name == outer.name;
            let is_inside = outer.thread == call.thread && call.time.end_ns <= outer.time.end_ns;
            is_made_by_runtime && !outer.is_driver && is_inside
        });
        match outer {
            Some(outer) => {
                if outer.correlation != call.correlation {
                    aliases.insert(call.correlation, outer.correlation);
                }
            }
            None => kept.push(call),
        }
    }
    if !aliases.is_empty() {
        for work in work {
            if let Some(&outer) = aliases.get(&work.correlation) {
                work.correlation = outer;
            }
        }
    }
    kept
}

/// Converts times of CUPTI's clock to the monotonic clock.
#[derive(Debug, Default)]
struct Clock(Vec<Anchor>);

impl Clock {
    fn new(parts: &[Part]) -> Self {
        let events = parts.iter().flat_map(|part| &part.events);
        let mut anchors: Vec<Anchor> =
            events.filter_map(|event| if let Event::Anchor(anchor) = event { Some(*anchor) } else { None }).collect();
        anchors.sort_by_key(|anchor| anchor.cupti_nanos);
        anchors.dedup_by_key(|anchor| anchor.cupti_nanos);
        // An interrupted reading is inaccurate.
        let mut windows: Vec<u64> = anchors.iter().map(|anchor| anchor.window_nanos).collect();
        windows.sort_unstable();
        if let Some(&usual) = windows.get(windows.len() / 2) {
            anchors.retain(|anchor| anchor.window_nanos <= 4 * usual.max(250));
        }
        Self(anchors)
    }

    fn host(&self, cupti: u64) -> u64 {
        let after = self.0.partition_point(|anchor| anchor.cupti_nanos <= cupti);
        let before = after.checked_sub(1).and_then(|at| self.0.get(at));
        let shifted =
            |anchor: &Anchor| anchor.host_nanos.saturating_add_signed(cupti.wrapping_sub(anchor.cupti_nanos) as i64);
        match (before, self.0.get(after)) {
            (Some(a), Some(b)) => {
                let (theirs, ours) = (b.cupti_nanos - a.cupti_nanos, b.host_nanos.saturating_sub(a.host_nanos));
                let share = (cupti - a.cupti_nanos) as f64 / theirs.max(1) as f64;
                // The clocks drift by parts per million, so the correction is small and exact as a float.
                let drift = (ours as f64 - theirs as f64) * share;
                shifted(a).saturating_add_signed(drift.round() as i64)
            }
            (Some(only), None) | (None, Some(only)) => shifted(only),
            (None, None) => cupti,
        }
    }

    fn stretch(&self, start: u64, end: u64) -> Stretch {
        let start_ns = self.host(start);
        Stretch { start_ns, end_ns: self.host(end).max(start_ns) }
    }

    /// The maximum error of device times: half of the widest reading.
    fn uncertainty(&self) -> Option<u64> {
        self.0.iter().map(|anchor| anchor.window_nanos / 2).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_two_anchors_are_interpolated_and_others_are_shifted() {
        let anchor = |host_nanos, cupti_nanos| Anchor { host_nanos, cupti_nanos, window_nanos: 100 };
        let clock = Clock(vec![anchor(1_000, 5_000), anchor(2_100, 6_000)]);
        assert_eq!((clock.host(5_000), clock.host(5_500), clock.host(6_000)), (1_000, 1_550, 2_100));
        assert_eq!((clock.host(4_900), clock.host(6_010)), (900, 2_110));
        assert_eq!(clock.uncertainty(), Some(50));
    }

    #[test]
    fn a_launch_without_a_kernel_is_counted_and_a_nested_launch_counts_once() {
        let call = |start_ns, end_ns, correlation| HostCall {
            time: Stretch { start_ns, end_ns },
            thread: 1,
            name: "cudaLaunchKernel".into(),
            is_driver: false,
            correlation,
        };
        let mut work = [DeviceWork {
            time: Stretch::default(),
            device: 0,
            stream: None,
            correlation: 8,
            kind: WorkKind::Graph { graph: 1 },
        }];
        let calls = outer_calls(vec![call(10, 20, 7), call(11, 19, 8), call(30, 40, 9)], &mut work);
        assert_eq!(calls.iter().map(|call| call.correlation).collect::<Vec<_>>(), [7, 9]);
        let records = KernelRecords { calls, work: work.into(), ..KernelRecords::default() };
        assert_eq!(launches(&records), (2, 1));
    }

    #[test]
    fn a_driver_call_inside_a_runtime_call_is_left_out_and_its_work_is_assigned_to_the_outer() {
        let call = |start_ns, end_ns, is_driver, correlation| HostCall {
            time: Stretch { start_ns, end_ns },
            thread: 1,
            name: "".into(),
            is_driver,
            correlation,
        };
        let mut work = [DeviceWork {
            time: Stretch::default(),
            device: 0,
            stream: None,
            correlation: 8,
            kind: WorkKind::Memset { bytes: 0 },
        }];
        let calls = vec![call(12, 18, true, 8), call(10, 20, false, 7), call(30, 40, true, 9)];
        let kept = outer_calls(calls, &mut work);
        assert_eq!(kept.iter().map(|call| call.correlation).collect::<Vec<_>>(), [7, 9]);
        assert_eq!(work[0].correlation, 7);
    }
}
