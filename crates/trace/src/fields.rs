//! The fields of spans and marks, packed: other tools' traces have ten per span, most of them small numbers.
//!
//! A block is a count, followed for each field by its name and kind in one number and its value; numbers use seven bits
//! per byte. A field needs three to six bytes, where a pair of plain values needs twenty-four.

use crate::names::{NameId, Names, differ_in_lowest_bits};
use crate::{column::Cell, value::Value};

/// A stored field: strings are interned.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StoredValue {
    Int(i64),
    Uint(u64),
    Float(f64),
    Bool(bool),
    Str(NameId),
}

/// The offset of the block of a span or mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FieldBlock(pub u64);

impl Cell for FieldBlock {
    fn number(self) -> u64 {
        self.0
    }

    fn of(number: u64) -> Self {
        Self(number)
    }
}

impl FieldBlock {
    /// The empty block, at the start of every column of blocks.
    pub const NONE: Self = Self(0);
}

/// The maximum number of fields per block.
const MOST: usize = u16::MAX as usize;

/// The most bytes of a number.
const LONGEST_NUMBER: usize = 10;

/// The most bytes of a field: its name and its value.
const LONGEST_FIELD: usize = 5 + LONGEST_NUMBER;

/// All blocks, one after another.
#[derive(Debug, Clone)]
pub(crate) struct FieldBlocks(Vec<u8>);

impl Default for FieldBlocks {
    fn default() -> Self {
        Self(vec![0])
    }
}

impl FieldBlocks {
    /// Adds a block. If a name occurs twice, the later value replaces the earlier one.
    pub fn add(&mut self, fields: &mut Vec<(NameId, StoredValue)>) -> FieldBlock {
        if fields.is_empty() {
            return FieldBlock::NONE;
        }
        keep_last_values(fields);
        self.add_distinct(fields.iter().copied())
    }

    /// Adds a block of fields whose names differ.
    pub fn add_distinct(&mut self, fields: impl ExactSizeIterator<Item = (NameId, StoredValue)>) -> FieldBlock {
        let count = fields.len().min(MOST);
        if count == 0 {
            return FieldBlock::NONE;
        }
        let start = self.0.len();
        self.0.resize(start + LONGEST_NUMBER + count * LONGEST_FIELD, 0);
        let mut end = put(&mut self.0, start, count as u64);
        for (name, value) in fields.take(count) {
            end = put_field(&mut self.0, end, name, value);
        }
        self.0.truncate(end);
        FieldBlock(start as u64)
    }

    /// The fields of a block; none for an invalid offset.
    pub fn fields(&self, block: FieldBlock) -> StoredFields<'_> {
        let from = usize::try_from(block.0).unwrap_or(usize::MAX);
        let mut bytes = self.0.get(from..).unwrap_or(&[]);
        let left = take_varint(&mut bytes).unwrap_or(0) as usize;
        StoredFields { bytes, left }
    }

    /// Calls a function with the fields of every block, which it reads to the end.
    pub fn for_each<E>(&self, mut each: impl FnMut(&mut StoredFields<'_>) -> Result<(), E>) -> Result<(), E> {
        let mut bytes = &self.0[1..];
        while !bytes.is_empty() {
            let left = take_varint(&mut bytes).unwrap_or(0) as usize;
            let mut fields = StoredFields { bytes, left };
            each(&mut fields)?;
            bytes = fields.bytes;
        }
        Ok(())
    }

    /// Replaces a block in place if it is the last one, otherwise appends a new one.
    pub fn replace(&mut self, block: FieldBlock, fields: &mut Vec<(NameId, StoredValue)>) -> FieldBlock {
        if block != FieldBlock::NONE && self.is_last(block) {
            self.0.truncate(block.0 as usize);
        }
        self.add(fields)
    }

    fn is_last(&self, block: FieldBlock) -> bool {
        let mut fields = self.fields(block);
        fields.by_ref().for_each(drop);
        fields.bytes.is_empty()
    }

    /// The size of the blocks in bytes.
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    pub fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }
}

/// Removes duplicate names. A few fields are compared pairwise; many use a hash table.
pub(crate) fn keep_last_values(fields: &mut Vec<(NameId, StoredValue)>) {
    if differ_in_lowest_bits(fields.iter().map(|(name, _)| *name)) {
        return;
    }
    const FEW: usize = 24;
    if fields.len() <= FEW {
        let mut at = 1;
        while at < fields.len() {
            let (name, value) = fields[at];
            match fields[..at].iter().position(|(known, _)| *known == name) {
                Some(earlier) => {
                    fields[earlier].1 = value;
                    fields.remove(at);
                }
                None => at += 1,
            }
        }
        return;
    }
    let mut places = std::collections::HashMap::new();
    let mut kept: Vec<(NameId, StoredValue)> = Vec::with_capacity(fields.len());
    for &(name, value) in &*fields {
        let place = *places.entry(name).or_insert(kept.len());
        if place == kept.len() {
            kept.push((name, value));
        } else {
            kept[place].1 = value;
        }
    }
    *fields = kept;
}

/// The fields of one block, in their order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredFields<'a> {
    bytes: &'a [u8],
    left: usize,
}

impl Iterator for StoredFields<'_> {
    type Item = (NameId, StoredValue);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let field = take_field(&mut self.bytes);
        if field.is_none() {
            self.left = 0;
        }
        field
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for StoredFields<'_> {}

/// The kinds of values in a block.
mod kind {
    pub const INT: u64 = 0;
    pub const UINT: u64 = 1;
    pub const FLOAT: u64 = 2;
    pub const FALSE: u64 = 3;
    pub const TRUE: u64 = 4;
    pub const STR: u64 = 5;
}

/// Writes a field and returns its end.
#[inline]
fn put_field(bytes: &mut [u8], at: usize, name: NameId, value: StoredValue) -> usize {
    let (kind, payload) = match value {
        StoredValue::Int(value) => (kind::INT, Some(((value << 1) ^ (value >> 63)) as u64)),
        StoredValue::Uint(value) => (kind::UINT, Some(value)),
        StoredValue::Float(_) => (kind::FLOAT, None),
        StoredValue::Bool(value) => (if value { kind::TRUE } else { kind::FALSE }, None),
        StoredValue::Str(value) => (kind::STR, Some(u64::from(value.0))),
    };
    let at = put(bytes, at, u64::from(name.0) << 3 | kind);
    if let StoredValue::Float(value) = value {
        bytes[at..at + 8].copy_from_slice(&value.to_bits().to_le_bytes());
        return at + 8;
    }
    payload.map_or(at, |payload| put(bytes, at, payload))
}

fn take_field(bytes: &mut &[u8]) -> Option<(NameId, StoredValue)> {
    let head = take_varint(bytes)?;
    let name = NameId(u32::try_from(head >> 3).ok()?);
    let value = match head & 7 {
        kind::INT => {
            let value = take_varint(bytes)?;
            StoredValue::Int((value >> 1) as i64 ^ -((value & 1) as i64))
        }
        kind::UINT => StoredValue::Uint(take_varint(bytes)?),
        kind::FLOAT => {
            let (bits, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            StoredValue::Float(f64::from_bits(u64::from_le_bytes(*bits)))
        }
        kind::FALSE => StoredValue::Bool(false),
        kind::TRUE => StoredValue::Bool(true),
        kind::STR => StoredValue::Str(NameId(u32::try_from(take_varint(bytes)?).ok()?)),
        _ => return None,
    };
    Some((name, value))
}

/// Writes a number and returns its end.
#[inline]
fn put(bytes: &mut [u8], mut at: usize, mut number: u64) -> usize {
    while number >= 0x80 {
        bytes[at] = number as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    bytes[at] = number as u8;
    at + 1
}

/// Removes a number from the front; none if it does not end. Most have one or two bytes.
#[inline(always)]
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    match **bytes {
        [byte, ref rest @ ..] if byte < 0x80 => {
            *bytes = rest;
            Some(byte.into())
        }
        [low, high, ref rest @ ..] if high < 0x80 => {
            *bytes = rest;
            Some(u64::from(low & 0x7f) | u64::from(high) << 7)
        }
        _ => take_long_varint(bytes),
    }
}

fn take_long_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for (at, &byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f).checked_shl(7 * at as u32)?;
        if byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return Some(number);
        }
    }
    None
}

/// The fields of a span or mark, in their order.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    pub(crate) names: &'a Names,
    pub(crate) blocks: &'a FieldBlocks,
    pub(crate) block: FieldBlock,
}

impl<'a> Fields<'a> {
    /// Iterates over names and values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let names = self.names;
        self.blocks.fields(self.block).map(move |(name, value)| (names.name(name), shown(names, value)))
    }

    /// Finds a field by its name.
    ///
    /// To read one field of many spans, call [`Trace::known_name`](crate::Trace::known_name) once, and then
    /// [`Fields::named`].
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        if self.is_empty() {
            return None;
        }
        self.named(self.names.known(name)?)
    }

    /// Finds a field by the id of its name.
    pub fn named(&self, name: NameId) -> Option<Value<'a>> {
        self.blocks.fields(self.block).find(|(known, _)| *known == name).map(|(_, value)| shown(self.names, value))
    }

    /// Iterates over the ids of names and each field as it is stored: fields with equal bytes are equal.
    pub fn stored(&self) -> impl Iterator<Item = (NameId, &'a [u8])> + use<'a> {
        let mut stored = self.blocks.fields(self.block);
        std::iter::from_fn(move || {
            let before = stored.bytes;
            let (name, _) = stored.next()?;
            Some((name, &before[..before.len() - stored.bytes.len()]))
        })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.block == FieldBlock::NONE || self.blocks.fields(self.block).left == 0
    }
}

fn shown(names: &Names, value: StoredValue) -> Value<'_> {
    match value {
        StoredValue::Int(value) => Value::Int(value),
        StoredValue::Uint(value) => Value::from(value),
        StoredValue::Float(value) => Value::Float(value),
        StoredValue::Bool(value) => Value::Bool(value),
        StoredValue::Str(name) => Value::Str(names.name(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown_block(blocks: &FieldBlocks, block: FieldBlock) -> String {
        blocks.fields(block).map(|(name, value)| format!("{}={value:?} ", name.0)).collect()
    }

    #[test]
    fn every_kind_of_value_comes_back() {
        let mut blocks = FieldBlocks::default();
        let values = [
            StoredValue::Int(i64::MIN),
            StoredValue::Int(-1),
            StoredValue::Int(i64::MAX),
            StoredValue::Uint(u64::MAX),
            StoredValue::Float(-0.0),
            StoredValue::Bool(true),
            StoredValue::Bool(false),
            StoredValue::Str(NameId(u32::MAX)),
        ];
        let mut fields: Vec<_> = values.iter().enumerate().map(|(at, &value)| (NameId(at as u32), value)).collect();
        let expected: String = fields.iter().map(|(name, value)| format!("{}={value:?} ", name.0)).collect();
        let block = blocks.add(&mut fields);
        assert_eq!(shown_block(&blocks, block), expected);
        assert_eq!(blocks.fields(FieldBlock::NONE).count(), 0);
    }

    #[test]
    fn stored_fields_are_equal_if_name_kind_and_value_are() {
        let (names, mut blocks) = (Names::default(), FieldBlocks::default());
        let mut stored = |value| {
            let block = blocks.add(&mut vec![(NameId(7), StoredValue::Bool(true)), (NameId(1), value)]);
            let fields = Fields { names: &names, blocks: &blocks, block };
            fields.stored().map(|(name, bytes)| (name, bytes.to_vec())).collect::<Vec<_>>()
        };
        let [one, same, float] = [StoredValue::Int(1), StoredValue::Int(1), StoredValue::Float(1.0)].map(&mut stored);
        assert_eq!(one, same);
        assert_eq!((one[0].0, &one[0], one.len()), (NameId(7), &float[0], 2));
        assert_ne!(one[1], float[1]);
    }

    #[test]
    fn the_later_of_two_values_counts_whether_fields_are_few_or_many() {
        for others in [1, 40] {
            let mut blocks = FieldBlocks::default();
            let mut fields: Vec<_> = (0..others).map(|at| (NameId(at), StoredValue::Int(1))).collect();
            fields.push((NameId(0), StoredValue::Int(2)));
            let block = blocks.add(&mut fields);
            assert_eq!(blocks.fields(block).count(), others as usize);
            assert!(shown_block(&blocks, block).starts_with("0=Int(2) "));
        }
    }

    #[test]
    fn a_truncated_block_has_no_fields() {
        let mut blocks = FieldBlocks::default();
        let block = blocks.add(&mut vec![(NameId(3), StoredValue::Float(0.5))]);
        blocks.0.pop();
        assert_eq!((blocks.fields(block).len(), blocks.fields(block).count()), (1, 0));
        assert_eq!(blocks.fields(FieldBlock(99)).len(), 0);
    }
}
