//! `laptime bench … --fit AXIS`: finds the largest value of an axis that fits into memory.

use std::io::Write;

use laptime_bench::{Case, CaseResult, Device, Outcome, ValueKind, Workload};
use laptime_report::Format;

use crate::output::{gib, say, wrapped_for_screen};
use crate::request::{Order, Request};
use crate::session::{Finished, Session};
use crate::{
    app::App,
    cli::Status,
    commands::bench,
    failure::{refusal, refuse},
    near::did_you_mean,
};

/// Maximum attempts for a case that does not fit although it was predicted to.
const MOST_TRIES: usize = 12;

/// The search ends when the largest fitting and the smallest other value differ by less than 1/64.
const NEAR: i64 = 64;

/// Short names that `--fit` accepts for axes.
const WORDS: [(&str, &str); 2] = [("batch", "batch_size"), ("context", "seq_len")];

/// The short names for axes of a workload.
pub fn axes(workload: &dyn Workload) -> Vec<&'static str> {
    let has = |axis: &str| workload.axes().iter().any(|known| known.name == axis);
    WORDS.into_iter().filter(|(_, axis)| has(axis)).map(|(word, _)| word).collect()
}

pub fn run(
    app: &App,
    request: &Request,
    mut order: Order<'_>,
    word: &str,
    out: &mut dyn Write,
) -> anyhow::Result<Status> {
    let axis = named(order.workload, word)?;
    // The kernel may kill an attempt, so each runs in its own process.
    order.settings.isolate = true;
    let session = Session::begin(app, &order, order.workload.name(), request.place.out.as_deref())?;
    let device = app.device(&session.run.device)?;
    let mut finished = Vec::new();
    let mut outcomes = Vec::new();
    for base in without_axis(session.left(), &axis.0) {
        let search =
            Search { app, session: &session, request, workload: order.workload, device: &*device, axis: &axis };
        let (result, sentence) = search.run(&base, &mut finished)?;
        outcomes.push((result, sentence));
    }
    let results = outcomes.iter().filter_map(|(result, _)| result.clone()).collect();
    let Session { folder, run, .. } = session;
    let expected = outcomes.len();
    let whole = Finished { folder, run, results, expected, was_interrupted: app.interrupt.is_requested() };
    bench::show(&whole, request.place.format.format(), out)?;
    for (_, sentence) in &outcomes {
        print(sentence, request.place.format.format(), out)?;
    }
    bench::end(&whole, &[])
}

fn print(sentence: &str, format: Format, out: &mut dyn Write) -> anyhow::Result<()> {
    match format {
        Format::Text | Format::Md => writeln!(out, "\n{}", wrapped_for_screen(sentence))?,
        _ => say(sentence),
    }
    Ok(())
}

/// The axis with this name or short name, and its largest value.
fn named(workload: &dyn Workload, word: &str) -> anyhow::Result<(String, i64)> {
    let axis = WORDS.iter().find(|(known, _)| *known == word).map_or(word, |(_, axis)| axis);
    let axis = axis.replace('-', "_");
    let found = workload.axes().into_iter().find(|known| known.name == axis);
    match found.map(|axis| axis.kind) {
        Some(ValueKind::Int { most, .. }) => Ok((axis, most)),
        _ => {
            let words = axes(workload);
            let near = did_you_mean(word, words.iter().copied());
            let known =
                if words.is_empty() { "it has none".to_owned() } else { format!("it has {}", words.join(", ")) };
            refuse(format!("workload `{}` has no axis `{word}` to fit", workload.name()), near + &known)
        }
    }
}

/// One case per combination of the other axes.
fn without_axis(cases: Vec<Case>, axis: &str) -> Vec<Case> {
    let mut found: Vec<(Case, String)> = Vec::new();
    for case in cases {
        // The name of a test contains the length.
        let rest = case.with(axis, 1).with("test", "").to_string();
        if !found.iter().any(|(_, known)| *known == rest) {
            found.push((case, rest));
        }
    }
    found.into_iter().map(|(case, _)| case).collect()
}

struct Search<'a> {
    app: &'a App,
    session: &'a Session,
    request: &'a Request,
    workload: &'a dyn Workload,
    device: &'a dyn Device,
    axis: &'a (String, i64),
}

impl Search<'_> {
    /// Bisects over predictions, then measures; returns the result and a sentence about it.
    fn run(&self, base: &Case, before: &mut Vec<CaseResult>) -> anyhow::Result<(Option<CaseResult>, String)> {
        let available = self.device.available_bytes();
        let mut fits = |value: i64| {
            let needed = self.needed(base, value)?;
            Ok(needed.is_some_and(|needed| available.is_none_or(|available| needed <= available)))
        };
        match largest(self.axis.1, &mut fits)? {
            Some(predicted) => self.measure_below(base, predicted, available, before),
            None => Ok((None, self.nothing_fits(base, available)?)),
        }
    }

    /// Measures the largest value predicted to fit; bisects below it if it does not.
    fn measure_below(
        &self,
        base: &Case,
        predicted: i64,
        available: Option<u64>,
        before: &mut Vec<CaseResult>,
    ) -> anyhow::Result<(Option<CaseResult>, String)> {
        let (mut least, mut beyond, mut value) = (0, predicted.saturating_add(1), predicted);
        let mut found = None;
        for _ in 0..MOST_TRIES {
            let result = self.attempt(self.workload.with(base, &self.axis.0, value), before)?;
            match fitted(&result.outcome) {
                Some(true) => (least, found) = (value, Some(result)),
                Some(false) => beyond = value,
                None => {
                    let sentence =
                        format!("`{}` {value} was not measured, so larger values were not tried.", self.axis.0);
                    return Ok((Some(result), sentence));
                }
            }
            value = least + (beyond - least) / 2;
            let is_near = least > 0 && beyond - least <= (least / NEAR).max(1);
            if is_near || value == least || self.app.interrupt.is_requested() {
                break;
            }
        }
        Ok((found, self.sentence(base, least, beyond, available)?))
    }

    fn needed(&self, base: &Case, value: i64) -> anyhow::Result<Option<u64>> {
        let case = self.workload.with(base, &self.axis.0, value);
        Ok(self.workload.parse(&case, self.device)?.predicted_bytes())
    }

    fn attempt(&self, case: Case, before: &mut Vec<CaseResult>) -> anyhow::Result<CaseResult> {
        let session = self.session.with_case(case.clone(), before.clone());
        let finished = session.sweep(self.app, self.request.run.quiet)?;
        *before = finished.results;
        let of_case = before.iter().rev().find(|result| result.case == case).cloned();
        of_case.ok_or_else(|| refusal(format!("interrupted before {case} was tried"), "run it again"))
    }

    fn sentence(&self, base: &Case, least: i64, most: i64, available: Option<u64>) -> anyhow::Result<String> {
        let axis = &self.axis.0;
        let needs = match (self.needed(base, most)?, available) {
            (Some(needed), Some(available)) if needed <= available => {
                format!("{most} did not fit, although it was predicted to need {} of {}", gib(needed), gib(available))
            }
            (Some(needed), Some(available)) => {
                format!("{most} needs {}, and {} is available", gib(needed), gib(available))
            }
            (Some(needed), None) => format!("{most} needs {}", gib(needed)),
            (None, _) => format!("{most} exceeds the limit of the model"),
        };
        Ok(if least == 0 {
            format!("`{axis}` {most} did not fit, although it was predicted to fit, and no smaller value fits.")
        } else {
            format!("The largest `{axis}` that fits is {least}: {needs}.")
        })
    }

    fn nothing_fits(&self, base: &Case, available: Option<u64>) -> anyhow::Result<String> {
        let needed = self.needed(base, 1)?;
        let axis = &self.axis.0;
        Ok(match needed {
            Some(needed) => {
                let available = available.map_or_else(|| "less".to_owned(), gib);
                format!("Not even `{axis}` 1 fits: it needs {}, and {available} is available.", gib(needed))
            }
            None => format!("Not even `{axis}` 1 fits: it exceeds the limit of the model."),
        })
    }
}

/// Whether a case fitted; none if it failed for a reason unrelated to memory.
fn fitted(outcome: &Outcome) -> Option<bool> {
    match outcome {
        Outcome::Measured(_) => Some(true),
        Outcome::OutOfMemory { .. } => Some(false),
        // Out of memory, the kernel kills the process or it aborts.
        Outcome::Failed { errors, .. } if errors.iter().any(|error| is_out_of_memory(error)) => Some(false),
        Outcome::Failed { .. } | Outcome::Skipped { .. } => None,
    }
}

fn is_out_of_memory(error: &str) -> bool {
    error.contains("(signal 9,") || error.contains("(signal 6,")
}

/// The largest value up to `most` that fits, assuming that all smaller values fit too.
fn largest(most: i64, fits: &mut dyn FnMut(i64) -> anyhow::Result<bool>) -> anyhow::Result<Option<i64>> {
    if !fits(1)? {
        return Ok(None);
    }
    let (mut least, mut beyond) = (1, 2);
    while beyond <= most && fits(beyond)? {
        (least, beyond) = (beyond, beyond.saturating_mul(2));
    }
    beyond = beyond.min(most.saturating_add(1));
    while beyond - least > 1 {
        let middle = least + (beyond - least) / 2;
        if fits(middle)? { least = middle } else { beyond = middle }
    }
    Ok(Some(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_that_fits_is_found() {
        for edge in [1, 2, 3, 7, 8, 9, 100, 4095, 4096] {
            let found = largest(4096, &mut |value| Ok(value <= edge)).unwrap();
            assert_eq!(found, Some(edge));
        }
        assert_eq!(largest(10, &mut |_| Ok(true)).unwrap(), Some(10));
        assert_eq!(largest(1, &mut |_| Ok(true)).unwrap(), Some(1));
        assert_eq!(largest(10, &mut |_| Ok(false)).unwrap(), None);
    }

    #[test]
    fn a_killed_process_did_not_fit_and_an_error_is_inconclusive() {
        let failed = |error: &str| Outcome::Failed { errors: vec![error.to_owned()], wall_ns: Vec::new() };
        assert_eq!(fitted(&failed("the process was killed (signal 9, SIGKILL): by the kernel")), Some(false));
        assert_eq!(fitted(&failed("tensor `a` is missing")), None);
        assert_eq!(fitted(&Outcome::OutOfMemory { needed_bytes: None, available_bytes: None }), Some(false));
        assert_eq!(fitted(&Outcome::Skipped { reason: "no".to_owned() }), None);
    }

    #[test]
    fn cases_that_differ_only_in_the_axis_are_merged() {
        let case = |model: &str, batch: i64, test: &str| {
            let values = [("model", model.into()), ("test", test.into()), ("batch_size", batch.into())];
            Case::new(values.map(|(axis, value)| (axis.to_owned(), value)).to_vec())
        };
        let cases = vec![case("a", 1, "pp8"), case("a", 2, "pp8"), case("b", 1, "pp8")];
        assert_eq!(without_axis(cases, "batch_size"), [case("a", 1, "pp8"), case("b", 1, "pp8")]);
    }
}
