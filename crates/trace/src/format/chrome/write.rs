//! Writes a trace as Chrome's JSON, one event per line.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use serde_json::{Value as Json, json};

use super::ties::{Tie, Ties};
use super::{FLOAT, SCHEMA, meta, time::Micros};
use crate::fields::Fields;
use crate::trace::{Flow, Mark, Span, Trace, ValuePoint};
use crate::track::{Track, TrackId, TrackKind};
use crate::value::{Number, Value};

/// Writes a trace.
pub fn write(trace: &Trace, out: impl Write) -> io::Result<()> {
    let mut events = Events { out, is_first: true };
    events.out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
    write_about(trace, &mut events)?;
    let threads = Threads::of(trace);
    threads.write(trace, &mut events)?;
    let ties = Ties::of(trace);
    for span in trace.spans() {
        let tie = ties.of_span(span.id.index());
        write_span(&span, tie, threads.place(trace, span.track, span.lane), &mut events)?;
    }
    for mark in trace.marks() {
        write_mark(&mark, threads.place(trace, mark.track, 0), &mut events)?;
    }
    for value in trace.values() {
        write_value(trace, value, threads.place(trace, value.track, 0), &mut events)?;
    }
    write_flows(trace, &ties.apart, &threads, &mut events)?;
    events.out.write_all(b"\n]}\n")?;
    events.out.flush()
}

/// The process and thread ids of an event.
#[derive(Debug, Clone, Copy)]
struct Place {
    pid: i64,
    tid: i64,
}

struct Events<W> {
    out: W,
    is_first: bool,
}

impl<W: Write> Events<W> {
    /// Starts an event with the common keys; the caller adds further keys and closes the brace.
    fn event(&mut self, phase: &str, place: Place, name: &str, category: &str) -> io::Result<()> {
        self.out.write_all(if self.is_first { b"" } else { b",\n" })?;
        self.is_first = false;
        write!(self.out, "{{\"ph\":\"{phase}\",\"pid\":{},\"tid\":{},\"name\":", place.pid, place.tid)?;
        self.text(name)?;
        if !category.is_empty() {
            self.out.write_all(b",\"cat\":")?;
            self.text(category)?;
        }
        Ok(())
    }

    fn metadata(&mut self, place: Place, name: &str, args: &Json) -> io::Result<()> {
        self.event("M", place, name, "")?;
        write!(self.out, ",\"args\":{args}}}")
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, text).map_err(io::Error::from)
    }

    fn fields(&mut self, fields: Fields<'_>) -> io::Result<()> {
        if fields.is_empty() {
            return Ok(());
        }
        self.out.write_all(b",\"args\":{")?;
        for (at, (name, value)) in fields.iter().enumerate() {
            self.out.write_all(if at == 0 { b"" } else { b"," })?;
            self.text(name)?;
            self.out.write_all(b":")?;
            self.value(value)?;
        }
        self.out.write_all(b"}")
    }

    fn value(&mut self, value: Value<'_>) -> io::Result<()> {
        match value {
            Value::Int(value) => write!(self.out, "{value}"),
            Value::Uint(value) => write!(self.out, "{value}"),
            Value::Bool(value) => write!(self.out, "{value}"),
            Value::Float(value) if value.is_finite() => write!(self.out, "{value:?}"),
            // The bits, so that every NaN is preserved.
            Value::Float(value) => write!(self.out, "{{\"{FLOAT}\":\"{value} {:016x}\"}}", value.to_bits()),
            Value::Str(value) => self.text(value),
        }
    }
}

fn write_about<W: Write>(trace: &Trace, events: &mut Events<W>) -> io::Result<()> {
    let mut about = json!({
        "schema": SCHEMA,
        "origin": trace.origin.name,
        "origin_unix_ns": trace.origin.unix_nanos,
        "clock_uncertainty_ns": trace.clock_uncertainty.map(|nanos| nanos.0),
        "lost": trace.lost,
    });
    if !trace.metadata.is_empty() {
        about["metadata"] = trace.metadata.iter().collect();
    }
    events.metadata(Place { pid: 0, tid: 0 }, meta::TRACE, &about)
}

/// The thread ids of tracks and lanes: a thread's own id if it is free, otherwise a generated one.
struct Threads {
    of_track: Vec<i64>,
    of_lane: HashMap<(TrackId, u32), i64>,
}

impl Threads {
    fn of(trace: &Trace) -> Self {
        let numbers: HashSet<i64> = trace.tracks().filter_map(|(_, track)| track.number).collect();
        let largest = numbers.iter().copied().max().unwrap_or(0).max(0);
        let first = if largest < i64::MAX / 2 { largest + 1 } else { 1 };
        let mut free = (first..=i64::MAX).filter(|number| !numbers.contains(number));
        // There are far fewer tracks and lanes than ids.
        let mut next = || free.next().unwrap_or(0);
        let mut taken = HashSet::new();
        let of_track = trace
            .tracks()
            .map(|(_, track)| match track.number {
                Some(number) if track.kind == TrackKind::Thread && taken.insert((track.process, number)) => number,
                _ => next(),
            })
            .collect();
        let mut of_lane = HashMap::new();
        for span in trace.spans().filter(|span| span.lane > 0) {
            of_lane.entry((span.track, span.lane)).or_insert_with(&mut next);
        }
        Self { of_track, of_lane }
    }

    fn place(&self, trace: &Trace, track: TrackId, lane: u32) -> Place {
        let pid = trace.process(trace.track(track).process).number;
        let tid = self.of_lane.get(&(track, lane)).copied().unwrap_or(self.of_track[track.index()]);
        Place { pid, tid }
    }

    fn write<W: Write>(&self, trace: &Trace, events: &mut Events<W>) -> io::Result<()> {
        for (_, process) in trace.processes() {
            let place = Place { pid: process.number, tid: 0 };
            events.metadata(place, "process_name", &json!({ "name": trace.name(process.name) }))?;
        }
        for (at, (id, track)) in trace.tracks().enumerate() {
            self.write_track(trace, id, track, at, events)?;
        }
        let mut lanes: Vec<_> = self.of_lane.iter().collect();
        lanes.sort_unstable();
        for (&(track, lane), &tid) in lanes {
            let Place { pid, tid: track_tid } = self.place(trace, track, 0);
            let name = format!("{} (lane {lane})", trace.name(trace.track(track).name));
            // The meaning of the id comes first: a thread's name alone would create a track.
            events.metadata(Place { pid, tid }, meta::LANE, &json!({ "track_tid": track_tid }))?;
            events.metadata(Place { pid, tid }, "thread_name", &json!({ "name": name }))?;
            events.metadata(Place { pid, tid }, "thread_sort_index", &json!({ "sort_index": track.index() }))?;
        }
        Ok(())
    }

    fn write_track<W: Write>(
        &self,
        trace: &Trace,
        id: TrackId,
        track: &Track,
        order: usize,
        events: &mut Events<W>,
    ) -> io::Result<()> {
        let place = self.place(trace, id, 0);
        let name = trace.name(track.name);
        if track.kind != TrackKind::Counter {
            // Perfetto rejects an empty name.
            if !name.is_empty() {
                events.metadata(place, "thread_name", &json!({ "name": name }))?;
            }
            events.metadata(place, "thread_sort_index", &json!({ "sort_index": order }))?;
        }
        let unit = trace.name(track.unit);
        let mut about = json!({ "kind": track.kind.words(), "name": name, "number": track.number, "unit": unit });
        if let Some(device) = track.device {
            about["device"] = json!(device);
        }
        events.metadata(place, meta::TRACK, &about)
    }
}

fn write_span<W: Write>(span: &Span<'_>, tie: Tie, place: Place, events: &mut Events<W>) -> io::Result<()> {
    events.event("X", place, span.name, span.category)?;
    write!(events.out, ",\"ts\":{},\"dur\":{}", Micros(span.start.0), Micros(span.duration.0))?;
    match tie {
        Tie::None => {}
        Tie::Out(number) => write!(events.out, ",\"bind_id\":{number},\"flow_out\":true")?,
        Tie::In(number) => write!(events.out, ",\"bind_id\":{number},\"flow_in\":true")?,
    }
    events.fields(span.fields)?;
    events.out.write_all(if span.is_open { b",\"laptime_open\":true}" } else { b"}" })
}

fn write_mark<W: Write>(mark: &Mark<'_>, place: Place, events: &mut Events<W>) -> io::Result<()> {
    events.event("i", place, mark.name, mark.category)?;
    write!(events.out, ",\"s\":\"t\",\"ts\":{}", Micros(mark.time.0))?;
    events.fields(mark.fields)?;
    events.out.write_all(b"}")
}

fn write_value<W: Write>(trace: &Trace, value: ValuePoint, place: Place, events: &mut Events<W>) -> io::Result<()> {
    events.event("C", place, trace.name(trace.track(value.track).name), "")?;
    write!(events.out, ",\"ts\":{},\"args\":{{\"value\":", Micros(value.time.0))?;
    events.value(match value.number {
        Number::Int(value) => Value::Int(value),
        Number::Float(value) => Value::Float(value),
    })?;
    events.out.write_all(b"}}")
}

/// Writes the flows that are not stored on spans.
fn write_flows<W: Write>(trace: &Trace, flows: &[Flow], threads: &Threads, events: &mut Events<W>) -> io::Result<()> {
    for (at, flow) in flows.iter().enumerate() {
        for (phase, binding, end) in [("s", "", flow.from), ("f", ",\"bp\":\"e\"", flow.to)] {
            let span = trace.span(end);
            events.event(phase, threads.place(trace, span.track, span.lane), "flow", "flow")?;
            let (number, time) = (at + 1, Micros(span.start.0));
            write!(events.out, ",\"id\":{number},\"ts\":{time}{binding},\"args\":{{\"span\":{}}}}}", end.index())?;
        }
    }
    Ok(())
}
