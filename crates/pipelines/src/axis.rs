//! Tables of axes and aliases, and those that several workloads share.

use laptime_bench::{Alias, ValueKind};

use crate::crew::all_threads;

/// A table of axes, a row each: name, kind, defaults, cost, help.
macro_rules! axes {
    ($($name:expr, $kind:expr, [$($default:expr),*], $cost:ident, $about:expr;)*) => {
        vec![$(laptime_bench::AxisSpec {
            name: $name,
            about: $about,
            kind: $kind,
            default: vec![$($default.into()),*],
            cost: laptime_bench::Cost::$cost,
        }),*]
    };
}

/// A table of metrics, one per row: name, better direction, description.
macro_rules! metrics {
    ($($name:literal, $better:ident, $about:literal;)*) => {
        vec![$(laptime_bench::MetricSpec { name: $name, about: $about, better: laptime_bench::Better::$better }),*]
    };
}

/// Common methods of workloads that parse their cases: name, description, and optionally axes, aliases and plan.
macro_rules! describe {
    ($name:literal, $about:literal $(, $axes:expr, $aliases:expr $(, $settle:expr)?)?) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn about(&self) -> &'static str {
            $about
        }

        fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
            self.parse(case, device)?.prepare()
        }

        $(fn axes(&self) -> Vec<AxisSpec> {
            $axes
        }

        fn aliases(&self) -> Vec<laptime_bench::Alias> {
            $aliases
        }

        $(fn plan(&self, given: &[Given]) -> Result<Plan, PlanError> {
            $settle(given)
        })?)?
    };
}

pub(crate) use {axes, describe, metrics};

/// Other names of an axis.
pub fn names(axis: &'static str, names: &[&'static str]) -> Vec<Alias> {
    names.iter().map(|name| Alias::of_axis(name, axis)).collect()
}

/// Other words for values of an axis.
pub fn words(axis: &'static str, words: &[(&'static str, &'static str)]) -> Vec<Alias> {
    words.iter().map(|(word, value)| Alias::of_values(word, axis, value)).collect()
}

/// The names of dtypes in PyTorch.
pub fn dtype_words() -> Vec<Alias> {
    let names = [("float32", "f32"), ("fp32", "f32"), ("bfloat16", "bf16"), ("float16", "f16"), ("fp16", "f16")];
    words("dtype", &names)
}

/// The names of sequence lengths in CS336 assignment 2 and Nano XYZ, and the lengths of Nano XYZ.
pub fn length_aliases() -> Vec<Alias> {
    let lengths = [("small", "256,512"), ("medium", "1024,2048"), ("large", "4096,8192")];
    [names("seq_len", &["context_length", "context_lengths", "seq_lens"]), words("seq_len", &lengths)].concat()
}

/// The value for the default of the device or model.
pub const AUTO: &str = "auto";

/// The dtypes, and that of the device or model.
pub const DTYPES: &[&str] = &[AUTO, "f32", "bf16", "f16"];

/// The dtypes of decoders, and that of the model.
pub const DECODER_DTYPES: &[&str] = &[AUTO, "f32", "bf16", "f16", "fp8"];
pub const GRAPH: &[&str] = &[AUTO, "on", "off"];

/// The value for no file or text.
pub const NONE: &str = "none";

pub const SEED: ValueKind = ValueKind::Int { least: 0, most: i64::MAX };

/// A size that may be as large as a machine allows.
pub const SIZE: ValueKind = ValueKind::Int { least: 1, most: i64::MAX };

pub const ABOUT_THREADS: &str = "number of threads; by default one for each CPU that this process may use";

const MOST_THREADS: i64 = 1024;

pub const THREADS: ValueKind = ValueKind::Int { least: 1, most: MOST_THREADS };

/// All processors that this process may use.
pub fn default_threads() -> i64 {
    i64::try_from(all_threads()).unwrap_or(MOST_THREADS).min(MOST_THREADS)
}

/// Whole numbers from this one.
pub const fn from(least: i64) -> ValueKind {
    ValueKind::Int { least, most: u32::MAX as i64 }
}
