//! Any trace survives the lossless formats, and the other formats keep what they can represent.

use std::collections::HashMap;

use crate::any_trace::{any_trace, seeded};
use laptime_trace::{
    Format, ReadError, Trace, TraceBuilder,
    format::{folded, pftrace},
    read_from, write_to,
};
use proptest::prelude::*;
use serde_json::Value as Json;

fn written(trace: &Trace, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_to(trace, format, &mut bytes).unwrap();
    bytes
}

/// Compares outlines first, because their difference is readable.
fn assert_same(read: &Trace, trace: &Trace) -> Result<(), TestCaseError> {
    prop_assert_eq!(read.outline(), trace.outline());
    prop_assert_eq!(read, trace);
    let is_empty = trace.span_count() == 0 && trace.mark_count() == 0 && trace.values().next().is_none();
    prop_assert!(is_empty || read.warnings.is_empty(), "only an empty trace has a warning: {:?}", read.warnings);
    Ok(())
}

proptest! {
    #![proptest_config(seeded())]

    #[test]
    fn the_rules_hold_for_any_trace(trace in any_trace()) {
        prop_assert_eq!(trace.0.check(), Ok(()));
    }

    #[test]
    fn any_trace_that_is_gone_on_with_stays_as_it_is(trace in any_trace()) {
        assert_same(&TraceBuilder::extending(trace.0.clone()).build().unwrap(), &trace.0)?;
    }

    #[test]
    fn any_trace_survives_pftrace(trace in any_trace()) {
        let bytes = written(&trace.0, Format::Pftrace);
        assert_same(&read_from(bytes.as_slice()).unwrap(), &trace.0)?;
    }

    #[test]
    fn any_trace_survives_uncompressed_pftrace(trace in any_trace()) {
        let mut bytes = Vec::new();
        pftrace::write_uncompressed(&trace.0, &mut bytes).unwrap();
        assert_same(&read_from(bytes.as_slice()).unwrap(), &trace.0)?;
    }

    #[test]
    fn any_trace_survives_chrome_json(trace in any_trace()) {
        let bytes = written(&trace.0, Format::Chrome);
        prop_assert!(serde_json::from_slice::<Json>(&bytes).is_ok());
        assert_same(&read_from(bytes.as_slice()).unwrap(), &trace.0)?;
    }

    #[test]
    fn any_trace_survives_gzipped_chrome_json(trace in any_trace()) {
        let bytes = written(&trace.0, Format::ChromeGz);
        assert_same(&read_from(bytes.as_slice()).unwrap(), &trace.0)?;
    }

    #[test]
    fn a_trace_read_back_is_written_to_the_same_bytes(trace in any_trace()) {
        for format in [Format::Pftrace, Format::Chrome, Format::Speedscope, Format::Folded] {
            let read = read_from(written(&trace.0, Format::Pftrace).as_slice()).unwrap();
            prop_assert!(written(&read, format) == written(&trace.0, format), "{:?} differs", format);
        }
    }

    #[test]
    fn folded_stacks_hold_the_own_time_of_every_stack(trace in any_trace()) {
        let text = String::from_utf8(written(&trace.0, Format::Folded)).unwrap();
        prop_assert_eq!(parsed_stacks(&text), own_times(&trace.0));
    }

    #[test]
    fn speedscope_profiles_hold_the_spans_of_every_lane(trace in any_trace()) {
        let file: Json = serde_json::from_slice(&written(&trace.0, Format::Speedscope)).unwrap();
        prop_assert_eq!(parsed_profiles(&file), lanes(&trace.0));
    }

    #[test]
    fn a_projection_is_recognised_and_refused(trace in any_trace()) {
        let bytes = written(&trace.0, Format::Speedscope);
        let is_refused = matches!(read_from(bytes.as_slice()), Err(ReadError::OneWay { .. }));
        prop_assert!(is_refused);
    }
}

type Stacks = HashMap<Vec<String>, u64>;

fn parsed_stacks(text: &str) -> Stacks {
    let line = |line: &str| {
        let (stack, nanos) = line.rsplit_once(' ').unwrap();
        (stack.split(';').map(unescaped).collect(), nanos.parse().unwrap())
    };
    let lines: Vec<(Vec<String>, u64)> = text.split_terminator('\n').map(line).collect();
    let stacks: Stacks = lines.iter().cloned().collect();
    assert_eq!(stacks.len(), lines.len(), "a stack stands on one line");
    stacks
}

fn unescaped(frame: &str) -> String {
    let mut text = String::new();
    let mut rest = frame;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        let escape = rest.as_bytes().get(at + 1..at + 3).map(|code| String::from_utf8_lossy(code).into_owned());
        let char = escape.and_then(|code| match code.as_str() {
            "3B" => Some(';'),
            "0A" => Some('\n'),
            "0D" => Some('\r'),
            "25" => Some('%'),
            _ => None,
        });
        text.push(char.unwrap_or('%'));
        rest = &rest[at + if char.is_some() { 3 } else { 1 }..];
    }
    text + rest
}

fn own_times(trace: &Trace) -> Stacks {
    let frame = |name: &str| if name.is_empty() { "(no name)".to_owned() } else { name.to_owned() };
    let mut stacks = Stacks::new();
    for span in trace.spans().filter(|span| !trace.track(span.track).kind.is_device()) {
        let children = trace.spans_on(span.track).filter(|child| child.parent == Some(span.id));
        let own = span.duration.0 - children.map(|child| child.duration.0).sum::<u64>();
        let mut stack = vec![frame(span.name)];
        stack.extend(trace.ancestors(span).map(|id| frame(trace.span(id).name)));
        stack.push(frame(trace.name(trace.track(span.track).name)));
        stack.reverse();
        let sum = stacks.entry(stack).or_default();
        *sum = sum.saturating_add(own);
    }
    stacks.retain(|_, nanos| *nanos > 0);
    stacks
}

#[test]
fn stacks_of_equal_names_are_distinguished_by_where_they_belong() {
    let stacks = folded::stacks(&nested_twice(), folded::By::Host);
    assert_eq!(stacks, ["main;a 60", "main;a;b 40", "main;b 10"]);
}

fn nested_twice() -> Trace {
    use laptime_trace::{Nanos, TraceBuilder};
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    for (start, duration, name) in [(0, 100, "a"), (20, 40, "b"), (100, 10, "b")] {
        builder.span(main, Nanos(start), Nanos(duration), name, "");
    }
    builder.build().unwrap()
}

/// A lane's name and its spans: name, start, end and depth, in the order of their beginnings.
type Profile = (String, Vec<(String, u64, u64, usize)>);

fn parsed_profiles(file: &Json) -> Vec<Profile> {
    let frames = file["shared"]["frames"].as_array().unwrap();
    let name = |frame: &Json| frames[frame.as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned();
    let profile = |profile: &Json| {
        assert_eq!((&profile["type"], &profile["unit"]), (&"evented".into(), &"nanoseconds".into()));
        let mut spans = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        let mut last = profile["startValue"].as_u64().unwrap();
        for event in profile["events"].as_array().unwrap() {
            let (name, at) = (name(&event["frame"]), event["at"].as_u64().unwrap());
            assert!(at >= last, "times never run backwards");
            last = at;
            if event["type"] == "O" {
                spans.push((name, at, 0, open.len()));
                open.push(spans.len() - 1);
            } else {
                let closed = &mut spans[open.pop().unwrap()];
                assert_eq!(closed.0, name, "the innermost frame closes first");
                closed.2 = at;
            }
        }
        assert_eq!((open.len(), profile["endValue"].as_u64()), (0, Some(last)));
        (profile["name"].as_str().unwrap().to_owned(), spans)
    };
    file["profiles"].as_array().unwrap().iter().map(profile).collect()
}

fn lanes(trace: &Trace) -> Vec<Profile> {
    let mut profiles = Vec::new();
    for (id, track) in trace.tracks() {
        let most = trace.spans_on(id).map(|span| span.lane + 1).max().unwrap_or(0);
        for lane in 0..most {
            let name = trace.name(track.name);
            let name = if lane == 0 { name.to_owned() } else { format!("{name} (lane {lane})") };
            let spans = trace.spans_on(id).filter(|span| span.lane == lane);
            let spans =
                spans.map(|span| (span.name.to_owned(), span.start.0, span.end().0, trace.ancestors(span).count()));
            profiles.push((name, spans.collect()));
        }
    }
    profiles
}
