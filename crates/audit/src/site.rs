//! One place in source text where the host waits.

use crate::rules::Certainty;

/// One place in source text where the host waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The line of the call's name, from 1.
    pub line: u32,
    /// Its column in characters, from 1.
    pub column: u32,
    /// The last line of the call.
    pub last_line: u32,
    /// The call as shown to users: `to_vec1`, `to("cpu")`, `sync_point! read_token`.
    pub call: String,
    /// The last name of the call: `item`, `synchronize`.
    pub name: String,
    /// How certain the name alone is.
    pub certainty: Certainty,
    /// The function around it, such as `Sampler::sample` or `Trainer.step`; empty outside of functions.
    pub function: String,
    /// The first and the last line of that function, or of the file.
    pub function_lines: (u32, u32),
    /// The number of loops of that function around it.
    pub loop_depth: u32,
    /// Whether it is in a test.
    pub is_test: bool,
    /// Why it is allowed; empty if no reason is given, none if it is not allowed.
    pub allowed: Option<String>,
}
