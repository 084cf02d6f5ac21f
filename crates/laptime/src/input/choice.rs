//! Flags with named choices, and flags that exclude others.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// A value of a flag: its word, its help, and its meaning.
pub type Choice<T> = (&'static str, &'static str, T);

/// A parser for one of these words.
pub fn one_of<T: Copy + Send + Sync>(choices: &'static [Choice<T>]) -> impl TypedValueParser<Value = T> {
    let words = choices.iter().map(|(word, help, _)| PossibleValue::new(*word).help(*help));
    let value = |word: String| choices.iter().find(|(known, ..)| *known == word).map(|(.., value)| *value);
    PossibleValuesParser::new(words).map(move |word| value(word).expect("no other word is accepted"))
}

pub fn first_given<const N: usize>(flags: [(&'static str, bool); N]) -> Option<&'static str> {
    flags.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
}
