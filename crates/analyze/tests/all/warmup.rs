//! Warm-ups with known answers.

use crate::fixture::{measured, result, steady, timed};
use laptime_analyze::{Advice, Answer, WarmUp, WarmUpProcess, warmup};
use laptime_trace::run::{CaseResult, Measured, Outcome};

fn only(results: &[CaseResult]) -> WarmUp {
    let mut found = warmup(results);
    assert_eq!(found.len(), 1);
    found.remove(0)
}

fn process(iterations: Vec<u64>) -> WarmUpProcess {
    only(&[measured(1, 0, iterations)]).processes.remove(0)
}

fn cold(first: &[u64], around: u64) -> Vec<u64> {
    [first, &steady(around, 30)].concat()
}

#[test]
fn a_warm_up_has_its_length_and_cost() {
    let found = process(cold(&[9000, 3000, 2000], 1000));
    assert_eq!((found.answer, found.until_steady, found.steady_ns), (Answer::WarmUp, Some(3), Some(1005.0)));
    assert_eq!(found.extra_ns, Some(14_000.0 - 3.0 * 1005.0));
}

#[test]
fn every_trend_has_a_word() {
    let rising = (0..40).map(|iteration| 1000 + 20 * iteration).collect();
    let slower = [steady(1000, 10), steady(1500, 40)].concat();
    let answers = [steady(1000, 30), cold(&[9000], 1000), slower, rising, vec![5; 9]]
        .map(|iterations| process(iterations).answer);
    let words = ["flat", "warm-up", "slow-down", "no steady state", "too short"];
    assert_eq!(answers.map(Answer::words), words);
}

#[test]
fn a_slowdown_has_no_extra_time() {
    let found = process([steady(1000, 10), steady(1500, 40)].concat());
    assert_eq!((found.answer, found.extra_ns), (Answer::SlowDown, Some(0.0)));
}

#[test]
fn warm_up_iterations_are_analysed_too() {
    let process = Measured { warmup_ns: vec![9000, 3000], ..timed(steady(1000, 30)) };
    let found = only(&[result(1, 0, Outcome::Measured(process))]);
    assert_eq!((found.leave_out(), found.processes[0].iterations_ns.len()), (Some(2), 32));
}

#[test]
fn the_longest_warm_up_of_any_process_decides() {
    let found = only(&[measured(1, 0, cold(&[9000], 1000)), measured(1, 1, cold(&[9000, 3000, 2000], 1000))]);
    assert_eq!((found.leave_out(), found.advice()), (Some(3), Some(Advice::LeaveOut { iterations: 3 })));
    assert_eq!(found.advice().unwrap().to_string(), "leave out the first 3 iterations: `--warmup 3`.");
}

#[test]
fn one_unsteady_process_prevents_the_advice() {
    let rising = (0..40).map(|iteration| 1000 + 20 * iteration).collect();
    let found = only(&[measured(1, 0, cold(&[9000], 1000)), measured(1, 1, rising)]);
    assert_eq!((found.leave_out(), found.advice()), (None, Some(Advice::NeverSteady { processes: 1, of: 2 })));
}

#[test]
fn flat_and_short_processes_have_their_own_advice() {
    let flat = only(&[measured(1, 0, steady(1000, 30))]);
    assert_eq!(flat.advice(), Some(Advice::NoneNeeded));
    let short = only(&[measured(1, 0, steady(1000, 30)), measured(1, 1, vec![5; 4])]);
    assert_eq!(short.advice(), Some(Advice::TooShort { processes: 1, of: 2 }));
    assert!(short.advice().unwrap().to_string().starts_with("1 of 2 processes had fewer than 10 iterations"));
}

/// The shape of a published story: 25 231 ± 17 262 tokens a second with cold iterations, 42 935 ± 240 without.
#[test]
fn a_mean_over_cold_iterations_is_far_off() {
    let found = only(&[measured(1, 0, cold(&[60_000_000, 40_000_000, 20_000_000], 1_000_000))]);
    let averaged = found.averaged.unwrap();
    assert_eq!(averaged.steady_ns, 1_005_000.0);
    let mean = (120_000_000.0 + steady(1_000_000, 30).iter().sum::<u64>() as f64) / 33.0;
    assert!((averaged.error - (mean / 1_005_000.0 - 1.0)).abs() < 1e-12, "{averaged:?}");
    assert!(averaged.error > 3.0 && averaged.std_ns.unwrap() > averaged.mean_ns);
}

#[test]
fn a_case_without_iterations_keeps_its_reason_and_gets_no_advice() {
    let found = only(&[result(1, 0, Outcome::Skipped { reason: "odd".into() })]);
    assert_eq!((found.advice(), found.averaged, found.troubles.len()), (None, None, 1));
}
