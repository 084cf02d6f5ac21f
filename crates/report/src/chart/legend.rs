//! The legend below all panels, and the numbers by which names get their looks.

use std::collections::HashMap;

use super::{
    Chart, Content, Panel, Reading, Theme,
    font::{self, Weight},
    geometry::{At, Rect},
    picture::{Anchor, Shape, Text},
    style::Style,
};

/// The size of names.
const SIZE: f64 = 13.0;

/// The height of a line of a name.
const ROW: f64 = 18.0;

/// The width of what a name looks like, the blank before the name included.
const SAMPLE: f64 = 42.0;

/// The blank between two columns.
const BLANK: f64 = 22.0;

/// A name is broken into this many lines at most.
const MOST_LINES: usize = 2;

/// More names than this are counted instead of shown.
const MOST_NAMES: usize = 40;

/// The names of a chart, in the order in which they first come.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    names: Vec<(&'a str, Kind)>,
    numbers: HashMap<&'a str, usize>,
}

/// What is drawn of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Line,
    Points,
    Bar,
}

impl<'a> Names<'a> {
    pub(crate) fn of(chart: &'a Chart) -> Self {
        let mut names = Self { names: Vec::new(), numbers: HashMap::new() };
        for (name, kind) in chart.panels.iter().flat_map(named) {
            let next = names.names.len();
            let number = *names.numbers.entry(name).or_insert(next);
            if number == next {
                names.names.push((name, kind));
            }
        }
        names
    }

    /// The number of a name, counted from 0.
    pub(crate) fn number(&self, name: &str) -> usize {
        self.numbers.get(name).copied().unwrap_or(0)
    }
}

fn named(panel: &Panel) -> Vec<(&str, Kind)> {
    match &panel.content {
        Content::Lines(lines) => {
            let kind = |is_loose| if is_loose { Kind::Points } else { Kind::Line };
            lines.iter().map(|line| (line.name.as_str(), kind(line.is_loose))).collect()
        }
        Content::Bars(bars) => bars.series.iter().map(|series| (series.name.as_str(), Kind::Bar)).collect(),
    }
}

/// A line of the legend: what it looks like, and its name in one line or more.
struct Entry {
    sample: Option<(usize, Kind)>,
    lines: Vec<String>,
    width: f64,
}

/// Lays out the legend below a height, and says where it ends.
pub(crate) fn draw(chart: &Chart, names: &Names<'_>, room: Rect, theme: Theme) -> (Vec<Shape>, f64) {
    let entries = entries(chart, names, room.width());
    let widest = entries.iter().map(|entry| entry.width).fold(1.0, f64::max);
    let columns = (((room.width() + BLANK) / (widest + BLANK)).floor() as usize).clamp(1, entries.len().max(1));
    let mut shapes = Vec::new();
    let mut top = room.top;
    for row in entries.chunks(columns) {
        for (column, entry) in row.iter().enumerate() {
            let at = At::new(room.left + column as f64 * (widest + BLANK), top);
            shapes.extend(entry.draw(at, theme));
        }
        let lines = row.iter().map(|entry| entry.lines.len()).max().unwrap_or(0);
        top += lines as f64 * ROW + 2.0;
    }
    (shapes, top)
}

fn entries(chart: &Chart, names: &Names<'_>, room: f64) -> Vec<Entry> {
    let entry = |sample, name: &str| {
        let name = if name.trim().is_empty() { "(no name)" } else { name };
        let lines = font::wrap(name, room - SAMPLE, SIZE, Weight::Regular, MOST_LINES);
        let widest = lines.iter().map(|line| font::width(line, SIZE, Weight::Regular)).fold(0.0, f64::max);
        Entry { sample, lines, width: SAMPLE + widest }
    };
    let shown = names.names.iter().take(MOST_NAMES).enumerate();
    let mut entries: Vec<Entry> = shown.map(|(number, (name, kind))| entry(Some((number, *kind)), name)).collect();
    if chart.panels.iter().any(has_interval) {
        entries.push(entry(None, chart.interval));
    }
    if names.names.len() > MOST_NAMES {
        let more = names.names.len() - MOST_NAMES;
        entries.push(Entry { width: 120.0, lines: vec![format!("and {more} more")], sample: None });
    }
    entries
}

fn has_interval(panel: &Panel) -> bool {
    let has = |reading: &Reading| matches!(reading, Reading::Measured { interval: Some(_), .. });
    match &panel.content {
        Content::Lines(lines) => lines.iter().flat_map(|line| &line.points).any(|point| has(&point.reading)),
        Content::Bars(bars) => bars.series.iter().flat_map(|series| &series.readings).any(has),
    }
}

impl Entry {
    fn draw(&self, at: At, theme: Theme) -> Vec<Shape> {
        let middle = at.y + ROW / 2.0;
        let mut shapes = match self.sample {
            Some((number, kind)) => sample(Style::of(number, theme), kind, At::new(at.x, middle)),
            None => interval_sample(At::new(at.x, middle), theme),
        };
        for (row, line) in self.lines.iter().enumerate() {
            let at = At::new(at.x + SAMPLE, middle + 0.36 * SIZE + row as f64 * ROW);
            shapes.push(Shape::Text(Text::new(line.as_str(), at, Anchor::Start, SIZE, theme.ink())));
        }
        shapes
    }
}

fn sample(style: Style, kind: Kind, at: At) -> Vec<Shape> {
    let (from, to) = (at, At::new(at.x + SAMPLE - 8.0, at.y));
    let marker = style.marker(At::new((from.x + to.x) / 2.0, at.y), false);
    match kind {
        Kind::Line => vec![Shape::through(vec![from, to], style.line()), marker],
        Kind::Points => vec![marker],
        Kind::Bar => style.bar(Rect { left: from.x + 10.0, top: at.y - 7.0, right: to.x, bottom: at.y + 7.0 }),
    }
}

/// An interval looks like an area, and like a bar with ends where points stand alone.
fn interval_sample(at: At, theme: Theme) -> Vec<Shape> {
    let area = Rect { left: at.x, top: at.y - 6.0, right: at.x + SAMPLE - 8.0, bottom: at.y + 6.0 };
    vec![Shape::filled(area, theme.faint_ink().cover(0.25))]
}
