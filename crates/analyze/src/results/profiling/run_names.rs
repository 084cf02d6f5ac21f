//! Names for several runs of one workload.

use std::collections::HashSet;

use laptime_trace::run::{Run, WarmUp};

use super::ProfiledRun;

/// Properties of a run that affect timings, and are named if they differ.
const LASTING: [fn(&Run) -> Option<String>; 7] = [
    |run| Some(run.device.clone()),
    |run| run.environment.machine.cpu.clone().map(|cpu| format!("{} x {cpu}", run.environment.machine.cpus)),
    |run| run.environment.machine.gpus.first().map(|gpu| gpu.name.clone()),
    |run| Some(format!("commit {}", short(&run.environment.build.commit))),
    |run| Some(format!("timing {}", run.settings.timing)),
    |run| run.settings.l2.map(|l2| format!("L2 {l2}")),
    // For runs that start cold, the warm-up is the subject.
    |run| match run.settings.warmup {
        WarmUp::Iterations(iterations) if run.settings.cold => Some(format!("{iterations} warm-up iterations")),
        _ => None,
    },
];

/// The abbreviated commit, with its mark for changes.
fn short(commit: &str) -> String {
    let (digits, changes) = commit.split_once('+').map_or((commit, ""), |(digits, _)| (digits, "+changes"));
    format!("{}{changes}", digits.chars().take(7).collect::<String>())
}

/// Names each run by how it differs from other runs of its workload; none if it needs no name.
pub(super) fn names(runs: &[ProfiledRun]) -> Vec<Option<String>> {
    let mut names: Vec<String> = (0..runs.len()).map(|at| lasting(runs, at)).collect();
    add_where_equal(runs, &mut names, |read| {
        read.run.as_ref().map_or_else(String::new, |run| format!("started {}", run.started))
    });
    add_where_equal(runs, &mut names, |read| read.folder.clone());
    names.into_iter().map(|name| Some(name).filter(|name| !name.is_empty())).collect()
}

/// What differs among the runs of a workload.
fn lasting(runs: &[ProfiledRun], at: usize) -> String {
    let own = runs[at].run.as_ref();
    let alike = |other: &&ProfiledRun| is_alike(other, &runs[at]);
    let differs = |text: &&fn(&Run) -> Option<String>| {
        let values = runs.iter().filter(alike).filter_map(|other| other.run.as_ref()).map(*text);
        values.collect::<HashSet<_>>().len() > 1
    };
    let parts: Vec<String> = LASTING.iter().filter(differs).filter_map(|text| text(own?)).collect();
    parts.join(", ")
}

/// Whether two runs have the same workload, and both or neither start cold.
fn is_alike(one: &ProfiledRun, other: &ProfiledRun) -> bool {
    one.workload() == other.workload() && one.is_warm_up() == other.is_warm_up()
}

/// Adds a suffix to runs of the same name that share a case.
fn add_where_equal(runs: &[ProfiledRun], names: &mut [String], word: fn(&ProfiledRun) -> String) {
    let cases: Vec<HashSet<String>> = runs.iter().map(cases).collect();
    let collide = |one: usize, other: usize| {
        one != other
            && names[one] == names[other]
            && is_alike(&runs[one], &runs[other])
            && !cases[one].is_disjoint(&cases[other])
    };
    let add: Vec<bool> = (0..runs.len()).map(|one| (0..runs.len()).any(|other| collide(one, other))).collect();
    for (at, name) in names.iter_mut().enumerate().filter(|(at, _)| add[*at]) {
        let parts = [name.clone(), word(&runs[at])];
        *name = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    }
}

fn cases(read: &ProfiledRun) -> HashSet<String> {
    read.results.iter().map(|result| format!("{} {}", result.device, result.case)).collect()
}
