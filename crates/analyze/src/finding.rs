//! A finding: something that an analysis saw and that a reader should know, with its evidence.

use std::fmt;

/// What was seen, against which limit, what it means and what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule that saw it, in a word or two with underscores: `kernel_overlap`.
    pub rule: &'static str,
    /// What was seen, with figures: the beginning of a sentence, without a full stop.
    pub evidence: String,
    /// The limit it was held against; empty if the rule has none.
    pub limit: String,
    /// What it means: a clause, without a full stop.
    pub meaning: String,
    /// What to do next: a sentence without a full stop.
    pub next: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.evidence)?;
        if !self.limit.is_empty() {
            write!(f, " (limit: {})", self.limit)?;
        }
        write!(f, "; {}. Next: {}.", self.meaning, self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_evidence_limit_meaning_and_next_step() {
        let finding = Finding {
            rule: "busy",
            evidence: "The device was busy 40 % of the time".to_owned(),
            limit: "90 %".to_owned(),
            meaning: "the host is the bottleneck".to_owned(),
            next: "look at `laptime gaps`".to_owned(),
        };
        let told = "The device was busy 40 % of the time (limit: 90 %); the host is the bottleneck. Next: look at `laptime gaps`.";
        assert_eq!(finding.to_string(), told);
    }
}
