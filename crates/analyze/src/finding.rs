//! A finding: something that an analysis found, with its evidence and a remedy.

use std::fmt;

use crate::note::Note;

/// What was found, what it means and what to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The id that `laptime explain` takes, in kebab case: `stream-overlap`.
    pub rule: &'static str,
    /// What was seen, with figures: the beginning of a sentence, without a full stop.
    pub evidence: String,
    /// The threshold of the rule, for machines; empty if the rule has none.
    pub limit: String,
    /// What it means: a clause, without a full stop.
    pub meaning: String,
    /// What to try: a clause in the imperative, without a full stop.
    pub next: String,
}

impl Finding {
    /// The evidence as a one-line note; `laptime explain` has the rest.
    pub fn note(&self) -> Note {
        Note::new(self.rule, self.evidence.clone())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}. Try: {}.", self.evidence, self.meaning, self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_states_evidence_meaning_and_what_to_try() {
        let finding = Finding {
            rule: "busy",
            evidence: "The device was busy 40 % of the time".to_owned(),
            limit: "90 %".to_owned(),
            meaning: "the host is the bottleneck".to_owned(),
            next: "look at `laptime gaps`".to_owned(),
        };
        let text = "The device was busy 40 % of the time; the host is the bottleneck. Try: look at `laptime gaps`.";
        assert_eq!(finding.to_string(), text);
    }
}
