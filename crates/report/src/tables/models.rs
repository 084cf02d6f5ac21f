//! Model cases in the columns of llama-bench, for Markdown.

use laptime_analyze::{CaseFigures, Cases, SharedDoubt};
use laptime_trace::run::AxisValue;

use super::{axes::value, cases::cases};
use crate::{Cell, Column, Table, layout::single};

/// The axis with the name of the test.
const TEST: &str = "test";

/// The metric for the speed.
const RATE: &str = "tok_s";

/// Axes that have a column only if their values differ.
const VARYING: [&str; 7] = ["batch_size", "dtype", "attention", "pattern", "graph", "seed", "reduced"];

/// Lays out model cases: name, size, parameters, device, threads, test, tokens per second. None if there are cases of
/// other workloads.
pub fn models(answer: &Cases, doubts: &[SharedDoubt]) -> Option<Table> {
    let is_model = |case: &CaseFigures| case.id.case.get(TEST).is_some() && case.id.case.get("model").is_some();
    if answer.cases.is_empty() || !answer.cases.iter().all(is_model) {
        return None;
    }
    let varying: Vec<&str> = VARYING.into_iter().filter(|axis| varies(answer, axis)).collect();
    let names =
        ["model", "size", "params", "backend", "threads"].into_iter().chain(varying.clone()).chain([TEST, "t/s"]);
    let columns = names.map(|name| Column::new(name, name)).collect();
    let rows = answer.cases.iter().map(|case| row(case, &varying)).collect();
    let mut table = Table { name: "models", columns, rows, ..cases(answer, doubts) };
    table.legend.insert(0, "t/s is the mean of the iterations ± their standard deviation.".to_owned());
    Some(table)
}

fn varies(answer: &Cases, axis: &str) -> bool {
    let mut values = answer.cases.iter().map(|case| case.id.case.get(axis));
    let first = values.next();
    values.any(|value| Some(value) != first)
}

fn row(case: &CaseFigures, varying: &[&str]) -> Vec<Cell> {
    let of_axis = |axis: &str| Cell::from(case.id.case.get(axis).map(value));
    let fact = |name: &str| match case.measured.as_ref()?.fact(name)? {
        AxisValue::Int(value) => u64::try_from(*value).ok(),
        _ => None,
    };
    let size = Cell::from(fact("weight_bytes").map(|bytes| Cell::text(single(&Cell::Bytes(bytes)))));
    let parameters = Cell::from(fact("parameters").map(|count| Cell::text(millions(count))));
    let backend = Cell::text(case.id.device.to_uppercase());
    let test = Cell::from(case.id.case.get(TEST).map(|test| Cell::text(test.to_string().replace('@', " @ "))));
    let mut cells = vec![of_axis("model"), size, parameters, backend, of_axis("threads")];
    cells.extend(varying.iter().map(|axis| of_axis(axis)));
    cells.extend([test, Cell::text(rate(case))]);
    cells
}

/// A parameter count for people: `596.05 M`, `4.02 B`.
fn millions(count: u64) -> String {
    let count = count as f64;
    if count >= 1e9 { format!("{:.2} B", count / 1e9) } else { format!("{:.2} M", count / 1e6) }
}

/// Tokens per second with their standard deviation, or the outcome of the case.
fn rate(case: &CaseFigures) -> String {
    let Some(figures) = case.measured.as_ref().and_then(|measured| measured.metric(RATE)) else {
        return case.outcome().replace('_', " ");
    };
    match figures.all.std {
        Some(std) => format!("{:.2} ± {std:.2}", figures.all.mean),
        None => format!("{:.2}", figures.all.mean),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::run::{Better, Case, CaseResult, Fact, Measured, Metric, Outcome};

    fn result(test: &str, outcome: Outcome) -> CaseResult {
        let values = [("model", "Qwen3-0.6B".into()), ("test", test.into()), ("threads", 2.into())];
        let case = Case::new(values.map(|(axis, value)| (axis.to_owned(), value)).to_vec());
        CaseResult::new("model", "cuda:0", case, 0, "", outcome)
    }

    fn measured(rates: &[f64]) -> Outcome {
        let values = rates.iter().copied().map(Some).collect();
        Outcome::Measured(Measured {
            wall_ns: vec![1; rates.len()],
            metrics: vec![Metric { name: "tok_s".to_owned(), better: Better::Higher, values }],
            facts: vec![Fact::new("parameters", 596_049_920), Fact::new("weight_bytes", 1_192_099_840)],
            ..Measured::default()
        })
    }

    #[test]
    fn a_model_row_has_size_parameters_and_tokens_per_second() {
        let lack = Outcome::OutOfMemory { needed_bytes: None, available_bytes: None };
        let results = [result("pp512", measured(&[1000.0, 1002.0])), result("tg128@d4096", lack)];
        let table = models(&laptime_analyze::cases(&results, None), &[]).unwrap();
        let keys: Vec<&str> = table.columns.iter().map(|column| &*column.key).collect();
        assert_eq!(keys, ["model", "size", "params", "backend", "threads", "test", "t/s"]);
        let text = Cell::text;
        let first = ["Qwen3-0.6B", "1,137 MiB", "596.05 M", "CUDA:0"].map(text);
        assert_eq!(table.rows[0][..4], first);
        assert_eq!(table.rows[0][5..], [text("pp512"), text("1001.00 ± 1.41")]);
        assert_eq!(table.rows[1][5..], [text("tg128 @ d4096"), text("out of memory")]);
    }

    #[test]
    fn other_workloads_have_no_model_table() {
        let case = Case::new(vec![("size".to_owned(), 8.into())]);
        let results = [CaseResult::new("matmul", "cpu", case, 0, "", measured(&[1.0]))];
        assert_eq!(models(&laptime_analyze::cases(&results, None), &[]), None);
    }
}
