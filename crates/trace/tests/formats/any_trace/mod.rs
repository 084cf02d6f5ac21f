//! Traces of all shapes for property tests: several processes, tracks of every kind, spans that nest, overlap, touch
//! and coincide, hostile names, fields of every type.

use std::fmt;

use laptime_trace::{NameId, Nanos, Number, Origin, SpanEntry, Trace, TraceBuilder, Track, TrackKind, Value};
use proptest::{prelude::*, sample::Index, test_runner::RngSeed};

/// A trace that prints its outline when a property fails.
#[derive(Clone)]
pub struct AnyTrace(pub Trace);

impl fmt::Debug for AnyTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trace { origin, clock_uncertainty, .. } = &self.0;
        write!(f, "{origin:?} {clock_uncertainty:?}\n{}", self.0.outline())
    }
}

/// The same cases in every run, unless `PROPTEST_RNG_SEED` or `PROPTEST_CASES` are set.
pub fn seeded() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    match config.rng_seed {
        RngSeed::Random => ProptestConfig { rng_seed: RngSeed::Fixed(20_251_115), ..config },
        RngSeed::Fixed(_) => config,
    }
}

/// Names that have broken formats before.
pub const HOSTILE: [&str; 24] = [
    "",
    " ",
    "main",
    "with \"quotes\" and \\ backslashes",
    "two\nlines\r\nand three\ttabs",
    "nul\0inside",
    "\u{1}\u{1b}[31mred\u{7f}",
    "</script><script>alert(1)</script>",
    "<!-- &amp; -->",
    "%3B",
    "%",
    "%25%3b%0A",
    "a;b;c",
    ";",
    "ends in a number 12",
    "ends in a space ",
    "前処理",
    "предзаполнение",
    "تهيئة",
    "🏁👩‍💻",
    "e\u{301}\u{feff}\u{2028}",
    "laptime:open",
    "laptime_track",
    "main (lane 1)",
];

pub fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(&HOSTILE[..]).prop_map(str::to_owned),
        2 => "[a-c]",
        1 => any::<String>(),
        1 => Just("長い ".repeat(1_250)),
    ]
}

/// A field value that owns its text.
#[derive(Debug, Clone)]
enum OwnValue {
    Int(i64),
    Uint(u64),
    Float(f64),
    Bool(bool),
    Str(String),
}

impl OwnValue {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::Float(value) => Value::Float(*value),
            Self::Bool(value) => Value::Bool(*value),
            Self::Str(value) => Value::Str(value),
        }
    }
}

fn any_float() -> impl Strategy<Value = f64> {
    let special = [0.0, -0.0, 1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, f64::MAX, 1e16, 0.1];
    prop_oneof![prop::sample::select(special.to_vec()), any::<u64>().prop_map(f64::from_bits)]
}

fn any_int() -> impl Strategy<Value = i64> {
    prop_oneof![prop::sample::select(vec![0, 1, -1, i64::MIN, i64::MAX]), any::<i64>()]
}

fn any_value() -> impl Strategy<Value = OwnValue> {
    prop_oneof![
        any_int().prop_map(OwnValue::Int),
        prop_oneof![Just(u64::MAX), Just(1 << 63), any::<u64>()].prop_map(OwnValue::Uint),
        any_float().prop_map(OwnValue::Float),
        any::<bool>().prop_map(OwnValue::Bool),
        any_name().prop_map(OwnValue::Str),
    ]
}

type OwnFields = Vec<(String, OwnValue)>;

fn any_fields() -> impl Strategy<Value = OwnFields> {
    prop::collection::vec((any_name(), any_value()), 0..4)
}

/// Start and duration: mostly from a small range, so that spans overlap, touch and coincide.
fn any_interval() -> impl Strategy<Value = (u64, u64)> {
    let latest = Nanos::MAX.0;
    prop_oneof![
        12 => (0_u64..24, 0_u64..24),
        2 => (0_u64..2_000_000_000, 0_u64..2_000_000_000),
        1 => (latest - 30..=latest).prop_flat_map(move |start| (Just(start), 0..=latest - start)),
        1 => (0_u64..8).prop_map(move |start| (start, latest - start)),
    ]
}

fn any_time() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0_u64..30, 1 => 0..=Nanos::MAX.0]
}

fn any_number() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 0_i64..4, 1 => any_int()]
}

#[derive(Debug, Clone)]
struct TrackPlan {
    process: Index,
    kind: TrackKind,
    name: String,
    number: Option<i64>,
    unit: String,
}

fn any_track() -> impl Strategy<Value = TrackPlan> {
    let kind = prop::sample::select(&TrackKind::ALL[..]);
    (any::<Index>(), kind, any_name(), prop::option::of(any_number()), any_name())
        .prop_map(|(process, kind, name, number, unit)| TrackPlan { process, kind, name, number, unit })
}

#[derive(Debug, Clone)]
struct SpanPlan {
    track: Index,
    interval: (u64, u64),
    name: String,
    category: String,
    fields: OwnFields,
    is_open: bool,
}

fn any_span() -> impl Strategy<Value = SpanPlan> {
    (any::<Index>(), any_interval(), any_name(), any_category(), any_fields(), prop::bool::weighted(0.1)).prop_map(
        |(track, interval, name, category, fields, is_open)| SpanPlan {
            track,
            interval,
            name,
            category,
            fields,
            is_open,
        },
    )
}

fn any_category() -> impl Strategy<Value = String> {
    prop_oneof![3 => Just(String::new()), 1 => Just("lap".to_owned()), 1 => any_name()]
}

type MarkPlan = (Index, u64, String, String, OwnFields);
type ValuePlan = (Index, u64, Number);

fn any_mark() -> impl Strategy<Value = MarkPlan> {
    (any::<Index>(), any_time(), any_name(), any_category(), any_fields())
}

fn any_point() -> impl Strategy<Value = ValuePlan> {
    let number = prop_oneof![any_int().prop_map(Number::Int), any_float().prop_map(Number::Float)];
    (any::<Index>(), any_time(), number)
}

#[derive(Debug, Clone)]
struct About {
    origin: Origin,
    clock_uncertainty: Option<Nanos>,
    lost: u64,
}

fn any_about() -> impl Strategy<Value = About> {
    let lost = prop_oneof![Just(0), 0..=Nanos::MAX.0];
    let uncertainty = prop::option::of((0..=Nanos::MAX.0).prop_map(Nanos));
    (any_name(), prop::option::of(any_int()), uncertainty, lost).prop_map(|(name, unix_nanos, uncertainty, lost)| {
        About { origin: Origin { name, unix_nanos }, clock_uncertainty: uncertainty, lost }
    })
}

/// Any trace with up to a few dozen spans.
pub fn any_trace() -> impl Strategy<Value = AnyTrace> {
    let processes = prop::collection::vec((any_number(), any_name()), 1..4);
    let tracks = prop::collection::vec(any_track(), 0..8);
    let events = (
        prop::collection::vec(any_span(), 0..40),
        prop::collection::vec(any_mark(), 0..6),
        prop::collection::vec(any_point(), 0..6),
        prop::collection::vec((any::<Index>(), any::<Index>()), 0..6),
    );
    (processes, tracks, events, any_about()).prop_map(|(processes, tracks, (spans, marks, values, flows), about)| {
        let mut builder = TraceBuilder::default();
        builder.origin = about.origin;
        builder.clock_uncertainty = about.clock_uncertainty;
        builder.lost = about.lost;
        let tracks = add_tracks(&mut builder, &processes, &tracks);
        let spans = add_spans(&mut builder, &tracks, &spans);
        add_marks(&mut builder, &tracks, &marks);
        add_values(&mut builder, &tracks, &values);
        if !spans.is_empty() {
            for (from, to) in flows {
                builder.flow(*from.get(&spans), *to.get(&spans));
            }
        }
        AnyTrace(builder.build().expect("the plan keeps to the rules"))
    })
}

type Kinds = Vec<(laptime_trace::TrackId, TrackKind)>;

fn add_tracks(builder: &mut TraceBuilder, processes: &[(i64, String)], tracks: &[TrackPlan]) -> Kinds {
    let numbers: Vec<i64> = processes.iter().map(|(number, _)| *number).collect();
    for (number, name) in processes {
        let process = builder.process(*number);
        builder.name_process(process, name);
        builder.metadata.set_text(name, name);
    }
    let add = |plan: &TrackPlan| {
        let process = builder.process(*plan.process.get(&numbers));
        let is_counter = plan.kind == TrackKind::Counter;
        let unit = if is_counter { builder.name(&plan.unit) } else { NameId::EMPTY };
        let name = builder.name(&plan.name);
        let device = plan.number.filter(|number| plan.kind.may_have_device() && number % 2 == 0);
        (builder.track(Track { process, kind: plan.kind, name, number: plan.number, device, unit }), plan.kind)
    };
    tracks.iter().map(add).collect()
}

/// The selected track for spans (or, if `counters`, for values); none if there is none.
fn pick(tracks: &Kinds, index: &Index, counters: bool) -> Option<laptime_trace::TrackId> {
    let fitting: Vec<_> = tracks.iter().filter(|(_, kind)| (*kind == TrackKind::Counter) == counters).collect();
    (!fitting.is_empty()).then(|| index.get(&fitting).0)
}

fn add_spans(builder: &mut TraceBuilder, tracks: &Kinds, spans: &[SpanPlan]) -> Vec<SpanEntry> {
    let mut entries = Vec::new();
    for plan in spans {
        let Some(track) = pick(tracks, &plan.track, false) else { continue };
        let (start, duration) = plan.interval;
        let span = builder.span(track, Nanos(start), Nanos(duration), &plan.name, &plan.category);
        for (name, value) in &plan.fields {
            builder.span_field(span, name, value.value());
        }
        if plan.is_open {
            builder.leave_open(span);
        }
        entries.push(span);
    }
    entries
}

fn add_marks(builder: &mut TraceBuilder, tracks: &Kinds, marks: &[MarkPlan]) {
    for (track, time, name, category, fields) in marks {
        let Some(track) = pick(tracks, track, false) else { continue };
        let mark = builder.mark(track, Nanos(*time), name, category);
        for (name, value) in fields {
            builder.mark_field(mark, name, value.value());
        }
    }
}

fn add_values(builder: &mut TraceBuilder, tracks: &Kinds, values: &[ValuePlan]) {
    for (track, time, number) in values {
        if let Some(track) = pick(tracks, track, true) {
            builder.value(track, Nanos(*time), *number);
        }
    }
}
