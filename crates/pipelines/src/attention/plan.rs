//! The cases of a request: a pattern's name gives missing sizes, and sizes give the name.

use laptime_bench::{Alias, AxisSpec, Case, Given, Plan, PlanError, resolve};
use laptime_models::attention::{Kind, PRESETS};

use super::{
    axes::{BUILT_IN, CUSTOM, axes},
    spec::read_mask,
};
use crate::request::{is_given, refuse_too_many, refused, words};

const NAME: &str = "attention";

pub fn settle(aliases: &[Alias], given: &[Given]) -> Result<Plan, PlanError> {
    let given = resolve(aliases, given)?;
    // Unknown axes are refused first.
    Plan::settle(NAME, axes(), &given)?;
    check_masks(&given)?;
    let mut cases = Vec::new();
    for pattern in patterns(&given) {
        let mut of_one: Vec<Given> = given.iter().filter(|(name, _)| name != "pattern").cloned().collect();
        of_one.push(("pattern".to_owned(), vec![pattern.clone()]));
        let plan = Plan::settle(NAME, of_pattern(axes(), &pattern), &of_one)?;
        cases.extend(plan.cases().into_iter().map(|case| with_pattern_name(&with_heads(&case, &given))));
        refuse_too_many(&cases)?;
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

/// The number of key heads, by default that of query heads.
fn with_heads(case: &Case, given: &[Given]) -> Case {
    match case.get("heads") {
        Some(heads) if !is_given(given, "kv_heads") => case.with("kv_heads", heads.clone()),
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
        let reason = format!("the mask `{mask}` applies to no requested attention");
        return Err(refused(reason, "`--attention dense,block-sparse` compares it with dense attention"));
    }
    let hint = "a mask is square and contains 0 and 1: one row per line, or a list of lists in JSON";
    masks.iter().try_for_each(|mask| read_mask(mask).map(drop).map_err(|error| refused(format!("{error:#}"), hint)))
}
