//! The state of a machine as a table.

use laptime_analyze::{Check, Doctor, Level};

use crate::{Cell, Table, table::table};

/// Lays out the checks, with the verdict and what to do about each problem below.
pub fn doctor(answer: &Doctor) -> Table {
    let text = |text: &Option<String>| Cell::from(text.clone().map(Cell::Text));
    let mut table = table!("checks", &answer.checks, check: &Check => [
        ("check", "check") => Cell::text(check.word),
        ("result", "result") => Cell::text(check.level.word()),
        ("value", "value") => Cell::text(&check.seen),
        ("limit", "limit").drop(1) => text(&check.limit),
        ("meaning", "meaning").machine_only() => text(&check.meaning),
        ("next", "next").machine_only() => text(&check.next),
    ]);
    table.machine_fact("result", Cell::text(answer.level().word()));
    table.machine_fact("finest_share", Cell::from(answer.finest.map(Cell::Share)));
    table.note(answer.verdict());
    let is_minor = |check: &&Check| check.level == Level::Note;
    for note in notes(answer.checks.iter().filter(|check| !is_minor(check))) {
        table.note(note);
    }
    for note in notes(answer.checks.iter().filter(is_minor)) {
        table.legend(note);
    }
    table
}

/// What failed checks mean and what to do; checks with the same text share a line.
fn notes<'a>(checks: impl Iterator<Item = &'a Check>) -> Vec<String> {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for check in checks {
        let Some(meaning) = &check.meaning else { continue };
        let next = check.next.as_ref().map_or_else(String::new, |next| format!(" Try: {next}."));
        let line = format!("{meaning}.{next}");
        match lines.iter_mut().find(|(text, _)| *text == line) {
            Some((_, words)) => words.push(check.word),
            None => lines.push((line, vec![check.word])),
        }
    }
    lines.iter().map(|(text, words)| format!("{}: {text}", words.join("; "))).collect()
}
