//! Comments that allow a host sync: `// sync: allowed, one read per token`.

use std::collections::BTreeMap;

/// The start of a comment that allows a host sync; a reason may follow.
pub const MARKER: &str = "sync: allowed";

/// The comments of a text that allow host syncs.
#[derive(Debug, Default)]
pub struct Markers {
    /// The reason for each line.
    reasons: BTreeMap<u32, String>,
}

impl Markers {
    /// Checks a comment, or the end of a line.
    pub fn read(&mut self, line: u32, comment: &str) {
        if let Some((_, reason)) = comment.split_once(MARKER) {
            let is_aside = |letter: char| letter.is_whitespace() || matches!(letter, '-' | '–' | '—' | ':' | ',' | ';');
            let reason = reason.trim_end().trim_end_matches("*/").trim_matches(is_aside);
            self.reasons.insert(line, reason.to_owned());
        }
    }

    /// Why a call is allowed: by a comment on its first or last line, or by one on a separate line above it or above
    /// its statement.
    pub fn reason(&self, text: &Lines<'_>, line: u32, last_line: u32, statement_line: u32) -> Option<String> {
        if self.reasons.is_empty() {
            return None;
        }
        let on = |line: u32| self.reasons.get(&line).cloned();
        on(line)
            .or_else(|| on(last_line))
            .or_else(|| self.above(text, line))
            .or_else(|| self.above(text, statement_line))
    }

    fn above(&self, text: &Lines<'_>, line: u32) -> Option<String> {
        let comments = (1..line).rev().take_while(|line| text.is_comment(*line));
        comments.filter_map(|line| self.reasons.get(&line)).next().cloned()
    }
}

#[derive(Debug)]
pub struct Lines<'t> {
    lines: Vec<&'t str>,
    comment: &'static str,
}

impl<'t> Lines<'t> {
    /// Splits a text whose comments begin with these characters.
    pub fn of(text: &'t str, comment: &'static str) -> Self {
        Self { lines: text.split('\n').collect(), comment }
    }

    pub fn count(&self) -> u32 {
        u32::try_from(self.lines.len()).unwrap_or(u32::MAX)
    }

    /// The lines from the given one on, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &'t str)> {
        (1..).zip(self.lines.iter().copied())
    }

    fn is_comment(&self, line: u32) -> bool {
        let at = line.checked_sub(1).map(|at| at as usize);
        at.and_then(|at| self.lines.get(at)).is_some_and(|line| line.trim_start().starts_with(self.comment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_follows_the_marker() {
        let reason = |comment: &str| {
            let mut markers = Markers::default();
            markers.read(1, comment);
            markers.reasons.remove(&1)
        };
        assert_eq!(reason("// sync: allowed — one read per token").as_deref(), Some("one read per token"));
        assert_eq!(reason("# sync: allowed: at the end\r").as_deref(), Some("at the end"));
        assert_eq!(reason("/* sync: allowed */").as_deref(), Some(""));
        assert_eq!(reason("// sync allowed"), None);
    }

    #[test]
    fn a_comment_applies_on_its_line_or_on_a_separate_line_above() {
        let text = "// sync: allowed, a\n// and more\nx();\ny(); // sync: allowed, b\nz();\n";
        let lines = Lines::of(text, "//");
        let mut markers = Markers::default();
        lines.iter().for_each(|(line, text)| markers.read(line, text));
        let reason = |line| markers.reason(&lines, line, line, line);
        assert_eq!(reason(3).as_deref(), Some("a"));
        assert_eq!(reason(4).as_deref(), Some("b"));
        assert_eq!(reason(5), None, "the comment of the line above is that line's own");
    }
}
