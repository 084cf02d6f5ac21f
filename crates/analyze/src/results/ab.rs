//! Which of two variants is faster, if that can be said.

use laptime_stats::{Comparison, Group, Settings, Unfit, compare};

/// Two variants and how they compare.
#[derive(Debug, Clone, PartialEq)]
pub struct Ab {
    /// What the variants are, in the user's words.
    pub variants: [String; 2],
    /// How the second compares with the first.
    pub comparison: Comparison,
}

/// What the resampling starts from.
const SEED: u64 = 29;

/// Compares two variants by the iterations of their processes, in nanoseconds.
pub fn ab(variants: [(&str, &[Vec<f64>]); 2], threshold: Option<f64>) -> Result<Ab, Unfit> {
    let [(a, a_iterations), (b, b_iterations)] = variants;
    let comparison =
        compare(&Group::new(a_iterations)?, &Group::new(b_iterations)?, &Settings { threshold, seed: SEED });
    Ok(Ab { variants: [a.to_owned(), b.to_owned()], comparison })
}
