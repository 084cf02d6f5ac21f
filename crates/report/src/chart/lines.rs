//! Lines with their intervals and markers.

use super::labels::{Occupied, positions};
use super::picture::{Colour, Look, Shape};
use super::style::{MARKER, Style};
use super::{Line, Panel, Point, Reading, frame::Frame, geometry::Pos, legend::Names, panel::figure};

/// The smallest distance between markers of one line; those between are left out.
const APART: f64 = 7.0;

/// A line with denser points only has occasional markers.
const ROOM: f64 = 16.0;
const FAR_APART: f64 = 45.0;

/// Lines with more points are thinned to what each column of pixels shows.
const MANY: usize = 1_000;

/// A point that can be drawn.
struct Placed<'a> {
    point: &'a Point,
    at: Pos,
    /// The positions of its interval ends.
    interval: Option<[f64; 2]>,
}

/// Occupies the areas of all markers.
pub(crate) fn occupy_markers(lines: &[Line], frame: &Frame, taken: &mut Occupied) {
    for point in lines.iter().flat_map(|line| &line.points) {
        if let Reading::Measured { value, .. } = point.reading
            && let (Some(x), Some(y)) = (frame.x.place(point.x), frame.y.place(value))
        {
            taken.take(Pos::new(x, y), MARKER + 1.0);
        }
    }
}

/// Draws all lines, with intervals behind them; labels of points go to `labels`.
pub(crate) fn draw(
    lines: &[Line],
    panel: &Panel,
    names: &Names<'_>,
    frame: &Frame,
    taken: &mut Occupied,
    labels: &mut Vec<Shape>,
) -> Vec<Shape> {
    let (mut behind, mut front) = (Vec::new(), Vec::new());
    for line in lines {
        let style = Style::of(names.number(&line.name), frame.theme);
        for run in runs(line, panel, frame) {
            behind.extend(interval(&run, line.is_scatter, style));
            if !line.is_scatter && run.len() > 1 {
                let places = thinned(run.iter().map(|placed| placed.at).collect());
                front.push(Shape::through(places, style.line()));
            }
        }
        front.extend(markers(line, panel, frame, style));
    }
    for line in lines {
        for placed in line.points.iter().filter_map(|point| placed(point, panel, frame)) {
            let (ink, halo) = (frame.theme.ink(), frame.theme.background());
            labels.extend(taken.put(&placed.point.label, &positions(placed.at), ink, halo));
        }
    }
    behind.append(&mut front);
    behind
}

/// Consecutive points without a gap.
fn runs<'a>(line: &'a Line, panel: &Panel, frame: &Frame) -> Vec<Vec<Placed<'a>>> {
    let mut runs = vec![Vec::new()];
    for point in &line.points {
        match (placed(point, panel, frame), runs.last_mut()) {
            (Some(placed), Some(run)) => run.push(placed),
            _ => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

fn placed<'a>(point: &'a Point, panel: &Panel, frame: &Frame) -> Option<Placed<'a>> {
    let at = Pos::new(frame.x.place(point.x)?, frame.y.place(figure(point, panel)?)?);
    let interval = match point.reading {
        Reading::Measured { interval, .. } => interval.filter(|ends| ends.iter().all(|end| !end.is_nan())),
        _ => None,
    };
    Some(Placed { point, at, interval: interval.map(|ends| ends.map(|end| frame.y.clamped(end))) })
}

/// The intervals of consecutive points: an area over neighbours that have one, and a bar for single points. The area
/// ends where a point has no interval, because tapering to zero would look like an exact value.
fn interval(run: &[Placed<'_>], is_scatter: bool, style: Style) -> Vec<Shape> {
    let known: Vec<Option<(Pos, [f64; 2])>> = run.iter().map(|placed| Some((placed.at, placed.interval?))).collect();
    let segments = known.split(Option::is_none).map(|segment| segment.iter().flatten().copied().collect::<Vec<_>>());
    let mut shapes = Vec::new();
    for segment in segments {
        if is_scatter || segment.len() == 1 {
            shapes.extend(segment.iter().map(|(at, ends)| whisker(*at, *ends, style.colour, 1.2)));
        } else if !segment.is_empty() {
            let side = |end: usize| thinned(segment.iter().map(|(at, ends)| Pos::new(at.x, ends[end])).collect());
            let area = side(1).into_iter().chain(side(0).into_iter().rev()).collect();
            shapes.push(Shape::around(area, style.band()));
        }
    }
    shapes
}

/// An interval as a bar with ends.
pub(crate) fn whisker(at: Pos, [low, high]: [f64; 2], colour: Colour, width: f64) -> Shape {
    let place = |x: f64, y: f64| Pos::new(at.x + x, y);
    let places = [(-4.0, low), (4.0, low), (0.0, low), (0.0, high), (-4.0, high), (4.0, high)];
    let look = Look::stroked(colour, width, &[]);
    Shape::through(places.map(|(x, y)| place(x, y)).into(), look)
}

fn markers(line: &Line, panel: &Panel, frame: &Frame, style: Style) -> Vec<Shape> {
    let is_dense = line.points.len() as f64 * ROOM > frame.plot.width();
    let apart = if is_dense && !line.is_scatter { FAR_APART } else { APART };
    let mut last: Option<Pos> = None;
    let mut shapes = Vec::new();
    for placed in line.points.iter().filter_map(|point| placed(point, panel, frame)) {
        let at = placed.at;
        let is_near = last.is_some_and(|last| (last.x - at.x).abs() < apart && (last.y - at.y).abs() < apart);
        if is_near {
            continue;
        }
        last = Some(at);
        let marker = style.marker(at, placed.point.is_hollow);
        shapes.push(Shape::Titled { title: tooltip(line, placed.point, panel), shapes: vec![marker] });
    }
    shapes
}

/// The tooltip of a point.
fn tooltip(line: &Line, point: &Point, panel: &Panel) -> String {
    let Reading::Measured { value, interval } = point.reading else { return String::new() };
    let (x, y) = (panel.x.quantity, panel.y.quantity);
    let interval = interval.map(|[low, high]| format!(" [{}, {}]", y.text(low), y.text(high))).unwrap_or_default();
    format!("{}, {}: {}{interval}", line.name, x.text(point.x), y.text(value))
}

/// Keeps the first, highest, lowest and last point of each column of pixels.
fn thinned(places: Vec<Pos>) -> Vec<Pos> {
    if places.len() <= MANY {
        return places;
    }
    let columns = places.chunk_by(|one, other| one.x.floor() == other.x.floor());
    columns.flat_map(outermost).collect()
}

fn outermost(column: &[Pos]) -> Vec<Pos> {
    let by_height = |one: &&(usize, &Pos), other: &&(usize, &Pos)| one.1.y.total_cmp(&other.1.y);
    let places: Vec<(usize, &Pos)> = column.iter().enumerate().collect();
    let ends = [places.first(), places.iter().min_by(by_height), places.iter().max_by(by_height), places.last()];
    let mut kept: Vec<(usize, Pos)> = ends.into_iter().flatten().map(|(at, place)| (*at, **place)).collect();
    kept.sort_by_key(|(at, _)| *at);
    kept.dedup_by_key(|(at, _)| *at);
    kept.into_iter().map(|(_, place)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Theme, style::StyleIndex};

    #[test]
    fn an_area_ends_where_a_point_has_no_interval() {
        let point = Point::missing(0.0);
        let placed = |x: f64, interval| Placed { point: &point, at: Pos::new(x, 50.0), interval };
        let known = Some([60.0, 40.0]);
        let of = |run: &[Placed<'_>]| interval(run, false, Style::of(StyleIndex { colour: 0, shape: 0 }, Theme::Light));
        let alone = [placed(0.0, known), placed(1.0, None), placed(2.0, known)];
        assert_eq!(of(&alone).len(), 2, "a bar at either end and no area between");
        let shapes = of(&[placed(0.0, known), placed(1.0, known), placed(2.0, None)]);
        let [Shape::Path { places, .. }] = shapes.as_slice() else { panic!("{shapes:?}") };
        assert!(places.iter().all(|at| at.x <= 1.0 && at.y != 50.0), "{places:?}");
        assert!(of(&[placed(0.0, None), placed(1.0, None)]).is_empty());
    }

    #[test]
    fn thinning_keeps_what_a_column_of_pixels_shows() {
        let places: Vec<Pos> = (0..10_000).map(|at| Pos::new(f64::from(at) / 100.0, f64::from(at % 7))).collect();
        let thin = thinned(places.clone());
        assert!(thin.len() <= 400, "{}", thin.len());
        let heights = |places: &[Pos]| places.iter().filter(|at| at.x < 1.0).map(|at| at.y).fold(0.0, f64::max);
        assert_eq!((thin.first(), thin.last(), heights(&thin)), (places.first(), places.last(), heights(&places)));
    }
}
