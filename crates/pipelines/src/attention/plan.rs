//! Parsed cases of `attention`, and the cases of a request: a named pattern has default sizes, and sizes have a name.

use std::path::Path;

use anyhow::Context;
use laptime_bench::{
    Alias, AxisSpec, AxisValue, Case, Given, Plan, PlanError, Traffic, Work, refuse_too_many, resolve,
};
use laptime_models::Dtype;
use laptime_models::attention::{AttentionSizes, BlockMask, Kept, Kind, PRESETS, Pattern, Random, Synthetic};
use laptime_trace::small_file;

use super::axes::{BUILT_IN, CUSTOM, axes};
use crate::request::{is_given, refused, seed, words};

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
        refuse_too_many(cases.len() as u128)?;
    }
    // Patterns of equal sizes are the same.
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

/// Defaults the number of key heads to that of query heads.
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

#[derive(Debug, Clone)]
pub struct Spec {
    pub kind: Kind,
    pub inputs: Synthetic,
    pub kept: Kept,
    pub threads: usize,
}

impl Spec {
    /// Reads a case whose dtype is resolved.
    pub fn of(case: &Case) -> anyhow::Result<Self> {
        let kind: Kind = case.text("attention")?.parse()?;
        let sizes = AttentionSizes {
            batch: case.size("batch_size")?,
            heads: case.size("heads")?,
            kv_heads: case.size("kv_heads")?,
            head_dim: case.size("head_dim")?,
            length: case.size("seq_len")?,
        };
        let dtype: Dtype = case.text("dtype")?.parse()?;
        let (seed, is_causal) = (seed(case)?, case.get("causal") != Some(&AxisValue::Bool(false)));
        let pattern = Pattern { is_causal, seed, ..pattern(case)? };
        let mask = match case.text("block_mask")? {
            path if kind == Kind::BlockSparse && path != BUILT_IN => Some(read_mask(path)?),
            _ => None,
        };
        let kept = Kept::of(kind, pattern, mask);
        Ok(Self { kind, inputs: Synthetic { sizes, dtype, seed }, kept, threads: case.size("threads")? })
    }

    /// Why the case is invalid, if it is.
    pub fn refusal(&self) -> Option<String> {
        let sizes = self.inputs.sizes;
        sizes.refusal().or_else(|| self.kept.refusal(sizes.length))
    }

    /// The work of an iteration with this number of kept pairs per head.
    pub fn work(&self, connections: u64) -> Work {
        let (sizes, dtype) = (self.inputs.sizes, self.inputs.dtype);
        let (flops, bytes) = (sizes.flops(connections), sizes.bytes(dtype));
        Work { flops, dtype: dtype.word().to_owned(), bytes, traffic: Traffic::Read }
    }
}

/// The pattern of a case, causal.
pub fn pattern(case: &Case) -> anyhow::Result<Pattern> {
    let shared = if case.text("random_per")? == "row" { Random::PerRow } else { Random::PerBlock };
    Ok(Pattern {
        window: case.size("window")?,
        global: case.size("global")?,
        random: case.size("random")?,
        is_causal: true,
        shared,
        seed: 0,
    })
}

pub fn read_mask(path: &str) -> anyhow::Result<BlockMask> {
    let text = small_file::read_text(Path::new(path), small_file::LARGEST_SMALL_FILE)
        .with_context(|| format!("cannot read the mask `{path}`"))?;
    BlockMask::parse(&text).map_err(anyhow::Error::msg).with_context(|| format!("`{path}` is not a mask"))
}
