//! Verdicts on takes that were really recorded: few false alarms, a true slowdown is found, and "unclear" is no way out.
//!
//! `tests/data/recorded-takes` holds results of `laptime bench … --runs 40`, one file a case; its README says how they
//! were made. Groups of ten processes are drawn from them and compared with each other, as they are and slowed down.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends where it is surprised, and tells its figures"
)]

use std::path::{Path, PathBuf};

use laptime_stats::{Power, Reason, Trial, Verdict, power, power_of};
use laptime_trace::run::read_results;

const TRIAL: Trial = Trial { processes: 10, pairs: 500, slight: 1.015, slowdown: 1.05, seed: 20_261_115 };

fn recordings() -> Vec<(String, Vec<Vec<f64>>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/recorded-takes");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort();
    paths.iter().map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), takes(path))).collect()
}

/// The takes of each process.
fn takes(path: &Path) -> Vec<Vec<f64>> {
    let results = read_results(path).unwrap().results;
    let takes =
        results.iter().map(|result| result.measured().unwrap().wall_ns.iter().map(|&wall| wall as f64).collect());
    takes.collect()
}

fn told(name: &str, power: &Power) -> String {
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
fn few_false_alarms_and_a_true_slowdown_is_found_on_recorded_takes() {
    let recordings = recordings();
    let mut quiet = 0;
    for (name, takes) in &recordings {
        let power = power(takes, &TRIAL).unwrap();
        // Both spreads are seen where the test is run with `--nocapture`, and when it fails.
        println!("{}", told(name, &power));
        assert_eq!(power.alike.all(), 500);
        assert_eq!(power.shortfalls(), [], "{}", told(name, &power));
        quiet += usize::from(power.between.unwrap() < 0.02);
    }
    assert!(quiet >= 3, "recordings whose processes differ by less than 2 %, on which 5 % must be found");
}

#[test]
fn a_judge_that_is_always_unclear_fails() {
    let (_, takes) = recordings().remove(0);
    let evasive = power_of(&takes, &TRIAL, |_, _| Verdict::Unclear(Reason::AroundMargin)).unwrap();
    assert!(!evasive.shortfalls().is_empty());
}
