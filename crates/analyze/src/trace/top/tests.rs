use super::*;
use laptime_trace::{LAP, SYNC, TraceBuilder, activity::category};
use proptest::prelude::*;

fn shown(trace: &Trace) -> Vec<(String, &'static str, u64, u64, u64)> {
    let shown = |op: Operation| (op.name, op.kind.word(), op.count, op.own.0, op.total.0);
    top(trace).operations.into_iter().map(shown).collect()
}

#[test]
fn names_are_ranked_by_self_time() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let worker = builder.thread(1, 2, "worker");
    builder.span(main, Nanos(0), Nanos(100), "generate", "");
    builder.span(main, Nanos(10), Nanos(70), "matmul", "");
    builder.span(worker, Nanos(0), Nanos(20), "matmul", "");
    builder.span(main, Nanos(85), Nanos(5), "read", SYNC);
    let trace = builder.build().unwrap();
    assert_eq!(
        shown(&trace),
        [
            ("matmul".into(), "stage", 2, 90, 90),
            ("generate".into(), "stage", 1, 25, 100),
            ("read".into(), "wait", 1, 5, 5)
        ]
    );
    let shares: f64 = top(&trace).operations.iter().map(|op| op.own_share).sum();
    assert!((shares - 1.0).abs() < 1e-12);
}

#[test]
fn a_recursive_name_counts_its_total_time_once() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    builder.span(main, Nanos(0), Nanos(100), "visit", "");
    builder.span(main, Nanos(10), Nanos(50), "visit", "");
    builder.span(main, Nanos(200), Nanos(7), "visit", "");
    let trace = builder.build().unwrap();
    assert_eq!(shown(&trace), [("visit".into(), "stage", 3, 107, 107)]);
}

#[test]
fn host_and_device_work_with_the_same_name_have_separate_rows() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let stream = builder.stream(1, 7, "stream 7");
    builder.span(main, Nanos(0), Nanos(5), "gemm", "");
    builder.span(stream, Nanos(3), Nanos(80), "gemm", "");
    let trace = builder.build().unwrap();
    assert_eq!(shown(&trace), [("gemm".into(), "device", 1, 80, 80), ("gemm".into(), "stage", 1, 5, 5)]);
}

#[test]
fn names_that_differ_only_in_a_counter_share_a_row() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let stream = builder.stream(1, 7, "stream 7");
    for step in 0..3 {
        let start = 1_000 * step;
        builder.span(main, Nanos(start), Nanos(900), &format!("ProfilerStep#{step}"), category::USER);
        builder.span(main, Nanos(start), Nanos(500), &format!("aten::mm, op_id = {}", 2 * step), category::NVTX);
        builder.span(main, Nanos(start), Nanos(100), &format!("aten::mm, op_id = {}", 2 * step + 1), category::NVTX);
        builder.span(main, Nanos(start + 600), Nanos(20 + step), &format!("layer {step}"), "");
        builder.span(stream, Nanos(start), Nanos(50), &format!("gemm#{step}"), category::KERNEL);
    }
    let rows = shown(&builder.build().unwrap());
    let row = |name: &str| rows.iter().find(|row| row.0 == name).map(|row| (row.1, row.2, row.3, row.4));
    assert_eq!(
        row("aten::mm, op_id = *"),
        Some(("stage", 6, 1_500, 1_500)),
        "the inner one is inside a span of its own name"
    );
    assert_eq!(row("ProfilerStep#*"), Some(("lap", 3, 2_700 - 1_500 - 63, 2_700)));
    assert_eq!((row("layer 1"), row("gemm#1")), (Some(("stage", 1, 21, 21)), Some(("kernel", 1, 50, 50))));
    assert_eq!(rows.len(), 2 + 3 + 3);
}

#[test]
fn the_profilers_own_span_is_excluded_from_rows_and_shares() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let spans = builder.thread(2, 1, "PyTorch Profiler");
    builder.span(main, Nanos(0), Nanos(50), "aten::mm", category::OPERATION);
    builder.span(spans, Nanos(0), Nanos(1_000), "PyTorch Profiler (0)", "Trace");
    let answer = top(&builder.build().unwrap());
    let shares: Vec<_> = answer.operations.iter().map(|row| (row.name.as_str(), row.own_share)).collect();
    assert_eq!(shares, [("aten::mm", 1.0)]);
    assert_eq!(answer.of_profiler, Some(("PyTorch Profiler (0)".to_owned(), 1)));
}

/// Two operations, one inside the other, with a kernel each; the kernels overlap on two streams.
fn nested() -> Trace {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let streams = [builder.stream(1, 7, "stream 7"), builder.stream(1, 8, "stream 8")];
    builder.span(main, Nanos(0), Nanos(100), "aten::linear", category::OPERATION);
    let early = builder.span(main, Nanos(5), Nanos(5), "cudaLaunchKernel", category::RUNTIME);
    builder.span(main, Nanos(20), Nanos(50), "aten::addmm", category::OPERATION);
    let late = builder.span(main, Nanos(30), Nanos(5), "cudaLaunchKernel", category::RUNTIME);
    let copy = builder.span(streams[0], Nanos(10), Nanos(30), "direct_copy_kernel", category::KERNEL);
    let gemm = builder.span(streams[1], Nanos(30), Nanos(60), "gemm", category::KERNEL);
    builder.span(streams[1], Nanos(10), Nanos(90), "step", category::DEVICE_STAGE);
    builder.flow(early, copy);
    builder.flow(late, gemm);
    builder.build().unwrap()
}

#[test]
fn an_operation_includes_the_device_time_of_nested_launches() {
    let answer = top(&nested());
    let launched = |name: &str| {
        let found = answer.operations.iter().find(|operation| operation.name == name).unwrap();
        (found.kind.word(), found.launched_own.map(|time| time.0), found.launched.map(|time| time.0))
    };
    assert_eq!(launched("aten::linear"), ("operation", Some(30), Some(80)));
    assert_eq!(launched("aten::addmm"), ("operation", Some(60), Some(60)));
    assert_eq!(launched("cudaLaunchKernel"), ("launch", None, Some(80)));
    assert_eq!(launched("gemm"), ("kernel", None, None));
}

#[test]
fn kernel_shares_are_relative_to_device_busy_time() {
    let answer = top(&nested());
    let share = |name: &str| answer.operations.iter().find(|operation| operation.name == name).unwrap().own_share;
    assert_eq!(answer.device, Some(Nanos(80)));
    assert_eq!((share("gemm"), share("direct_copy_kernel")), (60.0 / 80.0, 30.0 / 80.0));
    let groups: Vec<_> = answer.groups.iter().map(|time| (time.group, time.device, time.device_count)).collect();
    let expected = [(Group::Matmul, Some(Nanos(60)), 1), (Group::Copy, Some(Nanos(30)), 1), (Group::Other, None, 0)];
    assert_eq!(groups, expected);
}

#[test]
fn concurrent_kernels_count_once_per_device() {
    let trace = |second_device: i64| {
        let mut builder = TraceBuilder::default();
        for (number, device) in [(7, 0), (8, second_device)] {
            let stream = builder.stream(1, number, "stream");
            builder.track_mut(stream).device = Some(device);
            builder.span(stream, Nanos(0), Nanos(50), "gemm", category::KERNEL);
        }
        builder.build().unwrap()
    };
    assert_eq!(shown(&trace(0)), [("gemm".into(), "kernel", 2, 50, 100)]);
    assert_eq!(shown(&trace(1)), [("gemm".into(), "kernel", 2, 100, 100)]);
}

#[test]
fn overlapping_kernels_with_one_name_on_a_stream_are_added() {
    let mut builder = TraceBuilder::default();
    let stream = builder.stream(1, 7, "stream 7");
    builder.span(stream, Nanos(0), Nanos(50), "gemm", category::KERNEL);
    builder.span(stream, Nanos(10), Nanos(30), "gemm", category::KERNEL);
    assert_eq!(shown(&builder.build().unwrap()), [("gemm".into(), "kernel", 2, 50, 80)]);
}

#[test]
fn host_only_traces_have_figures_to_compare() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    builder.span(main, Nanos(0), Nanos(50), "aten::mm", category::OPERATION);
    builder.span(main, Nanos(60), Nanos(10), "aten::add", category::OPERATION);
    let answer = top(&builder.build().unwrap());
    let values = answer.values();
    let known = Top::FIGURES.iter().zip(&values).filter_map(|(figure, value)| Some((figure.key, (*value)?)));
    assert_eq!(values.len(), Top::FIGURES.len());
    assert_eq!(known.collect::<Vec<_>>(), [("host_ms", 60.0), ("host_matmul_ms", 50.0), ("host_other_ms", 10.0)]);
    assert!(top(&nested()).values()[8..].iter().all(Option::is_none), "of a device the device's figures are enough");
}

#[test]
fn a_stage_projected_onto_a_stream_is_not_device_work() {
    assert!(top(&nested()).operations.iter().all(|operation| operation.name != "step"));
}

#[test]
fn a_recursive_function_counts_its_launched_work_once() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let stream = builder.stream(1, 7, "stream 7");
    builder.span(main, Nanos(0), Nanos(100), "visit", category::PYTHON);
    let inner = builder.span(main, Nanos(10), Nanos(50), "visit", category::PYTHON);
    let kernel = builder.span(stream, Nanos(20), Nanos(30), "gemm", category::KERNEL);
    builder.flow(inner, kernel);
    let answer = top(&builder.build().unwrap());
    let visit = answer.operations.iter().find(|operation| operation.name == "visit").unwrap();
    assert_eq!((visit.launched_own, visit.launched), (Some(Nanos(30)), Some(Nanos(30))));
}

#[test]
fn host_spans_have_kinds() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let kinds = [
        ("a", category::OPERATION, "operation"),
        ("b", category::PYTHON, "python"),
        ("cudaMalloc", category::RUNTIME, "call"),
        ("cudaLaunchKernel", category::RUNTIME, "launch"),
        ("cudaDeviceSynchronize", category::RUNTIME, "wait"),
        ("c", category::USER, "stage"),
        ("d", LAP, "lap"),
        ("e", "Trace", "other"),
    ];
    for (at, (name, category, _)) in kinds.iter().enumerate() {
        builder.span(main, Nanos(10 * at as u64), Nanos(9 - at as u64), name, category);
    }
    let found: Vec<_> = shown(&builder.build().unwrap()).into_iter().map(|row| row.1).collect();
    assert_eq!(found, kinds.map(|(_, _, kind)| kind));
}

proptest! {
    #[test]
    fn host_self_times_add_up_and_launched_time_never_exceeds_busy_time(
        spans in prop::collection::vec((0_u64..500, 1_u64..200, 0_usize..3), 1..20),
        kernels in prop::collection::vec((0_u64..500, 0_u64..90, 0_usize..20, 0_usize..2), 1..20),
    ) {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let streams = [builder.stream(1, 7, "stream 7"), builder.stream(1, 8, "stream 8")];
        let host = |(start, length, name): &(u64, u64, usize)| {
            builder.span(main, Nanos(*start), Nanos(*length), ["a", "b", "c"][*name], category::OPERATION)
        };
        let calls: Vec<_> = spans.iter().map(host).collect();
        for (start, length, call, stream) in kernels {
            let kernel = builder.span(streams[stream], Nanos(start), Nanos(length), "gemm", category::KERNEL);
            builder.flow(calls[call % calls.len()], kernel);
        }
        let trace = builder.build().unwrap();
        let answer = top(&trace);
        let is_root = |span: &Span<'_>| span.parent.is_none() && span.track == main;
        let roots: u64 = trace.spans().filter(is_root).map(|span| span.duration.0).sum();
        let on_host = || answer.operations.iter().filter(|operation| !operation.kind.is_on_device());
        prop_assert_eq!(on_host().map(|operation| operation.own.0).sum::<u64>(), roots);
        for operation in on_host() {
            prop_assert!(operation.launched_own <= operation.launched);
            prop_assert!(operation.launched <= answer.device);
        }
    }
}
