//! Files of other tools: XProf, Intel GPUs, old Chrome events, Perfetto without track events, and unsupported formats.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use laptime_trace::{Activity, MemoryKind, ReadError, Span, Trace, TrackKind, read, read_from};

fn events(events: &[&str]) -> Trace {
    let trace = read_from(format!("{{\"traceEvents\":[{}]}}", events.join(",")).as_bytes()).unwrap();
    assert_eq!(trace.check(), Ok(()));
    trace
}

fn named<'a>(trace: &'a Trace, name: &str) -> Span<'a> {
    trace.spans().find(|span| span.name == name).unwrap_or_else(|| panic!("no span `{name}`"))
}

/// A JAX profile on a GPU, as XProf writes it: no categories, numbers as text, metadata first, an empty object last.
const JAX: [&str; 17] = [
    r#"{"ph":"M","pid":1,"name":"process_name","args":{"name":"/device:GPU:0"}}"#,
    r#"{"ph":"M","pid":1,"tid":13,"name":"thread_name","args":{"name":"Stream #13(Compute,Memset)"}}"#,
    r#"{"ph":"M","pid":1,"tid":14,"name":"thread_name","args":{"name":"Stream #14(MemcpyH2D)"}}"#,
    r#"{"ph":"M","pid":1,"tid":100,"name":"thread_name","args":{"name":"XLA Modules"}}"#,
    r#"{"ph":"M","pid":1,"tid":101,"name":"thread_name","args":{"name":"XLA Ops"}}"#,
    r#"{"ph":"M","pid":701,"name":"process_name","args":{"name":"/host:CPU"}}"#,
    r#"{"ph":"M","pid":701,"tid":9,"name":"thread_name","args":{"name":"python"}}"#,
    r#"{"ph":"X","pid":1,"tid":13,"ts":120.5,"dur":40,"name":"loop_add_fusion","args":{"context_id":"$$1","correlation_id":"7","hlo_module":"jit_f","hlo_op":"add.1","kernel_details":"regs:16 static_shared:0"}}"#,
    r#"{"ph":"X","pid":1,"tid":13,"ts":170,"dur":1,"name":"Memset","args":{"correlation_id":"9"}}"#,
    r#"{"ph":"X","pid":1,"tid":14,"ts":100,"dur":10,"name":"MemcpyH2D","args":{"correlation_id":"8","memcpy_details":"kind_src:pinned kind_dst:device size:4096 dest:0 async:1"}}"#,
    r#"{"ph":"X","pid":1,"tid":100,"ts":120,"dur":60,"name":"jit_f(123)"}"#,
    r#"{"ph":"X","pid":1,"tid":101,"ts":120.5,"dur":40,"name":"add.1"}"#,
    r#"{"ph":"X","pid":701,"tid":9,"ts":90,"dur":30,"name":"PjitFunction(f)"}"#,
    r#"{"ph":"X","pid":701,"tid":9,"ts":95,"dur":3,"name":"cuMemcpyHtoDAsync_v2","args":{"correlation_id":"8"}}"#,
    r#"{"ph":"X","pid":701,"tid":9,"ts":110,"dur":2,"name":"cuLaunchKernel","args":{"correlation_id":"7"}}"#,
    r#"{"ph":"X","pid":701,"tid":9,"ts":130,"dur":40,"name":"cuStreamSynchronize"}"#,
    "{}",
];

#[test]
fn a_profile_of_jax_has_streams_kernels_copies_and_launches() {
    let trace = events(&JAX);
    let streams: Vec<_> = trace
        .tracks()
        .filter(|(_, track)| track.kind == TrackKind::Stream)
        .map(|(_, track)| (trace.name(track.name), track.device, track.number))
        .collect();
    assert!(streams.contains(&("Stream #13(Compute,Memset)", Some(0), Some(13))), "{streams:?}");
    assert!(streams.contains(&("Stream #14(MemcpyH2D)", Some(0), Some(14))), "{streams:?}");
    assert!(streams.contains(&("XLA Ops", Some(0), None)), "{streams:?}");
    assert_eq!(named(&trace, "loop_add_fusion").activity(), Activity::Kernel);
    assert_eq!(named(&trace, "Memset").activity(), Activity::Memset);
    let copy = named(&trace, "Memcpy HtoD (Pinned -> Device)").copy_path().unwrap();
    assert_eq!((copy.from, copy.bytes), (MemoryKind::Pinned, Some(4096)));
    for derived in ["add.1", "jit_f(123)"] {
        assert_eq!(named(&trace, derived).activity(), Activity::DeviceStage, "{derived}");
    }
    assert_eq!(named(&trace, "PjitFunction(f)").activity(), Activity::Operation);
    assert_eq!(named(&trace, "cuStreamSynchronize").activity(), Activity::Wait);
    let flows: Vec<_> =
        trace.flows().iter().map(|flow| (trace.span(flow.from).name, trace.span(flow.to).name)).collect();
    let expected = [("cuMemcpyHtoDAsync_v2", "Memcpy HtoD (Pinned -> Device)"), ("cuLaunchKernel", "loop_add_fusion")];
    assert_eq!(flows.len(), 2);
    assert!(expected.iter().all(|flow| flows.contains(flow)), "{flows:?}");
    assert_eq!(trace.warnings, ["1 device span has no launching call"]);
}

#[test]
fn a_profile_of_jax_reads_the_same_with_its_metadata_last() {
    let mut last = JAX.to_vec();
    last.rotate_left(7);
    let (first, last) = (events(&JAX), events(&last));
    let kinds = |trace: &Trace| {
        let mut kinds: Vec<String> = trace.spans().map(|span| format!("{} {:?}", span.name, span.activity())).collect();
        kinds.sort();
        kinds
    };
    assert_eq!(kinds(&first), kinds(&last));
    assert_eq!(first.flows().len(), last.flows().len());
}

#[test]
fn a_device_without_streams_works_in_its_operations() {
    let trace = events(&[
        r#"{"ph":"M","pid":3,"name":"process_name","args":{"name":"/device:TPU:1"}}"#,
        r#"{"ph":"M","pid":3,"tid":1,"name":"thread_name","args":{"name":"XLA Modules"}}"#,
        r#"{"ph":"M","pid":3,"tid":2,"name":"thread_name","args":{"name":"XLA Ops"}}"#,
        r#"{"ph":"X","pid":3,"tid":1,"ts":1,"dur":9,"name":"jit_f"}"#,
        r#"{"ph":"X","pid":3,"tid":2,"ts":2,"dur":5,"name":"fusion.12"}"#,
    ]);
    assert_eq!(named(&trace, "fusion.12").activity(), Activity::Kernel);
    assert_eq!(named(&trace, "jit_f").activity(), Activity::DeviceStage);
    assert!(trace.tracks().all(|(_, track)| track.device == Some(1)));
}

#[test]
fn calls_of_an_intel_gpu_lead_to_their_kernels_and_its_waits_are_waits() {
    let trace = events(&[
        r#"{"ph":"X","cat":"xpu_runtime","pid":7,"tid":7,"ts":10,"dur":6,"name":"urEnqueueKernelLaunch","args":{"correlation":4131}}"#,
        r#"{"ph":"X","cat":"kernel","pid":0,"tid":1,"ts":20,"dur":9,"name":"gemm_kernel","args":{"correlation":4131,"device":0}}"#,
        r#"{"ph":"X","cat":"xpu_runtime","pid":7,"tid":7,"ts":17,"dur":13,"name":"zeEventHostSynchronize","args":{"correlation":4132}}"#,
    ]);
    assert_eq!(named(&trace, "urEnqueueKernelLaunch").activity(), Activity::Launch);
    assert_eq!(named(&trace, "zeEventHostSynchronize").activity(), Activity::Wait);
    assert_eq!(trace.flows().len(), 1);
    assert_eq!(trace.warnings, [""; 0]);
}

#[test]
fn old_chrome_events_are_spans_and_marks() {
    let trace = events(&[
        r#"{"ph":"B","pid":1,"ts":1,"name":"no thread"}"#,
        r#"{"ph":"E","pid":1,"ts":5}"#,
        r#"{"ph":"S","cat":"net","pid":1,"tid":1,"ts":2,"id":"0x1","name":"fetch"}"#,
        r#"{"ph":"T","cat":"net","pid":1,"tid":1,"ts":3,"id":"0x1","name":"fetch","args":{"step":"head"}}"#,
        r#"{"ph":"F","cat":"net","pid":1,"tid":1,"ts":9,"id":"0x1","name":"fetch"}"#,
        r#"{"ph":"b","cat":"io","pid":1,"tid":1,"ts":2,"id":5,"name":"outer"}"#,
        r#"{"ph":"b","cat":"io","pid":1,"tid":1,"ts":3,"id":5,"name":"inner"}"#,
        r#"{"ph":"n","cat":"io","pid":1,"tid":1,"ts":4,"id":5,"name":"moment"}"#,
        r#"{"ph":"e","cat":"io","pid":1,"tid":1,"ts":5,"id":5,"name":"inner"}"#,
        r#"{"ph":"e","cat":"io","pid":1,"tid":1,"ts":6,"id":5,"name":"outer"}"#,
        r#"{"ph":"N","cat":"cc","pid":1,"tid":1,"ts":1,"id":"0xa","name":"Layer"}"#,
        r#"{"ph":"O","cat":"cc","pid":1,"tid":1,"ts":2,"id":"0xa","name":"Layer","args":{"snapshot":{"w":1}}}"#,
        r#"{"ph":"D","cat":"cc","pid":1,"tid":1,"ts":8,"id":"0xa","name":"Layer"}"#,
        r#"{"ph":"I","pid":1,"tid":1,"ts":4,"name":"instant","s":"t"}"#,
        r#"{"ph":"P","cat":"perf","pid":1,"tid":1,"ts":4.5,"name":"cycles"}"#,
    ]);
    let spans: Vec<_> = trace.spans().map(|span| (span.name, span.start.0 / 1000, span.end().0 / 1000)).collect();
    for expected in [("no thread", 1, 5), ("fetch", 2, 9), ("outer", 2, 6), ("inner", 3, 5), ("Layer", 1, 8)] {
        assert!(spans.contains(&expected), "{expected:?} in {spans:?}");
    }
    let inner = named(&trace, "inner");
    assert_eq!(trace.span(inner.parent.unwrap()).name, "outer");
    let mut marks: Vec<&str> = trace.marks().map(|mark| mark.name).collect();
    marks.sort_unstable();
    assert_eq!(marks, ["Layer", "cycles", "fetch", "instant", "moment"]);
    assert_eq!(trace.warnings, [""; 0]);
}

#[test]
fn an_empty_trace_and_a_cut_one_say_so() {
    let empty = read_from(&b"[]"[..]).unwrap();
    assert_eq!(empty.warnings, ["the trace is empty: it has no spans, no marks and no values"]);
    assert!(empty.is_empty() && !empty.is_cut_off);
    let whole = format!("[{}]", JAX.join(","));
    assert!(!read_from(whole.as_bytes()).unwrap().is_cut_off);
    assert!(read_from(&whole.as_bytes()[..whole.len() / 2]).unwrap().is_cut_off);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(whole.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let cut = read_from(&packed[..packed.len() - packed.len() / 4]).unwrap();
    assert!(cut.is_cut_off && !cut.is_empty(), "{:?}", cut.warnings);
}

/// A packet with one field of bytes.
fn packet(field: u32, bytes: &[u8]) -> Vec<u8> {
    let tag = field << 3 | 2;
    let tag = if tag < 0x80 { vec![tag as u8] } else { vec![tag as u8 | 0x80, (tag >> 7) as u8] };
    let content = [tag.as_slice(), &[bytes.len() as u8], bytes].concat();
    [&[0x0a, content.len() as u8], content.as_slice()].concat()
}

#[test]
fn a_perfetto_file_without_track_events_is_refused_with_its_contents() {
    let mut file = packet(33, &[]);
    (0..3).for_each(|_| file.extend(packet(1, &[0x08, 0x01])));
    file.extend(packet(9, &[]));
    file.extend(packet(777, &[1]));
    let error = read_from(file.as_slice()).unwrap_err().to_string();
    let expected = "this is not a trace: it is a Perfetto trace without track events; it contains ftrace events (3 packets), \
                    process statistics (1 packet), the trace configuration (1 packet), other data (1 packet)";
    assert_eq!(error, expected);
    // A snapshot of the clocks alone makes no trace of it.
    file.extend(packet(6, &[]));
    assert!(read_from(file.as_slice()).unwrap_err().to_string().contains("ftrace events (3 packets)"));
}

fn refused(bytes: &[u8]) -> (String, &'static str) {
    match read_from(bytes) {
        Err(error @ ReadError::Unsupported(known)) => (error.to_string(), known.way),
        other => panic!("{other:?}"),
    }
}

#[test]
fn formats_that_cannot_be_read_are_named_with_a_way_to_one_that_can() {
    let mut xspace = vec![0x0a, 0x30, 0x08, 0x02, 0x12, 0x09];
    xspace.extend(b"/host:CPU\x1a\x10abcdefghijklmnop");
    let samples = br#"{"traceEvents":[],"stackFrames":{"1":{"name":"main"}},"samples":[{"tid":1,"ts":1.5,"sf":1}]}"#;
    let files: [(&[u8], &str, &str); 10] = [
        (b"PK\x03\x04rest", "zip", "`unzip FILE`"),
        (b"\x28\xb5\x2f\xfdrest", "zstd", "`zstd -d FILE`"),
        (b"\x80\x04\x95rest", "pickle", "export_chrome_trace"),
        (br#"{"rocprofiler-sdk-tool":[{"metadata":{}}]}"#, "rocprofv3", "--output-format pftrace"),
        (br#"{"meta":{"interval":1,"product":"a"},"libs":[],"threads":[]}"#, "Firefox or samply", "nsys profile"),
        (br#"{"nodes":[],"startTime":1,"samples":[1],"timeDeltas":[1]}"#, "V8", "nsys profile"),
        (br#"{"schema":"1.1.1-chakra.0.0.4","pid":1,"nodes":[]}"#, "execution trace", "export_chrome_trace"),
        (samples, "stack samples and no events", "nsys profile"),
        (&xspace, ".xplane.pb", "create_perfetto_trace=True"),
        (b"QDSTRM\0\0", "Nsight Systems report", "nsys export --type sqlite"),
    ];
    for (bytes, format, way) in files {
        let (error, hint) = refused(bytes);
        assert!(error.contains(format), "{error}");
        assert!(hint.contains(way), "{error}: {hint}");
    }
}

#[test]
fn a_report_is_known_by_its_name_where_its_bytes_say_nothing() {
    let folder = std::env::temp_dir().join(format!("laptime-foreign-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, format) in [("a.nsys-rep", "Nsight Systems"), ("host.xplane.pb", "XProf")] {
        std::fs::write(folder.join(name), b"\x01\x02\x03").unwrap();
        let error = read(folder.join(name)).unwrap_err().to_string();
        assert!(error.contains(format), "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_gzipped_profile_of_jax_is_read_from_a_file_too() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[{}]}}", JAX.join(",")).as_bytes()).unwrap();
    let path = std::env::temp_dir().join(format!("laptime-foreign-{}.trace.json.gz", std::process::id()));
    std::fs::write(&path, packed.finish().unwrap()).unwrap();
    let trace = read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(named(&trace, "loop_add_fusion").activity(), Activity::Kernel);
}
