//! JSON that is not a trace, or only half of one.

use laptime_trace::ReadError;

use crate::read;

const GOOD: &str = r#"{"ph":"X","pid":1,"tid":1,"name":"good","ts":1,"dur":2}"#;

/// The outline and warnings of a file with one good event and this one.
fn next_to_a_good_event(event: &str) -> (String, Vec<String>) {
    let trace = read(format!("[{event},{GOOD}]").as_bytes()).unwrap();
    (trace.outline(), trace.warnings)
}

#[test]
fn an_event_of_wrong_types_costs_itself_alone() {
    let events = [
        r#"{"ph":5,"ts":1}"#,
        r#"{"ph":"X","name":{"a":1},"ts":1,"dur":1,"pid":1,"tid":1}"#,
        r#"{"ph":"X","name":"x","args":[1],"ts":1,"dur":1,"pid":1,"tid":1}"#,
        r#"{"ph":"X","name":"x","args":"text","ts":1,"dur":1,"pid":1,"tid":1}"#,
        r#"{"ph":"X","name":"x","laptime_open":7,"ts":1,"dur":1,"pid":1,"tid":1}"#,
        r#"{"ph":"X","name":"\ud800","ts":1,"dur":1,"pid":1,"tid":1}"#,
        r#"{"ph":"X","name":"x","name":"y","ts":1,"dur":1}"#,
        r#"{"ph":"X" "name":"x"}"#,
        "{nonsense}",
    ];
    for event in events {
        let (outline, warnings) = next_to_a_good_event(event);
        assert_eq!(outline, "thread 1\n  good  1000..3000\n", "{event}");
        assert_eq!(warnings, ["1 damaged event was skipped"], "{event}");
    }
}

#[test]
fn an_event_without_a_possible_time_costs_itself_alone() {
    let times = [
        r#""ts":-5,"dur":1"#,
        r#""ts":1,"dur":-1"#,
        r#""ts":1e300,"dur":1"#,
        r#""ts":9223372036854775.807,"dur":0.001"#,
        r#""ts":5,"dur":9223372036854775.807"#,
        r#""ts":99999999999999999999999,"dur":1"#,
        r#""ts":null,"dur":1"#,
        r#""ts":"soon","dur":1"#,
        r#""ts":{"a":1},"dur":1"#,
        r#""ts":true,"dur":1"#,
        r#""ts":1,"dur":"long""#,
        r#""dur":1"#,
    ];
    for time in times {
        for phase in ["X", "B", "i", "C", "E"] {
            let event = format!(r#"{{"ph":"{phase}","pid":1,"tid":1,"name":"x","args":{{"v":1}},{time}}}"#);
            let (outline, warnings) = next_to_a_good_event(&event);
            assert!(outline.contains("good  1000..3000"), "{event}");
            if phase == "X" {
                assert_eq!(outline, "thread 1\n  good  1000..3000\n", "{event}");
                assert_eq!(warnings, ["1 event without a valid time was skipped"], "{event}");
            }
        }
    }
}

#[test]
fn the_latest_time_of_all_is_kept() {
    let event = r#"{"ph":"X","pid":1,"tid":1,"name":"x","ts":9223372036854775.807,"dur":0}"#;
    let (outline, warnings) = next_to_a_good_event(event);
    assert!(outline.contains("x  9223372036854775807..9223372036854775807"), "{outline}");
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn a_span_on_a_curve_and_a_curve_on_a_thread_are_distinguished() {
    let about =
        r#"{"ph":"M","pid":1,"tid":5,"name":"laptime_track","args":{"kind":"counter","name":"memory","unit":"bytes"}}"#;
    let span = r#"{"ph":"X","pid":1,"tid":5,"name":"x","ts":1,"dur":1}"#;
    let (outline, warnings) = next_to_a_good_event(&format!("{about},{span}"));
    assert_eq!(outline, "memory (counter)\nthread 1\n  good  1000..3000\n");
    assert_eq!(warnings, ["1 event does not fit its track and was skipped"]);
}

#[test]
fn flows_whose_spans_were_damaged_lead_nowhere_wrong() {
    let trace = crate::complete_trace();
    let text = String::from_utf8(crate::written(&trace, laptime_trace::Format::Chrome)).unwrap();
    let damaged = text.replacen(r#""name":"prefill""#, r#""name":prefill"#, 1);
    let read = read(damaged.as_bytes()).unwrap();
    assert_eq!(read.span_count(), trace.span_count() - 1);
    assert_eq!(read.flows().len(), trace.flows().len() - 2, "{}", read.outline());
    for flow in read.flows() {
        assert_eq!((read.span(flow.from).name, read.span(flow.to).name), ("decode", "decode"), "{}", read.outline());
    }
    assert!(read.warnings.iter().any(|warning| warning.ends_with("flows lack one of their spans")));
}

#[test]
fn flows_that_are_events_lead_nowhere_wrong_when_spans_before_theirs_were_damaged() {
    // A file of the first schema has no other flows.
    let zipped = std::fs::File::open("../../tests/data/formats/complete.schema1.json.gz").unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(zipped), &mut text).unwrap();
    let damaged = text.replacen(r#""name":"generate""#, r#""name":generate"#, 1);
    let read = read(damaged.as_bytes()).unwrap();
    for flow in read.flows() {
        assert_eq!(read.span(flow.from).name == "decode", read.span(flow.to).name == "decode", "{}", read.outline());
    }
    assert!(read.warnings.iter().any(|warning| warning.ends_with("flows lack one of their spans")));
}

#[test]
fn json_without_events_is_not_a_trace() {
    let others =
        [r#"{"traceEvents":1}"#, r#"{"traceEvents":{}}"#, r#"[{"id":1,"model":"a"},{"id":1,"timestamps":[]}]"#];
    for text in ["{}", r#"{"a":1}"#, "[1,2,3", r#"[{"a":"#, r#"["text"#].into_iter().chain(others) {
        assert!(
            matches!(read(text.as_bytes()), Err(ReadError::NotATrace { .. })),
            "{text}: {:?}",
            read(text.as_bytes())
        );
    }
    for text in ["[]", "[{}]", r#"{"traceEvents":[]}"#] {
        assert_eq!(read(text.as_bytes()).unwrap().span_count(), 0, "{text}");
    }
}

#[test]
fn nesting_a_million_deep_costs_its_event_alone() {
    let deep = format!(r#"{{"ph":"X","args":{{"a":{}{}}}}}"#, "[".repeat(1_000_000), "]".repeat(1_000_000));
    let (outline, warnings) = next_to_a_good_event(&deep);
    assert_eq!(outline, "thread 1\n  good  1000..3000\n");
    assert_eq!(warnings, ["1 damaged event was skipped"]);
    let open = format!("{{\"a\":{}", "[{\"a\":".repeat(1_000_000));
    assert!(matches!(read(open.as_bytes()), Err(ReadError::NotATrace { .. })));
}

#[test]
fn invented_kinds_of_events_use_no_memory() {
    let events: String = (0..20_000).map(|at| format!(r#"{{"ph":"kind number {at}"}},"#)).collect();
    let text = format!("[{events}{GOOD}]");
    let (trace, held) = crate::heap::peak_of(|| read(text.as_bytes()).unwrap());
    assert_eq!(trace.warnings, ["20000 events of kind `other` were skipped"]);
    assert!(held < 1 << 20, "{held} bytes");
}
