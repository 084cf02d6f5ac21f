//! Flags with a few words to choose from, and flags that exclude others.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A word that a flag takes, its help, and what it means.
pub type Choice<T> = (&'static str, &'static str, T);

/// Reads one of these words.
pub fn one_of<T: Copy + Send + Sync>(choices: &'static [Choice<T>]) -> impl TypedValueParser<Value = T> {
    let words = choices.iter().map(|(word, help, _)| PossibleValue::new(*word).help(*help));
    let value = |word: String| choices.iter().find(|(known, ..)| *known == word).map(|(.., value)| *value);
    PossibleValuesParser::new(words).map(move |word| value(word).expect("no other word is accepted"))
}

/// The first of these flags that was given.
pub fn first_given<const N: usize>(flags: [(&'static str, bool); N]) -> Option<&'static str> {
    flags.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
}
