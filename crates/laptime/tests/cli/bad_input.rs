//! Whatever is given, the program answers with one clear error and a hint, or reads what can be read and says so.

use std::io::Write;

use crate::common::{Place, small_trace};

#[test]
fn a_file_that_is_not_a_trace_is_an_error_with_a_hint() {
    let place = Place::new();
    place.write("empty.json", "");
    place.write("space.json", " \n\t ");
    place.write("text.json", "hello, this is no trace");
    place.write("object.json", "{\"a\":1}");
    place.write("brace.json", "{");
    place.write("newline.txt", "\nfour score and seven years ago");
    place.write("image.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    place.write("nsys.sqlite", b"SQLite format 3\0 and so on");
    place.write("packed.zst", b"\x28\xb5\x2f\xfd\0\0\0");
    place.write("half.json.gz", b"\x1f\x8b\x08\0\0");
    std::fs::create_dir(place.path("folder")).unwrap();
    for (name, expected) in [
        ("missing.json", "cannot open `missing.json`"),
        ("empty.json", "the file is empty"),
        ("space.json", "only white space"),
        ("text.json", "it begins with `hello, this `"),
        ("object.json", "it is JSON without `traceEvents`"),
        ("brace.json", "it is JSON without `traceEvents`"),
        ("newline.txt", "has no complete packet"),
        ("image.png", "it begins with the bytes 89 50 4e 47"),
        ("nsys.sqlite", "an SQLite database"),
        ("packed.zst", "zstd data"),
        ("half.json.gz", ""),
        ("folder", "`folder` is not a run folder with a trace"),
    ] {
        for command in ["stages", "top"] {
            let error = place.laptime([command, name]).failed();
            assert!(error.contains(expected), "{name}: {error}");
        }
        let error = place.laptime(["convert", name, "out.json"]).failed();
        assert!(error.contains(expected), "{name}: {error}");
        assert!(!place.path("out.json").exists());
    }
}

#[test]
fn an_unwritable_path_is_an_error_with_a_hint() {
    let place = Place::new();
    laptime_trace::write(&small_trace(), place.path("a.json")).unwrap();
    std::os::unix::fs::symlink("/dev/full", place.path("full.json")).unwrap();
    std::os::unix::fs::symlink("/dev/full", place.path("full.svg")).unwrap();
    for (out, expected) in [
        ("out.docx", "has no known format extension"),
        ("no/such/folder/out.json", "cannot write `no/such/folder/out.json`"),
        ("full.json", "No space left on device"),
        ("full.svg", "No space left on device"),
    ] {
        let printed = place.laptime(["convert", "a.json", out]);
        let error = printed.err.replacen("warning: 4 events were dropped while recording\n", "", 1);
        let error = crate::common::Printed { err: error, ..printed }.failed();
        assert!(error.contains(expected), "{out}: {error}");
    }
    let error = place.laptime(["stages", "a.json", "--out", "full.json"]).failed();
    assert!(error.contains("the disk is full"), "{error}");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = place.command().args(["stages", "a.json"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write the result"));
}

#[test]
fn a_tour_that_cannot_write_says_so() {
    let place = Place::new();
    place.write("file", "");
    let error = place.laptime(["tour", "--out", "file/inside"]).failed();
    assert!(error.contains("cannot create the folder `file/inside`"), "{error}");
}

#[test]
fn misspelt_flags_are_errors_with_a_suggestion() {
    let place = Place::new();
    for (arguments, expected) in [
        (&["stagse", "a.json"][..], "'stages'"),
        (&["stages"][..], "<TRACE>"),
        (&["stages", "a.json", "--fromat", "csv"][..], "'--format'"),
        (&["stages", "a.json", "--format", "yaml"][..], "possible values: text, md, csv, tsv, json, jsonl"),
        (&["top", "a.json", "--most", "many"][..], "invalid value 'many'"),
    ] {
        let printed = place.laptime(arguments);
        assert_eq!((printed.out.as_str(), printed.status), ("", Some(2)));
        assert!(printed.err.contains(expected), "{}", printed.err);
    }
}

#[test]
fn every_command_has_a_worked_example_in_its_help() {
    let place = Place::new();
    for command in ["tour", "stages", "top", "convert"] {
        let help = place.laptime([command, "--help"]).done();
        assert!(help.contains(&format!("Example:\n  laptime {command}")), "{help}");
    }
}

#[test]
fn a_gigabyte_of_noise_is_refused_in_little_memory() {
    let place = Place::new();
    // Sparse files: a gigabyte each that takes no room on the disk.
    for (name, start) in [("zeros", &b"\0"[..]), ("packets", b"\x0a"), ("array", b"["), ("brace", b"[{\"a\":\"")] {
        let mut file = std::fs::File::create(place.path(name)).unwrap();
        file.write_all(start).unwrap();
        file.set_len(1 << 30).unwrap();
        let shell = format!("ulimit -v 1000000; exec {} stages {name}", env!("CARGO_BIN_EXE_laptime"));
        let mut command = std::process::Command::new("sh");
        let printed =
            crate::common::Printed::from(command.current_dir(place.path("")).args(["-c", &shell]).output().unwrap());
        printed.failed();
    }
}

#[test]
fn the_trace_is_not_written_over_by_its_answer() {
    let place = Place::new();
    laptime_trace::write(&small_trace(), place.path("a.pftrace")).unwrap();
    let before = place.read("a.pftrace");
    let error = place.laptime(["stages", "a.pftrace", "--out", "./a.pftrace"]).failed();
    assert!(error.contains("`--out` would overwrite the trace"), "{error}");
    assert_eq!(place.read("a.pftrace"), before);
}

#[test]
fn a_tour_does_not_write_over_an_earlier_one() {
    let place = Place::new();
    std::fs::create_dir(place.path("old")).unwrap();
    place.write("old/trace.pftrace", "precious");
    let error = place.laptime(["tour", "--out", "old"]).failed();
    assert!(error.contains("`old` already contains a run"), "{error}");
    assert_eq!(place.read("old/trace.pftrace"), b"precious");
}

#[test]
fn a_side_without_time_is_an_error_in_every_format() {
    let place = Place::new();
    place.write("host.json", r#"[{"ph":"X","pid":1,"tid":1,"name":"a","ts":0,"dur":5}]"#);
    for out in ["out.svg", "out.folded"] {
        let error = place.laptime(["convert", "host.json", out, "--by", "device"]).failed();
        assert!(error.contains("`host.json` contains no device time"), "{error}");
    }
    let error = place.laptime(["convert", "host.json", "out.pftrace", "--by", "host"]).failed();
    assert!(error.contains("`--by` is for flame graphs and folded stacks"), "{error}");
}

#[test]
fn a_folder_at_the_path_of_the_output_is_an_error() {
    let place = Place::new();
    place.write("a.json", r#"[{"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"name":"a"}]"#);
    std::fs::create_dir(place.path("out.json")).unwrap();
    let error = place.laptime(["convert", "a.json", "out.json"]).failed();
    assert!(error.contains("that is a folder; name a file in it"), "{error}");
}

#[test]
fn a_trace_that_is_empty_or_cut_off_before_its_gpu_work_says_so() {
    let place = Place::new();
    place.write("empty.json", "[]");
    for command in ["laps", "gaps"] {
        let printed = place.laptime([command, "empty.json"]);
        assert!(printed.err.contains("the trace is empty") && printed.status == Some(2), "{}", printed.err);
    }
    place.write("cut.json", r#"[{"ph":"X","pid":1,"tid":1,"ts":0,"dur":5,"name":"a","cat":"cpu_op"},{"ph":"X","pi"#);
    let printed = place.laptime(["gaps", "cut.json"]);
    assert!(printed.err.contains("the file is cut off") && !printed.err.contains("record devices"), "{}", printed.err);
}
