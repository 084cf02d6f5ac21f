//! The difference between two traces as a table.

use laptime_analyze::{EntryKind, LapsHeld, Owner, Step, Waterfall, WaterfallPer as Per};

use super::troubles::capital;
use crate::{
    Cell, Column, Table,
    layout::{in_one_unit, single},
};

/// Kinds that are summed up in a sentence.
const KINDS: usize = 4;

/// Lays out the steps from trace a to trace b.
pub fn waterfall(answer: &Waterfall) -> Table {
    let in_a = |key: &'static str, label: &'static str| Column::new(key, label).in_unit_of("a_ms");
    let mut table = Table::new(
        "steps",
        [
            Column::new("name", "what"),
            Column::new("kind", "kind").drop(2),
            Column::new("a_ms", "a"),
            in_a("b_ms", "b"),
            in_a("change_ms", "change"),
            Column::new("change_share", "of total").machine_only(),
            in_a("reached_ms", "reaches").drop(1),
            Column::new("a_count", "a count").drop(3),
            Column::new("b_count", "b count").drop(3),
        ],
    );
    let mut reached = answer.totals[0];
    for step in &answer.steps {
        let before = reached;
        reached += step.change();
        // The difference of rounded sums: so the steps add up to the last nanosecond.
        let change = reached.round() as i64 - before.round() as i64;
        table.push(row(step, answer, change, reached));
    }
    table.push(total(answer));
    add_facts(&mut table, answer);
    table
}

fn row(step: &Step, answer: &Waterfall, change: i64, reached: f64) -> Vec<Cell> {
    let time = |time: Option<f64>| Cell::from(time.map(nanos));
    vec![
        Cell::name(step.name.clone()),
        step.kind.map(|kind| Cell::text(kind.word())).into(),
        time(step.times[0]),
        time(step.times[1]),
        Cell::Shift(change),
        Cell::Change(step.change() / answer.totals[0]),
        nanos(reached),
        count(step.times[0], step.counts[0]),
        count(step.times[1], step.counts[1]),
    ]
}

fn count(time: Option<f64>, count: f64) -> Cell {
    let rounded = (count * 100.0).round() / 100.0;
    Cell::from(time.map(|_| Cell::Number(rounded)))
}

fn total(answer: &Waterfall) -> Vec<Cell> {
    vec![
        Cell::text("total"),
        Cell::Empty,
        nanos(answer.totals[0]),
        nanos(answer.totals[1]),
        Cell::Shift(answer.totals[1].round() as i64 - answer.totals[0].round() as i64),
        answer.share().map(Cell::Change).into(),
        nanos(answer.totals[1]),
        Cell::Empty,
        Cell::Empty,
    ]
}

fn nanos(nanos: f64) -> Cell {
    Cell::Nanos(nanos.max(0.0).round() as u64)
}

fn shift(nanos: f64) -> Cell {
    Cell::Shift(nanos.round() as i64)
}

fn add_facts(table: &mut Table, answer: &Waterfall) {
    for (side, of) in ["a", "b"].into_iter().zip(&answer.of) {
        table.fact(format!("{side}_of"), format!("{side} is"), Cell::text(owner(of)));
    }
    match &answer.per {
        Per::Lap(held) => {
            for (side, held) in ["a", "b"].into_iter().zip(held) {
                table.fact(format!("{side}_laps"), format!("laps of {side}"), Cell::Count(held.count));
                table.machine_fact(format!("{side}_lap"), Cell::text(held.unit.clone()));
            }
        }
        Per::Trace(_) => {}
    }
    if let Some(sentence) = headline(answer) {
        table.note(sentence);
    }
    if let Some(sentence) = kinds(answer) {
        table.note(sentence);
    }
    table.note(times(&answer.per));
    add_devices(table, answer);
    add_findings(table, answer);
    table.note("One recording a side says what differs, not whether it would again: `laptime compare` of two runs decides that.");
}

fn owner(of: &Owner) -> String {
    match of {
        Owner::Device(name) => name.clone(),
        Owner::Devices(count) => format!("{count} devices, on average"),
        Owner::Thread(name) if name.is_empty() => "a thread".to_owned(),
        Owner::Thread(name) if name.starts_with("thread") => name.clone(),
        Owner::Thread(name) => format!("thread {name}"),
    }
}

fn headline(answer: &Waterfall) -> Option<String> {
    let [a, b] = in_one_unit(answer.totals.map(nanos));
    let change = single(&Cell::Change(answer.share()?));
    let unit = if matches!(answer.per, Per::Lap(_)) { " a lap" } else { "" };
    let median = answer.median_laps().map_or_else(String::new, |medians| {
        let [a, b] = in_one_unit(medians.map(nanos));
        format!("; the median lap {a} and {b}")
    });
    Some(format!("b takes {b}{unit} where a takes {a}: {change}{median}."))
}

fn kinds(answer: &Waterfall) -> Option<String> {
    let changed: Vec<_> = answer.kinds.iter().filter(|(_, change)| change.round() != 0.0).take(KINDS).collect();
    let cells: [Cell; KINDS] = std::array::from_fn(|at| changed.get(at).map(|(_, change)| shift(*change)).into());
    let changes = in_one_unit(cells);
    let told: Vec<String> =
        changed.iter().zip(changes).map(|((kind, _), change)| format!("{} {change}", plural(*kind))).collect();
    (!told.is_empty()).then(|| format!("{}.", capital(&told.join(", "))))
}

const fn plural(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Kernel => "kernels",
        EntryKind::Communication => "communication",
        EntryKind::Copy => "copies",
        EntryKind::Gap => "gaps",
        EntryKind::Stage => "stages",
        EntryKind::Wait => "waits",
        EntryKind::Nothing => "nothing recorded",
    }
}

fn times(per: &Per) -> String {
    let all = "Times are of all of each trace";
    match per {
        Per::Lap([a, _]) => {
            format!(
                "Times are of one lap of `{}`, with what comes after it, on average from the beginning of the first lap to that of the last; each moment counts once.",
                a.unit
            )
        }
        Per::Trace([None, None]) => format!("{all}: neither has laps. Each moment counts once."),
        Per::Trace([Some(LapsHeld { unit: a, .. }), Some(LapsHeld { unit: b, .. })]) => {
            format!("{all}: their laps do not match (`{a}` and `{b}`). Next: name one with `--lap`.")
        }
        Per::Trace([a, b]) => {
            let (has, unit) = if a.is_some() { ("a", a) } else { ("b", b) };
            let unit = unit.as_ref().map_or("", |held| held.unit.as_str());
            format!("{all}: only {has} has laps (`{unit}`). Each moment counts once.")
        }
    }
}

fn add_devices(table: &mut Table, answer: &Waterfall) {
    let more = answer.other_devices.iter().max().copied().unwrap_or(0);
    if more > 0 {
        let devices = if more == 1 { "1 more device is" } else { &format!("{more} more devices are") };
        table.note(format!("{devices} not shown; `--device N` chooses one."));
    }
}

fn add_findings(table: &mut Table, answer: &Waterfall) {
    for (side, findings) in ["a", "b"].into_iter().zip(&answer.findings) {
        for finding in findings {
            table.note(format!("Check of {side}: {finding}"));
            table.machine_fact(format!("{side}_finding_{}", finding.rule), Cell::text(finding.to_string()));
        }
    }
}
