//! `laptime top` and `laptime stages` on the traces of others and on several traces, through the program.

use crate::common::{Place, Printed, assert_golden, data, small_trace};

/// A recording of torch.profiler with two streams.
fn two_streams() -> String {
    data("kineto/two_streams.json").display().to_string()
}

#[test]
fn operations_show_the_device_time_that_they_launched() {
    let place = Place::new();
    let trace = two_streams();
    for width in ["80", "160"] {
        let printed = place.command().env("COLUMNS", width).args(["top", &trace]).output().unwrap();
        let printed = Printed::from(printed).out;
        assert!(printed.lines().all(|line| line.chars().count() <= width.parse().unwrap()), "{printed}");
        assert_golden(&format!("top/two_streams_{width}.txt"), &printed);
    }
    let printed = place.laptime(["top", &trace, "--format", "json"]).out;
    assert_golden("top/two_streams.json", &printed);
}

#[test]
fn names_are_chosen_by_side_and_text_and_put_in_order() {
    let place = Place::new();
    let trace = two_streams();
    let column = |arguments: &[&str], column: usize| {
        let all = [&["top", &trace, "--format", "tsv"], arguments].concat();
        let printed = place.laptime(all).out;
        let cells = printed.lines().skip(1).map(|line| line.split('\t').nth(column).unwrap_or_default().to_owned());
        cells.collect::<Vec<String>>()
    };
    let kinds = column(&["--side", "device"], 1);
    assert!(!kinds.is_empty() && kinds.iter().all(|kind| ["kernel", "copy", "memset"].contains(&kind.as_str())));
    let kinds = column(&["--side", "host"], 1);
    assert!(!kinds.is_empty() && kinds.iter().all(|kind| !["kernel", "copy", "memset"].contains(&kind.as_str())));
    let names = column(&["--match", "ATEN"], 0);
    assert!(!names.is_empty() && names.iter().all(|name| name.contains("aten")), "{names:?}");
    let counts: Vec<u64> = column(&["--sort", "count"], 3).iter().map(|count| count.parse().unwrap()).collect();
    assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?}");
    assert!(place.laptime(["top", &trace, "--match", "nowhere"]).out.contains("No name contains `nowhere`."));
}

#[test]
fn time_is_shown_by_kind_of_work() {
    let place = Place::new();
    let printed = place.laptime(["top", &two_streams(), "--by", "group"]);
    assert_golden("top/groups_140.txt", &printed.out);
}

#[test]
fn several_traces_give_a_row_each() {
    let place = Place::new();
    for name in ["a.json", "b.json", "c.json"] {
        laptime_trace::write(&small_trace(), place.path(name)).unwrap();
    }
    for command in ["top", "stages"] {
        let printed = place.laptime([command, "a.json", "b.json", "c.json"]).done();
        assert_golden(&format!("{command}/fleet_140.txt"), &printed);
    }
}
