//! Parses the parts of one JSON value in place.

use super::scan;

/// Why a part cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The bytes end inside it.
    Incomplete,
    /// It is not JSON, or not the requested type.
    Damaged,
}

/// The maximum nesting depth in a field; deeper ones count as damage.
const DEEPEST: u32 = 128;

/// A string as in the file.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    pub raw: &'a [u8],
    has_escapes: bool,
}

impl Text<'_> {
    /// The unescaped bytes, if they differ from those in the file. Half a surrogate pair is invalid.
    #[inline(always)]
    pub fn unescaped(self) -> Result<Option<Vec<u8>>, Fault> {
        if !self.has_escapes {
            return Ok(None);
        }
        unescaped(self.raw).map(Some).ok_or(Fault::Damaged)
    }
}

/// Any JSON value, arrays and objects as text.
#[derive(Debug, Clone, Copy)]
pub enum Part<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(Text<'a>),
    Nested(&'a [u8]),
}

/// Its small steps are inlined into the only loop that uses them: results that go through memory cost more than the
/// steps themselves (half of the reading time, when measured).
pub struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Lexer<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    /// The next byte after white space, not consumed. Other control characters count as white space.
    #[inline(always)]
    pub fn peek(&mut self) -> Result<u8, Fault> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte > b' ' => return Ok(byte),
            _ => self.at = scan::after_white_space(self.bytes, self.at),
        }
        self.bytes.get(self.at).copied().ok_or(Fault::Incomplete)
    }

    /// Consumes this byte after white space.
    #[inline(always)]
    pub fn expect(&mut self, expected: u8) -> Result<(), Fault> {
        if self.peek()? != expected {
            return Err(Fault::Damaged);
        }
        self.at += 1;
        Ok(())
    }

    /// The bytes from here on.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Consumes bytes that were compared with `rest`.
    pub fn skip(&mut self, length: usize) {
        self.at += length;
    }

    /// The bytes that were consumed since these were the next.
    pub fn since(&self, rest: &'a [u8]) -> &'a [u8] {
        &rest[..rest.len() - self.rest().len()]
    }

    /// Moves to the next key of an object, past its colon and white space; none at the object's end.
    #[inline(always)]
    pub fn key(&mut self, is_first: bool) -> Result<Option<Text<'a>>, Fault> {
        match self.peek()? {
            b'}' => {
                self.at += 1;
                return Ok(None);
            }
            b',' if !is_first => self.at += 1,
            _ if is_first => {}
            _ => return Err(Fault::Damaged),
        }
        let key = self.text()?;
        self.expect(b':')?;
        self.peek()?;
        Ok(Some(key))
    }

    /// Parses a string.
    #[inline(always)]
    pub fn text(&mut self) -> Result<Text<'a>, Fault> {
        self.expect(b'"')?;
        let start = self.at;
        let mut has_escapes = false;
        while let Some(found) = scan::quote_or_escape(self.bytes, self.at) {
            self.at = found;
            if self.bytes[found] == b'"' {
                self.at += 1;
                return Ok(Text { raw: &self.bytes[start..found], has_escapes });
            }
            has_escapes = true;
            self.at = (found + 2).min(self.bytes.len());
        }
        Err(Fault::Incomplete)
    }

    /// Parses a whole number of at most eighteen digits; otherwise none, and nothing is consumed.
    #[inline(always)]
    pub fn small_whole(&mut self) -> Option<i64> {
        self.peek().ok()?;
        let (value, end) = scan::small_whole(self.bytes, self.at)?;
        self.at = end;
        Some(value)
    }

    /// Parses a time of plain digits; otherwise none, and nothing is consumed.
    #[inline(always)]
    pub fn plain_micros(&mut self) -> Option<u64> {
        self.peek().ok()?;
        let (nanos, end) = scan::plain_micros(self.bytes, self.at)?;
        self.at = end;
        Some(nanos)
    }

    /// Parses any value.
    #[inline(always)]
    pub fn part(&mut self) -> Result<Part<'a>, Fault> {
        match self.peek()? {
            b'"' => self.text().map(Part::Text),
            b'{' | b'[' => self.nested().map(Part::Nested),
            _ => self.plain(),
        }
    }

    /// Parses a number or a word.
    #[inline(always)]
    fn plain(&mut self) -> Result<Part<'a>, Fault> {
        if let Some((value, end)) = scan::small_whole(self.bytes, self.at) {
            self.at = end;
            return Ok(Part::Int(value));
        }
        if let Some((value, end)) = scan::small_fraction(self.bytes, self.at) {
            self.at = end;
            return Ok(Part::Float(value));
        }
        scalar(self.word()?)
    }

    /// Parses any value, and returns its bytes.
    pub fn raw(&mut self) -> Result<&'a [u8], Fault> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => drop(self.text()?),
            b'{' | b'[' => drop(self.nested()?),
            _ => drop(self.word()?),
        }
        Ok(&self.bytes[start..self.at])
    }

    /// Consumes a number or a word, up to a byte that may follow a value.
    pub fn word(&mut self) -> Result<&'a [u8], Fault> {
        self.peek()?;
        let start = self.at;
        let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b'"' | b'{' | b'[' | b':') || *byte <= b' ';
        let Some(length) = self.bytes[start..].iter().position(is_end) else { return Err(Fault::Incomplete) };
        self.at = start + length;
        if length == 0 { Err(Fault::Damaged) } else { Ok(&self.bytes[start..self.at]) }
    }

    /// Consumes an array or object with matching brackets.
    fn nested(&mut self) -> Result<&'a [u8], Fault> {
        let start = self.at;
        let (mut depth, mut kinds) = (0_u32, 0_u128);
        loop {
            let Some(&byte) = self.bytes.get(self.at) else { return Err(Fault::Incomplete) };
            match byte {
                // Apart from strings, no byte below the ASCII brackets opens or closes anything.
                b'#'..b'[' => {}
                ..=b' ' => {
                    self.at = scan::after_white_space(self.bytes, self.at);
                    continue;
                }
                b'"' => {
                    self.text()?;
                    continue;
                }
                b'{' | b'[' => {
                    depth += 1;
                    if depth > DEEPEST {
                        return Err(Fault::Damaged);
                    }
                    kinds = kinds << 1 | u128::from(byte == b'{');
                }
                b'}' | b']' => {
                    if (kinds & 1 == 1) != (byte == b'}') {
                        return Err(Fault::Damaged);
                    }
                    kinds >>= 1;
                    depth -= 1;
                }
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(&self.bytes[start..self.at]);
            }
        }
    }
}

fn scalar<'a>(word: &[u8]) -> Result<Part<'a>, Fault> {
    match word {
        b"null" => Ok(Part::Null),
        b"true" => Ok(Part::Bool(true)),
        b"false" => Ok(Part::Bool(false)),
        _ => number(word),
    }
}

/// Parses a number: a whole one exactly, any other to the nearest double. `NaN` and `Infinity` are not JSON, but Python
/// and C++ write them.
fn number<'a>(word: &[u8]) -> Result<Part<'a>, Fault> {
    let text = std::str::from_utf8(word).map_err(|_| Fault::Damaged)?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_whole && let Ok(value) = text.parse::<i64>() {
        return Ok(if value == 0 { Part::Float(-0.0) } else { Part::Int(value) });
    }
    if is_whole && let Ok(value) = text.parse::<u64>() {
        return Ok(Part::Uint(value));
    }
    let is_number = digits.bytes().next().is_some_and(|byte| byte.is_ascii_digit());
    let is_special = ["nan", "inf", "infinity"].iter().any(|word| digits.eq_ignore_ascii_case(word));
    if !is_number && !is_special {
        return Err(Fault::Damaged);
    }
    text.parse().map(Part::Float).map_err(|_| Fault::Damaged)
}

fn unescaped(raw: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    while let Some(next) = memchr::memchr(b'\\', &raw[at..]) {
        out.extend_from_slice(&raw[at..at + next]);
        at += next + 1;
        let escape = *raw.get(at)?;
        at += 1;
        let plain = match escape {
            b'"' | b'\\' | b'/' => escape,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (letter, used) = escaped_char(&raw[at..])?;
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                at += used;
                continue;
            }
            _ => return None,
        };
        out.push(plain);
    }
    out.extend_from_slice(&raw[at..]);
    Some(out)
}

/// The character after `\u`, which may need a second escape, and the number of bytes consumed.
fn escaped_char(raw: &[u8]) -> Option<(char, usize)> {
    let first = hex(raw.get(..4)?)?;
    if let Some(letter) = char::from_u32(first) {
        return Some((letter, 4));
    }
    let second = raw.get(4..10)?.strip_prefix(b"\\u").and_then(hex)?;
    let is_pair = (0xd800..0xdc00).contains(&first) && (0xdc00..0xe000).contains(&second);
    let letter = 0x1_0000 + ((first.wrapping_sub(0xd800) & 0x3ff) << 10 | second & 0x3ff);
    is_pair.then(|| char::from_u32(letter).map(|letter| (letter, 10)))?
}

fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |value, &digit| Some(value << 4 | char::from(digit).to_digit(16)?))
}

/// The text of an array or object; if it spans several lines, without the white space between its parts, written to
/// `line`.
pub fn on_one_line<'a>(raw: &'a [u8], line: &'a mut Vec<u8>) -> &'a [u8] {
    if memchr::memchr(b'\n', raw).is_none() {
        return raw;
    }
    line.clear();
    let mut at = 0;
    while let Some(&byte) = raw.get(at) {
        let start = at;
        at = match byte {
            b'"' => after_string(raw, at + 1),
            ..=b' ' => scan::after_white_space(raw, at),
            _ => at + raw[at..].iter().take_while(|&&byte| byte > b' ' && byte != b'"').count(),
        };
        if byte > b' ' {
            line.extend_from_slice(&raw[start..at]);
        }
    }
    line
}

/// The end of a string that began before; the end of the bytes if it does not end.
fn after_string(raw: &[u8], mut at: usize) -> usize {
    while let Some(found) = scan::quote_or_escape(raw, at) {
        if raw[found] == b'"' {
            return found + 1;
        }
        at = (found + 2).min(raw.len());
    }
    raw.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(json: &str) -> String {
        let json = format!("{json} ");
        let part = Lexer::new(json.as_bytes(), 0).part();
        match part {
            Ok(Part::Text(text)) => {
                let text = text.unescaped().map(|bytes| bytes.unwrap_or_else(|| text.raw.to_vec()));
                format!("{:?}", text.map(|text| String::from_utf8(text).unwrap()))
            }
            Ok(Part::Nested(raw)) => String::from_utf8(on_one_line(raw, &mut Vec::new()).to_vec()).unwrap(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn numbers_keep_their_kind() {
        for (json, expected) in [
            ("12", "Ok(Int(12))"),
            ("-9223372036854775808", "Ok(Int(-9223372036854775808))"),
            ("18446744073709551615", "Ok(Uint(18446744073709551615))"),
            ("0.1", "Ok(Float(0.1))"),
            ("-0", "Ok(Float(-0.0))"),
            ("1e3", "Ok(Float(1000.0))"),
            ("99999999999999999999", "Ok(Float(1e20))"),
            ("NaN", "Ok(Float(NaN))"),
            ("-Infinity", "Ok(Float(-inf))"),
            ("nonsense", "Err(Damaged)"),
            ("-", "Err(Damaged)"),
        ] {
            assert_eq!(part(json), expected, "{json}");
        }
    }

    #[test]
    fn strings_are_unescaped() {
        assert_eq!(part(r#""a\n\"\u00e9\ud83c\udfc1""#), "Ok(\"a\\n\\\"é🏁\")");
        for damaged in [r#""\ud800""#, r#""\udfff""#, r#""\x""#, r#""\u12""#, r#""\ud83cab""#] {
            assert_eq!(part(damaged), "Err(Damaged)", "{damaged}");
        }
        assert_eq!(part("\"a long string without an end"), "Err(Incomplete)");
    }

    #[test]
    fn nested_values_are_text_on_one_line() {
        assert_eq!(part("[[1, 2], {\"a b\": \"} \\\" \"}]"), "[[1, 2], {\"a b\": \"} \\\" \"}]");
        assert_eq!(part("[\n  [1, 2],\n  {\"a b\": \"} \\\" \"}\n]"), "[[1,2],{\"a b\":\"} \\\" \"}]");
        assert_eq!(part("[}"), "Err(Damaged)");
        assert_eq!(part(&"[".repeat(200)), "Err(Damaged)");
    }
}
