//! Model cases in the columns of the benchmark of CS336 assignment 2, then further columns.

use laptime_analyze::{CaseFigures, Cases, Figures, TroubleKind, with_pass};
use laptime_trace::run::{AxisValue, Case};

use super::axes::value;
use crate::{Cell, Column, Table, table::table};

/// Passes without a KV cache: those of CS336 assignment 2, and the training step.
const PASSES: [&str; 4] = ["forward", "backward", "forward_backward", "step"];

/// The requested steps; none if a stop rule decides.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestedSteps {
    /// Warm-up steps.
    pub warmup: Option<usize>,
    /// Measured steps.
    pub measure: Option<usize>,
}

/// Lays out the cases without a KV cache, one row per case. None if there are none. `parameters` returns the size of a
/// model that was not measured, and `asked` has the steps it would have run.
///
/// `std_time_ms` is the standard deviation of the sample.
pub fn course(answer: &Cases, parameters: &dyn Fn(&Case) -> Option<AxisValue>, asked: RequestedSteps) -> Option<Table> {
    let table = table!("course", answer.cases.iter().filter(|case| is_of_course(case)), case: &CaseFigures => {
        let measured = case.measured.as_ref();
        let wall = measured.map(|measured| &measured.wall);
        let text = |text: &str| if text.is_empty() { Cell::Empty } else { Cell::text(text) };
        let interval = wall.and_then(|wall| wall.interval);
        let metric =
            |name: &str| Cell::number(measured.and_then(|measured| measured.metric(name)).map(|figures| figures.median));
        let limits = measured.and_then(|measured| measured.limits.as_ref());
        let peak = measured.and_then(|measured| measured.peak_bytes).map(|bytes| bytes as f64 / f64::from(1 << 20));
    } [
        ("model_size") => axis(case, "model"),
        ("context_length") => axis(case, "seq_len"),
        ("batch_size") => axis(case, "batch_size"),
        ("warmup_steps") =>
            Cell::count(measured.map(|measured| measured.warmup_iterations).or(asked.warmup)),
        ("measure_steps") => Cell::count(wall.map(|wall| wall.all.n).or(asked.measure)),
        ("pass_type") => axis(case, "pass_type"),
        ("num_params") => match fact(case, "parameters") {
            Cell::Empty => Cell::from(parameters(&case.id.case).as_ref().map(value)),
            known => known,
        },
        ("mean_time_ms") => Cell::nanos(wall.map(|wall| wall.all.mean)),
        ("std_time_ms") => Cell::nanos(wall.and_then(|wall| wall.all.std)),
        ("cv_percent") => Cell::number(wall.and_then(cv_percent)),
        ("error") => text(error(case)),
        ("dtype") => axis(case, "dtype"),
        ("attention") => axis(case, "attention"),
        ("device") => text(&case.id.device),
        ("outcome") => text(case.outcome()),
        ("reason") => reason(case).map(Cell::text).into(),
        ("processes") => Cell::count(wall.map(|wall| wall.processes)),
        ("median_ms") => Cell::nanos(wall.map(|wall| wall.median)),
        ("low_ms") => Cell::nanos(interval.map(|interval| interval.low)),
        ("high_ms") => Cell::nanos(interval.map(|interval| interval.high)),
        ("tok_s") => metric("tok_s"),
        ("loss") => metric("loss"),
        ("mfu") => Cell::number(limits.and_then(|limits| limits.mfu)),
        ("peak_mib") => Cell::number(peak),
        ("activation_bytes") => fact(case, "activation_bytes"),
    ]);
    (!table.rows.is_empty()).then_some(table)
}

/// Lays out backward and forward passes of the same case, with the ratio of their means. None if there is no such pair.
pub fn course_separate(answer: &Cases) -> Option<Table> {
    let backward = answer.cases.iter().filter(|case| is_of_course(case) && case.pass() == "backward");
    let pairs = backward.filter_map(|case| Some((with_pass(&answer.cases, case, "forward")?, case)));
    let table = table!("separate", pairs, (forward, backward): (&CaseFigures, &CaseFigures) => {
        let wall = |case: &CaseFigures| case.measured.as_ref().map(|measured| measured.wall);
        let (before, after) = (wall(forward), wall(backward));
        let mean = |wall: Option<Figures>| wall.map(|wall| wall.all.mean);
        let ratio = mean(before).filter(|mean| *mean > 0.0).zip(mean(after)).map(|(before, after)| after / before);
        let error = [forward, backward].into_iter().map(error).find(|error| !error.is_empty());
    } [
        ("model_size") => axis(backward, "model"),
        ("context_length") => axis(backward, "seq_len"),
        ("batch_size") => axis(backward, "batch_size"),
        ("forward_mean_ms") => Cell::nanos(mean(before)),
        ("forward_std_ms") => Cell::nanos(before.and_then(|wall| wall.all.std)),
        ("backward_mean_ms") => Cell::nanos(mean(after)),
        ("backward_std_ms") => Cell::nanos(after.and_then(|wall| wall.all.std)),
        ("ratio") => Cell::number(ratio),
        ("error") => Cell::from(error.map(Cell::text)),
        ("dtype") => axis(backward, "dtype"),
        ("attention") => axis(backward, "attention"),
        ("device") => Cell::text(&backward.id.device),
    ]);
    (!table.rows.is_empty()).then_some(table)
}

/// The same in the five columns that CS336 assignment 2 prints.
pub fn course_summary(answer: &Cases) -> Option<Table> {
    let names = ["model size", "test", "mean (ms)", "std (ms)", "cv (%)"];
    let mut table = Table::new("course", names.map(|name| Column::new(name, name)));
    for case in answer.cases.iter().filter(|case| is_of_course(case)) {
        let wall = case.measured.as_ref().map(|measured| &measured.wall);
        let ms = |nanos: Option<f64>| Cell::from(nanos.map(|nanos| Cell::text(format!("{:.2}", nanos / 1e6))));
        let percent = wall.and_then(cv_percent).map(|percent| Cell::text(format!("{percent:.2}")));
        let mean = match error(case) {
            "" => ms(wall.map(|wall| wall.all.mean)),
            error => Cell::text(error),
        };
        let std = ms(wall.and_then(|wall| wall.all.std));
        table.push([axis(case, "model"), axis(case, "test"), mean, std, percent.into()]);
    }
    (!table.rows.is_empty()).then_some(table)
}

fn is_of_course(case: &CaseFigures) -> bool {
    case.id.case.get("model").is_some() && PASSES.contains(&case.pass().as_str())
}

fn axis(case: &CaseFigures, name: &str) -> Cell {
    case.id.case.get(name).map(value).into()
}

fn fact(case: &CaseFigures, name: &str) -> Cell {
    case.measured.as_ref().and_then(|measured| measured.fact(name)).map(value).into()
}

/// The word of CS336 assignment 2 for a case without figures.
fn error(case: &CaseFigures) -> &'static str {
    match (&case.measured, case.troubles.first().map(|trouble| &trouble.kind)) {
        (Some(_), _) | (None, None) => "",
        (None, Some(TroubleKind::OutOfMemory { .. })) => "OOM",
        (None, Some(TroubleKind::Skipped { .. } | TroubleKind::Failed { .. } | TroubleKind::NoIterations)) => {
            "runtime_error"
        }
    }
}

fn reason(case: &CaseFigures) -> Option<String> {
    match &case.troubles.first()?.kind {
        TroubleKind::Skipped { reason } => Some(reason.clone()),
        TroubleKind::Failed { errors, .. } => errors.first().cloned(),
        TroubleKind::OutOfMemory { .. } | TroubleKind::NoIterations => None,
    }
}

/// The standard deviation as a percentage of the mean.
pub(super) fn cv_percent(wall: &Figures) -> Option<f64> {
    wall.all.std.filter(|_| wall.all.mean > 0.0).map(|std| 100.0 * std / wall.all.mean)
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
    fn a_case_has_the_mean_and_sample_deviation_of_its_iterations() {
        let measured = Outcome::Measured(Measured {
            warmup_ns: vec![9_000_000; 5],
            wall_ns: vec![1_000_000, 3_000_000],
            facts: vec![Fact::new("parameters", 128_625_408)],
            ..Measured::default()
        });
        let table = course(
            &laptime_analyze::cases(&[result("step", measured)], None),
            &|_| Some(7.into()),
            RequestedSteps::default(),
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
    fn an_unmeasured_case_has_the_error_word_and_no_figures() {
        let lack = Outcome::OutOfMemory { needed_bytes: None, available_bytes: None };
        let failed = Outcome::Failed { errors: vec!["it broke".to_owned()], wall_ns: Vec::new() };
        let results = [result("forward", lack), result("backward", failed)];
        let asked = RequestedSteps { warmup: Some(5), measure: Some(10) };
        let table = course(&laptime_analyze::cases(&results, None), &|_| Some(7.into()), asked).unwrap();
        for row in 0..2 {
            let steps = (cell(&table, row, "warmup_steps"), cell(&table, row, "measure_steps"));
            assert_eq!(steps, (Cell::Count(5), Cell::Count(10)), "the requested steps are known");
        }
        assert_eq!(
            (cell(&table, 0, "error"), cell(&table, 1, "error")),
            (Cell::text("OOM"), Cell::text("runtime_error"))
        );
        assert_eq!(cell(&table, 1, "reason"), Cell::text("it broke"));
        assert!(cell(&table, 0, "mean_time_ms").is_empty());
        assert_eq!(cell(&table, 0, "num_params"), Cell::Whole(7), "the size of a model is known without an iteration");
    }

    #[test]
    fn backward_is_paired_with_the_forward_of_the_same_case() {
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
    fn decode_cases_are_not_in_the_cs336_table() {
        let results = [result("decode", Outcome::Measured(Measured { wall_ns: vec![1], ..Measured::default() }))];
        let answer = laptime_analyze::cases(&results, None);
        assert_eq!((course(&answer, &|_| None, RequestedSteps::default()), course_summary(&answer)), (None, None));
        assert_eq!(course_separate(&answer), None);
    }
}
