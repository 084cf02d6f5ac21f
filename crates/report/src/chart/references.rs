//! Lines that figures are held against, and stretches that mean something.

use super::{
    Panel, Reference, Stretch,
    font::{self, Weight},
    frame::Frame,
    geometry::At,
    geometry::Rect,
    labels::{SIZE, Taken, spread},
    picture::{Anchor, Look, Shape, Text},
};

/// The dashes of references, finer than those of lines.
const DASH: &[f32] = &[4.0, 3.0];

/// The blank between the frame and a name beside it.
const BLANK: f64 = 6.0;

/// Names beside the frame are at least so far apart.
const APART: f64 = 15.0;

/// Names beside the frame take this share of the panel at most.
const MOST_BESIDE: f64 = 90.0;

/// The width of the names that stand to the right of the frame.
pub(crate) fn width_beside(panel: &Panel) -> f64 {
    let widths = panel.references.iter().filter_map(beside).map(|label| font::width(label, SIZE, Weight::Regular));
    widths.map(|width| width.min(MOST_BESIDE) + BLANK + 2.0).fold(0.0, f64::max)
}

fn beside(reference: &Reference) -> Option<&str> {
    match reference {
        Reference::Level { label, .. } | Reference::Slope { label, .. } => Some(label),
        Reference::Roof { .. } => None,
    }
}

/// Draws references; names that stand inside go to `words`.
pub(crate) fn lines(panel: &Panel, frame: &Frame, taken: &mut Taken, words: &mut Vec<Shape>) -> Vec<Shape> {
    let mut shapes = Vec::new();
    let mut ends = Vec::new();
    for reference in &panel.references {
        let drawn = match reference {
            Reference::Level { y, .. } => level(*y, frame),
            Reference::Slope { through, exponent, .. } => slope(*through, *exponent, frame),
            Reference::Roof { slope, most, slope_label, label } => {
                shapes.extend(roof([*slope, *most], [slope_label, label], frame, taken, words));
                None
            }
        };
        if let Some([from, to]) = drawn {
            shapes.push(Shape::through(vec![from, to], Look::stroked(frame.theme.faint_ink(), 1.2, DASH)));
            let label = beside(reference).unwrap_or_default();
            if to.x > frame.figures.right - 1.0 {
                ends.push((to.y, label));
            } else {
                // It leaves through the upper edge, where its name has room only inside.
                let places = [(7.0, Anchor::Start), (-14.0, Anchor::End)];
                let places = places.map(|(x, anchor)| (At::new(to.x + x, to.y + SIZE + 4.0), anchor));
                words.extend(taken.put(label, &places, frame.theme.faint_ink(), frame.theme.background()));
            }
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
        let label = font::shorten(label, MOST_BESIDE, SIZE, Weight::Regular);
        let at = At::new(right + BLANK, height + 0.36 * SIZE);
        Shape::Text(Text::new(label, at, Anchor::Start, SIZE, frame.theme.faint_ink()))
    };
    ends.iter().zip(&heights).map(name).collect()
}

fn level(y: f64, frame: &Frame) -> Option<[At; 2]> {
    let height = frame.y.place(y)?;
    Some([At::new(frame.figures.left, height), At::new(frame.figures.right, height)])
}

/// A power is a straight line between axes of ratios; two of its points say where it runs.
fn slope(through: [f64; 2], exponent: f64, frame: &Frame) -> Option<[At; 2]> {
    let at = |factor: f64| {
        let (x, y) = (through[0] * factor, through[1] * factor.powf(exponent));
        Some(At::new(frame.x.place(x)?, frame.y.place(y)?))
    };
    let (one, other) = (at(1.0)?, at(2.0)?);
    let (dx, dy) = (other.x - one.x, other.y - one.y);
    let at_edge = |x: f64| At::new(x, one.y + (x - one.x) / dx * dy);
    frame.figures.clip(at_edge(frame.figures.left), at_edge(frame.figures.right))
}

fn roof(
    [slope, most]: [f64; 2],
    [slope_label, label]: [&str; 2],
    frame: &Frame,
    taken: &mut Taken,
    words: &mut Vec<Shape>,
) -> Vec<Shape> {
    let Some(level) = frame.y.place(most) else { return Vec::new() };
    let (ink, right) = (frame.theme.faint_ink(), frame.figures.right);
    let ridge = At::new(frame.x.held(most / slope), level);
    let mut shapes = vec![Shape::line(ridge, At::new(right, level), ink, 1.6)];
    let rising = self::slope([most / slope, most], 1.0, frame);
    if let Some([from, _]) = rising.filter(|_| !slope_label.is_empty()) {
        shapes.push(Shape::line(from, ridge, ink, 1.6));
        words.push(along(slope_label, from, ridge, frame));
    }
    let above = |x: f64| (At::new(x, level - 5.0), Anchor::End);
    let below = |x: f64| (At::new(x, level + SIZE + 3.0), Anchor::End);
    let (end, middle) = (right - 4.0, (right + ridge.x) / 2.0);
    let places = [above(end), below(end), above(middle), below(middle)];
    words.extend(taken.put(label, &places, ink, frame.theme.background()));
    shapes
}

/// A name along a rising line, above it and near its middle.
fn along(label: &str, from: At, to: At, frame: &Frame) -> Shape {
    let (dx, dy) = (to.x - from.x, to.y - from.y);
    let length = dx.hypot(dy);
    let label = font::shorten(label, 0.9 * length, SIZE, Weight::Regular);
    let away = if length > 0.0 { At::new(dy / length * 6.0, -dx / length * 6.0) } else { At::new(0.0, 0.0) };
    let at = At::new((from.x + to.x) / 2.0 + away.x, (from.y + to.y) / 2.0 + away.y);
    let text = Text::new(label, at, Anchor::Middle, SIZE, frame.theme.faint_ink());
    Shape::Text(Text { turn: dy.atan2(dx).to_degrees(), ..text }.halo(frame.theme.background()))
}

/// Draws stretches behind everything; their names go to `words`.
pub(crate) fn stretches(stretches: &[Stretch], frame: &Frame, taken: &mut Taken, words: &mut Vec<Shape>) -> Vec<Shape> {
    let Rect { top, bottom, .. } = frame.figures;
    let mut shapes = Vec::new();
    for stretch in stretches {
        let Some(at) = frame.x.place(stretch.at) else { continue };
        if let Some(ends) = stretch.interval.filter(|ends| ends.iter().all(|end| !end.is_nan())) {
            let [left, right] = ends.map(|end| frame.x.held(end));
            shapes.push(Shape::filled(Rect { left, top, right, bottom }, frame.theme.shade()));
        }
        let upright = vec![At::new(at, top), At::new(at, bottom)];
        shapes.push(Shape::through(upright, Look::stroked(frame.theme.ink(), 1.2, &[])));
        let rows = (0..12).map(|row| top + 16.0 + f64::from(row) * 18.0);
        let places: Vec<(At, Anchor)> =
            rows.flat_map(|y| [(At::new(at + 7.0, y), Anchor::Start), (At::new(at - 7.0, y), Anchor::End)]).collect();
        words.extend(taken.put(&stretch.label, &places, frame.theme.ink(), frame.theme.background()));
    }
    shapes
}
