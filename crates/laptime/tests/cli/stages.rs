//! `laptime stages` and `laptime top`, through the program.

use crate::common::{Place, assert_golden, data, small_trace};

const FORMATS: [&str; 6] = ["text", "md", "csv", "tsv", "json", "jsonl"];

#[test]
fn a_recorded_trace_gives_its_stage_tree_at_80_and_at_140_columns() {
    let place = Place::new();
    let trace = data("recorded/tour.pftrace");
    for width in ["80", "140"] {
        for command in ["stages", "top"] {
            let output = place.command().env("COLUMNS", width).arg(command).arg(&trace).output().unwrap();
            let printed = crate::common::Printed::from(output).done();
            let limit = width.parse().unwrap();
            assert!(printed.lines().all(|line| line.chars().count() <= limit), "{printed}");
            assert_golden(&format!("recorded/{command}_{width}.txt"), &printed);
        }
    }
}

#[test]
fn the_ending_of_the_file_chooses_the_format_unless_one_is_named() {
    let place = Place::new();
    laptime_trace::write(&small_trace(), place.path("small.pftrace")).unwrap();
    let written = |name: &str, more: &[&str]| {
        let printed = place.laptime([&["stages", "small.pftrace", "--out", name][..], more].concat());
        assert_eq!((printed.out.as_str(), printed.status), ("", Some(0)), "{}", printed.err);
        String::from_utf8(place.read(name)).unwrap()
    };
    let message = |format: &str| written(&format!("told-{format}"), &["--format", format]);
    for (name, format) in [
        ("a.csv", "csv"),
        ("a.tsv", "tsv"),
        ("a.json", "json"),
        ("a.jsonl", "jsonl"),
        ("a.md", "md"),
        ("A.CSV", "csv"),
        ("a.txt", "text"),
        ("a.weird", "text"),
        ("a", "text"),
    ] {
        assert_eq!(written(name, &[]), message(format), "{name}");
    }
    assert_eq!(written("b.csv", &["--format", "json"]), message("json"));
}

#[test]
fn every_format_contains_the_same_trace() {
    let place = Place::new();
    laptime_trace::write(&small_trace(), place.path("small.pftrace")).unwrap();
    for format in FORMATS {
        for command in ["stages", "top"] {
            let printed = place.laptime([command, "small.pftrace", "--format", format]);
            assert_eq!(printed.status, Some(0));
            let dropped = "warning: 4 events were dropped while recording\n";
            let has_rows_alone = ["csv", "tsv", "jsonl"].contains(&format);
            assert_eq!(printed.err, if has_rows_alone { dropped } else { "" }, "{format}");
            assert_golden(&format!("small/{command}.{format}"), &printed.out);
        }
    }
}

#[test]
fn the_answer_is_the_same_whichever_format_the_trace_is_in() {
    let place = Place::new();
    let answers: Vec<String> = ["a.pftrace", "a.json", "a.json.gz"]
        .into_iter()
        .map(|name| {
            laptime_trace::write(&small_trace(), place.path(name)).unwrap();
            // The name must not matter.
            std::fs::rename(place.path(name), place.path("trace")).unwrap();
            place.laptime(["stages", "trace"]).done()
        })
        .collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]));
}

#[test]
fn the_answer_goes_to_a_file_when_asked() {
    let place = Place::new();
    laptime_trace::write(&small_trace(), place.path("small.json")).unwrap();
    assert_eq!(place.laptime(["stages", "small.json", "--format=json", "--out", "stages.json"]).done(), "");
    let answer: serde_json::Value = serde_json::from_slice(&place.read("stages.json")).unwrap();
    assert_eq!(answer["dropped_events"], 4);
    assert_eq!(answer["stages"].as_array().unwrap().len(), 6);
}

#[test]
fn top_shows_the_requested_number_of_names_and_counts_the_rest() {
    let place = Place::new();
    laptime_trace::write(&small_trace(), place.path("small.json")).unwrap();
    let printed = place.laptime(["top", "small.json", "--most", "2"]).done();
    assert!(printed.contains("5 more names are not shown"), "{printed}");
}

/// A hundred stages of a microsecond each, and in one more of them a deep one that takes most time.
fn many_stages() -> laptime_trace::Trace {
    use laptime_trace::Nanos;
    let mut builder = laptime_trace::TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    for number in 0..100 {
        builder.span(main, Nanos(10_000 * number), Nanos(1_000), &format!("stage {number}"), "");
    }
    for (level, name) in ["outer", "middle", "inner"].into_iter().enumerate() {
        builder.span(main, Nanos(2_000_000), Nanos(500_000 - level as u64), name, "");
    }
    builder.build().unwrap()
}

#[test]
fn text_shows_the_longest_stages_and_machine_formats_all() {
    let place = Place::new();
    laptime_trace::write(&many_stages(), place.path("many.json")).unwrap();
    let printed = place.laptime(["stages", "many.json"]).done();
    assert!(printed.contains("63 stages are not shown (1,000 ns or less each); `--most 103` shows all."), "{printed}");
    assert_eq!(printed.matches("\nstage ").count(), 37, "{printed}");
    let rows = |arguments: &[&str]| {
        let printed = place.laptime([&["stages", "many.json", "--format", "tsv"], arguments].concat()).done();
        printed.lines().skip(1).map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(rows(&[]).len(), 103);
    assert_eq!(rows(&["--most", "3"]), ["outer", "outer/middle", "outer/middle/inner"]);
    assert_eq!(rows(&["--most", "2"]), ["outer", "outer/middle"]);
    assert_eq!((rows(&["--depth", "1"]).len(), rows(&["--depth", "2"]).len()), (101, 102));
    let printed = place.laptime(["stages", "many.json", "--most", "2", "--depth", "1"]).done();
    assert!(printed.contains("99 stages are not shown (1,000 ns or less each); `--most 103` shows all."), "{printed}");
    assert!(printed.contains("2 stages are deeper than `--depth 1` (500.0 µs or less each)."), "{printed}");
    let printed = place.laptime(["stages", "many.json", "--depth", "0"]);
    assert!(printed.status == Some(2) && printed.err.contains("--depth"), "{}", printed.err);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    use std::process::Stdio;
    let place = Place::new();
    laptime_trace::write(&small_trace(), place.path("small.json")).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = place.command();
    command.args(["stages", "small.json"]).stdout(writer).stderr(Stdio::piped());
    let printed = crate::common::Printed::from(command.output().unwrap());
    assert_eq!((printed.err.as_str(), printed.status), ("", Some(0)));
}

#[test]
fn underscores_in_flags_are_dashes() {
    let place = Place::new();
    laptime_trace::write(&small_trace(), place.path("small.json")).unwrap();
    place.laptime(["top", "small.json", "--most=3"]).done();
    let version = place.laptime(["--version"]).done();
    assert!(version.starts_with("laptime ") && version.contains(" build, "), "{version}");
}

#[test]
fn the_folder_of_a_run_stands_for_its_trace() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("run/traces")).unwrap();
    laptime_trace::write(&small_trace(), place.path("a.pftrace")).unwrap();
    let expected = place.laptime(["stages", "a.pftrace"]).out;
    for inside in ["run/traces/case-0.pftrace", "run/trace.json", "run/trace.pftrace"] {
        laptime_trace::write(&small_trace(), place.path(inside)).unwrap();
        for command in ["stages", "top", "syncs", "gaps", "laps", "overlap"] {
            let [by_folder, by_file] = ["run", "a.pftrace"].map(|path| place.laptime([command, path]));
            assert_eq!((by_folder.out, by_folder.status), (by_file.out, by_file.status), "{command} with {inside}");
        }
    }
    assert_eq!(place.laptime(["stages", "run"]).out, expected);
    assert!(place.laptime(["convert", "run", "it.json"]).out.is_empty() && place.path("it.json").exists());
    let several = place.laptime(["stages", "run", "a.pftrace", "--format", "csv"]).out;
    assert_eq!(several.lines().count(), 3, "{several}");
    // What would be written over is the trace in the folder.
    let over = place.laptime(["stages", "run", "--out", "run/trace.pftrace"]).failed();
    assert!(over.contains("`--out` would overwrite the trace `run/trace.pftrace`"), "{over}");
}

#[test]
fn a_folder_with_several_traces_or_none_is_one_error() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("run/traces")).unwrap();
    let none = place.laptime(["top", "run"]).failed();
    assert!(none.contains("`run` is not a run folder with a trace") && none.contains("hint: "), "{none}");
    for name in ["run/traces/case-0.pftrace", "run/traces/case-1.pftrace"] {
        laptime_trace::write(&small_trace(), place.path(name)).unwrap();
    }
    let several = place.laptime(["top", "run"]).failed();
    assert!(several.contains("`run` contains 2 traces"), "{several}");
    assert!(several.contains("hint: name one of them, such as `run/traces/case-1.pftrace`"), "{several}");
}
