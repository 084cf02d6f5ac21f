//! Crossover lengths of kinds of attention, as a table.

use laptime_analyze::{Crossover, Crossovers, Ratio};

use super::{
    axes::{Axes, Taken},
    troubles::capital,
};
use crate::{Cell, Column, Table};

/// Lays out how much faster and smaller a kind is, one row per length, with the answers as notes. None if there is only
/// one kind.
pub fn crossovers(answer: &Crossovers) -> Option<Table> {
    if answer.pairs.is_empty() {
        return None;
    }
    let axes = Axes::of(answer.pairs.iter().map(|pair| &pair.id));
    let own = columns();
    let mut columns = axes.columns(&mut Taken::by(&own));
    columns.extend(own);
    let mut table = Table::new("crossover", columns);
    for pair in &answer.pairs {
        for cells in rows(pair) {
            table.push([axes.cells(&pair.id), cells].concat());
        }
    }
    for pair in &answer.pairs {
        let of = axes.name(&pair.id).map_or_else(String::new, |name| format!("`{name}`: "));
        for sentence in sentences(pair) {
            table.note(format!("{of}{sentence}."));
        }
    }
    (!table.rows.is_empty() || !table.notes.is_empty()).then_some(table)
}

/// The answers of a pair, one sentence each, without a full stop.
pub(crate) fn sentences(pair: &Crossover) -> Vec<String> {
    let said = [pair.time_sentence(), pair.memory_sentence(), pair.alone_sentence()];
    said.into_iter().flatten().map(|sentence| capital(&sentence)).collect()
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("kind", "attention"),
        Column::new("against", "compared with"),
        Column::new("length", "tokens"),
        Column::new("times_faster", "speed-up"),
        Column::new("times_faster_lo", "").machine_only(),
        Column::new("times_faster_hi", "").machine_only(),
        Column::new("times_faster_ci", "95 % CI").human_only(),
        Column::new("times_smaller", "memory ratio"),
    ]
}

fn rows(pair: &Crossover) -> impl Iterator<Item = Vec<Cell>> {
    pair.faster.iter().map(|faster| {
        let smaller = pair.smaller.iter().find(|smaller| smaller.length == faster.length);
        vec![
            Cell::text(&pair.kind),
            Cell::text(&pair.base),
            Cell::Whole(i64::try_from(faster.length).unwrap_or(i64::MAX)),
            Cell::Number(faster.ratio),
            end(faster, |ends| ends.low),
            end(faster, |ends| ends.high),
            Cell::range(end(faster, |ends| ends.low), end(faster, |ends| ends.high)),
            Cell::from(smaller.map(|smaller| Cell::Number(smaller.ratio))),
        ]
    })
}

fn end(ratio: &Ratio, of: fn(laptime_stats::Interval) -> f64) -> Cell {
    Cell::from(ratio.interval.map(|ends| Cell::Number(of(ends))))
}
