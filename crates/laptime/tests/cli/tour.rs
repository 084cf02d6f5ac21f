//! `laptime tour`, through the program.

use crate::common::Place;

#[test]
fn the_tour_records_shows_and_says_how_to_open_what_it_wrote() {
    let place = Place::new();
    let printed = place.laptime(["tour", "--out", "my tour"]).done();
    for expected in ["generate", "decode (lap)", "attention", "ui.perfetto.dev", "chrome://tracing", "flamegraph.svg"] {
        assert!(printed.contains(expected), "{expected} is not in:\n{printed}");
    }
    let trace = laptime_trace::read(place.path("my tour/trace.pftrace")).unwrap();
    assert_eq!((trace.lost, trace.warnings.len()), (0, 0));
    let names = |wanted: &str| trace.spans().filter(|span| span.name == wanted).count();
    assert_eq!((names("decode"), names("detokenize"), names("generate")), (64, 64, 1));
    assert_eq!(trace.values().len(), 64);
    assert_eq!(trace.marks().map(|mark| mark.name).collect::<Vec<_>>(), ["length_reached"]);
    assert_eq!(laptime_trace::read(place.path("my tour/trace.json")).unwrap(), trace);
}

#[test]
fn two_tours_have_two_folders() {
    let place = Place::new();
    for _ in 0..2 {
        place.laptime(["tour"]).done();
    }
    assert_eq!(std::fs::read_dir(place.path("runs")).unwrap().count(), 2);
}
