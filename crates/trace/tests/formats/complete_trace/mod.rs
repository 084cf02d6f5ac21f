//! A small hand-built trace that contains something of every kind.

use laptime_trace::{LAP, NameId, Nanos, Number, Origin, SYNC, Trace, TraceBuilder, Track, TrackId, TrackKind, Value};

/// The trace: a host thread that launches work on a stream, a second process, curves, marks, lanes.
pub fn complete_trace() -> Trace {
    let mut builder = TraceBuilder::default();
    builder.origin = Origin { name: "start of the recording".to_owned(), unix_nanos: Some(1_763_197_385_123_456_789) };
    builder.clock_uncertainty = Some(Nanos(1_500));
    builder.lost = 3;
    let process = builder.process(4_711);
    builder.name_process(process, "tts");
    let worker_process = builder.process(4_712);
    builder.name_process(worker_process, "worker \"two\"");
    let main = builder.thread(4_711, 4_711, "main");
    let stream = builder.stream(4_711, 7, "stream 7");
    let copies = other_track(&mut builder, 4_711, TrackKind::Copy, "host to device", Some(2));
    let queue = other_track(&mut builder, 4_711, TrackKind::Lane, "requests; queued", None);
    let nameless = other_track(&mut builder, 4_712, TrackKind::Thread, "", None);
    host_and_device(&mut builder, main, stream, copies);
    side_by_side(&mut builder, queue, nameless);
    curves(&mut builder);
    builder.build().unwrap()
}

fn other_track(builder: &mut TraceBuilder, process: i64, kind: TrackKind, name: &str, number: Option<i64>) -> TrackId {
    let (process, name) = (builder.process(process), builder.name(name));
    builder.track(Track { process, kind, name, number, device: None, unit: NameId::EMPTY })
}

fn host_and_device(builder: &mut TraceBuilder, main: TrackId, stream: TrackId, copies: TrackId) {
    let generate = builder.span(main, Nanos(1_000), Nanos(98_999), "generate", "");
    let fields: [(&str, Value<'_>); 9] = [
        ("tokens", Value::Int(512)),
        ("least", Value::Int(i64::MIN)),
        ("seed", Value::Uint(u64::MAX)),
        ("temperature", Value::Float(0.1)),
        ("below", Value::Float(-0.0)),
        ("unbounded", Value::Float(f64::INFINITY)),
        ("unknown", Value::Float(f64::NAN)),
        ("warm", Value::Bool(true)),
        ("prompt", Value::Str("Es war einmal… </script> \"\\\n\0 🏁")),
    ];
    for (name, value) in fields {
        builder.span_field(generate, name, value);
    }
    let prefill = builder.span(main, Nanos(2_000), Nanos(30_000), "prefill", "");
    let upload = builder.span(copies, Nanos(2_100), Nanos(4_000), "weights", "");
    let device = builder.span(stream, Nanos(6_200), Nanos(25_500), "prefill", "");
    builder.flow(prefill, upload);
    builder.flow(prefill, device);
    for token in 0..3_u64 {
        let start = 40_000 + 10_000 * token;
        let lap = builder.span(main, Nanos(start), Nanos(10_000), "decode", LAP);
        builder.span_field(lap, "token", token);
        let wait = builder.span(main, Nanos(start + 8_000), Nanos(2_000), "read_token", SYNC);
        builder.span_field(wait, "file", "src/decode.rs");
        builder.span_field(wait, "line", 42_u64);
        let device = builder.span(stream, Nanos(start + 500), Nanos(9_000), "decode", LAP);
        builder.flow(lap, device);
    }
    let mark = builder.mark(main, Nanos(69_999), "end_of_text", "");
    builder.mark_field(mark, "token", 2_i64);
    builder.mark(main, Nanos(69_999), "gpu_sync", SYNC);
}

/// Spans that overlap, coincide, touch and have no length; two that were still open.
fn side_by_side(builder: &mut TraceBuilder, queue: TrackId, nameless: TrackId) {
    for (start, end, name) in [(0, 50, "a"), (10, 60, "b"), (10, 60, "b"), (20, 30, "c"), (60, 60, ""), (60, 70, "%3B")]
    {
        builder.span(queue, Nanos(start), Nanos(end - start), name, "request");
    }
    let open = builder.span(queue, Nanos(65), Nanos(99_935), "never ends", "");
    builder.leave_open(open);
    let open = builder.span(nameless, Nanos(0), Nanos(100_000), "предзаполнение", "");
    builder.leave_open(open);
}

fn curves(builder: &mut TraceBuilder) {
    let memory = builder.counter(4_711, "memory", "bytes");
    let loss = builder.counter(4_712, "loss", "");
    for (time, bytes) in [(0, 0), (30_000, 1 << 40), (90_000, -1)] {
        builder.value(memory, Nanos(time), Number::Int(bytes));
    }
    for (time, value) in [(10, 0.5), (20, f64::NAN), (30, f64::NEG_INFINITY), (40, 2.0)] {
        builder.value(loss, Nanos(time), Number::Float(value));
    }
}
