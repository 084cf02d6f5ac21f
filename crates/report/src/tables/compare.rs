//! The comparison of two runs as a table.

use laptime_analyze::{
    Compared, ComparedCase, Difference, Figures, NotCompared, Note, Pair, Trouble, Which, capital, grouped, plural,
};
use laptime_stats::compare::{LEAST_PROCESSES, MOST_ADVISED};
use laptime_stats::{Interval, Judged, Reason, Tally, Verdict};

use super::axes::{Axes, UsedKeys};
use super::{ab::rounded, troubles};
use crate::{Cell, Column, Table, table::fields};

/// Lays out how two runs compare.
pub fn compare(answer: &Compared) -> Table {
    let axes = Axes::of(answer.cases.iter().map(|case| &case.id));
    let (of_difference, difference) = fields!(case: &ComparedCase => {
        let pair = case.pair.as_ref().ok();
        let end = |end: fn(Interval) -> f64| Cell::from(pair.and_then(|pair| Some(Cell::Change(end(pair.judged.interval?)))));
    } [
        ("difference", "change") => Cell::from(pair.map(|pair| Cell::Change(pair.judged.difference))),
        ("difference_lo", "").machine_only() => end(|ends| ends.low),
        ("difference_hi", "").machine_only() => end(|ends| ends.high),
        ("difference_ci", "95 % CI").human_only().drop(2) => Cell::range(end(|ends| ends.low), end(|ends| ends.high)),
        ("margin", "").machine_only() => Cell::from(pair.map(|pair| Cell::Share(pair.judged.margin))),
        ("verdict", "verdict") => Cell::text(verdict(case)),
        ("why", "why").human_only().drop(3) => Cell::from(why(case).map(Cell::text)),
        ("reason", "").machine_only() => Cell::from(reason(case).map(Cell::text)),
        ("processes_needed", "").machine_only() =>
            Cell::from(pair.and_then(|pair| Some(Cell::Count(pair.judged.needed? as u64)))),
    ]);
    let others = [of_difference, side_columns()].concat();
    let own = [value_columns(answer, &mut UsedKeys::by(&others)), others].concat();
    let mut table = axes.table("comparisons", own);
    for case in &answer.cases {
        let pair = case.pair.as_ref().ok();
        let mut row = axes.cells(&case.id);
        for side in [pair.map(|pair| pair.a), pair.map(|pair| pair.b)] {
            let ends = side.and_then(|side| side.interval);
            let values = [side.map(|side| side.median), ends.map(|ends| ends.low), ends.map(|ends| ends.high)];
            row.extend(values.map(|value| match answer.metric {
                None => Cell::nanos(value),
                Some(_) => Cell::number(value),
            }));
        }
        row.extend(difference(case));
        row.extend(side_cells(pair.map(|pair| &pair.a)));
        row.extend(side_cells(pair.map(|pair| &pair.b)));
        table.push(row);
    }
    add_facts(&mut table, answer, &axes);
    add_notes(&mut table, answer, &axes);
    table
}

/// The typical value of each side with its interval: times in milliseconds, or the metric under its name.
fn value_columns(answer: &Compared, used: &mut UsedKeys) -> Vec<Column> {
    let (middle, unit) = answer.metric.as_deref().map_or(("median", "_ms"), |metric| (metric, ""));
    let mut columns: Vec<Column> = Vec::new();
    for (side, end) in ["a", "b"].into_iter().flat_map(|side| ["", "_lo", "_hi"].map(|end| (side, end))) {
        let column = Column::new(used.reserve(&format!("{side}_{middle}{end}{unit}")), side);
        let column = if end.is_empty() { column } else { column.machine_only() };
        let scale = columns.first().map_or(column.key.clone(), |first| first.key.clone());
        columns.push(column.in_unit_of(scale));
    }
    columns
}

fn side_columns() -> Vec<Column> {
    let keys = ["a_n", "a_processes", "a_between", "a_within", "b_n", "b_processes", "b_between", "b_within"];
    keys.map(|key| Column::new(key, "").machine_only()).to_vec()
}

fn side_cells(side: Option<&Figures>) -> [Cell; 4] {
    let count = |count: fn(&Figures) -> usize| Cell::from(side.map(|side| Cell::Count(count(side) as u64)));
    let share = |share: fn(&Figures) -> Option<f64>| Cell::share(side.and_then(share));
    [count(|side| side.all.n), count(|side| side.processes), share(|side| side.between), share(|side| side.within)]
}

fn verdict(case: &ComparedCase) -> &'static str {
    case.pair.as_ref().map_or("not compared", |pair| pair.judged.verdict.word())
}

/// The reason in two or three words.
fn why(case: &ComparedCase) -> Option<&'static str> {
    Some(match &case.pair {
        Ok(pair) => match pair.judged.verdict {
            Verdict::Unclear(Reason::TooFewProcesses { .. }) => "few processes",
            Verdict::Unclear(Reason::TooWide { .. }) => "too wide",
            Verdict::Unclear(Reason::AroundMargin) => "at the margin",
            Verdict::Unclear(Reason::ManyCases { .. }) => "many cases",
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
        Ok(Pair { judged: Judged { verdict: Verdict::Unclear(reason), .. }, .. }) => Some(reason.to_string()),
        Ok(_) => None,
        Err(NotCompared::OnlyIn(which)) => Some(format!("only in {}", which.letter())),
        Err(NotCompared::NotMeasured(Which::A)) => Some(format!("in a, {a}")),
        Err(NotCompared::NotMeasured(Which::B)) => Some(format!("in b, {b}")),
        Err(NotCompared::NotMeasuredInBoth) if a == b => Some(format!("in a and b, {a}")),
        Err(NotCompared::NotMeasuredInBoth) => Some(format!("in a, {a}; in b, {b}")),
        Err(NotCompared::NoMetric(which)) => Some(format!("{} lacks the metric", which.letter())),
        Err(NotCompared::NoRatio(which)) => {
            Some(format!("a value in {} is zero or negative, so there is no ratio", which.letter()))
        }
    }
}

fn trouble(troubles: &[Trouble]) -> String {
    let text =
        |trouble: &Trouble| format!("{}: {}", trouble.kind.word().replace('_', " "), troubles::reason(&trouble.kind));
    troubles.first().map_or_else(|| "not measured".to_owned(), text)
}

fn add_facts(table: &mut Table, answer: &Compared, axes: &Axes) {
    axes.add_common(table);
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
        ("not_compared", answer.cases.len() - tally.all()),
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
    let (decisive, minor): (Vec<_>, Vec<_>) = answer.differences.iter().partition(|difference| difference.is_decisive);
    if !decisive.is_empty() {
        let list = listed(&decisive);
        table.warn(Note::new("different-setup", format!("the runs differ in more than the program: {list}")));
    }
    if !minor.is_empty() {
        table.legend(format!("The runs also differ in: {}.", listed(&minor)));
    }
}

fn listed(differences: &[&Difference]) -> String {
    let one = |difference: &&Difference| format!("{} (a: {}, b: {})", difference.what, difference.a, difference.b);
    differences.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn add_overall(table: &mut Table, tally: &Tally) {
    if tally.all() == 0 {
        table.note("No case could be compared.");
        return;
    }
    let cases = plural(tally.all(), "case", "cases");
    let Tally { faster, slower, same, unclear } = tally;
    table
        .note(format!("b compared with a, {cases}: {faster} faster, {slower} slower, {same} same, {unclear} unclear."));
}

/// One sentence per reason, with what to do about it.
fn add_unclear(table: &mut Table, answer: &Compared) {
    let all = answer.tally().all();
    let meaning = |reason: Reason| match reason {
        Reason::TooFewProcesses { .. } => {
            (0, format!("a 95 % interval needs at least {LEAST_PROCESSES} processes per side"))
        }
        Reason::TooWide { .. } => (1, "the interval contains zero and also differences beyond the margin".to_owned()),
        Reason::AroundMargin => (2, "there is a difference, but it may be smaller than the margin".to_owned()),
        Reason::ManyCases { .. } => (3, format!("differences like these are expected by chance among {all} cases")),
    };
    let unclear = |case: &ComparedCase| match case.pair.as_ref().ok()?.judged {
        Judged { verdict: Verdict::Unclear(reason), needed, .. } => Some((meaning(reason), needed)),
        _ => None,
    };
    let mut groups = grouped(answer.cases.iter().filter_map(unclear));
    groups.sort_by_key(|((order, _), _)| *order);
    for ((_, meaning), needed) in groups {
        table.note(format!("{} unclear: {meaning}. Try: {}.", needed.len(), advice(&needed)));
    }
}

/// How many processes would settle all unclear cases that can be settled.
fn advice(needed: &[Option<usize>]) -> String {
    match needed.iter().flatten().max() {
        Some(&most) => format!("measure both sides with `--runs {}`", rounded(most)),
        None => format!("raise `--threshold`; more than {MOST_ADVISED} processes per side would be needed"),
    }
}

fn add_not_compared(table: &mut Table, answer: &Compared, axes: &Axes) {
    let failed = answer.cases.iter().filter(|case| case.pair.is_err());
    let reasons = grouped(failed.map(|case| (reason(case).unwrap_or_default(), case)));
    let more = reasons.len().saturating_sub(troubles::MOST);
    for (reason, cases) in reasons.into_iter().take(troubles::MOST) {
        let names = axes.names(cases.iter().map(|case| &case.id));
        table.note(format!("{}: {}.", capital(&names), reason.trim_end_matches('.')));
    }
    troubles::add_more(table, more);
}

/// Lists compared cases in which some processes failed.
fn add_partial(table: &mut Table, answer: &Compared, axes: &Axes) {
    for (at, which) in [Which::A, Which::B].into_iter().enumerate() {
        let partial = |case: &&ComparedCase| case.pair.is_ok() && !case.troubles[at].is_empty();
        let cases: Vec<&ComparedCase> = answer.cases.iter().filter(partial).collect();
        if !cases.is_empty() {
            let names = axes.names(cases.iter().map(|case| &case.id));
            table.note(format!("Some processes of {} failed and are left out: {names}.", which.letter()));
        }
    }
}
