//! The fields of track events: Perfetto calls them debug annotations.

use hashbrown::HashMap;
use serde_json::{Map, Value as Json};

use super::{
    packet::{Annotation, Event},
    proto::InternedName,
    wire::{Damaged, Fields},
};
use crate::{builder::TraceBuilder, fields::StoredValue, names::NameId};

/// The depth of dictionaries and arrays that counts as damage.
const TOO_DEEP: u32 = 100;

/// The field numbers of the members of a dictionary and an array.
const ENTRY: u32 = 11;
const ELEMENT: u32 = 12;

/// The interned strings of one sequence that annotations refer to.
#[derive(Debug, Default)]
pub struct AnnotationNames {
    names: HashMap<u64, NameId>,
    strings: HashMap<u64, NameId>,
}

impl AnnotationNames {
    pub fn take(&mut self, names: &[InternedName], strings: &[InternedName], builder: &mut TraceBuilder) {
        intern(names, &mut self.names, builder);
        intern(strings, &mut self.strings, builder);
    }

    /// Puts the annotations of an event into `fields`; arrays and dictionaries as JSON.
    pub fn read(
        &self,
        event: &Event<'_>,
        fields: &mut Vec<(NameId, StoredValue)>,
        builder: &mut TraceBuilder,
    ) -> Result<(), Damaged> {
        fields.clear();
        for bytes in event.annotations() {
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

    fn name(&self, annotation: &Annotation<'_>, builder: &mut TraceBuilder) -> NameId {
        let interned = annotation.name_iid.and_then(|iid| self.names.get(&iid).copied());
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
            StoredValue::Str(*self.strings.get(&annotation.text_iid?)?)
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

pub fn intern(entries: &[InternedName], table: &mut HashMap<u64, NameId>, builder: &mut TraceBuilder) {
    for entry in entries {
        if let Some(iid) = entry.iid {
            table.insert(iid, name_of(entry.name.as_deref(), builder));
        }
    }
}
