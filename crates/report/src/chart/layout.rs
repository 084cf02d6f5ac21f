//! A chart as a picture: title, panels, legend, from top to bottom.

use super::font::{self, Weight};
use super::geometry::{Pos, Rect};
use super::legend::{self, Names};
use super::picture::{Anchor, Colour, Picture, Shape, Text};
use super::{Chart, Content, Panel, Theme, panel};

/// The width of every picture. Font sizes are chosen for it.
const WIDTH: f64 = 800.0;

/// The blank around everything.
const MARGIN: f64 = 18.0;

/// The blank between panels.
const BETWEEN: f64 = 20.0;

const TITLE: f64 = 18.0;
const SUBTITLE: f64 = 13.0;

/// Panels with more bars use the whole width.
const MANY_BARS: usize = 18;

/// Lays out a chart.
pub(crate) fn picture(chart: &Chart, theme: Theme) -> Picture {
    let names = Names::of(chart);
    let mut shapes = Vec::new();
    let mut top = MARGIN;
    let space = WIDTH - 2.0 * MARGIN;
    top = texts(&chart.title, TITLE, Weight::Bold, top, space, theme.ink(), &mut shapes);
    top = texts(&chart.subtitle, SUBTITLE, Weight::Regular, top + 3.0, space, theme.faint_ink(), &mut shapes);
    let (panels, bottom) = cells(&chart.panels, top + 14.0);
    for (panel, cell) in chart.panels.iter().zip(panels) {
        shapes.extend(panel::draw(panel, chart.panels.len() > 1, cell, &names, theme));
    }
    let below = Rect { left: MARGIN, top: bottom + 12.0, right: WIDTH - MARGIN, bottom: f64::INFINITY };
    let (legend, bottom) = legend::draw(chart, &names, below, theme);
    shapes.extend(legend);
    Picture {
        title: chart.title.clone(),
        description: chart.subtitle.clone(),
        width: WIDTH,
        height: (bottom + MARGIN - 4.0).round(),
        background: theme.background(),
        shapes,
    }
}

/// Writes lines of text below a height, and returns where they end.
fn texts(text: &str, size: f64, weight: Weight, top: f64, space: f64, colour: Colour, shapes: &mut Vec<Shape>) -> f64 {
    let lines = font::wrap(text, space, size, weight, 3);
    let mut top = top;
    for line in lines {
        let at = Pos::new(MARGIN, top + size);
        shapes.push(Shape::Text(Text { weight, ..Text::new(line, at, Anchor::Start, size, colour) }));
        top += 1.35 * size;
    }
    top
}

/// The cells of panels, in rows, and where the last row ends.
fn cells(panels: &[Panel], top: f64) -> (Vec<Rect>, f64) {
    let columns = if panels.len() < 2 || panels.iter().any(is_wide) { 1 } else { 2 };
    let height = match (panels.len(), columns) {
        (1, _) => 400.0,
        (_, 1) => 300.0,
        _ => 290.0,
    };
    let width = (WIDTH - 2.0 * MARGIN - BETWEEN * (columns - 1) as f64) / columns as f64;
    let cell = |at: usize| {
        let left = MARGIN + (at % columns) as f64 * (width + BETWEEN);
        let top = top + (at / columns) as f64 * (height + BETWEEN);
        Rect { left, top, right: left + width, bottom: top + height }
    };
    let cells: Vec<Rect> = (0..panels.len()).map(cell).collect();
    let bottom = cells.last().map_or(top, |cell| cell.bottom);
    (cells, bottom)
}

fn is_wide(panel: &Panel) -> bool {
    match &panel.content {
        Content::Lines(_) => false,
        Content::Bars(bars) => bars.groups.len() * bars.series.len() > MANY_BARS,
    }
}
