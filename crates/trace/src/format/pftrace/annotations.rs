//! The fields of track events: Perfetto calls them debug annotations.

use hashbrown::HashMap;
use serde_json::{Map, Value as Json};

use super::packet::{Annotation, Event};
use super::proto::InternedName;
use super::wire::{Damaged, Fields, varint};
use crate::{builder::TraceBuilder, fields::StoredValue, names::NameId};

/// The depth of dictionaries and arrays that counts as damage.
const TOO_DEEP: u32 = 100;

/// The field numbers of the members of a dictionary and an array.
const ENTRY: u32 = 11;
const ELEMENT: u32 = 12;

/// Interned strings by id. Writers count from one, so most ids are indices.
#[derive(Debug, Default)]
pub struct Interned {
    near: Vec<Option<NameId>>,
    far: HashMap<u64, NameId>,
}

impl Interned {
    #[inline]
    pub fn get(&self, number: u64) -> Option<NameId> {
        let near = usize::try_from(number).ok().and_then(|at| *self.near.get(at)?);
        near.or_else(|| if self.far.is_empty() { None } else { self.far.get(&number).copied() })
    }

    fn insert(&mut self, number: u64, name: NameId) {
        // The table grows with the number of strings, not with their largest id.
        match usize::try_from(number) {
            Ok(at) if at <= 2 * self.near.len() + 64 => {
                self.near.resize(self.near.len().max(at + 1), None);
                self.near[at] = Some(name);
            }
            _ => drop(self.far.insert(number, name)),
        }
    }
}

/// The names and strings of annotations, interned per sequence.
#[derive(Debug, Default)]
pub struct AnnotationNames {
    names: Interned,
    strings: Interned,
}

impl AnnotationNames {
    pub fn take(&mut self, names: &[InternedName], strings: &[InternedName], builder: &mut TraceBuilder) {
        intern(names, &mut self.names, builder);
        intern(strings, &mut self.strings, builder);
    }

    /// Reads the annotations of an event into `fields`; arrays and dictionaries become JSON.
    pub fn read(
        &self,
        event: &Event<'_>,
        fields: &mut Vec<(NameId, StoredValue)>,
        builder: &mut TraceBuilder,
    ) -> Result<(), Damaged> {
        fields.clear();
        for bytes in event.annotations() {
            if let Some(field) = self.usual(bytes) {
                fields.push(field);
                continue;
            }
            let annotation = Annotation::of(bytes)?;
            let value = match self.value(&annotation, builder) {
                Some(value) => value,
                None if annotation.is_nested => {
                    let json = self.json(bytes, builder, 0)?.to_string();
                    StoredValue::Str(builder.name(&json))
                }
                None => continue,
            };
            fields.push((self.name(&annotation, builder), value));
        }
        Ok(())
    }

    /// An annotation with an interned name and one value: nearly all of them.
    #[inline]
    fn usual(&self, bytes: &[u8]) -> Option<(NameId, StoredValue)> {
        let mut rest = bytes.strip_prefix(&[0x08])?;
        let name = self.names.get(varint(&mut rest)?)?;
        let value = match varint(&mut rest)? {
            0x10 => StoredValue::Bool(varint(&mut rest)? != 0),
            0x18 => StoredValue::Uint(varint(&mut rest)?),
            0x20 => StoredValue::Int(varint(&mut rest)? as i64),
            0x29 => {
                let (bits, after) = rest.split_first_chunk()?;
                rest = after;
                StoredValue::Float(f64::from_bits(u64::from_le_bytes(*bits)))
            }
            0x88 => StoredValue::Str(self.strings.get(varint(&mut rest)?)?),
            _ => return None,
        };
        rest.is_empty().then_some((name, value))
    }

    fn name(&self, annotation: &Annotation<'_>, builder: &mut TraceBuilder) -> NameId {
        let interned = annotation.name_iid.and_then(|iid| self.names.get(iid));
        interned.unwrap_or_else(|| name_of(annotation.name, builder))
    }

    fn value(&self, annotation: &Annotation<'_>, builder: &mut TraceBuilder) -> Option<StoredValue> {
        Some(if let Some(value) = annotation.int_value {
            StoredValue::Int(value)
        } else if let Some(value) = annotation.uint_value {
            StoredValue::Uint(value)
        } else if let Some(value) = annotation.double_value {
            StoredValue::Float(value)
        } else if let Some(value) = annotation.bool_value {
            StoredValue::Bool(value)
        } else if let Some(text) = annotation.text {
            StoredValue::Str(name_of(Some(text), builder))
        } else {
            StoredValue::Str(self.strings.get(annotation.text_iid?)?)
        })
    }

    /// A nested annotation.
    fn json(&self, bytes: &[u8], builder: &mut TraceBuilder, depth: u32) -> Result<Json, Damaged> {
        let annotation = Annotation::of(bytes)?;
        if !annotation.is_nested {
            return Ok(match self.value(&annotation, builder) {
                Some(StoredValue::Int(value)) => value.into(),
                Some(StoredValue::Uint(value)) => value.into(),
                Some(StoredValue::Float(value)) => value.into(),
                Some(StoredValue::Bool(value)) => value.into(),
                Some(StoredValue::Str(value)) => builder.text(value).into(),
                None => Json::Null,
            });
        }
        if depth == TOO_DEEP {
            return Err(Damaged);
        }
        let (mut entries, mut elements) = (Map::new(), Vec::new());
        for field in Fields(bytes) {
            let (tag, value) = field?;
            if tag == ELEMENT {
                elements.push(self.json(value.bytes()?, builder, depth + 1)?);
            } else if tag == ENTRY {
                let entry = value.bytes()?;
                let name = self.name(&Annotation::of(entry)?, builder);
                let value = self.json(entry, builder, depth + 1)?;
                entries.insert(builder.text(name).to_owned(), value);
            }
        }
        Ok(if elements.is_empty() { Json::Object(entries) } else { elements.into() })
    }
}

pub fn name_of(bytes: Option<&[u8]>, builder: &mut TraceBuilder) -> NameId {
    bytes.map_or(NameId::EMPTY, |bytes| builder.name(&String::from_utf8_lossy(bytes)))
}

pub fn intern(entries: &[InternedName], table: &mut Interned, builder: &mut TraceBuilder) {
    for entry in entries {
        if let Some(iid) = entry.iid {
            table.insert(iid, name_of(entry.name.as_deref(), builder));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interned_strings_are_found_by_any_id() {
        let mut table = Interned::default();
        let numbers = [1, 2, 1 << 40, 500, 3, 100, 64, 2_000, u64::MAX];
        for (at, &number) in numbers.iter().enumerate() {
            table.insert(number, NameId(at as u32));
        }
        (4..700).for_each(|number| table.insert(number, NameId(1_000 + number as u32)));
        table.insert(2_000, NameId(7_777));
        let found = |number| table.get(number).map(|name| name.0);
        assert_eq!([1, 2, 3, 1 << 40, u64::MAX].map(found), [Some(0), Some(1), Some(4), Some(2), Some(8)]);
        assert_eq!(
            [500, 100, 2_000, 0, 701, 1_999].map(found),
            [Some(1_500), Some(1_100), Some(7_777), None, None, None]
        );
        assert!(table.near.len() < 2_000, "numbers alone take no memory");
    }
}
