//! The fields of spans as a list of different sets: most kernels of a program have the same few shapes.
//!
//! Fields with too many different values, such as correlation numbers, identify a span instead of describing it. They
//! are left out, the most varied first, until the sets fit, and the page names them.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashSet};
use laptime_trace::{Fields, NameId, Trace, Value};
use serde_json::json;

/// More values of a field are not counted.
const MANY: usize = 4096;

/// Sets at most.
const MOST_SETS: usize = 30_000;

/// Characters of a value that are kept.
const LONGEST: usize = 2000;

/// The sets of fields of all spans and marks.
#[derive(Debug)]
pub(crate) struct FieldSets<'a> {
    names: Vec<&'a str>,
    left_out: Vec<&'a str>,
    list: Vec<Set<'a>>,
    /// The set of each span and mark, in the order in which they were given.
    set_of: Vec<u32>,
}

/// The numbers of names and the values.
type Set<'a> = Vec<(u32, Value<'a>)>;

impl<'a> FieldSets<'a> {
    /// Finds the fields that describe spans, and the set of each of them.
    pub(crate) fn of<I: Iterator<Item = Option<Fields<'a>>>>(trace: &'a Trace, all: impl Fn() -> I) -> Self {
        let mut varied = varied(trace, all().flatten());
        let text = |name: NameId| trace.name(name);
        let mut left_out: Vec<&str> =
            varied.iter().filter(|(_, values)| *values >= MANY).map(|(name, _)| text(*name)).collect();
        varied.retain(|(_, values)| *values < MANY);
        loop {
            let names: Vec<NameId> = varied.iter().map(|(name, _)| *name).collect();
            if let Some((list, set_of)) = sets(&names, all()) {
                left_out.sort_unstable();
                return Self { names: names.into_iter().map(text).collect(), left_out, list, set_of };
            }
            left_out.extend(varied.pop().map(|(name, _)| text(name)));
        }
    }

    /// The set of what was given at this place; 0 is the empty one.
    pub(crate) fn at(&self, place: usize) -> u32 {
        self.set_of[place]
    }

    /// The names of fields, the sets (each with the numbers of names and the values in turn), and the names left out.
    pub(crate) fn to_json(&self) -> [serde_json::Value; 3] {
        let set = |set: &Set<'_>| -> Vec<serde_json::Value> {
            set.iter().flat_map(|(key, value)| [json!(key), shown(*value)]).collect()
        };
        [json!(self.names), json!(self.list.iter().map(set).collect::<Vec<_>>()), json!(self.left_out)]
    }
}

/// A number per name, by the place of the name: a table, because every field of every span is looked up.
#[derive(Default)]
struct Numbers(Vec<u32>);

impl Numbers {
    const NONE: u32 = u32::MAX;

    fn get(&self, name: NameId) -> Option<u32> {
        self.0.get(name.index()).copied().filter(|&number| number != Self::NONE)
    }

    fn set(&mut self, name: NameId, number: u32) {
        if self.0.len() <= name.index() {
            self.0.resize(name.index() + 1, Self::NONE);
        }
        self.0[name.index()] = number;
    }
}

/// The different sets and the set of each; none if there are too many.
fn sets<'a>(names: &[NameId], all: impl Iterator<Item = Option<Fields<'a>>>) -> Option<(Vec<Set<'a>>, Vec<u32>)> {
    let mut numbers = Numbers::default();
    names.iter().enumerate().for_each(|(number, &name)| numbers.set(name, number as u32));
    let mut known: HashMap<Box<[u8]>, u32> = HashMap::new();
    let (mut list, mut set_of) = (vec![Set::new()], Vec::new());
    let mut key = Vec::new();
    for fields in all {
        key.clear();
        let Some(fields) = fields.filter(|fields| !fields.is_empty()) else {
            set_of.push(0);
            continue;
        };
        let kept = fields.stored().filter(|(name, _)| numbers.get(*name).is_some());
        kept.for_each(|(_, bytes)| key.extend_from_slice(bytes));
        let number = match known.get(key.as_slice()) {
            _ if key.is_empty() => 0,
            Some(&number) => number,
            None => {
                let number = list.len() as u32;
                known.insert(key.as_slice().into(), number);
                let named = std::iter::zip(fields.stored(), fields.iter());
                list.push(named.filter_map(|((name, _), (_, value))| Some((numbers.get(name)?, value))).collect());
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

/// The names of fields with the number of their values, fewest first, counted up to [`MANY`].
fn varied<'a>(trace: &Trace, all: impl Iterator<Item = Fields<'a>>) -> Vec<(NameId, usize)> {
    let hasher = DefaultHashBuilder::default();
    let mut places = Numbers::default();
    let mut values: Vec<(NameId, HashSet<u64>)> = Vec::new();
    for (name, bytes) in all.flat_map(|fields| fields.stored()) {
        let place = places.get(name).unwrap_or_else(|| {
            places.set(name, values.len() as u32);
            values.push((name, HashSet::new()));
            values.len() as u32 - 1
        });
        let known = &mut values[place as usize].1;
        if known.len() < MANY {
            known.insert(hasher.hash_one(bytes));
        }
    }
    let mut varied: Vec<(NameId, usize)> = values.into_iter().map(|(name, values)| (name, values.len())).collect();
    varied.sort_unstable_by_key(|&(name, values)| (values, trace.name(name)));
    varied
}
