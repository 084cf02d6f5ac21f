//! Prints how often a comparison is wrong and how often it finds a slowdown, on synthetic recordings.
//!
//! `cargo run --release -p laptime-stats --example power_table`.

#![allow(clippy::print_stdout, reason = "it prints a table")]

#[path = "../tests/common/mod.rs"]
mod common;

use common::power::{Power, Trial, power};
use common::{Noise, TYPICAL, recording};

fn main() {
    println!("between  per side  false alarms  1.5 % called same  5 % found  same");
    for between in [0.002, 0.005, 0.01, 0.02, 0.05, 0.3] {
        for processes in [5, 10] {
            println!("{}", row(between, processes));
        }
    }
}

fn row(between: f64, processes: usize) -> String {
    let noise = Noise { between, within: between, processes: 4 * processes, ..TYPICAL };
    let trial = |seed| power(&recording(noise, seed), &Trial { seed, processes, ..Trial::default() });
    let tried: Vec<Power> = (0..5).filter_map(|seed| trial(seed).ok()).collect();
    let mean = |of: fn(&Power) -> Option<f64>| {
        100.0 * tried.iter().map(|power| of(power).unwrap_or(f64::NAN)).sum::<f64>() / tried.len() as f64
    };
    let [alarms, called, found, same] = [Power::false_alarms, Power::called_same, Power::found, Power::same].map(mean);
    let between = 100.0 * between;
    format!("{between:5.1} % {processes:9} {alarms:11.1} % {called:16.1} % {found:8.1} % {same:3.0} %")
}
