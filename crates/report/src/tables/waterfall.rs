//! The difference between two traces, as a table.

use laptime_analyze::{LapsCovered, Note, Owner, Step, Waterfall, WaterfallPer as Per, capital, plural};

use super::overview;
use crate::layout::{in_one_unit, single};
use crate::{Cell, Table, table::fields};

/// Kinds that a sentence lists at most.
const KINDS: usize = 4;

/// Lays out the steps from trace a to trace b.
pub fn waterfall(answer: &Waterfall) -> Table {
    let (columns, cells) = fields!((step, change, reached): (&Step, i64, f64) => {
        let time = |time: Option<f64>| Cell::from(time.map(nanos));
    } [
        ("name", "name") => Cell::name(step.name.clone()),
        ("kind", "kind").drop(2) => step.kind.map(|kind| Cell::text(kind.word())).into(),
        ("a_ms", "a") => time(step.times[0]),
        ("b_ms", "b").in_unit_of("a_ms") => time(step.times[1]),
        ("change_ms", "change").in_unit_of("a_ms") => Cell::Shift(change),
        ("change_share", "of total").machine_only() => Cell::Change(step.change() / answer.totals[0]),
        ("reached_ms", "sum").in_unit_of("a_ms").drop(1) => nanos(reached),
        ("a_count", "a count").drop(3) => count(step.times[0], step.counts[0]),
        ("b_count", "b count").drop(3) => count(step.times[1], step.counts[1]),
    ]);
    let mut table = Table::new("steps", columns);
    let [a, b] = answer.totals;
    let mut reached = a;
    for step in &answer.steps {
        let before = reached;
        reached += step.change();
        // Differences of rounded sums add up exactly.
        let change = reached.round() as i64 - before.round() as i64;
        table.push(cells((step, change, reached)));
    }
    let change = Cell::Shift(b.round() as i64 - a.round() as i64);
    let share = answer.share().map(Cell::Change).into();
    let total =
        [Cell::text("total"), Cell::Empty, nanos(a), nanos(b), change, share, nanos(b), Cell::Empty, Cell::Empty];
    table.push(total);
    add_facts(&mut table, answer);
    table
}

fn count(time: Option<f64>, count: f64) -> Cell {
    Cell::number(time.map(|_| (count * 100.0).round() / 100.0))
}

fn nanos(nanos: f64) -> Cell {
    Cell::Nanos(nanos.max(0.0).round() as u64)
}

fn add_facts(table: &mut Table, answer: &Waterfall) {
    for (side, of) in ["a", "b"].into_iter().zip(&answer.of) {
        table.fact(format!("{side}_of"), format!("{side} is"), Cell::text(owner(of)));
    }
    if let Per::Lap(laps) = &answer.per {
        for (side, laps) in ["a", "b"].into_iter().zip(laps) {
            table.fact(format!("{side}_laps"), format!("laps of {side}"), Cell::Count(laps.count));
            table.machine_fact(format!("{side}_lap"), Cell::text(laps.unit.clone()));
        }
    }
    for sentence in [headline(answer), kinds(answer)].into_iter().flatten() {
        table.note(sentence);
    }
    table.legend(times(&answer.per));
    if let Some(more @ 1..) = answer.other_devices.iter().max().copied() {
        let more = plural(more, "more device is", "more devices are");
        table.note(format!("{more} not shown; `--device N` chooses one."));
    }
    for (side, findings) in ["a", "b"].into_iter().zip(&answer.findings) {
        for finding in findings {
            table.warn(Note::new(finding.rule, format!("{side}: {}", finding.evidence)));
            table.machine_fact(format!("{side}_{}", overview::key(finding)), Cell::text(finding.to_string()));
        }
    }
    table.legend(
        "One recording per side shows what differs, not whether the difference is reproducible; `laptime compare` of two \
         runs tests that.",
    );
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
    let unit = if matches!(answer.per, Per::Lap(_)) { " per lap" } else { "" };
    let median = answer.median_laps().map_or_else(String::new, |medians| {
        let [a, b] = in_one_unit(medians.map(nanos));
        format!("; median lap {a} -> {b}")
    });
    Some(format!("a -> b: {a} -> {b}{unit} ({change}){median}."))
}

fn kinds(answer: &Waterfall) -> Option<String> {
    let changed: Vec<_> = answer.kinds.iter().filter(|(_, change)| change.round() != 0.0).take(KINDS).collect();
    let shift = |(_, change): &&(_, f64)| Cell::Shift(change.round() as i64);
    let cells: [Cell; KINDS] = std::array::from_fn(|at| changed.get(at).map(shift).into());
    let changes = in_one_unit(cells);
    let parts: Vec<String> =
        changed.iter().zip(changes).map(|((kind, _), change)| format!("{} {change}", kind.plural())).collect();
    (!parts.is_empty()).then(|| format!("{}.", capital(&parts.join(", "))))
}

fn times(per: &Per) -> String {
    let all = "Times cover each whole trace";
    match per {
        Per::Lap([a, _]) => {
            format!(
                "Times are averages per lap of `{}`, from the start of the first lap to the start of the last; each moment \
                 counts once.",
                a.unit
            )
        }
        Per::Trace([None, None]) => format!("{all}, because neither has laps; each moment counts once."),
        Per::Trace([Some(LapsCovered { unit: a, .. }), Some(LapsCovered { unit: b, .. })]) => {
            format!("{all}, because their laps differ (`{a}` and `{b}`); choose one with `--lap`.")
        }
        Per::Trace([a, b]) => {
            let (has, unit) = if a.is_some() { ("a", a) } else { ("b", b) };
            let unit = unit.as_ref().map_or("", |held| held.unit.as_str());
            format!("{all}, because only {has} has laps (`{unit}`); each moment counts once.")
        }
    }
}
