//! Tables as golden files.

mod file;

pub use file::compare;

use laptime_report::{Format, Table, TextStyle, write};

/// Writes a table.
pub fn written(table: &Table, format: Format, style: TextStyle) -> String {
    let mut out = Vec::new();
    write(table, format, style, &mut out).expect("writing to a vector cannot fail");
    String::from_utf8(out).expect("all formats are text")
}

/// Compares a table on a terminal of a width.
pub fn compare_text(case: &str, table: &Table, width: usize) {
    let style = TextStyle::plain(width);
    compare(&format!("{case}_{width}.txt"), &written(table, Format::Text, style));
}

/// Compares a table in all formats but text.
pub fn compare_others(case: &str, table: &Table) {
    let style = TextStyle::plain(80);
    for format in Format::ALL.into_iter().filter(|&format| format != Format::Text) {
        compare(&format!("{case}.{format}"), &written(table, format, style));
    }
}
