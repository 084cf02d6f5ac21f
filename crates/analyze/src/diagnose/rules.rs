//! The findings of `laptime diagnose`. Their texts, thresholds and fixes are in `explain/topics.txt`.

use std::sync::LazyLock;

use crate::explain::{Entry, Topic, entries};
use crate::finding::Finding;

/// A finding that `laptime diagnose` can report.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Its texts.
    pub topic: Topic,
    /// Its threshold: a share of the time from the first to the last work of the devices, or of what the rule says.
    pub limit: f64,
    /// Whether it can be bad. Others are notable at most.
    pub may_be_bad: bool,
    /// How its gain is estimated.
    pub gain: &'static str,
    /// What to do in each framework, where they differ.
    pub fixes: Vec<(&'static str, &'static str)>,
}

/// Finds the rule of an id.
pub fn rule(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.topic.id == id)
}

const IDLE: &str = "the idle time of the GPU that has this cause; each idle moment has one cause";
pub(super) const UNKNOWN: &str = "the trace does not show how much it costs";

/// All findings of `laptime diagnose` on traces, in alphabetical order.
pub static RULES: LazyLock<Vec<Rule>> =
    LazyLock::new(|| entries().iter().filter(|entry| entry.group == "findings").map(Rule::of).collect());

impl Rule {
    /// The finding with what was seen, and its threshold.
    pub(super) fn finding(&self, evidence: String, limit: String) -> Finding {
        let Topic { id, meaning, remedy, .. } = self.topic;
        Finding { rule: id, evidence, limit, meaning: clause(meaning), next: clause(remedy) }
    }

    fn of(entry: &Entry) -> Self {
        let gain = match entry.get("gain") {
            "idle" => IDLE,
            "unknown" => UNKNOWN,
            gain => gain,
        };
        let fix = |(key, text): &(&'static str, &'static str)| Some((key.strip_prefix("fix ")?, *text));
        Self {
            topic: entry.topic(),
            limit: entry.get("limit").parse().unwrap_or(0.0),
            may_be_bad: entry.get("may be bad") == "yes",
            gain,
            fixes: entry.lines.iter().filter_map(fix).collect(),
        }
    }
}

/// Ids that were renamed: the old one, and the new one.
pub(crate) const RENAMED: [(&str, &str); 9] = [
    ("communication-bound", "exposed-communication"),
    ("copy-bound", "exposed-copy"),
    ("host-bound", "host-starved"),
    ("link-limit", "link-bound"),
    ("pageable-copies", "pageable-copy"),
    ("sync-bound", "sync-in-loop"),
    ("sync-drain", "sync-in-loop"),
    ("turnaround-bound", "tiny-kernels"),
    ("unexplained-gaps", "unexplained-idle"),
];

/// Sentences as a clause: without the last full stop, and with a small first letter.
fn clause(sentences: &str) -> String {
    let text = sentences.trim_end_matches('.');
    let mut letters = text.chars();
    let first = letters.next().map_or_else(String::new, |first| first.to_lowercase().collect());
    let starts_with_name = letters.clone().next().is_some_and(|second| second.is_uppercase());
    if starts_with_name { text.to_owned() } else { first + letters.as_str() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_threshold_a_gain_and_fixes_in_full_sentences() {
        for entry in entries().iter().filter(|entry| entry.group == "findings") {
            assert!(entry.get("limit").parse::<f64>().is_ok_and(|limit| (0.0..1.0).contains(&limit)), "{}", entry.id);
            assert!(matches!(entry.get("may be bad"), "yes" | "no") && !entry.get("gain").is_empty(), "{}", entry.id);
            let keys = ["title", "rule", "meaning", "remedy", "limit", "may be bad", "gain"];
            for (key, text) in &entry.lines {
                assert!(keys.contains(key) || key.starts_with("fix ") && text.ends_with('.'), "{}: {key}", entry.id);
            }
        }
    }

    #[test]
    fn the_text_of_each_rule_states_its_threshold() {
        for rule in RULES.iter().filter(|rule| rule.limit > 0.0) {
            let threshold = format!("{} %", 100.0 * rule.limit);
            assert!(rule.topic.rule.contains(&threshold), "{}: {threshold}", rule.topic.id);
        }
    }
}
