//! Shows a recording as indented text, so that a test compares whole span trees.

use laptime_probe::{Batch, Config, FieldValue, Fields, LaneStamp, RawKind, Recorder, Site, SiteKind, events, lane};

/// Records `work` on this thread and shows it.
#[allow(dead_code)] // Not every test file needs it.
pub fn recorded(work: impl FnOnce()) -> String {
    let mut recorder = Recorder::new(Config::default());
    let entered = recorder.handle().enter();
    work();
    drop(entered);
    outline(&drained(&mut recorder))
}

/// Everything recorded and not yet drained.
pub fn drained(recorder: &mut Recorder) -> Vec<Batch> {
    let mut batches = Vec::new();
    recorder.drain(&mut batches);
    batches
}

/// Shows the events of a single thread; a span without an exit is marked as open.
pub fn outline(batches: &[Batch]) -> String {
    let mut outline = Outline::default();
    for event in batches.iter().flat_map(events) {
        outline.add(event.kind);
    }
    for (_, at) in outline.open {
        outline.lines[at].push_str(" (open)");
    }
    outline.lines.iter().map(|line| format!("{line}\n")).collect()
}

#[derive(Default)]
struct Outline {
    lines: Vec<String>,
    /// Open spans, with their lines.
    open: Vec<(&'static Site, usize)>,
}

impl Outline {
    fn add(&mut self, kind: RawKind<'_>) {
        match kind {
            RawKind::Enter { site, lane, fields } => {
                self.line(site, lane, fields);
                self.open.push((site, self.lines.len() - 1));
            }
            RawKind::Exit { site, .. } => {
                let at = self.open.iter().rposition(|(open, _)| *open == site);
                self.open.remove(at.expect("an exit follows its entry"));
            }
            RawKind::Point { site, fields } => self.line(site, None, fields),
            RawKind::Record { site, fields } => {
                let (_, at) = self.open.iter().rfind(|(open, _)| *open == site).expect("the span is open");
                self.lines[*at].push_str(&format!(", then{}", text(fields)));
            }
            RawKind::Detach => {}
        }
    }

    fn line(&mut self, site: &Site, on: Option<LaneStamp>, fields: Fields<'_>) {
        let kind = match site.kind {
            SiteKind::Stage => "",
            SiteKind::Lap => "lap ",
            SiteKind::Sync => "sync ",
            SiteKind::Mark => "mark ",
            SiteKind::SyncMark => "sync mark ",
            SiteKind::Value => "value ",
        };
        let on = on.and_then(|on| lane(on.lane)).map_or_else(String::new, |lane| format!(" on {}", lane.name()));
        let indent = "  ".repeat(self.open.len());
        self.lines.push(format!("{indent}{kind}{}{on}{}", site.name, text(fields)));
    }
}

fn text(fields: Fields<'_>) -> String {
    fields.map(|(name, value)| format!(" {name}={}", one(&value))).collect()
}

fn one(value: &FieldValue) -> String {
    match value {
        FieldValue::Int(value) => value.to_string(),
        FieldValue::Uint(value) => format!("{value}u"),
        FieldValue::Float(value) => format!("{value:?}"),
        FieldValue::Bool(value) => value.to_string(),
        FieldValue::Str(value) => format!("{value:?}"),
    }
}
