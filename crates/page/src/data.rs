//! The data of a trace for the page.

use std::io;

use hashbrown::HashMap;
use laptime_analyze::{Cause, Gap, Group, Laps, Stages};
use laptime_trace::{Activity, NameId, Span, SpanId, Trace, TrackId, TrackKind};
use serde_json::{Value, json};

use crate::columns::{Block, Numbers};
use crate::fields::FieldSets;
use crate::thin::{self, Item, Thinning, Window};

/// Spans that the page holds at most; a larger trace is thinned.
pub const MOST_SPANS: usize = 1_000_000;

/// Marks that the page holds at most.
const MOST_MARKS: usize = 100_000;

/// Points of a curve that the page holds at most.
const MOST_POINTS: usize = 16_384;

/// Laps that the page shows at most.
const MOST_LAPS: usize = 20_000;

/// Stages of the flame chart at most.
const MOST_STAGES: usize = 20_000;

/// What the timeline shows besides the trace itself.
#[derive(Debug, Default)]
pub struct Extra<'a> {
    /// The idle time of each device, by its name.
    pub idle: &'a [(String, Vec<Gap>)],
    /// The laps.
    pub laps: Option<&'a Laps>,
    /// The stage tree.
    pub stages: Option<&'a Stages>,
}

/// The compressed data of a trace, and how it was thinned.
#[derive(Debug)]
pub struct Data {
    /// The compressed block.
    pub bytes: Vec<u8>,
    /// How spans were thinned; none if the page has all.
    pub thinning: Option<Thinning>,
    /// How many spans became part of blocks.
    pub thinned: u64,
    /// One in this many marks is on the page.
    pub mark_step: usize,
}

/// Encodes a trace, with at most `most` spans.
pub fn encode(trace: &Trace, extra: &Extra<'_>, most: usize) -> io::Result<Data> {
    Encoder::of(trace, None, most).finish(extra)
}

const SPAN_COLUMNS: [&str; 6] = ["start", "duration", "kind", "depth", "lane", "set"];

#[derive(Debug, Default)]
struct SpanColumns {
    /// In the order of [`SPAN_COLUMNS`].
    columns: [Numbers; 6],
    count: u32,
}

impl SpanColumns {
    fn push(&mut self, start: u64, duration: u64, kind: u32, [depth, lane, set]: [u32; 3]) {
        let numbers = [start, duration, kind.into(), depth.into(), lane.into(), set.into()];
        std::iter::zip(&mut self.columns, numbers).for_each(|(column, number)| column.push(number));
        self.count += 1;
    }
}

/// The spans of a trace as columns, before anything is known about the trace: it can be computed next to the analyses.
#[derive(Debug)]
pub struct Encoder<'a> {
    trace: &'a Trace,
    begin: u64,
    length: u64,
    window: Window,
    depths: Vec<u32>,
    sets: FieldSets<'a>,
    columns: SpanColumns,
    /// Blocks: their place, the number of spans, and their time.
    blocks: Vec<(u32, u64, u64)>,
    /// The place of each span of the trace in the columns; none for one in a block.
    place_of: Vec<u32>,
    kinds: Vec<Value>,
    kind_of: HashMap<(NameId, NameId), u32>,
    label_of: HashMap<(String, u8), u32>,
    tracks: Vec<Value>,
    thinning: Option<Thinning>,
    thinned: u64,
}

/// Tracks that are not in the trace. They come first.
#[derive(Default)]
struct Strips {
    columns: SpanColumns,
    tracks: Vec<Value>,
}

/// Not on the page.
const NOWHERE: u32 = u32::MAX;

impl<'a> Encoder<'a> {
    /// Encodes the spans of a trace, or those of a window after its start, at most `most` of them.
    pub fn of(trace: &'a Trace, window: Option<Window>, most: usize) -> Self {
        let (first, last) = trace.bounds().map_or((0, 0), |(first, last)| (first.0, last.0));
        let of_start = |Window { start, end }| first.saturating_add(start)..first.saturating_add(end);
        let window = window.map_or(first..last.saturating_add(1), of_start);
        let depths = depths(trace);
        let thinning = thin::choose(trace, &depths, &window, most);
        let fields = || {
            let window = window.clone();
            let is_long = move |span: &Span<'_>| thinning.is_none_or(|by| span.duration.0 >= by.shortest);
            let is_kept = move |span: &Span<'_>| is_long(span) && thin::is_in(span, &window);
            let spans = trace.spans().map(move |span| is_kept(&span).then_some(span.fields));
            spans.chain(trace.marks().map(|mark| Some(mark.fields)))
        };
        let mut encoder = Self {
            trace,
            begin: first,
            length: last - first,
            depths,
            sets: FieldSets::of(trace, fields),
            window,
            columns: SpanColumns::default(),
            blocks: Vec::new(),
            place_of: vec![NOWHERE; trace.span_count()],
            kinds: Vec::new(),
            kind_of: HashMap::new(),
            label_of: HashMap::new(),
            tracks: Vec::new(),
            thinning,
            thinned: 0,
        };
        encoder.add_spans();
        encoder
    }

    /// Adds what is known about the trace, and compresses all of it.
    pub fn finish(mut self, extra: &Extra<'_>) -> io::Result<Data> {
        let strips = self.strips(extra);
        let (before, strip_tracks) = (strips.columns.count, strips.tracks.len());
        let mut block = Block::default();
        block.set("version", json!(1));
        block.set("length", json!(self.length));
        self.add_columns(strips.columns, &mut block);
        self.add_flows(before, &mut block);
        let mark_step = self.add_marks(strip_tracks, &mut block);
        add_values(self.trace, self.begin, &mut block);
        if let Some(laps) = extra.laps {
            block.set("laps", laps_json(laps, self.begin));
        }
        if let Some(stages) = extra.stages {
            block.set("stages", stages_json(stages));
        }
        let [keys, sets, left_out] = self.sets.to_json();
        block.set("keys", keys);
        block.set("sets", sets);
        block.set("leftOut", left_out);
        block.set("kinds", Value::Array(self.kinds));
        block.set("tracks", Value::Array([strips.tracks, self.tracks].concat()));
        let (thinning, thinned) = (self.thinning, self.thinned);
        if let Some(Thinning { shortest, longest_block }) = thinning {
            block.set("thinned", json!({"spans": thinned, "shortest": shortest, "block": longest_block}));
        }
        Ok(Data { bytes: block.compress()?, thinning, thinned, mark_step })
    }

    fn strips(&mut self, extra: &Extra<'_>) -> Strips {
        let mut strips = Strips::default();
        if let Some(laps) = extra.laps {
            let class = |is_slow: bool| class::LAP + u8::from(is_slow);
            let spans = laps.laps.iter().take(MOST_LAPS);
            let spans = spans.map(|lap| (lap.start, lap.end, lap.label.as_str(), class(lap.is_slow)));
            self.add_strip(&mut strips, &format!("laps: {}", laps.name), "laps", spans);
        }
        for (name, gaps) in extra.idle {
            let gaps = gaps.iter().filter(|gap| gap.from < self.window.end && gap.to > self.window.start);
            let spans: Vec<_> =
                gaps.map(|gap| (gap.from, gap.to, gap.cause.words(), class::of_cause(gap.cause))).collect();
            self.add_strip(&mut strips, &format!("{name}: idle time by cause"), "idle", spans.into_iter());
        }
        strips
    }

    /// A track of one row that is not in the trace.
    fn add_strip<'b>(
        &mut self,
        strips: &mut Strips,
        name: &str,
        kind: &str,
        spans: impl Iterator<Item = (u64, u64, &'b str, u8)>,
    ) {
        let (mut last, mut reached, first) = (self.begin, self.begin, strips.columns.count);
        for (start, end, label, class) in spans {
            // Laps of several threads overlap; a row cannot.
            let start = start.max(reached);
            if end <= start {
                continue;
            }
            let kind = self.label(label, class);
            strips.columns.push(start - last, end - start, kind, [0, 0, 0]);
            (last, reached) = (start, end);
        }
        strips.tracks.push(json!({"name": name, "kind": kind, "spans": strips.columns.count - first}));
    }

    fn label(&mut self, label: &str, class: u8) -> u32 {
        let next = self.kinds.len() as u32;
        *self.label_of.entry((label.to_owned(), class)).or_insert_with(|| {
            self.kinds.push(json!([label, "", class]));
            next
        })
    }

    fn add_spans(&mut self) {
        for (id, track) in self.trace.tracks() {
            let name = |id| self.trace.name(id);
            let process = self.trace.process(track.process);
            let described = json!({
                "name": name(track.name),
                "kind": track.kind.words(),
                "process": name(process.name),
                "pid": process.number,
                "number": track.number,
                "device": track.device,
                "unit": name(track.unit),
                "lanes": self.lanes(id),
                "spans": self.add_track(id),
            });
            self.tracks.push(described);
        }
    }

    /// How many rows each lane of a track has, so that every window of a trace has the same rows.
    fn lanes(&self, track: TrackId) -> Vec<u32> {
        let mut lanes: Vec<u32> = Vec::new();
        for span in self.trace.spans_on(track) {
            let lane = span.lane as usize;
            lanes.resize(lanes.len().max(lane + 1), 0);
            lanes[lane] = lanes[lane].max(self.depths[span.id.index()] + 1);
        }
        lanes
    }

    fn add_track(&mut self, track: TrackId) -> u32 {
        let (first, mut last) = (self.columns.count, self.begin);
        let trace = self.trace;
        match self.thinning {
            None => {
                let window = self.window.clone();
                for span in trace.spans_on(track).filter(|span| thin::is_in(span, &window)) {
                    let item = Item::of(&span, self.depths[span.id.index()]);
                    self.add_item(&item, &span, &mut last);
                }
            }
            Some(thinning) => {
                for item in thin::thinned(trace.spans_on(track), &self.depths, &self.window, thinning) {
                    self.add_item(&item, &trace.span(item.span), &mut last);
                }
            }
        }
        self.columns.count - first
    }

    fn add_item(&mut self, item: &Item, span: &Span<'a>, last: &mut u64) {
        let kind = self.kind(span);
        let is_span = item.count == 1;
        if is_span {
            self.place_of[span.id.index()] = self.columns.count;
        } else {
            self.blocks.push((self.columns.count, item.count, item.busy));
            self.thinned += item.count;
        }
        let set = if is_span { self.sets.at(span.id.index()) } else { 0 };
        self.columns.push(item.start - *last, item.duration, kind, [item.depth, item.lane, set]);
        *last = item.start;
    }

    /// The number of a name with its category.
    fn kind(&mut self, span: &Span<'_>) -> u32 {
        let key = (self.trace.span_name(span.id), self.trace.span_category(span.id));
        let next = self.kinds.len() as u32;
        *self.kind_of.entry(key).or_insert_with(|| {
            self.kinds.push(json!([span.name, span.category, class::of(span)]));
            next
        })
    }

    /// Adds the columns of spans after those of the strips.
    fn add_columns(&mut self, strips: SpanColumns, block: &mut Block) {
        let columns = std::mem::take(&mut self.columns);
        block.set("spans", json!(strips.count + columns.count));
        for ((name, strips), columns) in SPAN_COLUMNS.into_iter().zip(strips.columns).zip(columns.columns) {
            block.column(name, [strips.0, columns.0].concat());
        }
        // Of each block: how far it is from the one before, its number of spans, and their time.
        let (mut blocks, mut last) = (Numbers::default(), 0);
        for &(place, count, busy) in &self.blocks {
            let place = place + strips.count;
            [u64::from(place - last), count, busy].into_iter().for_each(|number| blocks.push(number));
            last = place;
        }
        block.column("blocks", blocks.0);
    }

    /// Adds the flows between spans that are on the page; `before` spans come before those of the trace.
    fn add_flows(&self, before: u32, block: &mut Block) {
        let place = |id: SpanId| Some(self.place_of[id.index()]).filter(|&place| place != NOWHERE);
        let (mut from, mut to, mut missing) = (Numbers::default(), Numbers::default(), 0_u64);
        let mut last = (0, 0);
        for flow in self.trace.flows() {
            match (place(flow.from), place(flow.to)) {
                (Some(source), Some(target)) => {
                    let places = (i64::from(before + source), i64::from(before + target));
                    from.push_signed(places.0 - last.0);
                    to.push_signed(places.1 - last.1);
                    last = places;
                }
                _ => missing += 1,
            }
        }
        block.set("missingFlows", json!(missing));
        block.column("flowFrom", from.0);
        block.column("flowTo", to.0);
    }

    /// Adds the marks; if there are too many, every second one, every third one and so on. Returns that step.
    fn add_marks(&mut self, strips: usize, block: &mut Block) -> usize {
        let trace = self.trace;
        let step = trace.mark_count().div_ceil(MOST_MARKS).max(1);
        let [mut time, mut track, mut name, mut set] = <[Numbers; 4]>::default();
        let mut last = 0_i64;
        let place_of: HashMap<TrackId, usize> = trace.tracks().enumerate().map(|(at, (id, _))| (id, at)).collect();
        for (at_mark, mark) in trace.marks().enumerate().step_by(step) {
            let at = (mark.time.0 - self.begin) as i64;
            time.push_signed(at - last);
            last = at;
            track.push((strips + place_of[&mark.track]) as u64);
            name.push(self.label(mark.name, class::MARK).into());
            set.push(self.sets.at(trace.span_count() + at_mark).into());
        }
        block.column("markTime", time.0);
        block.column("markTrack", track.0);
        block.column("markKind", name.0);
        block.column("markSet", set.0);
        step
    }
}

/// How many spans each span is inside.
fn depths(trace: &Trace) -> Vec<u32> {
    let mut depths: Vec<u32> = Vec::with_capacity(trace.span_count());
    for span in trace.spans() {
        // A parent comes before its children.
        depths.push(span.parent.map_or(0, |parent| depths[parent.index()] + 1));
    }
    depths
}

/// Adds the curves. If there are too many points, the lowest and highest of each interval are kept.
fn add_values(trace: &Trace, begin: u64, block: &mut Block) {
    let mut points: HashMap<TrackId, Vec<(u64, f64)>> = HashMap::new();
    for value in trace.values() {
        points.entry(value.track).or_default().push((value.time.0 - begin, value.number.as_f64()));
    }
    let (mut time, mut number, mut curves) = (Numbers::default(), Vec::new(), Vec::new());
    for (id, track) in trace.tracks().filter(|(_, track)| track.kind == TrackKind::Counter) {
        let Some(points) = points.remove(&id) else { continue };
        let kept = extremes(&points, MOST_POINTS);
        let mut last = 0;
        for &(at, value) in &kept {
            time.push(at - last);
            number.extend(value.to_le_bytes());
            last = at;
        }
        let name = |id| trace.name(id);
        curves.push(json!({
            "name": name(track.name), "unit": name(track.unit), "device": track.device,
            "points": kept.len(), "of": points.len(),
        }));
    }
    block.set("curves", Value::Array(curves));
    block.column("valueTime", time.0);
    block.column("value", number);
}

/// The lowest and the highest point of each chunk of equally many points.
fn extremes(points: &[(u64, f64)], most: usize) -> Vec<(u64, f64)> {
    if points.len() <= most {
        return points.to_vec();
    }
    let stretch = points.len().div_ceil(most / 2);
    let both = points.chunks(stretch).flat_map(|stretch| {
        let order = |&a: &usize, &b: &usize| stretch[a].1.total_cmp(&stretch[b].1);
        let (low, high) = ((0..stretch.len()).min_by(order), (0..stretch.len()).max_by(order));
        let (low, high) = (low.unwrap_or(0), high.unwrap_or(0));
        let second = (low != high).then(|| stretch[low.max(high)]);
        std::iter::once(stretch[low.min(high)]).chain(second)
    });
    both.collect()
}

fn laps_json(laps: &Laps, begin: u64) -> Value {
    let rows = laps.laps.iter().take(MOST_LAPS).map(|lap| {
        let state = if lap.is_cold { 2 } else { u8::from(lap.is_slow) };
        json!([lap.label, lap.start.saturating_sub(begin), lap.length(), lap.busy, state])
    });
    json!({
        "name": laps.name, "median": laps.figures.length.median, "limit": laps.limit,
        "all": laps.laps.len(), "rows": rows.collect::<Vec<_>>(),
    })
}

/// The stage tree, parents before children: parent, name, count, host time, device time.
fn stages_json(stages: &Stages) -> Value {
    let rows = stages.stages.iter().take(MOST_STAGES).map(|stage| {
        let time = |time: Option<laptime_trace::Nanos>| time.map(|time| time.0);
        json!([stage.parent, stage.name, stage.count, time(stage.host), time(stage.device)])
    });
    json!({"all": stages.stages.len(), "rows": rows.collect::<Vec<_>>()})
}

/// What a span is, for its colour. The numbers are those of `CLASSES` in `web/colours.js`.
mod class {
    use super::*;

    pub(super) const LAP: u8 = 9;
    pub(super) const MARK: u8 = 19;

    pub(super) fn of(span: &Span<'_>) -> u8 {
        match span.activity() {
            Activity::Kernel | Activity::Graph => {
                u8::from(Group::of(Activity::Kernel, span.name) == Group::Communication)
            }
            Activity::Copy | Activity::Memset => 2,
            Activity::Launch | Activity::Call => 3,
            Activity::Wait | Activity::DeviceSync => 4,
            Activity::Operation => 5,
            Activity::Python => 6,
            Activity::Stage | Activity::DeviceStage => 7,
            Activity::Other => 8,
        }
    }

    pub(super) fn of_cause(cause: Cause) -> u8 {
        // 9 and 10 are laps.
        11 + Cause::ALL.iter().position(|&known| known == cause).unwrap_or(0) as u8
    }
}
