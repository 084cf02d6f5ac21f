//! The legend below all panels, and the numbering that gives names their style.

use std::collections::{HashMap, HashSet};

use super::font::{self, Weight};
use super::geometry::{Pos, Rect};
use super::picture::{Anchor, Shape, Text};
use super::style::{Style, StyleIndex};
use super::{BarSeries, Chart, Content, Line, Panel, Point, Reading, Theme, lines::whisker};

/// The size of names.
const SIZE: f64 = 13.0;

/// The height of a line of a name.
const ROW: f64 = 18.0;

/// The width of the symbol of a name, including the blank before the name.
const SYMBOL: f64 = 42.0;

/// The blank between two columns.
const BLANK: f64 = 22.0;

/// The most lines of a name.
const MOST_LINES: usize = 2;

/// A legend with more names has two to four columns.
const LONG: usize = 4;
const MOST_COLUMNS: usize = 4;

/// If there are more names, they are counted instead of shown.
const MOST_NAMES: usize = 40;

/// The names of a chart, in order of appearance.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    numbers: HashMap<&'a str, StyleIndex>,
    shown: Vec<Shown<'a>>,
}

/// A name that is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shown<'a> {
    name: &'a str,
    subject: &'a str,
    note: &'a str,
    kind: Kind,
}

/// What is drawn for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Line,
    Points,
    Bar,
}

impl<'a> Names<'a> {
    pub(crate) fn of(chart: &'a Chart) -> Self {
        let mut shown: Vec<Shown<'a>> = Vec::new();
        let mut seen = HashSet::new();
        shown.extend(chart.panels.iter().flat_map(named).filter(|named| seen.insert(named.name)));
        let mut colours = HashMap::new();
        for subject in chart.known_subjects.iter().map(String::as_str).chain(shown.iter().map(|shown| shown.subject)) {
            let next = colours.len();
            colours.entry(subject).or_insert(next);
        }
        let mut of_subject: HashMap<&str, usize> = HashMap::new();
        let numbers = shown.iter().map(|shown| {
            let colour = colours.get(shown.subject).copied().unwrap_or(0);
            let others = of_subject.entry(shown.subject).or_default();
            let number = StyleIndex { colour, shape: colour + *others };
            *others += 1;
            (shown.name, number)
        });
        Self { numbers: numbers.collect(), shown }
    }

    /// The style of a name.
    pub(crate) fn number(&self, name: &str) -> StyleIndex {
        self.numbers.get(name).copied().unwrap_or(StyleIndex { colour: 0, shape: 0 })
    }
}

/// The subjects of a panel, one per colour.
pub(crate) fn subjects(panel: &Panel) -> Vec<&str> {
    named(panel).into_iter().map(|shown| shown.subject).collect()
}

fn named(panel: &Panel) -> Vec<Shown<'_>> {
    let mut shown: Vec<Shown<'_>> = match &panel.content {
        Content::Lines(lines) => lines.iter().map(Shown::line).collect(),
        Content::Bars(bars) => bars.series.iter().map(Shown::bars).collect(),
    };
    for shown in shown.iter_mut().filter(|shown| shown.subject.is_empty()) {
        shown.subject = shown.name;
    }
    shown
}

impl<'a> Shown<'a> {
    fn line(Line { name, subject, note, is_scatter, .. }: &'a Line) -> Self {
        Self { name, subject, note, kind: if *is_scatter { Kind::Points } else { Kind::Line } }
    }

    fn bars(BarSeries { name, subject, .. }: &'a BarSeries) -> Self {
        Self { name, subject, note: "", kind: Kind::Bar }
    }
}

/// An entry of the legend: its symbol, and its name in one or more lines.
struct Entry {
    symbol: Symbol,
    lines: Vec<String>,
    width: f64,
    /// Whether the name was shortened.
    is_cut: bool,
}

/// The symbol of an entry.
#[derive(Debug, Clone, Copy)]
enum Symbol {
    Nothing,
    Name(StyleIndex, Kind),
    /// An interval around a line, or around points alone.
    Interval {
        is_area: bool,
    },
}

/// Lays out the legend below a height, and returns where it ends.
pub(crate) fn draw(chart: &Chart, names: &Names<'_>, space: Rect, theme: Theme) -> (Vec<Shape>, f64) {
    let (entries, columns) = columns(&texts(chart, names), space.width());
    let widest = entries.iter().map(|entry| entry.width).fold(1.0, f64::max);
    let mut shapes = Vec::new();
    let mut top = space.top;
    for row in entries.chunks(columns.max(1)) {
        for (column, entry) in row.iter().enumerate() {
            let at = Pos::new(space.left + column as f64 * (widest + BLANK), top);
            shapes.extend(entry.draw(at, theme));
        }
        let lines = row.iter().map(|entry| entry.lines.len()).max().unwrap_or(0);
        top += lines as f64 * ROW + 2.0;
    }
    (shapes, top)
}

/// All entries of the legend, with their symbols.
fn texts(chart: &Chart, names: &Names<'_>) -> Vec<(Symbol, String)> {
    let named = |shown: &Shown<'_>| {
        let name = if shown.name.trim().is_empty() { "(no name)" } else { shown.name };
        let text = if shown.note.is_empty() { name.to_owned() } else { format!("{name}: {}", shown.note) };
        (Symbol::Name(names.number(shown.name), shown.kind), text)
    };
    let mut texts: Vec<(Symbol, String)> = names.shown.iter().take(MOST_NAMES).map(named).collect();
    if names.shown.len() > MOST_NAMES {
        texts.push((Symbol::Nothing, format!("and {} more", names.shown.len() - MOST_NAMES)));
    }
    if chart.panels.iter().any(has_interval) {
        let is_area = chart.panels.iter().any(has_area);
        texts.push((Symbol::Interval { is_area }, chart.interval.to_owned()));
    }
    texts
}

/// Chooses the columns that shorten no name and need the least height; among equals, those that break the fewest names.
fn columns(texts: &[(Symbol, String)], space: f64) -> (Vec<Entry>, usize) {
    let least = if texts.len() > LONG { 2 } else { 1 };
    let most = texts.len().clamp(least, MOST_COLUMNS);
    let in_columns = |columns: usize| {
        let space = (space - BLANK * (columns - 1) as f64) / columns as f64 - SYMBOL;
        texts.iter().map(|(symbol, text)| entry(*symbol, text, space)).collect::<Vec<Entry>>()
    };
    let cost = |(entries, columns): &(Vec<Entry>, usize)| {
        let broken = entries.iter().filter(|entry| entry.lines.len() > 1).count();
        (entries.iter().filter(|entry| entry.is_cut).count(), lines(entries, *columns), broken)
    };
    let choices = (least..=most).map(|columns| (in_columns(columns), columns));
    choices.min_by_key(cost).unwrap_or_default()
}

/// How many lines of text the rows need.
fn lines(entries: &[Entry], columns: usize) -> usize {
    let highest = |row: &[Entry]| row.iter().map(|entry| entry.lines.len()).max().unwrap_or(0);
    entries.chunks(columns).map(highest).sum()
}

fn entry(symbol: Symbol, text: &str, space: f64) -> Entry {
    let lines = font::wrap(text, space, SIZE, Weight::Regular, MOST_LINES);
    let widest = lines.iter().map(|line| font::width(line, SIZE, Weight::Regular)).fold(0.0, f64::max);
    let is_cut = !lines.iter().flat_map(|line| line.split(' ')).eq(text.split_whitespace());
    Entry { symbol, lines, width: SYMBOL + widest, is_cut }
}

/// Whether an interval of a panel is drawn as an area: between at least two points of a line.
fn has_area(panel: &Panel) -> bool {
    let is_measured = |point: &&Point| matches!(point.reading, Reading::Measured { .. });
    match &panel.content {
        Content::Lines(lines) => {
            lines.iter().any(|line| !line.is_scatter && line.points.iter().filter(is_measured).nth(1).is_some())
        }
        Content::Bars(_) => false,
    }
}

fn has_interval(panel: &Panel) -> bool {
    let has = |reading: &Reading| matches!(reading, Reading::Measured { interval: Some(_), .. });
    match &panel.content {
        Content::Lines(lines) => lines.iter().flat_map(|line| &line.points).any(|point| has(&point.reading)),
        Content::Bars(bars) => bars.series.iter().flat_map(|series| &series.readings).any(has),
    }
}

impl Entry {
    fn draw(&self, at: Pos, theme: Theme) -> Vec<Shape> {
        let middle = Pos::new(at.x, at.y + ROW / 2.0);
        let mut shapes = match self.symbol {
            Symbol::Nothing => Vec::new(),
            Symbol::Name(number, kind) => symbol(Style::of(number, theme), kind, middle),
            Symbol::Interval { is_area } => vec![interval_sample(middle, is_area, theme)],
        };
        for (row, line) in self.lines.iter().enumerate() {
            let at = Pos::new(at.x + SYMBOL, middle.y + 0.36 * SIZE + row as f64 * ROW);
            shapes.push(Shape::Text(Text::new(line.as_str(), at, Anchor::Start, SIZE, theme.ink())));
        }
        shapes
    }
}

fn symbol(style: Style, kind: Kind, at: Pos) -> Vec<Shape> {
    let (from, to) = (at, Pos::new(at.x + SYMBOL - 8.0, at.y));
    let marker = style.marker(Pos::new((from.x + to.x) / 2.0, at.y), false);
    match kind {
        Kind::Line => vec![Shape::through(vec![from, to], style.line()), marker],
        Kind::Points => vec![marker],
        Kind::Bar => style.bar(Rect { left: from.x, top: at.y - 7.0, right: to.x, bottom: at.y + 7.0 }),
    }
}

fn interval_sample(at: Pos, is_area: bool, theme: Theme) -> Shape {
    let (left, right) = (at.x, at.x + SYMBOL - 8.0);
    let (top, bottom) = (at.y - 7.0, at.y + 7.0);
    let middle = Pos::new((left + right) / 2.0, at.y);
    let area = Shape::filled(Rect { left, top, right, bottom }, theme.faint_ink().opacity(0.25));
    if is_area { area } else { whisker(middle, [bottom, top], theme.ink(), 1.2) }
}
