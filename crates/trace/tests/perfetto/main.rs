//! Perfetto's own trace_processor reads our files and sees the same content.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../formats/complete_trace/mod.rs"]
mod complete_trace;

mod judge;
mod seen;

use std::{collections::HashSet, path::Path, sync::Arc};

use complete_trace::complete_trace;
use laptime_probe::{Lane, SimulatedDevice, lap, mark, now, stage, sync_point, value};
use laptime_trace::{Nanos, Number, SpanEntry, Trace, TraceBuilder, TrackId, read, record_to, write};
use seen::{judged, ours};

/// Fails if trace_processor sees something else in a file than our reader does.
fn assert_judged(trace: &Trace, file: &Path) {
    let expected = ours(trace);
    let marks: HashSet<(i64, &str)> = trace.marks().map(|mark| (mark.time.0 as i64, mark.name)).collect();
    let found = judged(file, |slice| slice.duration == 0 && marks.contains(&(slice.start, slice.name.as_str())));
    assert_same("slice", &found.slices, &expected.slices);
    assert_same("nesting", &found.nested, &expected.nested);
    assert_same("flow", &found.flows, &expected.flows);
    assert_same("value", &found.values, &expected.values);
    assert_same("process", &found.processes, &expected.processes);
    assert_same("thread", &found.threads, &expected.threads);
}

/// Compares one by one, so that the first difference is readable.
fn assert_same<T: PartialEq + std::fmt::Debug>(what: &str, found: &[T], expected: &[T]) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected, "the judge sees another {what}");
    }
    assert_eq!(found.len(), expected.len(), "the judge counts each {what} otherwise");
}

fn assert_written_and_judged(trace: &Trace) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.pftrace");
    write(trace, &file).unwrap();
    assert_judged(trace, &file);
    let mut bytes = Vec::new();
    laptime_trace::format::pftrace::write_uncompressed(trace, &mut bytes).unwrap();
    std::fs::write(&file, bytes).unwrap();
    assert_judged(trace, &file);
}

#[test]
fn a_trace_with_something_of_every_kind_is_seen_whole() {
    assert_written_and_judged(&complete_trace());
}

#[test]
fn perfetto_accepts_an_empty_trace() {
    assert_written_and_judged(&TraceBuilder::default().build().unwrap());
}

#[test]
fn data_unknown_to_perfetto_goes_into_its_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.pftrace");
    write(&complete_trace(), &file).unwrap();
    let rows = judge::ask(
        &file,
        &["select name, coalesce(int_value, str_value) as value from metadata where name glob 'cr-*'"],
    );
    let entries: Vec<String> = rows[0]
        .iter()
        .map(|row| format!("{} {}", judge::text(&row["name"]).rsplit('-').next().unwrap(), row["value"]))
        .collect();
    let expected = [
        "laptime_schema 1",
        "laptime_origin \"start of the recording\"",
        "laptime_origin_unix_ns \"1763197385123456789\"",
        "laptime_clock_uncertainty_ns 1500",
        "laptime_lost 3",
    ];
    assert_eq!(entries, expected);
}

/// A trace of some thousand spans on many tracks, the same in every run.
fn larger_trace() -> Trace {
    let mut random = Random(42);
    let mut builder = TraceBuilder::default();
    let mut tracks: Vec<TrackId> = Vec::new();
    for process in 1..=3_i64 {
        let id = builder.process(100 * process);
        builder.name_process(id, &format!("process {process}"));
        for thread in 1..=3 {
            tracks.push(builder.thread(100 * process, 100 * process + thread, &format!("thread {process}.{thread}")));
        }
        // Two streams with the same name are still two tracks.
        tracks.push(builder.stream(100 * process, 1, "stream"));
        tracks.push(builder.stream(100 * process, 2, "stream"));
    }
    let mut spans = Vec::new();
    for (at, track) in tracks.iter().enumerate() {
        let mut time = 1_000 + at as u64;
        while time < 300_000 {
            time = nest(&mut builder, &mut random, *track, time, 0, &mut spans) + 1 + random.below(500);
        }
        for overlapping in 0..20 {
            let (start, name) = (random.below(200_000) + 7, format!("overlapping {overlapping}"));
            spans.push((start, builder.span(*track, Nanos(start), Nanos(random.below(50_000) + 1), &name, "")));
        }
        for mark in 0..20 {
            builder.mark(*track, Nanos(random.below(300_000)), &format!("mark {at}.{mark}"), "");
        }
    }
    add_flows(&mut builder, &mut random, &mut spans);
    let counter = builder.counter(100, "queue", "requests");
    for time in 0..500 {
        builder.value(counter, Nanos(time * 600), Number::Int(random.below(100) as i64));
    }
    builder.build().unwrap()
}

/// Adds a span with children; returns its end.
fn nest(
    builder: &mut TraceBuilder,
    random: &mut Random,
    track: TrackId,
    start: u64,
    depth: u64,
    spans: &mut Vec<(u64, SpanEntry)>,
) -> u64 {
    let span = builder.span(track, Nanos(start), Nanos(0), &format!("stage {depth}.{}", random.below(9)), "");
    builder.span_field(span, "depth", depth);
    builder.span_field(span, "share", random.below(1_000) as f64 / 7.0);
    spans.push((start, span));
    let mut end = start + 1 + random.below(300);
    if depth < 4 {
        for _ in 0..random.below(4) {
            end = nest(builder, random, track, end, depth + 1, spans) + random.below(40);
        }
    }
    builder.end_span(span, Nanos(end));
    end
}

/// Flows lead forward in time; trace_processor reverses others.
fn add_flows(builder: &mut TraceBuilder, random: &mut Random, spans: &mut [(u64, SpanEntry)]) {
    spans.sort_unstable();
    for _ in 0..300 {
        let from = random.below(spans.len() as u64 - 1) as usize;
        let to = from + 1 + random.below((spans.len() - from - 1) as u64) as usize;
        if spans[from].0 < spans[to].0 {
            builder.flow(spans[from].1, spans[to].1);
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound.max(1)
    }
}

#[test]
fn thousands_of_spans_on_many_tracks_are_seen_whole() {
    let trace = larger_trace();
    assert!(trace.span_count() > 5_000, "{}", trace.span_count());
    assert_written_and_judged(&trace);
}

#[test]
fn a_recorded_pipeline_is_seen_whole() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.pftrace");
    let recording = record_to(&file).unwrap();
    let device = Arc::new(SimulatedDevice::anchored_at(now()));
    // Its work is after everything that the host does here: trace_processor draws no arrow back in time.
    device.advance(3_600_000_000_000);
    let stream = Lane::device("stream 7", Arc::clone(&device) as _);
    let queue = Lane::host("queue");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            std::thread::Builder::new()
                .name("worker".into())
                .spawn_scoped(scope, || pipeline(&device, &stream, &queue))
                .unwrap();
        }
    });
    let early = stage!("outlived");
    let late = stage!("outlives");
    drop(early);
    drop(late);
    let _open = stage!("never_ends", reason = "the recording stops first");
    device.synchronise();
    recording.finish().unwrap();
    let trace = read(&file).unwrap();
    assert!(trace.span_count() > 60, "{}", trace.outline());
    assert!(!trace.flows().is_empty() && trace.mark_count() == 2 && trace.values().count() == 20);
    assert_judged(&trace, &file);
}

fn pipeline(device: &SimulatedDevice, stream: &Lane, queue: &Lane) {
    let _generate = stage!("generate", tokens = 10, prompt = "Es war einmal");
    let _request = stage!("request", on = queue, id = 7_u64);
    for token in 0..10 {
        let _lap = lap!("decode", token = token);
        {
            let _forward = stage!("forward", on = stream, token = token, temperature = 0.5);
            device.submit(1_000);
        }
        sync_point!("read_token", bytes = 4 => device.synchronise());
        value!("kv_cache", 4_096 * token, unit = "bytes");
    }
    mark!("end_of_text", reason = "stop token");
}

#[test]
fn chrome_json_shows_the_same_spans_and_flows() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["trace.json", "trace.json.gz"] {
        let (trace, file) = (larger_trace(), folder.path().join(name));
        write(&trace, &file).unwrap();
        let slices = "select ts, dur, s.name as name, t.name as thread from slice s \
             join thread_track tt on tt.id = s.track_id join thread t using (utid)";
        let flows = "select o.ts as from_ts, o.name as from_name, i.ts as to_ts, i.name as to_name from flow \
             join slice o on o.id = slice_out join slice i on i.id = slice_in";
        let answers = judge::ask(&file, &[judge::COMPLAINTS, slices, flows]);
        let complaints: Vec<_> = answers[0].iter().map(|row| judge::text(&row["name"])).collect();
        assert_eq!(complaints, ["json_display_time_unit"]);
        let mut found: Vec<_> = answers[1]
            .iter()
            .map(|row| {
                (
                    judge::int(&row["ts"]),
                    judge::int(&row["dur"]),
                    judge::text(&row["name"]),
                    judge::text(&row["thread"]),
                )
            })
            .collect();
        let expected = ours(&trace).slices.into_iter();
        let mut expected: Vec<_> =
            expected.map(|slice| (Some(slice.start), Some(slice.duration), slice.name, slice.track)).collect();
        found.sort();
        expected.sort();
        assert_same("slice", &found, &expected);
        let mut found: Vec<_> = answers[2].iter().map(|row| (flow_end(row, "from"), flow_end(row, "to"))).collect();
        let mut expected: Vec<_> = ours(&trace).flows.into_iter().map(|(from, to)| (end(from), end(to))).collect();
        found.sort();
        expected.sort();
        assert_same("flow", &found, &expected);
    }
}

/// An end of a flow: the start and the name of its span.
fn flow_end(row: &judge::Row, which: &str) -> (Option<i64>, String) {
    (judge::int(&row[&format!("{which}_ts")]), judge::text(&row[&format!("{which}_name")]))
}

fn end(slice: seen::Slice) -> (Option<i64>, String) {
    (Some(slice.start), slice.name)
}
