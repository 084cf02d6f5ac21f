//! A trace as trace_processor and as our reader see it, in one comparable form.

use std::{collections::HashMap, path::Path};

use laptime_trace::{Fields, Number, SpanId, Trace, TrackKind, Value};
use serde_json::Value as Json;

use crate::judge::{COMPLAINTS, Row, ask, float, int, text};

/// A slice: a span, or a mark as one without length.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub struct Slice {
    pub start: i64,
    pub duration: i64,
    pub name: String,
    pub category: String,
    /// The name of its thread or lane.
    pub track: String,
    /// The thread id; none on other tracks.
    pub tid: Option<i64>,
    /// Fields by name, as text that includes their type.
    pub fields: Vec<(String, String)>,
}

/// Everything that is compared, each list sorted.
pub struct Seen {
    pub slices: Vec<Slice>,
    /// Spans with their parent.
    pub nested: Vec<(Slice, Slice)>,
    pub flows: Vec<(Slice, Slice)>,
    /// Name, unit, time and value.
    pub values: Vec<(String, String, i64, String)>,
    /// Id and name.
    pub processes: Vec<(i64, String)>,
    pub threads: Vec<(i64, String)>,
}

impl Seen {
    fn ordered(mut self) -> Self {
        let by_content = |a: &(Slice, Slice), b: &(Slice, Slice)| a.partial_cmp(b).unwrap();
        self.slices.sort_by(|a, b| a.partial_cmp(b).unwrap());
        self.nested.sort_by(by_content);
        self.flows.sort_by(by_content);
        self.values.sort();
        self.processes.sort();
        self.threads.sort();
        self
    }
}

/// What trace_processor keeps of a text: it ends at a NUL, and an empty one may be missing.
fn kept(text: &str) -> String {
    text.split('\0').next().unwrap_or_default().to_owned()
}

fn shown_float(value: f64) -> String {
    // trace_processor drops a NaN and the sign of a zero.
    if value.is_nan() { "none".to_owned() } else { format!("float {:?}", value + 0.0) }
}

pub fn ours(trace: &Trace) -> Seen {
    let spans: Vec<Slice> = trace.spans().map(|span| our_span(trace, span.id)).collect();
    let at = |id: SpanId| spans[id.index()].clone();
    let marks = trace.marks().map(|mark| {
        let (track, tid) = our_track(trace, mark.track, 0);
        let (name, category) = (kept(mark.name), kept(mark.category));
        Slice { start: mark.time.0 as i64, duration: 0, name, category, track, tid, fields: our_fields(mark.fields) }
    });
    Seen {
        nested: trace.spans().filter_map(|span| Some((at(span.id), at(span.parent?)))).collect(),
        flows: trace.flows().iter().map(|flow| (at(flow.from), at(flow.to))).collect(),
        values: trace.values().map(|value| our_value(trace, value)).collect(),
        processes: trace.processes().map(|(_, process)| (process.number, kept(trace.name(process.name)))).collect(),
        threads: our_threads(trace),
        slices: spans.iter().cloned().chain(marks).collect(),
    }
    .ordered()
}

fn our_span(trace: &Trace, id: SpanId) -> Slice {
    let span = trace.span(id);
    let (track, tid) = our_track(trace, span.track, span.lane);
    let mut fields = our_fields(span.fields);
    if span.is_open {
        fields.push(("laptime:open".to_owned(), "bool true".to_owned()));
        fields.sort();
    }
    let (start, duration) = (span.start.0 as i64, span.duration.0 as i64);
    Slice { start, duration, name: kept(span.name), category: kept(span.category), track, tid, fields }
}

fn our_track(trace: &Trace, id: laptime_trace::TrackId, lane: u32) -> (String, Option<i64>) {
    let track = trace.track(id);
    let name = kept(trace.name(track.name));
    let tid = track.number.filter(|_| track.kind == TrackKind::Thread);
    (if lane == 0 { name } else { format!("{name} (lane {lane})") }, tid)
}

fn our_fields(fields: Fields<'_>) -> Vec<(String, String)> {
    let shown = |value: Value<'_>| match value {
        Value::Int(value) => format!("int {value}"),
        Value::Uint(value) => format!("int {}", value as i64),
        Value::Float(value) => shown_float(value),
        Value::Bool(value) => format!("bool {value}"),
        Value::Str(value) => format!("text {}", kept(value)),
    };
    let mut fields: Vec<_> = fields.iter().map(|(name, value)| (kept(name), shown(value))).collect();
    fields.sort();
    fields
}

fn our_value(trace: &Trace, value: laptime_trace::ValuePoint) -> (String, String, i64, String) {
    let track = trace.track(value.track);
    let number = match value.number {
        Number::Int(number) => shown_float(number as f64),
        Number::Float(number) => shown_float(number),
    };
    (kept(trace.name(track.name)), kept(trace.name(track.unit)), value.time.0 as i64, number)
}

fn our_threads(trace: &Trace) -> Vec<(i64, String)> {
    let threads = trace.tracks().filter(|(_, track)| track.kind == TrackKind::Thread);
    threads.filter_map(|(_, track)| Some((track.number?, kept(trace.name(track.name))))).collect()
}

const SLICES: &str = "select s.id as id, s.ts as ts, s.dur as dur, s.name as name, s.category as category, \
     s.parent_id as parent, s.arg_set_id as args, th.tid as tid, coalesce(t.name, th.name) as track \
     from slice s join track t on t.id = s.track_id \
     left join thread_track tt on tt.id = t.id left join thread th using (utid) order by s.id";

const STATEMENTS: [&str; 7] = [
    COMPLAINTS,
    SLICES,
    "select arg_set_id as args, key, value_type as type, int_value as int, real_value as real, string_value as text \
     from args where key glob 'debug.*'",
    "select slice_out as source, slice_in as sink from flow",
    "select ts, value, t.name as name, t.unit as unit from counter c join counter_track t on t.id = c.track_id",
    "select pid, name from process where pid != 0",
    "select tid, name from thread where tid != 0 and name is not null",
];

/// What trace_processor sees. Its marks are slices, which may seem to contain others that begin at the same time:
/// `is_mark` identifies them, and they are not parents.
pub fn judged(file: &Path, is_mark: impl Fn(&Slice) -> bool) -> Seen {
    let answers = ask(file, &STATEMENTS);
    let [complaints, slices, args, flows, values, processes, threads] = &answers[..] else { panic!("seven answers") };
    assert_eq!(complaints, &Vec::<Row>::new(), "trace_processor complains");
    let fields = judged_fields(args);
    let slices: Vec<Judged> = slices.iter().map(|row| judged_slice(row, &fields)).collect();
    let at = |cell: &Json| slices[cell.as_u64().unwrap() as usize].0.clone();
    let number_and_name = |row: &Row, number: &str| (int(&row[number]).unwrap(), text(&row["name"]));
    Seen {
        nested: nesting(&slices, |slice| is_void(slice) || is_mark(slice)),
        flows: flows.iter().map(|row| (at(&row["source"]), at(&row["sink"]))).collect(),
        values: values.iter().map(judged_value).collect(),
        processes: processes.iter().map(|row| number_and_name(row, "pid")).collect(),
        threads: threads.iter().map(|row| number_and_name(row, "tid")).collect(),
        slices: slices.into_iter().map(|(slice, _)| slice).filter(|slice| !is_void(slice)).collect(),
    }
    .ordered()
}

/// A slice and the id of its parent.
type Judged = (Slice, Option<usize>);

/// A part of a span that outlived its parent: the whole span is on a lane.
fn is_void(slice: &Slice) -> bool {
    slice.fields.iter().any(|(name, _)| name == "laptime:void")
}

fn nesting(slices: &[Judged], is_mark: impl Fn(&Slice) -> bool) -> Vec<(Slice, Slice)> {
    let around =
        |at: usize| std::iter::successors(slices[at].1, |&at| slices[at].1).find(|&at| !is_mark(&slices[at].0));
    let spans = (0..slices.len()).filter(|&at| !is_mark(&slices[at].0));
    spans.filter_map(|at| Some((slices[at].0.clone(), slices[around(at)?].0.clone()))).collect()
}

type FieldSets = HashMap<i64, Vec<(String, String)>>;

fn judged_fields(rows: &[Row]) -> FieldSets {
    let mut sets = FieldSets::new();
    for row in rows {
        let value = match text(&row["type"]).as_str() {
            "int" | "uint" => format!("int {}", int(&row["int"]).unwrap()),
            "real" => float(&row["real"]).map_or("none".to_owned(), shown_float),
            "bool" => format!("bool {}", int(&row["int"]) == Some(1)),
            _ => format!("text {}", text(&row["text"])),
        };
        let name = text(&row["key"]).trim_start_matches("debug.").to_owned();
        sets.entry(int(&row["args"]).unwrap()).or_default().push((name, value));
    }
    sets.values_mut().for_each(|fields| fields.sort());
    sets
}

fn judged_slice(row: &Row, fields: &FieldSets) -> Judged {
    let slice = Slice {
        start: int(&row["ts"]).unwrap(),
        duration: int(&row["dur"]).unwrap(),
        name: row["name"].as_str().expect("every slice has a name").to_owned(),
        category: text(&row["category"]),
        track: text(&row["track"]),
        tid: int(&row["tid"]),
        fields: int(&row["args"]).and_then(|set| fields.get(&set).cloned()).unwrap_or_default(),
    };
    (slice, int(&row["parent"]).map(|parent| parent as usize))
}

fn judged_value(row: &Row) -> (String, String, i64, String) {
    let value = float(&row["value"]).map_or("none".to_owned(), shown_float);
    (text(&row["name"]), text(&row["unit"]), int(&row["ts"]).unwrap(), value)
}
