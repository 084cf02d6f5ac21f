//! The trace as indented text, and equality, for tests and diffs.

use std::fmt::Write;

use crate::fields::Fields;
use crate::trace::{Span, SpanId, Trace};
use crate::track::{Track, TrackId, TrackKind};

impl Trace {
    /// The whole content as indented text: tracks, spans by nesting, marks, values, flows.
    ///
    /// Times are nanoseconds. A host thread shows only its name, other tracks also their kind; lanes after the first
    /// are numbered.
    pub fn outline(&self) -> String {
        let mut text = String::new();
        for (id, track) in self.tracks() {
            self.outline_track(&mut text, id, track);
        }
        for flow in self.flows() {
            let (from, to) = (self.span(flow.from), self.span(flow.to));
            line(&mut text, 0, &format!("flow {} -> {}", moment(&from), moment(&to)));
        }
        for (key, json) in self.metadata.iter() {
            line(&mut text, 0, &format!("{} is {}", shown(key), shown(json)));
        }
        if self.lost > 0 {
            line(&mut text, 0, &format!("lost {}", self.lost));
        }
        text
    }

    fn outline_track(&self, text: &mut String, id: TrackId, track: &Track) {
        let name = shown(self.name(track.name));
        let head = match track.kind {
            TrackKind::Thread => name,
            kind => format!("{name} ({}{})", kind.words(), on_device(track)),
        };
        line(text, 0, &head);
        for span in self.spans_on(id) {
            let depth = 1 + self.ancestors(span).count();
            let open = if span.is_open { "  open" } else { "" };
            let lane = if span.lane > 0 { format!("  lane {}", span.lane) } else { String::new() };
            let (what, fields) = (kind_and_name(span.category, span.name), outline_fields(span.fields));
            line(text, depth, &format!("{what}  {}..{}{lane}{open}{fields}", span.start.0, span.end().0));
        }
        for mark in self.marks_on(id) {
            let what = kind_and_name(mark.category, mark.name);
            line(text, 1, &format!("! {what}  {}{}", mark.time.0, outline_fields(mark.fields)));
        }
        for value in self.values().filter(|value| value.track == id) {
            let unit = shown(self.name(track.unit));
            line(text, 1, &format!("= {:?}  {}  {unit}", value.number, value.time.0));
        }
    }

    /// The ancestors of a span, innermost first.
    pub fn ancestors(&self, span: Span<'_>) -> impl Iterator<Item = SpanId> {
        std::iter::successors(span.parent, |&id| self.span(id).parent)
    }
}

fn on_device(track: &Track) -> String {
    track.device.map_or_else(String::new, |device| format!(" on device {device}"))
}

fn moment(span: &Span<'_>) -> String {
    format!("{} {}", shown(span.name), span.start.0)
}

fn kind_and_name(category: &str, name: &str) -> String {
    if category.is_empty() { shown(name) } else { format!("{}:{}", shown(category), shown(name)) }
}

fn outline_fields(fields: Fields<'_>) -> String {
    fields.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = write!(text, "  {}={}", shown(name), shown(&value.to_string()));
        text
    })
}

/// A name without line breaks.
fn shown(name: &str) -> String {
    if name.chars().any(char::is_control) { name.escape_debug().to_string() } else { name.to_owned() }
}

fn line(text: &mut String, depth: usize, content: &str) {
    let _ = writeln!(text, "{:width$}{}", "", content.trim_end(), width = 2 * depth);
}

/// Two traces are equal if their contents are equal, whatever the ids of their names. Warnings do not count.
impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        self.origin == other.origin
            && self.clock_uncertainty == other.clock_uncertainty
            && self.lost == other.lost
            && self.metadata == other.metadata
            && self.flows == other.flows
            && self
                .processes()
                .map(|(_, process)| (process.number, self.name(process.name)))
                .eq(other.processes().map(|(_, process)| (process.number, other.name(process.name))))
            && self
                .tracks()
                .map(|(_, track)| self.track_content(track))
                .eq(other.tracks().map(|(_, track)| other.track_content(track)))
            && self.spans().map(SpanContent).eq(other.spans().map(SpanContent))
            && self.marks_equal(other)
            && self.values().eq(other.values())
    }
}

impl Trace {
    fn track_content<'a>(&'a self, track: &Track) -> impl PartialEq + use<'a> {
        let number = self.process(track.process).number;
        (number, track.kind.words(), self.name(track.name), track.number, track.device, self.name(track.unit))
    }

    fn marks_equal(&self, other: &Self) -> bool {
        self.mark_count() == other.mark_count()
            && self.marks().zip(other.marks()).all(|(a, b)| {
                (a.track, a.name, a.category, a.time) == (b.track, b.name, b.category, b.time)
                    && a.fields.iter().eq(b.fields.iter())
            })
    }
}

struct SpanContent<'a>(Span<'a>);

impl PartialEq for SpanContent<'_> {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        (a.track, a.lane, a.name, a.category, a.start, a.duration, a.parent, a.is_open)
            == (b.track, b.lane, b.name, b.category, b.start, b.duration, b.parent, b.is_open)
            && a.fields.iter().eq(b.fields.iter())
    }
}
