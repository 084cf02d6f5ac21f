//! The thresholds of findings.

use hashbrown::HashMap;

use super::rules::{RULES, rule};
use crate::explain::current_id;

/// From this share of the time on, a finding that may be bad is bad.
const BAD: f64 = 0.1;

/// The thresholds of findings; those that are not set have their default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FindingLimits {
    set: HashMap<&'static str, f64>,
}

/// Why a threshold cannot be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoLimit {
    /// No finding with a threshold has this id; the nearest ids are in the list of all.
    NoSuchFinding(String),
    /// The value is not a share from 0 to 1.
    NoShare(String),
}

impl FindingLimits {
    /// Sets the threshold of a finding, as a share from 0 to 1.
    ///
    /// # Errors
    ///
    /// If there is no such finding, or the value is no share.
    pub fn set(&mut self, id: &str, share: f64) -> Result<(), NoLimit> {
        let rule = rule(current_id(id)).ok_or_else(|| NoLimit::NoSuchFinding(id.to_owned()))?;
        if !(0.0..=1.0).contains(&share) {
            return Err(NoLimit::NoShare(format!("{} %", 100.0 * share)));
        }
        self.set.insert(rule.topic.id, share);
        Ok(())
    }

    /// The threshold of a finding.
    pub fn of(&self, id: &str) -> f64 {
        self.set.get(id).copied().or_else(|| rule(id).map(|rule| rule.limit)).unwrap_or(0.0)
    }

    /// Whether a finding with this share of the time is bad.
    pub(super) fn is_bad(&self, id: &str, share: f64) -> bool {
        rule(id).is_some_and(|rule| rule.may_be_bad) && share >= BAD.max(self.of(id))
    }

    /// The ids that have a threshold.
    pub fn ids() -> impl Iterator<Item = &'static str> {
        RULES.iter().filter(|rule| rule.limit > 0.0).map(|rule| rule.topic.id)
    }
}
