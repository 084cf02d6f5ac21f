//! What workloads say of themselves: tables of axes, and the axes that several workloads have.

use laptime_bench::ValueKind;

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

/// The methods of a workload that parses its cases: its name, a line about it, and where they are the same for every
/// such workload, its axes, aliases and plan.
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
            $aliases.to_vec()
        }

        $(fn plan(&self, given: &[Given]) -> Result<Plan, PlanError> {
            $settle(given)
        })?)?
    };
}

pub(crate) use {axes, describe};

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
