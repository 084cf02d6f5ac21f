//! The repeating unit of a trace: given by the user, marked by the program, or detected.

use std::{borrow::Cow, collections::HashMap};

use laptime_stats::spread::median_of;
use laptime_trace::{Activity, LAP, Nanos, Span, SpanId, Trace, TrackId, Value};

use crate::{devices::Devices, repeats::repeats};

/// The repeating unit of a trace and its laps.
#[derive(Debug, Clone, PartialEq)]
pub struct LapUnit {
    /// Its name; counters are written as `*`.
    pub name: String,
    /// Its source.
    pub source: LapSource,
    /// The kernels of a lap, if it was detected as a sequence of kernels.
    pub kernels: Option<u64>,
    /// Its laps in order; they do not overlap.
    pub laps: Vec<LapTime>,
    /// Other possible units, with their number of laps.
    pub others: Vec<(String, u64)>,
}

/// One lap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LapTime {
    /// Its name, with its number if it has one.
    pub label: String,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Its span on the host; none if laps were detected on a device.
    pub span: Option<SpanId>,
}

laptime_trace::words! {
    /// The source of laps, best first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum LapSource: word, words {
        /// Named by the user.
        Named = ("named", "named"),
        /// Marked by the program with `lap!`.
        Lap = ("laps", "laps that the program marked"),
        Step = ("steps", "steps of the profiler"),
        /// Repeated ranges: NVTX, annotations, stages.
        Range = ("ranges", "ranges that repeat"),
        Kernels = ("kernels", "a sequence of kernels that repeats"),
    }
}

/// Why there are no laps.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are named after what they hold")]
pub enum NoLaps {
    /// Nothing has the given name; these units repeat this often.
    NoSuchName { name: String, known: Vec<(String, u64)> },
    /// The unit has more than [`MOST_LAPS`] laps.
    TooMany { name: String, count: u64 },
    /// Nothing repeats.
    NothingRepeats,
}

/// The maximum number of laps: a range that occurs more often is too fine for a unit.
pub const MOST_LAPS: usize = 1_000_000;

/// The fewest repetitions of a range.
const LEAST_RANGES: usize = 3;

/// The fewest steps of the profiler.
const LEAST_STEPS: usize = 2;

/// The share of the trace, from the first lap to the last, that a unit of ranges must span.
const LEAST_EXTENT: f64 = 0.5;

/// The share of that interval that the laps themselves must cover.
const LEAST_COVER: f64 = 0.5;

/// How many other units are listed.
const OFFERED: usize = 5;

impl LapUnit {
    /// The index of the lap that contains a moment.
    pub fn at(&self, moment: u64) -> Option<usize> {
        let after = self.laps.partition_point(|lap| lap.start <= moment);
        let last = after.checked_sub(1)?;
        (moment < self.laps[last].end).then_some(last)
    }

    /// The lap of a device span: that of its launch if laps are on the host.
    pub fn of_work(&self, trace: &Trace, start: u64, launch: Option<SpanId>) -> Option<usize> {
        match launch.filter(|_| self.source != LapSource::Kernels) {
            Some(launch) => self.at(trace.span_start(launch).0),
            None => self.at(start),
        }
    }

    /// How often each lap is among `laps`, which are indices.
    pub fn count(&self, laps: impl Iterator<Item = usize>) -> Vec<u64> {
        let mut counts = vec![0; self.laps.len()];
        laps.for_each(|at| counts[at] += 1);
        counts
    }
}

/// Finds the repeating unit: the given name, else laps of the program, steps of the profiler, repeated ranges that cover
/// most of the trace, or a repeated sequence of kernels.
pub fn lap_unit(trace: &Trace, devices: &Devices, wanted: Option<&str>) -> Result<LapUnit, NoLaps> {
    let families = families(trace, &devices.activities);
    if let Some(wanted) = wanted {
        return named(trace, &families, wanted);
    }
    let wall = trace.bounds().map_or(0, |(first, last)| last.saturating_sub(first).0);
    let is_unit = |family: &&Family| family.is_unit(trace, wall);
    let by_name = |family: &Family| family.unit(trace, &families, family.source);
    let found = families.iter().filter(|family| !family.is_operator()).find(is_unit).map(by_name);
    let operators = families.iter().filter(|family| family.is_operator()).find(is_unit);
    // If every operator is a range, ranges that cover less are still coarser.
    let of_coarser = || {
        let is_coarser = |family: &&Family| !family.is_operator() && family.is_long(trace, wall);
        operators.and_then(|_| families.iter().find(is_coarser).map(by_name))
    };
    let of_kernels = || {
        repeats(trace, devices).map(|(kernels, laps)| LapUnit {
            name: format!("sequence of {}", crate::note::plural(kernels, "kernel", "kernels")),
            source: LapSource::Kernels,
            kernels: Some(kernels as u64),
            laps,
            others: offered(&families, None),
        })
    };
    let too_fine = || families.iter().find(|family| family.spans.len() > MOST_LAPS).map(Family::too_many);
    let unit = found.or_else(of_coarser).or_else(of_kernels).or_else(|| operators.map(by_name));
    Ok(without_prologue(unit.ok_or_else(|| too_fine().unwrap_or(NoLaps::NothingRepeats))?))
}

/// The repeating unit for answers that do without one.
///
/// # Errors
///
/// If the named unit is not in the trace, or has too many laps.
pub(crate) fn unit_if_any(trace: &Trace, devices: &Devices, wanted: Option<&str>) -> Result<Option<LapUnit>, NoLaps> {
    match lap_unit(trace, devices, wanted) {
        Ok(unit) => Ok(Some(unit)),
        Err(_) if wanted.is_none() => Ok(None),
        Err(error) => Err(error),
    }
}

/// A first lap that is shorter than this share of the median lap is incomplete.
const PROLOGUE: f64 = 0.5;

/// The fewest laps from which the first may be left out.
const LEAST_WITH_PROLOGUE: usize = 4;

/// Leaves out an incomplete first lap: one that started before the recording, or setup before the first lap.
fn without_prologue(mut unit: LapUnit) -> LapUnit {
    if unit.laps.len() >= LEAST_WITH_PROLOGUE {
        let length = |lap: &LapTime| (lap.end - lap.start) as f64;
        let median = median_of(unit.laps[1..].iter().map(length)).unwrap_or(0.0);
        if length(&unit.laps[0]) < PROLOGUE * median {
            unit.laps.remove(0);
        }
    }
    unit
}

/// The possible units by name, with their number of laps.
pub fn lap_names(trace: &Trace, devices: &Devices) -> Vec<(String, u64)> {
    offered(&families(trace, &devices.activities), None)
}

fn named(trace: &Trace, families: &[Family], wanted: &str) -> Result<LapUnit, NoLaps> {
    let same = |family: &&Family| family.name == wanted || family.name == counted(wanted);
    let begins = |family: &&Family| family.name.trim_end_matches(['*', '#', ' ', '_', '=', ':', '-']) == wanted;
    let family = families.iter().find(same).or_else(|| families.iter().find(begins));
    if let Some(family) = family {
        return family.named(trace, families);
    }
    // Other host spans can be chosen too: an operation, a Python function.
    match gathered(trace, |span| span.name == wanted).first() {
        Some(family) => family.named(trace, families),
        None => Err(NoLaps::NoSuchName { name: wanted.to_owned(), known: offered(families, None) }),
    }
}

fn offered(families: &[Family], chosen: Option<&str>) -> Vec<(String, u64)> {
    let others = families.iter().filter(|family| Some(family.name.as_str()) != chosen && family.spans.len() > 1);
    others.map(|family| (family.name.clone(), family.spans.len() as u64)).take(OFFERED).collect()
}

/// Spans of one name on one thread, with counters ignored.
#[derive(Debug)]
struct Family {
    name: String,
    source: LapSource,
    spans: Vec<SpanId>,
    /// The time of all its spans.
    covered: u64,
}

impl Family {
    /// Whether it can be the unit without being named by the user.
    fn is_unit(&self, trace: &Trace, wall: u64) -> bool {
        if self.spans.len() > MOST_LAPS {
            return false;
        }
        match self.source {
            LapSource::Lap | LapSource::Step => self.spans.len() >= LEAST_STEPS,
            _ => self.is_long(trace, wall) && self.covered as f64 >= LEAST_COVER * self.extent(trace),
        }
    }

    /// Whether it repeats often enough, over most of the trace.
    fn is_long(&self, trace: &Trace, wall: u64) -> bool {
        (LEAST_RANGES..=MOST_LAPS).contains(&self.spans.len()) && self.extent(trace) >= LEAST_EXTENT * wall as f64
    }

    /// From the start of the first lap to the end of the last.
    fn extent(&self, trace: &Trace) -> f64 {
        let (Some(first), Some(last)) = (self.spans.first(), self.spans.last()) else { return 0.0 };
        trace.span(*last).end().0.saturating_sub(trace.span(*first).start.0) as f64
    }

    /// Whether every operator has such a range, as `emit_nvtx` writes them, or every call of NCCL.
    fn is_operator(&self) -> bool {
        const OPERATORS: [&str; 7] =
            ["aten::", "prims::", "prim::", "autograd::", "torch::autograd::", "c10d::", "nccl"];
        self.source == LapSource::Range
            && (OPERATORS.iter().any(|prefix| self.name.starts_with(prefix))
                || [", op_id = *", ", seq = *"].iter().any(|field| self.name.contains(field)))
    }

    fn too_many(&self) -> NoLaps {
        NoLaps::TooMany { name: self.name.clone(), count: self.spans.len() as u64 }
    }

    /// The unit that the user named.
    fn named(&self, trace: &Trace, families: &[Self]) -> Result<LapUnit, NoLaps> {
        if self.spans.len() > MOST_LAPS {
            return Err(self.too_many());
        }
        Ok(self.unit(trace, families, LapSource::Named))
    }

    fn unit(&self, trace: &Trace, families: &[Self], source: LapSource) -> LapUnit {
        let laps = self.spans.iter().enumerate().map(|(at, id)| {
            let span = trace.span(*id);
            LapTime { label: label(&span, at), start: span.start.0, end: span.end().0, span: Some(*id) }
        });
        let others = offered(families, Some(&self.name));
        LapUnit { name: self.name.clone(), source, kernels: None, laps: laps.collect(), others }
    }
}

/// The label of a lap: a counter field, a number in its name, or its index.
fn label(span: &Span<'_>, at: usize) -> String {
    if span.name.bytes().any(|byte| byte.is_ascii_digit()) {
        return span.name.to_owned();
    }
    let number = |(_, value): (&str, Value<'_>)| match value {
        Value::Int(number) => Some(number.to_string()),
        Value::Uint(number) => Some(number.to_string()),
        _ => None,
    };
    // Other spans have fields that count other things, such as operations.
    let is_ours = span.category == LAP || span.category.is_empty();
    match span.fields.iter().find_map(number).filter(|_| is_ours) {
        Some(number) => format!("{} {number}", span.name),
        None => format!("{} {at}", span.name),
    }
}

/// Runs of digits in a name are counters, except within a word: `conv2d`, `fpr4pk2x`.
pub fn counted(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let is_part = |letter: char| letter.is_alphanumeric();
        let end = rest.find(|letter| !is_part(letter)).filter(|end| *end > 0);
        let end = end.unwrap_or(if is_part(first) { rest.len() } else { first.len_utf8() });
        let word = &rest[..end];
        let letters = word.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let has_number = letters.len() < word.len() && !letters.contains(|letter: char| letter.is_ascii_digit());
        text.push_str(if has_number { letters } else { word });
        if has_number {
            text.push('*');
        }
        rest = &rest[end..];
    }
    text
}

/// A name without its counter: a number after `#` or `= `, as in `ProfilerStep#7` and `mm, op_id = 7`.
///
/// Other numbers distinguish things: `layer 3` is not `layer 4`.
pub fn family(name: &str) -> Cow<'_, str> {
    let (mut text, mut copied, mut from) = (String::new(), 0, 0);
    while let Some(at) = name[from..].find(|letter: char| letter.is_ascii_digit()).map(|at| from + at) {
        let rest = name[at..].trim_start_matches(|letter: char| letter.is_ascii_digit());
        from = name.len() - rest.len();
        // `= 0x7f` and `= 1.5` are values, and so is a word that starts with a digit.
        let is_whole = !rest.starts_with(|letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.'));
        if is_whole && (name[..at].ends_with('#') || name[..at].ends_with("= ")) {
            text.push_str(&name[copied..at]);
            text.push('*');
            copied = from;
        }
    }
    if copied == 0 { Cow::Borrowed(name) } else { Cow::Owned(text + &name[copied..]) }
}

/// Whether a span is one iteration of a loop: marked by the program, or a step of the profiler.
pub fn is_lap(span: &Span<'_>) -> bool {
    span.category == LAP || (is_step(span.name) && !span.activity().is_on_device())
}

/// Whether a name is a step of torch.profiler. Older versions write steps as operators.
pub(crate) fn is_step(name: &str) -> bool {
    name.starts_with("ProfilerStep#") && family(name) == STEPS
}

/// The names of torch.profiler steps.
pub const STEPS: &str = "ProfilerStep#*";

/// The candidate units of a trace, best source first, then by covered time.
fn families(trace: &Trace, activities: &[Activity]) -> Vec<Family> {
    gathered(trace, |span| activities[span.id.index()] == Activity::Stage || is_step(span.name))
}

/// Host spans that match a filter, by name with counters ignored.
fn gathered(trace: &Trace, is_wanted: impl Fn(&Span<'_>) -> bool) -> Vec<Family> {
    let mut names = CountedNames::default();
    let mut places: HashMap<(TrackId, LapSource, usize), usize> = HashMap::new();
    let mut found: Vec<Family> = Vec::new();
    for span in trace.spans() {
        let is_device = trace.track(span.track).kind.is_device();
        if is_device || !is_wanted(&span) {
            continue;
        }
        let name = names.of(trace.span_name(span.id), span.name);
        let source = source_of(&span, &names.texts[name]);
        let place = *places.entry((span.track, source, name)).or_insert(found.len());
        if place == found.len() {
            found.push(Family { name: names.texts[name].clone(), source, spans: Vec::new(), covered: 0 });
        }
        found[place].add(trace, &span);
    }
    // The thread on which a unit covers the most time is used.
    found.sort_by(|a, b| (a.source, b.covered, &a.name).cmp(&(b.source, a.covered, &b.name)));
    let mut seen = std::collections::HashSet::new();
    found.retain(|family| seen.insert((family.source, family.name.clone())));
    found
}

/// Names without counters, each once.
#[derive(Default)]
struct CountedNames {
    texts: Vec<String>,
    by_text: HashMap<String, usize>,
    by_name: HashMap<laptime_trace::NameId, usize>,
}

impl CountedNames {
    fn of(&mut self, id: laptime_trace::NameId, name: &str) -> usize {
        *self.by_name.entry(id).or_insert_with(|| {
            let text = counted(name);
            *self.by_text.entry(text).or_insert_with_key(|text| {
                self.texts.push(text.clone());
                self.texts.len() - 1
            })
        })
    }
}

impl Family {
    /// Adds a span, unless it is inside the last one: a nested unit counts once.
    fn add(&mut self, trace: &Trace, span: &Span<'_>) {
        let reached = self.spans.last().map_or(Nanos(0), |last| trace.span(*last).end());
        if self.spans.is_empty() || span.start >= reached {
            self.spans.push(span.id);
            self.covered += span.duration.0;
        }
    }
}

fn source_of(span: &Span<'_>, name: &str) -> LapSource {
    match span.category {
        LAP => LapSource::Lap,
        _ if name == STEPS => LapSource::Step,
        _ => LapSource::Range,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::devices;
    use laptime_trace::{TraceBuilder, activity::category};

    fn unit(builder: TraceBuilder, wanted: Option<&str>) -> Result<LapUnit, NoLaps> {
        let trace = builder.build().unwrap();
        lap_unit(&trace, &devices(&trace), wanted)
    }

    #[test]
    fn laps_of_the_program_take_precedence_over_steps_and_ranges() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        for step in 0..4 {
            builder.span(main, Nanos(step * 100), Nanos(100), &format!("ProfilerStep#{step}"), category::USER);
            builder.span(main, Nanos(step * 100 + 10), Nanos(50), "token", LAP);
        }
        let found = unit(builder, None).unwrap();
        assert_eq!((found.name.as_str(), found.source, found.laps.len()), ("token", LapSource::Lap, 4));
        assert_eq!(found.others, [("ProfilerStep#*".to_owned(), 4)]);
    }

    #[test]
    fn a_unit_with_over_a_million_laps_is_rejected_and_optional_elsewhere() {
        let mut builder = TraceBuilder::default();
        let (main, name, category) = (builder.thread(1, 1, "main"), builder.name("tiny"), builder.name(""));
        for at in 0..=MOST_LAPS as u64 {
            builder.span_named(main, Nanos(10 * at), Nanos(9), name, category);
        }
        let trace = builder.build().unwrap();
        let devices = devices(&trace);
        let too_many = Err(NoLaps::TooMany { name: "tiny".to_owned(), count: MOST_LAPS as u64 + 1 });
        for wanted in [None, Some("tiny")] {
            assert_eq!(lap_unit(&trace, &devices, wanted), too_many);
        }
        assert_eq!(unit_if_any(&trace, &devices, None), Ok(None));
    }

    #[test]
    fn steps_are_recognised_by_the_number_in_their_name() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        for step in 5..7 {
            builder.span(main, Nanos(step * 100), Nanos(100), &format!("ProfilerStep#{step}"), category::USER);
        }
        let found = unit(builder, None).unwrap();
        let labels: Vec<_> = found.laps.iter().map(|lap| lap.label.as_str()).collect();
        assert_eq!((found.name.as_str(), labels), ("ProfilerStep#*", vec!["ProfilerStep#5", "ProfilerStep#6"]));
        assert_eq!([499, 500, 599, 600, 700].map(|at| found.at(at)), [None, Some(0), Some(0), Some(1), None]);
    }

    #[test]
    fn a_range_that_covers_little_is_a_unit_only_if_requested() {
        let trace = |length: u64| {
            let mut builder = TraceBuilder::default();
            let main = builder.thread(1, 1, "main");
            for step in 0..3 {
                builder.span(main, Nanos(step * 100), Nanos(length), &format!("iteration {step}"), category::NVTX);
            }
            builder
        };
        assert_eq!(unit(trace(20), None), Err(NoLaps::NothingRepeats));
        assert_eq!(unit(trace(60), None).unwrap().source, LapSource::Range);
        for name in ["iteration *", "iteration 1", "iteration"] {
            assert_eq!(unit(trace(20), Some(name)).unwrap().source, LapSource::Named, "{name}");
        }
        let mut operations = trace(20);
        let main = operations.thread(1, 2, "worker");
        for step in 0..3 {
            operations.span(main, Nanos(step * 100), Nanos(50), "aten::linear", category::OPERATION);
        }
        assert_eq!(unit(operations, Some("aten::linear")).unwrap().laps.len(), 3);
        let known = vec![("iteration *".to_owned(), 3)];
        assert_eq!(unit(trace(20), Some("tok")), Err(NoLaps::NoSuchName { name: "tok".to_owned(), known }));
    }

    #[test]
    fn operator_ranges_are_not_laps_if_a_coarser_range_repeats() {
        let trace = |coarser: &str| {
            let mut builder = TraceBuilder::default();
            let main = builder.thread(1, 1, "main");
            for step in 0..17_u64 {
                builder.span(main, Nanos(step * 100), Nanos(10), coarser, category::NVTX);
                for at in 1..10 {
                    let name = format!("aten::copy_, op_id = {}", step * 10 + at);
                    builder.span(main, Nanos(step * 100 + at * 10), Nanos(10), &name, category::NVTX);
                }
            }
            unit(builder, None).unwrap()
        };
        let found = trace("FSDP::pre_forward");
        assert_eq!((found.name.as_str(), found.laps.len()), ("FSDP::pre_forward", 17));
        for operator in ["aten::sum, op_id = 1", "ncclGroupEnd"] {
            assert_eq!(trace(operator).name, "aten::copy_, op_id = *", "nothing is coarser");
        }
    }

    #[test]
    fn a_short_prologue_is_not_a_lap() {
        let trace = |first: u64| {
            let mut builder = TraceBuilder::default();
            let main = builder.thread(1, 1, "main");
            builder.span(main, Nanos(1_000 - first), Nanos(first), "ProfilerStep#0", category::USER);
            for step in 1..5 {
                builder.span(main, Nanos(step * 1_000), Nanos(1_000), &format!("ProfilerStep#{step}"), category::USER);
            }
            unit(builder, None).unwrap().laps.len()
        };
        assert_eq!((trace(499), trace(500), trace(1_000)), (4, 5, 5));
    }

    #[test]
    fn digits_inside_a_word_belong_to_the_word() {
        let names = [
            ("iteration 7", "iteration *"),
            ("layer_3_attn12", "layer_*_attn*"),
            ("ProfilerStep#12", "ProfilerStep#*"),
            ("## Call CompiledFxGraph fpr4pk2x7c ##", "## Call CompiledFxGraph fpr4pk2x7c ##"),
            ("conv2d é3", "conv2d é*"),
            ("", ""),
        ];
        for (name, expected) in names {
            assert_eq!(counted(name), expected);
        }
    }

    #[test]
    fn a_lap_with_a_field_is_named_after_it() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        for token in 0..2_u64 {
            let lap = builder.span(main, Nanos(token * 100), Nanos(90), "decode", LAP);
            builder.span_field(lap, "token", 7 + token as i64);
        }
        let labels: Vec<_> = unit(builder, None).unwrap().laps.into_iter().map(|lap| lap.label).collect();
        assert_eq!(labels, ["decode 7", "decode 8"]);
    }
}
