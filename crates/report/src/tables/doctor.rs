//! The state of a machine as a table.

use laptime_analyze::{Check, Doctor, Level, grouped};

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
    table.machine_fact("finest_share", Cell::share(answer.finest));
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
    let line = |check: &'a Check| {
        let next = check.next.as_ref().map_or_else(String::new, |next| format!(" Try: {next}."));
        Some((format!("{}.{next}", check.meaning.as_ref()?), check.word))
    };
    let lines = grouped(checks.filter_map(line)).into_iter();
    lines.map(|(text, words)| format!("{}: {text}", words.join("; "))).collect()
}
