//! Grouped bars, each with its value above it if there is space.

use super::font::{self, Weight};
use super::geometry::{Pos, Rect};
use super::picture::{Anchor, Shape, Text};
use super::{
    BarSeries, Bars, Quantity, Reading, frame::Frame, labels::SIZE, legend::Names, lines::whisker, style::Style,
};

/// The share of a group that bars fill.
const FILLED: f64 = 0.78;

/// The largest width of a bar.
const WIDEST: f64 = 64.0;

/// The centre and width of a bar.
pub(crate) fn slot(bars: &Bars, group: usize, series: usize, frame: &Frame) -> (f64, f64) {
    let place = |at: f64| frame.x.clamped(at);
    let (left, right) = (place(group as f64), place(group as f64 + 1.0));
    let count = bars.series.len().max(1) as f64;
    let width = ((right - left) * FILLED / count).min(WIDEST);
    let from_middle = (series as f64 - (count - 1.0) / 2.0) * width;
    ((left + right) / 2.0 + from_middle, 0.92 * width)
}

pub(crate) fn draw(bars: &Bars, quantity: Quantity, names: &Names<'_>, frame: &Frame) -> Vec<Shape> {
    let digits = digits(bars, quantity, frame);
    let mut shapes = Vec::new();
    for (at, series) in bars.series.iter().enumerate() {
        let style = Style::of(names.number(&series.name), frame.theme);
        for (group, value, interval) in measured(series, bars, frame) {
            let slot = slot(bars, group, at, frame);
            let title = format!("{}, {}: {}", series.name, bars.groups[group], quantity.text(value));
            shapes.push(Shape::Titled { title, shapes: bar(slot, frame.y.clamped(value), interval, style, frame) });
            let top = interval.map_or(f64::INFINITY, |[_, high]| high).min(frame.y.clamped(value.max(0.0)));
            if let Some(digits) = digits {
                let (figure, above) = (quantity.text_in(value, digits), Pos::new(slot.0, top - 5.0));
                let text = Text::new(figure, above, Anchor::Middle, SIZE, frame.theme.ink());
                shapes.push(Shape::Text(text.halo(frame.theme.background())));
            }
        }
    }
    shapes
}

/// The values of a name: group, value and the positions of the interval ends.
fn measured<'a>(
    series: &'a BarSeries,
    bars: &Bars,
    frame: &'a Frame,
) -> impl Iterator<Item = (usize, f64, Option<[f64; 2]>)> + use<'a> {
    let readings = series.readings.iter().enumerate().take(bars.groups.len());
    readings.filter_map(|(group, reading)| match *reading {
        Reading::Measured { value, interval } => {
            frame.y.place(value)?;
            let interval = interval.filter(|ends| ends.iter().all(|end| !end.is_nan()));
            Some((group, value, interval.map(|ends| ends.map(|end| frame.y.clamped(end)))))
        }
        Reading::Missing | Reading::Failed(_) => None,
    })
}

fn bar((middle, width): (f64, f64), end: f64, interval: Option<[f64; 2]>, style: Style, frame: &Frame) -> Vec<Shape> {
    let zero = frame.y.clamped(0.0);
    let (left, right) = (middle - width / 2.0, middle + width / 2.0);
    let mut shapes = style.bar(Rect { left, top: end.min(zero), right, bottom: end.max(zero) });
    // Half of it is on the bar, which may have any colour.
    if let Some(ends) = interval {
        shapes.push(whisker(Pos::new(middle, end), ends, frame.theme.background(), 3.6));
        shapes.push(whisker(Pos::new(middle, end), ends, frame.theme.ink(), 1.2));
    }
    shapes
}

/// How many digits fit above all bars; none if not even two do.
fn digits(bars: &Bars, quantity: Quantity, frame: &Frame) -> Option<usize> {
    let (_, width) = slot(bars, 0, 0, frame);
    let fits =
        |digits: usize, value: f64| font::width(&quantity.text_in(value, digits), SIZE, Weight::Regular) <= width + 4.0;
    let all_fit = |&digits: &usize| {
        bars.series.iter().all(|series| measured(series, bars, frame).all(|(_, value, _)| fits(digits, value)))
    };
    [3, 2].into_iter().find(all_fit)
}
