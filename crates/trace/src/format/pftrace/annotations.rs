//! The fields of track events: Perfetto calls them debug annotations.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use super::proto::{DebugAnnotation, InternedName};
use crate::{builder::TraceBuilder, fields::StoredValue, names::NameId};

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

    /// The annotations as fields; arrays and dictionaries as JSON.
    pub fn fields(&self, annotations: &[DebugAnnotation], builder: &mut TraceBuilder) -> Vec<(NameId, StoredValue)> {
        annotations
            .iter()
            .filter_map(|annotation| {
                let value = self.value(annotation, builder)?;
                Some((self.name(annotation, builder), value))
            })
            .collect()
    }

    fn name(&self, annotation: &DebugAnnotation, builder: &mut TraceBuilder) -> NameId {
        let interned = annotation.name_iid.and_then(|iid| self.names.get(&iid).copied());
        interned.unwrap_or_else(|| name_of(annotation.name.as_deref(), builder))
    }

    fn value(&self, annotation: &DebugAnnotation, builder: &mut TraceBuilder) -> Option<StoredValue> {
        let text = annotation.string_value.as_deref().or(annotation.json_value.as_deref());
        Some(if let Some(value) = annotation.int_value {
            StoredValue::Int(value)
        } else if let Some(value) = annotation.uint_value.or(annotation.pointer_value) {
            StoredValue::Uint(value)
        } else if let Some(value) = annotation.double_value {
            StoredValue::Float(value)
        } else if let Some(value) = annotation.bool_value {
            StoredValue::Bool(value)
        } else if let Some(value) = text {
            StoredValue::Str(name_of(Some(value), builder))
        } else if let Some(&value) = annotation.string_value_iid.and_then(|iid| self.strings.get(&iid)) {
            StoredValue::Str(value)
        } else if annotation.entries.is_empty() && annotation.elements.is_empty() {
            return None;
        } else {
            let json = self.json(annotation, builder).to_string();
            StoredValue::Str(builder.name(&json))
        })
    }

    /// A nested annotation; the decoder has limited the depth.
    fn json(&self, annotation: &DebugAnnotation, builder: &mut TraceBuilder) -> Json {
        if !annotation.elements.is_empty() {
            return annotation.elements.iter().map(|element| self.json(element, builder)).collect();
        }
        if !annotation.entries.is_empty() {
            let mut entries = Map::new();
            for entry in &annotation.entries {
                let (name, value) = (self.name(entry, builder), self.json(entry, builder));
                entries.insert(builder.text(name).to_owned(), value);
            }
            return Json::Object(entries);
        }
        match self.value(annotation, builder) {
            Some(StoredValue::Int(value)) => value.into(),
            Some(StoredValue::Uint(value)) => value.into(),
            Some(StoredValue::Float(value)) => value.into(),
            Some(StoredValue::Bool(value)) => value.into(),
            Some(StoredValue::Str(value)) => builder.text(value).into(),
            None => Json::Null,
        }
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
