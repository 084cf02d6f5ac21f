//! Labels next to points and lines, where there is space.

use super::font::{self, Weight};
use super::geometry::{Pos, Rect};
use super::picture::{Anchor, Colour, Shape, Text};

/// The size of labels inside a panel.
pub(crate) const SIZE: f64 = 12.0;

/// The occupied areas of a panel.
#[derive(Debug)]
pub(crate) struct Occupied {
    inside: Rect,
    rects: Vec<Rect>,
}

/// The most labels that are placed: a panel holds far fewer.
const MOST: usize = 400;

impl Occupied {
    pub(crate) fn new(inside: Rect) -> Self {
        Self { inside, rects: Vec::new() }
    }

    /// Occupies the area around a point.
    pub(crate) fn take(&mut self, at: Pos, reach: f64) {
        if self.rects.len() < MOST {
            let (left, right) = (at.x - reach, at.x + reach);
            self.rects.push(Rect { left, top: at.y - reach, right, bottom: at.y + reach });
        }
    }

    /// Puts a label at the first free position, in front of everything and with a halo.
    pub(crate) fn put(&mut self, words: &str, places: &[(Pos, Anchor)], colour: Colour, halo: Colour) -> Option<Shape> {
        if words.is_empty() || self.rects.len() >= MOST {
            return None;
        }
        let words = font::shorten(words, 0.9 * self.inside.width(), SIZE, Weight::Regular);
        let width = font::width(&words, SIZE, Weight::Regular);
        let is_free = |rect: Rect| self.inside.contains(rect) && !self.rects.iter().any(|other| other.overlaps(rect));
        let free = places.iter().find(|(at, anchor)| is_free(space(*at, *anchor, width)));
        let (at, anchor) = *free?;
        self.rects.push(space(at, anchor, width));
        Some(Shape::Text(Text::new(words, at, anchor, SIZE, colour).halo(halo)))
    }
}

/// The blank between two labels.
const BLANK: f64 = 3.0;

/// The area of a line of text at a position of its base line, with a blank on both sides.
fn space(at: Pos, anchor: Anchor, width: f64) -> Rect {
    let left = match anchor {
        Anchor::Start => at.x,
        Anchor::Middle => at.x - width / 2.0,
        Anchor::End => at.x - width,
    };
    Rect { left: left - BLANK, top: at.y - 0.8 * SIZE, right: left + width + BLANK, bottom: at.y + 0.25 * SIZE }
}

/// The possible positions of a label around a point, the best first.
pub(crate) fn positions(at: Pos) -> [(Pos, Anchor); 8] {
    let place = |x: f64, y: f64, anchor| (Pos::new(at.x + x, at.y + y), anchor);
    [
        place(9.0, 4.0, Anchor::Start),
        place(-9.0, 4.0, Anchor::End),
        place(0.0, -9.0, Anchor::Middle),
        place(0.0, 17.0, Anchor::Middle),
        place(7.0, -7.0, Anchor::Start),
        place(7.0, 15.0, Anchor::Start),
        place(-7.0, -7.0, Anchor::End),
        place(-7.0, 15.0, Anchor::End),
    ]
}

/// Moves heights apart until neighbours have enough space, keeping their order if possible.
pub(crate) fn spread(heights: &[f64], apart: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..heights.len()).collect();
    order.sort_by(|&one, &other| heights[one].total_cmp(&heights[other]));
    let mut moved = heights.to_vec();
    let mut least = top;
    for &at in &order {
        moved[at] = moved[at].max(least);
        least = moved[at] + apart;
    }
    let mut most = bottom;
    for &at in order.iter().rev() {
        moved[at] = moved[at].min(most);
        most = moved[at] - apart;
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_overlap() {
        let mut taken = Occupied::new(Rect { left: 0.0, top: 0.0, right: 200.0, bottom: 100.0 });
        let ink = Colour::rgb(0);
        let places = positions(Pos::new(100.0, 50.0));
        let put: Vec<Option<Shape>> = (0..9).map(|_| taken.put("4096", &places, ink, ink)).collect();
        let first = put.iter().flatten().count();
        assert!((2..9).contains(&first), "{first}");
        for (at, one) in taken.rects.iter().enumerate() {
            assert!(!taken.rects[..at].iter().any(|other| other.overlaps(*one)));
        }
    }

    #[test]
    fn heights_that_are_too_close_are_moved_apart_in_order() {
        assert_eq!(spread(&[50.0, 48.0, 10.0], 14.0, 0.0, 100.0), [62.0, 48.0, 10.0]);
        assert_eq!(spread(&[98.0, 99.0], 14.0, 0.0, 100.0), [86.0, 100.0]);
    }
}
