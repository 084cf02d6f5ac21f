//! Syncs by source location: a line of Rust, or a Python function.

use hashbrown::HashMap;

use laptime_trace::{Fields, Nanos, Trace, Value};

use super::sites::{Site, Sites};
use crate::devices::devices;
use crate::lap_unit::{NoLaps, unit_if_any};
use crate::waits::{Found, Place, waits};

/// The syncs of a trace by source location.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitPlaces {
    /// The locations, most time first.
    pub places: Vec<WaitPlace>,
    /// The unit and number of laps; none if nothing repeats.
    pub laps: Option<(String, u64)>,
}

/// Syncs of one call at one location.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitPlace {
    /// The file; empty if unknown.
    pub file: String,
    /// The line; for a Python function, its first line. 0 without a file.
    pub line: u64,
    /// The Python function; without a file, the path of stages and operations.
    pub function: Option<String>,
    /// What that function called: `item`, `synchronize`.
    pub method: Option<String>,
    /// The sync call, or the name that the program gave the sync.
    pub call: String,
    /// How often.
    pub count: u64,
    /// The total time; none if no length is known.
    pub total: Option<Nanos>,
    /// Syncs in laps / number of laps.
    pub a_lap: Option<f64>,
}

/// Finds every host sync and its source location.
///
/// # Errors
///
/// If the named lap is not in the trace.
pub fn wait_places(trace: &Trace, lap: Option<&str>) -> Result<WaitPlaces, NoLaps> {
    let devices = devices(trace);
    let unit = unit_if_any(trace, &devices, lap)?;
    let found = waits(trace, &devices);
    let sites = Sites::of(trace, &devices.activities, &found);
    let mut groups: HashMap<Key<'_>, Group> = HashMap::new();
    for wait in &found {
        let in_lap = unit.as_ref().is_some_and(|unit| unit.at(wait.start).is_some());
        groups.entry(key(trace, &sites, wait)).or_default().add(wait, in_lap);
    }
    let laps = unit.map(|unit| (unit.name, unit.laps.len() as u64));
    let found_places = groups.iter().map(|(key, group)| group.place(key, &sites, laps.as_ref()));
    Ok(WaitPlaces { places: in_order(found_places.collect()), laps })
}

/// Sorts locations by time.
fn in_order(mut places: Vec<WaitPlace>) -> Vec<WaitPlace> {
    let words = |place: &WaitPlace| {
        let WaitPlace { file, line, function, method, call, .. } = place.clone();
        (std::cmp::Reverse((place.total, place.count)), file, line, call, function, method)
    };
    places.sort_by_cached_key(words);
    places
}

#[derive(Debug, Default)]
struct Group {
    count: u64,
    in_laps: u64,
    total: Option<u64>,
}

impl Group {
    fn add(&mut self, wait: &Found, in_lap: bool) {
        self.count += 1;
        self.in_laps += u64::from(in_lap);
        let length = wait.end.map(|end| end.saturating_sub(wait.start));
        self.total = length.map(|length| self.total.unwrap_or(0).saturating_add(length)).or(self.total);
    }

    fn place(&self, (place, call): &Key<'_>, sites: &Sites<'_>, laps: Option<&(String, u64)>) -> WaitPlace {
        let lap = laps.map(|(name, _)| name.as_str());
        let (file, line, function, method) = match place {
            Where::Line(file, line) => ((*file).to_owned(), *line, None, None),
            Where::Function { file, line, function, method } => {
                ((*file).to_owned(), *line, Some((*function).to_owned()), method.map(str::to_owned))
            }
            Where::Path(site) => (String::new(), 0, Some(sites.text(site, lap)).filter(|text| !text.is_empty()), None),
        };
        WaitPlace {
            file,
            line,
            function,
            method,
            call: (*call).to_owned(),
            count: self.count,
            total: self.total.map(Nanos),
            a_lap: laps.filter(|(_, laps)| *laps > 0).map(|(_, laps)| self.in_laps as f64 / *laps as f64),
        }
    }
}

/// A location and the sync call.
type Key<'a> = (Where<'a>, &'a str);

#[derive(Debug, PartialEq, Eq, Hash)]
enum Where<'a> {
    /// The line of a mark.
    Line(&'a str, u64),
    /// A Python function.
    Function { file: &'a str, line: u64, function: &'a str, method: Option<&'a str> },
    /// Unknown.
    Path(Site),
}

fn key<'a>(trace: &'a Trace, sites: &Sites<'a>, wait: &Found) -> Key<'a> {
    let site = sites.site(wait);
    let fields = match wait.place {
        Place::Span(id) => trace.span(id).fields,
        Place::Mark(id, _) => trace.mark(id).fields,
    };
    let python = || {
        let (function, called) = sites.python(&site)?;
        let (file, line, function) = python_function(function)?;
        Some(Where::Function { file, line, function, method: called.and_then(method) })
    };
    (line_of(&fields).or_else(python).unwrap_or(Where::Path(site)), wait.name(trace))
}

/// The line in the fields of a mark.
fn line_of<'a>(fields: &Fields<'a>) -> Option<Where<'a>> {
    match (fields.get("file")?, fields.get("line")?) {
        (Value::Str(file), Value::Int(line)) => Some(Where::Line(file, u64::try_from(line).ok()?)),
        _ => None,
    }
}

/// The parts of `sampler.py(41): sample`.
fn python_function(name: &str) -> Option<(&str, u64, &str)> {
    let (place, function) = name.split_once("): ")?;
    let (file, line) = place.rsplit_once('(')?;
    Some((file, line.parse().ok()?, function))
}

/// What is called in `<built-in method item of Tensor object at 0x7f…>`, `<built-in function sync>` or
/// `torch/cuda/__init__.py(975): synchronize`.
fn method(name: &str) -> Option<&str> {
    if let Some((_, _, function)) = python_function(name) {
        return Some(function);
    }
    let built_in = name.strip_prefix("<built-in ")?;
    built_in.split([' ', '>']).nth(1).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_names_contain_file_line_and_function() {
        assert_eq!(python_function("a/b.py(41): sample"), Some(("a/b.py", 41, "sample")));
        assert_eq!(python_function("<built-in method item of Tensor object at 0x7f>"), None);
        assert_eq!(method("<built-in method item of Tensor object at 0x7f>"), Some("item"));
        assert_eq!(method("<built-in function _cuda_synchronize>"), Some("_cuda_synchronize"));
        assert_eq!(method("torch/cuda/__init__.py(975): synchronize"), Some("synchronize"));
        assert_eq!(method("nn.Module: Linear_0"), None);
    }
}
