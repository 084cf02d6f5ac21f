//! Colours, markers, dashes and hatchings, so that lines differ in more than colour.
//!
//! The colours are those of Okabe and Ito, which colour-blind readers can distinguish; colours that are too faint on a
//! background are left out there.

use super::geometry::{Pos, Rect};
use super::picture::{Colour, Look, Shape, Stroke};

/// The background of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Theme {
    /// Dark on white.
    Light,
    /// Light on nearly black.
    Dark,
}

const BLUE: u32 = 0x00_72_b2;
const VERMILION: u32 = 0xd5_5e_00;
const GREEN: u32 = 0x00_9e_73;
const PURPLE: u32 = 0xcc_79_a7;
const ORANGE: u32 = 0xe6_9f_00;
const SKY: u32 = 0x56_b4_e9;
const YELLOW: u32 = 0xf0_e4_42;

const ON_LIGHT: [u32; 7] = [BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, 0x00_00_00];
const ON_DARK: [u32; 7] = [SKY, ORANGE, GREEN, PURPLE, YELLOW, VERMILION, 0xde_de_de];

/// From the second round of colours on, markers and dashes differ: their numbers have no common factor.
const DASHES: [&[f32]; 5] = [&[], &[7.0, 3.0], &[2.5, 2.5], &[9.0, 3.0, 2.5, 3.0], &[14.0, 4.0]];

impl Theme {
    pub(crate) fn background(self) -> Colour {
        self.pick(0xff_ff_ff, 0x14_16_1a)
    }

    /// The colour of titles and names.
    pub(crate) fn ink(self) -> Colour {
        self.pick(0x1a_1a_1a, 0xec_ec_ec)
    }

    /// The colour of ticks and references.
    pub(crate) fn faint_ink(self) -> Colour {
        self.pick(0x55_55_55, 0xb4_b8_be)
    }

    /// The colour of grid lines.
    pub(crate) fn grid(self) -> Colour {
        self.pick(0xe3_e3_e3, 0x30_34_3a)
    }

    /// The colour of axes.
    pub(crate) fn axis(self) -> Colour {
        self.pick(0x8a_8a_8a, 0x70_76_7e)
    }

    /// The colour of highlighted ranges.
    pub(crate) fn shade(self) -> Colour {
        self.pick(0xf0_e4_42, 0xf0_e4_42).opacity(if self == Self::Light { 0.35 } else { 0.18 })
    }

    fn pick(self, light: u32, dark: u32) -> Colour {
        Colour::rgb(if self == Self::Light { light } else { dark })
    }
}

/// The style of a name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Style {
    pub(crate) colour: Colour,
    pub(crate) dash: &'static [f32],
    marker: usize,
    behind: Colour,
}

/// The index of a style, from 0: the colour belongs to the subject, the rest to the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StyleIndex {
    pub(crate) colour: usize,
    pub(crate) shape: usize,
}

/// The line width.
const LINE: f64 = 2.0;

/// The radius of markers.
pub(crate) const MARKER: f64 = 4.5;

impl Style {
    /// The style of a name.
    pub(crate) fn of(number: StyleIndex, theme: Theme) -> Self {
        let colours = if theme == Theme::Light { ON_LIGHT } else { ON_DARK };
        Self {
            colour: Colour::rgb(colours[number.colour % colours.len()]),
            dash: DASHES[number.shape % DASHES.len()],
            marker: number.shape % MARKERS,
            behind: theme.background(),
        }
    }

    pub(crate) fn line(self) -> Look {
        Look::stroked(self.colour, LINE, self.dash)
    }

    /// The area of an interval.
    pub(crate) fn band(self) -> Look {
        Look::filled(self.colour.opacity(0.2))
    }

    /// A marker at a position.
    pub(crate) fn marker(self, at: Pos, is_hollow: bool) -> Shape {
        let fill = if is_hollow { self.behind } else { self.colour };
        let stroke = Stroke { colour: self.colour, width: 1.5, dash: &[] };
        let look = Look { fill: Some(fill), stroke: Some(stroke) };
        match corners(self.marker) {
            Some(corners) => {
                let place = |(x, y): &(f64, f64)| Pos::new(at.x + x * MARKER, at.y + y * MARKER);
                Shape::around(corners.iter().map(place).collect(), look)
            }
            None => Shape::Circle { centre: at, radius: 0.85 * MARKER, look },
        }
    }

    /// A bar: filled, and hatched by its index.
    pub(crate) fn bar(self, rect: Rect) -> Vec<Shape> {
        let mut shapes = vec![Shape::filled(rect, self.colour)];
        let look = Look::stroked(self.behind.opacity(0.75), 1.2, &[]);
        let ends = hatching(self.marker, rect);
        shapes.extend((!ends.is_empty()).then_some(Shape::Lines { ends, look }));
        shapes
    }
}

const MARKERS: usize = 6;

/// The corners of a marker in units of its size; none for a circle.
fn corners(marker: usize) -> Option<&'static [(f64, f64)]> {
    match marker {
        1 => Some(&[(-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)]),
        2 => Some(&[(0.0, -1.0), (0.95, 0.75), (-0.95, 0.75)]),
        3 => Some(&[(0.0, -1.1), (1.1, 0.0), (0.0, 1.1), (-1.1, 0.0)]),
        4 => Some(&[(0.0, 1.0), (0.95, -0.75), (-0.95, -0.75)]),
        5 => Some(&[(0.0, -1.05), (1.0, -0.3), (0.65, 0.9), (-0.65, 0.9), (-1.0, -0.3)]),
        _ => None,
    }
}

/// The distance between lines of a hatching.
const HATCH: f64 = 7.0;

fn hatching(number: usize, rect: Rect) -> Vec<[Pos; 2]> {
    let (width, height) = (rect.width(), rect.height());
    let steps = |length: f64| (1..).map(|step| f64::from(step) * HATCH).take_while(move |at| *at < length);
    let level = |at: f64| [Pos::new(rect.left, rect.bottom - at), Pos::new(rect.right, rect.bottom - at)];
    let upright = |at: f64| [Pos::new(rect.left + at, rect.top), Pos::new(rect.left + at, rect.bottom)];
    let rising = |at: f64| [Pos::new(rect.left, rect.bottom - at), Pos::new(rect.left + at, rect.bottom)];
    let falling = |at: f64| [Pos::new(rect.right, rect.bottom - at), Pos::new(rect.right - at, rect.bottom)];
    let lines: Vec<[Pos; 2]> = match number {
        0 => Vec::new(),
        1 => steps(width + height).map(falling).collect(),
        2 => steps(height).map(level).collect(),
        3 => steps(width + height).map(rising).collect(),
        4 => steps(width).map(upright).collect(),
        _ => steps(height).map(level).chain(steps(width).map(upright)).collect(),
    };
    lines.into_iter().filter_map(|[from, to]| rect.clip(from, to)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(number: usize, theme: Theme) -> Style {
        Style::of(StyleIndex { colour: number, shape: number }, theme)
    }

    #[test]
    fn forty_names_have_distinct_styles() {
        for theme in [Theme::Light, Theme::Dark] {
            let styles: Vec<Style> = (0..40).map(|number| style(number, theme)).collect();
            for (at, style) in styles.iter().enumerate() {
                assert!(!styles[..at].contains(style), "{at}");
            }
        }
    }

    #[test]
    fn consecutive_styles_differ_without_colour() {
        let styles: Vec<Style> = (0..8).map(|number| style(number, Theme::Light)).collect();
        for pair in styles.windows(2) {
            assert!(pair[0].dash != pair[1].dash && pair[0].marker != pair[1].marker);
        }
    }

    #[test]
    fn names_of_a_subject_share_only_the_colour() {
        let of = |shape| Style::of(StyleIndex { colour: 2, shape }, Theme::Light);
        let (one, other) = (of(2), of(3));
        assert_eq!(one.colour, other.colour);
        assert!(one.dash != other.dash && one.marker != other.marker);
    }

    #[test]
    fn a_hatching_stays_inside_its_bar() {
        let rect = Rect { left: 10.0, top: 20.0, right: 40.0, bottom: 90.0 };
        let outer = rect.inset(-1e-9);
        for number in 0..MARKERS {
            for [from, to] in hatching(number, rect) {
                assert!(outer.clip(from, to) == Some([from, to]), "{number}: {from:?} {to:?}");
            }
        }
    }
}
