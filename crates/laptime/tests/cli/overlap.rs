//! `laptime overlap`, through the program, on a trace with known overlap.

use laptime_trace::{Nanos, Trace, TraceBuilder, TrackId, activity::category};

use crate::common::{Place, Printed, assert_golden};

/// Two steps of training on a device: batches come through pageable memory in the first and pinned memory in the second,
/// gradients are reduced beside the backward pass, and parameters are gathered with nothing beside them.
fn training() -> Trace {
    let mut builder = TraceBuilder::default();
    let [compute, copies, nccl] = [7, 20, 24].map(|stream| {
        let track = builder.stream(1, stream, &format!("stream {stream}"));
        builder.track_mut(track).device = Some(0);
        track
    });
    let mut at = 0;
    for from in ["Pageable", "Pinned"] {
        let copying = if from == "Pinned" { 800 } else { 3000 };
        let name = format!("Memcpy HtoD ({from} -> Device)");
        let copy = work(&mut builder, copies, at, copying, &name, category::COPY);
        builder.span_field(copy, "bytes", 19_267_584_i64);
        work(
            &mut builder,
            nccl,
            at,
            500,
            "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            category::KERNEL,
        );
        work(&mut builder, compute, at + 600, 4000, "sm90_xmma_gemm_bf16bf16", category::KERNEL);
        work(&mut builder, compute, at + 4700, 8000, "flash_bwd_kernel", category::KERNEL);
        let reduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
        work(&mut builder, nccl, at + 9000, 4200, reduce, category::KERNEL);
        work(&mut builder, compute, at + 13_300, 600, "multi_tensor_apply_kernel", category::KERNEL);
        work(&mut builder, compute, at + 13_950, 5, "Memset (Device)", category::MEMSET);
        at += 14_000;
    }
    builder.build().unwrap()
}

/// Work of a device, in microseconds.
fn work(
    builder: &mut TraceBuilder,
    track: TrackId,
    start: u64,
    length: u64,
    name: &str,
    category: &str,
) -> laptime_trace::SpanEntry {
    builder.span(track, Nanos(1000 * start), Nanos(1000 * length), name, category)
}

fn with_training() -> Place {
    let place = Place::new();
    laptime_trace::write(&training(), place.path("train.json")).unwrap();
    place
}

#[test]
fn the_trace_of_the_page_is_the_one_of_these_tests() {
    let place = with_training();
    assert_golden("overlap/train.json", &String::from_utf8(place.read("train.json")).unwrap());
}

#[test]
fn overlap_looks_right_at_80_and_at_140_columns() {
    let place = with_training();
    for width in ["80", "140"] {
        let output = place.command().env("COLUMNS", width).args(["overlap", "train.json"]).output().unwrap();
        let printed = Printed::from(output).done();
        let limit = width.parse().unwrap();
        assert!(printed.lines().all(|line| line.chars().count() <= limit), "{printed}");
        assert_golden(&format!("overlap/overlap_{width}.txt"), &printed);
    }
}

#[test]
fn machines_get_every_column() {
    let place = with_training();
    for format in ["json", "csv"] {
        let printed = place.laptime(["overlap", "train.json", "--format", format]).done();
        assert_golden(&format!("overlap/overlap.{format}"), &printed);
    }
}

#[test]
fn a_trace_without_devices_is_an_error_with_a_hint() {
    let place = Place::new();
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    builder.span(main, Nanos(0), Nanos(10), "load", "");
    laptime_trace::write(&builder.build().unwrap(), place.path("host.json")).unwrap();
    let message = place.laptime(["overlap", "host.json"]).failed();
    assert!(message.contains("no GPU work") && message.contains("ProfilerActivity.CUDA"), "{message}");
}

#[test]
fn a_device_that_only_computes_is_reported_as_saturated() {
    let place = Place::new();
    let mut builder = TraceBuilder::default();
    let stream = builder.stream(1, 7, "stream 7");
    work(&mut builder, stream, 0, 10, "gemm", category::KERNEL);
    laptime_trace::write(&builder.build().unwrap(), place.path("compute.json")).unwrap();
    let printed = place.laptime(["overlap", "compute.json"]).done();
    assert!(printed.contains("There are no copies and no communication."), "{printed}");
}

#[test]
fn several_traces_are_compared_in_one_table() {
    let place = with_training();
    std::fs::copy(place.path("train.json"), place.path("again.json")).unwrap();
    let printed = place.laptime(["overlap", "train.json", "again.json"]).done();
    assert_golden("overlap/several.txt", &printed);
}
