//! Finds host syncs in source code: every call that makes the host wait for a device, with its function and loop depth.
//!
//! The input is text; no file is read here. The parser knows names and not types: `x.item()` is a site whether `x` is
//! on a GPU or not, and a call of a function that syncs inside is not a site.
//!
//! ```
//! use laptime_audit::{Rules, audit_python, audit_rust};
//!
//! let rules = Rules::built_in();
//! let audited = audit_rust(
//!     "fn generate(model: &Model) -> Result<Vec<u32>> {
//!          let mut tokens = Vec::new();
//!          for _ in 0..64 {
//!              tokens.push(model.step()?.argmax(0)?.to_scalar::<u32>()?);
//!          }
//!          Ok(tokens)
//!      }",
//!     &rules,
//! );
//! let site = &audited.sites[0];
//! assert_eq!((site.line, site.call.as_str(), site.function.as_str(), site.loop_depth), (4, "to_scalar", "generate", 1));
//!
//! let audited = audit_python("losses = [loss.item() for loss in steps]  # sync: allowed, once a run\n", &rules);
//! assert_eq!(audited.sites[0].loop_depth, 1);
//! assert_eq!(audited.sites[0].allowed.as_deref(), Some("once a run"));
//! ```

mod answer;
mod comments;
mod join;
mod paths;
mod pattern;
mod python;
mod rules;
mod rules_file;
mod rust;
mod site;

pub use self::{
    answer::{Answer, Audited, AuditedFile, Limits, Placed, Problem, Recorded, Seen, Unplaced},
    join::join,
    paths::{Language, is_test_path, test_files},
    python::audit_python,
    rules::{Certainty, Form, Needs, Rule, Rules},
    rules_file::{Allow, RulesFile, RulesFileError},
    rust::audit_rust,
    site::Site,
};
