//! The table of two variants.

use laptime_analyze::Ab;
use laptime_stats::{Comparison, Level, Origin, Verdict};

use crate::table::{Cell, Column, Table};

/// Lays two variants out, a row each, with the verdict below.
pub fn ab(answer: &Ab) -> Table {
    let columns = [
        Column::new("variant", "variant"),
        Column::new("what", "what").machine_only(),
        Column::new("processes", "processes"),
        Column::new("takes", "takes").drop(3),
        Column::new("typical_ms", "typical"),
        Column::new("typical_lo_ms", "low").in_unit_of("typical_ms"),
        Column::new("typical_hi_ms", "high").in_unit_of("typical_ms"),
        Column::new("between", "between").drop(1),
        Column::new("within", "within").drop(2),
        Column::new("difference", "").machine_only(),
        Column::new("difference_lo", "").machine_only(),
        Column::new("difference_hi", "").machine_only(),
        Column::new("noise_floor", "").machine_only(),
        Column::new("verdict", "").machine_only(),
        Column::new("reason", "").machine_only(),
    ];
    let mut table = Table::new("variants", columns);
    let comparison = &answer.comparison;
    for (label, (what, level)) in ["A", "B"].into_iter().zip(answer.variants.iter().zip([comparison.a, comparison.b])) {
        let mut cells = row(label, what, &level);
        // The verdict is of B, against A.
        cells.extend(if label == "A" { [const { Cell::Empty }; 6] } else { judged(comparison) });
        table.push(cells);
    }
    table.machine_fact("difference", Cell::Number(comparison.difference));
    table.machine_fact("difference_lo", Cell::Number(comparison.interval.low));
    table.machine_fact("difference_hi", Cell::Number(comparison.interval.high));
    table.machine_fact("noise_floor", Cell::Number(comparison.floor.share));
    table.machine_fact("verdict", Cell::text(word(comparison.verdict)));
    for (label, what) in ["A", "B"].into_iter().zip(&answer.variants) {
        table.note(format!("{label}: `{what}`"));
    }
    table.note(sentence(answer));
    table.note(
        "`between` is the spread of processes, `within` that of the takes of one; times with their 95 % intervals.",
    );
    table
}

fn row(label: &str, what: &str, level: &Level) -> Vec<Cell> {
    let nanos = |nanos: f64| Cell::Nanos(nanos.round() as u64);
    vec![
        Cell::text(label),
        Cell::text(what),
        Cell::Count(level.processes as u64),
        Cell::Count(level.takes as u64),
        nanos(level.typical),
        nanos(level.interval.low),
        nanos(level.interval.high),
        level.between.map(Cell::Share).into(),
        level.within.map(Cell::Share).into(),
    ]
}

fn judged(comparison: &Comparison) -> [Cell; 6] {
    let reason = match comparison.verdict {
        Verdict::Unclear(reason) => Cell::text(reason.to_string()),
        _ => Cell::Empty,
    };
    [
        Cell::Number(comparison.difference),
        Cell::Number(comparison.interval.low),
        Cell::Number(comparison.interval.high),
        Cell::Number(comparison.floor.share),
        Cell::text(word(comparison.verdict)),
        reason,
    ]
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Same => "same",
        Verdict::Unclear(_) => "unclear",
    }
}

fn sentence(answer: &Ab) -> String {
    let comparison = &answer.comparison;
    let per_cent = |share: f64| format!("{:+.1} %", 100.0 * share);
    let range =
        format!("95 % interval {} to {}", per_cent(comparison.interval.low), per_cent(comparison.interval.high));
    let origin = match comparison.floor.origin {
        Origin::Least => "the least there is",
        Origin::Spread => "the spread between processes",
        Origin::Threshold => "your threshold",
    };
    let floor = format!("noise floor {:.1} %, {origin}", 100.0 * comparison.floor.share);
    let difference = 100.0 * comparison.difference.abs();
    let verdict = match comparison.verdict {
        Verdict::Faster => format!("B is faster by {difference:.1} %"),
        Verdict::Slower => format!("B is slower by {difference:.1} %"),
        Verdict::Same => "A and B are the same".to_owned(),
        Verdict::Unclear(reason) => format!("It is unclear: {reason}"),
    };
    format!("{verdict} ({range}; {floor}).")
}
