//! A picture that is laid out: outlines, areas, circles and text, each with its place and colour.
//!
//! This is all that SVG and PNG know of a chart, so they cannot differ.

use super::{font::Weight, geometry::At, geometry::Rect};

/// A picture.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Picture {
    /// What it shows, for those who cannot see it.
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) background: Colour,
    /// From back to front.
    pub(crate) shapes: Vec<Shape>,
}

/// One thing of a picture.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    /// Straight lines from place to place.
    Path { places: Vec<At>, is_closed: bool, look: Look },
    /// Straight lines apart from each other.
    Lines { ends: Vec<[At; 2]>, look: Look },
    /// A circle.
    Circle { centre: At, radius: f64, look: Look },
    /// A line of text.
    Text(Text),
    /// Words that are shown when the shapes are pointed at. Only SVG has them.
    Titled { title: String, shapes: Vec<Shape> },
}

/// How a path or a circle looks.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Look {
    pub(crate) fill: Option<Colour>,
    pub(crate) stroke: Option<Stroke>,
}

/// How an outline looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stroke {
    pub(crate) colour: Colour,
    pub(crate) width: f64,
    /// Lengths of dashes and of the blanks between them; empty for a whole line.
    pub(crate) dash: &'static [f32],
}

/// A colour and how much of it covers what is behind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Colour {
    pub(crate) red: u8,
    pub(crate) green: u8,
    pub(crate) blue: u8,
    pub(crate) cover: f64,
}

impl Colour {
    pub(crate) const fn rgb(rgb: u32) -> Self {
        Self { red: (rgb >> 16) as u8, green: (rgb >> 8) as u8, blue: rgb as u8, cover: 1.0 }
    }

    pub(crate) const fn cover(self, cover: f64) -> Self {
        Self { cover, ..self }
    }
}

/// A line of text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Text {
    /// Where its base line begins, has its middle or ends.
    pub(crate) at: At,
    pub(crate) anchor: Anchor,
    pub(crate) size: f64,
    pub(crate) weight: Weight,
    pub(crate) colour: Colour,
    /// Degrees by which it is turned around its place, clockwise.
    pub(crate) turn: f64,
    /// A colour around the letters, for text on lines.
    pub(crate) halo: Option<Colour>,
    pub(crate) text: String,
}

/// Which part of a text its place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Look {
    pub(crate) fn filled(colour: Colour) -> Self {
        Self { fill: Some(colour), stroke: None }
    }

    pub(crate) fn stroked(colour: Colour, width: f64, dash: &'static [f32]) -> Self {
        Self { fill: None, stroke: Some(Stroke { colour, width, dash }) }
    }
}

impl Shape {
    /// A straight line.
    pub(crate) fn line(from: At, to: At, colour: Colour, width: f64) -> Self {
        Self::Path { places: vec![from, to], is_closed: false, look: Look::stroked(colour, width, &[]) }
    }

    /// A filled rectangle.
    pub(crate) fn filled(rect: Rect, colour: Colour) -> Self {
        Self::Path { places: rect.corners(), is_closed: true, look: Look::filled(colour) }
    }

    /// Lines through places.
    pub(crate) fn through(places: Vec<At>, look: Look) -> Self {
        Self::Path { places, is_closed: false, look }
    }

    /// Lines through places and back to the first.
    pub(crate) fn around(places: Vec<At>, look: Look) -> Self {
        Self::Path { places, is_closed: true, look }
    }
}

impl Text {
    /// A line of text of ordinary weight, not turned.
    pub(crate) fn new(text: impl Into<String>, at: At, anchor: Anchor, size: f64, colour: Colour) -> Self {
        Self { at, anchor, size, weight: Weight::Regular, colour, turn: 0.0, halo: None, text: text.into() }
    }

    pub(crate) fn bold(self) -> Self {
        Self { weight: Weight::Bold, ..self }
    }

    pub(crate) fn halo(self, colour: Colour) -> Self {
        Self { halo: Some(colour), ..self }
    }
}
