//! What is wrong with a set of ranks: missing, duplicated, from another job, of different lengths. Each is one note, and
//! the rest is analysed.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{collective::ranges, rank::RankTrace};
use crate::note::{Note, first_few};

/// Names that are listed in a note; the rest is counted.
const NAMED: usize = 3;

/// The traces to compare, in order of rank, and notes on the others.
pub(crate) fn chosen(traces: Vec<RankTrace>, notes: &mut Vec<Note>) -> Vec<RankTrace> {
    let traces = of_one_job(traces, notes);
    let mut traces = without_duplicates(traces, notes);
    traces.sort_by_key(|trace| trace.rank.unwrap_or(u32::MAX));
    note_missing(&traces, notes);
    note_steps(&traces, notes);
    note_undescribed(&traces, notes);
    let cut: Vec<&str> = traces.iter().filter(|trace| trace.is_cut_off).map(|trace| trace.label.as_str()).collect();
    if !cut.is_empty() {
        notes.push(Note::new(
            "ranks-input",
            format!("{} cut off and read as far as possible", names(&cut, "is", "are")),
        ));
    }
    traces
}

fn names(labels: &[&str], is: &str, are: &str) -> String {
    let names = first_few(labels.iter().map(|label| format!("`{label}`")), NAMED);
    format!("{names} {}", if labels.len() == 1 { is } else { are })
}

/// The job with the most traces. Jobs differ by name, or by the number of ranks.
fn of_one_job(traces: Vec<RankTrace>, notes: &mut Vec<Note>) -> Vec<RankTrace> {
    type Job = (Option<String>, Option<u32>);
    let mut counts: BTreeMap<Job, usize> = BTreeMap::new();
    let job = |trace: &RankTrace| (trace.job.clone(), trace.world);
    traces.iter().for_each(|trace| *counts.entry(job(trace)).or_default() += 1);
    let most = counts.iter().max_by_key(|(_, count)| **count).map(|(job, _)| job.clone()).unwrap_or_default();
    // A trace that says nothing about its job may belong to it.
    let fits = |trace: &RankTrace| {
        let is_same_world = trace.world.is_none() || most.1.is_none() || trace.world == most.1;
        is_same_world && (trace.job.is_none() || most.0.is_none() || trace.job == most.0)
    };
    let (kept, others): (Vec<RankTrace>, Vec<RankTrace>) = traces.into_iter().partition(fits);
    if !others.is_empty() {
        let labels: Vec<&str> = others.iter().map(|trace| trace.label.as_str()).collect();
        let described = |job: &Job| match job {
            (Some(name), _) => format!("`{name}`"),
            (None, Some(world)) => format!("of {world} ranks"),
            (None, None) => "without a name".to_owned(),
        };
        let (which, own, most) = (names(&labels, "is", "are"), described(&job(&others[0])), described(&most));
        let text = format!("{which} from another job ({own}; the others are {most}) and left out");
        notes.push(Note::new("ranks-input", text));
    }
    kept
}

/// The first trace of each rank.
fn without_duplicates(traces: Vec<RankTrace>, notes: &mut Vec<Note>) -> Vec<RankTrace> {
    let mut first: HashMap<u32, String> = HashMap::new();
    let mut kept = Vec::with_capacity(traces.len());
    for trace in traces {
        let known = trace.rank.and_then(|rank| first.get(&rank).cloned());
        match (known, trace.rank) {
            (Some(known), Some(rank)) => {
                let text = format!("rank {rank} is in `{known}` and in `{}`; the second one is left out", trace.label);
                notes.push(Note::new("ranks-input", text));
            }
            (_, rank) => {
                first.extend(rank.map(|rank| (rank, trace.label.clone())));
                kept.push(trace);
            }
        }
    }
    kept
}

fn note_missing(traces: &[RankTrace], notes: &mut Vec<Note>) {
    let unnamed: Vec<&str> =
        traces.iter().filter(|trace| trace.rank.is_none()).map(|trace| trace.label.as_str()).collect();
    if !unnamed.is_empty() && traces.len() > 1 {
        notes.push(Note::new("ranks-input", format!("{} no rank number", names(&unnamed, "has", "have"))));
    }
    let Some(world) = traces.iter().find_map(|trace| trace.world) else { return };
    let present: HashSet<u32> = traces.iter().filter_map(|trace| trace.rank).collect();
    let missing: Vec<u32> = (0..world.min(1 << 20)).filter(|rank| !present.contains(rank)).collect();
    if !missing.is_empty() && unnamed.is_empty() {
        let (is, count) = (if missing.len() == 1 { "is" } else { "are" }, missing.len());
        let text = format!(
            "{count} of {world} ranks {is} missing ({}); skew is a lower bound, and a missing rank may be the last one",
            shortened(&ranges(&missing))
        );
        notes.push(Note::new("ranks-input", text));
    }
}

fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Ranks whose steps differ from those of most ranks.
fn note_steps(traces: &[RankTrace], notes: &mut Vec<Note>) {
    let range = |trace: &RankTrace| {
        let numbers = trace.steps.iter().map(|step| step.number);
        Some((numbers.clone().min()?, numbers.max()?))
    };
    let mut counts: BTreeMap<Option<(u64, u64)>, usize> = BTreeMap::new();
    traces.iter().for_each(|trace| *counts.entry(range(trace)).or_default() += 1);
    let Some((usual, _)) = counts.iter().max_by_key(|(_, count)| **count).filter(|_| counts.len() > 1) else { return };
    let others: Vec<&RankTrace> = traces.iter().filter(|trace| range(trace) != *usual).collect();
    let described = |steps: Option<(u64, u64)>| match steps {
        Some((first, last)) if first == last => format!("step {first}"),
        Some((first, last)) => format!("steps {first} to {last}"),
        None => "no steps".to_owned(),
    };
    let labels: Vec<&str> = others.iter().map(|trace| trace.label.as_str()).collect();
    let (named, own, usual) = (names(&labels, "has", "have"), described(range(others[0])), described(*usual));
    notes.push(Note::new("ranks-steps", format!("{named} {own} and the others {usual}; common steps are compared")));
}

fn note_undescribed(traces: &[RankTrace], notes: &mut Vec<Note>) {
    let bare = |trace: &&RankTrace| trace.kernels > trace.calls.len() as u64;
    let labels: Vec<&str> = traces.iter().filter(bare).map(|trace| trace.label.as_str()).collect();
    let kernels: u64 = traces.iter().map(|trace| trace.kernels - trace.calls.len() as u64).sum();
    if kernels > 0 {
        let text = format!(
            "{kernels} communication kernels of {} have no communicator information and are not matched",
            names(&labels, "", "").trim_end()
        );
        notes.push(Note::new("ranks-unmatched", text));
    }
}
