//! `laptime laps`, through the program.

use laptime_trace::{LAP, Nanos, SYNC, Trace, TraceBuilder, activity::category};

use crate::common::{Place, Printed, assert_golden, small_trace};

/// Twenty-four tokens of about 20 ms: the first is cold, one allocates memory while the device is idle.
fn tokens() -> Trace {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 10, "main");
    let stream = builder.stream(1, 7, "stream 7");
    let mut at = 1_000_000;
    for token in 0..24_u64 {
        let kernel = 12_000_000 + 50_000 * (token % 5);
        let late = match token {
            0 => 90_000_000,
            17 => 23_000_000,
            _ => 0,
        };
        let length = late + kernel + 8_000_000;
        let lap = builder.span(main, Nanos(at), Nanos(length), "decode", LAP);
        builder.span_field(lap, "token", token as i64);
        builder.span(main, Nanos(at + 100_000), Nanos(late + 2_000_000), "forward", "");
        if late > 0 {
            let name = if token == 0 { "cuModuleLoadData" } else { "cudaMalloc" };
            builder.span(main, Nanos(at + 200_000), Nanos(late), name, category::RUNTIME);
        }
        let begun = at + late + 500_000;
        let launch = builder.span(main, Nanos(begun), Nanos(20_000), "cudaLaunchKernel", category::RUNTIME);
        let gemm = builder.span(stream, Nanos(begun + 500_000), Nanos(kernel), "gemm", category::KERNEL);
        builder.flow(launch, gemm);
        builder.span(main, Nanos(at + late + 3_000_000), Nanos(kernel - 1_000_000), "read_token", SYNC);
        at += length + 400_000;
    }
    builder.build().unwrap()
}

fn at_80_columns(place: &Place, arguments: &[&str]) -> String {
    let printed = Printed::from(place.command().env("COLUMNS", "80").args(arguments).output().unwrap()).done();
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    printed
}

#[test]
fn slow_laps_are_reported_with_their_causes() {
    let place = Place::new();
    laptime_trace::write(&tokens(), place.path("tokens.pftrace")).unwrap();
    assert_golden("laps/laps_80.txt", &at_80_columns(&place, &["laps", "tokens.pftrace"]));
    assert_golden("laps/each_80.txt", &at_80_columns(&place, &["laps", "tokens.pftrace", "--each"]));
    assert_golden("laps/laps_140.txt", &place.laptime(["laps", "tokens.pftrace"]).done());
    assert_golden("laps/laps.json", &place.laptime(["laps", "tokens.pftrace", "--format", "json"]).done());
    let each = place.laptime(["laps", "tokens.pftrace", "--each", "--format", "jsonl"]).done();
    assert_golden("laps/each.jsonl", &each);
}

#[test]
fn a_lap_is_selected_by_its_name() {
    let place = Place::new();
    laptime_trace::write(&tokens(), place.path("tokens.pftrace")).unwrap();
    let printed = place.laptime(["laps", "tokens.pftrace", "--lap", "forward"]).done();
    assert!(printed.contains("A lap is one `forward`."), "{printed}");
    let error = place.laptime(["laps", "tokens.pftrace", "--lap", "decoed"]).failed();
    assert!(error.contains("nothing in the trace is named `decoed`"), "{error}");
    assert!(error.contains("did you mean `decode`?") && error.contains("`decode` (24 spans)"), "{error}");
}

#[test]
fn a_trace_in_which_nothing_repeats_is_refused_with_a_hint() {
    let place = Place::new();
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    builder.span(main, Nanos(0), Nanos(100), "load", "");
    laptime_trace::write(&builder.build().unwrap(), place.path("once.json")).unwrap();
    let error = place.laptime(["laps", "once.json"]).failed();
    assert!(error.contains("nothing in the trace repeats"), "{error}");
    assert!(error.contains("`--lap NAME`"), "{error}");
}

#[test]
fn several_traces_give_a_row_each_and_one_without_laps_a_warning() {
    let place = Place::new();
    for name in ["a.json", "b.json", "c.json"] {
        laptime_trace::write(&small_trace(), place.path(name)).unwrap();
    }
    let printed = place.laptime(["laps", "a.json", "b.json", "c.json"]).done();
    assert!(printed.contains("No trace is an outlier."), "{printed}");
    place.write("empty.json", "[]");
    let printed = place.laptime(["laps", "a.json", "empty.json"]);
    assert_eq!(printed.status, Some(2));
    assert!(printed.err.contains("1 of 2 traces could not be analysed"), "{}", printed.err);
    assert!(printed.out.contains("a.json"), "{}", printed.out);
}
