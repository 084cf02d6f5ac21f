//! The frame of a panel: axes, tick labels and grid lines.

use super::font::{self, Weight};
use super::geometry::{Pos, Rect};
use super::panel::{range_x, range_y};
use super::picture::{Anchor, Shape, Text};
use super::ticks::{Tick, Ticks, ticks};
use super::{Axis, Content, Panel, Scale, Theme, axis::Ruler, failures, references};

/// The size of numbers along an axis.
const TICK: f64 = 12.0;

/// The size of axis labels.
const LABEL: f64 = 13.0;

/// The size of the title of a panel.
const TITLE: f64 = 14.0;

/// The smallest distance of tick labels on the vertical axis.
const APART: f64 = 26.0;

/// The smallest blank between tick labels on the horizontal axis.
const BLANK: f64 = 12.0;

/// The plot area of a panel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Frame {
    /// Between the axes, including the strip of failed cases.
    pub(crate) plot: Rect,
    /// Below that strip.
    pub(crate) figures: Rect,
    pub(crate) x: Ruler,
    pub(crate) y: Ruler,
    pub(crate) theme: Theme,
}

/// Lays out the frame of a panel in a cell of the picture; none if there is nothing to draw.
pub(crate) fn frame(panel: &Panel, has_title: bool, cell: Rect, theme: Theme) -> Option<(Frame, Vec<Shape>)> {
    let (range_x, range_y) = (range_x(panel)?, range_y(panel)?);
    let top = cell.top + LABEL + 9.0 + if has_title { TITLE + 8.0 } else { 0.0 };
    let bottom = cell.bottom - TICK - LABEL - 18.0;
    let figures_top = top + failures::height(&panel.content);
    let y = Ruler::new(range_y, panel.y.scale, bottom, figures_top);
    let y_ticks = ticks(panel.y.quantity, panel.y.scale, range_y, |ticks| has_room(ticks, y));
    let widest = y_ticks.ticks.iter().map(|tick| text_width(&tick.label)).fold(0.0, f64::max);
    let left = cell.left + widest + 9.0;
    let right = cell.right - references::label_width(panel).max(14.0);
    let (x, x_ticks) = match &panel.content {
        Content::Lines(_) => {
            let x = Ruler::new(range_x, panel.x.scale, left, right);
            (x, ticks(panel.x.quantity, panel.x.scale, range_x, |ticks| is_legible(ticks, x, cell)))
        }
        // Groups of bars are evenly spaced.
        Content::Bars(bars) => {
            let x = Ruler::new(range_x, Scale::Linear, left, right);
            (x, words(&bars.groups, x, cell))
        }
    };
    let plot = Rect { left, top, right, bottom };
    let frame = Frame { plot, figures: Rect { top: figures_top, ..plot }, x, y, theme };
    let mut shapes = titles(panel, has_title, cell, &frame, [x_ticks.unit, y_ticks.unit]);
    frame.draw_x(&x_ticks, matches!(panel.content, Content::Lines(_)), cell, &mut shapes);
    frame.draw_y(&y_ticks, &mut shapes);
    Some((frame, shapes))
}

fn has_room(ticks: &[Tick], y: Ruler) -> bool {
    let places: Vec<f64> = ticks.iter().filter_map(|tick| y.place(tick.value)).collect();
    places.windows(2).all(|pair| (pair[1] - pair[0]).abs() >= APART)
}

fn is_legible(ticks: &[Tick], x: Ruler, cell: Rect) -> bool {
    let extents: Vec<[f64; 2]> = ticks.iter().filter_map(|tick| label_extent(tick, x, cell)).collect();
    extents.windows(2).all(|pair| pair[1][0] - pair[0][1] >= BLANK)
}

/// The start and end of a tick label: below the tick, but inside the cell.
fn label_extent(tick: &Tick, x: Ruler, cell: Rect) -> Option<[f64; 2]> {
    let (at, half) = (x.place(tick.value)?, text_width(&tick.label) / 2.0);
    let at = at.min(cell.right - half).max(cell.left + half);
    Some([at - half, at + half])
}

fn text_width(text: &str) -> f64 {
    font::width(text, TICK, Weight::Regular)
}

/// Labels below groups of bars; every second or third if they are too wide.
fn words(groups: &[String], x: Ruler, cell: Rect) -> Ticks {
    let word = |(at, group): (usize, &String)| Tick {
        value: at as f64 + 0.5,
        label: font::shorten(group, cell.width() / 2.0, TICK, Weight::Regular),
    };
    let all = |step: usize| groups.iter().enumerate().step_by(step.max(1)).map(word).collect::<Vec<Tick>>();
    let fitting = (1..groups.len()).map(all).find(|ticks| is_legible(ticks, x, cell));
    Ticks { ticks: fitting.unwrap_or_else(|| all(groups.len())), unit: "" }
}

fn titles(panel: &Panel, has_title: bool, cell: Rect, frame: &Frame, units: [&str; 2]) -> Vec<Shape> {
    let (ink, plot) = (frame.theme.ink(), frame.plot);
    let mut texts = Vec::new();
    if has_title {
        let title = font::shorten(&panel.title, cell.width(), TITLE, Weight::Bold);
        texts.push(Text::new(title, Pos::new(cell.left, cell.top + TITLE), Anchor::Start, TITLE, ink).bold());
    }
    let text = |axis: &Axis, unit: &str, space: f64| {
        let label = if unit.is_empty() { axis.label.to_owned() } else { format!("{} ({unit})", axis.label) };
        font::shorten(&label, space, LABEL, Weight::Regular)
    };
    let above = Pos::new(cell.left, plot.top - 9.0);
    texts.push(Text::new(text(&panel.y, units[1], cell.width()), above, Anchor::Start, LABEL, ink));
    let below = Pos::new((plot.left + plot.right) / 2.0, plot.bottom + TICK + LABEL + 11.0);
    texts.push(Text::new(text(&panel.x, units[0], plot.width()), below, Anchor::Middle, LABEL, ink));
    texts.into_iter().map(Shape::Text).collect()
}

impl Frame {
    fn draw_x(&self, ticks: &Ticks, has_lines: bool, cell: Rect, shapes: &mut Vec<Shape>) {
        let Rect { left, top, right, bottom } = self.plot;
        for (tick, at) in ticks.ticks.iter().filter_map(|tick| Some((tick, self.x.place(tick.value)?))) {
            if has_lines {
                shapes.push(Shape::line(Pos::new(at, top), Pos::new(at, bottom), self.theme.grid(), 1.0));
                shapes.push(Shape::line(Pos::new(at, bottom), Pos::new(at, bottom + 4.0), self.theme.axis(), 1.0));
            }
            let [from, to] = label_extent(tick, self.x, cell).unwrap_or([at, at]);
            let below = Pos::new((from + to) / 2.0, bottom + TICK + 5.0);
            shapes.push(Shape::Text(Text::new(&*tick.label, below, Anchor::Middle, TICK, self.theme.faint_ink())));
        }
        shapes.push(Shape::line(Pos::new(left, bottom), Pos::new(right, bottom), self.theme.axis(), 1.0));
    }

    fn draw_y(&self, ticks: &Ticks, shapes: &mut Vec<Shape>) {
        let Rect { left, right, .. } = self.plot;
        for (tick, at) in ticks.ticks.iter().filter_map(|tick| Some((tick, self.y.place(tick.value)?))) {
            shapes.push(Shape::line(Pos::new(left, at), Pos::new(right, at), self.theme.grid(), 1.0));
            let beside = Pos::new(left - 7.0, at + 0.36 * TICK);
            shapes.push(Shape::Text(Text::new(&*tick.label, beside, Anchor::End, TICK, self.theme.faint_ink())));
        }
    }
}
