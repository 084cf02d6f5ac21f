//! A batch of events that one thread has parsed and that are not yet merged.

use hashbrown::DefaultHashBuilder;

use super::cache::{Expected, Key, NameCache};
use super::lexer::{Fault, Lexer, Part, Text, on_one_line};
use super::row::{Number, OTHER_PHASE, Row, Time};
use super::{FLOAT, kineto::Class, time::nanos, walk::Walk};
use crate::fields::{StoredValue, keep_last_values};
use crate::names::{NameId, Names, differ_in_lowest_bits};

/// How far parsing got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// All bytes, or the requested number of events, were parsed; the next byte is between two events.
    Between,
    /// The array ended.
    Closed,
    /// The bytes end inside an event or other value, which begins where parsing stopped.
    Within,
}

/// What a name of a batch is in the trace; none if it was not looked up yet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Merged {
    pub name: Option<NameId>,
    /// Its meaning as a category.
    pub class: Option<Class>,
}

/// More names than this, or more bytes of them, are forgotten before the next chunk.
const MOST_NAMES: usize = 1 << 12;
const LONGEST_NAMES: usize = 1 << 18;

/// More than the keys of all categories of a trace.
const KEYS: usize = 128;

/// The keys of an event; those up to `Open` may occur once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Member {
    Phase,
    Time,
    Duration,
    Name,
    Category,
    Process,
    Thread,
    Args,
    Open,
    Id,
    Bind,
    FlowOut,
    FlowIn,
    BindingPoint,
    Other,
}

impl Member {
    const COUNT: usize = Self::Other as usize + 1;

    fn of(key: &[u8]) -> Self {
        match key {
            b"ph" => Self::Phase,
            b"ts" => Self::Time,
            b"dur" => Self::Duration,
            b"name" => Self::Name,
            b"cat" => Self::Category,
            b"pid" => Self::Process,
            b"tid" => Self::Thread,
            b"args" => Self::Args,
            b"laptime_open" => Self::Open,
            b"id" | b"id2" => Self::Id,
            b"bind_id" => Self::Bind,
            b"flow_out" => Self::FlowOut,
            b"flow_in" => Self::FlowIn,
            b"bp" => Self::BindingPoint,
            _ => Self::Other,
        }
    }
}

#[derive(Debug)]
pub struct Batch {
    /// The names of this chunk and of those before: most repeat, so each is looked up in the trace once.
    pub names: Names,
    /// By name; filled where batches are merged.
    pub merged: Vec<Merged>,
    seen: NameCache,
    /// Keys of events by the key before and the phase.
    members: Box<[Expected<Member>; 8 * (1 + Member::COUNT)]>,
    /// Keys of fields by the key before, if there is one, and the category.
    keys: Box<[Expected<NameId>; 2 * KEYS]>,
    pub rows: Vec<Row>,
    fields: Vec<(NameId, StoredValue)>,
    /// A buffer to put an array or object on one line.
    line: Vec<u8>,
    /// Events that are not JSON, or whose parts have the wrong types.
    pub damaged: u64,
    /// Array elements that are not events.
    pub not_events: u64,
    /// Strings that are not valid UTF-8, whose invalid parts were replaced.
    pub replaced: u64,
}

impl Batch {
    pub fn new(hasher: DefaultHashBuilder) -> Self {
        let names = Names::hashed_by(hasher);
        let seen = NameCache::default();
        Self {
            names,
            merged: Vec::new(),
            seen,
            members: Box::new([Expected::NONE; _]),
            keys: Box::new([Expected::NONE; _]),
            rows: Vec::new(),
            fields: Vec::new(),
            line: Vec::new(),
            damaged: 0,
            not_events: 0,
            replaced: 0,
        }
    }

    pub fn clear(&mut self) {
        if self.names.len() > MOST_NAMES || self.names.bytes() > LONGEST_NAMES {
            self.names.clear();
            self.merged.clear();
            self.seen.clear();
            *self.keys = [Expected::NONE; _];
        }
        self.rows.clear();
        self.fields.clear();
        (self.damaged, self.not_events, self.replaced) = (0, 0, 0);
    }

    pub fn fields(&self, row: &Row) -> &[(NameId, StoredValue)] {
        &self.fields[row.fields.0 as usize..row.fields.1 as usize]
    }

    /// The field of this name.
    pub fn field(&self, row: &Row, name: NameId) -> Option<StoredValue> {
        self.fields(row).iter().rev().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// Parses events, starting between two events; returns the number of bytes.
    pub fn read(&mut self, bytes: &[u8], most: usize) -> (usize, Stop) {
        let mut at = 0;
        while self.rows.len() < most {
            let is_between =
                |byte: &&u8| byte.is_ascii_whitespace() || matches!(byte, b',' | 0xef | 0xbb | 0xbf | 0x0b);
            at += bytes[at..].iter().take_while(is_between).count();
            match bytes.get(at) {
                None => return (at, Stop::Between),
                Some(b']') => return (at + 1, Stop::Closed),
                Some(b'{') => match self.event(bytes, at) {
                    Ok(end) => {
                        at = end;
                        continue;
                    }
                    Err(Fault::Incomplete) => return (at, Stop::Within),
                    Err(Fault::Damaged) => {}
                },
                Some(_) => {}
            }
            let is_event = bytes[at] == b'{';
            let (length, is_whole) = Walk::default().over(&bytes[at..]);
            if !is_whole {
                return (at, Stop::Within);
            }
            at += length.max(1);
            if is_event {
                self.damaged += 1;
            } else {
                self.not_events += 1;
            }
        }
        (at, Stop::Between)
    }

    /// Parses one event; returns its end.
    fn event(&mut self, bytes: &[u8], start: usize) -> Result<usize, Fault> {
        let first_field = self.fields.len();
        let read = self.try_event(bytes, start, first_field as u32);
        match read {
            Ok((row, end)) => {
                self.rows.push(row);
                Ok(end)
            }
            Err(fault) => {
                self.fields.truncate(first_field);
                Err(fault)
            }
        }
    }

    fn try_event(&mut self, bytes: &[u8], start: usize, first_field: u32) -> Result<(Row, usize), Fault> {
        let mut lexer = Lexer::new(bytes, start);
        let mut row = Row {
            phase: 0,
            is_open: false,
            binds_around: false,
            has_fields: false,
            name: NameId::EMPTY,
            category: NameId::EMPTY,
            time: Time::Missing,
            duration: Time::Missing,
            pid: Number::Plain(0),
            tid: Number::Plain(0),
            id: None,
            bind: None,
            flows_out: false,
            flows_in: false,
            fields: (first_field, first_field),
        };
        let (mut seen, mut before) = (0_u16, None);
        lexer.expect(b'{')?;
        while let Some(member) = self.member(&mut lexer, before, row.phase)? {
            match member {
                Member::Phase => row.phase = phase(lexer.text()?),
                Member::Time => row.time = time(&mut lexer)?,
                Member::Duration => row.duration = time(&mut lexer)?,
                Member::Name => row.name = self.optional_text(&mut lexer)?,
                Member::Category => row.category = self.optional_text(&mut lexer)?,
                Member::Process => row.pid = self.number(&mut lexer)?,
                Member::Thread => row.tid = self.number(&mut lexer)?,
                Member::Args => row.has_fields = self.args(&mut lexer, row.category)?,
                Member::Open => row.is_open = flag(lexer.part()?)?,
                Member::Id => row.id = Some(self.number(&mut lexer)?),
                Member::Bind => row.bind = Some(self.number(&mut lexer)?),
                Member::FlowOut => row.flows_out = lexer.raw()? == b"true",
                Member::FlowIn => row.flows_in = lexer.raw()? == b"true",
                Member::BindingPoint => row.binds_around = lexer.raw()? == b"\"e\"",
                Member::Other => drop(lexer.raw()?),
            }
            let bit = 1 << member as u16;
            if member <= Member::Open && seen & bit != 0 {
                return Err(Fault::Damaged);
            }
            (seen, before) = (seen | bit, Some(member));
        }
        row.fields.1 = self.fields.len() as u32;
        Ok((row, lexer.at()))
    }

    /// Moves past the next key of an event; none, and past it, at the event's end. Events of one phase have the same keys
    /// in the same order, so what was last found in this place is tried first.
    #[inline(always)]
    fn member(&mut self, lexer: &mut Lexer<'_>, before: Option<Member>, phase: u8) -> Result<Option<Member>, Fault> {
        let slot = before.map_or(0, |before| 8 * (1 + before as usize) + usize::from(phase % 8));
        let slot = &mut self.members[slot];
        if let Some((member, length)) = slot.find(lexer.rest()) {
            lexer.skip(length);
            return Ok(member);
        }
        let rest = lexer.rest();
        let key = lexer.key(before.is_none())?;
        *slot = Expected::of(lexer.since(rest), key.map(|key| Member::of(key.raw)));
        Ok(key.map(|key| Member::of(key.raw)))
    }

    #[inline(always)]
    fn optional_text(&mut self, lexer: &mut Lexer<'_>) -> Result<NameId, Fault> {
        if lexer.peek()? == b'"' {
            let text = lexer.text()?;
            return self.name(text);
        }
        if lexer.word()? == b"null" { Ok(NameId::EMPTY) } else { Err(Fault::Damaged) }
    }

    /// Parses a number or a name in its place.
    #[inline(always)]
    fn number(&mut self, lexer: &mut Lexer<'_>) -> Result<Number, Fault> {
        match lexer.small_whole() {
            Some(number) => Ok(Number::Plain(number)),
            None => self.other_number(lexer),
        }
    }

    #[cold]
    fn other_number(&mut self, lexer: &mut Lexer<'_>) -> Result<Number, Fault> {
        let raw = if lexer.peek()? == b'"' { lexer.text()?.raw } else { lexer.raw()? };
        let text = String::from_utf8_lossy(raw);
        Ok(text.parse().map_or_else(|_| Number::Named(self.names.id(&text)), Number::Plain))
    }

    /// Parses the fields; false if they are not an object. Events of one category have the same keys in the same order.
    #[inline(always)]
    fn args(&mut self, lexer: &mut Lexer<'_>, category: NameId) -> Result<bool, Fault> {
        if lexer.peek()? != b'{' {
            return if lexer.word()? == b"null" { Ok(false) } else { Err(Fault::Damaged) };
        }
        lexer.expect(b'{')?;
        let (first, mut before) = (self.fields.len(), None);
        while let Some(name) = self.key(lexer, before, category)? {
            before = Some(name);
            let value = match lexer.part()? {
                Part::Null => continue,
                Part::Bool(value) => StoredValue::Bool(value),
                Part::Int(value) => StoredValue::Int(value),
                Part::Uint(value) => StoredValue::Uint(value),
                Part::Float(value) => StoredValue::Float(value),
                Part::Text(text) => StoredValue::Str(self.name(text)?),
                Part::Nested(raw) => self.nested(raw),
            };
            self.fields.push((name, value));
        }
        if !differ_in_lowest_bits(self.fields[first..].iter().map(|(name, _)| *name)) {
            let mut fields = self.fields.split_off(first);
            keep_last_values(&mut fields);
            self.fields.append(&mut fields);
        }
        Ok(true)
    }

    /// Moves past the next key of the fields, as `member` does.
    #[inline(always)]
    fn key(
        &mut self,
        lexer: &mut Lexer<'_>,
        before: Option<NameId>,
        category: NameId,
    ) -> Result<Option<NameId>, Fault> {
        let slot = match before {
            None => category.index() % KEYS,
            Some(before) => KEYS + (before.index() ^ category.index() << 2) % KEYS,
        };
        match self.keys[slot].find(lexer.rest()) {
            Some((name, length)) => {
                lexer.skip(length);
                Ok(name)
            }
            None => self.other_key(lexer, before.is_none(), slot),
        }
    }

    fn other_key(&mut self, lexer: &mut Lexer<'_>, is_first: bool, slot: usize) -> Result<Option<NameId>, Fault> {
        let rest = lexer.rest();
        let key = lexer.key(is_first)?;
        let name = key.map(|key| self.name(key)).transpose()?;
        let text = lexer.since(rest);
        // What is not UTF-8 is counted each time.
        if std::str::from_utf8(text).is_ok() {
            self.keys[slot] = Expected::of(text, name);
        }
        Ok(name)
    }

    /// An array or object as text, or the float that our writer encoded as one.
    fn nested(&mut self, raw: &[u8]) -> StoredValue {
        let mut line = std::mem::take(&mut self.line);
        let text = on_one_line(raw, &mut line);
        let value = match special_float(text) {
            Some(float) => StoredValue::Float(float),
            None => StoredValue::Str(self.name_of(text)),
        };
        self.line = line;
        value
    }

    #[inline(always)]
    fn name(&mut self, text: Text<'_>) -> Result<NameId, Fault> {
        Ok(match text.unescaped()? {
            None => self.name_of(text.raw),
            Some(bytes) => self.name_of(&bytes),
        })
    }

    fn name_of(&mut self, bytes: &[u8]) -> NameId {
        let key = Key::of(bytes);
        if let Some(known) = key.and_then(|key| self.seen.find(key, bytes, &self.names)) {
            return known;
        }
        let (known, hash) = self.names.find(bytes);
        let name = match (known, std::str::from_utf8(bytes)) {
            (Some(known), _) => known,
            (None, Ok(text)) => self.names.hashed_id(text, hash),
            (None, Err(_)) => {
                // Not cached, so that each is counted.
                self.replaced += 1;
                return self.names.id(&String::from_utf8_lossy(bytes));
            }
        };
        if let Some(key) = key {
            self.seen.keep(key, name);
        }
        name
    }
}

fn phase(text: Text<'_>) -> u8 {
    match text.raw {
        [] => 0,
        [letter] => *letter,
        _ => OTHER_PHASE,
    }
}

fn flag(part: Part<'_>) -> Result<bool, Fault> {
    match part {
        Part::Bool(flag) => Ok(flag),
        _ => Err(Fault::Damaged),
    }
}

/// Parses a time; some writers put it in quotes.
#[inline(always)]
fn time(lexer: &mut Lexer<'_>) -> Result<Time, Fault> {
    match lexer.plain_micros() {
        Some(nanos) => Ok(Time::At(nanos)),
        None => other_time(lexer),
    }
}

#[cold]
fn other_time(lexer: &mut Lexer<'_>) -> Result<Time, Fault> {
    let raw = match lexer.peek()? {
        b'"' => lexer.text()?.raw,
        _ => lexer.raw()?,
    };
    if raw == b"null" {
        return Ok(Time::Missing);
    }
    let nanos = std::str::from_utf8(raw).ok().and_then(nanos);
    Ok(nanos.and_then(|nanos| u64::try_from(nanos).ok()).map_or(Time::Impossible, Time::At))
}

/// Parses a float that our writer encoded as a string.
fn special_float(text: &[u8]) -> Option<f64> {
    let words = text.strip_prefix(b"{\"")?.strip_prefix(FLOAT.as_bytes())?.strip_prefix(b"\":\"")?;
    let words = std::str::from_utf8(words.strip_suffix(b"\"}")?).ok()?;
    u64::from_str_radix(words.rsplit_once(' ')?.1, 16).ok().map(f64::from_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        Batch::new(DefaultHashBuilder::default())
    }

    fn read(batch: &mut Batch, text: &str) -> Vec<String> {
        batch.clear();
        assert_eq!(batch.read(text.as_bytes(), usize::MAX), (text.len(), Stop::Between));
        let field = |(name, value): &(NameId, StoredValue)| match value {
            StoredValue::Str(text) => format!("{}={}", batch.names.name(*name), batch.names.name(*text)),
            other => format!("{}={other:?}", batch.names.name(*name)),
        };
        batch.rows.iter().flat_map(|row| batch.fields(row)).map(field).collect()
    }

    #[test]
    fn cached_keys_do_not_hide_damage() {
        let padding = " ".repeat(64);
        let mut batch = batch();
        for _ in 0..2 {
            let found = read(&mut batch, &format!(r#"{{"ph":"X", "args":{{"a":1, "b":2}}, "name":"x"}}{padding}"#));
            assert_eq!((found.join(" ").as_str(), batch.damaged), ("a=Int(1) b=Int(2)", 0));
            for damaged in [
                r#"{, "args":{"a":1}}"#,
                r#"{"ph":"X", "args":{, "b":2}}"#,
                r#"{"ph":"X", "args":{"a":1 "b":2}}"#,
                r#"{"ph":"X", "args":{"a":1, "b":2}, "args":{"a":1}}"#,
            ] {
                assert_eq!(read(&mut batch, &format!("{damaged}{padding}")), [""; 0], "{damaged}");
                assert_eq!(batch.damaged, 1, "{damaged}");
            }
        }
    }

    #[test]
    fn the_last_of_two_fields_with_one_name_counts() {
        assert_eq!(read(&mut batch(), r#"{"args":{"a":1,"b":2,"a":3}}"#), ["a=Int(3)", "b=Int(2)"]);
    }

    #[test]
    fn each_string_that_is_not_utf8_is_counted() {
        let mut batch = batch();
        for _ in 0..2 {
            batch.clear();
            batch.read(b"{\"args\":{\"k\xff\":\"v\xff\"}},{\"args\":{\"k\xff\":1}}", usize::MAX);
            assert_eq!(batch.replaced, 3);
        }
    }

    #[test]
    fn names_are_kept_for_the_next_chunk_unless_they_are_many() {
        let mut batch = batch();
        let few = read(&mut batch, r#"{"args":{"a":"x"}}"#);
        let known = batch.names.len();
        assert_eq!((read(&mut batch, r#"{"args":{"a":"x"}}"#), batch.names.len()), (few.clone(), known));
        let many: String = (0..MOST_NAMES).map(|at| format!(r#"{{"args":{{"a":"{at}"}}}}"#)).collect();
        assert_eq!(read(&mut batch, &many).len(), MOST_NAMES);
        assert_eq!((read(&mut batch, r#"{"args":{"a":"x"}}"#), batch.names.len()), (few, known));
    }
}
