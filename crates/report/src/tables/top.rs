//! The ranking of names as a table.

use laptime_analyze::{Operation, OperationKind, Top};

use super::overview;
use crate::{Cell, Column, Table};

/// Lays out the first `most` names; the rest is told in a note.
pub fn top(answer: &Top, most: usize) -> Table {
    let mut table = Table::new(
        "operations",
        [
            Column::new("name", "name"),
            Column::new("kind", "kind").drop(2),
            Column::new("count", "count"),
            Column::new("self_ms", "self"),
            Column::new("self_share", "share"),
            Column::new("total_ms", "total").in_unit_of("self_ms"),
            Column::new("median_ms", "median").drop(1),
            Column::new("max_ms", "longest").in_unit_of("median_ms").drop(3),
        ],
    );
    for operation in answer.operations.iter().take(most) {
        table.push(row(operation));
    }
    overview::add(&mut table, &answer.overview);
    let has_device = answer.operations.iter().any(|operation| operation.kind == OperationKind::Device);
    if has_device {
        table.note("Shares are of all self time on the same side: host or device.");
    }
    if let Some(more @ 1..) = answer.operations.len().checked_sub(most) {
        table.note(format!("{more} more names are not shown; `--most {}` shows all.", answer.operations.len()));
    }
    table
}

fn row(operation: &Operation) -> Vec<Cell> {
    vec![
        Cell::name(operation.name.clone()),
        Cell::text(operation.kind.word()),
        Cell::Count(operation.count),
        Cell::Nanos(operation.own.0),
        Cell::Share(operation.own_share),
        Cell::Nanos(operation.total.0),
        Cell::Nanos(operation.median.round() as u64),
        Cell::Nanos(operation.longest.0),
    ]
}
