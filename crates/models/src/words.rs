//! Enums with a word for each variant, as users write it and results show it.

use crate::ModelError;

/// Declares an enum with a word for each variant. With a noun for messages, it implements `FromStr`.
macro_rules! words {
    (
        $(#[$attribute:meta])*
        $vis:vis enum $name:ident $(($noun:literal))? {
            $($(#[$of_variant:meta])* $variant:ident = $word:literal,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        $vis enum $name {
            $($(#[$of_variant])* $variant,)*
        }

        impl $name {
            /// All of them, in order.
            pub const ALL: [Self; Self::WORDS.len()] = [$(Self::$variant),*];

            /// The words of all of them.
            pub const WORDS: &[&str] = &[$($word),*];

            /// Its word.
            pub const fn word(self) -> &'static str {
                Self::WORDS[self as usize]
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }

        $(impl std::str::FromStr for $name {
            type Err = $crate::ModelError;

            fn from_str(text: &str) -> Result<Self, $crate::ModelError> {
                $crate::words::position(Self::WORDS, text, $noun).map(|at| Self::ALL[at])
            }
        })?
    };
}

pub(crate) use words;

/// The index of a word, in any case and with `-` for `_`.
pub fn position(words: &[&str], text: &str, noun: &str) -> Result<usize, ModelError> {
    let plain = |word: &str| word.to_ascii_lowercase().replace('_', "-");
    let found = words.iter().position(|word| plain(word) == plain(text));
    let known = || format!("there is no {noun} `{text}`, expected one of {}", words.join(", "));
    found.ok_or_else(|| ModelError::Refused(known()))
}
