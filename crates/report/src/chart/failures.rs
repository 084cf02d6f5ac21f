//! Cases without a value, at the upper edge: a cross for each, and one word per kind.

use super::font::{self, Weight};
use super::picture::{Anchor, Look, Shape, Text};
use super::{
    BarSeries, Content, Line, Reading, bars, frame::Frame, geometry::Pos, labels::SIZE, legend::Names, style::Style,
};

/// The height of a row.
const ROW: f64 = 17.0;

/// If there are more names, the rest shares the last row.
const MOST_ROWS: usize = 6;

/// How far a cross reaches from its middle.
const CROSS: f64 = 4.5;

/// The blank between a cross and its word.
const BLANK: f64 = 9.0;

/// The smallest width of a shortened word.
const SHORTEST: f64 = 40.0;

/// The failed cases of one name: the position of each along the axis, and the reason.
struct Row<'a> {
    name: &'a str,
    series: usize,
    failed: Vec<(f64, &'a str)>,
}

impl<'a> Row<'a> {
    fn of(series: usize, name: &'a str, readings: impl Iterator<Item = (f64, &'a Reading)>) -> Self {
        let failed = readings.filter_map(|(at, reading)| match reading {
            Reading::Failed(word) => Some((at, word.as_str())),
            _ => None,
        });
        Self { name, series, failed: failed.collect() }
    }
}

fn rows<'a>(content: &'a Content) -> Vec<Row<'a>> {
    let of_line = |(at, line): (usize, &'a Line)| {
        Row::of(at, &line.name, line.points.iter().map(|point| (point.x, &point.reading)))
    };
    let mut rows: Vec<Row<'_>> = match content {
        Content::Lines(lines) => lines.iter().enumerate().map(of_line).collect(),
        Content::Bars(bars) => {
            let of_bars = |(at, series): (usize, &'a BarSeries)| {
                let readings = series.readings.iter().enumerate().take(bars.groups.len());
                Row::of(at, &series.name, readings.map(|(group, reading)| (group as f64, reading)))
            };
            bars.series.iter().enumerate().map(of_bars).collect()
        }
    };
    rows.retain(|row| !row.failed.is_empty());
    rows
}

pub(crate) fn height(content: &Content) -> f64 {
    match rows(content).len() {
        0 => 0.0,
        rows => rows.min(MOST_ROWS) as f64 * ROW + 4.0,
    }
}

/// Draws the rows, in the order of the legend.
pub(crate) fn draw(content: &Content, names: &Names<'_>, frame: &Frame) -> Vec<Shape> {
    let rows = rows(content);
    let mut shapes = Vec::new();
    if !rows.is_empty() {
        let (left, right, at) = (frame.plot.left, frame.plot.right, frame.figures.top);
        shapes.push(Shape::line(Pos::new(left, at), Pos::new(right, at), frame.theme.axis(), 0.75));
    }
    for (at, row) in rows.iter().enumerate() {
        let y = frame.plot.top + (at.min(MOST_ROWS - 1) as f64 + 0.5) * ROW;
        let style = Style::of(names.number(row.name), frame.theme);
        let places: Vec<(f64, &str)> =
            row.failed.iter().filter_map(|&(x, word)| Some((place(x, row.series, content, frame)?, word))).collect();
        shapes.extend(places.iter().map(|&(x, _)| cross(Pos::new(x, y), style)));
        let prefix = if rows.len() > 1 { format!("{}: ", row.name) } else { String::new() };
        if rows.len() <= MOST_ROWS || at < MOST_ROWS - 1 {
            shapes.extend(words(&places, y, &prefix, frame));
        }
    }
    shapes.extend(shared(rows.len(), frame));
    shapes
}

/// Writes how many names share the last row.
fn shared(rows: usize, frame: &Frame) -> Option<Shape> {
    let at = Pos::new(frame.plot.left + 3.0, frame.plot.top + (MOST_ROWS as f64 - 0.5) * ROW + 0.36 * SIZE);
    let words = || format!("{} more", rows - MOST_ROWS + 1);
    let text = || Text::new(words(), at, Anchor::Start, SIZE, frame.theme.ink()).halo(frame.theme.background());
    (rows > MOST_ROWS).then(|| Shape::Text(text()))
}

fn place(x: f64, series: usize, content: &Content, frame: &Frame) -> Option<f64> {
    match content {
        Content::Lines(_) => frame.x.place(x),
        Content::Bars(bars) => Some(bars::slot(bars, x as usize, series, frame).0),
    }
}

fn cross(at: Pos, style: Style) -> Shape {
    let corner = |x: f64, y: f64| Pos::new(at.x + x * CROSS, at.y + y * CROSS);
    let places = [(-1.0, -1.0), (1.0, 1.0), (0.0, 0.0), (1.0, -1.0), (-1.0, 1.0)];
    Shape::through(places.map(|(x, y)| corner(x, y)).into(), Look::stroked(style.colour, 2.2, &[]))
}

/// One word for neighbours with the same failure, to their left or right.
fn words(places: &[(f64, &str)], y: f64, prefix: &str, frame: &Frame) -> Vec<Shape> {
    let mut shapes = Vec::new();
    let mut from = frame.plot.left + 3.0;
    let mut at = 0;
    for run in places.chunk_by(|one, other| one.1 == other.1) {
        at += run.len();
        let (Some(&(first, word)), Some(&(last, _))) = (run.first(), run.last()) else { continue };
        let to = places.get(at).map_or(frame.plot.right - 3.0, |&(next, _)| next - BLANK);
        let (left, right) = (first - BLANK - from, to - last - BLANK);
        let words = format!("{prefix}{word}");
        let needed = font::width(&words, SIZE, Weight::Regular);
        let is_left = left >= needed || left >= right;
        let space = if is_left { left } else { right };
        from = last + BLANK;
        if space < SHORTEST.min(needed) {
            continue;
        }
        let (x, anchor) = if is_left { (first - BLANK, Anchor::End) } else { (last + BLANK, Anchor::Start) };
        let words = font::shorten(&words, space, SIZE, Weight::Regular);
        from = if is_left { from } else { from + needed.min(space) };
        shapes.push(Shape::Text(Text::new(words, Pos::new(x, y + 0.36 * SIZE), anchor, SIZE, frame.theme.ink())));
    }
    shapes
}
