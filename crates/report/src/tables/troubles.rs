//! Cases without figures, and why.

use laptime_analyze::{CaseFigures, CaseId, Trouble, TroubleKind, capital, grouped, plural};

use super::axes::Axes;
use crate::layout::{in_one_unit, single};
use crate::{Cell, Table};

/// The most sentences of this kind under a table.
pub(super) const MOST: usize = 8;

/// Why there are no figures.
pub(super) fn reason(kind: &TroubleKind) -> String {
    match kind {
        TroubleKind::Skipped { reason } => reason.clone(),
        TroubleKind::OutOfMemory { needed_bytes, available_bytes } => memory(*needed_bytes, *available_bytes),
        TroubleKind::Failed { errors, iterations: 0 } => errors.join(": "),
        TroubleKind::Failed { errors, iterations } => format!("after {iterations} iterations: {}", errors.join(": ")),
        TroubleKind::NoIterations => "it ended before the first measured iteration".to_owned(),
    }
}

fn memory(needed: Option<u64>, available: Option<u64>) -> String {
    let size = |bytes: u64| single(&Cell::Bytes(bytes));
    match (needed, available) {
        // If the sizes differ a lot, one unit for both would round the smaller one to zero.
        (Some(needed), Some(available)) if needed / 1000 >= available => {
            format!("needs {}, {} available", size(needed), size(available))
        }
        (Some(needed), Some(available)) => {
            let [needed, available] = in_one_unit([needed, available].map(Cell::Bytes));
            format!("needs {needed}, {available} available")
        }
        (Some(needed), None) => format!("needs {}", size(needed)),
        (None, Some(available)) => format!("only {} available", size(available)),
        (None, None) => "the device has too little memory".to_owned(),
    }
}

/// A case, its processes without figures, and the number of measured ones.
type Outcome<'a> = (&'a CaseId, &'a [Trouble], usize);

/// Adds one sentence per reason of measured cases.
pub(super) fn add_cases<'a>(table: &mut Table, axes: &Axes, cases: impl Iterator<Item = &'a CaseFigures>) {
    let measured = |case: &CaseFigures| case.measured.as_ref().map_or(0, |figures| figures.wall.processes);
    add_notes(table, axes, cases.map(|case| (&case.id, &case.troubles[..], measured(case))));
}

/// Adds one sentence per reason, with the cases it applies to.
pub(super) fn add_notes<'a>(table: &mut Table, axes: &Axes, cases: impl Iterator<Item = Outcome<'a>>) {
    let sentence =
        |(id, troubles, measured): Outcome<'a>| Some((sentence(troubles.first()?, troubles.len(), measured), id));
    let sentences: Vec<(String, Vec<&CaseId>)> = grouped(cases.filter_map(sentence));
    let more = sentences.len().saturating_sub(MOST);
    for (sentence, ids) in sentences.into_iter().take(MOST) {
        // The only case of a run has no name.
        let is_named = ids.iter().any(|id| axes.name(id).is_some());
        let names = if is_named { format!("{}: ", axes.names(ids.into_iter())) } else { String::new() };
        table.note(format!("{}.", capital(&(names + &sentence))));
    }
    add_more(table, more);
}

/// Points to the reasons that are not printed.
pub(super) fn add_more(table: &mut Table, more: usize) {
    if more > 0 {
        let reasons = plural(more, "more reason is", "more reasons are");
        table.note(format!("{reasons} in the column `reason` of `--format csv` and `json`."));
    }
}

fn sentence(first: &Trouble, troubled: usize, measured: usize) -> String {
    let word = first.kind.word().replace('_', " ");
    let reason = reason(&first.kind);
    match measured {
        0 => format!("{word}: {}", reason.trim_end_matches('.')),
        _ => format!("{troubled} of {} processes {word}: {}", troubled + measured, reason.trim_end_matches('.')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shown_in_human_units() {
        let text = |needed_bytes, available_bytes| reason(&TroubleKind::OutOfMemory { needed_bytes, available_bytes });
        assert_eq!(text(Some(9 << 30), Some(3 << 30)), "needs 9,216 MiB, 3,072 MiB available");
        assert_eq!(text(Some(11 << 40), Some(3 << 30)), "needs 11.00 TiB, 3,072 MiB available");
        assert_eq!(text(None, None), "the device has too little memory");
    }
}
