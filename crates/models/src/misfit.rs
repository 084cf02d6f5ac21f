//! Compares the tensors of a checkpoint with those of a model.

use std::collections::{HashMap, HashSet};

use safetensors::tensor::Dtype as StoredType;

use crate::{Done, ModelError, TensorSpec, folder::Stored, tensors::SCALE};

const MOST_LISTED: usize = 5;

const DTYPE_HINT: &str =
    "save the model in f32, bf16 or f16, or its matrices in e4m3 with a `weight_scale_inv` for each block";

/// Refuses missing, misshapen and unsupported tensors, and unknown ones unless they are harmless. `what` begins the
/// message.
pub fn check(
    specs: Vec<TensorSpec>,
    stored: &HashMap<String, Stored>,
    is_harmless: impl Fn(&str) -> bool,
    (what, hint): (&str, &str),
) -> Done {
    let (mut missing, mut misshapen, mut unsupported) = (Vec::new(), Vec::new(), Vec::new());
    let needed: HashSet<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    for TensorSpec { name, shape, .. } in &specs {
        let Some(found) = stored.get(name) else {
            missing.push(format!("`{name}`"));
            continue;
        };
        let is_scaled = found.stored_as == StoredType::F8_E4M3 && needed.contains(format!("{name}{SCALE}").as_str());
        if found.shape != *shape {
            misshapen.push(format!("`{name}` is {:?}, expected {shape:?}", found.shape));
        } else if found.dtype().is_none() && !is_scaled {
            unsupported.push(format!("`{name}` is {}", found.stored_as));
        }
    }
    let unknown = stored.keys().filter(|name| !needed.contains(name.as_str()) && !is_harmless(name));
    let mut unknown: Vec<String> = unknown.map(|name| format!("`{name}`")).collect();
    unknown.sort();
    let is_dtype_alone = missing.is_empty() && unknown.is_empty() && misshapen.is_empty();
    let kinds = [
        (missing, "missing"),
        (unknown, "unknown"),
        (misshapen, "misshapen"),
        (unsupported, "of an unsupported dtype"),
    ];
    let reasons: Vec<String> = kinds.into_iter().filter_map(|(names, kind)| listed(names, kind)).collect();
    let hint = if is_dtype_alone { DTYPE_HINT } else { hint };
    let refused = || ModelError::hinted(format!("{what}: {}", reasons.join("; ")), hint);
    if reasons.is_empty() { Ok(()) } else { Err(refused()) }
}

fn listed(names: Vec<String>, kind: &str) -> Option<String> {
    let verb = if names.len() == 1 { "tensor is" } else { "tensors are" };
    let more = names.len().saturating_sub(MOST_LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let shown = names[..names.len().min(MOST_LISTED)].join(", ");
    (!names.is_empty()).then(|| format!("{} {verb} {kind} ({shown}{more})", names.len()))
}
