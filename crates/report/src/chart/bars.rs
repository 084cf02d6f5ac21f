//! Bars in groups, each with its figure above it where there is room.

use super::{
    Bars, Quantity, Reading,
    font::{self, Weight},
    frame::Frame,
    geometry::{At, Rect},
    labels::SIZE,
    legend::Names,
    lines::whisker,
    picture::{Anchor, Shape, Text},
    style::Style,
};

/// The share of a group that bars fill.
const FILLED: f64 = 0.78;

/// Bars are no wider, however few there are.
const WIDEST: f64 = 64.0;

/// The middle and the width of a bar.
pub(crate) fn slot(bars: &Bars, group: usize, series: usize, frame: &Frame) -> (f64, f64) {
    let place = |at: f64| frame.x.held(at);
    let (left, right) = (place(group as f64), place(group as f64 + 1.0));
    let count = bars.series.len().max(1) as f64;
    let width = ((right - left) * FILLED / count).min(WIDEST);
    let from_middle = (series as f64 - (count - 1.0) / 2.0) * width;
    ((left + right) / 2.0 + from_middle, 0.92 * width)
}

/// Draws all bars.
pub(crate) fn draw(bars: &Bars, quantity: Quantity, names: &Names<'_>, frame: &Frame) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (at, series) in bars.series.iter().enumerate() {
        let style = Style::of(names.number(&series.name), frame.theme);
        for (group, reading) in series.readings.iter().enumerate().take(bars.groups.len()) {
            let Reading::Measured { value, interval } = *reading else { continue };
            if frame.y.place(value).is_none() {
                continue;
            }
            let slot = slot(bars, group, at, frame);
            let interval = interval.filter(|ends| ends.iter().all(|end| !end.is_nan()));
            let interval = interval.map(|ends| ends.map(|end| frame.y.held(end)));
            let title = format!("{}, {}: {}", series.name, bars.groups[group], quantity.text(value));
            let bar = bar(slot, frame.y.held(value), interval, style, frame);
            shapes.push(Shape::Titled { title, shapes: bar });
            let top = interval.map_or(f64::INFINITY, |[_, high]| high).min(frame.y.held(value.max(0.0)));
            shapes.extend(figure(&quantity.text(value), slot, top, frame));
        }
    }
    shapes
}

fn bar((middle, width): (f64, f64), end: f64, interval: Option<[f64; 2]>, style: Style, frame: &Frame) -> Vec<Shape> {
    let zero = frame.y.held(0.0);
    let (left, right) = (middle - width / 2.0, middle + width / 2.0);
    let mut shapes = style.bar(Rect { left, top: end.min(zero), right, bottom: end.max(zero) });
    // The end of a bar lies on its fill, so an interval of its colour would be hidden.
    shapes.extend(whisker(At::new(middle, end), interval, frame.theme.ink()));
    shapes
}

fn figure(text: &str, (middle, width): (f64, f64), top: f64, frame: &Frame) -> Option<Shape> {
    let has_room = font::width(text, SIZE, Weight::Regular) <= width + 4.0;
    let at = At::new(middle, top - 5.0);
    let text = || Text::new(text, at, Anchor::Middle, SIZE, frame.theme.ink()).halo(frame.theme.background());
    has_room.then(|| Shape::Text(text()))
}
