//! Whole tables in every format, compared with the files in `tests/data`.
//!
//! `LAPTIME_BLESS=1 cargo test -p laptime-report` writes the files anew.

mod tables;

use std::path::PathBuf;
use std::{env, fs};

use laptime_report::{Format, Table, TextStyle, write};

fn written(table: &Table, format: Format, style: TextStyle) -> String {
    let mut out = Vec::new();
    write(table, format, style, &mut out).expect("a vector takes everything");
    String::from_utf8(out).expect("all formats are text")
}

fn compare(file: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file);
    if env::var_os("LAPTIME_BLESS").is_some() {
        fs::write(&path, found).expect("the golden file can be written");
    }
    let expected = fs::read_to_string(&path).expect("the golden file can be read");
    assert!(found == expected, "`{file}` differs; found:\n{found}");
}

fn compare_text(case: &str, table: &Table, width: usize) {
    let style = TextStyle { width, colour: false };
    compare(&format!("{case}_{width}.txt"), &written(table, Format::Text, style));
}

fn compare_others(case: &str, table: &Table) {
    let style = TextStyle { width: 80, colour: false };
    for format in Format::ALL.into_iter().filter(|&format| format != Format::Text) {
        compare(&format!("{case}.{format}"), &written(table, format, style));
    }
}

#[test]
fn stages_look_right_on_a_narrow_terminal() {
    compare_text("stages", &tables::stages(), 80);
}

#[test]
fn stages_look_right_on_a_wide_terminal() {
    compare_text("stages", &tables::stages(), 140);
}

#[test]
fn stages_look_right_in_colour() {
    let style = TextStyle { width: 140, colour: true };
    compare("stages_colour.txt", &written(&tables::stages(), Format::Text, style));
}

#[test]
fn stages_look_right_in_all_other_formats() {
    compare_others("stages", &tables::stages());
}

#[test]
fn a_doctor_looks_right_on_a_terminal() {
    compare_text("doctor", &tables::doctor(), 80);
    compare_text("doctor", &tables::doctor(), 140);
}

#[test]
fn a_doctor_looks_right_in_all_other_formats() {
    compare_others("doctor", &tables::doctor());
}

#[test]
fn hostile_names_do_no_harm_on_a_terminal() {
    compare_text("hostile", &tables::hostile(), 80);
    compare_text("hostile", &tables::hostile(), 140);
}

#[test]
fn hostile_names_do_no_harm_in_all_other_formats() {
    compare_others("hostile", &tables::hostile());
}
