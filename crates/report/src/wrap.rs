//! Prose broken into lines.

use crate::visible::{head, width};

/// Stands for a blank at which no line ends.
const NO_BREAK: &str = "\u{a0}";

/// Breaks a sentence into lines of at most `room` columns, between words where that is possible. A number and the `%`
/// behind it stay on one line.
pub fn wrap(sentence: &str, room: usize) -> Vec<String> {
    let sentence = sentence.replace(" %", &format!("{NO_BREAK}%"));
    let mut lines = vec![String::new()];
    let mut used = 0;
    for mut word in sentence.split(' ').filter(|word| !word.is_empty()) {
        if used > 0 && used + 1 + width(word) > room {
            lines.push(String::new());
            used = 0;
        }
        while width(word) > room {
            let first = word.chars().next().map_or(0, char::len_utf8);
            let (start, rest) = word.split_at(head(word, room).len().max(first));
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
    lines.into_iter().map(|line| line.replace(&format!("{NO_BREAK}%"), " %")).collect()
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
    fn a_number_and_its_per_cent_sign_stay_together() {
        assert_eq!(wrap("grew by 5 % now", 10), ["grew by", "5 % now"]);
    }
}
