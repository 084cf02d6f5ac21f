//! Aliases: other names for a workload's flags and values.

use crate::plan::PlanError;

/// A flag or plan-file key as it was written, with the words given for it.
pub type Given = (String, Vec<String>);

/// An alias for something that a workload accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias {
    /// The name, spelled like an axis: `model_sizes`.
    pub name: &'static str,
    /// What the alias means.
    pub target: AliasTarget,
}

/// What an alias means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AliasTarget {
    /// An axis. The words after the flag are the values of that axis.
    Axis(&'static str),
    /// Fixed values on an axis. The flag takes no value.
    Switch {
        /// The axis.
        axis: &'static str,
        /// The values, as a user would write them.
        values: &'static str,
    },
    /// Fixed values on an axis. The word is used in place of a value of that axis.
    Values {
        /// The axis.
        axis: &'static str,
        /// The values, as a user would write them.
        values: &'static str,
    },
}

impl Alias {
    /// An alias for an axis.
    pub const fn of_axis(name: &'static str, axis: &'static str) -> Self {
        Self { name, target: AliasTarget::Axis(axis) }
    }

    /// A flag that sets fixed values on an axis.
    pub const fn switch(name: &'static str, axis: &'static str, values: &'static str) -> Self {
        Self { name, target: AliasTarget::Switch { axis, values } }
    }

    /// A word that expands to fixed values on an axis.
    pub const fn of_values(name: &'static str, axis: &'static str, values: &'static str) -> Self {
        Self { name, target: AliasTarget::Values { axis, values } }
    }

    /// Whether the alias is a flag.
    pub fn is_flag(&self) -> bool {
        !matches!(self.target, AliasTarget::Values { .. })
    }

    /// The axis that the alias refers to.
    pub fn axis(&self) -> &'static str {
        match self.target {
            AliasTarget::Axis(axis) | AliasTarget::Switch { axis, .. } | AliasTarget::Values { axis, .. } => axis,
        }
    }
}

/// The axis for a name; a name that is not an alias is the name of an axis.
pub fn axis_of<'a>(aliases: &[Alias], name: &'a str) -> &'a str {
    let found = aliases.iter().find(|alias| alias.is_flag() && alias.name == name);
    found.map_or(name, |alias| alias.axis())
}

/// Replaces aliases of flags and values; returns the given words per axis.
pub fn resolve(aliases: &[Alias], given: &[Given]) -> Result<Vec<Given>, PlanError> {
    given.iter().map(|(name, words)| resolve_one(aliases, name, words)).collect()
}

fn resolve_one(aliases: &[Alias], name: &str, words: &[String]) -> Result<Given, PlanError> {
    let flag = aliases.iter().find(|alias| alias.is_flag() && alias.name == name);
    let axis = flag.map_or(name, |flag| flag.axis());
    if let Some(AliasTarget::Switch { values, .. }) = flag.map(|flag| flag.target) {
        return match words {
            [] => Ok((axis.to_owned(), vec![values.to_owned()])),
            [word] if word == "true" => Ok((axis.to_owned(), vec![values.to_owned()])),
            _ => Err(PlanError::Refused {
                reason: format!("`{name}` takes no values"),
                hint: format!("it means `{axis}` {values}; write `--{}` without a value", name.replace('_', "-")),
            }),
        };
    }
    let value = |alias: &Alias| match alias.target {
        AliasTarget::Values { axis: of, values } if of == axis => Some((alias.name, values)),
        _ => None,
    };
    let known: Vec<(&str, &str)> = aliases.iter().filter_map(value).collect();
    if known.is_empty() {
        return Ok((axis.to_owned(), words.to_vec()));
    }
    let part = |part: &str| {
        let found = known.iter().find(|(name, _)| name.eq_ignore_ascii_case(part));
        found.map_or_else(|| part.to_owned(), |(_, values)| (*values).to_owned())
    };
    let word = |word: &String| word.split(',').map(|text| part(text.trim())).collect::<Vec<_>>().join(",");
    Ok((axis.to_owned(), words.iter().map(word).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIASES: &[Alias] = &[
        Alias::of_axis("model_sizes", "model"),
        Alias::of_axis("context_length", "seq_len"),
        Alias::switch("no_training", "pass_type", "forward"),
        Alias::of_values("small", "seq_len", "256,512"),
        Alias::of_values("float32", "dtype", "f32"),
    ];

    fn given(name: &str, words: &[&str]) -> Given {
        (name.to_owned(), words.iter().map(|&word| word.to_owned()).collect())
    }

    #[test]
    fn aliases_of_flags_and_values_are_replaced() {
        let asked = [
            given("model_sizes", &["small", "large"]),
            given("context_length", &["small,1024", "Small"]),
            given("dtype", &["Float32"]),
            given("no_training", &["true"]),
            given("other", &["small"]),
        ];
        let expected = [
            given("model", &["small", "large"]),
            given("seq_len", &["256,512,1024", "256,512"]),
            given("dtype", &["f32"]),
            given("pass_type", &["forward"]),
            given("other", &["small"]),
        ];
        assert_eq!(resolve(ALIASES, &asked), Ok(expected.to_vec()), "`small` is a word of `seq_len` alone");
    }

    #[test]
    fn a_switch_takes_no_values() {
        let error = resolve(ALIASES, &[given("no_training", &["3"])]).unwrap_err();
        assert_eq!(error.to_string(), "`no_training` takes no values");
    }

    #[test]
    fn aliases_of_values_are_not_flags() {
        let names = ["model_sizes", "no_training", "seq_len", "small"];
        assert_eq!(names.map(|name| axis_of(ALIASES, name)), ["model", "pass_type", "seq_len", "small"]);
    }
}
