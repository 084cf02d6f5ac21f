//! What the benchmark of CS336 assignment 2 prints, in its words.

use std::io::Write;

use laptime_analyze::{CaseFigures, Cases, MeasuredFigures};
use laptime_report::tables::with_pass;
use laptime_trace::run::AxisValue;

/// Prints mean, standard deviation and coefficient of variation of a single case; for several cases the ratio of backward
/// to forward, where both were measured.
pub fn write(answer: &Cases, out: &mut dyn Write) -> anyhow::Result<()> {
    let lines = match answer.cases.as_slice() {
        [case] => of_one(case),
        several => several.iter().filter_map(|case| ratio(answer, case)).collect(),
    };
    if !lines.is_empty() {
        writeln!(out)?;
    }
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(out.flush()?)
}

fn of_one(case: &CaseFigures) -> Vec<String> {
    let of_model = case.measured.as_ref().filter(|measured| measured.fact("parameters").is_some());
    of_model.map(|measured| lines(case, measured)).unwrap_or_default()
}

/// The ratio of backward to forward of the same case, from their medians.
fn ratio(answer: &Cases, case: &CaseFigures) -> Option<String> {
    let axis = |name: &str| case.id.case.get(name).map_or_else(String::new, AxisValue::to_string);
    if axis("pass_type") != "backward" {
        return None;
    }
    let forward = with_pass(answer, case, "forward")?.measured.as_ref()?.wall.median;
    let backward = case.measured.as_ref()?.wall.median;
    let (model, tokens, batch) = (axis("model"), axis("seq_len"), axis("batch_size"));
    let ratio = Some(backward / forward).filter(|ratio| ratio.is_finite())?;
    Some(format!("Backward over forward: {ratio:.2} ({model}, context length {tokens}, batch size {batch})"))
}

fn lines(case: &CaseFigures, measured: &MeasuredFigures) -> Vec<String> {
    let fact = |name: &str| measured.fact(name).map_or_else(String::new, AxisValue::to_string);
    let axis = |name: &str| case.id.case.get(name).map_or_else(String::new, AxisValue::to_string);
    let mut lines = vec![
        format!(
            "Model: {} (d_model {}, d_ff {}, num_layers {}, num_heads {}, vocab_size {})",
            axis("model"),
            fact("hidden"),
            fact("ffn"),
            fact("layers"),
            fact("heads"),
            fact("vocab"),
        ),
        format!(
            "Batch size: {}, context length: {}, pass type: {}, dtype: {}, attention: {}{}",
            axis("batch_size"),
            axis("seq_len"),
            axis("pass_type"),
            axis("dtype"),
            axis("attention"),
            if axis("reduced") == "true" { ", reduced" } else { "" },
        ),
        format!("Parameters: {}", thousands(&fact("parameters"))),
    ];
    lines.extend(times(measured.wall.mean, measured.wall.std, measured.wall.n));
    lines
}

/// The times. CS336 prints the standard deviation of the population; ours is that of the sample, so both are printed.
fn times(mean_ns: f64, std_ns: Option<f64>, iterations: usize) -> Vec<String> {
    let both = |nanos: f64| format!("{:.2} ms ({:.4} s)", nanos / 1e6, nanos / 1e9);
    let mut lines = vec![format!("Mean time: {}", both(mean_ns))];
    if let Some(std) = std_ns {
        let population = std * ((iterations.saturating_sub(1)) as f64 / iterations.max(1) as f64).sqrt();
        let both_kinds = format!("sample (n - 1); population {:.2} ms", population / 1e6);
        lines.push(format!("Std dev: {}, {both_kinds}", both(std)));
        lines.push(format!("Coefficient of variation: {:.2}%", 100.0 * std / mean_ns));
    }
    lines
}

fn thousands(digits: &str) -> String {
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_in_the_words_of_the_course() {
        let lines = times(308_120_000.0, Some(17_900_000.0), 10);
        assert_eq!(
            lines,
            [
                "Mean time: 308.12 ms (0.3081 s)",
                "Std dev: 17.90 ms (0.0179 s), sample (n - 1); population 16.98 ms",
                "Coefficient of variation: 5.81%",
            ]
        );
        assert_eq!(times(1e6, None, 1), ["Mean time: 1.00 ms (0.0010 s)"], "one iteration has no spread");
    }

    #[test]
    fn parameters_are_printed_in_groups_of_three() {
        assert_eq!(["7", "128625408", "1000"].map(thousands), ["7", "128,625,408", "1,000"]);
    }
}
