use std::{collections::BTreeSet, fs, path::Path};

use super::*;
use crate::gap_verdict::VerdictKind;

#[test]
fn topics_are_unique_sorted_within_their_group_and_complete() {
    let entries = entries();
    assert!(entries.is_sorted_by(|a, b| a.group != b.group || a.id < b.id));
    let groups: Vec<&str> = entries.chunk_by(|a, b| a.group == b.group).map(|group| group[0].group).collect();
    assert_eq!(groups, ["measuring", "traces", "findings", "other notes", "ranks", "offloading", "report"]);
    let ids: BTreeSet<&str> = TOPICS.iter().map(|topic| topic.id).collect();
    assert_eq!(ids.len(), TOPICS.len());
    for topic in TOPICS.iter() {
        assert!(is_kebab(topic.id), "{}", topic.id);
        for text in [topic.rule, topic.meaning, topic.remedy] {
            assert!(text.ends_with('.') && !text.contains("  "), "{}: {text}", topic.id);
        }
    }
}

#[test]
fn known_ids_are_found_and_unknown_words_are_not() {
    assert_eq!(explain("unsteady").map(|topic| topic.title), Some("timings did not reach a steady state"));
    assert_eq!(explain("steady"), None);
}

fn is_kebab(id: &str) -> bool {
    !id.is_empty() && id.chars().all(|char| char.is_ascii_lowercase() || char == '-')
}

#[test]
fn every_verdict_about_idle_time_is_explained() {
    for kind in VerdictKind::ALL {
        assert!(explain(kind.id()).is_some(), "{}", kind.id());
    }
}

/// How an id appears in the source: as the field of a finding or note, or as the argument of a constructor.
const MARKS: [&str; 4] = ["rule: \"", "id: \"", "Note::new(\"", "KeyFinding::new(\""];

#[test]
fn every_id_in_the_source_is_kebab_case_and_explained() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeSet::new();
    for name in ["analyze", "report", "laptime"] {
        gather(&crates.join(name).join("src"), &mut found);
    }
    assert!(found.len() > 30, "the scan finds the findings: {found:?}");
    for id in found {
        assert!(is_kebab(&id) && explain(&id).is_some(), "`{id}` has no topic");
    }
}

fn gather(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        if entry.is_dir() && name != "explain" {
            gather(&entry, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&entry).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap();
            // Only structs with a rule or an id of this crate's kind: both fields hold one word.
            for mark in MARKS {
                let ids = text.split(mark).skip(1).filter_map(|rest| rest.split('"').next());
                found.extend(ids.filter(|id| !id.is_empty() && !id.contains(' ')).map(str::to_owned));
            }
            if name == "doubt.rs" {
                let ids = text.split("fn id(").nth(1).unwrap().split("\n    }").next().unwrap();
                found.extend(ids.split("=> \"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned));
            }
        }
    }
}
