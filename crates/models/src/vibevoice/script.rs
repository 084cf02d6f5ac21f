//! Scripts of several speakers.

use std::path::Path;

use crate::{ModelError, error::ensure, folder::read_text};

/// The default script.
const BUILT_IN: &str = "Speaker 1: Welcome back. Today we look at where the time of a model goes.
Speaker 2: And why moving a layer takes longer than running it.
Speaker 1: Let us measure it, then.
";

/// Lines of several speakers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The lines, in order.
    pub lines: Vec<Line>,
    /// The speaker numbers in the script, in order of first appearance.
    pub speakers: Vec<u32>,
}

/// A line of one speaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The speaker, as an index of [`Script::speakers`].
    pub speaker: usize,
    /// The text.
    pub text: String,
}

impl Script {
    /// A short talk of two speakers.
    pub fn built_in() -> Self {
        Self::parse(BUILT_IN).unwrap_or(Self { lines: Vec::new(), speakers: Vec::new() })
    }

    /// The script of a file.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let text = read_text(path)?;
        Self::parse(&text).map_err(|error| ModelError::Refused(format!("`{}`: {error}", path.display())))
    }

    /// Reads lines `Speaker N: text`, case-insensitive. A line without a speaker continues the one before.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let mut script = Self { lines: Vec::new(), speakers: Vec::new() };
        let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        for (at, line) in lines.filter(|(_, line)| !line.is_empty()) {
            match (spoken(line), script.lines.last_mut()) {
                (Some((number, text)), _) => {
                    let speaker = script.speaker(number);
                    script.lines.push(Line { speaker, text: text.to_owned() });
                }
                (None, Some(last)) => last.text = format!("{} {line}", last.text).trim().to_owned(),
                (None, None) => {
                    let reason = format!("line {at} has no speaker, expected `Speaker 1: text`");
                    return Err(ModelError::Refused(reason));
                }
            }
        }
        ensure!(!script.lines.is_empty(), "the script has no lines `Speaker 1: text`");
        let empty = script.lines.iter().find(|line| line.text.is_empty()).map(|line| script.speakers[line.speaker]);
        ensure!(empty.is_none(), "a line of speaker {} has no text", empty.unwrap_or_default());
        Ok(script)
    }

    fn speaker(&mut self, number: u32) -> usize {
        self.speakers.iter().position(|known| *known == number).unwrap_or_else(|| {
            self.speakers.push(number);
            self.speakers.len() - 1
        })
    }
}

/// The speaker and the text of a line.
fn spoken(line: &str) -> Option<(u32, &str)> {
    let (name, text) = line.split_once(':')?;
    let (word, number) = name.trim().split_once(char::is_whitespace)?;
    let number = number.trim().parse().ok()?;
    word.eq_ignore_ascii_case("speaker").then_some((number, text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speakers_are_listed_in_order_of_first_appearance() {
        let script = Script::parse("Speaker 3: Hello: you.\n\n speaker 1 :  Hi.\nand more\nSpeaker 3: Bye.\n").unwrap();
        assert_eq!(script.speakers, [3, 1]);
        let said: Vec<(usize, &str)> = script.lines.iter().map(|line| (line.speaker, line.text.as_str())).collect();
        assert_eq!(said, [(0, "Hello: you."), (1, "Hi. and more"), (0, "Bye.")]);
        assert_eq!(Script::built_in().speakers, [1, 2]);
    }

    #[test]
    fn invalid_scripts_are_refused() {
        let refused = |text: &str| Script::parse(text).unwrap_err().to_string();
        assert_eq!(refused("\nHello."), "line 2 has no speaker, expected `Speaker 1: text`");
        assert_eq!(refused(" \n"), "the script has no lines `Speaker 1: text`");
        assert_eq!(refused("Speaker 2:\nSpeaker 1: Hi."), "a line of speaker 2 has no text");
        let error = Script::read(Path::new("/nowhere/it.txt")).unwrap_err().to_string();
        assert_eq!(error, "cannot open `/nowhere/it.txt`");
    }
}
