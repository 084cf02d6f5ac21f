//! Verdicts on recorded iterations: few false alarms, a real slowdown is found, and "unclear" is rare.
//!
//! `tests/data/recorded-takes` holds results of `laptime bench … --runs 40`, one file per case; its README describes
//! how they were recorded. Groups of ten processes are drawn from them and compared with each other, unchanged and
//! slowed down.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics on a surprise, and prints its figures")]

#[path = "../../stats/tests/common/power.rs"]
mod power;

use std::path::{Path, PathBuf};

use laptime_stats::{Reason, Verdict};
use laptime_trace::run::read_results;
use power::{Power, Trial, power, power_of};

const TRIAL: Trial = Trial { processes: 10, pairs: 500, slight: 1.015, slowdown: 1.05, seed: 20_261_115 };

fn recordings() -> Vec<(String, Vec<Vec<f64>>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/recorded-takes");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort();
    paths.iter().map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), iterations(path))).collect()
}

/// The iterations of each process.
fn iterations(path: &Path) -> Vec<Vec<f64>> {
    let results = read_results(path).unwrap().results;
    let walls = results.iter().map(|result| &result.measured().unwrap().wall_ns);
    walls.map(|walls| walls.iter().map(|&wall| wall as f64).collect()).collect()
}

fn describe(name: &str, power: &Power) -> String {
    let share = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{:.2} %", 100.0 * share));
    format!(
        "{name}: between {}, within {}; alike {:?}; slowed by 1.5 % {:?}; slowed by 5 % {:?}",
        share(power.between),
        share(power.within),
        power.alike,
        power.slight,
        power.slowed
    )
}

#[test]
fn few_false_alarms_and_a_true_slowdown_is_found_on_recorded_iterations() {
    let recordings = recordings();
    let mut quiet = 0;
    for (name, iterations) in &recordings {
        let power = power(iterations, &TRIAL).unwrap();
        // Both spreads are printed with `--nocapture` and on failure.
        println!("{}", describe(name, &power));
        assert_eq!(power.alike.all(), 500);
        assert_eq!(power.shortfalls(), [], "{}", describe(name, &power));
        quiet += usize::from(power.between.unwrap() < 0.02);
    }
    assert!(quiet >= 3, "recordings whose processes differ by less than 2 %, on which 5 % must be found");
}

#[test]
fn always_answering_unclear_falls_short_on_recorded_iterations() {
    let (_, iterations) = recordings().remove(0);
    let evasive = power_of(&iterations, &TRIAL, |_, _| Verdict::Unclear(Reason::AroundMargin)).unwrap();
    assert!(!evasive.shortfalls().is_empty());
}
