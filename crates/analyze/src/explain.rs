//! What every note means: the rule with its threshold, why it matters and what to do.
//!
//! This is the one source of these texts: `laptime explain`, the report and the page on notes print them.

mod bottlenecks;
mod measuring;
mod offloading;
mod ranks;
mod report;
mod traces;

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

const GROUPS: [&[Topic]; 7] = [
    measuring::TOPICS,
    traces::TOPICS,
    &rules::TOPICS,
    bottlenecks::TOPICS,
    ranks::TOPICS,
    offloading::TOPICS,
    report::TOPICS,
];

const COUNT: usize = {
    let (mut count, mut group) = (0, 0);
    while group < GROUPS.len() {
        count += GROUPS[group].len();
        group += 1;
    }
    count
};

/// All topics: measuring, trace checks, findings, other notes, ranks, offloading, reports; in alphabetical order within each.
pub const TOPICS: &[Topic] = &{
    let mut all = [GROUPS[0][0]; COUNT];
    let (mut at, mut group) = (0, 0);
    while group < GROUPS.len() {
        let mut topic = 0;
        while topic < GROUPS[group].len() {
            all[at] = GROUPS[group][topic];
            at += 1;
            topic += 1;
        }
        group += 1;
    }
    all
};

#[cfg(test)]
mod tests;
