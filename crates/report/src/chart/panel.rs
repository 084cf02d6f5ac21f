//! One panel: the ranges of its axes, and everything in it from back to front.

use super::axis::{Range, can_draw};
use super::{
    Content, Panel, Point, Quantity, Reading, Reference, Scale, Theme, bars, failures, frame::frame, geometry::Rect,
    labels::Occupied, legend::Names, lines, picture::Shape, references,
};

/// Draws a panel in a cell of the picture.
pub(crate) fn draw(panel: &Panel, has_title: bool, cell: Rect, names: &Names<'_>, theme: Theme) -> Vec<Shape> {
    let Some((frame, mut shapes)) = frame(panel, has_title, cell, theme) else { return Vec::new() };
    let mut taken = Occupied::new(frame.figures.inset(2.0));
    // Points occupy their areas first: no label may cover one.
    if let Content::Lines(lines) = &panel.content {
        lines::occupy_markers(lines, &frame, &mut taken);
    }
    let mut labels = Vec::new();
    shapes.extend(references::highlights(&panel.highlights, &frame, &mut taken, &mut labels));
    shapes.extend(references::lines(panel, &frame, &mut taken, &mut labels));
    match &panel.content {
        Content::Lines(lines) => shapes.extend(lines::draw(lines, panel, names, &frame, &mut taken, &mut labels)),
        Content::Bars(bars) => shapes.extend(bars::draw(bars, panel.y.quantity, names, &frame)),
    }
    shapes.extend(failures::draw(&panel.content, names, &frame));
    shapes.extend(labels);
    shapes
}

/// Whether a panel has a value that can be drawn.
pub(crate) fn has_values(panel: &Panel) -> bool {
    match &panel.content {
        Content::Lines(lines) => lines.iter().flat_map(|line| &line.points).any(|point| figure(point, panel).is_some()),
        Content::Bars(bars) => {
            let readings = bars.series.iter().flat_map(|series| &series.readings);
            readings.clone().any(|reading| value(reading, panel.y.scale).is_some())
        }
    }
}

/// The value of a point that can be drawn on both axes.
pub(crate) fn figure(point: &Point, panel: &Panel) -> Option<f64> {
    value(&point.reading, panel.y.scale).filter(|_| can_draw(point.x, panel.x.scale))
}

/// The value of a reading that can be drawn.
pub(crate) fn value(reading: &Reading, scale: Scale) -> Option<f64> {
    match *reading {
        Reading::Measured { value, .. } => Some(value).filter(|&value| can_draw(value, scale)),
        Reading::Missing | Reading::Failed(_) => None,
    }
}

/// The range of the horizontal axis: all measured and failed cases, and the references.
pub(crate) fn range_x(panel: &Panel) -> Option<Range> {
    let lines = match &panel.content {
        Content::Bars(bars) => return Some(Range { low: 0.0, high: bars.groups.len().max(1) as f64 }),
        Content::Lines(lines) => lines,
    };
    let is_shown = |point: &&Point| figure(point, panel).is_some() || matches!(point.reading, Reading::Failed(_));
    let points = lines.iter().flat_map(|line| line.points.iter().filter(is_shown)).map(|point| point.x);
    let ridges = panel.references.iter().filter_map(|reference| match reference {
        Reference::Roof { slope, most, .. } => Some(most / slope),
        _ => None,
    });
    let highlights = panel.highlights.iter().map(|highlight| highlight.at);
    let range = Range::of(points.clone().chain(ridges).chain(highlights), panel.x.scale)?;
    let is_counted = panel.x.quantity == Quantity::Count && panel.x.scale == Scale::Linear;
    Some(if is_counted { range.within_a_step(points.filter(|&x| can_draw(x, Scale::Linear))) } else { range })
}

/// The range of the vertical axis.
pub(crate) fn range_y(panel: &Panel) -> Option<Range> {
    let readings: Vec<&Reading> = match &panel.content {
        Content::Lines(lines) => {
            let points = lines.iter().flat_map(|line| &line.points);
            points.filter(|point| figure(point, panel).is_some()).map(|point| &point.reading).collect()
        }
        Content::Bars(bars) => bars.series.iter().flat_map(|series| &series.readings).collect(),
    };
    let measured = readings.into_iter().flat_map(|reading| match *reading {
        Reading::Measured { value, interval } => {
            let [low, high] = interval.unwrap_or([value, value]);
            [value, low, high]
        }
        _ => [f64::NAN; 3],
    });
    let of_references = panel.references.iter().map(|reference| match reference {
        Reference::Level { y, .. } => *y,
        Reference::Slope { through, .. } => through[1],
        Reference::Roof { most, .. } => *most,
    });
    let is_bars = matches!(panel.content, Content::Bars(_));
    let zero = is_bars.then_some(0.0);
    let range = Range::of(measured.chain(of_references).chain(zero), panel.y.scale)?;
    Some(match panel.y.scale {
        Scale::Linear => {
            let range = range.down_to_zero();
            // Bars have their values above them.
            let space = if is_bars { 0.06 * (range.high - range.low) } else { 0.0 };
            Range { high: range.high + space, ..range }
        }
        Scale::Log => range,
    })
}
