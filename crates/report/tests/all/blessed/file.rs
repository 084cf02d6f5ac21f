//! Golden files: what is written is compared with `tests/data`, or becomes it if `LAPTIME_BLESS` is set.

use std::path::PathBuf;
use std::{env, fs};

/// Compares text with a golden file.
pub fn compare(file: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file);
    if env::var_os("LAPTIME_BLESS").is_some() {
        fs::write(&path, found).expect("the golden file can be written");
    }
    let expected = fs::read_to_string(&path).expect("the golden file can be read");
    assert!(found == expected, "`{file}` differs; found:\n{found}");
}
