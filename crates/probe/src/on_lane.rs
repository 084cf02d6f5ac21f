//! The trait of `on = …`, with and without recording compiled in.

use crate::Lane;

/// A value for `on = …`: a lane or an optional lane. Without a lane the stage is only on its thread.
pub trait OnLane {
    /// The lane, if there is one.
    fn lane(&self) -> Option<&Lane>;
}

impl OnLane for Lane {
    fn lane(&self) -> Option<&Lane> {
        Some(self)
    }
}

impl<T: OnLane + ?Sized> OnLane for &T {
    fn lane(&self) -> Option<&Lane> {
        (**self).lane()
    }
}

impl<T: OnLane> OnLane for Option<T> {
    fn lane(&self) -> Option<&Lane> {
        self.as_ref().and_then(OnLane::lane)
    }
}
