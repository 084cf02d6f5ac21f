//! Golden files: what is written is compared with `tests/data`, or becomes it if `LAPTIME_BLESS` is set.

use std::path::PathBuf;
use std::{env, fs};

use laptime_report::{Format, Table, TextStyle, write};

/// Writes a table.
pub fn written(table: &Table, format: Format, style: TextStyle) -> String {
    let mut out = Vec::new();
    write(table, format, style, &mut out).expect("a vector takes everything");
    String::from_utf8(out).expect("all formats are text")
}

/// Compares text with a golden file.
pub fn compare(file: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file);
    if env::var_os("LAPTIME_BLESS").is_some() {
        fs::write(&path, found).expect("the golden file can be written");
    }
    let expected = fs::read_to_string(&path).expect("the golden file can be read");
    assert!(found == expected, "`{file}` differs; found:\n{found}");
}

/// Compares a table on a terminal of a width.
pub fn compare_text(case: &str, table: &Table, width: usize) {
    let style = TextStyle { width, colour: false };
    compare(&format!("{case}_{width}.txt"), &written(table, Format::Text, style));
}

/// Compares a table in all formats but text.
pub fn compare_others(case: &str, table: &Table) {
    let style = TextStyle { width: 80, colour: false };
    for format in Format::ALL.into_iter().filter(|&format| format != Format::Text) {
        compare(&format!("{case}.{format}"), &written(table, format, style));
    }
}
