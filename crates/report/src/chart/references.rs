//! Reference lines and highlighted ranges.

use super::font::{self, Weight};
use super::labels::{Occupied, SIZE, spread};
use super::picture::{Anchor, Look, Shape, Text};
use super::{Highlight, Panel, Reference, frame::Frame, geometry::Pos, geometry::Rect};

/// The dashes of references, finer than those of lines.
const DASH: &[f32] = &[4.0, 3.0];

/// The blank between the frame and a label next to it.
const BLANK: f64 = 6.0;

/// The smallest distance between labels next to the frame.
const APART: f64 = 15.0;

/// The largest width of labels next to the frame.
const MOST_LABEL_WIDTH: f64 = 140.0;

/// A shorter rising part has no label.
const SHORTEST: f64 = 40.0;

/// The width of the labels to the right of the frame.
pub(crate) fn label_width(panel: &Panel) -> f64 {
    let widths = panel.references.iter().map(|reference| font::width(label_at_frame(reference), SIZE, Weight::Regular));
    widths.map(|width| width.min(MOST_LABEL_WIDTH) + BLANK + 2.0).fold(0.0, f64::max)
}

fn label_at_frame(reference: &Reference) -> &str {
    match reference {
        Reference::Level { label, .. } | Reference::Slope { label, .. } | Reference::Roof { label, .. } => label,
    }
}

/// Draws references; labels inside the frame go to `labels`.
pub(crate) fn lines(panel: &Panel, frame: &Frame, taken: &mut Occupied, labels: &mut Vec<Shape>) -> Vec<Shape> {
    let mut shapes = Vec::new();
    let mut ends = Vec::new();
    for reference in &panel.references {
        let dashed = Look::stroked(frame.theme.faint_ink(), 1.2, DASH);
        let (places, look) = match reference {
            Reference::Level { y, .. } => (level(*y, frame), dashed),
            Reference::Slope { through, exponent, .. } => (slope(*through, *exponent, frame), dashed),
            Reference::Roof { slope, most, slope_label, .. } => {
                labels.extend(along(slope_label, *slope, *most, frame));
                (roof(*slope, *most, frame), Look::stroked(frame.theme.faint_ink(), 1.6, &[]))
            }
        };
        let Some(end) = places.last().copied() else { continue };
        shapes.push(Shape::through(places, look));
        if end.x > frame.figures.right - 1.0 {
            ends.push((end.y, label_at_frame(reference)));
        } else {
            // It leaves through the upper edge, where its label only fits inside.
            let places = [(7.0, Anchor::Start), (-14.0, Anchor::End)];
            let places = places.map(|(x, anchor)| (Pos::new(end.x + x, end.y + SIZE + 4.0), anchor));
            labels.extend(taken.put(
                label_at_frame(reference),
                &places,
                frame.theme.faint_ink(),
                frame.theme.background(),
            ));
        }
    }
    shapes.extend(names(&ends, frame));
    shapes
}

fn names(ends: &[(f64, &str)], frame: &Frame) -> Vec<Shape> {
    let Rect { top, right, bottom, .. } = frame.figures;
    let heights: Vec<f64> = ends.iter().map(|(height, _)| *height).collect();
    let heights = spread(&heights, APART, top, bottom);
    let name = |(&(_, label), &height): (&(f64, &str), &f64)| {
        let label = font::shorten(label, MOST_LABEL_WIDTH, SIZE, Weight::Regular);
        let at = Pos::new(right + BLANK, height + 0.36 * SIZE);
        Shape::Text(Text::new(label, at, Anchor::Start, SIZE, frame.theme.faint_ink()))
    };
    ends.iter().zip(&heights).map(name).collect()
}

/// The points of a line; none if it is outside.
fn level(y: f64, frame: &Frame) -> Vec<Pos> {
    let height = frame.y.place(y);
    let place = |height: f64| [frame.figures.left, frame.figures.right].map(|x| Pos::new(x, height));
    height.into_iter().flat_map(place).collect()
}

/// A power is a straight line on logarithmic axes; two points define it.
fn slope(through: [f64; 2], exponent: f64, frame: &Frame) -> Vec<Pos> {
    let at = |factor: f64| {
        let (x, y) = (through[0] * factor, through[1] * factor.powf(exponent));
        Some(Pos::new(frame.x.place(x)?, frame.y.place(y)?))
    };
    let (Some(one), Some(other)) = (at(1.0), at(2.0)) else { return Vec::new() };
    let steepness = (other.y - one.y) / (other.x - one.x);
    let at_edge = |x: f64| Pos::new(x, one.y + (x - one.x) * steepness);
    let inside = frame.figures.clip(at_edge(frame.figures.left), at_edge(frame.figures.right));
    inside.into_iter().flatten().collect()
}

/// Up to the ridge, and on to the right edge.
fn roof(steepness: f64, most: f64, frame: &Frame) -> Vec<Pos> {
    let Some(level) = frame.y.place(most) else { return Vec::new() };
    let ridge = most / steepness;
    let start = slope([ridge, most], 1.0, frame).first().copied();
    let ends = [Pos::new(frame.x.clamped(ridge), level), Pos::new(frame.figures.right, level)];
    start.into_iter().chain(ends).collect()
}

/// A label along the rising part of a roof, above its centre.
fn along(label: &str, steepness: f64, most: f64, frame: &Frame) -> Option<Shape> {
    let [from, to, _] = roof(steepness, most, frame)[..] else { return None };
    let (dx, dy) = (to.x - from.x, to.y - from.y);
    let length = dx.hypot(dy);
    let label = font::shorten(label, 0.9 * length, SIZE, Weight::Regular);
    let away = Pos::new(dy / length * 6.0, -dx / length * 6.0);
    let at = Pos::new((from.x + to.x) / 2.0 + away.x, (from.y + to.y) / 2.0 + away.y);
    let text = Text::new(label, at, Anchor::Middle, SIZE, frame.theme.faint_ink());
    let text = Text { rotation: dy.atan2(dx).to_degrees(), ..text }.halo(frame.theme.background());
    (length > SHORTEST && !text.text.is_empty()).then_some(Shape::Text(text))
}

/// Draws highlighted ranges in the background; their labels go to `labels`.
pub(crate) fn highlights(
    highlights: &[Highlight],
    frame: &Frame,
    taken: &mut Occupied,
    labels: &mut Vec<Shape>,
) -> Vec<Shape> {
    let Rect { top, bottom, .. } = frame.figures;
    let mut shapes = Vec::new();
    for highlight in highlights {
        let Some(at) = frame.x.place(highlight.at) else { continue };
        if let Some(ends) = highlight.interval.filter(|ends| ends.iter().all(|end| !end.is_nan())) {
            let [left, right] = ends.map(|end| frame.x.clamped(end));
            shapes.push(Shape::filled(Rect { left, top, right, bottom }, frame.theme.shade()));
        }
        let upright = vec![Pos::new(at, top), Pos::new(at, bottom)];
        shapes.push(Shape::through(upright, Look::stroked(frame.theme.ink(), 1.2, &[])));
        let rows = (0..12).map(|row| top + 16.0 + f64::from(row) * 18.0);
        let places: Vec<(Pos, Anchor)> =
            rows.flat_map(|y| [(Pos::new(at + 7.0, y), Anchor::Start), (Pos::new(at - 7.0, y), Anchor::End)]).collect();
        labels.extend(taken.put(&highlight.label, &places, frame.theme.ink(), frame.theme.background()));
    }
    shapes
}
