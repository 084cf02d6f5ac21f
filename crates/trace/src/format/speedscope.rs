//! speedscope's JSON: one profile for each lane of each track, with frames that open and close.

use std::io::{self, Write};

use crate::trace::{Span, Trace};
use crate::track::TrackId;

/// Writes the spans of a trace; the format cannot store fields, flows, marks and values.
pub fn write(trace: &Trace, mut out: impl Write) -> io::Result<()> {
    let schema = "https://www.speedscope.app/file-format-schema.json";
    write!(out, "{{\"$schema\":\"{schema}\",\"exporter\":\"laptime\",\"name\":")?;
    json(&trace.origin.name, &mut out)?;
    out.write_all(b",\"activeProfileIndex\":0,\"shared\":{\"frames\":[")?;
    let frames = Frames::of(trace);
    for (at, name) in frames.names.iter().enumerate() {
        out.write_all(if at == 0 { b"\n{\"name\":" } else { b",\n{\"name\":" })?;
        json(name, &mut out)?;
        out.write_all(b"}")?;
    }
    out.write_all(b"]},\"profiles\":[")?;
    let mut is_first = true;
    for (track, lane) in lanes(trace) {
        out.write_all(if is_first { b"\n" } else { b",\n" })?;
        is_first = false;
        write_profile(trace, track, lane, &frames, &mut out)?;
    }
    out.write_all(b"]}\n")?;
    out.flush()
}

/// The names of all spans, each once.
struct Frames<'a> {
    names: Vec<&'a str>,
    by_name: std::collections::HashMap<&'a str, usize>,
}

impl<'a> Frames<'a> {
    fn of(trace: &'a Trace) -> Self {
        let mut frames = Self { names: Vec::new(), by_name: std::collections::HashMap::new() };
        for span in trace.spans() {
            let next = frames.names.len();
            frames.by_name.entry(span.name).or_insert_with(|| {
                frames.names.push(span.name);
                next
            });
        }
        frames
    }
}

fn lanes(trace: &Trace) -> Vec<(TrackId, u32)> {
    let mut lanes: Vec<_> = trace.spans().map(|span| (span.track, span.lane)).collect();
    lanes.sort_unstable();
    lanes.dedup();
    lanes
}

fn write_profile(
    trace: &Trace,
    track: TrackId,
    lane: u32,
    frames: &Frames<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    let name = trace.name(trace.track(track).name);
    let name = if lane == 0 { name.to_owned() } else { format!("{name} (lane {lane})") };
    let spans = || trace.spans_on(track).filter(move |span| span.lane == lane);
    let start = spans().map(|span| span.start.0).min().unwrap_or(0);
    let end = spans().map(|span| span.end().0).max().unwrap_or(0);
    out.write_all(b"{\"type\":\"evented\",\"name\":")?;
    json(&name, out)?;
    write!(out, ",\"unit\":\"nanoseconds\",\"startValue\":{start},\"endValue\":{end},\"events\":[")?;
    let mut events = Events { out, is_first: true };
    let mut open: Vec<Span<'_>> = Vec::new();
    for span in spans() {
        while let Some(ended) = open.pop_if(|top| Some(top.id) != span.parent) {
            events.event('C', frames.by_name[ended.name], ended.end().0)?;
        }
        events.event('O', frames.by_name[span.name], span.start.0)?;
        open.push(span);
    }
    while let Some(ended) = open.pop() {
        events.event('C', frames.by_name[ended.name], ended.end().0)?;
    }
    out.write_all(b"]}")
}

struct Events<'a, W> {
    out: &'a mut W,
    is_first: bool,
}

impl<W: Write> Events<'_, W> {
    fn event(&mut self, kind: char, frame: usize, at: u64) -> io::Result<()> {
        let comma = if self.is_first { "" } else { "," };
        self.is_first = false;
        write!(self.out, "{comma}{{\"type\":\"{kind}\",\"frame\":{frame},\"at\":{at}}}")
    }
}

fn json(text: &str, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(out, text).map_err(io::Error::from)
}
