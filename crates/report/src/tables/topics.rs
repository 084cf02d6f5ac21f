//! The notes that can be explained, as a table.

use laptime_analyze::{RULES, Rule, TOPICS, Topic};

use crate::{Cell, Table, table::table};

/// Lists the findings of `laptime diagnose` on any trace, with their thresholds.
pub fn finding_rules() -> Table {
    table!("findings", RULES.iter(), rule: &Rule => {
        let threshold = if rule.limit > 0.0 { Cell::Share(rule.limit) } else { Cell::Empty };
    } [
        ("id", "id").whole() => Cell::text(rule.topic.id),
        ("title", "about") => Cell::text(rule.topic.title),
        ("threshold", "threshold") => threshold,
        ("may_be_bad", "may be bad").drop(1) => Cell::Bool(rule.may_be_bad),
        ("gain", "gain").machine_only() => Cell::text(rule.gain),
    ])
}

/// Lists every note with its subject.
pub fn topics() -> Table {
    table!("topics", TOPICS.iter(), topic: &Topic => [
        ("id", "id").whole() => Cell::text(topic.id),
        ("title", "about") => Cell::text(topic.title),
        ("rule", "rule").machine_only() => Cell::text(topic.rule),
        ("meaning", "meaning").machine_only() => Cell::text(topic.meaning),
        ("remedy", "remedy").machine_only() => Cell::text(topic.remedy),
    ])
}
