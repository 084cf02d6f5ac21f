//! `laptime gaps` and the check of every trace, through the program.

use laptime_trace::{LAP, Nanos, SYNC, Trace, TraceBuilder, TrackId, activity::category};

use crate::common::{Place, Printed, assert_golden};

/// Four tokens of three kernels each, with a copy, a wait and a late host; in the third the host is later still.
fn decode_trace() -> Trace {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 10, "main");
    let stream = builder.stream(0, 7, "stream 7");
    let copies = builder.stream(0, 20, "stream 20");
    for token in 0..4 {
        decode(&mut builder, [main, stream, copies], token);
    }
    builder.build().unwrap()
}

fn decode(builder: &mut TraceBuilder, [main, stream, copies]: [TrackId; 3], token: u64) {
    let at = |micros: u64| Nanos(1_000 * (300 * token + micros));
    let late = if token == 2 { 60 } else { 0 };
    builder.span(main, at(0), Nanos(290_000), "decode", LAP);
    builder.span(main, at(1), Nanos(80_000 + 1_000 * late), "aten::linear", category::OPERATION);
    let mut launch = |call: u64, name: &str, track: TrackId, start: u64, length: u64, work: &str, kind: &str| {
        let call = builder.span(main, at(call), Nanos(4_000), name, category::RUNTIME);
        let work = builder.span(track, at(start), Nanos(1_000 * length), work, kind);
        builder.flow(call, work);
    };
    let gemm = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>(cutlass_80_tensorop::Params)";
    launch(2, "cudaMemcpyAsync", copies, 8, 12, "Memcpy HtoD (Pinned -> Device)", category::COPY);
    launch(10, "cudaLaunchKernel", stream, 22, 40, gemm, category::KERNEL);
    launch(20, "cudaLaunchKernel", stream, 64, 8, "softmax_warp_forward", category::KERNEL);
    launch(90 + late, "cudaLaunchKernel", stream, 100 + late, 60, gemm, category::KERNEL);
    builder.span(main, at(100 + late), Nanos(65_000), "read_token", SYNC);
}

fn place() -> Place {
    let place = Place::new();
    laptime_trace::write(&decode_trace(), place.path("decode.json")).unwrap();
    place
}

fn said_at(place: &Place, width: &str, arguments: &[&str]) -> String {
    let printed = Printed::from(place.command().env("COLUMNS", width).args(arguments).output().unwrap()).done();
    let limit: usize = width.parse().unwrap();
    assert!(printed.lines().all(|line| line.chars().count() <= limit), "{printed}");
    printed
}

#[test]
fn the_time_of_a_device_divides_at_80_and_at_140_columns() {
    let place = place();
    for width in ["80", "140"] {
        assert_golden(&format!("gaps/decode_{width}.txt"), &said_at(&place, width, &["gaps", "decode.json"]));
        let printed = said_at(&place, width, &["gaps", "decode.json", "--each", "5"]);
        assert_golden(&format!("gaps/each_{width}.txt"), &printed);
    }
}

#[test]
fn machines_get_the_parts_with_their_device_and_all_figures() {
    let place = place();
    let printed = place.laptime(["gaps", "decode.json", "--format", "json"]).done();
    assert_golden("gaps/decode.json", &printed);
    let answer: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let rows = answer["parts"].as_array().unwrap();
    let whole: f64 = rows.iter().filter(|row| row["doing"].is_null()).map(|row| row["share"].as_f64().unwrap()).sum();
    assert!((whole - 1.0).abs() < 1e-9, "{printed}");
    assert_golden("gaps/each.json", &place.laptime(["gaps", "decode.json", "--each", "3", "--format", "json"]).done());
}

#[test]
fn laps_are_counted_by_the_unit_that_is_named() {
    let place = place();
    let printed = place.laptime(["gaps", "decode.json", "--lap", "no_such_lap"]).failed();
    assert!(printed.contains("`decode` (4 spans)"), "{printed}");
    let printed = place.laptime(["gaps", "decode.json", "--lap", "decode", "--verbose"]).done();
    assert!(printed.contains("16 launches, 4 per lap of `decode` (4 to 4)."), "{printed}");
    assert!(!printed.contains("Most idle time"), "no lap stands out: {printed}");
}

#[test]
fn several_traces_give_a_row_each_and_the_outlier() {
    let place = place();
    for name in ["rank-0.json", "rank-1.json"] {
        std::fs::copy(place.path("decode.json"), place.path(name)).unwrap();
    }
    laptime_trace::write(&saturated_trace(), place.path("rank-2.json")).unwrap();
    let printed = place.laptime(["gaps", "rank-0.json", "rank-1.json", "rank-2.json"]).done();
    assert!(printed.contains("Outlier: `rank-2.json`: kernels 99.1 % (median 41.1 %)."), "{printed}");
    assert_eq!(printed.lines().filter(|line| line.starts_with("rank-")).count(), 3, "{printed}");
}

fn saturated_trace() -> Trace {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 10, "main");
    let stream = builder.stream(0, 7, "stream 7");
    for at in 0..10 {
        let call = builder.span(main, Nanos(10_000 * at), Nanos(4_000), "cudaLaunchKernel", category::RUNTIME);
        let work = builder.span(stream, Nanos(6_000 + 100_000 * at), Nanos(99_000), "gemm", category::KERNEL);
        builder.flow(call, work);
    }
    builder.build().unwrap()
}

#[test]
fn continuous_kernels_are_reported_as_a_saturated_device() {
    let place = Place::new();
    laptime_trace::write(&saturated_trace(), place.path("busy.json")).unwrap();
    let printed = place.laptime(["gaps", "busy.json"]).done();
    let verdict = "The GPU is busy almost all the time: kernels ran 99.1 % of the time [saturated].";
    assert!(printed.contains(verdict), "{printed}");
}

#[test]
fn gaps_one_by_one_are_those_of_one_trace() {
    let place = place();
    let printed = place.laptime(["gaps", "decode.json", "decode.json", "--each", "3"]).failed();
    assert!(printed.contains("`--each` lists the gaps of one trace, and 2 were given"), "{printed}");
}

#[test]
fn counts_of_one_are_singular_and_detected_laps_have_numbers() {
    let place = Place::new();
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 10, "main");
    let stream = builder.stream(0, 7, "stream 7");
    builder.span(stream, Nanos(0), Nanos(4_000), "warm", category::KERNEL);
    let mut at = 10_000;
    for turn in 0..12_u64 {
        let call = builder.span(main, Nanos(at), Nanos(2_000), "cudaLaunchKernel", category::RUNTIME);
        let work = builder.span(stream, Nanos(at + 4_000), Nanos(80_000), "gemm", category::KERNEL);
        builder.flow(call, work);
        at += if turn == 5 { 900_000 } else { 90_000 };
    }
    laptime_trace::write(&builder.build().unwrap(), place.path("turns.json")).unwrap();
    let printed = place.laptime(["gaps", "turns.json", "--verbose"]).done();
    for message in [
        "1 per lap of `sequence of 1 kernel`",
        "; 1 kernel or copy without a known launch.",
        "Most idle time: lap 5, 820.0 µs",
    ] {
        assert!(printed.contains(message), "{message}: {printed}");
    }
    assert!(!printed.contains("e-") && !printed.contains("is spent in"), "{printed}");
    let printed = place.laptime(["gaps", "turns.json", "--each", "11"]).done();
    assert!(printed.contains("1 shorter gap is not shown."), "{printed}");
}

#[test]
fn a_share_is_never_negative_zero() {
    let place = place();
    let printed = place.laptime(["gaps", "decode.json", "decode.json", "--format", "json"]).done();
    assert!(
        !printed.contains("-0,") && !printed.contains("-0\n") && printed.contains("\"communication_share\": 0"),
        "{printed}"
    );
}

#[test]
fn a_single_kernel_is_not_judged() {
    let place = Place::new();
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 10, "main");
    let stream = builder.stream(0, 7, "stream 7");
    builder.span(main, Nanos(0), Nanos(1_000_000_000), "aten::slow", category::OPERATION);
    builder.span(stream, Nanos(500), Nanos(10_000), "gemm", category::KERNEL);
    laptime_trace::write(&builder.build().unwrap(), place.path("one.json")).unwrap();
    let printed = place.laptime(["gaps", "one.json"]).done();
    let verdict =
        "There is too little GPU work for a verdict: 1 kernel or copy in <0.1 % of the wall time [too-little].";
    assert!(printed.contains(verdict), "{printed}");
}

#[test]
fn an_empty_trace_is_called_empty_and_prints_no_table() {
    let place = Place::new();
    place.write("empty.json", "[]");
    for command in ["gaps", "laps", "syncs", "overlap"] {
        let printed = place.laptime([command, "empty.json"]).failed();
        assert_eq!(printed.matches("the trace is empty").count(), 1, "{command}: {printed}");
        assert!(!printed.contains("torch.profiler"), "{command}: {printed}");
    }
    for command in ["top", "stages", "diagnose"] {
        let out = place.laptime([command, "empty.json"]).done();
        assert!(out.contains("note: the trace is empty") && !out.contains("─"), "{command}: {out}");
        assert!(!out.contains("bottleneck"), "{command}: {out}");
    }
    let Printed { out, err, status } = place.laptime(["top", "empty.json", "--format", "csv"]);
    let warning = "warning: `empty.json`: the trace is empty: it has no spans, no marks and no values\n";
    assert_eq!((err.as_str(), status, out.lines().count()), (warning, Some(0), 1), "{out}");
}

#[test]
fn a_trace_without_devices_is_an_error_with_a_hint() {
    let place = Place::new();
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 10, "main");
    builder.span(main, Nanos(0), Nanos(10), "forward", "");
    laptime_trace::write(&builder.build().unwrap(), place.path("host.json")).unwrap();
    let printed = place.laptime(["gaps", "host.json"]).failed();
    assert!(printed.contains("no GPU work") && printed.contains("torch.profiler"), "{printed}");
}

#[test]
fn every_trace_command_reports_failed_checks() {
    let place = Place::new();
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 10, "main");
    let stream = builder.stream(0, 7, "stream 7");
    let call = builder.span(main, Nanos(50_000), Nanos(4_000), "cudaLaunchKernel", category::RUNTIME);
    let work = builder.span(stream, Nanos(20_000), Nanos(9_000), "gemm", category::KERNEL);
    builder.flow(call, work);
    laptime_trace::write(&builder.build().unwrap(), place.path("early.json")).unwrap();
    for command in ["gaps", "stages", "top"] {
        let printed = place.laptime([command, "early.json"]).done();
        assert!(
            printed.contains("start before their launch, by up to 30.0 µs [before-launch]"),
            "{command}: {printed}"
        );
        let printed = place.laptime([command, "early.json", "--format", "json"]).done();
        let answer: serde_json::Value = serde_json::from_str(&printed).unwrap();
        assert!(answer["finding_before_launch"].is_string(), "{command}: {printed}");
    }
}
