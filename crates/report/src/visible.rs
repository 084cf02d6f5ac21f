//! Names of any content as text that is safe and measurable on a terminal.
//!
//! Stage and kernel names come from other people's programs. Characters that
//! move the cursor, colour the screen, hide or reorder text are escaped, and
//! lengths are counted in terminal columns.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Marks a cut.
const ELLIPSIS: char = '…';

/// Replaces control, invisible and reordering characters with escapes.
pub fn visible(text: &str) -> Cow<'_, str> {
    escape(text, is_hidden)
}

/// Does the same for text of several lines: line ends and tabs stay.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    escape(text, |char| is_hidden(char) && !matches!(char, '\n' | '\t'))
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        match char {
            char if !is_escaped(char) => shown.push(char),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            char if char.is_ascii_control() => shown += &format!("\\x{:02x}", char as u32),
            char => shown += &format!("\\u{{{:x}}}", char as u32),
        }
    }
    Cow::Owned(shown)
}

/// Whether a character is a control, a line separator, a direction mark,
/// a zero-width space or not a character at all.
pub(crate) fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}')
        || matches!(char, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(char, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}')
        || matches!(char, '\u{e0000}'..='\u{e007f}')
}

/// Returns the width of a text in terminal columns.
pub(crate) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Cuts text to at most `limit` columns, with an ellipsis at the cut.
pub(crate) fn shorten(text: &str, limit: usize) -> Cow<'_, str> {
    // Every byte sequence of `limit` bytes or fewer fits: no character is
    // wider than it is long.
    if text.len() <= limit || width(text) <= limit {
        return Cow::Borrowed(text);
    }
    if limit == 0 {
        return Cow::Borrowed("");
    }
    let kept = head(text, limit - 1);
    Cow::Owned(format!("{}{ELLIPSIS}", kept.trim_end()))
}

/// Returns the longest beginning of the text that fits into `limit` columns.
pub(crate) fn head(text: &str, limit: usize) -> &str {
    let mut used = 0;
    let mut end = text.len();
    for (at, char) in text.char_indices() {
        used += char.width().unwrap_or(0);
        if used > limit {
            end = at;
            break;
        }
    }
    // A sequence can be wider than its parts (a sign made an emoji by what
    // follows it), so the sum is only a first guess.
    while width(&text[..end]) > limit {
        end = text.floor_char_boundary(end - 1);
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_stay_as_they_are() {
        let name = "décodage 層 🚀 <T as Trait>::call";
        assert!(matches!(visible(name), Cow::Borrowed(shown) if shown == name));
    }

    #[test]
    fn control_characters_are_shown_as_escapes() {
        assert_eq!(visible("a\nb\r\tc\0"), "a\\nb\\r\\tc\\x00");
        assert_eq!(visible("\u{1b}[31mred\u{9b}0m"), "\\x1b[31mred\\u{9b}0m");
    }

    #[test]
    fn line_ends_and_tabs_stay_in_text_of_several_lines() {
        assert_eq!(visible_lines("a\tb\nc\r\x1b[31m\u{9b}2J\u{202e}"), "a\tb\nc\\r\\x1b[31m\\u{9b}2J\\u{202e}");
    }

    #[test]
    fn characters_that_reorder_or_hide_text_are_shown_as_escapes() {
        assert_eq!(visible("a\u{202e}b\u{200b}"), "a\\u{202e}b\\u{200b}");
    }

    #[test]
    fn shortening_counts_columns_and_never_splits_a_character() {
        assert_eq!(shorten("attention", 9), "attention");
        assert_eq!(shorten("attention", 5), "atte…");
        assert_eq!(shorten("層層層", 4), "層…");
        assert_eq!(shorten("ab", 0), "");
    }

    #[test]
    fn an_emoji_made_by_a_variation_selector_counts_as_two() {
        assert_eq!(shorten("\u{2764}\u{fe0f}\u{2764}\u{fe0f}", 3), "\u{2764}\u{fe0f}…");
    }
}
