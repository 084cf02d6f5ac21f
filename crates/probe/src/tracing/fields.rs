//! The fields of a `tracing` span or event, collected and encoded as words.

use std::cell::Cell;
use std::fmt::{Debug, Write};

use tracing_core::field::{Field, Visit};

use crate::attach::{Local, make_room};
use crate::field::{FieldKind, FieldTuple, string_as_words};
use crate::word::{self, LONGEST_STRING, MOST_FIELDS, string_words};
use crate::{clock::now, ring::Push};

/// Fields by their index at the call site.
#[derive(Debug, Default)]
pub struct Gathered {
    count: usize,
    /// Four bits per field for its kind.
    shape: u64,
    /// The word of a field; for a string, the start (upper half) and end (lower half) in `text`.
    values: [u64; MOST_FIELDS],
    text: String,
}

thread_local! {
    /// Stored per thread and reused, so that collecting fields allocates only until the longest string was seen.
    static GATHERED: Cell<Option<Box<Gathered>>> = const { Cell::new(None) };
}

/// Collects `count` fields with `record` and passes them to `with`.
///
/// The `Debug` of a value may call this again: the inner call finds the thread's place empty and creates another.
#[inline]
pub fn gather<R>(count: usize, record: impl FnOnce(&mut Gathered), with: impl FnOnce(&Gathered) -> R) -> R {
    let mut gathered = GATHERED.try_with(Cell::take).ok().flatten().unwrap_or_default();
    gathered.clear(count);
    record(&mut gathered);
    let result = with(&gathered);
    // Late in the shutdown of a thread there is no place to store it.
    let _ = GATHERED.try_with(|kept| kept.set(Some(gathered)));
    result
}

impl Gathered {
    #[inline]
    fn clear(&mut self, count: usize) {
        self.count = count.min(MOST_FIELDS);
        self.shape = 0;
        self.text.clear();
    }

    #[inline]
    fn set(&mut self, at: usize, kind: FieldKind, value: u64) {
        if at < self.count {
            let place = 4 * at;
            self.shape = (self.shape & !(0xf << place)) | (kind as u64) << place;
            self.values[at] = value;
        }
    }

    fn set_text(&mut self, at: usize, write: impl FnOnce(&mut String)) {
        if at < self.count {
            let start = self.text.len();
            write(&mut self.text);
            let most = start + LONGEST_STRING;
            if self.text.len() > most {
                self.text.truncate(self.text.floor_char_boundary(most));
            }
            self.set(at, FieldKind::Str, (start as u64) << 32 | self.text.len() as u64);
        }
    }

    fn kind(&self, at: usize) -> FieldKind {
        FieldKind::from_bits((self.shape >> (4 * at)) & 0xf).unwrap_or(FieldKind::Absent)
    }

    fn string(&self, at: usize) -> Option<&str> {
        let (start, end) = ((self.values[at] >> 32) as usize, self.values[at] as u32 as usize);
        (self.kind(at) == FieldKind::Str).then(|| &self.text[start..end])
    }

    /// Decodes fields and replaces those that `later` contains.
    pub fn updated(words: &[u64], later: &Self) -> Self {
        let mut fields = Self::from_words(later.count, words);
        for at in 0..later.count {
            match later.string(at) {
                Some(text) => fields.set_text(at, |into| into.push_str(text)),
                None if later.kind(at) != FieldKind::Absent => fields.set(at, later.kind(at), later.values[at]),
                None => {}
            }
        }
        fields
    }

    fn from_words(count: usize, words: &[u64]) -> Self {
        let mut fields = Self { count, ..Self::default() };
        let Some((&shape, mut rest)) = words.split_first() else { return fields };
        for at in 0..count {
            let kind = FieldKind::from_bits((shape >> (4 * at)) & 0xf).unwrap_or(FieldKind::Absent);
            let Some((&word, after)) = rest.split_first() else { break };
            rest = after;
            if kind == FieldKind::Str {
                let Some((text, after)) = rest.split_at_checked((word as usize).div_ceil(8)) else { break };
                rest = after;
                let bytes: Vec<u8> = text.iter().flat_map(|word| word.to_le_bytes()).take(word as usize).collect();
                fields.set_text(at, |into| into.push_str(&String::from_utf8_lossy(&bytes)));
            } else {
                fields.set(at, kind, word);
            }
        }
        fields
    }

    pub fn to_words(&self) -> Box<[u64]> {
        let mut words = Vec::with_capacity(self.words() as usize);
        self.each_word(|word| words.push(word));
        words.into_boxed_slice()
    }

    /// Passes on the shape and the values, word by word; nothing for a call site without fields.
    #[inline]
    pub fn each_word(&self, mut word: impl FnMut(u64)) {
        if self.count == 0 {
            return;
        }
        word(self.shape);
        for (at, &value) in self.values.iter().enumerate().take(self.count) {
            // Without text the only possible string is the empty one, whose value and length are both zero.
            let text = if self.text.is_empty() { None } else { self.string(at) };
            match text {
                Some(text) => string_as_words(text, &mut word),
                None => word(value),
            }
        }
    }
}

impl FieldTuple for Gathered {
    #[inline]
    fn words(&self) -> u64 {
        if self.count == 0 {
            return 0;
        }
        if self.text.is_empty() {
            return 1 + self.count as u64;
        }
        1 + (0..self.count).map(|at| self.string(at).map_or(1, |text| string_words(text.len()))).sum::<u64>()
    }

    #[inline]
    fn put(&self, push: &mut Push<'_>) {
        self.each_word(|word| push.word(word));
    }
}

/// The shape and the values of fields, as recorded.
pub struct Words<'a>(pub &'a [u64]);

impl FieldTuple for Words<'_> {
    #[inline]
    fn words(&self) -> u64 {
        self.0.len() as u64
    }

    #[inline]
    fn put(&self, push: &mut Push<'_>) {
        for &word in self.0 {
            push.word(word);
        }
    }
}

impl Visit for Gathered {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field.index(), FieldKind::Int, value as u64);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field.index(), FieldKind::Uint, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field.index(), FieldKind::Float, value.to_bits());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field.index(), FieldKind::Bool, u64::from(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set_text(field.index(), |text| text.push_str(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.set_text(field.index(), |text| {
            // Writing to a string fails only if the `Debug` of the value fails; the text so far is kept.
            let _ = write!(text, "{value:?}");
        });
    }
}

/// Records fields that a span got after its entry.
pub fn record_late(site: u32, fields: &Gathered) {
    Local::with_ring(|ring, _| {
        let count = 2 + fields.words();
        if ring.fits(count, 0) || make_room(ring, count, 0) {
            let mut push = ring.push();
            push.word(word::head(now().0, word::EXTENDED, word::RECORD));
            push.word(u64::from(site));
            fields.put(&mut push);
            push.publish();
        }
        Some(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(fields: &Gathered) -> Vec<u64> {
        let words = fields.to_words().into_vec();
        assert_eq!(words.len() as u64, fields.words());
        words
    }

    fn integer_and_text(fields: &mut Gathered) {
        fields.set(0, FieldKind::Uint, 7);
        fields.set_text(1, |text| text.push_str("eleven byte"));
    }

    #[test]
    fn a_string_is_encoded_as_its_length_and_bytes() {
        let seen = gather(2, integer_and_text, words);
        let text = [11, u64::from_le_bytes(*b"eleven b"), u64::from_le_bytes(*b"yte\0\0\0\0\0")];
        assert_eq!(seen, [[0x52, 7].as_slice(), &text].concat());
    }

    #[test]
    fn gathering_can_be_nested() {
        let alone = gather(2, integer_and_text, words);
        let mut inner = Vec::new();
        let outer = gather(
            2,
            |fields| {
                fields.set(0, FieldKind::Uint, 7);
                inner = gather(2, integer_and_text, words);
                fields.set_text(1, |text| text.push_str("eleven byte"));
            },
            words,
        );
        assert_eq!((&inner, &outer), (&alone, &alone));
    }

    #[test]
    fn an_update_changes_only_the_later_fields() {
        let first = gather(2, integer_and_text, words);
        let later =
            gather(2, |fields| fields.set(1, FieldKind::Bool, 1), |later| words(&Gathered::updated(&first, later)));
        assert_eq!(later, [0x42, 7, 1]);
        let unchanged = gather(2, |_| (), |later| words(&Gathered::updated(&first, later)));
        assert_eq!(unchanged, first);
    }

    #[test]
    fn a_call_site_without_fields_has_no_words() {
        assert_eq!(gather(0, |fields| fields.set(0, FieldKind::Uint, 1), words), []);
    }
}
