//! The notes that can be explained, as a table.

use laptime_analyze::{RULES, TOPICS};

use crate::{Cell, Column, Table};

/// Lists the findings of `laptime diagnose` on any trace, with their thresholds.
pub fn finding_rules() -> Table {
    let mut table = Table::new(
        "findings",
        [
            Column::new("id", "id").whole(),
            Column::new("title", "about"),
            Column::new("threshold", "threshold"),
            Column::new("may_be_bad", "may be bad").drop(1),
            Column::new("gain", "gain").machine_only(),
        ],
    );
    for rule in RULES {
        let threshold = if rule.limit > 0.0 { Cell::Share(rule.limit) } else { Cell::Empty };
        table.push([
            Cell::text(rule.topic.id),
            Cell::text(rule.topic.title),
            threshold,
            Cell::Bool(rule.may_be_bad),
            Cell::text(rule.gain),
        ]);
    }
    table
}

/// Lists every note with its subject.
pub fn topics() -> Table {
    let columns = ["rule", "meaning", "remedy"].map(|name| Column::new(name, name).machine_only());
    let mut table = Table::new(
        "topics",
        [Column::new("id", "id").whole(), Column::new("title", "about")].into_iter().chain(columns).collect::<Vec<_>>(),
    );
    for topic in TOPICS {
        table.push([topic.id, topic.title, topic.rule, topic.meaning, topic.remedy].map(Cell::text));
    }
    table
}
