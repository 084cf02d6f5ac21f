//! Text from files and arguments cannot act on a terminal, and reaches machine formats without loss.

use std::{ffi::OsString, os::unix::ffi::OsStringExt};

use crate::common::{Place, Printed};

/// A name that clears the screen, colours it and reverses text.
const HOSTILE: &str = "a\u{1b}[Jb\u{9b}Kc\u{202e}d";
/// The same in CSV and TSV.
const ESCAPED_FIELD: &str = "a\\u{1b}[Jb\\u{9b}Kc\\u{202e}d";
const ESCAPED: &str = "a\\x1b[Jb\\u{9b}Kc\\u{202e}d";

fn trace(place: &Place) {
    let name = HOSTILE.replace('\u{1b}', "\\u001b");
    place.write("a.json", format!(r#"[{{"ph":"X","pid":1,"tid":1,"name":"{name}","ts":0,"dur":5}}]"#));
}

fn assert_harmless(printed: &Printed) {
    let text = format!("{}{}", printed.out, printed.err);
    assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{text:?}");
    assert!(text.contains(ESCAPED), "{text}");
}

#[test]
fn names_in_errors_hints_and_tables_are_shown_as_escapes() {
    let place = Place::new();
    trace(&place);
    place.write("plan.toml", format!("workload = \"{}\"\n", HOSTILE.replace('\u{1b}', "\\u001b")));
    for arguments in [
        &["stages", "a.json"][..],
        &["stages", HOSTILE],
        &["laps", "a.json", "--lap", HOSTILE],
        &["bench", HOSTILE],
        &["bench", "matmul", "--size", HOSTILE],
        &["bench", "--plan", "plan.toml"],
        &["bench", "matmul", "--device", HOSTILE],
        &["list", HOSTILE],
        &["man", HOSTILE],
        &["top", "a.json", "--most", HOSTILE],
        &["stages", "a.json", "--format", HOSTILE],
        &["convert", "a.json", HOSTILE],
        &["audit", "syncs", HOSTILE],
        &["compare", HOSTILE, HOSTILE],
    ] {
        assert_harmless(&place.laptime(arguments));
    }
}

#[test]
fn machine_formats_are_the_same_bytes_in_a_pipe_and_in_a_file() {
    let place = Place::new();
    trace(&place);
    for format in ["csv", "tsv", "json", "jsonl"] {
        let piped = place.laptime(["stages", "a.json", "--format", format]).done();
        place.laptime(["stages", "a.json", "--out", &format!("out.{format}")]).done();
        assert_eq!(piped.as_bytes(), place.read(&format!("out.{format}")), "{format}");
    }
    for name in ["out.csv", "out.tsv"] {
        let fields = String::from_utf8(place.read(name)).unwrap();
        assert!(fields.contains(ESCAPED_FIELD), "{fields:?}");
        assert!(!fields.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{fields:?}");
    }
    let json: serde_json::Value = serde_json::from_slice(&place.read("out.json")).unwrap();
    assert_eq!(json["stages"][0]["name"], HOSTILE);
}

fn not_text(name: &[u8]) -> OsString {
    OsString::from_vec(name.to_vec())
}

#[test]
fn names_that_are_not_text_are_names_all_the_same() {
    let place = Place::new();
    trace(&place);
    let bad = not_text(b"bad\xff.json");
    place.laptime([&"convert".into(), &"a.json".into(), &bad]).done();
    place.laptime([&"stages".into(), &bad]).done();
    let table = not_text(b"bad\xff.csv");
    place.laptime([&"stages".into(), &"a.json".into(), &"--out".into(), &table]).done();
    assert!(std::fs::read_to_string(place.path("").join(table)).unwrap().contains(','));
    let folder = not_text(b"run\xff");
    let words = "bench matmul --size 8 --iterations 1 --quiet --out".split(' ').map(OsString::from);
    let printed = place.laptime(words.chain([folder.clone()]));
    assert_eq!(printed.status, Some(0), "{}", printed.err);
    let printed = place.laptime([&"bench".into(), &"--resume".into(), &folder]);
    assert_eq!(printed.status, Some(0), "{}", printed.err);
}
