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

/// The sets of fields of all spans and marks.
pub(crate) struct FieldSets<'a> {
    names: Vec<&'a str>,
    left_out: Vec<&'a str>,
    list: Vec<Vec<(u32, Exact<'a>)>>,
    /// The set of each span and mark, in the order in which they were given.
    set_of: Vec<u32>,
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
    /// Finds the fields that describe spans, and the set of each of them.
    pub(crate) fn of<I: Iterator<Item = Option<Fields<'a>>>>(all: impl Fn() -> I) -> Self {
        let mut varied = varied(all().flatten());
        let mut left_out: Vec<&str> =
            varied.iter().filter(|(_, values)| *values >= MANY).map(|(key, _)| *key).collect();
        varied.retain(|(_, values)| *values < MANY);
        loop {
            let names: Vec<&str> = varied.iter().map(|(key, _)| *key).collect();
            if let Some((list, set_of)) = sets(&names, all()) {
                left_out.sort_unstable();
                return Self { names, left_out, list, set_of };
            }
            left_out.extend(varied.pop().map(|(key, _)| key));
        }
    }

    /// The set of what was given at this place; 0 is the empty one.
    pub(crate) fn at(&self, place: usize) -> u32 {
        self.set_of[place]
    }

    /// The names of fields, the sets (each with the numbers of names and the values in turn), and the names left out.
    pub(crate) fn to_json(&self) -> [serde_json::Value; 3] {
        let set = |set: &Vec<(u32, Exact<'_>)>| -> Vec<serde_json::Value> {
            set.iter().flat_map(|(key, value)| [json!(key), shown(value.0)]).collect()
        };
        [json!(self.names), json!(self.list.iter().map(set).collect::<Vec<_>>()), json!(self.left_out)]
    }
}

type Set<'a> = Vec<(u32, Exact<'a>)>;

/// The different sets and the set of each; none if there are too many.
fn sets<'a>(names: &[&'a str], all: impl Iterator<Item = Option<Fields<'a>>>) -> Option<(Vec<Set<'a>>, Vec<u32>)> {
    let mut numbers = Keys::default();
    for (number, name) in names.iter().enumerate() {
        numbers.add(name, number as u32);
    }
    let mut known: HashMap<Set<'a>, u32> = HashMap::new();
    let (mut list, mut set_of) = (vec![Vec::new()], Vec::new());
    let mut set = Set::new();
    for fields in all {
        set.clear();
        set.extend(
            fields.iter().flat_map(Fields::iter).filter_map(|(key, value)| Some((numbers.get(key)?, Exact(value)))),
        );
        let number = match known.get(&set) {
            _ if set.is_empty() => 0,
            Some(&number) => number,
            None => {
                let number = list.len() as u32;
                known.insert(set.clone(), number);
                list.push(set.clone());
                number
            }
        };
        set_of.push(number);
        if list.len() > MOST_SETS {
            return None;
        }
    }
    Some((list, set_of))
}

/// Numbers of names. A name of a trace is stored once, so most are found by their address.
#[derive(Default)]
struct Keys<'a> {
    by_text: HashMap<&'a str, u32>,
    by_address: HashMap<(usize, usize), Option<u32>>,
}

impl<'a> Keys<'a> {
    fn add(&mut self, name: &'a str, number: u32) {
        self.by_text.insert(name, number);
    }

    fn get(&mut self, name: &'a str) -> Option<u32> {
        let address = (name.as_ptr() as usize, name.len());
        *self.by_address.entry(address).or_insert_with(|| self.by_text.get(name).copied())
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
    let mut places: HashMap<(usize, usize), usize> = HashMap::new();
    let mut values: Vec<(&str, HashSet<u64>)> = Vec::new();
    for fields in all {
        for (key, value) in fields.iter() {
            let place = *places.entry((key.as_ptr() as usize, key.len())).or_insert_with(|| {
                values.push((key, HashSet::new()));
                values.len() - 1
            });
            let known = &mut values[place].1;
            if known.len() < MANY {
                known.insert(hasher.hash_one(Exact(value)));
            }
        }
    }
    let mut varied: Vec<(&str, usize)> = values.into_iter().map(|(key, values)| (key, values.len())).collect();
    varied.sort_unstable_by_key(|&(key, values)| (values, key));
    varied
}
