//! What all questions about several traces say of them, through the program.

use std::{fs::File, process::Stdio};

use laptime_trace::{Nanos, Trace, TraceBuilder, activity::category};

use crate::common::{Place, Printed, assert_golden, data, small_trace};

/// A step of two kernels a turn, `length` microseconds each; launched `late` microseconds after they began.
fn steps(length: u64, late: u64) -> Trace {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 10, "main");
    let stream = builder.stream(0, 7, "stream 7");
    for turn in 0..5 {
        let start = 1_000 * turn;
        let at = |micros: u64| Nanos(1_000 * (start + micros));
        builder.span(main, at(0), Nanos(900_000), &format!("ProfilerStep#{turn}"), category::USER);
        for kernel in [100, 500] {
            let call = builder.span(main, at(kernel + late), Nanos(5_000), "cudaLaunchKernel", category::RUNTIME);
            let work = builder.span(stream, at(kernel + 10), Nanos(1_000 * length), "gemm", category::KERNEL);
            builder.flow(call, work);
        }
    }
    builder.build().unwrap()
}

fn place(traces: &[(&str, Trace)]) -> Place {
    let place = Place::new();
    for (name, trace) in traces {
        laptime_trace::write(trace, place.path(name)).unwrap();
    }
    place
}

#[test]
fn the_outlier_is_named() {
    let [same, short] = [300, 200].map(|length| steps(length, 0));
    let place = place(&[
        ("rank-0.json", same.clone()),
        ("rank-1.json", same.clone()),
        ("rank-2.json", short),
        ("rank-3.json", same),
    ]);
    let files = ["top", "rank-0.json", "rank-1.json", "rank-2.json", "rank-3.json"];
    let printed = place.laptime(files).done();
    assert!(printed.contains("Outlier: `rank-2.json`: device 2,000 µs (median 3,000 µs)."), "{printed}");
    assert_golden("several/top.txt", &printed);
}

#[test]
fn violations_of_trace_rules_are_counted_per_file() {
    let place = place(&[("a.json", steps(300, 0)), ("b.json", steps(300, 50)), ("c.json", steps(300, 60))]);
    for command in ["gaps", "top", "stages", "laps", "syncs", "overlap"] {
        let printed = place.laptime([command, "a.json", "b.json", "c.json"]).done();
        let notes: Vec<&str> = printed.lines().filter(|line| line.starts_with("note: ")).collect();
        assert!(notes.len() == 1 && notes[0].starts_with("note: `b.json`: device"), "{printed}");
        let printed = printed.replace('\n', " ");
        assert!(printed.contains("(1 more trace too) [before-launch]"), "{printed}");
    }
    let printed = place.laptime(["top", "a.json", "b.json", "c.json", "--format", "json"]).done();
    let answer: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let counts: Vec<_> = answer["traces"].as_array().unwrap().iter().map(|row| row["findings"].as_u64()).collect();
    assert_eq!(counts, [Some(0), Some(1), Some(1)]);
    assert!(answer["finding_before_launch"].as_str().unwrap().starts_with("`b.json`: "), "{printed}");
}

#[test]
fn every_warning_names_its_file_and_a_flood_is_counted() {
    let place = Place::new();
    let names: Vec<String> = (0..14).map(|rank| format!("rank-{rank}.json")).collect();
    for name in &names {
        // Without its end.
        laptime_trace::write(&small_trace(), place.path(name)).unwrap();
        let bytes = place.read(name);
        place.write(name, &bytes[..bytes.len() - 3]);
    }
    let printed = place.laptime(std::iter::once("stages").chain(names.iter().map(String::as_str)));
    let lines: Vec<&str> = printed.err.lines().collect();
    let (last, message) = lines.split_last().unwrap();
    assert_eq!((message.len(), printed.status), (10, Some(0)), "{}", printed.err);
    assert!(message.iter().all(|line| line.starts_with("warning: `rank-")), "{}", printed.err);
    assert!(last.starts_with("warning: 4 more") && last.contains("more warnings are not shown"), "{last}");
    let printed = place.laptime(["stages", "rank-3.json"]);
    assert!(printed.err.starts_with("warning: `rank-3.json`: "), "{}", printed.err);
}

#[test]
fn dropped_events_are_reported_per_trace() {
    let place = place(&[("a.json", steps(300, 0)), ("b.json", small_trace())]);
    let printed = place.laptime(["stages", "a.json", "b.json", "--format", "csv"]).done();
    let lost: Vec<&str> = printed.lines().map(|line| line.rsplit(',').nth(1).unwrap()).collect();
    assert_eq!(lost, ["dropped_events", "0", "4"]);
}

#[test]
fn traces_without_an_answer_are_named_up_to_a_maximum() {
    let place = place(&[("good.json", steps(300, 0))]);
    let names: Vec<String> = (0..12).map(|rank| format!("none-{rank}.json")).collect();
    let printed = place.laptime(["gaps", "good.json"].into_iter().chain(names.iter().map(String::as_str)));
    let Printed { out, err, status } = printed;
    assert!(out.contains("good.json") && status == Some(2), "{out}");
    assert_eq!(err.matches("; it is left out\n").count(), 10, "{err}");
    assert!(err.contains("warning: `none-9.json`: ") && !err.contains("none-10.json"), "{err}");
    assert!(err.contains("2 more traces that are left out are not shown"), "{err}");
    assert!(err.contains("error: 12 of 13 traces could not be analysed"), "{err}");
}

#[test]
fn an_answer_is_never_written_over_one_of_the_traces() {
    let place = place(&[("a.json", steps(300, 0)), ("b.json", steps(300, 0))]);
    let before = place.read("b.json");
    let message = place.laptime(["top", "a.json", "b.json", "--format", "json", "--out", "b.json"]).failed();
    assert!(message.contains("`--out` would overwrite the trace `b.json`"), "{message}");
    assert_eq!(place.read("b.json"), before);
}

#[test]
fn every_command_that_reads_a_trace_reads_standard_input_too() {
    let (place, file) = (Place::new(), data("syncs/decode.json"));
    let of_input = |words: &[&str]| {
        let input = Stdio::from(File::open(&file).unwrap());
        Printed::from(place.command().args(words).stdin(input).output().unwrap())
    };
    let name = file.to_str().unwrap();
    for command in ["stages", "top", "laps", "gaps", "syncs", "diagnose", "overlap"] {
        assert_eq!(of_input(&[command, "-"]), place.laptime([command, name]), "{command}");
    }
    assert_eq!(of_input(&["convert", "-", "input.json"]).done(), place.laptime(["convert", name, "file.json"]).done());
    assert_eq!(place.read("input.json"), place.read("file.json"));
    let same = |printed: Printed| printed.done().replace(name, "-");
    assert_eq!(same(of_input(&["compare", "-", name])), same(place.laptime(["compare", name, name])));
}
