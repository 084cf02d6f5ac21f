//! The cases of models in the columns of a course's benchmark, ours behind them.

use laptime_analyze::{CaseFigures, Cases, Figures, TroubleKind};
use laptime_trace::run::{AxisValue, Case};

use super::{axes::value, cases::nanos};
use crate::{Cell, Column, Table};

/// What runs without a cache: the passes that the course knows, and the step beyond them.
const PASSES: [&str; 4] = ["forward", "backward", "forward_backward", "step"];

/// The columns of the course, in its order, and ours.
const COLUMNS: [&str; 25] = [
    "model_size",
    "context_length",
    "batch_size",
    "warmup_steps",
    "measure_steps",
    "pass_type",
    "num_params",
    "mean_time_ms",
    "std_time_ms",
    "cv_percent",
    "error",
    "dtype",
    "attention",
    "device",
    "outcome",
    "reason",
    "processes",
    "median_ms",
    "low_ms",
    "high_ms",
    "tok_s",
    "loss",
    "mfu",
    "peak_mib",
    "activation_bytes",
];

/// Steps that were asked for; none where a rule decides how many there are.
#[derive(Debug, Clone, Copy, Default)]
pub struct AskedSteps {
    /// Before those that count.
    pub warmup: Option<usize>,
    /// That count.
    pub measure: Option<usize>,
}

/// Lays out the cases that ran without a cache: a row a case. None if there are none. `parameters` knows the size of a
/// model that was not measured, and `asked` how many steps it would have had.
///
/// `std_time_ms` is the standard deviation of the sample.
pub fn course(answer: &Cases, parameters: &dyn Fn(&Case) -> Option<AxisValue>, asked: AskedSteps) -> Option<Table> {
    let mut table = Table::new("course", COLUMNS.map(|name| Column::new(name, name)));
    for case in answer.cases.iter().filter(|case| is_of_course(case)) {
        table.push(row(case, parameters, asked));
    }
    (!table.rows.is_empty()).then_some(table)
}

/// The columns of a course's table of separate passes, and ours.
const SEPARATE: [&str; 12] = [
    "model_size",
    "context_length",
    "batch_size",
    "forward_mean_ms",
    "forward_std_ms",
    "backward_mean_ms",
    "backward_std_ms",
    "ratio",
    "error",
    "dtype",
    "attention",
    "device",
];

/// Lays out backward beside the forward of the same case, with the ratio of their means. None if there is no such pair.
pub fn course_separate(answer: &Cases) -> Option<Table> {
    let mut table = Table::new("separate", SEPARATE.map(|name| Column::new(name, name)));
    let backward = answer.cases.iter().filter(|case| is_of_course(case) && pass(case) == "backward");
    for (backward, forward) in backward.filter_map(|case| Some((case, with_pass(answer, case, "forward")?))) {
        table.push(separate_row(forward, backward));
    }
    (!table.rows.is_empty()).then_some(table)
}

fn separate_row(forward: &CaseFigures, backward: &CaseFigures) -> Vec<Cell> {
    let wall = |case: &CaseFigures| case.measured.as_ref().map(|measured| measured.wall);
    let (before, after) = (wall(forward), wall(backward));
    let mean = |wall: Option<Figures>| wall.map(|wall| wall.mean);
    let ratio = mean(before).filter(|mean| *mean > 0.0).zip(mean(after)).map(|(before, after)| after / before);
    let error = [forward, backward].into_iter().map(error).find(|error| !error.is_empty());
    vec![
        axis(backward, "model"),
        axis(backward, "seq_len"),
        axis(backward, "batch_size"),
        nanos(mean(before)),
        nanos(before.and_then(|wall| wall.std)),
        nanos(mean(after)),
        nanos(after.and_then(|wall| wall.std)),
        Cell::from(ratio.map(Cell::Number)),
        Cell::from(error.map(Cell::text)),
        axis(backward, "dtype"),
        axis(backward, "attention"),
        Cell::text(&backward.id.device),
    ]
}

/// The case that differs in its pass alone.
pub fn with_pass<'a>(answer: &'a Cases, case: &CaseFigures, wanted: &str) -> Option<&'a CaseFigures> {
    let of_pass = ["test", "pass_type"];
    let is_same = |other: &&CaseFigures| {
        let values = other.id.case.values().zip(case.id.case.values());
        let is_equal = values.into_iter().all(|(other, own)| of_pass.contains(&own.0) || other == own);
        is_equal && other.id.device == case.id.device && pass(other) == wanted
    };
    answer.cases.iter().find(is_same)
}

fn pass(case: &CaseFigures) -> String {
    case.id.case.get("pass_type").map(ToString::to_string).unwrap_or_default()
}

/// The same in five columns, as the course shows people.
pub fn course_summary(answer: &Cases) -> Option<Table> {
    let names = ["model size", "test", "mean (ms)", "std (ms)", "cv (%)"];
    let mut table = Table::new("course", names.map(|name| Column::new(name, name)));
    for case in answer.cases.iter().filter(|case| is_of_course(case)) {
        let wall = case.measured.as_ref().map(|measured| &measured.wall);
        let ms = |nanos: Option<f64>| Cell::from(nanos.map(|nanos| Cell::text(format!("{:.2}", nanos / 1e6))));
        let percent = wall.and_then(cv_percent).map(|percent| Cell::text(format!("{percent:.2}")));
        let mean = match error(case) {
            "" => ms(wall.map(|wall| wall.mean)),
            error => Cell::text(error),
        };
        table.push([axis(case, "model"), axis(case, "test"), mean, ms(wall.and_then(|wall| wall.std)), percent.into()]);
    }
    (!table.rows.is_empty()).then_some(table)
}

fn is_of_course(case: &CaseFigures) -> bool {
    case.id.case.get("model").is_some() && PASSES.contains(&pass(case).as_str())
}

fn axis(case: &CaseFigures, name: &str) -> Cell {
    case.id.case.get(name).map(value).into()
}

fn fact(case: &CaseFigures, name: &str) -> Cell {
    case.measured.as_ref().and_then(|measured| measured.fact(name)).map(value).into()
}

/// The word of the course for a case that gave no figures.
fn error(case: &CaseFigures) -> &'static str {
    match (&case.measured, case.troubles.first().map(|trouble| &trouble.kind)) {
        (Some(_), _) | (None, None) => "",
        (None, Some(TroubleKind::OutOfMemory { .. })) => "OOM",
        (None, Some(TroubleKind::Skipped { .. } | TroubleKind::Failed { .. } | TroubleKind::NoTakes)) => {
            "runtime_error"
        }
    }
}

fn reason(case: &CaseFigures) -> Option<String> {
    match &case.troubles.first()?.kind {
        TroubleKind::Skipped { reason } => Some(reason.clone()),
        TroubleKind::Failed { errors, .. } => errors.first().cloned(),
        TroubleKind::OutOfMemory { .. } | TroubleKind::NoTakes => None,
    }
}

fn cv_percent(wall: &Figures) -> Option<f64> {
    wall.std.filter(|_| wall.mean > 0.0).map(|std| 100.0 * std / wall.mean)
}

fn row(case: &CaseFigures, parameters: &dyn Fn(&Case) -> Option<AxisValue>, asked: AskedSteps) -> Vec<Cell> {
    let measured = case.measured.as_ref();
    let wall = measured.map(|measured| &measured.wall);
    let count = |count: Option<usize>| Cell::from(count.map(|count| Cell::Count(count as u64)));
    let number = |number: Option<f64>| Cell::from(number.map(Cell::Number));
    let text = |text: &str| if text.is_empty() { Cell::Empty } else { Cell::text(text) };
    let interval = wall.and_then(|wall| wall.interval);
    let metric = |name: &str| number(measured.and_then(|measured| measured.metric(name)).map(|figures| figures.median));
    let limits = measured.and_then(|measured| measured.limits.as_ref());
    let peak = measured.and_then(|measured| measured.peak_bytes).map(|bytes| bytes as f64 / f64::from(1 << 20));
    vec![
        axis(case, "model"),
        axis(case, "seq_len"),
        axis(case, "batch_size"),
        count(measured.map(|measured| measured.warmup_takes).or(asked.warmup)),
        count(wall.map(|wall| wall.n).or(asked.measure)),
        axis(case, "pass_type"),
        match fact(case, "parameters") {
            Cell::Empty => Cell::from(parameters(&case.id.case).as_ref().map(value)),
            known => known,
        },
        nanos(wall.map(|wall| wall.mean)),
        nanos(wall.and_then(|wall| wall.std)),
        number(wall.and_then(cv_percent)),
        text(error(case)),
        axis(case, "dtype"),
        axis(case, "attention"),
        text(&case.id.device),
        text(case.outcome()),
        reason(case).map(Cell::text).into(),
        count(wall.map(|wall| wall.processes)),
        nanos(wall.map(|wall| wall.median)),
        nanos(interval.map(|interval| interval.low)),
        nanos(interval.map(|interval| interval.high)),
        metric("tok_s"),
        metric("loss"),
        number(limits.and_then(|limits| limits.mfu)),
        number(peak),
        fact(case, "activation_bytes"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::run::{CaseResult, Fact, Measured, Outcome};

    fn result(pass: &str, outcome: Outcome) -> CaseResult {
        let values = [("model", "small".into()), ("pass_type", pass.into()), ("seq_len", 512.into())];
        let case = Case::new(values.map(|(axis, value)| (axis.to_owned(), value)).to_vec());
        CaseResult::new("model", "cpu", case, 0, "", outcome)
    }

    fn cell(table: &Table, row: usize, key: &str) -> Cell {
        let at = table.columns.iter().position(|column| column.key == key).unwrap();
        table.rows[row][at].clone()
    }

    #[test]
    fn a_case_has_the_mean_and_the_sample_deviation_of_its_takes() {
        let measured = Outcome::Measured(Measured {
            warmup_ns: vec![9_000_000; 5],
            wall_ns: vec![1_000_000, 3_000_000],
            facts: vec![Fact::new("parameters", 128_625_408)],
            ..Measured::default()
        });
        let table = course(
            &laptime_analyze::cases(&[result("step", measured)], None),
            &|_| Some(7.into()),
            AskedSteps::default(),
        )
        .unwrap();
        assert_eq!(cell(&table, 0, "mean_time_ms"), Cell::Nanos(2_000_000));
        assert_eq!(cell(&table, 0, "std_time_ms"), Cell::Nanos(1_414_214));
        assert_eq!(
            (cell(&table, 0, "warmup_steps"), cell(&table, 0, "measure_steps")),
            (Cell::Count(5), Cell::Count(2))
        );
        assert_eq!(cell(&table, 0, "num_params"), Cell::Whole(128_625_408));
        assert!(cell(&table, 0, "error").is_empty());
    }

    #[test]
    fn what_was_not_measured_has_the_course_s_word_and_no_figures() {
        let lack = Outcome::OutOfMemory { needed_bytes: None, available_bytes: None };
        let failed = Outcome::Failed { errors: vec!["it broke".to_owned()], wall_ns: Vec::new() };
        let results = [result("forward", lack), result("backward", failed)];
        let asked = AskedSteps { warmup: Some(5), measure: Some(10) };
        let table = course(&laptime_analyze::cases(&results, None), &|_| Some(7.into()), asked).unwrap();
        for row in 0..2 {
            let steps = (cell(&table, row, "warmup_steps"), cell(&table, row, "measure_steps"));
            assert_eq!(steps, (Cell::Count(5), Cell::Count(10)), "what was asked for is known");
        }
        assert_eq!(
            (cell(&table, 0, "error"), cell(&table, 1, "error")),
            (Cell::text("OOM"), Cell::text("runtime_error"))
        );
        assert_eq!(cell(&table, 1, "reason"), Cell::text("it broke"));
        assert!(cell(&table, 0, "mean_time_ms").is_empty());
        assert_eq!(cell(&table, 0, "num_params"), Cell::Whole(7), "the size of a model is known without a take");
    }

    #[test]
    fn backward_stands_beside_the_forward_of_the_same_case() {
        let took = |nanos: u64| Outcome::Measured(Measured { wall_ns: vec![nanos; 2], ..Measured::default() });
        let lack = Outcome::OutOfMemory { needed_bytes: None, available_bytes: None };
        let other = |pass: &str, outcome: Outcome| {
            let result = result(pass, outcome);
            CaseResult { case: result.case.with("seq_len", 1024), ..result }
        };
        let results = [
            result("forward", took(2_000_000)),
            result("backward", took(5_000_000)),
            other("backward", lack),
            other("forward", took(1)),
        ];
        let table = course_separate(&laptime_analyze::cases(&results, None)).unwrap();
        assert_eq!(cell(&table, 0, "forward_mean_ms"), Cell::Nanos(2_000_000));
        assert_eq!((cell(&table, 0, "ratio"), cell(&table, 0, "error")), (Cell::Number(2.5), Cell::Empty));
        assert_eq!((cell(&table, 1, "ratio"), cell(&table, 1, "error")), (Cell::Empty, Cell::text("OOM")));
        assert_eq!(table.rows.len(), 2);
    }

    #[test]
    fn what_runs_behind_a_cache_is_no_row_of_the_course() {
        let results = [result("decode", Outcome::Measured(Measured { wall_ns: vec![1], ..Measured::default() }))];
        let answer = laptime_analyze::cases(&results, None);
        assert_eq!((course(&answer, &|_| None, AskedSteps::default()), course_summary(&answer)), (None, None));
        assert_eq!(course_separate(&answer), None);
    }
}
