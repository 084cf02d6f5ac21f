//! Large files are read on several threads, with the same result as on one.

use std::{fmt::Write as _, fs, io::Write as _, path::Path};

use flate2::{Compression, write::GzEncoder};
use laptime_trace::{Trace, read, read_from};

/// A trace of a few megabytes: many chunks. Lists of objects among the fields look like events.
fn large() -> String {
    let mut text = "{\"schemaVersion\": 1, \"traceEvents\": [\n".to_owned();
    for at in 0..12_000_u64 {
        let (start, correlation) = (10 * at, at + 1);
        let _ = write!(
            text,
            r#"{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": {start}.5, "dur": 2,
                "args": {{"correlation": {correlation}, "stack": [{{"file": "a.py"}}, {{"file": "b{}.py"}}]}}}},
               {{"ph": "X", "cat": "kernel", "name": "kernel {}", "pid": 0, "tid": 7, "ts": {start}.75, "dur": 9,
                "args": {{"correlation": {correlation}, "stream": 7, "device": 0}}}},
"#,
            at % 97,
            at % 31
        );
    }
    text + "{\"ph\": \"i\", \"name\": \"end\", \"ts\": 1}],\n\"displayTimeUnit\": \"ms\", \"more\": [1, 2]}\n"
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn read_file(bytes: &[u8], folder: &Path) -> Trace {
    let path = folder.join("trace");
    fs::write(&path, bytes).unwrap();
    let trace = read(&path).unwrap();
    assert_eq!(trace.check(), Ok(()));
    trace
}

fn assert_same(bytes: &[u8], folder: &Path) {
    let (from_file, from_stream) = (read_file(bytes, folder), read_from(bytes).unwrap());
    assert_eq!(from_file.warnings, from_stream.warnings);
    assert!(from_file == from_stream, "{} spans, {} spans", from_file.span_count(), from_stream.span_count());
}

#[test]
fn a_large_file_is_the_same_on_several_threads_plain_and_gzipped() {
    let (text, folder) = (large(), tempfile::tempdir().unwrap());
    let trace = read_file(text.as_bytes(), folder.path());
    assert_eq!((trace.span_count(), trace.flows().len(), trace.mark_count()), (24_000, 12_000, 1));
    assert_eq!(trace.metadata.get("more"), Some("[1, 2]"));
    assert_eq!(trace.warnings, [""; 0]);
    assert_same(text.as_bytes(), folder.path());
    assert_same(&gzipped(text.as_bytes()), folder.path());
}

#[test]
fn a_large_file_cut_off_anywhere_is_the_same_on_several_threads() {
    let (text, folder) = (large(), tempfile::tempdir().unwrap());
    let packed = gzipped(text.as_bytes());
    for part in 1..8 {
        assert_same(&text.as_bytes()[..text.len() * part / 8 + part], folder.path());
        let cut = &packed[..packed.len() * part / 8 + part];
        let trace = read_file(cut, folder.path());
        assert_eq!(trace.warnings.iter().filter(|warning| warning.contains("is cut off")).count(), 1);
    }
}

#[test]
fn damage_in_the_middle_is_the_same_on_several_threads() {
    let (text, folder) = (large(), tempfile::tempdir().unwrap());
    for (from, to) in [("\"kernel 5\"", "\"kernel 5"), ("\"ts\"", "\"ts"), ("\"dur\": 9", "\"dur\": nine"), ("{", "[")]
    {
        let half = text.len() / 2;
        let damaged = text[..half].to_owned() + &text[half..].replacen(from, to, 1);
        assert_same(damaged.as_bytes(), folder.path());
    }
}

#[test]
fn gzip_data_that_were_changed_are_reported() {
    let (text, folder) = (large(), tempfile::tempdir().unwrap());
    let mut packed = gzipped(text.as_bytes());
    let half = packed.len() / 2;
    packed[half..half + 30].fill(0x55);
    let trace = read_file(&packed, folder.path());
    let expected = "the gzip data is damaged; events before the damage may be wrong too";
    assert_eq!(trace.warnings.last().map(String::as_str), Some(expected));
}

#[test]
fn a_million_tracks_are_read() {
    let mut text = "[".to_owned();
    for at in 0..1_000_000 {
        let _ = writeln!(text, r#"{{"ph":"X","pid":{},"tid":{at},"ts":{at},"dur":1,"name":"a"}},"#, at % 3);
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = read_file(text.as_bytes(), folder.path());
    assert_eq!(trace.tracks().len(), 1_000_000);
    assert_eq!(trace.warnings, ["the closing bracket is missing; every event before it was read"]);
}

#[test]
fn one_id_a_hundred_thousand_times_does_not_take_quadratic_time() {
    let mut text = "[".to_owned();
    for at in 0..100_000 {
        let _ = write!(
            text,
            r#"{{"ph":"X","cat":"cuda_runtime","pid":1,"tid":1,"ts":{at},"dur":0.5,"name":"a","args":{{"correlation":7}}}},
               {{"ph":"X","cat":"kernel","pid":0,"tid":7,"ts":{at},"dur":0.5,"name":"k","args":{{"correlation":7,"stream":7}}}},
               {{"ph":"s","pid":1,"tid":1,"ts":{at},"id":7}},{{"ph":"f","pid":0,"tid":7,"ts":{at},"id":7,"bp":"e"}},"#
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = read_file(text.as_bytes(), folder.path());
    assert_eq!((trace.span_count(), trace.flows().len()), (200_000, 100_000));
}
