//! What a stage can be put on, whether marks are compiled in or not.

use crate::Lane;

/// What a stage can be put on: a lane, or one that may be missing; without it the stage is the thread's alone.
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
