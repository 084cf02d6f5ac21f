//! What holds a token up.

mod link;
mod parts;
mod streaming;

use super::Offload;
use crate::finding::Finding;

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It holds the run up.
    Bad,
    /// It is not good, and not bad.
    Notable,
    /// It is as it must be in this mode.
    Normal,
}

impl Severity {
    /// The word by which tables tell it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::Notable => "notable",
            Self::Normal => "normal",
        }
    }
}

/// Something that holds a token up, with what its removal would bring.
#[derive(Debug, Clone, PartialEq)]
pub struct Bottleneck {
    /// How bad it is.
    pub severity: Severity,
    /// What was seen, against which limit, what it means and what to do.
    pub finding: Finding,
    /// What a token would save at most without it, in nanoseconds; none if that cannot be told.
    pub gain_ns: Option<f64>,
}

/// All that holds a token up: what is bad first, and of those what would bring most.
pub(super) fn findings(seen: &Offload) -> Vec<Bottleneck> {
    let streamed = streaming::findings(seen);
    let of_link = link::finding(seen);
    let is_explained = of_link.is_some() || streamed.iter().any(|one| one.severity != Severity::Normal);
    let mut found: Vec<Bottleneck> = streamed.into_iter().chain(of_link).collect();
    found.extend(streaming::long_wait(seen).filter(|_| !is_explained));
    found.extend(streaming::release(seen));
    found.extend(parts::findings(seen));
    found.sort_by(|a, b| {
        let gain = |one: &Bottleneck| one.gain_ns.unwrap_or(0.0);
        a.severity.cmp(&b.severity).then(gain(b).total_cmp(&gain(a)))
    });
    found
}
