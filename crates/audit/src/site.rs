//! One place in source text where the host waits.

use crate::rules::Certainty;

/// One place in source text where the host waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The line of the call's name, from 1 on.
    pub line: u32,
    /// The column of it in characters, from 1 on.
    pub column: u32,
    /// The last line of the call.
    pub last_line: u32,
    /// The call as people see it: `to_vec1`, `to("cpu")`, `sync_point! read_token`.
    pub call: String,
    /// The last name of the call: `item`, `synchronize`.
    pub name: String,
    /// How sure the name alone makes it.
    pub certainty: Certainty,
    /// The function around it, such as `Sampler::sample` or `Trainer.step`; empty outside of functions.
    pub function: String,
    /// The first and the last line of that function, or of the file.
    pub function_lines: (u32, u32),
    /// How many loops of that function are around it.
    pub loop_depth: u32,
    /// It stands in a test.
    pub is_test: bool,
    /// Why it is allowed; empty if no reason is given, none if it is not allowed.
    pub allowed: Option<String>,
}
