//! `laptime suite`, through the program.

use crate::common::{Place, assert_golden};

#[test]
fn a_dry_run_shows_the_commands_of_the_steps() {
    let place = Place::new();
    let quick = place.laptime(["suite", "--dry-run"]).done();
    assert_eq!(quick, place.laptime(["suite", "--quick", "--dry-run"]).done(), "quick is the default");
    let full = place.laptime(["suite", "--full", "--base_dir", ".", "--output_dir", "full", "--dry-run"]).done();
    assert_golden("suite/dry-run.txt", &format!("{quick}\n{full}"));
    for line in full.lines().filter(|line| line.starts_with("laptime bench ")) {
        let words = line.split_whitespace().skip(1).chain(["--dry-run"]);
        place.laptime(words).done();
    }
}

#[test]
fn the_quick_suite_writes_two_runs_a_report_and_the_files_of_nano_xyz() {
    let place = Place::new();
    let printed = place.laptime(["suite", "--device", "cpu", "--max-time", "10ms", "--out", "all", "--compat-files"]);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    assert!(printed.out.ends_with("\n3 of 3 steps successful\n"), "{}", printed.out);
    assert!(printed.err.starts_with("3 steps, about "), "{}", printed.err);
    assert!(printed.err.contains("\nStep 1/3: attention, about "), "{}", printed.err);
    assert!(printed.err.contains("\nStep 2/3: model, about "), "{}", printed.err);
    for file in [
        "all/attention/results.jsonl",
        "all/attention/attention_profile.json",
        "all/model/model_profile.json",
        "all/report/profiling_report.md",
        "all/report/attention_latency.png",
        "all/report/model_summary.csv",
        "profiling/results/attention_profile.json",
        "profiling/results/model_profile.json",
        "profiling/reports/profiling_report.md",
    ] {
        assert!(place.path(file).is_file(), "{file} is missing");
    }
    let unclear =
        "The difference in time between `sparse` and `dense` is unclear at every measured length (512 to 1024 tokens).";
    assert!(printed.out.contains("`sparse` is ") || printed.out.contains(unclear), "{}", printed.out);
}

#[test]
fn a_step_that_fails_does_not_stop_the_others() {
    let place = Place::new();
    std::fs::create_dir(place.path("all")).unwrap();
    place.write("all/model", "a file where a folder should be");
    let printed = place.laptime(["suite", "--quick", "--device", "cpu", "--max-time", "10ms", "--out", "all"]);
    assert_eq!(printed.status, Some(1), "{}", printed.err);
    assert!(printed.out.ends_with("\n2 of 3 steps successful\n"), "{}", printed.out);
    assert!(printed.err.contains("error: cannot create the folder `all/model`"), "{}", printed.err);
    assert!(place.path("all/report/attention_latency.svg").is_file());
    assert!(!place.path("all/report/model_summary.csv").exists());
}

#[test]
fn a_missing_device_fails_every_step() {
    let place = Place::new();
    let printed = place.laptime(["suite", "--device", "cuda:99", "--out", "all"]);
    assert_eq!(printed.status, Some(1), "{}", printed.err);
    assert_eq!(printed.out, "\n0 of 3 steps successful\n");
    assert!(printed.err.contains("error: no step has results"), "{}", printed.err);
}
