//! The state of a machine as a table.

use laptime_analyze::{Check, Doctor};

use crate::{Cell, Column, Table};

/// Lays out the checks; what is not good is told below them with what to do, and at the end the verdict.
pub fn doctor(answer: &Doctor) -> Table {
    let mut table = Table::new(
        "checks",
        [
            Column::new("check", "check"),
            Column::new("result", "result"),
            Column::new("seen", "seen"),
            Column::new("limit", "limit").drop(1),
            Column::new("meaning", "meaning").machine_only(),
            Column::new("next", "next").machine_only(),
        ],
    );
    for check in &answer.checks {
        table.push(row(check));
    }
    table.machine_fact("result", Cell::text(answer.level().word()));
    table.machine_fact("finest_share", Cell::from(answer.finest.map(Cell::Share)));
    for note in notes(&answer.checks) {
        table.note(note);
    }
    table.note(answer.verdict());
    table
}

fn row(check: &Check) -> Vec<Cell> {
    let text = |text: Option<String>| Cell::from(text.map(Cell::Text));
    vec![
        Cell::text(check.word()),
        Cell::text(check.level().word()),
        Cell::text(check.seen()),
        text(check.limit()),
        text(check.meaning()),
        text(check.next()),
    ]
}

/// What checks mean and what to do; checks that mean the same are told together.
fn notes(checks: &[Check]) -> Vec<String> {
    let mut told: Vec<(String, Vec<&str>)> = Vec::new();
    for check in checks {
        let Some(meaning) = check.meaning() else { continue };
        let next = check.next().map_or_else(String::new, |next| format!(" Next: {next}."));
        let told_now = format!("{meaning}.{next}");
        match told.iter_mut().find(|(text, _)| *text == told_now) {
            Some((_, words)) => words.push(check.word()),
            None => told.push((told_now, vec![check.word()])),
        }
    }
    told.iter().map(|(text, words)| format!("{}: {text}", words.join("; "))).collect()
}
