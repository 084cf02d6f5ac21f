//! Crossover lengths of kinds of attention, as a table.

use laptime_analyze::{Crossover, Ratio, capital};

use super::axes::Axes;
use crate::{Cell, Table, table::fields};

/// Lays out how much faster and smaller a kind is, one row per length, with the answers as notes. None if there is only
/// one kind.
pub fn crossovers(answer: &[Crossover]) -> Option<Table> {
    if answer.is_empty() {
        return None;
    }
    let axes = Axes::of(answer.iter().map(|pair| &pair.id));
    let fields = fields!((pair, faster): (&Crossover, &Ratio) => {
        let smaller = pair.smaller.iter().find(|smaller| smaller.length == faster.length);
        let low = Cell::from(faster.interval.map(|ends| Cell::Number(ends.low)));
        let high = Cell::from(faster.interval.map(|ends| Cell::Number(ends.high)));
    } [
        ("kind", "attention") => Cell::text(&pair.kind),
        ("against", "compared with") => Cell::text(&pair.base),
        ("length", "tokens") => Cell::Whole(i64::try_from(faster.length).unwrap_or(i64::MAX)),
        ("times_faster", "speed-up") => Cell::Number(faster.ratio),
        ("times_faster_lo", "").machine_only() => low.clone(),
        ("times_faster_hi", "").machine_only() => high.clone(),
        ("times_faster_ci", "95 % CI").human_only() => Cell::range(low, high),
        ("times_smaller", "memory ratio") => Cell::from(smaller.map(|smaller| Cell::Number(smaller.ratio))),
    ]);
    let ratios = answer.iter().flat_map(|pair| pair.faster.iter().map(move |faster| (&pair.id, (pair, faster))));
    let mut table = axes.rows("crossover", fields, ratios);
    for pair in answer {
        let of = axes.before(&pair.id);
        for sentence in sentences(pair) {
            table.note(format!("{of}{sentence}."));
        }
    }
    (!table.rows.is_empty() || !table.notes.is_empty()).then_some(table)
}

/// The answers of a pair, one sentence each, without a full stop.
pub(crate) fn sentences(pair: &Crossover) -> Vec<String> {
    let text = [pair.time_sentence(), pair.memory_sentence(), pair.alone_sentence()];
    text.into_iter().flatten().map(|sentence| capital(&sentence)).collect()
}
