//! How time and memory grow with length, as a table.

use laptime_analyze::{Clock, Exponent, INTERVAL_ITERATIONS, LEAST_LENGTHS, Note, Scaling, ScalingSeries};

use super::axes::Axes;
use crate::{Cell, Table, table::fields};

/// Lays out exponents, one row per series, with findings as notes. None if no length was doubled.
pub fn scaling(answer: &Scaling) -> Option<Table> {
    if answer.series.is_empty() {
        return None;
    }
    let axes = Axes::of(answer.series.iter().map(|series| &series.id));
    let value = |exponent: Option<Exponent>| Cell::number(exponent.map(|exponent| exponent.value));
    let low = |exponent: Option<Exponent>| Cell::number(exponent.and_then(|exponent| Some(exponent.interval?.low)));
    let high = |exponent: Option<Exponent>| Cell::number(exponent.and_then(|exponent| Some(exponent.interval?.high)));
    let fields = fields!(series: &ScalingSeries => {
        // An exponent of time without an interval is left out.
        let known = |time: Option<Exponent>| time.filter(|time| time.interval.is_some());
        let [time, last] = [series.time.overall, series.time.last].map(known);
    } [
        ("lengths", "tokens") => Cell::text(lengths(&series.lengths)),
        ("time_exponent", "time N^") => value(time),
        ("time_exponent_lo", "").machine_only() => low(time),
        ("time_exponent_hi", "").machine_only() => high(time),
        ("time_exponent_ci", "95 % CI").human_only().drop(2) => Cell::range(low(time), high(time)),
        ("last_time_exponent", "last time N^") => value(last),
        ("last_time_exponent_lo", "").machine_only() => low(last),
        ("last_time_exponent_hi", "").machine_only() => high(last),
        ("last_time_exponent_ci", "95 % CI").human_only().drop(3) => Cell::range(low(last), high(last)),
        ("memory_exponent", "memory N^") => value(series.memory.overall),
        ("last_memory_exponent", "last memory N^") => value(series.memory.last),
        ("quadratic_work", "N² work").drop(1) => Cell::share(series.quadratic_work),
    ]);
    let mut table = axes.rows("scaling", fields, answer.series.iter().map(|series| (&series.id, series)));
    if answer.series.len() == 1 {
        axes.add_common(&mut table);
    }
    table.legend(rule(answer));
    let unsupported = answer.series.iter().filter(|series| series.time_exponent().is_none()).count();
    if unsupported > 0 {
        let text = format!(
            "growth in time is unclear in {unsupported} of {} series: measure at least {INTERVAL_ITERATIONS} iterations",
            answer.series.len()
        );
        table.warn(Note::new("unclear-growth", text));
    }
    for finding in answer.findings() {
        table.note(format!("{} [{}]. Try: {}.", finding.evidence, finding.rule, finding.next));
    }
    Some(table)
}

/// The shortest and the longest length: `512-8192`.
pub(crate) fn lengths(lengths: &[u64]) -> String {
    match lengths {
        [] => String::new(),
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
    }
}

fn rule(answer: &Scaling) -> String {
    let is_of_device = answer.series.iter().all(|series| series.clock == Clock::Device);
    let clock = if is_of_device { Clock::Device } else { Clock::Wall };
    let is_of_models = answer.series.iter().any(|series| series.id.case.get("model").is_some());
    format!(
        "N^x: twice the length needs 2^x times as much. x is fitted to at least {LEAST_LENGTHS} lengths; `last` covers the \
         last doubling only. It is computed from the {}, and its interval from at least {INTERVAL_ITERATIONS} iterations \
         per length.{}",
        clock.words(),
        if is_of_models { " Peak memory includes the weights." } else { "" }
    )
}
