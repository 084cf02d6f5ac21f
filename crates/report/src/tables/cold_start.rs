//! The cost of a cold start, as a table and in sentences.

use laptime_analyze::{ColdPart, ColdStart, ColdWork, StageShift, WarmUpRows, capital};

use super::axes::Axes;
use crate::{Cell, Table, layout::OneUnit, table::fields};

/// A first iteration that is slower by less is not reported.
const LEAST_SLOWER: f64 = 0.05;

/// The most stages that a sentence names.
const MOST_STAGES: usize = 3;

/// Lays out the cost of a cold start, one row per part. None if no process was recorded.
pub fn cold_start(answer: &[WarmUpRows]) -> Option<Table> {
    let recorded: Vec<(&WarmUpRows, &ColdStart)> =
        answer.iter().filter_map(|case| Some((case, case.cold.as_ref()?))).collect();
    let axes = Axes::of(recorded.iter().map(|(case, _)| &case.id));
    let fields = fields!((work, before, first, count): (Option<ColdWork>, Cell, Cell, u64) => [
        ("part", "cold start") => Cell::text(work.map_or("all", ColdWork::word)),
        ("before_ms", "before") => before,
        ("first_iteration_ms", "first iteration").in_unit_of("before_ms") => first,
        ("count", "times") => if count > 0 { Cell::Count(count) } else { Cell::Empty },
        ("meaning", "meaning").human_only().drop(1) => work.map(|work| Cell::text(work.meaning())).into(),
    ]);
    let of_case = recorded.iter().flat_map(|(case, start)| rows(start).into_iter().map(move |row| (&case.id, row)));
    let mut table = axes.rows("cold_start", fields, of_case);
    for (case, start) in &recorded {
        let who = axes.before(&case.id);
        sentences(start).into_iter().for_each(|sentence| table.note(capital(&format!("{who}{sentence}"))));
    }
    add_tuning(&mut table, &recorded);
    (!recorded.is_empty()).then_some(table)
}

/// The parts of a cold start that occur, and all of it: before the first iteration, in it, and how often.
fn rows(start: &ColdStart) -> Vec<(Option<ColdWork>, Cell, Cell, u64)> {
    let part = |work: ColdWork| {
        let (before, first) = (start.before_part(work), start.beyond_part(work));
        before.or(first)?;
        let count = [before, first].into_iter().flatten().map(|part| part.count).sum();
        let before = before.map(|part| Cell::Nanos(part.nanos.unsigned_abs()));
        Some((Some(work), before.into(), first.map(|part| Cell::Shift(part.nanos)).into(), count))
    };
    let all = (None, Cell::Nanos(start.before_ns), start.beyond_ns().map(Cell::Shift).into(), 0);
    ColdWork::ALL.into_iter().filter_map(part).chain([all]).collect()
}

/// A part in a sentence: `compiling 26 kernels`.
fn doing(part: &ColdPart) -> String {
    let some = |one: &str, several: &str| match part.count {
        0 => several.to_owned(),
        1 => format!("one {one}"),
        count => format!("{count} {several}"),
    };
    match part.work {
        ColdWork::Context => "the device and its context".to_owned(),
        ColdWork::Libraries => "reading and starting libraries".to_owned(),
        ColdWork::Compile => format!("compiling {}", some("kernel source", "kernel sources")),
        ColdWork::Load => format!("loading {}", some("module", "modules")),
        ColdWork::FirstProducts => format!("the first matrix product of {}", some("size", "sizes")),
        ColdWork::Capture => "capturing a graph".to_owned(),
        ColdWork::Weights => "weights and inputs".to_owned(),
        ColdWork::Allocate => "allocation".to_owned(),
        ColdWork::Threads => "starting threads".to_owned(),
        ColdWork::Prompt => "filling the cache".to_owned(),
        ColdWork::Autotune => "autotuning".to_owned(),
        ColdWork::FirstTouch => format!("page faults ({}, estimated)", some("page", "pages")),
        ColdWork::Rest => "unmarked code".to_owned(),
    }
}

fn sentences(start: &ColdStart) -> Vec<String> {
    let times = Times::of(start);
    let mut sentences = vec![format!(
        "a fresh process took {} until its first iteration: {}.",
        times.write(start.before_ns),
        times.list(&start.before)
    )];
    let (Some(steady), Some(beyond)) = (start.steady_ns, start.beyond_ns()) else { return sentences };
    if (beyond as f64) <= steady as f64 * LEAST_SLOWER {
        sentences.push("its first iteration was as fast as later ones.".to_owned());
        return sentences;
    }
    let [first, beyond, steady] = [start.first_ns, beyond.unsigned_abs(), steady].map(|nanos| times.write(nanos));
    let parts = times.list(&start.beyond);
    let mut sentence = format!("its first iteration took {first}, {beyond} more than the steady {steady}: {parts}");
    let rest = start.beyond_part(ColdWork::Rest).map_or(0, |rest| rest.nanos);
    if is_notable(rest.saturating_neg(), start.beyond_ns().unwrap_or(0)) {
        let meanwhile = times.write(rest.unsigned_abs());
        sentence.push_str(&format!("; {meanwhile} of it overlaps with work of a steady iteration"));
    }
    let places = times.places(start);
    if !places.is_empty() {
        sentence.push_str(&format!(", mostly in {places}"));
    }
    sentences.push(format!("{sentence}."));
    sentences
}

/// Times of one process, in one unit.
struct Times {
    unit: OneUnit,
}

impl Times {
    fn of(start: &ColdStart) -> Self {
        let times = [start.before_ns, start.first_ns].map(Cell::Nanos);
        Self { unit: OneUnit::of(times.iter()) }
    }

    fn write(&self, nanos: u64) -> String {
        self.unit.write(&Cell::Nanos(nanos))
    }

    /// Parts from the longest to the shortest, unmarked code last; parts below 1 % are left out.
    fn list(&self, parts: &[ColdPart]) -> String {
        let all = parts.iter().map(|part| part.nanos.max(0)).fold(0, i64::saturating_add);
        let mut long: Vec<&ColdPart> = parts.iter().filter(|part| is_notable(part.nanos, all)).collect();
        long.sort_by_key(|part| (part.work == ColdWork::Rest, std::cmp::Reverse(part.nanos)));
        let parts = long.iter().map(|part| format!("{} for {}", self.write(part.nanos.unsigned_abs()), doing(part)));
        let parts: Vec<String> = parts.collect();
        if parts.is_empty() { "unmarked code".to_owned() } else { parts.join(", ") }
    }

    /// The stages with the unmarked time, if there is any.
    fn places(&self, start: &ColdStart) -> String {
        let rest = start.beyond_part(ColdWork::Rest).map_or(0, |rest| rest.nanos);
        let place = |shift: &StageShift| {
            let stage =
                shift.stage.as_ref().map_or_else(|| "outside all stages".to_owned(), |stage| format!("`{stage}`"));
            format!("{stage} ({})", self.write(shift.nanos.unsigned_abs()))
        };
        let long = start.rest_in.iter().filter(|shift| is_notable(shift.nanos, rest)).take(MOST_STAGES);
        long.map(place).collect::<Vec<_>>().join(", ")
    }
}

/// Whether a part is at least 1 % of a time.
fn is_notable(part: i64, of: i64) -> bool {
    part > 0 && of > 0 && part >= of / 100
}

/// States that there was no autotuning.
fn add_tuning(table: &mut Table, recorded: &[(&WarmUpRows, &ColdStart)]) {
    let tunes = |start: &ColdStart| {
        start.before_part(ColdWork::Autotune).or_else(|| start.beyond_part(ColdWork::Autotune)).is_some()
    };
    if recorded.iter().any(|(_, start)| tunes(start)) {
        return;
    }
    let on_gpu = recorded.iter().any(|(case, _)| case.id.device.starts_with("cuda"));
    let blas = if on_gpu { "; cuBLAS selects kernels by heuristics" } else { "" };
    table.legend(format!("No autotuning: there is no stage `autotune`{blas}."));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_add_up_to_more_than_the_difference_are_explained() {
        let part = |work, nanos, count| ColdPart { work, nanos, count };
        let start = ColdStart {
            before_ns: 4_000_000_000,
            before: vec![part(ColdWork::Compile, 4_000_000_000, 15)],
            first_ns: 126_000_000,
            steady_ns: Some(42_000_000),
            beyond: vec![part(ColdWork::FirstProducts, 100_000_000, 18), part(ColdWork::Rest, -16_000_000, 0)],
            rest_in: Vec::new(),
        };
        let found = sentences(&start);
        assert!(found[1].ends_with("; 16.00 ms of it overlaps with work of a steady iteration."), "{}", found[1]);
    }
}
