//! Points and rectangles of a picture, from its upper left corner.

/// A point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Pos {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

impl Pos {
    pub(crate) const fn new(x: f64, y: f64) -> Self {
        Self { x, y }
    }
}

/// A rectangle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rect {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

impl Rect {
    pub(crate) fn corners(self) -> Vec<Pos> {
        let Self { left, top, right, bottom } = self;
        vec![Pos::new(left, top), Pos::new(right, top), Pos::new(right, bottom), Pos::new(left, bottom)]
    }

    pub(crate) fn width(self) -> f64 {
        self.right - self.left
    }

    pub(crate) fn height(self) -> f64 {
        self.bottom - self.top
    }

    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        self.left <= other.left && other.right <= self.right && self.top <= other.top && other.bottom <= self.bottom
    }

    /// The part of a straight line inside the rectangle; none if there is none.
    pub(crate) fn clip(self, from: Pos, to: Pos) -> Option<[Pos; 2]> {
        let (dx, dy) = (to.x - from.x, to.y - from.y);
        let sides = [
            (-dx, from.x - self.left),
            (dx, self.right - from.x),
            (-dy, from.y - self.top),
            (dy, self.bottom - from.y),
        ];
        let (mut enter, mut leave) = (0.0_f64, 1.0_f64);
        for (step, space) in sides {
            if step < 0.0 {
                enter = enter.max(space / step);
            } else if step > 0.0 {
                leave = leave.min(space / step);
            } else if space < 0.0 {
                return None;
            }
        }
        let place = |share: f64| Pos::new(from.x + share * dx, from.y + share * dy);
        (enter <= leave).then(|| [place(enter), place(leave)])
    }

    /// The same rectangle, smaller by the same amount on every side.
    pub(crate) fn inset(self, by: f64) -> Self {
        Self { left: self.left + by, top: self.top + by, right: self.right - by, bottom: self.bottom - by }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: Rect = Rect { left: 0.0, top: 0.0, right: 10.0, bottom: 10.0 };

    #[test]
    fn a_line_is_clipped_at_both_edges() {
        let cut = UNIT.clip(Pos::new(-10.0, -10.0), Pos::new(20.0, 20.0)).unwrap();
        assert_eq!(cut, [Pos::new(0.0, 0.0), Pos::new(10.0, 10.0)]);
    }

    #[test]
    fn a_line_outside_is_clipped_away() {
        assert_eq!(UNIT.clip(Pos::new(-5.0, 20.0), Pos::new(5.0, 20.0)), None);
        assert_eq!(UNIT.clip(Pos::new(-5.0, 4.0), Pos::new(4.0, -5.0)), None);
    }
}
