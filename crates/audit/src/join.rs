//! Joins sites in source code with the host syncs that a run recorded.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::answer::{Answer, Placed, Recorded, Seen, Unplaced};

/// Joins the sites of an answer with the recording of a run, and sorts the most expensive ones first.
///
/// A host sync belongs to the site at its line. If the trace only contains the Python function, it belongs to the sites
/// of that function with the called name. Sites that cannot be distinguished are reported together, at the first of
/// them.
pub fn join(answer: &mut Answer, recorded: Vec<Recorded>) {
    let files = Files::of(&answer.sites);
    for placed in &mut answer.sites {
        placed.seen = Some(Seen::default());
    }
    let mut unplaced: BTreeMap<(String, String), Seen> = BTreeMap::new();
    for wait in recorded {
        match files.sites(&answer.sites, &wait).as_slice() {
            [] => add(unplaced.entry((place(&wait), wait.call)).or_default(), &wait.seen),
            [first, others @ ..] => {
                add(answer.sites[*first].seen.get_or_insert_default(), &wait.seen);
                let line = answer.sites[*first].site.line;
                for other in others {
                    answer.sites[*other].seen.get_or_insert_default().reported_at = Some(line);
                }
            }
        }
    }
    let entries = unplaced.into_iter().map(|((place, call), seen)| Unplaced { place, call, seen });
    let mut unplaced: Vec<Unplaced> = entries.collect();
    unplaced.sort_by_key(|wait| Reverse((wait.seen.total, wait.seen.count)));
    answer.unplaced = Some(unplaced);
    // The sort is stable: sites that were never recorded keep the order of the files.
    answer.sites.sort_by_key(|placed| Reverse(placed.seen.as_ref().map(|seen| (seen.total, seen.count))));
}

/// Where a host sync occurred, as text.
fn place(wait: &Recorded) -> String {
    let Recorded { file, line, function, .. } = wait;
    match (file.as_str(), function) {
        ("", function) => function.clone().unwrap_or_default(),
        (file, Some(function)) => format!("{file}({line}): {function}"),
        (file, None) => format!("{file}:{line}"),
    }
}

fn add(seen: &mut Seen, more: &Seen) {
    let sum = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    };
    seen.count = seen.count.saturating_add(more.count);
    seen.total = sum(seen.total, more.total);
    seen.a_lap = match (seen.a_lap, more.a_lap) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    };
}

/// The files with sites, by file name.
struct Files {
    by_name: HashMap<String, Vec<String>>,
    sites: BTreeMap<String, Vec<usize>>,
}

impl Files {
    fn of(sites: &[Placed]) -> Self {
        let mut files = Self { by_name: HashMap::new(), sites: BTreeMap::new() };
        for (at, placed) in sites.iter().enumerate() {
            let of_file = files.sites.entry(placed.path.clone()).or_default();
            if of_file.is_empty() {
                let name = placed.path.rsplit('/').next().unwrap_or_default();
                files.by_name.entry(name.to_owned()).or_default().push(placed.path.clone());
            }
            of_file.push(at);
        }
        files
    }

    /// The sites that a host sync belongs to: one, or several that cannot be distinguished.
    fn sites(&self, sites: &[Placed], wait: &Recorded) -> Vec<usize> {
        let name = wait.file.rsplit('/').next().unwrap_or_default();
        let known = self.by_name.get(name).into_iter().flatten();
        let shared = known.filter_map(|path| Some((shared_parts(path, &wait.file)?, path)));
        let shared: Vec<_> = shared.collect();
        let Some(most) = shared.iter().map(|(parts, _)| *parts).max() else { return Vec::new() };
        let paths = shared.iter().filter(|(parts, _)| *parts == most);
        let mut fitting = paths
            .map(|(_, path)| of_file(sites, self.sites.get(*path).map_or(&[][..], Vec::as_slice), wait))
            .filter(|found| !found.is_empty());
        let first = fitting.next().unwrap_or_default();
        // Two files of the same name with a site at that place cannot be distinguished.
        if fitting.next().is_some() { Vec::new() } else { first }
    }
}

/// The sites of a file that a host sync belongs to.
fn of_file(sites: &[Placed], of_file: &[usize], wait: &Recorded) -> Vec<usize> {
    let is_called = |at: &&usize| wait.method.as_ref().is_none_or(|method| *method == sites[**at].site.name);
    let at_line = |at: &&usize| {
        let site = &sites[**at].site;
        (site.line..=site.last_line).contains(&wait.line)
    };
    let exact: Vec<usize> = of_file.iter().filter(at_line).filter(is_called).copied().collect();
    if !exact.is_empty() || wait.function.is_none() {
        return exact;
    }
    in_function(sites, of_file, wait).into_iter().filter(|at| is_called(&at)).collect()
}

/// The sites of the function that a host sync occurred in. If its lines have changed since the recording, it is found
/// by name, provided that the name is unique in the file.
fn in_function(sites: &[Placed], of_file: &[usize], wait: &Recorded) -> Vec<usize> {
    let is_named = |at: &&usize| sites[**at].site.function.rsplit('.').next() == wait.function.as_deref();
    let named: Vec<usize> = of_file.iter().filter(is_named).copied().collect();
    let lines = |at: usize| sites[at].site.function_lines;
    let is_around = |at: &usize| (lines(*at).0..=lines(*at).1).contains(&wait.line);
    let around: Vec<usize> = named.iter().filter(|at| is_around(at)).copied().collect();
    let is_one = named.windows(2).all(|pair| lines(pair[0]) == lines(pair[1]));
    if around.is_empty() && is_one { named } else { around }
}

/// The number of trailing components that two paths share; none if they are different files.
fn shared_parts(one: &str, other: &str) -> Option<usize> {
    let parts = |path: &'_ str| -> Vec<String> {
        path.split(['/', '\\']).filter(|part| !matches!(*part, "" | ".")).map(str::to_owned).collect()
    };
    let (one, other) = (parts(one), parts(other));
    let shared = std::iter::zip(one.iter().rev(), other.iter().rev()).take_while(|(one, other)| one == other).count();
    let is_whole = shared == one.len().min(other.len());
    (shared > 1 || is_whole && shared > 0).then_some(shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_equal_ends_are_one_file() {
        assert_eq!(shared_parts("src/main.rs", "examples/a/src/main.rs"), Some(2));
        assert_eq!(shared_parts("/project/a/src/main.rs", "/ci/a/src/main.rs"), Some(3));
        assert_eq!(shared_parts("main.rs", "./src/main.rs"), Some(1));
        assert_eq!(shared_parts("a/main.rs", "b/main.rs"), None);
        assert_eq!(shared_parts("a.rs", "b.rs"), None);
    }
}
