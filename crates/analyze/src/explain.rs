//! What every note means: the rule with its threshold, why it matters and what to do.
//!
//! `explain/topics.txt` is the one source of these texts: `laptime explain`, the report and the page on notes print them.

use std::sync::LazyLock;

use crate::diagnose::rules;

/// What a note means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topic {
    /// The id that follows the note in brackets.
    pub id: &'static str,
    /// What it is about, in a few words.
    pub title: &'static str,
    /// When the note is printed, with the threshold.
    pub rule: &'static str,
    /// Why it matters.
    pub meaning: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

/// Finds the topic of an id.
pub fn explain(id: &str) -> Option<&'static Topic> {
    let id = current_id(id);
    TOPICS.iter().find(|topic| topic.id == id)
}

/// The id that replaced an old one, or the id itself.
pub fn current_id(id: &str) -> &str {
    rules::RENAMED.iter().find(|(old, _)| *old == id).map_or(id, |(_, new)| new)
}

/// An entry of the texts: its group, its id and its lines.
pub(crate) struct Entry {
    pub(crate) group: &'static str,
    pub(crate) id: &'static str,
    pub(crate) lines: Vec<(&'static str, &'static str)>,
}

impl Entry {
    /// The text of a key; empty if there is none.
    pub(crate) fn get(&self, key: &str) -> &'static str {
        self.lines.iter().find(|(known, _)| *known == key).map_or("", |(_, text)| text)
    }

    pub(crate) fn topic(&self) -> Topic {
        let [title, rule, meaning, remedy] = ["title", "rule", "meaning", "remedy"].map(|key| self.get(key));
        Topic { id: self.id, title, rule, meaning, remedy }
    }
}

/// Reads the texts.
pub(crate) fn entries() -> Vec<Entry> {
    let (mut group, mut entries) = ("", Vec::<Entry>::new());
    for line in include_str!("explain/topics.txt").lines() {
        if let Some(id) = line.strip_prefix("## ") {
            entries.push(Entry { group, id, lines: Vec::new() });
        } else if let Some(name) = line.strip_prefix("# ") {
            group = name;
        } else if let (Some(entry), Some(line)) = (entries.last_mut(), line.split_once(": ")) {
            entry.lines.push(line);
        }
    }
    entries
}

/// All topics: measuring, trace checks, findings, other notes, ranks, offloading, reports; in alphabetical order within each.
pub static TOPICS: LazyLock<Vec<Topic>> = LazyLock::new(|| entries().iter().map(Entry::topic).collect());

#[cfg(test)]
mod tests;
