//! How tables tell what was not measured.

use laptime_analyze::{CaseId, Trouble, TroubleKind};

use super::axes::Axes;
use crate::{
    Cell, Table,
    layout::{in_one_unit, single},
};

/// Sentences of this kind that a table tells at most.
pub(super) const MOST: usize = 8;

/// Why there are no figures, in words.
pub(super) fn reason(kind: &TroubleKind) -> String {
    match kind {
        TroubleKind::Skipped { reason } => reason.clone(),
        TroubleKind::OutOfMemory { needed_bytes, available_bytes } => memory(*needed_bytes, *available_bytes),
        TroubleKind::Failed { errors, iterations: 0 } => errors.join(": "),
        TroubleKind::Failed { errors, iterations } => format!("after {iterations} iterations: {}", errors.join(": ")),
        TroubleKind::NoIterations => "it ended before the first iteration that counts".to_owned(),
    }
}

fn memory(needed: Option<u64>, available: Option<u64>) -> String {
    let size = |bytes: u64| single(&Cell::Bytes(bytes));
    match (needed, available) {
        // Far apart, one unit for both would leave the smaller without figures.
        (Some(needed), Some(available)) if needed / 1000 >= available => {
            format!("needs {}, has {}", size(needed), size(available))
        }
        (Some(needed), Some(available)) => {
            let [needed, available] = in_one_unit([needed, available].map(Cell::Bytes));
            format!("needs {needed}, has {available}")
        }
        (Some(needed), None) => format!("needs {}", size(needed)),
        (None, Some(available)) => format!("has {}, which is not enough", size(available)),
        (None, None) => "the device has too little memory".to_owned(),
    }
}

/// A case with what became of its processes.
pub(super) struct Told<'a> {
    pub(super) id: &'a CaseId,
    pub(super) troubles: &'a [Trouble],
    /// Processes that were measured.
    pub(super) measured: usize,
}

/// Adds a sentence for each reason, with the cases it holds for.
pub(super) fn add_notes<'a>(table: &mut Table, axes: &Axes, cases: impl Iterator<Item = Told<'a>>) {
    let mut sentences: Vec<(String, Vec<&CaseId>)> = Vec::new();
    for case in cases {
        let Some(first) = case.troubles.first() else { continue };
        let sentence = sentence(first, case.troubles.len(), case.measured);
        match sentences.iter_mut().find(|(known, _)| *known == sentence) {
            Some((_, ids)) => ids.push(case.id),
            None => sentences.push((sentence, vec![case.id])),
        }
    }
    let more = sentences.len().saturating_sub(MOST);
    for (sentence, ids) in sentences.into_iter().take(MOST) {
        table.note(format!("{}: {sentence}.", capital(&axes.names(ids.into_iter()))));
    }
    add_more(table, more);
}

/// Says where the reasons are that are not told.
pub(super) fn add_more(table: &mut Table, more: usize) {
    match more {
        0 => {}
        1 => table.note("One more reason is in the column `reason` of csv, tsv, json and jsonl."),
        more => table.note(format!("{more} more reasons are in the column `reason` of csv, tsv, json and jsonl.")),
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

/// A sentence begins with a capital, unless it begins with a name.
pub(super) fn capital(sentence: &str) -> String {
    let mut chars = sentence.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_in_human_units() {
        let told = |needed_bytes, available_bytes| reason(&TroubleKind::OutOfMemory { needed_bytes, available_bytes });
        assert_eq!(told(Some(9 << 30), Some(3 << 30)), "needs 9,216 MiB, has 3,072 MiB");
        assert_eq!(told(Some(11 << 40), Some(3 << 30)), "needs 11.00 TiB, has 3,072 MiB");
        assert_eq!(told(None, None), "the device has too little memory");
    }
}
