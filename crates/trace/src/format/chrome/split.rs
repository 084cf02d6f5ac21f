//! Cuts a JSON trace into its events without reading it whole.
//!
//! The file is an array of events, or an object with such an array under `traceEvents`. One event at a time is
//! copied out, found by its braces; what an event holds is looked at elsewhere. The array may end without its
//! bracket: Chrome allows that, and a killed writer leaves it.

use std::io::{self, BufRead};

use crate::format::filled;

/// An event longer than this is taken for damage.
const LONGEST_EVENT: usize = 64 << 20;

/// How the file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With all its brackets.
    Whole,
    /// After an event, without its brackets.
    Unclosed,
    /// In the middle of an event.
    CutOff,
    /// In something that is no JSON, after this many bytes.
    Damaged(u64),
}

/// What the file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    Array,
    Object,
}

pub struct Splitter<R> {
    input: R,
    event: Vec<u8>,
    offset: u64,
    container: Option<Container>,
    /// Whether an array of events was found.
    pub found_events: bool,
    /// Values among the events that are none.
    pub no_events: u64,
    in_events: bool,
    end: Option<End>,
}

impl<R: BufRead> Splitter<R> {
    pub fn new(input: R) -> Self {
        Self {
            input,
            event: Vec::new(),
            offset: 0,
            container: None,
            found_events: false,
            no_events: 0,
            in_events: false,
            end: None,
        }
    }

    /// How the file ended; known once `next` has given none.
    pub fn end(&self) -> End {
        self.end.unwrap_or(End::CutOff)
    }

    /// The text of the next event.
    pub fn next(&mut self) -> io::Result<Option<&[u8]>> {
        while self.end.is_none() {
            if !self.in_events {
                self.seek_events()?;
                continue;
            }
            match self.skip_to_value()? {
                None => self.end = Some(End::Unclosed),
                Some(b']') => self.leave_events()?,
                Some(b'{') => {
                    if self.copy_value()? {
                        return Ok(Some(&self.event));
                    }
                }
                // Chrome's own arrays hold objects alone; anything else is passed over.
                Some(b',') => self.consume(1),
                Some(_) => {
                    self.copy_value()?;
                    self.no_events += 1;
                }
            }
        }
        Ok(None)
    }

    fn leave_events(&mut self) -> io::Result<()> {
        self.consume(1);
        self.in_events = false;
        if self.container == Some(Container::Array) {
            self.end = Some(End::Whole);
        }
        Ok(())
    }

    /// Goes to the array of events.
    fn seek_events(&mut self) -> io::Result<()> {
        match (self.container, self.skip_to_value()?) {
            (_, None) => self.end = Some(if self.found_events { End::Unclosed } else { End::CutOff }),
            (None, Some(b'[')) => {
                self.consume(1);
                self.container = Some(Container::Array);
                self.enter_events();
            }
            (None, Some(b'{')) => {
                self.consume(1);
                self.container = Some(Container::Object);
            }
            (Some(Container::Object), Some(b'}')) => self.end = Some(End::Whole),
            (Some(Container::Object), Some(b',')) => self.consume(1),
            (Some(Container::Object), Some(b'"')) => self.member()?,
            _ => self.damaged(),
        }
        Ok(())
    }

    fn enter_events(&mut self) {
        self.in_events = true;
        self.found_events = true;
    }

    /// Reads a key, and either enters its array of events or passes over its value.
    fn member(&mut self) -> io::Result<()> {
        if !self.copy_value()? {
            return Ok(());
        }
        let is_events = self.event == b"\"traceEvents\"";
        if self.skip_to_value()? != Some(b':') {
            self.damaged();
            return Ok(());
        }
        self.consume(1);
        match self.skip_to_value()? {
            Some(b'[') if is_events => {
                self.consume(1);
                self.enter_events();
            }
            Some(_) => {
                self.skip_value()?;
            }
            None => self.end = Some(End::CutOff),
        }
        Ok(())
    }

    fn damaged(&mut self) {
        self.end = Some(End::Damaged(self.offset));
    }

    /// Passes over white space (and a byte-order mark) and shows the next byte.
    fn skip_to_value(&mut self) -> io::Result<Option<u8>> {
        loop {
            let (skipped, found) = {
                let buffer = self.buffer()?;
                if buffer.is_empty() {
                    return Ok(None);
                }
                let is_skipped = |byte: &&u8| byte.is_ascii_whitespace() || matches!(byte, 0xef | 0xbb | 0xbf | 0x0b);
                let skipped = buffer.iter().take_while(is_skipped).count();
                (skipped, buffer.get(skipped).copied())
            };
            self.consume(skipped);
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Copies one value; false if the file ended in it.
    fn copy_value(&mut self) -> io::Result<bool> {
        self.event.clear();
        self.walk_value(true)
    }

    fn skip_value(&mut self) -> io::Result<bool> {
        self.walk_value(false)
    }

    fn walk_value(&mut self, copy: bool) -> io::Result<bool> {
        let mut walk = Walk::default();
        loop {
            let (used, done, is_end) = {
                let buffer = filled(&mut self.input)?;
                let (used, done) = walk.over(buffer);
                if copy {
                    self.event.extend_from_slice(&buffer[..used]);
                }
                (used, done, buffer.is_empty())
            };
            self.consume(used);
            if done {
                return Ok(true);
            }
            if is_end {
                self.end = Some(End::CutOff);
                return Ok(false);
            }
            if self.event.len() > LONGEST_EVENT {
                self.damaged();
                return Ok(false);
            }
        }
    }

    fn buffer(&mut self) -> io::Result<&[u8]> {
        filled(&mut self.input)
    }

    fn consume(&mut self, count: usize) {
        self.input.consume(count);
        self.offset += count as u64;
    }
}

/// Where in a value the walk is; nothing is kept but the depth, so depth costs no memory.
#[derive(Debug, Default)]
struct Walk {
    depth: u64,
    in_string: bool,
    escaped: bool,
    started: bool,
}

impl Walk {
    /// Walks over some bytes: how many belong to the value, and whether it ended with them.
    fn over(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while at < bytes.len() {
            if self.in_string && !self.escaped {
                // Most bytes of a trace are in strings.
                let Some(skip) = memchr::memchr2(b'"', b'\\', &bytes[at..]) else { return (bytes.len(), false) };
                at += skip;
            }
            let byte = bytes[at];
            if !self.started || self.depth > 0 || self.in_string {
                self.started = true;
                at += 1;
                if self.step(byte) {
                    return (at, true);
                }
            } else if matches!(byte, b',' | b']' | b'}') || byte.is_ascii_whitespace() {
                return (at, true);
            } else {
                at += 1;
            }
        }
        (at, false)
    }

    /// Takes one byte; true if it ends the value.
    fn step(&mut self, byte: u8) -> bool {
        if self.in_string {
            if self.escaped {
                self.escaped = false;
            } else if byte == b'\\' {
                self.escaped = true;
            } else if byte == b'"' {
                self.in_string = false;
                return self.depth == 0;
            }
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn split(text: &str, buffer: usize) -> (Vec<String>, End) {
        let mut splitter = Splitter::new(BufReader::with_capacity(buffer, text.as_bytes()));
        let mut events = Vec::new();
        while let Some(event) = splitter.next().unwrap() {
            events.push(String::from_utf8(event.to_vec()).unwrap());
        }
        (events, splitter.end())
    }

    #[test]
    fn events_are_found_in_arrays_and_objects_whatever_the_buffer() {
        let array = r#" [ {"a":"}]\"{"} , {"b":{"c":[1,{}]}} ] "#;
        let object =
            r#"{"x":[1,{"traceEvents":[{}]}],"s":"a\\","traceEvents":[{"a":"}]\"{"},{"b":{"c":[1,{}]}}],"n":1}"#;
        let expected = vec![r#"{"a":"}]\"{"}"#.to_owned(), r#"{"b":{"c":[1,{}]}}"#.to_owned()];
        for buffer in 1..40 {
            assert_eq!(split(array, buffer), (expected.clone(), End::Whole));
            assert_eq!(split(object, buffer), (expected.clone(), End::Whole));
        }
    }

    #[test]
    fn a_missing_bracket_loses_nothing_and_half_an_event_is_told() {
        assert_eq!(split(r#"[{"a":1},{"b":2}"#, 8), (vec![r#"{"a":1}"#.into(), r#"{"b":2}"#.into()], End::Unclosed));
        assert_eq!(split(r#"[{"a":1},{"b":"#, 8), (vec![r#"{"a":1}"#.into()], End::CutOff));
    }

    #[test]
    fn what_is_no_json_is_told_with_its_place() {
        assert_eq!(split("{nonsense", 8).1, End::Damaged(1));
        assert_eq!(split(r#"{"a" 1}"#, 8).1, End::Damaged(5));
    }

    #[test]
    fn values_that_are_no_events_are_passed_over() {
        assert_eq!(split(r#"[null, 12, "text", [1], {"a":1}, true]"#, 5), (vec![r#"{"a":1}"#.into()], End::Whole));
    }
}
