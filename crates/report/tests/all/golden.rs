//! Whole tables in every format, compared with the files in `tests/data`.
//!
//! `LAPTIME_BLESS=1 cargo test -p laptime-report` writes the files anew.

use crate::blessed::{compare, compare_others, compare_text, written};
use laptime_report::{Format, TextStyle};

#[test]
fn stages_look_right_on_a_narrow_terminal() {
    compare_text("stages", &crate::sample_tables::stages(), 80);
}

#[test]
fn stages_look_right_on_a_wide_terminal() {
    compare_text("stages", &crate::sample_tables::stages(), 140);
}

#[test]
fn stages_look_right_in_colour() {
    let style = TextStyle { colour: true, ..TextStyle::plain(140) };
    compare("stages_colour.txt", &written(&crate::sample_tables::stages(), Format::Text, style));
}

#[test]
fn stages_look_right_in_all_other_formats() {
    compare_others("stages", &crate::sample_tables::stages());
}

#[test]
fn a_doctor_looks_right_on_a_terminal() {
    compare_text("doctor", &crate::sample_tables::doctor(), 80);
    compare_text("doctor", &crate::sample_tables::doctor(), 140);
}

#[test]
fn a_doctor_looks_right_in_all_other_formats() {
    compare_others("doctor", &crate::sample_tables::doctor());
}

#[test]
fn hostile_names_do_no_harm_on_a_terminal() {
    compare_text("hostile", &crate::sample_tables::hostile(), 80);
    compare_text("hostile", &crate::sample_tables::hostile(), 140);
}

#[test]
fn hostile_names_do_no_harm_in_all_other_formats() {
    compare_others("hostile", &crate::sample_tables::hostile());
}
