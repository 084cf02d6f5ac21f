//! SQLite databases of any kind: what comes back holds together.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let path = folder.path().join("export.sqlite");
    fs::write(&path, bytes).expect("there is room for a file");
    if let Ok(trace) = laptime_trace::read(&path) {
        trace.check().expect("what is read holds together");
    }
    let beside = fs::read_dir(folder.path()).expect("the folder is there").count();
    assert_eq!(beside, 1, "nothing is left beside the file");
});
