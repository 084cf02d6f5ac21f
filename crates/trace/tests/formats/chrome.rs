//! Chrome traces of other tools: every kind of event, in every notation.

use laptime_trace::{Nanos, Trace, TraceBuilder, TrackKind, read_from};

fn read(events: &str) -> Trace {
    read_from(format!("[{events}]").as_bytes()).unwrap()
}

fn outline(events: &str) -> String {
    let trace = read(events);
    assert_eq!(trace.warnings, [""; 0]);
    trace.outline()
}

#[test]
fn beginnings_and_ends_pair_even_out_of_order() {
    let events = r#"
        {"ph":"E","pid":1,"tid":1,"ts":9},
        {"ph":"B","pid":1,"tid":1,"ts":1,"name":"outer"},
        {"ph":"E","pid":1,"tid":1,"ts":5,"args":{"rows":3}},
        {"ph":"B","pid":1,"tid":1,"ts":2,"name":"inner","args":{"rows":1,"columns":2}}"#;
    let expected = "thread 1\n  outer  1000..9000\n    inner  2000..5000  rows=3  columns=2\n";
    assert_eq!(outline(events), expected);
}

#[test]
fn asynchronous_spans_pair_by_id_and_lie_on_lanes() {
    let events = r#"
        {"ph":"b","pid":1,"tid":1,"ts":1,"cat":"request","name":"first","id":"0x1"},
        {"ph":"b","pid":1,"tid":2,"ts":2,"cat":"request","name":"second","id":"0x2"},
        {"ph":"n","pid":1,"tid":1,"ts":3,"cat":"request","name":"token","id":"0x1"},
        {"ph":"e","pid":1,"tid":3,"ts":5,"cat":"request","name":"first","id":"0x1"},
        {"ph":"e","pid":1,"tid":3,"ts":7,"cat":"request","name":"second","id":"0x2"},
        {"ph":"b","pid":1,"tid":1,"ts":1,"cat":"io","name":"open","id2":{"local":"7"}},
        {"ph":"e","pid":1,"tid":1,"ts":2,"cat":"io","name":"open","id2":{"local":"7"}}"#;
    let expected = "request (host lane)\n  request:first  1000..5000\n  request:second  2000..7000  lane 1\n  \
                    ! request:token  3000\nio (host lane)\n  io:open  1000..2000\n";
    assert_eq!(outline(events), expected);
}

#[test]
fn processes_and_threads_may_have_names_for_numbers() {
    let events = r#"
        {"ph":"X","pid":"server","tid":"main loop","ts":1,"dur":1,"name":"a"},
        {"ph":"X","pid":"server","tid":"7","ts":3,"dur":1,"name":"b"},
        {"ph":"M","pid":"server","tid":"7","name":"thread_name","args":{"name":"worker"}}"#;
    let trace = read(events);
    assert_eq!(trace.outline(), "main loop\n  a  1000..2000\nworker\n  b  3000..4000\n");
    let names: Vec<_> = trace.processes().map(|(_, process)| trace.name(process.name)).collect();
    assert_eq!(names, ["server"]);
}

#[test]
fn flows_end_in_the_span_around_them_or_the_next() {
    let spans = r#"
        {"ph":"X","pid":1,"tid":1,"ts":1,"dur":10,"name":"cause"},
        {"ph":"X","pid":1,"tid":1,"ts":2,"dur":2,"name":"inner cause"},
        {"ph":"X","pid":1,"tid":2,"ts":20,"dur":5,"name":"around"},
        {"ph":"X","pid":1,"tid":2,"ts":30,"dur":5,"name":"next"}"#;
    let flow = |bind: &str| {
        format!(
            r#"{spans},{{"ph":"s","pid":1,"tid":1,"ts":3,"id":1,"name":"x"}},
               {{"ph":"f","pid":1,"tid":2,"ts":22,"id":1,"name":"x"{bind}}}"#
        )
    };
    assert!(outline(&flow(r#","bp":"e""#)).contains("flow inner cause 2000 -> around 20000\n"));
    assert!(outline(&flow("")).contains("flow inner cause 2000 -> next 30000\n"));
}

#[test]
fn a_flow_goes_from_step_to_step() {
    let events = r#"
        {"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"name":"a"},
        {"ph":"X","pid":1,"tid":2,"ts":3,"dur":1,"name":"b"},
        {"ph":"X","pid":1,"tid":3,"ts":5,"dur":1,"name":"c"},
        {"ph":"f","pid":1,"tid":3,"ts":5,"id":"q","bp":"e"},
        {"ph":"t","pid":1,"tid":2,"ts":3,"id":"q"},
        {"ph":"s","pid":1,"tid":1,"ts":1,"id":"q"}"#;
    assert!(outline(events).ends_with("flow a 1000 -> b 3000\nflow b 3000 -> c 5000\n"), "{}", outline(events));
}

#[test]
fn flows_that_spans_carry_themselves_are_read() {
    let span = |tid: u8, ts: u8, name: &str, tie: &str| {
        format!(r#"{{"ph":"X","pid":1,"tid":{tid},"ts":{ts},"dur":1,"name":"{name}"{tie}}}"#)
    };
    let one_to_two = [
        span(2, 3, "b", r#","bind_id":"0x7","flow_in":true"#),
        span(1, 1, "a", r#","bind_id":"0x7","flow_out":true"#),
        span(3, 5, "c", r#","bind_id":"0x7","flow_in":true"#),
    ];
    let ends = "flow a 1000 -> b 3000\nflow a 1000 -> c 5000\n";
    assert!(outline(&one_to_two.join(",")).ends_with(ends), "{}", outline(&one_to_two.join(",")));
    let in_steps = [
        span(1, 1, "a", r#","bind_id":7,"flow_out":true"#),
        span(2, 3, "b", r#","bind_id":7,"flow_in":true,"flow_out":true"#),
        span(3, 5, "c", r#","bind_id":7,"flow_in":true"#),
    ];
    let ends = "flow a 1000 -> b 3000\nflow b 3000 -> c 5000\n";
    assert!(outline(&in_steps.join(",")).ends_with(ends), "{}", outline(&in_steps.join(",")));
    let alone = [span(1, 1, "a", r#","bind_id":1,"flow_out":true"#), span(1, 3, "b", r#","bind_id":2,"flow_in":true"#)];
    assert_eq!(read(&alone.join(",")).warnings, ["2 flows lack one of their spans"]);
}

#[test]
fn a_span_carries_one_flow_and_further_ones_are_events() {
    let mut builder = TraceBuilder::default();
    let [main, stream] = [builder.thread(1, 1, "main"), builder.stream(1, 7, "stream 7")];
    let mut span = |track, start| builder.span(track, Nanos(start), Nanos(10), "stage", "");
    let (a, b, c, d) = (span(main, 0), span(stream, 20), span(stream, 40), span(main, 60));
    // One leads to two; one of those leads on, and another leads there too; the last leads back in time.
    for (from, to) in [(a, b), (a, c), (b, d), (c, d), (d, a)] {
        builder.flow(from, to);
    }
    let trace = builder.build().unwrap();
    let mut text = Vec::new();
    laptime_trace::write_to(&trace, laptime_trace::Format::Chrome, &mut text).unwrap();
    assert_eq!(read_from(text.as_slice()).unwrap(), trace);
    let text = String::from_utf8(text).unwrap();
    let count = |what: &str| text.matches(what).count();
    assert_eq!((count("\"flow_out\""), count("\"flow_in\"")), (1, 2));
    assert_eq!((count("\"ph\":\"s\""), count("\"ph\":\"f\"")), (3, 3));
    assert_eq!(count("\"bind_id\":4"), 3, "numbers of events are taken: {text}");
}

#[test]
fn a_flow_that_leads_nowhere_is_counted() {
    let events = r#"
        {"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"name":"a"},
        {"ph":"s","pid":1,"tid":1,"ts":1,"id":1},{"ph":"f","pid":9,"tid":9,"ts":1,"id":1},
        {"ph":"f","pid":1,"tid":1,"ts":1,"id":2},
        {"ph":"s","pid":1,"tid":1,"ts":1,"id":3}"#;
    assert_eq!(read(events).warnings, ["3 flows lack one of their spans"]);
}

#[test]
fn a_foreign_category_kernel_is_a_device_only_with_a_stream() {
    let kind = |args: &str| {
        let trace =
            read(&format!(r#"{{"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"name":"a","cat":"kernel","args":{args}}}"#));
        trace.tracks().next().unwrap().1.kind
    };
    assert_eq!(kind(r#"{"cpu": 3}"#), TrackKind::Thread);
    assert_eq!(kind(r#"{"stream": 3}"#), TrackKind::Stream);
}

#[test]
fn numbers_outside_json_and_invalid_utf8_are_read() {
    let mut bytes = br#"[{"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"name":"caf"#.to_vec();
    bytes.extend(b"\xe9\",\"args\":{\"a\":NaN,\"b\":-Infinity,\"c\":inf}}]");
    let trace = read_from(bytes.as_slice()).unwrap();
    assert_eq!(trace.outline(), "thread 1\n  caf\u{fffd}  1000..2000  a=NaN  b=-inf  c=inf\n");
    assert_eq!(trace.warnings, ["1 string is not valid UTF-8; replacement characters mark the invalid parts"]);
}

#[test]
fn skipped_kinds_of_events_are_counted_by_letter() {
    let events = r#"{"ph":"v","ts":1},{"ph":"c","ts":1},{"ph":"v","ts":1},{"ph":"i","ts":1,"name":"a"}"#;
    let expected = ["1 event of kind `c` was skipped", "2 events of kind `v` were skipped"];
    assert_eq!(read(events).warnings, expected);
}
