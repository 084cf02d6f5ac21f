//! Inserts device activity into the trace of the same period, in the form that other tools' traces have.

use std::{collections::HashMap, sync::Arc};

use super::{DeviceWork, HostCall, KernelRecords, Stretch, WorkKind};
use crate::builder::{SpanEntry, TraceBuilder};
use crate::track::{TrackId, TrackKind};
use crate::{
    activity::category, fields::StoredValue, format::launches::Launches, invariants::InvalidTrace, names::NameId,
    time::Nanos, trace::Trace, value::Value,
};

impl Trace {
    /// The trace with the device activity of the same period: streams as tracks, kernels and copies as spans, calls as
    /// spans of their threads, and a flow from each call to the work it launched.
    ///
    /// `start_ns` is the trace's time zero on the clock of the records. Records before it are left out and counted.
    pub fn with_kernels(self, records: &KernelRecords, start_ns: u64) -> Result<Self, InvalidTrace> {
        let process = self.processes.first().map_or(0, |process| process.number);
        let mut builder = TraceBuilder::extending(self);
        builder.add_kernels(process, records, start_ns);
        builder.build()
    }
}

impl TraceBuilder {
    /// Adds the device activity of one process, as [`Trace::with_kernels`] describes.
    ///
    /// Spans of the process's threads should be added before: calls are kept inside them.
    pub fn add_kernels(&mut self, process: i64, records: &KernelRecords, start_ns: u64) {
        let id = self.process(process);
        let boundaries = self.boundaries(id);
        let threads = self.tracks_in(id, TrackKind::Thread);
        let mut insert = Insert {
            builder: self,
            start_ns,
            boundaries,
            process,
            threads,
            streams: HashMap::new(),
            names: HashMap::new(),
            triples: HashMap::new(),
            launches: Launches::default(),
            too_early: 0,
        };
        records.calls.iter().for_each(|call| insert.call(call));
        records.work.iter().for_each(|work| insert.work(work));
        insert.finish(records);
    }
}

struct Insert<'a> {
    builder: &'a mut TraceBuilder,
    start_ns: u64,
    /// The moments at which spans of each thread begin or end, in order.
    boundaries: HashMap<TrackId, Vec<u64>>,
    process: i64,
    threads: HashMap<i64, TrackId>,
    streams: HashMap<(u32, Option<u32>), TrackId>,
    /// Names by the place of their text: most spans share one of a few.
    names: HashMap<*const u8, (Arc<str>, NameId)>,
    triples: HashMap<[u32; 3], NameId>,
    launches: Launches,
    too_early: u64,
}

impl Insert<'_> {
    /// The time in the trace; none for activity that ended before the trace began.
    fn time(&mut self, time: Stretch) -> Option<(u64, u64)> {
        let Some(end) = time.end_ns.checked_sub(self.start_ns) else {
            self.too_early += 1;
            return None;
        };
        let start = time.start_ns.saturating_sub(self.start_ns);
        Some((start, end.max(start)))
    }

    fn call(&mut self, call: &HostCall) {
        let Some(time) = self.time(call.time) else { return };
        let track = self.thread(call.thread);
        let (start, end) = self.boundaries.get(&track).map_or(time, |moments| inside_one(time, moments));
        let kind = if call.is_driver { category::DRIVER } else { category::RUNTIME };
        let (name, kind) = (self.shared_name(&call.name), self.builder.name(kind));
        let span = self.builder.span_named(track, Nanos(start), Nanos(end - start), name, kind);
        if call.correlation != 0 {
            self.set_fields(span, &[("correlation", Value::from(call.correlation))]);
            self.launches.call(call.correlation, span);
        }
    }

    fn work(&mut self, work: &DeviceWork) {
        let Some((start, end)) = self.time(work.time) else { return };
        let track = self.stream(work.device, work.stream);
        let (name, kind) = self.named(&work.kind);
        let span = self.builder.span_named(track, Nanos(start), Nanos(end - start), name, kind);
        let mut fields = vec![("device", Value::Int(i64::from(work.device)))];
        fields.extend(work.stream.map(|stream| ("stream", Value::Int(i64::from(stream)))));
        fields.extend((work.correlation != 0).then(|| ("correlation", Value::from(work.correlation))));
        fields.extend(own_fields(&work.kind));
        let mut fields = self.stored(&fields);
        if let WorkKind::Kernel { grid, block, .. } = &work.kind {
            for (name, size) in [("grid", grid), ("block", block)] {
                fields.push((self.builder.name(name), StoredValue::Str(self.triple(*size))));
            }
        }
        self.builder.set_span_fields(span, &mut fields);
        if work.correlation != 0 && work.kind.is_work() {
            self.launches.work(work.correlation, span);
        }
    }

    fn set_fields(&mut self, span: SpanEntry, fields: &[(&str, Value<'_>)]) {
        let mut fields = self.stored(fields);
        self.builder.set_span_fields(span, &mut fields);
    }

    fn stored(&mut self, fields: &[(&str, Value<'_>)]) -> Vec<(NameId, StoredValue)> {
        fields.iter().map(|(name, value)| (self.builder.name(name), self.builder.stored(*value))).collect()
    }

    fn named(&mut self, kind: &WorkKind) -> (NameId, NameId) {
        let (name, category) = match kind {
            WorkKind::Kernel { name, .. } => return (self.shared_name(name), self.builder.name(category::KERNEL)),
            WorkKind::Graph { .. } => ("CUDA graph".to_owned(), category::GRAPH),
            WorkKind::Copy { from, to, .. } => {
                (format!("Memcpy {} ({} -> {})", from.direction_to(*to), from.word(), to.word()), category::COPY)
            }
            WorkKind::Memset { .. } => ("Memset (Device)".to_owned(), category::MEMSET),
            WorkKind::Sync { name } => (name.clone(), category::DEVICE_SYNC),
        };
        (self.builder.name(&name), self.builder.name(category))
    }

    fn shared_name(&mut self, name: &Arc<str>) -> NameId {
        let Self { builder, names, .. } = self;
        names.entry(name.as_ptr()).or_insert_with(|| (Arc::clone(name), builder.name(name))).1
    }

    fn triple(&mut self, size: [u32; 3]) -> NameId {
        let Self { builder, triples, .. } = self;
        let [x, y, z] = size;
        *triples.entry(size).or_insert_with(|| builder.name(&format!("[{x}, {y}, {z}]")))
    }

    fn thread(&mut self, number: i64) -> TrackId {
        let Self { builder, threads, process, .. } = self;
        *threads.entry(number).or_insert_with(|| {
            builder.named_track(*process, TrackKind::Thread, &format!("thread {number}"), Some(number), None)
        })
    }

    fn stream(&mut self, device: u32, stream: Option<u32>) -> TrackId {
        let Self { builder, streams, process, .. } = self;
        *streams.entry((device, stream)).or_insert_with(|| {
            let name = stream.map_or_else(|| "all streams".to_owned(), |stream| format!("stream {stream}"));
            builder.named_track(*process, TrackKind::Stream, &name, stream.map(i64::from), Some(i64::from(device)))
        })
    }

    fn finish(self, records: &KernelRecords) {
        let Self { builder, launches, too_early, .. } = self;
        let unexplained = launches.connect(builder);
        builder.lost = builder.lost.saturating_add(records.lost);
        builder.clock_uncertainty = builder.clock_uncertainty.max(records.uncertainty_ns.map(Nanos));
        builder.warnings.extend(records.warnings.iter().cloned());
        builder.warn(too_early, "device records are from before the recording");
        builder.warn(unexplained, "device activities have no launching call");
    }
}

/// The longest part of a call between two moments at which its thread began or ended a span. A thread does one thing at
/// a time, so a call that seems to straddle such a moment only shows the difference of two clocks.
fn inside_one((start, end): (u64, u64), moments: &[u64]) -> (u64, u64) {
    let first = moments.partition_point(|&moment| moment <= start);
    let within = moments[first..].iter().copied().take_while(|&moment| moment < end);
    let mut best = (start, start);
    let mut from = start;
    for to in within.chain([end]) {
        if to - from > best.1 - best.0 {
            best = (from, to);
        }
        from = to;
    }
    best
}

fn own_fields(kind: &WorkKind) -> Vec<(&'static str, Value<'_>)> {
    let graph_field = |graph: &Option<u64>| graph.map(|graph| ("graph id", Value::from(graph)));
    match kind {
        WorkKind::Kernel { registers, shared_bytes, graph, node, .. } => [
            registers.map(|registers| ("registers per thread", Value::from(u64::from(registers)))),
            shared_bytes.map(|bytes| ("shared memory", Value::from(bytes))),
            graph_field(graph),
            node.map(|node| ("graph node id", Value::from(node))),
        ]
        .into_iter()
        .flatten()
        .collect(),
        WorkKind::Graph { graph } => vec![("graph id", Value::from(*graph))],
        WorkKind::Copy { bytes, graph, .. } => {
            [Some(("bytes", Value::from(*bytes))), graph_field(graph)].into_iter().flatten().collect()
        }
        WorkKind::Memset { bytes } => vec![("bytes", Value::from(*bytes))],
        WorkKind::Sync { name } => vec![("cuda_sync_kind", Value::Str(name))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activity, MemoryKind};

    fn stretch(start_ns: u64, end_ns: u64) -> Stretch {
        Stretch { start_ns, end_ns }
    }

    fn call(start: u64, end: u64, name: &str, correlation: u64) -> HostCall {
        HostCall { time: stretch(start, end), thread: 11, name: name.into(), is_driver: true, correlation }
    }

    fn work(start: u64, end: u64, correlation: u64, kind: WorkKind) -> DeviceWork {
        DeviceWork { time: stretch(start, end), device: 0, stream: Some(7), correlation, kind }
    }

    fn kernel(name: &str) -> WorkKind {
        WorkKind::Kernel {
            name: name.into(),
            grid: [4, 1, 1],
            block: [256, 1, 1],
            registers: None,
            shared_bytes: None,
            graph: None,
            node: None,
        }
    }

    /// A thread with two consecutive stages.
    fn recorded() -> Trace {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(5, 11, "main");
        builder.span(main, Nanos(100), Nanos(100), "small", "");
        builder.span(main, Nanos(200), Nanos(100), "large", "");
        builder.build().unwrap()
    }

    #[test]
    fn calls_lie_in_their_stages_and_lead_to_kernels_on_streams() {
        let copy = WorkKind::Copy { from: MemoryKind::Device, to: MemoryKind::Pinned, bytes: 64, graph: None };
        let records = KernelRecords {
            calls: vec![
                call(1110, 1120, "cuLaunchKernel", 1),
                call(1210, 1220, "cuMemcpyDtoHAsync_v2", 2),
                call(1260, 1290, "cuStreamSynchronize", 3),
            ],
            work: vec![
                work(1150, 1180, 1, kernel("gemm")),
                work(1230, 1280, 2, copy),
                work(1260, 1290, 3, WorkKind::Sync { name: "Stream Sync".to_owned() }),
            ],
            ..KernelRecords::default()
        };
        let trace = recorded().with_kernels(&records, 1000).unwrap();
        let expected = "\
main
  small  100..200
    cuda_driver:cuLaunchKernel  110..120  correlation=1
  large  200..300
    cuda_driver:cuMemcpyDtoHAsync_v2  210..220  correlation=2
    cuda_driver:cuStreamSynchronize  260..290  correlation=3
stream 7 (device stream on device 0)
  kernel:gemm  150..180  device=0  stream=7  correlation=1  grid=[4, 1, 1]  block=[256, 1, 1]
  gpu_memcpy:Memcpy DtoH (Device -> Pinned)  230..280  device=0  stream=7  correlation=2  bytes=64
  cuda_sync:Stream Sync  260..290  lane 1  device=0  stream=7  correlation=3  cuda_sync_kind=Stream Sync
flow cuLaunchKernel 110 -> gemm 150
flow cuMemcpyDtoHAsync_v2 210 -> Memcpy DtoH (Device -> Pinned) 230
";
        assert_eq!(trace.outline(), expected);
        let (_, stream) = trace.tracks().find(|(_, track)| track.kind == TrackKind::Stream).unwrap();
        assert_eq!(stream.number, Some(7));
        let activities: Vec<Activity> =
            trace.spans().filter(|span| trace.track(span.track).kind.is_device()).map(|span| span.activity()).collect();
        assert_eq!(activities, [Activity::Kernel, Activity::Copy, Activity::DeviceSync]);
        assert_eq!(trace.warnings, Vec::<String>::new());
    }

    #[test]
    fn a_call_that_seems_to_straddle_a_boundary_is_reported_by_its_longer_part() {
        assert_eq!(inside_one((95, 120), &[100, 200]), (100, 120));
        assert_eq!(inside_one((180, 205), &[100, 200]), (180, 200));
        assert_eq!(inside_one((98, 112), &[100, 110, 200]), (100, 110));
        assert_eq!(inside_one((120, 130), &[100, 200]), (120, 130));
        assert_eq!(inside_one((100, 200), &[100, 200]), (100, 200));
        assert_eq!(inside_one((5, 5), &[5]), (5, 5));
    }

    #[test]
    fn records_before_the_trace_and_work_without_a_call_are_reported() {
        let records = KernelRecords {
            work: vec![work(10, 20, 1, kernel("early")), work(1010, 1020, 9, kernel("alone"))],
            lost: 3,
            uncertainty_ns: Some(700),
            ..KernelRecords::default()
        };
        let trace = recorded().with_kernels(&records, 1000).unwrap();
        assert_eq!((trace.lost, trace.clock_uncertainty), (3, Some(Nanos(700))));
        assert_eq!(
            trace.warnings,
            ["1 device record is from before the recording", "1 device activity has no launching call"]
        );
    }

    #[test]
    fn a_thread_that_marked_nothing_gets_a_track() {
        let foreign = HostCall { thread: 99, ..call(1010, 1020, "cuMemAlloc_v2", 0) };
        let records = KernelRecords { calls: vec![foreign], ..KernelRecords::default() };
        let trace = recorded().with_kernels(&records, 1000).unwrap();
        assert!(trace.outline().contains("thread 99\n  cuda_driver:cuMemAlloc_v2  10..20\n"), "{}", trace.outline());
    }
}
