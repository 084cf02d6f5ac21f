//! Fields: integers, floats, booleans and strings, encoded as words.

use std::borrow::Cow;

use crate::ring::Push;
use crate::word::{LONGEST_STRING, string_words};

/// The type of a recorded field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FieldKind {
    /// There was no value (`None`).
    Absent = 0,
    /// A signed integer.
    Int = 1,
    /// An unsigned integer.
    Uint = 2,
    /// A floating-point number.
    Float = 3,
    /// A boolean.
    Bool = 4,
    /// A string.
    Str = 5,
}

impl FieldKind {
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        [Self::Absent, Self::Int, Self::Uint, Self::Float, Self::Bool, Self::Str].get(bits as usize).copied()
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A type that can be a field of a stage: an integer, a float, a boolean or a string.
pub trait Field: sealed::Sealed {
    /// The type it is recorded as.
    #[doc(hidden)]
    fn kind(&self) -> FieldKind;

    /// The number of words.
    #[doc(hidden)]
    fn words(&self) -> u64;

    #[doc(hidden)]
    fn put(&self, push: &mut Push<'_>);
}

macro_rules! one_word {
    ($kind:ident, $value:ident => $word:expr; $($type:ty),*) => {$(
        impl sealed::Sealed for $type {}
        impl Field for $type {
            #[inline(always)]
            fn kind(&self) -> FieldKind {
                FieldKind::$kind
            }
            #[inline(always)]
            fn words(&self) -> u64 {
                1
            }
            #[inline(always)]
            fn put(&self, push: &mut Push<'_>) {
                let $value = *self;
                push.word($word);
            }
        }
    )*};
}
one_word!(Int, value => value as i64 as u64; i8, i16, i32, i64, isize);
one_word!(Uint, value => value as u64; u8, u16, u32, u64, usize);
one_word!(Float, value => f64::from(value).to_bits(); f32);
one_word!(Float, value => value.to_bits(); f64);
one_word!(Bool, value => u64::from(value); bool);

/// Truncates a string to its maximum length, at a character boundary.
fn kept(text: &str) -> &[u8] {
    if text.len() <= LONGEST_STRING {
        return text.as_bytes();
    }
    let end = (0..=LONGEST_STRING).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text.as_bytes()[..end]
}

impl sealed::Sealed for str {}
impl Field for str {
    fn kind(&self) -> FieldKind {
        FieldKind::Str
    }

    fn words(&self) -> u64 {
        string_words(kept(self).len())
    }

    fn put(&self, push: &mut Push<'_>) {
        string_as_words(self, |word| push.word(word));
    }
}

/// Passes on the length and the bytes of a string, word by word.
pub(crate) fn string_as_words(text: &str, mut word: impl FnMut(u64)) {
    let bytes = kept(text);
    word(bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut filled = [0; 8];
        filled[..chunk.len()].copy_from_slice(chunk);
        word(u64::from_le_bytes(filled));
    }
}

macro_rules! by_reference {
    ($([$($generics:tt)*] $type:ty, $value:ident => $inner:expr;)*) => {$(
        impl<$($generics)*> sealed::Sealed for $type {}
        impl<$($generics)*> Field for $type {
            #[inline(always)]
            fn kind(&self) -> FieldKind {
                let $value = self;
                $inner.kind()
            }
            #[inline(always)]
            fn words(&self) -> u64 {
                let $value = self;
                $inner.words()
            }
            #[inline(always)]
            fn put(&self, push: &mut Push<'_>) {
                let $value = self;
                $inner.put(push);
            }
        }
    )*};
}
by_reference! {
    [] String, value => value.as_str();
    [] Cow<'_, str>, value => value.as_ref();
    [T: Field + ?Sized] &T, value => (**value);
}

impl<T: Field> sealed::Sealed for Option<T> {}
impl<T: Field> Field for Option<T> {
    #[inline(always)]
    fn kind(&self) -> FieldKind {
        self.as_ref().map_or(FieldKind::Absent, Field::kind)
    }

    #[inline(always)]
    fn words(&self) -> u64 {
        self.as_ref().map_or(1, Field::words)
    }

    #[inline(always)]
    fn put(&self, push: &mut Push<'_>) {
        match self {
            Some(value) => value.put(push),
            None => push.word(0),
        }
    }
}

/// The fields of one event: a tuple of static types instead of a slice of trait objects.
#[doc(hidden)]
pub trait FieldTuple {
    /// The number of words of the shape and the fields.
    fn words(&self) -> u64;

    /// Writes the shape and the fields.
    fn put(&self, push: &mut Push<'_>);
}

impl FieldTuple for () {
    #[inline(always)]
    fn words(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn put(&self, _: &mut Push<'_>) {}
}

macro_rules! tuples {
    ($(($($name:ident $at:tt)+))*) => {$(
        impl<$($name: Field),+> FieldTuple for ($($name,)+) {
            #[inline(always)]
            fn words(&self) -> u64 {
                1 $(+ self.$at.words())+
            }

            #[inline(always)]
            fn put(&self, push: &mut Push<'_>) {
                push.word(0 $(| (self.$at.kind() as u64) << (4 * $at))+);
                $(self.$at.put(push);)+
            }
        }
    )*};
}
tuples! {
    (A 0)
    (A 0 B 1)
    (A 0 B 1 C 2)
    (A 0 B 1 C 2 D 3)
    (A 0 B 1 C 2 D 3 E 4)
    (A 0 B 1 C 2 D 3 E 4 F 5)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11 M 12)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11 M 12 N 13)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11 M 12 N 13 O 14)
}
