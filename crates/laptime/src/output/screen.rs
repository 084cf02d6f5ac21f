//! The only way to the terminal: everything printed on standard output and standard error goes through [`Screen`].
//!
//! Names from traces, paths and arguments may hold characters that move the cursor, colour the screen or reverse text.
//! `Screen` shows them as escapes. Two kinds of content pass: tables, whose names the report has escaped already and which
//! bring their own colours, and machine formats, which must reach a pipe byte for byte.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};

use laptime_report::visible_lines;

/// What is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Sentences with names in them.
    Prose,
    /// A table for people: its names are escaped, and its colours are ours.
    Table,
    /// A machine format: unchanged, unless a terminal would interpret it.
    Data,
}

/// A stream that people may read.
#[derive(Debug)]
pub struct Screen<W> {
    to: W,
    is_terminal: bool,
}

thread_local! {
    static CONTENT: Cell<Content> = const { Cell::new(Content::Prose) };
}

/// Standard output.
pub fn stdout() -> Screen<io::Stdout> {
    // Not locked: the threads of a workload may print too, and would wait for ever.
    Screen { to: io::stdout(), is_terminal: io::stdout().is_terminal() }
}

/// Standard error.
pub fn stderr() -> Screen<io::Stderr> {
    Screen { to: io::stderr(), is_terminal: io::stderr().is_terminal() }
}

/// Says what `write` writes to a screen.
pub fn with<R>(content: Content, write: impl FnOnce() -> R) -> R {
    struct Reset(Content);
    impl Drop for Reset {
        fn drop(&mut self) {
            CONTENT.set(self.0);
        }
    }
    let _reset = Reset(CONTENT.replace(content));
    write()
}

impl<W: Write> Screen<W> {
    /// Clears the line that the cursor is in, if this is a terminal.
    pub fn clear_line(&mut self) -> io::Result<()> {
        if self.is_terminal { self.to.write_all(b"\r\x1b[K") } else { Ok(()) }
    }

    fn write_escaped(&mut self, bytes: &[u8]) -> io::Result<()> {
        for chunk in bytes.utf8_chunks() {
            self.to.write_all(visible_lines(chunk.valid()).as_bytes())?;
            chunk.invalid().iter().try_for_each(|byte| write!(self.to, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match CONTENT.get() {
            Content::Table => self.to.write_all(bytes)?,
            Content::Data if !self.is_terminal => self.to.write_all(bytes)?,
            Content::Data | Content::Prose => self.write_escaped(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\x1b[2J\u{9b}31m\u{202e}b\r\tc\n";
    const ESCAPED: &str = "a\\x1b[2J\\u{9b}31m\\u{202e}b\\r\tc\n";

    fn written(is_terminal: bool, content: Content) -> String {
        let mut screen = Screen { to: Vec::new(), is_terminal };
        with(content, || screen.write_all(HOSTILE.as_bytes()).unwrap());
        String::from_utf8(screen.to).unwrap()
    }

    #[test]
    fn prose_is_escaped_wherever_it_goes_and_data_only_on_a_terminal() {
        assert_eq!([true, false].map(|terminal| written(terminal, Content::Prose)), [ESCAPED; 2]);
        assert_eq!([true, false].map(|terminal| written(terminal, Content::Data)), [ESCAPED, HOSTILE]);
        assert_eq!([true, false].map(|terminal| written(terminal, Content::Table)), [HOSTILE; 2]);
    }

    #[test]
    fn after_a_table_prose_is_escaped_again_even_if_the_table_failed() {
        let failed = std::panic::catch_unwind(|| with(Content::Table, || panic!("no table")));
        assert!(failed.is_err());
        assert_eq!(CONTENT.get(), Content::Prose);
    }

    #[test]
    fn bytes_that_are_not_text_are_shown_as_escapes() {
        let mut screen = Screen { to: Vec::new(), is_terminal: true };
        screen.write_all(b"a\xffb\x9b2J").unwrap();
        assert_eq!(screen.to, b"a\\xffb\\x9b2J");
    }
}
