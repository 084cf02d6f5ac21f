//! Enums whose variants have names in tables and files.

/// Declares an enum with the text of each variant next to it. `pub enum Level: word { Good = "good", }` has a method
/// `word`; `pub enum Level: key, words { Good = ("good", "all is well"), }` has two; `pub enum Level, ALL: word` also
/// has a constant with all variants in order.
#[doc(hidden)]
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident $(, $all:ident)?: $get:ident {
        $($(#[$doc:meta])* $variant:ident = $word:expr,)*
    }) => {
        $(#[$meta])*
        #[allow(missing_docs, reason = "a variant without a comment means what its text says")]
        $vis enum $name { $($(#[$doc])* $variant,)* }
        $crate::words!(@all $vis $name [$($variant)*] [$($all)?]);
        $crate::words!(@get $vis $name $get [$($variant = $word,)*]);
    };
    ($(#[$meta:meta])* $vis:vis enum $name:ident $(, $all:ident)?: $first:ident, $second:ident {
        $($(#[$doc:meta])* $variant:ident = ($a:expr, $b:expr),)*
    }) => {
        $(#[$meta])*
        #[allow(missing_docs, reason = "a variant without a comment means what its text says")]
        $vis enum $name { $($(#[$doc])* $variant,)* }
        $crate::words!(@all $vis $name [$($variant)*] [$($all)?]);
        $crate::words!(@get $vis $name $first [$($variant = $a,)*]);
        $crate::words!(@get $vis $name $second [$($variant = $b,)*]);
    };
    (@all $vis:vis $name:ident [$($variant:ident)*] []) => {};
    (@all $vis:vis $name:ident [$($variant:ident)*] [$all:ident]) => {
        impl $name {
            /// All of them, in order.
            $vis const $all: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];
        }
    };
    (@get $vis:vis $name:ident $get:ident [$($variant:ident = $word:expr,)*]) => {
        impl $name {
            /// Its text in tables and files.
            $vis const fn $get(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}

/// Reads and prints an enum of [`words!`] by its word: the error of a word that is none of them, and the words to use.
macro_rules! read_by_word {
    ($name:ident, $error:ident, $is_no:literal) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }

        #[doc = concat!("A word is not ", $is_no, ".")]
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
        #[error("`{word}` is not {}", $is_no)]
        pub struct $error {
            word: String,
        }

        impl std::str::FromStr for $name {
            type Err = $error;

            fn from_str(word: &str) -> Result<Self, $error> {
                let known = Self::ALL.into_iter().find(|known| known.word() == word);
                known.ok_or_else(|| $error { word: word.to_owned() })
            }
        }
    };
}
pub(crate) use read_by_word;
