//! `laptime tour`, through the program. The steps that measure run in `scripts/test`, with an optimised build.

use crate::common::Place;

#[test]
fn a_step_of_the_tour_prints_its_command_its_answer_and_what_to_do_next() {
    let place = Place::new();
    let printed = place.laptime(["tour", "--out", "my tour", "--step", "5"]).done();
    for expected in [
        "$ laptime diagnose 'my tour/torch.json.gz'",
        "Main bottleneck: host syncs make the GPU idle [sync-in-loop].",
        "Open my tour/report.html in a browser",
        "laptime record -- python train.py",
    ] {
        assert!(printed.contains(expected), "{expected} is not in:\n{printed}");
    }
    assert!(!printed.contains("2. ") && !printed.contains("--verbose"), "{printed}");
    let page = String::from_utf8(place.read("my tour/report.html")).unwrap();
    assert!(page.contains("sync-in-loop"));
    let trace = laptime_trace::read(place.path("my tour/torch.json.gz")).unwrap();
    assert_eq!((trace.lost, trace.warnings.len()), (0, 0));
}

#[test]
fn two_tours_have_two_folders() {
    let place = Place::new();
    for _ in 0..2 {
        place.laptime(["tour", "--step", "5"]).done();
    }
    assert_eq!(std::fs::read_dir(place.path("runs")).unwrap().count(), 2);
}
