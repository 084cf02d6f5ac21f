//! The bottlenecks of a token.

mod link;
mod parts;
mod streaming;

use super::Offload;
use crate::bottleneck::{Bottleneck, Severity};

/// All bottlenecks of a token: bad ones first, then by gain.
pub(super) fn findings(seen: &Offload) -> Vec<Bottleneck> {
    let streamed = streaming::findings(seen);
    let of_link = link::finding(seen);
    let is_explained = of_link.is_some() || streamed.iter().any(|one| one.severity != Severity::Normal);
    let mut found: Vec<Bottleneck> = streamed.into_iter().chain(of_link).collect();
    found.extend(streaming::long_wait(seen).filter(|_| !is_explained));
    found.extend(streaming::release(seen));
    found.extend(parts::findings(seen));
    found.sort_by(Bottleneck::order);
    found
}
