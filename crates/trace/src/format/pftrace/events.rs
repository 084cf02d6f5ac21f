//! Passes a whole trace to the writer, each lane in order of time.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use super::write::{Begin, Sequence, TrackPlace, TrackText, Writer};
use crate::time::Nanos;
use crate::trace::{Mark, Span, SpanId, Trace, ValuePoint};
use crate::track::{Track, TrackId};

pub fn write_all<W: Write>(trace: &Trace, mut writer: Writer<W>) -> io::Result<()> {
    writer.origin(&trace.origin)?;
    if let Some(uncertainty) = trace.clock_uncertainty {
        writer.uncertainty(uncertainty)?;
    }
    writer.lost(trace.lost)?;
    for (key, json) in trace.metadata.iter() {
        writer.about(key, json)?;
    }
    let mut processes = Vec::new();
    for (_, process) in trace.processes() {
        processes.push(writer.process(process.number, trace.name(process.name))?);
    }
    let flows = FlowNumbers::of(trace);
    let mut values = trace.values().peekable();
    for (id, track) in trace.tracks() {
        let place = writer.track(processes[track.process.index()], track_text(trace, track))?;
        let mut lanes = Lanes { trace, track, place, sequences: HashMap::new() };
        write_spans(trace, id, &flows, &mut lanes, &mut writer)?;
        write_marks(trace, id, &mut lanes, &mut writer)?;
        while let Some(value) = values.next_if(|value| value.track == id) {
            write_value(value, &mut lanes, &mut writer)?;
        }
    }
    writer.flush()
}

fn track_text<'a>(trace: &'a Trace, track: &Track) -> TrackText<'a> {
    TrackText {
        kind: track.kind,
        pid: trace.process(track.process).number,
        name: trace.name(track.name),
        number: track.number,
        device: track.device,
        unit: trace.name(track.unit),
    }
}

/// The sequences of a track's lanes, created when first needed.
struct Lanes<'a> {
    trace: &'a Trace,
    track: &'a Track,
    place: TrackPlace,
    sequences: HashMap<u32, Sequence>,
}

impl Lanes<'_> {
    fn sequence<W: Write>(&mut self, lane: u32, writer: &mut Writer<W>) -> io::Result<Sequence> {
        if let Some(&sequence) = self.sequences.get(&lane) {
            return Ok(sequence);
        }
        let place = match lane {
            0 => self.place,
            lane => writer.lane(self.place, &format!("{} (lane {lane})", self.trace.name(self.track.name)))?,
        };
        let sequence = writer.sequence(place)?;
        self.sequences.insert(lane, sequence);
        Ok(sequence)
    }
}

/// The ids of the flows that leave and reach each span.
struct FlowNumbers {
    out: BySpan,
    into: BySpan,
}

impl FlowNumbers {
    fn of(trace: &Trace) -> Self {
        let (spans, flows) = (trace.span_count(), trace.flows());
        Self {
            out: BySpan::new(spans, flows.iter().map(|flow| flow.from)),
            into: BySpan::new(spans, flows.iter().map(|flow| flow.to)),
        }
    }
}

/// Numbers of flows in the order of their spans. A launch-bound program has a flow per kernel, and a hash table per flow
/// takes a quarter of the time of writing such a trace.
struct BySpan {
    numbers: Vec<u64>,
    /// Where the numbers of each span end.
    ends: Vec<u32>,
}

impl BySpan {
    fn new(spans: usize, of_flows: impl Iterator<Item = SpanId> + Clone) -> Self {
        let mut ends = vec![0_u32; spans + 1];
        for span in of_flows.clone() {
            ends[span.index() + 1] += 1;
        }
        for at in 1..ends.len() {
            ends[at] += ends[at - 1];
        }
        // Each entry moves from the start of its span's numbers to their end.
        let mut numbers = vec![0; ends[spans] as usize];
        for (span, number) in of_flows.zip(1..) {
            let place = &mut ends[span.index()];
            numbers[*place as usize] = number;
            *place += 1;
        }
        Self { numbers, ends }
    }

    fn of(&self, span: SpanId) -> &[u64] {
        let start = span.index().checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.numbers[start as usize..self.ends[span.index()] as usize]
    }
}

fn write_spans<W: Write>(
    trace: &Trace,
    track: TrackId,
    flows: &FlowNumbers,
    lanes: &mut Lanes<'_>,
    writer: &mut Writer<W>,
) -> io::Result<()> {
    // Sorted, so that equal traces give equal files.
    let mut open: BTreeMap<u32, Vec<Span<'_>>> = BTreeMap::new();
    for span in trace.spans_on(track) {
        let sequence = lanes.sequence(span.lane, writer)?;
        let around = open.entry(span.lane).or_default();
        while let Some(ended) = around.pop_if(|top| Some(top.id) != span.parent) {
            end(&ended, sequence, writer)?;
        }
        begin(&span, sequence, flows, writer)?;
        around.push(span);
    }
    for (lane, mut around) in open {
        let sequence = lanes.sequence(lane, writer)?;
        while let Some(ended) = around.pop() {
            end(&ended, sequence, writer)?;
        }
    }
    Ok(())
}

fn begin<W: Write>(span: &Span<'_>, sequence: Sequence, flows: &FlowNumbers, writer: &mut Writer<W>) -> io::Result<()> {
    let (flow_out, flow_in) = (flows.out.of(span.id), flows.into.of(span.id));
    let begin = Begin { name: span.name, category: span.category, flow_out, flow_in };
    writer.begin(sequence, span.start, begin, span.fields.iter())
}

fn end<W: Write>(span: &Span<'_>, sequence: Sequence, writer: &mut Writer<W>) -> io::Result<()> {
    if span.is_open {
        writer.end_open(sequence, span.end())
    } else {
        writer.end(sequence, span.end(), std::iter::empty())
    }
}

fn write_marks<W: Write>(
    trace: &Trace,
    track: TrackId,
    lanes: &mut Lanes<'_>,
    writer: &mut Writer<W>,
) -> io::Result<()> {
    for Mark { name, category, time, fields, .. } in trace.marks_on(track) {
        let sequence = lanes.sequence(0, writer)?;
        writer.mark(sequence, time, name, category, fields.iter())?;
    }
    Ok(())
}

fn write_value<W: Write>(value: ValuePoint, lanes: &mut Lanes<'_>, writer: &mut Writer<W>) -> io::Result<()> {
    let sequence = lanes.sequence(0, writer)?;
    let time: Nanos = value.time;
    writer.value(sequence, time, value.number)
}
