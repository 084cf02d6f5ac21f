//! [`Screen`] wraps standard output and standard error, so that hostile names cannot control the terminal.
//!
//! Names from traces, paths and arguments may contain control characters. `Screen` prints them as escapes. Tables are
//! not escaped again (the report has escaped their names, and their colours are ours), nor are machine formats in a pipe.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};

use laptime_report::visible_lines;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    Prose,
    /// A table for people, escaped already.
    Table,
    /// A machine format: escaped only on a terminal.
    Data,
}

#[derive(Debug)]
pub struct Screen<W> {
    to: W,
    is_terminal: bool,
}

thread_local! {
    static CONTENT: Cell<Content> = const { Cell::new(Content::Prose) };
}

pub fn stdout() -> Screen<io::Stdout> {
    // Not locked: threads of a workload may print too and would deadlock.
    Screen { to: io::stdout(), is_terminal: io::stdout().is_terminal() }
}

pub fn stderr() -> Screen<io::Stderr> {
    Screen { to: io::stderr(), is_terminal: io::stderr().is_terminal() }
}

/// Sets the kind of what `write` writes.
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
    /// Clears the current line of a terminal.
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
    fn prose_is_always_escaped_and_data_only_on_a_terminal() {
        assert_eq!([true, false].map(|terminal| written(terminal, Content::Prose)), [ESCAPED; 2]);
        assert_eq!([true, false].map(|terminal| written(terminal, Content::Data)), [ESCAPED, HOSTILE]);
        assert_eq!([true, false].map(|terminal| written(terminal, Content::Table)), [HOSTILE; 2]);
    }

    #[test]
    fn prose_is_escaped_again_after_a_table_failed() {
        let failed = std::panic::catch_unwind(|| with(Content::Table, || panic!("no table")));
        assert!(failed.is_err());
        assert_eq!(CONTENT.get(), Content::Prose);
    }

    #[test]
    fn invalid_utf8_is_printed_as_escapes() {
        let mut screen = Screen { to: Vec::new(), is_terminal: true };
        screen.write_all(b"a\xffb\x9b2J").unwrap();
        assert_eq!(screen.to, b"a\\xffb\\x9b2J");
    }
}
