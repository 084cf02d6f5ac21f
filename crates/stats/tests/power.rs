//! False alarms and misses of comparing, on made-up recordings.
//!
//! The example `power_table` prints the table that the README quotes.

mod common;

use common::{Noise, TYPICAL, recording};
use laptime_stats::{CannotTry, Power, Reason, Shortfall, Tally, Trial, Verdict, power, power_of};

fn tried(between: f64, seed: u64) -> Power {
    power(&recording(Noise { between, ..TYPICAL }, seed), &Trial { seed, ..Trial::default() })
        .expect("the recording is large enough")
}

fn assert_meets_the_requirements(between: f64, seed: u64) {
    let power = tried(between, seed);
    assert_eq!(power.shortfalls(), [], "{between} {seed} {power:?}");
}

#[test]
fn a_quiet_recording_meets_the_requirements() {
    assert_meets_the_requirements(0.005, 1);
}

#[test]
fn an_ordinary_recording_meets_the_requirements() {
    assert_meets_the_requirements(0.01, 2);
}

#[test]
fn a_restless_recording_meets_the_requirements() {
    assert_meets_the_requirements(0.015, 4);
}

#[test]
fn a_very_quiet_recording_is_often_called_the_same() {
    let noise = Noise { between: 0.002, within: 0.005, ..TYPICAL };
    let power = power(&recording(noise, 1), &Trial { pairs: 50, ..Trial::default() }).unwrap();
    assert!(power.alike.same >= 20, "{power:?}");
}

#[test]
fn always_answering_unclear_falls_short() {
    let recording = recording(TYPICAL, 1);
    let silent = |_: &_, _: &_| Verdict::Unclear(Reason::AroundFloor);
    let power = power_of(&recording, &Trial::default(), silent).unwrap();
    assert_eq!(power.shortfalls(), [Shortfall::Misses, Shortfall::NeverDecides]);
    assert_eq!(power.alike.decided(), Some(0.0));
}

#[test]
fn always_answering_slower_falls_short() {
    let power = power_of(&recording(TYPICAL, 1), &Trial::default(), |_, _| Verdict::Slower).unwrap();
    assert_eq!(power.shortfalls(), [Shortfall::FalseAlarms]);
    assert_eq!(power.alike, Tally { slower: 200, ..Tally::default() });
}

#[test]
fn always_answering_same_falls_short() {
    let power = power_of(&recording(TYPICAL, 1), &Trial::default(), |_, _| Verdict::Same).unwrap();
    assert_eq!(power.shortfalls(), [Shortfall::Misses]);
}

#[test]
fn a_recording_whose_processes_differ_widely_may_hide_a_slowdown() {
    let wide = recording(Noise { between: 0.06, ..TYPICAL }, 1);
    let power = power_of(&wide, &Trial::default(), |_, _| Verdict::Same).unwrap();
    assert_eq!(power.shortfalls(), []);
}

#[test]
fn a_recording_too_small_for_two_sides_is_refused() {
    let small = recording(Noise { processes: 9, ..TYPICAL }, 1);
    let refused = CannotTry::TooFewProcesses { found: 9, a_side: 5 };
    assert_eq!(power(&small, &Trial::default()), Err(refused));
}

#[test]
fn a_trial_repeats_itself() {
    let trial = |seed| power(&recording(TYPICAL, 1), &Trial { pairs: 10, seed, ..Trial::default() });
    assert_eq!(trial(3), trial(3));
}
