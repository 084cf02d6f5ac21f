//! Replacements without the feature `on`: types of size zero, so that marked code compiles unchanged.

use std::marker::PhantomData;

mod sealed {
    pub trait Sealed {}
}

/// A type that can be a field of a stage: an integer, a float, a boolean or a string.
pub trait Field: sealed::Sealed {}

macro_rules! fields {
    ($($type:ty),*) => {$(
        impl sealed::Sealed for $type {}
        impl Field for $type {}
    )*};
}
fields!(i8, i16, i32, i64, isize, u8, u16, u32, u64, usize, f32, f64, bool, str, String);

impl<T: Field + ?Sized> sealed::Sealed for &T {}
impl<T: Field + ?Sized> Field for &T {}
impl<T: Field> sealed::Sealed for Option<T> {}
impl<T: Field> Field for Option<T> {}
impl sealed::Sealed for std::borrow::Cow<'_, str> {}
impl Field for std::borrow::Cow<'_, str> {}

#[doc(hidden)]
pub fn check_field(_: &(impl Field + ?Sized)) {}

#[doc(hidden)]
pub fn check_lane(_: &impl crate::OnLane) {}

/// The guard of a stage; empty, since recording is compiled out.
///
/// Like the recording version it is not `Send`, so that code that compiles off also compiles on.
#[must_use = "a stage ends when its guard is dropped; bind it, as in `let _stage = stage!(…)`"]
#[derive(Debug)]
pub struct Span(PhantomData<*const ()>);

impl Span {
    /// A guard of a stage that is not recorded.
    #[inline(always)]
    pub const fn none() -> Self {
        Self(PhantomData)
    }

    /// Ends the stage here instead of at the end of the scope.
    #[inline(always)]
    pub fn end(self) {}
}

/// The guard of a stage on a [`Lane`]; also empty.
pub type LaneSpan = Span;

/// A track in addition to the threads; empty, since recording is compiled out.
#[derive(Debug, Clone)]
pub struct Lane;

impl Lane {
    /// A host lane.
    #[inline(always)]
    pub fn host(_name: &str) -> Self {
        Self
    }
}

/// Carries the current recording to another thread; empty, since recording is compiled out.
#[derive(Debug, Clone)]
pub struct Handle;

impl Handle {
    /// Would record this thread's stages while the guard lives; does nothing here.
    #[inline(always)]
    pub fn enter(&self) -> Entered {
        Entered(PhantomData)
    }
}

/// The guard of [`Handle::enter`].
#[must_use]
#[derive(Debug)]
pub struct Entered(PhantomData<*const ()>);

/// The handle of the current recording; empty here.
#[inline(always)]
pub fn handle() -> Handle {
    Handle
}

/// Whether anything records: always false.
#[inline(always)]
pub const fn recording() -> bool {
    false
}

/// Would pause all recording while the guard lives; does nothing here.
#[inline(always)]
pub fn pause() -> Paused {
    Paused(())
}

/// The guard of [`pause`].
#[must_use]
#[derive(Debug)]
pub struct Paused(());
