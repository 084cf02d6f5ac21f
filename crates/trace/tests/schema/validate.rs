//! Validates a JSON value against a JSON schema, limited to what our schemas use.
//!
//! A validator for all of JSON Schema (`jsonschema` 0.60 without its default features) would add 30 crates to the lock
//! file. Our schemas use about fifteen keywords; an unknown keyword is an error, so that none is ignored.

use serde_json::{Map, Value};

/// Keywords that are for people, or that belong to another keyword.
const SILENT: [&str; 6] = ["$schema", "title", "description", "$defs", "default", "format"];

/// The violations; empty if the value is valid.
pub fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    Check { root: schema, faults: &mut faults }.check(schema, value, "");
    faults
}

struct Check<'a> {
    root: &'a Value,
    faults: &'a mut Vec<String>,
}

impl Check<'_> {
    fn fault(&mut self, fault: String) {
        self.faults.push(fault);
    }

    fn check(&mut self, schema: &Value, value: &Value, at: &str) {
        match schema {
            Value::Bool(true) => {}
            Value::Object(words) => words.iter().for_each(|(word, meaning)| self.word(words, word, meaning, value, at)),
            _ => self.fault(format!("nothing fits `{at}`")),
        }
    }

    fn word(&mut self, words: &Map<String, Value>, word: &str, meaning: &Value, value: &Value, at: &str) {
        match word {
            word if SILENT.contains(&word) => {}
            "$ref" => self.reference(meaning, value, at),
            "type" => self.kind(meaning, value, at),
            "properties" => self.properties(meaning, value, at),
            "additionalProperties" => self.additional(words, meaning, value, at),
            "required" => self.required(meaning, value, at),
            "items" => self.items(meaning, value, at),
            "oneOf" => self.alternatives(meaning, value, at, |fitting| fitting == 1),
            "anyOf" => self.alternatives(meaning, value, at, |fitting| fitting > 0),
            "enum" if !list(meaning).contains(value) => self.fault(format!("`{at}` is none of {meaning}")),
            "const" if meaning != value => self.fault(format!("`{at}` is not {meaning}")),
            "minimum" if value.as_f64() < meaning.as_f64() && value.is_number() => {
                self.fault(format!("`{at}` is below {meaning}"));
            }
            "enum" | "const" | "minimum" => {}
            word => self.fault(format!("the schema's word `{word}` is not understood")),
        }
    }

    fn reference(&mut self, meaning: &Value, value: &Value, at: &str) {
        let pointer = meaning.as_str().and_then(|path| path.strip_prefix('#'));
        match pointer.and_then(|pointer| self.root.pointer(pointer)) {
            Some(schema) => self.check(schema, value, at),
            None => self.fault(format!("the schema refers to {meaning}, which is not there")),
        }
    }

    fn kind(&mut self, meaning: &Value, value: &Value, at: &str) {
        let kinds = meaning.as_array().map_or_else(|| vec![meaning.clone()], Clone::clone);
        let fits = kinds.iter().filter_map(Value::as_str).any(|kind| is_of_kind(value, kind));
        if !fits {
            let kinds: Vec<_> = kinds.iter().filter_map(Value::as_str).collect();
            self.fault(format!("`{at}` is no {}", kinds.join(" or ")));
        }
    }

    fn properties(&mut self, meaning: &Value, value: &Value, at: &str) {
        for (name, schema) in meaning.as_object().into_iter().flatten() {
            if let Some(inner) = value.get(name) {
                self.check(schema, inner, &format!("{at}/{name}"));
            }
        }
    }

    fn additional(&mut self, words: &Map<String, Value>, meaning: &Value, value: &Value, at: &str) {
        let known = |name: &String| words.get("properties").is_some_and(|known| known.get(name).is_some());
        for (name, inner) in value.as_object().into_iter().flatten().filter(|(name, _)| !known(name)) {
            self.check(meaning, inner, &format!("{at}/{name}"));
        }
    }

    fn required(&mut self, meaning: &Value, value: &Value, at: &str) {
        let names = list(meaning).iter().filter_map(Value::as_str);
        for name in names.filter(|name| value.is_object() && value.get(name).is_none()) {
            self.fault(format!("`{name}` is missing in `{at}`"));
        }
    }

    fn items(&mut self, meaning: &Value, value: &Value, at: &str) {
        for (index, inner) in list(value).iter().enumerate() {
            self.check(meaning, inner, &format!("{at}/{index}"));
        }
    }

    fn alternatives(&mut self, meaning: &Value, value: &Value, at: &str, are_enough: fn(usize) -> bool) {
        let fits = |schema: &&Value| {
            let mut faults = Vec::new();
            Check { root: self.root, faults: &mut faults }.check(schema, value, at);
            faults.is_empty()
        };
        let fitting = list(meaning).iter().filter(fits).count();
        if !are_enough(fitting) {
            self.fault(format!("`{at}` fits {fitting} of {} alternatives", list(meaning).len()));
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn is_of_kind(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}
