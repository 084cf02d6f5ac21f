//! Line breaking.

use crate::visible::{head, width};

/// Replaces a blank at which no line ends.
pub(crate) const NO_BREAK: &str = "\u{a0}";

/// What stays on the line of the number before it.
const UNITS: [&str; 14] =
    ["%", "ns", "µs", "ms", "s", "B", "KiB", "MiB", "GiB", "TiB", "GB", "GB/s", "GFLOP/s", "CPUs"];

/// Breaks a sentence into lines of at most `space` columns, between words if possible. A number and its unit stay on one
/// line.
pub fn wrap(sentence: &str, space: usize) -> Vec<String> {
    let sentence = with_units(sentence);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for mut word in sentence.split(' ').filter(|word| !word.is_empty()) {
        if used > 0 && used + 1 + width(word) > space {
            lines.push(String::new());
            used = 0;
        }
        while width(word) > space {
            let first = word.chars().next().map_or(0, char::len_utf8);
            let (start, rest) = word.split_at(head(word, space).len().max(first));
            lines.extend([start.to_owned(), String::new()]);
            word = rest;
        }
        let line = lines.last_mut().expect("there is always a last line");
        if used > 0 {
            line.push(' ');
        }
        line.push_str(word);
        used = width(line);
    }
    lines.retain(|line| !line.is_empty());
    lines.into_iter().map(|line| line.replace(NO_BREAK, " ")).collect()
}

/// The sentence with blanks that do not break between numbers and units.
fn with_units(sentence: &str) -> String {
    let mut text = String::with_capacity(sentence.len());
    for word in sentence.split(' ') {
        let unit = word.trim_end_matches(['.', ',', ';', ':', ')']);
        let is_unit = UNITS.contains(&unit) && text.ends_with(|last: char| last.is_ascii_digit());
        if !text.is_empty() {
            text.push_str(if is_unit { NO_BREAK } else { " " });
        }
        text.push_str(word);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_broken_between_words() {
        assert_eq!(wrap("one two three four", 9), ["one two", "three", "four"]);
    }

    #[test]
    fn a_word_longer_than_the_line_is_broken_anywhere() {
        assert_eq!(wrap("a bbbbbbb 層層 c", 3), ["a", "bbb", "bbb", "b", "層", "層", "c"]);
    }

    #[test]
    fn a_character_wider_than_the_line_does_not_stop_the_wrapping() {
        assert_eq!(wrap("層層", 1), ["層", "層"]);
    }

    #[test]
    fn a_number_and_its_unit_stay_together() {
        assert_eq!(wrap("grew by 5 % now", 10), ["grew by", "5 % now"]);
        assert_eq!(wrap("it took 43.2 ms.", 14), ["it took", "43.2 ms."]);
        assert_eq!(wrap("what the ms is", 12), ["what the ms", "is"]);
    }
}
