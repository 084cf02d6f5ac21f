//! Traces in torch.profiler's style: the result of the reader compared with hand-written expectations.

use std::{
    fs,
    path::{Path, PathBuf},
};

use laptime_trace::{Activity, Format, MemoryKind, Nanos, Span, Trace, TrackKind, Value, read, read_from, write_to};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/kineto").join(name)
}

fn trace(name: &str) -> Trace {
    read(golden(&format!("{name}.json"))).unwrap()
}

fn named<'a>(trace: &'a Trace, name: &str) -> Span<'a> {
    trace.spans().find(|span| span.name == name).unwrap()
}

/// The names of the spans that a span led to.
fn effects<'a>(trace: &'a Trace, cause: Span<'_>) -> Vec<&'a str> {
    trace.flows().iter().filter(|flow| flow.from == cause.id).map(|flow| trace.span(flow.to).name).collect()
}

#[test]
fn the_outlines_are_as_they_were() {
    for name in ["two_streams", "cuda_graph", "rocm_microseconds"] {
        let found = trace(name).outline();
        let path = golden(&format!("{name}.outline.txt"));
        if std::env::var_os("LAPTIME_BLESS").is_some() {
            fs::write(&path, &found).unwrap();
        }
        assert_eq!(found, fs::read_to_string(&path).unwrap(), "`{name}` differs");
    }
}

#[test]
fn streams_are_tracks_of_their_device() {
    let trace = trace("two_streams");
    let streams: Vec<_> = trace
        .tracks()
        .filter(|(_, track)| track.kind == TrackKind::Stream)
        .map(|(_, track)| (trace.name(trace.process(track.process).name), track.device, track.number))
        .collect();
    assert_eq!(streams, [("GPU 0", Some(0), Some(7)), ("GPU 0", Some(0), Some(20)), ("GPU 0", Some(0), None)]);
}

#[test]
fn launches_lead_to_their_work_and_nothing_is_reported_twice() {
    let trace = trace("two_streams");
    assert_eq!(effects(&trace, named(&trace, "cudaLaunchKernel")), ["gemm<float, 128>(float*, float*)"]);
    assert_eq!(effects(&trace, named(&trace, "cudaMemcpyAsync")), ["Memcpy HtoD (Pageable -> Device)"]);
    assert_eq!(effects(&trace, named(&trace, "cudaStreamSynchronize")), ["Stream Sync"]);
    assert_eq!(effects(&trace, named(&trace, "aten::mm")), ["MmBackward0"]);
    assert_eq!(trace.flows().len(), 6);
    assert_eq!(trace.warnings, ["1 device span has no launching call"]);
}

#[test]
fn a_graph_launch_leads_to_all_its_kernels_and_the_next_to_its_own() {
    let trace = trace("cuda_graph");
    let launches: Vec<_> = trace.spans().filter(|span| span.name == "cudaGraphLaunch").collect();
    assert_eq!(effects(&trace, launches[0]), ["first", "second", "beside"]);
    assert_eq!(effects(&trace, launches[1]), ["first"]);
}

#[test]
fn times_are_whole_nanoseconds_from_the_base_time() {
    let trace = trace("two_streams");
    let kernel = named(&trace, "gemm<float, 128>(float*, float*)");
    assert_eq!((kernel.start, kernel.duration), (Nanos(1_070_123), Nanos(40_456)));
    assert_eq!(trace.origin.unix_nanos, Some(1_751_410_836_000_000_000));
}

#[test]
fn without_a_base_time_microseconds_count_from_1970() {
    let trace = trace("rocm_microseconds");
    assert_eq!(trace.origin.unix_nanos, Some(0));
    assert_eq!(named(&trace, "relu").start, Nanos(1_735_632_363_000_020_000));
}

#[test]
fn waits_of_the_host_are_found_whoever_made_the_card() {
    let waits = |name| trace(name).spans().filter(Span::is_wait).map(|span| span.name.to_owned()).collect::<Vec<_>>();
    assert_eq!(waits("two_streams"), ["cudaStreamSynchronize", "cudaDeviceSynchronize"]);
    assert_eq!(waits("rocm_microseconds"), ["hipMemcpyWithStream", "hipDeviceSynchronize"]);
}

#[test]
fn device_work_differs_from_annotations_on_the_device() {
    let trace = trace("two_streams");
    let activities = trace.activities();
    let count = |activity| activities.iter().filter(|found| **found == activity).count();
    assert_eq!(count(Activity::Kernel), 2);
    assert_eq!((count(Activity::Copy), count(Activity::Memset)), (1, 1));
    assert_eq!((count(Activity::DeviceSync), count(Activity::DeviceStage)), (2, 1));
    assert_eq!((count(Activity::Launch), count(Activity::Wait)), (3, 2));
    assert_eq!((count(Activity::Operation), count(Activity::Python)), (2, 1));
}

#[test]
fn a_copy_says_from_where_to_where_and_how_much() {
    let trace = trace("two_streams");
    let path = named(&trace, "Memcpy HtoD (Pageable -> Device)").copy_path().unwrap();
    assert_eq!((path.from, path.to, path.bytes), (MemoryKind::Pageable, MemoryKind::Device, Some(1 << 20)));
    let rocm = self::trace("rocm_microseconds");
    let path = named(&rocm, "Memcpy DtoH (Device -> Host)").copy_path().unwrap();
    assert_eq!((path.from, path.to, path.bytes), (MemoryKind::Device, MemoryKind::Host, Some(2_560)));
}

#[test]
fn shapes_and_sizes_stay_as_fields() {
    let trace = trace("two_streams");
    let shapes = named(&trace, "aten::mm").fields.get("Input Dims");
    assert_eq!(shapes, Some(Value::Str("[[16, 559], [559, 64], []]")));
    let kernel = named(&trace, "gemm<float, 128>(float*, float*)").fields;
    assert_eq!(kernel.get("stream"), Some(Value::Int(7)));
    assert_eq!(kernel.get("blocks per SM"), Some(Value::Float(0.242424)));
    assert_eq!(kernel.get("nothing of the kind"), None);
}

#[test]
fn memory_is_a_curve_and_its_events_stay() {
    let trace = trace("two_streams");
    let curves: Vec<_> = trace
        .tracks()
        .filter(|(_, track)| track.kind == TrackKind::Counter)
        .map(|(_, track)| (trace.name(track.name), track.device, trace.name(track.unit)))
        .collect();
    let expected = [("memory allocated (GPU 0)", Some(0), "bytes"), ("memory reserved (GPU 0)", Some(0), "bytes")];
    assert_eq!(curves, expected);
    assert_eq!(trace.values().map(|value| value.number.as_f64()).collect::<Vec<_>>(), [35_776.0, 2_097_152.0]);
    let mark = trace.marks().find(|mark| mark.name == "[memory]").unwrap();
    assert_eq!(mark.fields.get("Bytes"), Some(Value::Int(35_776)));
}

#[test]
fn rank_and_devices_are_known() {
    let trace = trace("two_streams");
    assert_eq!((trace.metadata.rank(), trace.metadata.world_size()), (Some(3), Some(8)));
    let devices = trace.metadata.devices();
    assert_eq!((devices[0].name.as_str(), devices[0].multiprocessors), ("Example GPU", Some(132)));
    assert_eq!(trace.metadata.text("source").as_deref(), Some("torch.profiler"));
}

#[test]
fn a_thread_and_a_stream_of_the_same_numbers_are_two_tracks() {
    let trace = trace("rocm_microseconds");
    let tracks = |name| trace.track(named(&trace, name).track).kind;
    assert_eq!(tracks("relu"), TrackKind::Stream);
    assert_eq!(tracks("threading.py(1032): _bootstrap"), TrackKind::Thread);
}

#[test]
fn in_our_own_formats_nothing_is_lost() {
    for name in ["two_streams", "cuda_graph", "rocm_microseconds"] {
        let trace = trace(name);
        for format in [Format::Chrome, Format::ChromeGz, Format::Pftrace] {
            let mut bytes = Vec::new();
            write_to(&trace, format, &mut bytes).unwrap();
            let again = read_from(bytes.as_slice()).unwrap();
            assert_eq!(again.outline(), trace.outline(), "{name} as {format:?}");
            assert!(again == trace, "{name} as {format:?}");
        }
    }
}

#[test]
fn without_correlations_flows_connect_launches_and_work() {
    let text = fs::read_to_string(golden("cuda_graph.json")).unwrap().replace("\"correlation\"", "\"other\"");
    let trace = read_from(text.as_bytes()).unwrap();
    let launch = trace.spans().find(|span| span.name == "cudaGraphLaunch").unwrap();
    assert_eq!(effects(&trace, launch), ["first", "second", "beside"]);
}
