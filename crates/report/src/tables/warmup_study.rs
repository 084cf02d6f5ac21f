//! A study of warm-ups as a table: a row a number of warm-up takes.

use laptime_analyze::{ColdStart, ColdWork, Distance, SharedDoubt, WarmUpRow, WarmUpRows, WarmUpStudy};

use super::{
    axes::{Axes, Taken},
    cases::nanos,
    troubles,
};
use crate::{Cell, Column, Table};

/// Lays out what numbers of warm-up takes would have said, in the columns of the course and ours behind them, with the
/// doubts about them as notes.
pub fn warmup_study(answer: &WarmUpStudy, doubts: &[SharedDoubt]) -> Table {
    let axes = Axes::of(answer.cases.iter().map(|case| &case.id));
    let (mut columns, paid) = (columns(), Paid::of(answer));
    columns.extend(paid.columns());
    let of_axes = axes.columns(&mut Taken::by(&columns));
    columns.extend(of_axes);
    let mut table = Table::new("warmup_study", columns);
    for case in &answer.cases {
        for row in &case.rows {
            table.push(cells(row, case, &paid, &axes));
        }
    }
    if let Some(first) = answer.cases.first() {
        axes.add_common(&mut table, &first.id);
    }
    add_notes(&mut table, answer, &axes);
    let told = answer.cases.iter().map(|case| troubles::Told {
        id: &case.id,
        troubles: &case.troubles,
        measured: case.rows.iter().filter_map(|row| row.takes).map(|takes| takes.processes).sum(),
    });
    troubles::add_notes(&mut table, &axes, told);
    add_doubts(&mut table, answer, doubts);
    table
}

/// Every take of every row, for a chart: a row a take.
pub fn warmup_laps(answer: &WarmUpStudy) -> Table {
    let axes = Axes::of(answer.cases.iter().map(|case| &case.id));
    let own = ["warmup_steps", "run", "step", "time_ms", "counts"].map(|key| Column::new(key, key));
    let mut columns = own.to_vec();
    columns.extend(axes.columns(&mut Taken::by(&own)));
    let mut table = Table::new("warmup_laps", columns);
    for (case, row) in answer.cases.iter().flat_map(|case| case.rows.iter().map(move |row| (case, row))) {
        for series in &row.series {
            for (step, &take) in series.takes_ns.iter().enumerate() {
                let count = |count: usize| Cell::Count(count as u64);
                let run = Cell::Count(u64::from(series.run));
                let counts = Cell::Bool(step >= row.warmup_takes);
                let own = [count(row.warmup_takes), run, count(step), Cell::Nanos(take), counts];
                table.push(own.into_iter().chain(axes.cells(&case.id)).collect::<Vec<_>>());
            }
        }
    }
    table
}

fn columns() -> Vec<Column> {
    let in_mean = |key: &'static str, label: &'static str| Column::new(key, label).in_unit_of("mean_time_ms");
    vec![
        Column::new("warmup_steps", "warm-up"),
        Column::new("mean_time_ms", "mean"),
        in_mean("std_time_ms", "std"),
        Column::new("cv_percent", "cv (%)"),
        in_mean("from_5_ms", "from 5").drop(3),
        Column::new("from_5", "from 5"),
        in_mean("from_steady_ms", "from steady").drop(2),
        Column::new("from_steady", "from steady"),
        in_mean("first_take_ms", "first take").drop(4),
        in_mean("steady_ms", "steady").machine_only(),
        Column::new("n", "takes").drop(5),
        Column::new("processes", "processes").drop(6),
    ]
}

/// What fresh processes paid for, for machines: the parts that some case has.
struct Paid {
    before: Vec<ColdWork>,
    first: Vec<ColdWork>,
}

impl Paid {
    fn of(answer: &WarmUpStudy) -> Self {
        let has = |part: fn(&ColdStart, ColdWork) -> bool, work: ColdWork| {
            answer.cases.iter().filter_map(|case| case.cold.as_ref()).any(|start| part(start, work))
        };
        let works = |part: fn(&ColdStart, ColdWork) -> bool| {
            ColdWork::ALL.into_iter().filter(|work| has(part, *work)).collect::<Vec<_>>()
        };
        Self {
            before: works(|start, work| start.before_part(work).is_some()),
            first: works(|start, work| start.beyond_part(work).is_some()),
        }
    }

    fn columns(&self) -> Vec<Column> {
        let column = |key: String| Column::new(key, "").machine_only();
        let parts = |place: &'static str, works: &[ColdWork]| {
            let whole = (!works.is_empty()).then(|| column(format!("{place}_ms")));
            let parts = works.iter().map(|work| column(format!("{place}_{}_ms", work.word())));
            whole.into_iter().chain(parts).collect::<Vec<_>>()
        };
        let mut columns = parts("cold_before", &self.before);
        columns.extend(parts("cold_first", &self.first));
        columns
    }

    fn cells(&self, cold: Option<&ColdStart>) -> Vec<Cell> {
        let shift = |nanos: Option<i64>| Cell::from(nanos.map(Cell::Shift));
        let mut cells = Vec::new();
        if !self.before.is_empty() {
            cells.push(Cell::from(cold.map(|start| Cell::Nanos(start.before_ns))));
        }
        let before = |work: &ColdWork| shift(cold.and_then(|start| start.before_part(*work)).map(|part| part.nanos));
        cells.extend(self.before.iter().map(before));
        if !self.first.is_empty() {
            cells.push(shift(cold.and_then(ColdStart::beyond_ns)));
        }
        let first = |work: &ColdWork| shift(cold.and_then(|start| start.beyond_part(*work)).map(|part| part.nanos));
        cells.extend(self.first.iter().map(first));
        cells
    }
}

fn cells(row: &WarmUpRow, case: &WarmUpRows, paid: &Paid, axes: &Axes) -> Vec<Cell> {
    let takes = row.takes.as_ref();
    let cv = takes.and_then(|takes| takes.std.filter(|_| takes.mean > 0.0).map(|std| 100.0 * std / takes.mean));
    let shift = |off: Option<Distance>| Cell::from(off.map(|off| Cell::Shift(off.nanos.round() as i64)));
    let change = |off: Option<Distance>| Cell::from(off.map(|off| Cell::Change(off.share)));
    let count = |count: usize| Cell::Count(count as u64);
    let mut cells = vec![
        count(row.warmup_takes),
        nanos(takes.map(|takes| takes.mean)),
        nanos(takes.and_then(|takes| takes.std)),
        Cell::from(cv.map(Cell::Number)),
        shift(row.from_reference),
        change(row.from_reference),
        shift(row.from_steady),
        change(row.from_steady),
        nanos(row.first_ns),
        nanos(case.steady_ns),
        Cell::from(takes.map(|takes| count(takes.n))),
        Cell::from(takes.map(|takes| count(takes.processes))),
    ];
    cells.extend(paid.cells(case.cold.as_ref()));
    cells.extend(axes.cells(&case.id));
    cells
}

/// Says where no steady state was found to hold rows against.
fn add_notes(table: &mut Table, answer: &WarmUpStudy, axes: &Axes) {
    let unsteady = answer.cases.iter().filter(|case| case.steady_ns.is_none() && case.troubles.is_empty());
    let ids: Vec<_> = unsteady.map(|case| &case.id).collect();
    if !ids.is_empty() {
        let who = troubles::capital(&axes.names(ids.into_iter()));
        table.note(format!(
            "{who}: no steady state was found over the takes of the largest warm-up. Next: more takes, with \
             `--measure-steps`."
        ));
    }
}

/// Doubts about takes are about those of the largest warm-up: early ones are meant to differ.
fn add_doubts(table: &mut Table, answer: &WarmUpStudy, doubts: &[SharedDoubt]) {
    let largest = answer.cases.iter().flat_map(|case| &case.rows).map(|row| row.warmup_takes).max().unwrap_or(0);
    for doubt in doubts {
        let mut note = doubt.note();
        if !doubt.doubt.is_of_run() {
            note.text = format!("with {largest} warm-up iterations: {}", note.text);
        }
        table.warn(note);
    }
}
