//! The fields of spans as a list of different sets: most kernels of a program have the same few shapes.
//!
//! Fields with too many different values, such as correlation numbers, identify a span instead of describing it. They
//! are left out, the most varied first, until the sets fit, and the page names them.

use std::hash::{BuildHasher, Hash, Hasher};

use hashbrown::{DefaultHashBuilder, HashMap, HashSet};
use laptime_trace::{Fields, Value};
use serde_json::json;

/// More values of a field are not counted.
const MANY: usize = 4096;

/// Sets at most.
const MOST_SETS: usize = 30_000;

/// Characters of a value that are kept.
const LONGEST: usize = 2000;

/// The sets of fields of all spans.
pub(crate) struct FieldSets<'a> {
    keys: HashMap<&'a str, u32>,
    names: Vec<&'a str>,
    left_out: Vec<&'a str>,
    sets: HashMap<Vec<(u32, Exact<'a>)>, u32>,
    list: Vec<Vec<(u32, Exact<'a>)>>,
}

/// A value that is compared exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Exact<'a>(Value<'a>);

impl Eq for Exact<'_> {}

impl Hash for Exact<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.0 {
            Value::Int(value) => value.hash(state),
            Value::Uint(value) => value.hash(state),
            Value::Float(value) => value.to_bits().hash(state),
            Value::Bool(value) => value.hash(state),
            Value::Str(value) => value.hash(state),
        }
    }
}

impl<'a> FieldSets<'a> {
    /// Finds the fields that describe spans.
    pub(crate) fn of(all: impl Fn() -> Box<dyn Iterator<Item = Fields<'a>> + 'a>) -> Self {
        let mut varied = varied(all());
        let mut left_out: Vec<&str> =
            varied.iter().filter(|(_, values)| *values >= MANY).map(|(key, _)| *key).collect();
        varied.retain(|(_, values)| *values < MANY);
        loop {
            let mut sets = Self {
                keys: HashMap::new(),
                names: Vec::new(),
                left_out: left_out.clone(),
                sets: HashMap::new(),
                list: vec![Vec::new()],
            };
            for (key, _) in &varied {
                sets.keys.insert(key, sets.names.len() as u32);
                sets.names.push(key);
            }
            if all().all(|fields| sets.add(fields) < MOST_SETS as u32) {
                sets.left_out.sort_unstable();
                return sets;
            }
            left_out.extend(varied.pop().map(|(key, _)| key));
        }
    }

    fn key(&self, fields: Fields<'a>) -> Vec<(u32, Exact<'a>)> {
        fields.iter().filter_map(|(key, value)| Some((*self.keys.get(key)?, Exact(value)))).collect()
    }

    fn add(&mut self, fields: Fields<'a>) -> u32 {
        let key = self.key(fields);
        if key.is_empty() {
            return 0;
        }
        let next = self.list.len() as u32;
        *self.sets.entry(key).or_insert_with_key(|key| {
            self.list.push(key.clone());
            next
        })
    }

    /// The number of a set; 0 is the empty one.
    pub(crate) fn get(&self, fields: Fields<'a>) -> u32 {
        if fields.is_empty() { 0 } else { self.sets.get(&self.key(fields)).copied().unwrap_or(0) }
    }

    /// The names of fields, the sets (each with the numbers of names and the values in turn), and the names left out.
    pub(crate) fn to_json(&self) -> [serde_json::Value; 3] {
        let set = |set: &Vec<(u32, Exact<'_>)>| -> Vec<serde_json::Value> {
            set.iter().flat_map(|(key, value)| [json!(key), shown(value.0)]).collect()
        };
        [json!(self.names), json!(self.list.iter().map(set).collect::<Vec<_>>()), json!(self.left_out)]
    }
}

fn shown(value: Value<'_>) -> serde_json::Value {
    match value {
        // JavaScript would round it.
        Value::Int(value) if value.unsigned_abs() >= 1 << 53 => json!(value.to_string()),
        Value::Int(value) => json!(value),
        Value::Uint(value) => json!(value.to_string()),
        Value::Float(value) if value.is_finite() => json!(value),
        Value::Float(value) => json!(value.to_string()),
        Value::Bool(value) => json!(value),
        Value::Str(value) => match value.char_indices().nth(LONGEST) {
            Some((end, _)) => json!(format!("{}…", &value[..end])),
            None => json!(value),
        },
    }
}

/// The fields with the number of their values, fewest first; [`MANY`] stands for more.
fn varied<'a>(all: impl Iterator<Item = Fields<'a>>) -> Vec<(&'a str, usize)> {
    let hasher = DefaultHashBuilder::default();
    let mut values: HashMap<&str, HashSet<u64>> = HashMap::new();
    for fields in all {
        for (key, value) in fields.iter() {
            let known = values.entry(key).or_default();
            if known.len() < MANY {
                known.insert(hasher.hash_one(Exact(value)));
            }
        }
    }
    let mut varied: Vec<(&str, usize)> = values.into_iter().map(|(key, values)| (key, values.len())).collect();
    varied.sort_unstable_by_key(|&(key, values)| (values, key));
    varied
}
