//! A picture after layout: outlines, areas, circles and text, each with position and colour.
//!
//! SVG and PNG are both written from this, so they cannot differ.

use super::{font::Weight, geometry::Pos, geometry::Rect};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Picture {
    /// Its description, for screen readers.
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) background: Colour,
    /// From back to front.
    pub(crate) shapes: Vec<Shape>,
}

/// One element of a picture.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    /// Connected straight lines.
    Path { places: Vec<Pos>, is_closed: bool, look: Look },
    /// Separate straight lines.
    Lines { ends: Vec<[Pos; 2]>, look: Look },
    /// A circle.
    Circle { centre: Pos, radius: f64, look: Look },
    /// A line of text.
    Text(Text),
    /// A tooltip for some shapes. Only SVG has them.
    Titled { title: String, shapes: Vec<Shape> },
}

/// The style of a path or circle.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Look {
    pub(crate) fill: Option<Colour>,
    pub(crate) stroke: Option<Stroke>,
}

/// The style of an outline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stroke {
    pub(crate) colour: Colour,
    pub(crate) width: f64,
    /// The lengths of dashes and gaps; empty for a solid line.
    pub(crate) dash: &'static [f32],
}

/// A colour and its opacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Colour {
    pub(crate) red: u8,
    pub(crate) green: u8,
    pub(crate) blue: u8,
    pub(crate) opacity: f64,
}

impl Colour {
    pub(crate) const fn rgb(rgb: u32) -> Self {
        Self { red: (rgb >> 16) as u8, green: (rgb >> 8) as u8, blue: rgb as u8, opacity: 1.0 }
    }

    pub(crate) const fn opacity(self, opacity: f64) -> Self {
        Self { opacity, ..self }
    }
}

/// A line of text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Text {
    /// The start, centre or end of its base line.
    pub(crate) at: Pos,
    pub(crate) anchor: Anchor,
    pub(crate) size: f64,
    pub(crate) weight: Weight,
    pub(crate) colour: Colour,
    /// The rotation around its position in degrees, clockwise.
    pub(crate) rotation: f64,
    /// A colour around the letters, for text on lines.
    pub(crate) halo: Option<Colour>,
    pub(crate) text: String,
}

/// The alignment of a text.
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
    pub(crate) fn line(from: Pos, to: Pos, colour: Colour, width: f64) -> Self {
        Self::Path { places: vec![from, to], is_closed: false, look: Look::stroked(colour, width, &[]) }
    }

    /// A filled rectangle.
    pub(crate) fn filled(rect: Rect, colour: Colour) -> Self {
        Self::Path { places: rect.corners(), is_closed: true, look: Look::filled(colour) }
    }

    /// Connected lines.
    pub(crate) fn through(places: Vec<Pos>, look: Look) -> Self {
        Self::Path { places, is_closed: false, look }
    }

    /// A closed polygon.
    pub(crate) fn around(places: Vec<Pos>, look: Look) -> Self {
        Self::Path { places, is_closed: true, look }
    }
}

impl Text {
    /// A line of text in normal weight, not rotated.
    pub(crate) fn new(text: impl Into<String>, at: Pos, anchor: Anchor, size: f64, colour: Colour) -> Self {
        Self { at, anchor, size, weight: Weight::Regular, colour, rotation: 0.0, halo: None, text: text.into() }
    }

    pub(crate) fn bold(self) -> Self {
        Self { weight: Weight::Bold, ..self }
    }

    pub(crate) fn halo(self, colour: Colour) -> Self {
        Self { halo: Some(colour), ..self }
    }
}
