//! A batch of events that one thread has parsed and that are not yet merged.

use hashbrown::DefaultHashBuilder;

use super::cache::{Key, NameCache};
use super::lexer::{Fault, Lexer, Part, Text, on_one_line};
use super::row::{Number, OTHER_PHASE, Row, Time};
use super::{FLOAT, time::nanos, walk::Walk};
use crate::fields::StoredValue;
use crate::names::{NameId, Names};

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

#[derive(Debug)]
pub struct Batch {
    pub names: Names,
    seen: NameCache,
    pub rows: Vec<Row>,
    fields: Vec<(NameId, StoredValue)>,
    /// A buffer to put an array or object on one line.
    line: Vec<u8>,
    /// Events that are not JSON, or whose parts have the wrong types.
    pub damaged: u64,
    /// Array elements that are not events.
    pub no_events: u64,
    /// Strings that are not UTF-8 and of which parts were replaced.
    pub replaced: u64,
}

impl Batch {
    pub fn new(hasher: DefaultHashBuilder) -> Self {
        let names = Names::hashed_by(hasher);
        let seen = NameCache::default();
        Self {
            names,
            seen,
            rows: Vec::new(),
            fields: Vec::new(),
            line: Vec::new(),
            damaged: 0,
            no_events: 0,
            replaced: 0,
        }
    }

    pub fn clear(&mut self) {
        self.names.clear();
        self.seen.clear();
        self.rows.clear();
        self.fields.clear();
        (self.damaged, self.no_events, self.replaced) = (0, 0, 0);
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
                self.no_events += 1;
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
        let mut seen = 0_u16;
        lexer.expect(b'{')?;
        let mut is_first = true;
        while let Some(key) = lexer.key(is_first)? {
            is_first = false;
            let bit = match key.raw {
                b"ph" => {
                    row.phase = phase(lexer.text()?);
                    1
                }
                b"ts" => {
                    row.time = time(&mut lexer)?;
                    2
                }
                b"dur" => {
                    row.duration = time(&mut lexer)?;
                    4
                }
                b"name" => {
                    row.name = self.optional_text(&mut lexer)?;
                    8
                }
                b"cat" => {
                    row.category = self.optional_text(&mut lexer)?;
                    16
                }
                b"pid" => {
                    row.pid = self.number(&mut lexer)?;
                    32
                }
                b"tid" => {
                    row.tid = self.number(&mut lexer)?;
                    64
                }
                b"id" | b"id2" => {
                    row.id = Some(self.number(&mut lexer)?);
                    0
                }
                b"args" => {
                    row.has_fields = self.args(&mut lexer)?;
                    128
                }
                b"bind_id" => {
                    row.bind = Some(self.number(&mut lexer)?);
                    0
                }
                b"flow_out" => {
                    row.flows_out = lexer.raw()? == b"true";
                    0
                }
                b"flow_in" => {
                    row.flows_in = lexer.raw()? == b"true";
                    0
                }
                b"bp" => {
                    row.binds_around = lexer.raw()? == b"\"e\"";
                    0
                }
                b"laptime_open" => {
                    row.is_open = flag(lexer.part()?)?;
                    256
                }
                _ => {
                    lexer.raw()?;
                    0
                }
            };
            if seen & bit != 0 {
                return Err(Fault::Damaged);
            }
            seen |= bit;
        }
        row.fields.1 = self.fields.len() as u32;
        Ok((row, lexer.at()))
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

    /// Parses the fields; false if they are not an object.
    #[inline(always)]
    fn args(&mut self, lexer: &mut Lexer<'_>) -> Result<bool, Fault> {
        if lexer.peek()? != b'{' {
            return if lexer.word()? == b"null" { Ok(false) } else { Err(Fault::Damaged) };
        }
        lexer.expect(b'{')?;
        let mut is_first = true;
        while let Some(key) = lexer.key(is_first)? {
            is_first = false;
            let name = self.name(key)?;
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
        Ok(true)
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
        let name = self.new_name(bytes);
        if let Some(key) = key {
            self.seen.keep(key, name);
        }
        name
    }

    fn new_name(&mut self, bytes: &[u8]) -> NameId {
        let (known, hash) = self.names.find(bytes);
        if let Some(known) = known {
            return known;
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => self.names.hashed_id(text, hash),
            Err(_) => {
                self.replaced += 1;
                self.names.id(&String::from_utf8_lossy(bytes))
            }
        }
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
