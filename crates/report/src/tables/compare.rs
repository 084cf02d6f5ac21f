//! The comparison of two runs as a table.

use laptime_analyze::{Compared, ComparedCase, Difference, Figures, NotCompared, Pair, Tally, Trouble, Which};
use laptime_stats::{Origin, Reason, Verdict};

use super::{
    axes::{Axes, Taken},
    cases::nanos,
    troubles,
};
use crate::{Cell, Column, Table};

/// From so many comparisons on a false alarm is worth a word.
const MANY: usize = 5;

/// Lays out how two runs compare.
pub fn compare(answer: &Compared) -> Table {
    let axes = Axes::of(answer.cases.iter().map(|case| &case.id));
    let own = columns(answer);
    let mut columns = axes.columns(&mut Taken::by(&own));
    columns.extend(own);
    let mut table = Table::new("comparisons", columns);
    for case in &answer.cases {
        let mut row = axes.cells(&case.id);
        row.extend(cells(answer, case));
        table.push(row);
    }
    add_facts(&mut table, answer, &axes);
    add_notes(&mut table, answer, &axes);
    table
}

/// The columns of the values, then those of the difference and of the sides.
fn columns(answer: &Compared) -> Vec<Column> {
    let others = [difference_columns(), side_columns()].concat();
    let mut columns = value_columns(answer, &mut Taken::by(&others));
    columns.extend(others);
    columns
}

/// The typical value of each side with its interval: times in milliseconds, or the metric under its name.
fn value_columns(answer: &Compared, taken: &mut Taken) -> Vec<Column> {
    let (middle, unit) = answer.metric.as_deref().map_or(("median", "_ms"), |metric| (metric, ""));
    let mut columns: Vec<Column> = Vec::new();
    for (side, end) in ["a", "b"].into_iter().flat_map(|side| ["", "_lo", "_hi"].map(|end| (side, end))) {
        let column = Column::new(taken.take(&format!("{side}_{middle}{end}{unit}")), side);
        let column = if end.is_empty() { column } else { column.machine_only() };
        let scale = columns.first().map_or(column.key.clone(), |first| first.key.clone());
        columns.push(column.in_unit_of(scale));
    }
    columns
}

fn difference_columns() -> Vec<Column> {
    vec![
        Column::new("difference", "change"),
        Column::new("difference_lo", "from").drop(2),
        Column::new("difference_hi", "to").drop(2),
        Column::new("noise_floor", "floor").drop(4),
        Column::new("noise_floor_from", "").machine_only(),
        Column::new("verdict", "verdict"),
        Column::new("why", "why").human_only().drop(3),
        Column::new("reason", "").machine_only(),
    ]
}

fn side_columns() -> Vec<Column> {
    let keys = ["a_n", "a_processes", "a_between", "a_within", "b_n", "b_processes", "b_between", "b_within"];
    keys.map(|key| Column::new(key, "").machine_only()).to_vec()
}

fn cells(answer: &Compared, case: &ComparedCase) -> Vec<Cell> {
    let pair = case.pair.as_ref().ok();
    let value = |value: Option<f64>| match answer.metric.is_none() {
        true => nanos(value),
        false => Cell::from(value.map(Cell::Number)),
    };
    let change = |change: fn(&Pair) -> f64| Cell::from(pair.map(|pair| Cell::Change(change(pair))));
    let mut cells = Vec::new();
    for side in [pair.map(|pair| pair.a), pair.map(|pair| pair.b)] {
        let ends = side.and_then(|side| side.interval);
        let values = [side.map(|side| side.median), ends.map(|ends| ends.low), ends.map(|ends| ends.high)];
        cells.extend(values.map(value));
    }
    cells.extend([
        change(|pair| pair.difference),
        change(|pair| pair.interval.low),
        change(|pair| pair.interval.high),
        Cell::from(pair.map(|pair| Cell::Share(pair.floor.share))),
        Cell::from(pair.map(|pair| Cell::text(origin(pair.floor.origin)))),
        Cell::text(verdict(case)),
        Cell::from(why(case).map(Cell::text)),
        Cell::from(reason(case).map(Cell::text)),
    ]);
    cells.extend(side_cells(pair.map(|pair| &pair.a)));
    cells.extend(side_cells(pair.map(|pair| &pair.b)));
    cells
}

fn side_cells(side: Option<&Figures>) -> [Cell; 4] {
    let count = |count: fn(&Figures) -> usize| Cell::from(side.map(|side| Cell::Count(count(side) as u64)));
    let share = |share: fn(&Figures) -> Option<f64>| Cell::from(side.and_then(share).map(Cell::Share));
    [count(|side| side.n), count(|side| side.processes), share(|side| side.between), share(|side| side.within)]
}

fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Least => "least",
        Origin::Spread => "spread",
        Origin::Threshold => "threshold",
    }
}

fn verdict(case: &ComparedCase) -> &'static str {
    match case.pair.as_ref().map(|pair| pair.verdict) {
        Ok(Verdict::Faster) => "faster",
        Ok(Verdict::Slower) => "slower",
        Ok(Verdict::Same) => "same",
        Ok(Verdict::Unclear(_)) => "unclear",
        Err(_) => "not compared",
    }
}

/// The reason in two or three words; the notes say more.
fn why(case: &ComparedCase) -> Option<&'static str> {
    Some(match &case.pair {
        Ok(pair) => match pair.verdict {
            Verdict::Unclear(Reason::TooFewProcesses { .. }) => "few processes",
            Verdict::Unclear(Reason::TooWide { .. }) => "too wide",
            Verdict::Unclear(Reason::AroundFloor) => "around floor",
            _ => return None,
        },
        Err(NotCompared::OnlyIn(Which::A)) => "only in a",
        Err(NotCompared::OnlyIn(Which::B)) => "only in b",
        Err(NotCompared::NotMeasured(_) | NotCompared::NotMeasuredInBoth) => "not measured",
        Err(NotCompared::NoMetric(_)) => "no metric",
        Err(NotCompared::NoRatio(_)) => "no ratio",
    })
}

/// The reason in a sentence.
fn reason(case: &ComparedCase) -> Option<String> {
    let [a, b] = case.troubles.each_ref().map(|troubles| trouble(troubles));
    match &case.pair {
        Ok(Pair { verdict: Verdict::Unclear(reason), .. }) => Some(reason.to_string()),
        Ok(_) => None,
        Err(NotCompared::OnlyIn(which)) => Some(format!("only in {}", which.letter())),
        Err(NotCompared::NotMeasured(Which::A)) => Some(format!("in a, {a}")),
        Err(NotCompared::NotMeasured(Which::B)) => Some(format!("in b, {b}")),
        Err(NotCompared::NotMeasuredInBoth) if a == b => Some(format!("in a and b, {a}")),
        Err(NotCompared::NotMeasuredInBoth) => Some(format!("in a, {a}; in b, {b}")),
        Err(NotCompared::NoMetric(which)) => Some(format!("{} does not have the metric", which.letter())),
        Err(NotCompared::NoRatio(which)) => {
            Some(format!("in {}, a value is 0 or negative and has no ratio to others", which.letter()))
        }
    }
}

fn trouble(troubles: &[Trouble]) -> String {
    let told =
        |trouble: &Trouble| format!("{}: {}", trouble.kind.word().replace('_', " "), troubles::reason(&trouble.kind));
    troubles.first().map_or_else(|| "not measured".to_owned(), told)
}

fn add_facts(table: &mut Table, answer: &Compared, axes: &Axes) {
    if let Some(first) = answer.cases.first() {
        axes.add_common(table, &first.id);
    }
    match &answer.metric {
        Some(metric) => table.fact("metric", "metric", Cell::text(metric)),
        None => table.machine_fact("metric", Cell::text("wall_ms")),
    }
    if let Some([a, b]) = &answer.commits {
        table.fact("a_commit", "a: commit", Cell::text(a));
        table.fact("b_commit", "b: commit", Cell::text(b));
    }
    let tally = answer.tally();
    let counts = [
        ("faster", tally.faster),
        ("slower", tally.slower),
        ("same", tally.same),
        ("unclear", tally.unclear),
        ("not_compared", tally.not_compared),
    ];
    for (key, count) in counts {
        table.machine_fact(key, Cell::Count(count as u64));
    }
}

fn add_notes(table: &mut Table, answer: &Compared, axes: &Axes) {
    add_overall(table, &answer.tally());
    add_unclear(table, answer);
    add_not_compared(table, answer, axes);
    add_partial(table, answer, axes);
    let (decisive, told): (Vec<_>, Vec<_>) = answer.differences.iter().partition(|difference| difference.is_decisive);
    if !decisive.is_empty() {
        let list = listed(&decisive);
        table.note(format!("The runs differ in what decides times, so verdicts may be of that: {list}."));
    }
    if !told.is_empty() {
        table.note(format!("The runs also differ in: {}.", listed(&told)));
    }
}

fn listed(differences: &[&Difference]) -> String {
    let told = |difference: &&Difference| format!("{} (a: {}, b: {})", difference.what, difference.a, difference.b);
    differences.iter().map(told).collect::<Vec<_>>().join("; ")
}

fn add_overall(table: &mut Table, tally: &Tally) {
    if tally.compared() == 0 {
        table.note("No case could be compared.");
        return;
    }
    let cases = if tally.compared() == 1 { "1 case".to_owned() } else { format!("{} cases", tally.compared()) };
    let Tally { faster, slower, same, unclear, .. } = tally;
    table.note(format!(
        "{cases} compared, b against a: {faster} faster, {slower} slower, {same} same, {unclear} unclear."
    ));
    if tally.compared() >= MANY {
        table.note(format!(
            "Of {} comparisons at least one is called faster or slower though nothing changed with a chance of up to \
             {:.0} %, so a single verdict should come back in a second run before it is believed.",
            tally.compared(),
            100.0 * tally.false_alarm_chance()
        ));
    }
}

/// One sentence a reason, with what to do about it.
fn add_unclear(table: &mut Table, answer: &Compared) {
    let count = |wanted: fn(&Reason) -> bool| {
        let reasons = answer.cases.iter().filter_map(|case| match case.pair.as_ref().ok()?.verdict {
            Verdict::Unclear(reason) => Some(reason),
            _ => None,
        });
        reasons.filter(wanted).count()
    };
    let kinds: [(usize, &str); 3] = [
        (
            count(|reason| matches!(reason, Reason::TooFewProcesses { .. })),
            "a side has fewer than 3 processes, so nothing is known of how processes differ. Next: measure both sides \
             with `--runs 5`",
        ),
        (
            count(|reason| matches!(reason, Reason::TooWide { .. })),
            "the interval holds zero and also differences beyond the noise floor. Next: more processes, not more takes",
        ),
        (
            count(|reason| matches!(reason, Reason::AroundFloor)),
            "there is a difference, but perhaps one smaller than the noise floor. Next: more processes, or leave it",
        ),
    ];
    for (count, meaning) in kinds.into_iter().filter(|(count, _)| *count > 0) {
        table.note(format!("Unclear ({count}): {meaning}."));
    }
}

fn add_not_compared(table: &mut Table, answer: &Compared, axes: &Axes) {
    let mut reasons: Vec<(String, Vec<&ComparedCase>)> = Vec::new();
    for case in answer.cases.iter().filter(|case| case.pair.is_err()) {
        let reason = reason(case).unwrap_or_default();
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, cases)) => cases.push(case),
            None => reasons.push((reason, vec![case])),
        }
    }
    let more = reasons.len().saturating_sub(troubles::MOST);
    for (reason, cases) in reasons.into_iter().take(troubles::MOST) {
        let names = axes.names(cases.iter().map(|case| &case.id));
        table.note(format!("{}: {}.", troubles::capital(&names), reason.trim_end_matches('.')));
    }
    troubles::add_more(table, more);
}

/// Tells of compared cases that lack processes.
fn add_partial(table: &mut Table, answer: &Compared, axes: &Axes) {
    for (at, which) in [Which::A, Which::B].into_iter().enumerate() {
        let partial = |case: &&ComparedCase| case.pair.is_ok() && !case.troubles[at].is_empty();
        let cases: Vec<&ComparedCase> = answer.cases.iter().filter(partial).collect();
        if !cases.is_empty() {
            let names = axes.names(cases.iter().map(|case| &case.id));
            table.note(format!("In {}, some processes gave no figures and are left out: {names}.", which.letter()));
        }
    }
}
