//! Golden files: what each format looks like, and that old files stay readable.
//!
//! `LAPTIME_BLESS=1` regenerates the expected files; files of an older schema are never overwritten, so that format
//! changes show.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::complete_trace::complete_trace;
use laptime_trace::{Format, Trace, format::pftrace, read, write_to};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/formats").join(name)
}

fn is_blessing() -> bool {
    std::env::var_os("LAPTIME_BLESS").is_some()
}

fn assert_golden(name: &str, found: &[u8]) {
    let path = golden(name);
    if is_blessing() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read(&path).unwrap();
    if expected != found {
        let (expected, found) = (String::from_utf8_lossy(&expected), String::from_utf8_lossy(found));
        assert_eq!(found, expected, "`{name}` differs; `LAPTIME_BLESS=1 cargo test -p laptime-trace` accepts it");
    }
}

fn written(trace: &Trace, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_to(trace, format, &mut bytes).unwrap();
    bytes
}

#[test]
fn the_outline_is_as_it_was() {
    assert_golden("complete.outline.txt", complete_trace().outline().as_bytes());
}

#[test]
fn chrome_json_is_as_it_was() {
    assert_golden("complete.json", &written(&complete_trace(), Format::Chrome));
}

#[test]
fn speedscope_json_is_as_it_was() {
    assert_golden("complete.speedscope.json", &written(&complete_trace(), Format::Speedscope));
}

#[test]
fn folded_stacks_are_as_they_were() {
    assert_golden("complete.folded", &written(&complete_trace(), Format::Folded));
}

#[test]
fn folded_stacks_of_the_device_are_as_they_were() {
    use laptime_trace::format::folded::{By, stacks};
    let lines: String = stacks(&complete_trace(), By::Device).iter().map(|stack| format!("{stack}\n")).collect();
    assert_golden("complete.device.folded", lines.as_bytes());
}

#[test]
fn uncompressed_packets_are_as_they_were() {
    let mut bytes = Vec::new();
    pftrace::write_uncompressed(&complete_trace(), &mut bytes).unwrap();
    assert_golden("complete.uncompressed.pftrace", &bytes);
}

/// Files written with the first schema. A new schema adds files next to them.
#[test]
fn files_of_the_first_schema_read_back_whole() {
    let formats = [("complete.schema1.pftrace", Format::Pftrace), ("complete.schema1.json.gz", Format::ChromeGz)];
    for (name, format) in formats {
        let path = golden(name);
        if is_blessing() && !path.exists() {
            fs::write(&path, written(&complete_trace(), format)).unwrap();
        }
        let trace = read(&path).unwrap();
        assert_eq!(trace.outline(), complete_trace().outline(), "{name}");
        assert!(trace == complete_trace() && trace.warnings.is_empty(), "{name}");
    }
}
