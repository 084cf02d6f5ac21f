//! Parses a JSON trace in pieces of any size and finds its events, without storing the file.
//!
//! The file is an array of events, or an object with such an array under `traceEvents`; the other members are metadata
//! of the run. The array may end without its bracket: Chrome allows that, and a killed writer leaves such a file.

use hashbrown::DefaultHashBuilder;

use super::batch::{Batch, Stop};
use super::walk::Walk;
use crate::format::End;

/// A longer event counts as damage.
const LONGEST_EVENT: usize = 64 << 20;

/// A longer member of the object is skipped.
const LONGEST_MEMBER: usize = 512 << 10;

/// Events parsed before they are passed on, which bounds the memory.
const MOST_ROWS: usize = 512;

/// Receives the contents of the file.
pub trait Sink {
    /// Receives events; their names are those of the batch.
    fn events(&mut self, batch: &mut Batch);

    /// Whether it accepts no more events.
    fn is_full(&self) -> bool {
        false
    }

    /// Receives a member of the object, with its value in JSON.
    fn member(&mut self, key: &[u8], json: &[u8]);

    /// Receives the name of a member that is too long.
    fn long_member(&mut self, key: &[u8]);
}

/// The position of the next byte in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    /// Among the members of the object.
    Members,
    Key,
    Colon,
    MemberStart,
    MemberValue,
    /// Between two events.
    Events,
    /// In an event, or in something else among the events.
    Event,
    Ended(End),
}

pub struct Document {
    state: State,
    is_array: bool,
    /// Whether an array of events was found.
    pub found_events: bool,
    key: Vec<u8>,
    /// The state of an incomplete value.
    pending: Vec<u8>,
    is_too_long: bool,
    walk: Walk,
    offset: u64,
    batch: Batch,
}

impl Document {
    pub fn new(hasher: DefaultHashBuilder) -> Self {
        Self {
            state: State::Start,
            is_array: false,
            found_events: false,
            key: Vec::new(),
            pending: Vec::new(),
            is_too_long: false,
            walk: Walk::default(),
            offset: 0,
            batch: Batch::new(hasher),
        }
    }

    /// Whether the next byte is between two events, so that another reader may continue from here.
    pub fn is_between_events(&self) -> bool {
        self.state == State::Events
    }

    /// Whether the rest of the file cannot be read.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended(_))
    }

    /// Skips events that another reader has parsed: the number of bytes, and how it stopped.
    pub fn pass(&mut self, length: usize, stop: Stop) {
        self.offset += length as u64;
        if stop == Stop::Closed {
            self.leave_events();
        }
    }

    /// Parses the next piece of the file.
    pub fn feed(&mut self, mut bytes: &[u8], sink: &mut impl Sink) {
        while !bytes.is_empty() && !self.has_ended() {
            let used = match self.state {
                State::Events => self.events(bytes, sink),
                State::Event | State::Key | State::MemberValue => self.value(bytes, sink),
                _ => self.between(bytes),
            };
            self.offset += used as u64;
            bytes = &bytes[used..];
        }
    }

    /// Returns how the file ended.
    pub fn finish(&self) -> End {
        match self.state {
            State::Ended(end) => end,
            State::Events => End::Unclosed,
            State::Members if self.found_events => End::Unclosed,
            _ => End::CutOff,
        }
    }

    fn end(&mut self, end: End) {
        self.state = State::Ended(end);
        self.pending = Vec::new();
    }

    fn leave_events(&mut self) {
        if self.is_array {
            self.end(End::Whole);
        } else {
            self.state = State::Members;
        }
    }

    /// Skips white space and parses one byte of the structure around the events.
    fn between(&mut self, bytes: &[u8]) -> usize {
        let is_skipped = |byte: &&u8| byte.is_ascii_whitespace() || matches!(byte, 0xef | 0xbb | 0xbf | 0x0b);
        let skipped = bytes.iter().take_while(is_skipped).count();
        let Some(&byte) = bytes.get(skipped) else { return skipped };
        let is_events = self.key == b"\"traceEvents\"";
        match (self.state, byte) {
            (State::Start, b'[') => (self.is_array, self.found_events, self.state) = (true, true, State::Events),
            (State::Start, b'{') => self.state = State::Members,
            (State::Members, b',') => {}
            (State::Members, b'}') => self.end(End::Whole),
            (State::Colon, b':') => self.state = State::MemberStart,
            (State::MemberStart, b'[') if is_events => (self.found_events, self.state) = (true, State::Events),
            (State::Members, b'"') => return self.begin_value(State::Key, skipped),
            (State::MemberStart, _) => return self.begin_value(State::MemberValue, skipped),
            _ => self.end(End::Damaged(self.offset + skipped as u64)),
        }
        skipped + 1
    }

    fn begin_value(&mut self, state: State, skipped: usize) -> usize {
        self.state = state;
        self.pending.clear();
        (self.walk, self.is_too_long) = (Walk::default(), false);
        skipped
    }

    /// Parses events in place.
    fn events(&mut self, bytes: &[u8], sink: &mut impl Sink) -> usize {
        self.batch.clear();
        let (used, stop) = self.batch.read(bytes, MOST_ROWS);
        sink.events(&mut self.batch);
        match stop {
            Stop::Between => {}
            Stop::Closed => self.leave_events(),
            Stop::Within => drop(self.begin_value(State::Event, 0)),
        }
        used
    }

    /// Continues a value that may begin before this piece and end after it.
    fn value(&mut self, bytes: &[u8], sink: &mut impl Sink) -> usize {
        let (used, is_done) = self.walk.over(bytes);
        self.keep(&bytes[..used]);
        if is_done {
            self.value_done(sink);
        }
        used
    }

    fn keep(&mut self, bytes: &[u8]) {
        let most = if self.state == State::Event { LONGEST_EVENT } else { LONGEST_MEMBER };
        if !self.is_too_long && self.pending.len() + bytes.len() <= most {
            self.pending.extend_from_slice(bytes);
        } else if self.state == State::Event {
            self.end(End::Damaged(self.offset));
        } else {
            (self.is_too_long, self.pending) = (true, Vec::new());
        }
    }

    fn value_done(&mut self, sink: &mut impl Sink) {
        match self.state {
            State::Key => {
                self.state = State::Colon;
                std::mem::swap(&mut self.key, &mut self.pending);
            }
            State::MemberValue => {
                self.state = State::Members;
                if self.is_too_long {
                    sink.long_member(&self.key);
                } else {
                    sink.member(&self.key, &self.pending);
                }
            }
            State::Event => {
                self.state = State::Events;
                // A word or number ends where something else begins.
                self.pending.push(b' ');
                self.batch.clear();
                self.batch.read(&self.pending, usize::MAX);
                sink.events(&mut self.batch);
            }
            _ => {}
        }
        self.pending.clear();
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Everything in a file, in order.
    #[derive(Debug, Default, PartialEq)]
    pub struct Seen {
        pub names: Vec<String>,
        members: Vec<String>,
        not_events: u64,
    }

    impl Sink for Seen {
        fn events(&mut self, batch: &mut Batch) {
            self.names.extend(batch.rows.iter().map(|row| batch.names.name(row.name).to_owned()));
            self.not_events += batch.not_events;
        }

        fn member(&mut self, key: &[u8], json: &[u8]) {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            self.members.push(format!("{}={}", text(key), text(json)));
        }

        fn long_member(&mut self, _: &[u8]) {
            self.members.push("too long".to_owned());
        }
    }

    fn fed(text: &str, piece: usize) -> (Seen, End) {
        let (mut seen, mut document) = (Seen::default(), Document::new(DefaultHashBuilder::default()));
        text.as_bytes().chunks(piece).for_each(|piece| document.feed(piece, &mut seen));
        (seen, document.finish())
    }

    #[test]
    fn events_are_found_in_arrays_and_objects_split_anywhere() {
        let array = r#" [ {"name":"}]\"{"} , {"name":"b","x":{"c":[1,{}]}} ] "#;
        let object =
            r#"{"x":[1,{"traceEvents":[{}]}],"s":"a\\","traceEvents":[{"name":"}]\"{"},{"x":[{}],"name":"b"}],"n":1}"#;
        for piece in 1..80 {
            let (seen, end) = fed(array, piece);
            assert_eq!((seen.names, end), (vec!["}]\"{".to_owned(), "b".to_owned()], End::Whole));
            let (seen, end) = fed(object, piece);
            assert_eq!((seen.names, end), (vec!["}]\"{".to_owned(), "b".to_owned()], End::Whole));
            assert_eq!(seen.members, [r#""x"=[1,{"traceEvents":[{}]}]"#, r#""s"="a\\""#, r#""n"=1"#]);
        }
    }

    #[test]
    fn a_missing_bracket_loses_nothing_and_half_an_event_is_reported() {
        let (seen, end) = fed(r#"[{"name":"a"},{"name":"b"}"#, 8);
        assert_eq!((seen.names.join(" "), end), ("a b".to_owned(), End::Unclosed));
        let (seen, end) = fed(r#"[{"name":"a"},{"name":"#, 8);
        assert_eq!((seen.names.join(" "), end), ("a".to_owned(), End::CutOff));
    }

    #[test]
    fn invalid_json_is_reported_with_its_offset() {
        assert_eq!(fed("{nonsense", 8).1, End::Damaged(1));
        assert_eq!(fed(r#"{"a" 1}"#, 8).1, End::Damaged(5));
    }

    #[test]
    fn values_that_are_not_events_are_skipped() {
        for piece in [5, 80] {
            let (seen, end) = fed(r#"[null, 12, "text", [1], {"name":"a"}, true]"#, piece);
            assert_eq!((seen.names.join(" "), seen.not_events, end), ("a".to_owned(), 5, End::Whole));
        }
    }

    #[test]
    fn a_long_member_is_reported_and_not_kept() {
        let (seen, end) = fed(&format!(r#"{{"a":"{}","traceEvents":[]}}"#, "x".repeat(LONGEST_MEMBER)), 4096);
        assert_eq!((seen.members, end), (vec!["too long".to_owned()], End::Whole));
    }
}
