//! The cases of a request: a pattern's name gives missing sizes, and sizes give the name.

use laptime_bench::{Alias, AxisSpec, Case, Given, MOST_CASES, Plan, PlanError, parse_values, resolve};
use laptime_models::attention::{Kind, PRESETS};

use super::{
    axes::{BUILT_IN, CUSTOM, axes},
    spec::read_mask,
};

const NAME: &str = "attention";

/// Resolves the cases.
pub fn settle(aliases: &[Alias], given: &[Given]) -> Result<Plan, PlanError> {
    let given = resolve(aliases, given)?;
    // Unknown axes are refused first.
    Plan::settle(NAME, axes(), &given)?;
    check_masks(&given)?;
    let mut cases = Vec::new();
    for pattern in patterns(&given) {
        let with = of_pattern(axes(), &pattern);
        let plan = Plan::settle(NAME, with, &replaced(&given, "pattern", &pattern))?;
        let made = plan.cases().into_iter().map(|case| with_pattern_name(&with_heads(&case, &given)));
        cases.extend(made);
        if cases.len() > MOST_CASES {
            return Err(PlanError::TooManyCases { cases: cases.len() as u128 });
        }
    }
    // Patterns with the same sizes are one.
    let mut seen = std::collections::HashSet::new();
    cases.retain(|case| seen.insert(case.to_string()));
    Plan::of_cases(axes(), cases)
}

/// The named patterns, or the default one.
pub fn patterns(given: &[Given]) -> Vec<String> {
    let named = words(given, "pattern");
    if named.is_empty() { vec!["small".to_owned()] } else { named }
}

fn words(given: &[Given], axis: &str) -> Vec<String> {
    let words = given.iter().filter(|(name, _)| name == axis).flat_map(|(_, words)| words).map(String::as_str);
    parse_values(words).unwrap_or_default().iter().map(ToString::to_string).collect()
}

/// The axes with the sizes of a pattern as defaults.
pub fn of_pattern(mut axes: Vec<AxisSpec>, pattern: &str) -> Vec<AxisSpec> {
    let Some((_, numbers)) = PRESETS.iter().find(|(name, _)| *name == pattern) else { return axes };
    for (name, number) in ["window", "global", "random"].into_iter().zip(numbers) {
        if let Some(axis) = axes.iter_mut().find(|axis| axis.name == name) {
            axis.default = vec![(*number as i64).into()];
        }
    }
    axes
}

fn replaced(given: &[Given], axis: &str, word: &str) -> Vec<Given> {
    let mut given: Vec<Given> = given.iter().filter(|(name, _)| name != axis).cloned().collect();
    given.push((axis.to_owned(), vec![word.to_owned()]));
    given
}

/// The number of key heads, by default that of query heads.
fn with_heads(case: &Case, given: &[Given]) -> Case {
    let is_given = given.iter().any(|(name, _)| name == "kv_heads");
    match case.get("heads") {
        Some(heads) if !is_given => case.with("kv_heads", heads.clone()),
        _ => case.clone(),
    }
}

/// The same case with the name of its pattern.
pub fn with_pattern_name(case: &Case) -> Case {
    let numbers = ["window", "global", "random"].map(|axis| case.size(axis).unwrap_or(0));
    let name = PRESETS.iter().find(|(_, known)| *known == numbers).map_or(CUSTOM, |(name, _)| *name);
    case.with("pattern", name)
}

/// Refuses masks that cannot be read or that no case uses.
fn check_masks(given: &[Given]) -> Result<(), PlanError> {
    let masks: Vec<String> = words(given, "block_mask").into_iter().filter(|name| name != BUILT_IN).collect();
    let is_used = words(given, "attention").iter().any(|kind| kind == Kind::BlockSparse.word());
    if let (Some(mask), false) = (masks.first(), is_used) {
        return Err(PlanError::Refused {
            reason: format!("the mask `{mask}` applies to no requested attention"),
            hint: "`--attention dense,block-sparse` compares it with dense attention".to_owned(),
        });
    }
    for mask in masks {
        read_mask(&mask).map_err(|error| PlanError::Refused {
            reason: format!("{error:#}"),
            hint: "a mask is square and contains 0 and 1: one row per line, or a list of lists in JSON".to_owned(),
        })?;
    }
    Ok(())
}
