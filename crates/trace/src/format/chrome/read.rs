//! Reads Chrome's JSON event by event.

use std::{borrow::Cow, collections::HashMap, io::BufRead};

use serde::Deserialize;
use serde_json::{Map, Value as Json, value::RawValue};

use super::{
    FLOAT, SCHEMA, meta,
    split::{End, Splitter},
    time::nanos,
    tracks::{OwnTrack, Tracks},
};
use crate::{
    builder::{SpanEntry, TraceBuilder},
    format::{
        ReadError,
        pairing::{Ending, Unpaired},
    },
    names::NameId,
    time::{Nanos, Origin},
    trace::{FieldRange, StoredValue, Trace},
    track::{TrackId, TrackKind},
    value::Number,
};

/// An event as it stands in the file. Numbers that must be exact, or may be text, stay text.
#[derive(Debug, Deserialize)]
struct Event<'a> {
    #[serde(borrow, default)]
    ph: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    cat: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    ts: Option<&'a RawValue>,
    #[serde(borrow, default)]
    dur: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pid: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tid: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    args: Option<Map<String, Json>>,
    #[serde(default)]
    laptime_open: bool,
}

/// Reads a trace.
pub fn read(input: impl BufRead) -> Result<Trace, ReadError> {
    let mut splitter = Splitter::new(input);
    let mut reader = Reader::default();
    while let Some(text) = splitter.next()? {
        match serde_json::from_slice(text) {
            Ok(event) => reader.event(event),
            Err(_) => reader.damaged += 1,
        }
    }
    reader.strange += splitter.no_events;
    if reader.understood == 0 {
        let found = match splitter.end() {
            _ if !splitter.found_events => "it is JSON without `traceEvents`",
            _ if reader.damaged > 0 || reader.strange > 0 => "none of its events can be understood",
            End::CutOff => "it is JSON cut off before its first event ends",
            End::Damaged(_) => "it is JSON damaged before its first event ends",
            _ => return reader.finish(splitter.end()),
        };
        return Err(ReadError::NotATrace { found: found.to_owned() });
    }
    reader.finish(splitter.end())
}

#[derive(Debug, Default)]
struct Reader {
    builder: TraceBuilder,
    tracks: Tracks,
    /// Spans in the order of the file, which our flows refer to.
    spans: Vec<SpanEntry>,
    flows: HashMap<String, (Option<FlowEnd>, Option<FlowEnd>)>,
    last_time: u64,
    is_ours: bool,
    understood: u64,
    damaged: u64,
    strange: u64,
    impossible_times: u64,
    misplaced: u64,
    lost_flows: u64,
    passed_over: HashMap<String, u64>,
}

impl Reader {
    fn event(&mut self, event: Event<'_>) {
        let pid = self.tracks.number(event.pid.map(RawValue::get));
        let tid = self.tracks.number(event.tid.map(RawValue::get));
        let known = match &*event.ph {
            "M" => self.metadata(pid, tid, &event),
            "X" => self.complete(pid, tid, &event),
            "B" => self.begin(pid, tid, &event),
            "E" => self.end(pid, tid, &event),
            "i" | "I" | "R" => self.instant(pid, tid, &event),
            "C" => self.counter(pid, tid, &event),
            "s" | "f" => self.flow(pid, tid, &event),
            "" => None,
            other => self.pass_over(other),
        };
        match known {
            Some(()) => self.understood += 1,
            None => self.strange += 1,
        }
    }

    /// Counts an event of a kind that has no place in a trace; kinds have one letter, by Chrome's rules.
    fn pass_over(&mut self, kind: &str) -> Option<()> {
        let kind = if kind.len() <= 4 { kind } else { "other" };
        *self.passed_over.entry(kind.to_owned()).or_default() += 1;
        Some(())
    }

    /// The event's time; none, and counted, if it has none that a trace can hold.
    fn time(&mut self, event: &Event<'_>) -> Option<u64> {
        let time = event.ts.and_then(|ts| nanos(ts.get())).and_then(|time| u64::try_from(time).ok());
        match time {
            Some(time) => self.last_time = self.last_time.max(time),
            None => self.impossible_times += 1,
        }
        time
    }

    fn metadata(&mut self, pid: i64, tid: i64, event: &Event<'_>) -> Option<()> {
        let args = event.args.as_ref()?;
        let text = |key: &str| args.get(key).and_then(Json::as_str);
        let number = |key: &str| args.get(key).and_then(Json::as_i64);
        let builder = &mut self.builder;
        match event.name.as_deref().unwrap_or_default() {
            "process_name" => {
                let process = self.tracks.process(pid, builder);
                builder.name_process(process, text("name")?);
            }
            "thread_name" => self.tracks.name_thread(pid, tid, text("name")?, builder),
            meta::TRACK => {
                let kind = TrackKind::from_words(text("kind")?)?;
                let (name, unit) = (text("name")?, text("unit").unwrap_or_default());
                self.tracks.describe(pid, tid, OwnTrack { kind, name, number: number("number"), unit }, builder);
            }
            meta::LANE => self.tracks.lane(pid, tid, number("track_tid")?, builder),
            meta::TRACE => {
                self.is_ours = true;
                builder.origin = Origin {
                    name: text("origin").unwrap_or_default().to_owned(),
                    unix_nanos: number("origin_unix_ns"),
                };
                builder.clock_uncertainty = args.get("clock_uncertainty_ns").and_then(Json::as_u64).map(Nanos);
                builder.lost = args.get("lost").and_then(Json::as_u64).unwrap_or(0);
                if args.get("schema").and_then(Json::as_u64) > Some(SCHEMA) {
                    let warning = "the trace was written by a newer laptime; some of it may be missing";
                    builder.warnings.push(warning.to_owned());
                }
            }
            _ => {}
        }
        Some(())
    }

    fn complete(&mut self, pid: i64, tid: i64, event: &Event<'_>) -> Option<()> {
        let Some(span) = self.start_span(pid, tid, event) else { return Some(()) };
        let duration = event.dur.map_or(Some(0), |dur| nanos(dur.get()));
        let duration = duration.and_then(|duration| u64::try_from(duration).ok());
        // Both are at most `i64::MAX`, so the sum does not wrap around.
        let Some(end) = duration.map(|duration| span.time + duration).filter(|&end| end <= Nanos::MAX.0) else {
            self.impossible_times += 1;
            self.builder.discard_span(span.entry);
            return Some(());
        };
        self.builder.end_span(span.entry, Nanos(end));
        self.last_time = self.last_time.max(end);
        Some(())
    }

    fn begin(&mut self, pid: i64, tid: i64, event: &Event<'_>) -> Option<()> {
        let Some(span) = self.start_span(pid, tid, event) else { return Some(()) };
        let track = self.tracks.thread(pid, tid, &mut self.builder);
        self.tracks.pairs.entry(track).or_default().begin(span.time, span.entry);
        Some(())
    }

    fn end(&mut self, pid: i64, tid: i64, event: &Event<'_>) -> Option<()> {
        let Some(time) = self.time(event) else { return Some(()) };
        let track = self.tracks.thread(pid, tid, &mut self.builder);
        let fields = self.fields(event.args.as_ref());
        let added = if fields.is_empty() { FieldRange::default() } else { self.builder.keep_fields(&fields) };
        self.tracks.pairs.entry(track).or_default().end(time, added, Ending::Usual);
        Some(())
    }

    fn start_span(&mut self, pid: i64, tid: i64, event: &Event<'_>) -> Option<Started> {
        let time = self.time(event)?;
        let track = self.tracks.thread(pid, tid, &mut self.builder);
        let (name, category) = self.names(event);
        let fields = self.fields(event.args.as_ref());
        let entry = self.builder.span_named(track, Nanos(time), Nanos(0), name, category);
        self.builder.set_span_fields(entry, &fields);
        if event.laptime_open {
            self.builder.leave_open(entry);
        }
        self.spans.push(entry);
        Some(Started { entry, time })
    }

    fn instant(&mut self, pid: i64, tid: i64, event: &Event<'_>) -> Option<()> {
        let Some(time) = self.time(event) else { return Some(()) };
        let track = self.tracks.thread(pid, tid, &mut self.builder);
        let (name, category) = self.names(event);
        let fields = self.fields(event.args.as_ref());
        self.builder.mark_named(track, Nanos(time), name, category, &fields);
        Some(())
    }

    fn counter(&mut self, pid: i64, tid: i64, event: &Event<'_>) -> Option<()> {
        let Some(time) = self.time(event) else { return Some(()) };
        let name = event.name.as_deref().unwrap_or_default();
        let args = event.args.as_ref()?;
        for (key, value) in args {
            let Some(number) = number_of(value) else {
                self.strange += 1;
                continue;
            };
            let full = if args.len() == 1 { name.to_owned() } else { format!("{name} {key}") };
            let track = self.tracks.counter(pid, tid, &full, &mut self.builder);
            self.builder.value(track, Nanos(time), number);
        }
        Some(())
    }

    /// Takes one end of a flow; only our own say which span they belong to.
    fn flow(&mut self, pid: i64, tid: i64, event: &Event<'_>) -> Option<()> {
        let span = event.args.as_ref().and_then(|args| args.get("span")).and_then(Json::as_u64);
        let (Some(span), true) = (span, self.is_ours) else { return self.pass_over("flow") };
        let Some(time) = self.time(event) else { return Some(()) };
        let track = self.tracks.thread(pid, tid, &mut self.builder);
        let flow = self.flows.entry(event.id?.get().to_owned()).or_default();
        let end = if event.ph == "s" { &mut flow.0 } else { &mut flow.1 };
        *end = Some(FlowEnd { span: span as usize, track, time });
        Some(())
    }

    /// Ties the flows to their spans. A damaged file may have lost spans: an end that does not lie where its span
    /// begins belongs to another.
    fn connect_flows(&mut self) {
        let (spans, builder) = (&self.spans, &mut self.builder);
        let span = |end: &Option<FlowEnd>, builder: &TraceBuilder| {
            let end = end.as_ref()?;
            let entry = spans.get(end.span).copied()?;
            builder.begins_at(entry, end.track, Nanos(end.time)).then_some(entry)
        };
        for (from, to) in self.flows.values() {
            match (span(from, builder), span(to, builder)) {
                (Some(from), Some(to)) => builder.flow(from, to),
                _ => self.lost_flows += 1,
            }
        }
    }

    fn names(&mut self, event: &Event<'_>) -> (NameId, NameId) {
        let name = event.name.as_deref().map_or(NameId::EMPTY, |name| self.builder.name(name));
        let category = event.cat.as_deref().map_or(NameId::EMPTY, |category| self.builder.name(category));
        (name, category)
    }

    fn fields(&mut self, args: Option<&Map<String, Json>>) -> Vec<(NameId, StoredValue)> {
        let Some(args) = args else { return Vec::new() };
        args.iter()
            .map(|(name, value)| {
                let value = self.stored(value);
                (self.builder.name(name), value)
            })
            .collect()
    }

    fn stored(&mut self, value: &Json) -> StoredValue {
        match value {
            Json::Bool(value) => StoredValue::Bool(*value),
            Json::String(value) => StoredValue::Str(self.builder.name(value)),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => StoredValue::Int(value),
                (None, Some(value)) => StoredValue::Uint(value),
                (None, None) => StoredValue::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            other => match special_float(other) {
                Some(value) => StoredValue::Float(value),
                None => StoredValue::Str(self.builder.name(&other.to_string())),
            },
        }
    }

    fn finish(mut self, end: End) -> Result<Trace, ReadError> {
        if !self.is_ours {
            self.builder.origin = Origin::named("zero of the trace's own clock");
        }
        let mut unpaired = Unpaired::default();
        for (_, pairs) in std::mem::take(&mut self.tracks.pairs) {
            pairs.settle(self.last_time, &mut self.builder, &mut unpaired);
        }
        self.connect_flows();
        self.misplaced = self.builder.discard_misplaced();
        self.warn(end);
        self.builder.warnings.extend(unpaired.warnings());
        Ok(self.builder.build()?)
    }

    fn warn(&mut self, end: End) {
        let warnings = &mut self.builder.warnings;
        let mut warn = |count: u64, what: &str| {
            if count > 0 {
                warnings.push(format!("{count} {what}"));
            }
        };
        warn(self.damaged, "damaged events were passed over");
        warn(self.strange, "events without a known kind were passed over");
        warn(self.impossible_times, "events without a possible time were passed over");
        warn(self.misplaced, "events do not fit their track and were passed over");
        warn(self.lost_flows, "flows have lost one of their spans");
        let mut kinds: Vec<_> = self.passed_over.iter().collect();
        kinds.sort_unstable();
        for (kind, &count) in kinds {
            warn(count, &format!("events of kind `{kind}` were passed over"));
        }
        match end {
            End::Whole => {}
            End::Unclosed => warnings.push("the closing bracket is missing; every event before it was read".to_owned()),
            End::CutOff => warnings.push("the file is cut off; all whole events were read".to_owned()),
            End::Damaged(offset) => {
                warnings.push(format!("the file is damaged after {offset} bytes; what comes before was read"));
            }
        }
    }
}

/// Where a flow begins or ends: the number of the span in the file, and where that lies.
#[derive(Debug)]
struct FlowEnd {
    span: usize,
    track: TrackId,
    time: u64,
}

struct Started {
    entry: SpanEntry,
    time: u64,
}

fn number_of(value: &Json) -> Option<Number> {
    match value {
        Json::Number(number) => {
            Some(number.as_i64().map_or_else(|| Number::Float(number.as_f64().unwrap_or(f64::NAN)), Number::Int))
        }
        other => special_float(other).map(Number::Float),
    }
}

/// Reads a float that our writer had to put into words.
fn special_float(value: &Json) -> Option<f64> {
    let words = value.as_object()?.get(FLOAT)?.as_str()?;
    let bits = words.rsplit_once(' ')?.1;
    u64::from_str_radix(bits, 16).ok().map(f64::from_bits)
}
