//! Helpers of several workloads for parsing and refusing requests and cases.

use std::path::Path;

use laptime_bench::{AxisValue, Case, Fact, Given, GivenSettings, PlanError, WarmUp, Work, parse_values};
use laptime_models::{GraphMode, ModelError};

pub fn refused(reason: impl Into<String>, hint: &str) -> PlanError {
    PlanError::Refused { reason: reason.into(), hint: hint.to_owned() }
}

/// A refusal for an error: one of a model has its own hint or `of_model`, any other error the hint `other`.
pub fn refusal(error: &anyhow::Error, of_model: &str, other: &str) -> PlanError {
    match error.chain().find_map(|cause| cause.downcast_ref::<ModelError>()) {
        Some(model) => refused(with_causes(model), &model.hint().unwrap_or_else(|| of_model.to_owned())),
        None => refused(format!("{error:#}"), other),
    }
}

/// An error and its causes in one line.
pub fn with_causes(error: &ModelError) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Settings of workloads with long iterations: one warm-up iteration and three measured ones.
pub fn few_iterations() -> GivenSettings {
    GivenSettings { warmup: Some(WarmUp::Iterations(1)), iterations: Some(3), ..GivenSettings::default() }
}

pub fn is_given(given: &[Given], axis: &str) -> bool {
    given.iter().any(|(name, _)| name == axis)
}

/// The values that were given on an axis, as text.
pub fn words(given: &[Given], axis: &str) -> Vec<String> {
    let words = given.iter().filter(|(name, _)| name == axis).flat_map(|(_, words)| words).map(String::as_str);
    parse_values(words).unwrap_or_default().iter().map(ToString::to_string).collect()
}

/// The words of a flag that always names a folder, as paths.
pub fn named_folder((name, mut words): Given, flag: &str, is_folder: fn(&str) -> bool) -> Given {
    if name == flag {
        words.iter_mut().filter(|word| !is_folder(word)).for_each(|word| word.insert_str(0, "./"));
    }
    (name, words)
}

/// Whether a name is a path: it looks like one, or names an existing folder and no preset.
pub fn looks_like_a_folder(name: &str, is_preset: impl Fn(&str) -> bool) -> bool {
    let is_path = name.starts_with(['.', '/', '~']) || name.ends_with('/');
    is_path || Path::new(name).is_dir() && (name.contains('/') || !is_preset(name))
}

/// The case with another axis after a known one.
pub fn with_after(case: &Case, before: &str, axis: &str, value: AxisValue) -> Case {
    let mut values: Vec<_> = case.values().map(|(axis, value)| (axis.to_owned(), value.clone())).collect();
    let place = values.iter().position(|(known, _)| known == before).map_or(values.len(), |at| at + 1);
    values.insert(place, (axis.to_owned(), value));
    Case::new(values)
}

/// The value of a case on an axis as text; empty if it has none.
pub fn text(case: &Case, axis: &str) -> String {
    case.get(axis).map(ToString::to_string).unwrap_or_default()
}

pub fn is_on(case: &Case, axis: &str) -> bool {
    case.get(axis) == Some(&AxisValue::Bool(true))
}

pub fn number(case: &Case, axis: &str) -> anyhow::Result<f64> {
    match case.get(axis) {
        Some(AxisValue::Int(value)) => Ok(*value as f64),
        Some(AxisValue::Float(value)) => Ok(*value),
        _ => anyhow::bail!("the case has no number on axis `{axis}`"),
    }
}

pub fn seed(case: &Case) -> anyhow::Result<u64> {
    Ok(u64::try_from(case.int("seed")?)?)
}

pub fn graph(case: &Case, workload: &str) -> anyhow::Result<GraphMode> {
    match case.text("graph")? {
        "auto" => Ok(GraphMode::Auto),
        "on" => Ok(GraphMode::On),
        "off" => Ok(GraphMode::Off),
        other => anyhow::bail!("`{workload}` has no graph `{other}`"),
    }
}

pub fn whole(number: impl TryInto<i64>) -> AxisValue {
    AxisValue::Int(number.try_into().unwrap_or(i64::MAX))
}

pub fn fact(name: &str, number: impl TryInto<i64>) -> Fact {
    Fact::new(name, whole(number))
}

pub fn plus(one: Work, other: Work) -> Work {
    let (flops, bytes) = (one.flops.saturating_add(other.flops), one.bytes.saturating_add(other.bytes));
    Work { flops, bytes, ..one }
}
