//! A note: one line under an answer. `laptime explain ID` prints its rule.

use std::fmt;

/// One line under an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The id that `laptime explain` takes, in kebab case.
    pub id: &'static str,
    /// What was seen and what to do, as one clause without a full stop.
    pub text: String,
    /// Whether it only informs: people see it with `--verbose` alone.
    pub is_minor: bool,
}

impl Note {
    /// A note that people always see.
    pub fn new(id: &'static str, text: impl Into<String>) -> Self {
        Self { id, text: text.into(), is_minor: false }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.text, self.id)
    }
}

/// A count with its noun: `plural(2, "lap is", "laps are")` is `2 laps are`.
pub fn plural<N: Copy + fmt::Display + TryInto<u64>>(count: N, one: &str, many: &str) -> String {
    let is_one = count.try_into().is_ok_and(|count| count == 1);
    format!("{count} {}", if is_one { one } else { many })
}

/// The first few names, and how many more there are: `a, b and 3 more`.
pub fn first_few(names: impl IntoIterator<Item = String>, most: usize) -> String {
    let mut names: Vec<String> = names.into_iter().collect();
    let more = names.len().saturating_sub(most);
    names.truncate(most);
    let listed = names.join(", ");
    if more == 0 { listed } else { format!("{listed} and {more} more") }
}

/// A sentence with a capital first letter.
pub fn capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
