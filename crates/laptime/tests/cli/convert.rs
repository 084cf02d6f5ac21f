//! `laptime convert`, through the program.

use crate::common::{Place, assert_golden, small_trace};

#[test]
fn a_trace_survives_the_lossless_formats() {
    let place = Place::new();
    laptime_trace::write(&small_trace(), place.path("a.pftrace")).unwrap();
    let dropped = "warning: 4 events were dropped while recording\n";
    for (from, to) in [("a.pftrace", "b.json"), ("b.json", "c.json.gz"), ("c.json.gz", "d.perfetto-trace")] {
        let printed = place.laptime(["convert", from, to]);
        assert_eq!((printed.out.as_str(), printed.err.as_str(), printed.status), ("", dropped, Some(0)));
    }
    assert_eq!(laptime_trace::read(place.path("d.perfetto-trace")).unwrap(), small_trace());
}

#[test]
fn stacks_are_folded_by_host_and_by_device() {
    let place = Place::new();
    laptime_trace::write(&small_trace(), place.path("a.json")).unwrap();
    for side in ["host", "device"] {
        assert_eq!(place.laptime(["convert", "a.json", "a.folded", "--by", side]).status, Some(0));
        assert_golden(&format!("small/{side}.folded"), &String::from_utf8(place.read("a.folded")).unwrap());
    }
}

#[test]
fn a_flame_graph_is_drawn_by_host_and_by_device() {
    let place = Place::new();
    laptime_trace::write(&small_trace(), place.path("a.json")).unwrap();
    for side in ["host", "device"] {
        assert_eq!(place.laptime(["convert", "a.json", "a.svg", "--by", side]).status, Some(0));
        let drawn = String::from_utf8(place.read("a.svg")).unwrap();
        assert!(drawn.contains("<svg") && drawn.contains("forward") && drawn.contains(&format!("{side} time")));
        assert_eq!(drawn.contains("prefill"), side == "host");
    }
}

#[test]
fn a_speedscope_file_holds_the_spans() {
    let place = Place::new();
    laptime_trace::write(&small_trace(), place.path("a.json")).unwrap();
    assert_eq!(place.laptime(["convert", "a.json", "a.speedscope.json"]).status, Some(0));
    let written: serde_json::Value = serde_json::from_slice(&place.read("a.speedscope.json")).unwrap();
    let profiles = written["profiles"].as_array().unwrap();
    let names: Vec<_> = profiles.iter().map(|profile| profile["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["main", "stream 7"]);
    let message = place.laptime(["stages", "a.speedscope.json"]).failed();
    assert!(message.contains("speedscope files contain only part of a trace and cannot be read"), "{message}");
}

#[test]
fn converting_repairs_a_truncated_trace() {
    let place = Place::new();
    laptime_trace::write(&small_trace(), place.path("a.json")).unwrap();
    let whole = place.read("a.json");
    place.write("cut.json", &whole[..whole.len() * 3 / 4]);
    let printed = place.laptime(["convert", "cut.json", "good.json"]);
    assert_eq!(printed.status, Some(0));
    assert!(printed.err.contains("the file is cut off; only the events before the cut were read"), "{}", printed.err);
    assert!(laptime_trace::read(place.path("good.json")).unwrap().warnings.is_empty());
}

#[test]
fn what_is_written_through_a_link_keeps_the_link_and_the_mode() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.write("a.json", r#"[{"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"name":"a"}]"#);
    place.write("kept.json", "old");
    std::fs::set_permissions(place.path("kept.json"), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink("kept.json", place.path("link.json")).unwrap();
    place.laptime(["convert", "a.json", "link.json"]).done();
    assert!(std::fs::symlink_metadata(place.path("link.json")).unwrap().is_symlink());
    assert_eq!(std::fs::metadata(place.path("kept.json")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_ne!(place.read("kept.json"), b"old");
}
