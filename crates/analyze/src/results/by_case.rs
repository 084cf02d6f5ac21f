//! Results grouped by case, over all processes.

use std::collections::HashMap;
use std::hash::Hash;

use laptime_trace::run::{Case, CaseResult, Measured, Outcome};

/// The identity of a case: workload, device and axis values.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseId {
    /// The workload.
    pub workload: String,
    /// The device.
    pub device: String,
    /// The values on the axes.
    pub case: Case,
}

#[derive(Debug)]
pub(crate) struct Processes<'a> {
    pub(crate) id: CaseId,
    pub(crate) results: Vec<&'a CaseResult>,
}

impl<'a> Processes<'a> {
    /// Measured processes with iterations, with their numbers.
    pub(crate) fn measured(&self) -> impl Iterator<Item = (u32, &'a Measured)> + Clone {
        let measured = self.results.iter().filter_map(|result| Some((result.run, result.measured()?)));
        measured.filter(|(_, measured)| !measured.wall_ns.is_empty())
    }

    /// Processes without figures.
    pub(crate) fn troubles(&self) -> Vec<Trouble> {
        self.results.iter().filter_map(|result| Trouble::of(result)).collect()
    }
}

/// Groups processes by case, in order of first appearance and by number within a case.
pub(crate) fn by_case<'a>(results: &'a [CaseResult]) -> Vec<Processes<'a>> {
    let keyed = results.iter().map(|result| ((&result.workload, &result.device, result.case.to_string()), result));
    let case = |(_, mut results): (_, Vec<&'a CaseResult>)| {
        let id = CaseId::of(results[0]);
        results.sort_by_key(|result| result.run);
        Processes { id, results }
    };
    grouped(keyed).into_iter().map(case).collect()
}

/// Items by their keys, in order of first appearance.
pub fn grouped<K: Eq + Hash + Clone, T>(items: impl IntoIterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut places = HashMap::new();
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for (key, item) in items {
        let place = *places.entry(key.clone()).or_insert(groups.len());
        if place == groups.len() {
            groups.push((key, Vec::new()));
        }
        groups[place].1.push(item);
    }
    groups
}

/// Each item once, in order of first appearance.
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for item in items {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}

impl CaseId {
    fn of(result: &CaseResult) -> Self {
        Self { workload: result.workload.clone(), device: result.device.clone(), case: result.case.clone() }
    }

    /// The same without some of its axes.
    pub fn without(&self, axes: &[&str]) -> Self {
        let kept = self.case.values().filter(|(axis, _)| !axes.contains(axis));
        let case = Case::new(kept.map(|(axis, value)| (axis.to_owned(), value.clone())).collect());
        Self { case, ..self.clone() }
    }

    /// Its identity as a text.
    pub fn key(&self) -> String {
        format!("{} {} {}", self.workload, self.device, self.case)
    }
}

/// Why a process gave no figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Trouble {
    /// Which process, counted from 0.
    pub run: u32,
    /// The reason.
    pub kind: TroubleKind,
}

/// Why a process has no figures.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are named after what they hold")]
pub enum TroubleKind {
    /// The case cannot run here.
    Skipped { reason: String },
    /// It needs more memory than is available; the sizes are given if known.
    OutOfMemory { needed_bytes: Option<u64>, available_bytes: Option<u64> },
    /// It failed after these iterations: the chain of causes, outermost first.
    Failed { errors: Vec<String>, iterations: usize },
    /// It ended before the first measured iteration.
    NoIterations,
}

impl TroubleKind {
    /// The word in tables.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Skipped { .. } => "skipped",
            Self::OutOfMemory { .. } => "out_of_memory",
            Self::Failed { .. } => "failed",
            Self::NoIterations => "interrupted",
        }
    }
}

impl Trouble {
    fn of(result: &CaseResult) -> Option<Self> {
        let kind = match &result.outcome {
            Outcome::Measured(measured) if measured.wall_ns.is_empty() => TroubleKind::NoIterations,
            Outcome::Measured(_) => return None,
            Outcome::Skipped { reason } => TroubleKind::Skipped { reason: reason.clone() },
            Outcome::OutOfMemory { needed_bytes, available_bytes } => {
                TroubleKind::OutOfMemory { needed_bytes: *needed_bytes, available_bytes: *available_bytes }
            }
            Outcome::Failed { errors, wall_ns } => {
                TroubleKind::Failed { errors: errors.clone(), iterations: wall_ns.len() }
            }
        };
        Some(Self { run: result.run, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(size: i64, run: u32, wall_ns: Vec<u64>) -> CaseResult {
        let case = Case::new(vec![("size".into(), size.into())]);
        let measured = Measured { wall_ns, ..Measured::default() };
        CaseResult::new("matmul", "cpu", case, run, "", Outcome::Measured(measured))
    }

    #[test]
    fn processes_of_a_case_are_grouped_in_order() {
        let results = [result(1, 1, vec![5]), result(2, 0, vec![6]), result(1, 0, vec![7])];
        let cases = by_case(&results);
        let runs = |case: &Processes<'_>| case.measured().map(|(run, _)| run).collect::<Vec<_>>();
        assert_eq!(cases.iter().map(runs).collect::<Vec<_>>(), [vec![0, 1], vec![0]]);
    }

    #[test]
    fn a_process_without_iterations_is_a_trouble() {
        let results = [result(1, 3, vec![])];
        let cases = by_case(&results);
        assert_eq!(cases[0].troubles(), [Trouble { run: 3, kind: TroubleKind::NoIterations }]);
        assert_eq!(cases[0].measured().count(), 0);
    }
}
