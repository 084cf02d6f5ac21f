//! How the tensors of a folder differ from those that a model needs.

use std::collections::{HashMap, HashSet};

use safetensors::tensor::Dtype as StoredType;

use crate::{Done, ModelError, TensorSpec, folder::Stored, tensors::SCALE};

const MOST_LISTED: usize = 5;

const TYPES_HINT: &str =
    "f32, bf16 and f16 are read, and e4m3 matrices with a `weight_scale_inv` per block; save the model in one of them";

#[derive(Debug, Default)]
pub struct Misfit {
    missing: Vec<String>,
    extra: Vec<String>,
    misshapen: Vec<String>,
    unread: Vec<String>,
}

impl Misfit {
    /// Compares what is stored with what is needed; some of what is not needed does no harm.
    pub fn between(
        specs: Vec<TensorSpec>,
        stored: &HashMap<String, Stored>,
        is_harmless: impl Fn(&str) -> bool,
    ) -> Self {
        let mut misfit = Self::default();
        let mut needed = HashSet::new();
        let scaled: HashSet<String> =
            specs.iter().filter_map(|spec| Some(spec.name.strip_suffix(SCALE)?.to_owned())).collect();
        for spec in specs {
            match stored.get(&spec.name) {
                None => misfit.missing.push(format!("`{}`", spec.name)),
                Some(found) if found.shape != spec.shape => {
                    misfit.misshapen.push(format!("`{}` is {:?} and not {:?}", spec.name, found.shape, spec.shape));
                }
                Some(found) if found.stored_as == StoredType::F8_E4M3 && scaled.contains(&spec.name) => {}
                Some(found) if found.dtype().is_none() => {
                    misfit.unread.push(format!("`{}` is {}", spec.name, found.stored_as));
                }
                Some(_) => {}
            }
            needed.insert(spec.name);
        }
        let extra = stored.keys().filter(|name| !needed.contains(*name) && !is_harmless(name));
        misfit.extra = extra.map(|name| format!("`{name}`")).collect();
        misfit.extra.sort();
        misfit
    }

    /// Refuses what does not fit: `what` it is, in words, with a hint unless only types are wrong.
    pub fn refuse(&self, what: &str, hint: &str) -> Done {
        let kinds = [
            listed(&self.missing, "missing"),
            listed(&self.extra, "not of the model"),
            listed(&self.misshapen, "misshapen"),
            listed(&self.unread, "of a type that is not read"),
        ];
        let reasons: Vec<String> = kinds.into_iter().flatten().collect();
        let types_alone = self.missing.is_empty() && self.extra.is_empty() && self.misshapen.is_empty();
        match reasons.is_empty() {
            true => Ok(()),
            false => {
                let hint = if types_alone { TYPES_HINT } else { hint };
                Err(ModelError::hinted(format!("{what}: {}", reasons.join("; ")), hint))
            }
        }
    }
}

fn listed(names: &[String], what: &str) -> Option<String> {
    let verb = if names.len() == 1 { "tensor is" } else { "tensors are" };
    let more = match names.len().saturating_sub(MOST_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = names.iter().take(MOST_LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    (!names.is_empty()).then(|| format!("{} {verb} {what} ({shown}{more})", names.len()))
}
