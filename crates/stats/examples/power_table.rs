//! Prints how often a comparison is wrong and how often it finds a slowdown, over made-up recordings.
//!
//! `cargo run --release -p laptime-stats --example power_table` takes some minutes.

#![allow(clippy::print_stdout, reason = "a table is what it is for")]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Noise, TYPICAL, recording};
use laptime_stats::{Power, Shortfall, Trial, power};

fn main() {
    println!("between  a side  false alarms  5 % found  same  over 10 of 200  under 90 %");
    for between in [0.003, 0.005, 0.01, 0.015, 0.02] {
        for processes in [5, 10] {
            println!("{}", row(between, processes));
        }
    }
}

fn row(between: f64, processes: usize) -> String {
    let noise = Noise { between, processes: 4 * processes, ..TYPICAL };
    let trial = |seed| power(&recording(noise, seed), &Trial { seed, processes, ..Trial::default() });
    let tried: Vec<Power> = (0..20).filter_map(|seed| trial(seed).ok()).collect();
    let mean = |of: &dyn Fn(&Power) -> f64| 100.0 * tried.iter().map(of).sum::<f64>() / tried.len() as f64;
    let short = |by| tried.iter().filter(|power| power.shortfalls().contains(&by)).count();
    let alarms = mean(&|power| power.false_alarms().unwrap_or(f64::NAN));
    let found = mean(&|power| power.found().unwrap_or(f64::NAN));
    let same = mean(&|power| power.alike.same as f64 / power.alike.all() as f64);
    let (over, under) = (short(Shortfall::FalseAlarms), short(Shortfall::Misses));
    let between = 100.0 * between;
    format!("{between:5.1} % {processes:7} {alarms:11.1} % {found:8.1} % {same:3.0} % {over:8} of 20 {under:5} of 20")
}
