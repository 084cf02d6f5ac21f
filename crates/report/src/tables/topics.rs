//! The notes that can be explained, as a table.

use laptime_analyze::TOPICS;

use crate::{Cell, Column, Table};

/// Lists every note with what it is about.
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
