//! The ranks of a job compared, as tables.

use laptime_analyze::{CollectiveClass, MatchedCollective, RankPart, RankRow, Ranks, plural, rank_ranges};
use serde_json::json;

use crate::{
    Cell, Column, Table,
    format::PROSE,
    table::{fields, table},
    wrap,
};

/// What a row of the table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RanksBy {
    /// Collectives of the same kind, size and communicators.
    #[default]
    Collective,
    /// A rank.
    Rank,
    /// A rank in a step.
    Step,
    /// One collective on all its ranks.
    Call,
}

/// The most rows of a requested table that people see; programs see all.
const MOST_ROWS: usize = 12;

/// Lines of the answer with its table of collectives, on a screen of 120 columns.
const MOST_LINES: usize = 10;

/// Lines of a table besides its rows: an empty line, the header, and the line below it.
const HEADER_LINES: usize = 3;

/// How many rows fit below the answer. A note about the others needs two lines.
fn rows_below(sentences: &[String], rows: usize) -> usize {
    let lines: usize = sentences.iter().map(|sentence| wrap(sentence, PROSE).len()).sum();
    let space = MOST_LINES.saturating_sub(lines + HEADER_LINES).max(1);
    if rows <= space { rows } else { space.saturating_sub(2).max(1) }
}

/// Lays out the answer in sentences with a table. Unless `is_whole`, people see ten lines, or twelve rows of another table.
pub fn ranks(answer: &Ranks, by: RanksBy, is_whole: bool) -> Table {
    let mut table = match by {
        RanksBy::Collective => by_collective(answer),
        RanksBy::Rank => by_rank(answer),
        RanksBy::Step => by_step(answer),
        RanksBy::Call => by_call(answer),
    };
    table.answer = answer.answer();
    let most = match by {
        _ if is_whole => usize::MAX,
        RanksBy::Collective => rows_below(&table.answer, table.rows.len()),
        _ => MOST_ROWS,
    };
    let left_out = table.rows.len().saturating_sub(most);
    if left_out > 0 {
        table.rows.truncate(most);
        let rows = plural(left_out, "more row is", "more rows are");
        table.note(format!("{rows} not shown: `laptime ranks --all` shows them."));
    }
    table.answer.extend(answer.clocks().filter(|_| is_whole));
    add_facts(&mut table, answer);
    answer.notes.iter().for_each(|note| table.warn(note.clone()));
    table.legend(
        "Skew is the time from the first arrival at a collective to the last. Transfer is its shortest duration on any rank: \
         the last one to arrive does not wait. Bus GB/s follow nccl-tests.",
    );
    table
}

fn by_collective(answer: &Ranks) -> Table {
    let has_limit = answer.classes.iter().any(|class| class.limit.is_some());
    table!("collectives", &answer.classes, class: &CollectiveClass => {
            } [
        ("collective", "collective") => Cell::text(class.kind.words()),
        ("communicator", "group") => Cell::text(class.title.clone()),
        ("communicators", "groups").machine_only() => Cell::Count(class.communicators),
        ("ranks", "ranks").drop(3) => Cell::Count(class.size.into()),
        ("count", "count") => Cell::Count(class.count),
        ("message_bytes", "bytes") => Cell::from(class.bytes.map(Cell::Bytes)),
        ("skew_ms", "skew") => Cell::nanos(class.skew),
        ("transfer_ms", "transfer").in_unit_of("skew_ms") => Cell::nanos(class.transfer),
        ("algorithm_gb_s", "alg GB/s").drop(5) => Cell::number(class.algorithm_gb_s()),
        ("bus_gb_s", "bus GB/s").drop(1) => Cell::number(class.bus_gb_s()),
        ("limit_gb_s", "limit").drop(2).shown_if(has_limit) => Cell::number(class.limit),
        ("last_rank", "last rank") => Cell::from(class.last.map(|(rank, _)| Cell::Whole(answer.number(rank).into()))),
        ("last_share", "share").drop(0) => Cell::from(class.last.map(|(_, share)| Cell::Share(share))),
    ])
}

const PART_COLUMNS: [(&str, &str, u8); 7] = [
    ("compute_ms", "compute", 0),
    ("communication_ms", "exposed comm", 0),
    ("copy_ms", "copy", 4),
    ("data_loading_ms", "data loading", 2),
    ("host_ms", "host", 1),
    ("sync_ms", "sync", 3),
    ("other_ms", "other", 6),
];

fn part_columns() -> impl Iterator<Item = Column> {
    PART_COLUMNS.iter().map(|(key, label, order)| Column::new(*key, *label).drop(*order).in_unit_of("step_ms"))
}

fn rank_cell(rank: Option<u32>) -> Cell {
    Cell::from(rank.map(|rank| Cell::Whole(rank.into())))
}

/// One row per rank, those that cost most first.
fn by_rank(answer: &Ranks) -> Table {
    let mut rows: Vec<&RankRow> = answer.ranks.iter().collect();
    rows.sort_by(|one, other| other.late.total_cmp(&one.late).then(one.rank.cmp(&other.rank)));
    let (mut columns, before) = fields!(row: &RankRow => [
        ("trace", "trace").drop(5) => Cell::text(row.label.clone()),
        ("rank", "rank") => rank_cell(row.rank),
        ("step_ms", "step") => Cell::nanos(row.step),
        ("late_ms", "late").in_unit_of("step_ms") => Cell::nanos(row.late),
        ("waiting_ms", "waiting").in_unit_of("step_ms") => Cell::nanos(row.waiting),
    ]);
    let (others, after) = fields!(row: &RankRow => [
        ("last", "last").drop(5) => Cell::Count(row.last),
        ("steps", "steps").machine_only() => Cell::Count(row.steps.len() as u64),
        ("communication_kernels", "kernels").machine_only() => Cell::Count(row.kernels),
        ("communication_total_ms", "communication").machine_only() => Cell::Nanos(row.communication),
        ("clock_offset_ms", "clock").drop(7) => Cell::Shift(row.clock.offset),
        ("clock_uncertainty_ms", "±").machine_only() => Cell::Nanos(row.clock.uncertainty),
    ]);
    columns.extend(part_columns().chain(others));
    let parts = |row: &RankRow| row.parts.map(|time| Cell::nanos(f64::from(time))).to_vec();
    Table::of("ranks", rows, (columns, |row: &RankRow| [before(row), parts(row), after(row)].concat()))
}

/// One row per rank and step.
fn by_step(answer: &Ranks) -> Table {
    let mut columns = vec![Column::new("rank", "rank"), Column::new("step", "step"), Column::new("step_ms", "length")];
    columns.extend(part_columns());
    let mut table = Table::new("steps", columns);
    for (row, step) in answer.ranks.iter().flat_map(|row| row.steps.iter().map(move |step| (row, step))) {
        let mut cells = vec![rank_cell(row.rank), Cell::Whole(step.number as i64), Cell::Nanos(step.end - step.start)];
        cells.extend(step.parts.iter().map(|time| Cell::nanos(f64::from(*time))));
        table.push(cells);
    }
    table
}

/// One row per collective.
fn by_call(answer: &Ranks) -> Table {
    let mut calls: Vec<&MatchedCollective> = answer.collectives.iter().collect();
    calls.sort_by_key(|call| call.start);
    let first = calls.first().map_or(0, |call| call.start);
    table!("collectives", calls, call: &MatchedCollective => {
        let communicator = answer.communicators.get(call.communicator as usize);
    } [
        ("collective", "collective") => Cell::text(call.kind.words()),
        ("communicator", "group") =>
            Cell::text(communicator.map_or_else(String::new, laptime_analyze::Communicator::label)),
        ("step", "step") => Cell::from(call.step.map(|step| Cell::Whole(step as i64))),
        ("ranks", "ranks").drop(3) => Cell::Count(call.ranks.into()),
        ("start_ms", "start").drop(2) => Cell::Nanos(call.start.abs_diff(first)),
        ("message_bytes", "bytes").drop(1) => Cell::from(call.bytes.map(Cell::Bytes)),
        ("skew_ms", "skew") => Cell::from(call.skew.map(Cell::Nanos)),
        ("transfer_ms", "transfer").in_unit_of("skew_ms") => Cell::Nanos(call.transfer),
        ("last_rank", "last rank") => Cell::from(call.last.map(|rank| Cell::Whole(answer.number(rank).into()))),
        ("uncertainty_ms", "±").drop(4) => Cell::Nanos(call.uncertainty),
    ])
}

/// Figures of the whole job, for programs; people read them in the answer.
fn add_facts(table: &mut Table, answer: &Ranks) {
    table.machine_fact("rank_count", Cell::Count(answer.ranks.len() as u64));
    table.machine_fact("step_count", Cell::Count(answer.steps.len() as u64));
    table.machine_fact("step_ms", Cell::nanos(answer.step));
    table.machine_fact("waiting_ms", Cell::nanos(answer.waiting));
    table.machine_fact("transfer_ms", Cell::nanos(answer.transfer));
    let uncertainty = answer.ranks.iter().map(|row| row.clock.uncertainty).max();
    table.machine_fact("clock_uncertainty_ms", Cell::from(uncertainty.map(Cell::Nanos)));
    let ms = |time: f64| time / 1e6;
    let stragglers = answer.stragglers.iter().map(|found| {
        json!({
            "rank": answer.number(found.rank), "cost_ms": ms(found.cost), "late_ms": ms(found.late), "steps": found.steps,
            "of_steps": found.of_steps, "recurs": found.recurs, "last": found.last.0, "of_collectives": found.last.1,
            "cause": found.part.map(|(part, _)| RankPart::key(part)), "compute_ratio": found.compute,
            "kernel_ratio": found.kernels,
        })
    });
    table.machine_fact("stragglers", Cell::Json(stragglers.collect()));
    let links = answer.slow_links.iter().map(|found| {
        let communicator = answer.communicators.get(found.communicator as usize);
        json!({
            "rank": found.rank, "ranks": rank_ranges(&found.ranks), "collective": found.kind.key(),
            "communicator": communicator.map(laptime_analyze::Communicator::label), "bytes": found.bytes,
            "transfer_ms": ms(found.transfer), "usual_ms": ms(found.usual), "cost_ms": ms(found.cost),
        })
    });
    table.machine_fact("slow_links", Cell::Json(links.collect()));
    let Some(pipeline) = &answer.pipeline else { return };
    let stages = pipeline.stages.iter().map(|stage| {
        json!({ "ranks": rank_ranges(&stage.ranks), "compute_ms": ms(stage.compute), "waiting_ms": ms(stage.waiting) })
    });
    table.machine_fact("pipeline_bubble", Cell::Share(pipeline.bubble));
    table.machine_fact("pipeline_stages", Cell::Json(stages.collect()));
}
