//! The table of two variants.

use laptime_analyze::Ab;
use laptime_stats::{Judged, Level, Reason, Verdict, compare::MOST_ADVISED};

use crate::table::{Cell, Table, table};

/// Lays out two variants, one row each, with the verdict below.
pub fn ab(answer: &Ab) -> Table {
    let (comparison, judged) = (&answer.comparison, &answer.comparison.judged);
    let [a, b] = &answer.variants;
    // The verdict is about B, compared with A.
    let rows = [("A", a, comparison.a, None), ("B", b, comparison.b, Some(judged))];
    let mut table = table!("variants", rows, (label, what, level, judged): (&str, &String, Level, Option<&Judged>) => {
        let nanos = |nanos: f64| Cell::Nanos(nanos.round() as u64);
        let interval = judged.and_then(|judged| judged.interval);
        let reason = judged.and_then(|judged| match judged.verdict {
            Verdict::Unclear(reason) => Some(reason.to_string()),
            _ => None,
        });
    } [
        ("variant", "variant") => Cell::text(label),
        ("what", "what").machine_only() => Cell::text(what),
        ("processes", "processes") => Cell::Count(level.processes as u64),
        ("iterations", "iterations").drop(3) => Cell::Count(level.iterations as u64),
        ("typical_ms", "typical") => nanos(level.typical),
        ("typical_lo_ms", "").in_unit_of("typical_ms").machine_only() =>
            level.interval.map(|ends| nanos(ends.low)).into(),
        ("typical_hi_ms", "").in_unit_of("typical_ms").machine_only() =>
            level.interval.map(|ends| nanos(ends.high)).into(),
        ("typical_ci", "95 % CI").in_unit_of("typical_ms").human_only() =>
            level.interval.map(|ends| Cell::range(nanos(ends.low), nanos(ends.high))).into(),
        ("between", "process spread").drop(1) => Cell::share(level.between),
        ("within", "iteration spread").drop(2) => Cell::share(level.within),
        ("difference", "").machine_only() => judged.map(|judged| Cell::Number(judged.difference)).into(),
        ("difference_lo", "").machine_only() => interval.map(|ends| Cell::Number(ends.low)).into(),
        ("difference_hi", "").machine_only() => interval.map(|ends| Cell::Number(ends.high)).into(),
        ("margin", "").machine_only() => judged.map(|judged| Cell::Number(judged.margin)).into(),
        ("verdict", "").machine_only() => judged.map(|judged| Cell::text(judged.verdict.word())).into(),
        ("reason", "").machine_only() => reason.map(Cell::text).into(),
        ("processes_needed", "").machine_only() =>
            judged.and_then(|judged| judged.needed).map(|needed| Cell::Count(needed as u64)).into(),
    ]);
    table.machine_fact("difference", Cell::Number(judged.difference));
    table.machine_fact("difference_lo", judged.interval.map(|ends| Cell::Number(ends.low)));
    table.machine_fact("difference_hi", judged.interval.map(|ends| Cell::Number(ends.high)));
    table.machine_fact("margin", Cell::Number(judged.margin));
    table.machine_fact("verdict", Cell::text(judged.verdict.word()));
    for (label, what) in ["A", "B"].into_iter().zip(&answer.variants) {
        table.note(format!("{label}: `{what}`"));
    }
    table.note(sentence(judged, comparison.a.processes.min(comparison.b.processes)));
    table
}

/// The verdict: `B is slower: +10.7 % (+6.5 to +14.9 %)`.
fn sentence(judged: &Judged, processes: usize) -> String {
    let number = |share: f64| format!("{:+.1}", 100.0 * share);
    let (difference, margin) = (number(judged.difference), three_figures_at_most(100.0 * judged.margin));
    let range = judged.interval.map(|ends| [number(ends.low), number(ends.high)]);
    match (judged.verdict, range) {
        (Verdict::Faster, Some([low, high])) => format!("B is faster: {difference} % ({low} to {high} %)."),
        (Verdict::Slower, Some([low, high])) => format!("B is slower: {difference} % ({low} to {high} %)."),
        (Verdict::Same, Some([low, high])) => {
            format!("No difference larger than {margin} % ({low} to {high} %).")
        }
        (Verdict::Unclear(Reason::AroundMargin), Some([low, high])) => format!(
            "Unclear: {low} % to {high} %, which may be less than the margin of {margin} %; {}.",
            advice(judged, processes)
        ),
        (Verdict::Unclear(_), Some([low, high])) => {
            format!("Unclear: {low} % to {high} %; {}.", advice(judged, processes))
        }
        (Verdict::Unclear(reason), None) => format!("Unclear: {reason}."),
        (verdict, None) => format!("{}: {difference} %.", verdict.word()),
    }
}

/// How many more processes would settle an unclear verdict.
fn advice(judged: &Judged, processes: usize) -> String {
    match judged.needed {
        Some(needed) => {
            format!(
                "about {} more processes per side should give a clear result",
                rounded(needed.saturating_sub(processes))
            )
        }
        None => format!("more than {MOST_ADVISED} processes per side would be needed for a clear result"),
    }
}

/// A count that is an estimate: two figures of it, rounded up.
pub(crate) fn rounded(count: usize) -> usize {
    let step = 10_usize.pow(count.max(1).ilog10().saturating_sub(1));
    count.div_ceil(step) * step
}

/// A percentage without needless zeros: `1`, `2.5`.
fn three_figures_at_most(percent: f64) -> String {
    let text = format!("{percent:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_stats::Interval;

    fn verdict_text(verdict: Verdict, ends: Option<[f64; 2]>, needed: Option<usize>) -> String {
        let interval = ends.map(|[low, high]| Interval { low, high, level: 0.95 });
        sentence(&Judged { difference: 0.107, interval, margin: 0.01, verdict, needed }, 20)
    }

    #[test]
    fn the_verdict_is_one_sentence_with_its_interval() {
        let ends = Some([0.065, 0.149]);
        assert_eq!(verdict_text(Verdict::Slower, ends, None), "B is slower: +10.7 % (+6.5 to +14.9 %).");
        assert_eq!(
            verdict_text(Verdict::Same, Some([-0.004, 0.006]), None),
            "No difference larger than 1 % (-0.4 to +0.6 %)."
        );
    }

    #[test]
    fn an_unclear_verdict_estimates_the_processes_needed() {
        let wide = Verdict::Unclear(Reason::TooWide { furthest: 0.06 });
        let ends = Some([-0.023, 0.06]);
        assert_eq!(
            verdict_text(wide, ends, Some(103)),
            "Unclear: -2.3 % to +6.0 %; about 83 more processes per side should give a clear result."
        );
        assert!(
            verdict_text(wide, ends, None)
                .ends_with("; more than 1000 processes per side would be needed for a clear result.")
        );
        let few = verdict_text(Verdict::Unclear(Reason::TooFewProcesses { found: 1 }), None, Some(4));
        assert_eq!(few, "Unclear: 1 process on a side is too few for a 95 % interval; use at least 4.");
    }

    #[test]
    fn an_estimated_count_has_two_figures() {
        assert_eq!([0, 7, 83, 101, 119, 980, 981].map(rounded), [0, 7, 83, 110, 120, 980, 990]);
    }
}
