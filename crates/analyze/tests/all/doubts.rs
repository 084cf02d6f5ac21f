//! Every doubt as text, from results that cause it.

use crate::fixture::{environment, measured, result, settings, steady, timed};
use laptime_analyze::{Doubt, SharedDoubt, cases, doubts};
use laptime_trace::run::{
    CaseResult, DeviceState, Measured, Outcome, PeakFlops, Peaks, SCHEMA, Settings, Steady, Stop, StopReason, Traffic,
    WarmUp, Work,
};

fn found(results: &[CaseResult], settings: &Settings) -> Vec<SharedDoubt> {
    doubts(&cases(results, None), settings, &environment())
}

fn text_of(results: &[CaseResult]) -> Vec<String> {
    found(results, &settings()).iter().map(SharedDoubt::to_string).collect()
}

fn one(measured: Measured) -> Vec<CaseResult> {
    vec![result(1, 0, Outcome::Measured(measured))]
}

#[test]
fn steady_iterations_in_several_processes_give_no_note() {
    assert_eq!(text_of(&crate::fixture::processes(1, 1_000_000, &crate::fixture::QUIET)), [""; 0]);
    assert_eq!(text_of(&[]), [""; 0]);
}

#[test]
fn a_slow_start_asks_for_more_warm_up() {
    let mut iterations = steady(12_400_000, 20);
    (iterations[0], iterations[1]) = (183_000_000, 20_000_000);
    let expected = "the first 2 iterations took up to 183 ms, the others 12.5 ms; use `--warmup 3`";
    assert_eq!(text_of(&[measured(1, 0, iterations)]), [expected]);
}

#[test]
fn a_slow_start_after_an_automatic_warm_up_does_not_ask_for_one() {
    let mut iterations = steady(12_400_000, 20);
    iterations[0] = 183_000_000;
    let settings = Settings { warmup: WarmUp::Auto, ..settings() };
    let text = found(&[measured(1, 0, iterations)], &settings)[0].to_string();
    assert!(text.starts_with("the first iteration took 183 ms"), "{text}");
    assert!(text.ends_with("; see `laptime warmup`"), "{text}");
}

#[test]
fn unsteady_iterations_give_a_note() {
    let expected = "timings did not reach a steady state; see `laptime warmup`";
    assert_eq!(text_of(&one(Measured { steady: Steady::NotReached, ..timed(steady(1000, 20)) })), [expected]);
    let rising = (0..40).map(|iteration| 1_000_000 + 20_000 * iteration).collect();
    assert_eq!(text_of(&[measured(1, 0, rising)]), [expected]);
}

#[test]
fn unsteady_processes_are_counted() {
    let rising = (0..40).map(|iteration| 1_000_000 + 20_000 * iteration).collect();
    let results = [measured(1, 0, rising), measured(1, 1, steady(1_000_000, 20))];
    let doubt = Doubt::NeverSteady { processes: 1, of: 2 };
    assert!(found(&results, &settings()).iter().any(|text| text.doubt == doubt));
}

#[test]
fn a_lasting_slowdown_gives_a_note() {
    let iterations = [steady(1_000_000, 20), steady(1_100_000, 40)].concat();
    let text = text_of(&[measured(1, 0, iterations)]);
    assert!(text[0].starts_with("timings rose by 10.0 % during the run"), "{text:?}");
}

#[test]
fn outliers_are_counted_with_the_worst() {
    let mut iterations = steady(1_000_000, 20);
    iterations[7] = 3_000_000;
    let text = text_of(&[measured(1, 0, iterations)]);
    assert!(text[0].starts_with("1 of 20 iterations is an outlier (worst 2.98x the median)"), "{text:?}");
}

#[test]
fn one_near_outlier_gives_no_note() {
    let mut iterations = steady(1_000_000, 20);
    iterations[7] = 1_080_000;
    assert_eq!(text_of(&[measured(1, 0, iterations)]), [""; 0]);
}

#[test]
fn a_reached_time_limit_is_reported_with_the_target_interval() {
    let stop = Stop::Interval { within: 0.02, at_least: 10, least_ns: 0, at_most_ns: 5_000_000_000 };
    let results = one(Measured { stopped: StopReason::MaxTime { half_width: Some(0.061) }, ..timed(steady(1000, 20)) });
    let text = found(&results, &Settings { stop, ..settings() })[0].to_string();
    let expected = "stopped at the limit of 5.00 s with an interval of ±6.1 % (target ±2.0 %); raise `--max-time`";
    assert_eq!(text, expected);
}

#[test]
fn a_narrow_interval_at_the_time_limit_gives_no_note() {
    let stop = Stop::Interval { within: 0.02, at_least: 50, least_ns: 0, at_most_ns: 4_000_000_000 };
    let results = one(Measured { stopped: StopReason::MaxTime { half_width: Some(0.001) }, ..timed(steady(1000, 20)) });
    assert_eq!(found(&results, &Settings { stop, ..settings() }), []);
}

#[test]
fn every_note_has_an_explanation_and_fits_on_a_line() {
    let mut iterations = steady(12_400_000, 20);
    (iterations[0], iterations[7]) = (183_000_000, 40_000_000);
    let results = [measured(1, 0, iterations), measured(2, 0, vec![5; 3])];
    for doubt in found(&results, &Settings { runs: 1, ..settings() }) {
        let note = doubt.note();
        assert!(laptime_analyze::explain(note.id).is_some(), "{note}");
        assert!(note.to_string().len() <= 120, "{note}");
    }
}

#[test]
fn too_few_iterations_or_processes_for_an_interval_give_a_note() {
    let expected = "3 iterations are too few for a 95 % interval; use `--iterations 6` or more";
    assert_eq!(text_of(&[measured(1, 0, vec![5, 5, 5])]), [expected]);
    assert!(text_of(&[measured(1, 0, vec![5])])[0].starts_with("1 iteration is too few"));
    let processes = [measured(1, 0, steady(1000, 20)), measured(1, 1, steady(1000, 20))];
    assert_eq!(text_of(&processes), ["2 processes are too few for a 95 % interval; use `--runs 6` or more"]);
}

#[test]
fn an_interrupted_case_is_reported_without_a_note_on_few_iterations() {
    let results = one(Measured { stopped: StopReason::Interrupted, ..timed(vec![5, 5]) });
    assert_eq!(text_of(&results), ["interrupted after 2 iterations; `--resume` measures it again"]);
}

#[test]
fn a_case_above_a_peak_gives_a_note_about_the_peak() {
    let work = Work { flops: 2_000, dtype: "f32".into(), bytes: 0, traffic: Traffic::Read };
    let flops = PeakFlops { dtype: "f32".into(), flops_s: 100e9, median: None, size: 1, threads: 1 };
    let peaks = Peaks {
        schema: SCHEMA,
        machine: String::new(),
        device: "cpu".into(),
        measured: String::new(),
        flops: vec![flops],
        bandwidth: Vec::new(),
        gpu: None,
    };
    let text = |nanos: u64| {
        let results = one(Measured { work: Some(work.clone()), ..timed(vec![nanos; 20]) });
        let found = doubts(&cases(&results, Some(&peaks)), &settings(), &environment());
        found.iter().map(SharedDoubt::to_string).collect::<Vec<_>>()
    };
    let expected = "133.3 % of the measured arithmetic peak is impossible; measure it again with `laptime peaks`";
    assert_eq!(text(15), [expected]);
    assert!(text(19)[0].starts_with("105.3 % of the measured"));
    assert_eq!(text(20), [""; 0]);
}

#[test]
fn processes_that_differ_more_than_their_iterations_give_a_note() {
    let results = crate::fixture::processes(1, 1_000_000, &[-0.1, -0.05, 0.0, 0.0, 0.05, 0.1]);
    let expected = "6 processes differ by 7.4 %, iterations within one by 0.4 %; compare with several `--runs`";
    assert_eq!(text_of(&results), [expected]);
}

#[test]
fn a_single_process_gives_a_note_if_no_more_were_requested() {
    let results = [measured(1, 0, steady(1_000_000, 20))];
    assert_eq!(found(&results, &settings()), []);
    let one = found(&results, &Settings { runs: 1, ..settings() });
    assert_eq!(one.iter().map(|text| text.doubt.clone()).collect::<Vec<_>>(), [Doubt::OneProcess]);
    assert!(one[0].to_string().ends_with("to compare runs, use `--runs 10`"));
}

#[test]
fn an_unoptimised_build_and_a_busy_machine_are_reported_once_and_first() {
    let mut environment = environment();
    (environment.build.opt_level, environment.load) = ("0".into(), Some(2.6));
    let found = cases(&[measured(1, 0, vec![5; 3]), measured(2, 0, vec![5; 3])], None);
    let text: Vec<String> = doubts(&found, &settings(), &environment).iter().map(SharedDoubt::to_string).collect();
    assert!(text[0].starts_with("this is a debug build (opt-level 0)"), "{text:?}");
    assert!(text[1].starts_with("load average was 2.6 on 4 CPUs"), "{text:?}");
    assert!(text[2].starts_with("2 of 2 cases (worst `size=1`): 3 iterations are too few"), "{text:?}");
}

#[test]
fn a_note_shared_by_cases_names_the_worst_one() {
    let results = [measured(1, 0, vec![5; 4]), measured(2, 0, vec![5; 2]), measured(3, 0, steady(1000, 20))];
    let text = text_of(&results);
    assert_eq!(text.len(), 1);
    assert!(text[0].starts_with("2 of 3 cases (worst `size=2`): 2 iterations are too few"), "{text:?}");
}

#[test]
fn a_note_on_one_of_many_cases_names_the_case() {
    let text = text_of(&[measured(1, 0, vec![5; 4]), measured(3, 0, steady(1000, 20))]);
    assert!(text[0].starts_with("`size=1`: 4 iterations"), "{text:?}");
}

#[test]
fn throttling_is_reported_with_its_reasons() {
    let state = |throttled: &[&str]| DeviceState {
        clock_mhz: Some(1500.0),
        throttled: throttled.iter().map(|&reason| reason.to_owned()).collect(),
        ..DeviceState::default()
    };
    let with = |states| text_of(&one(Measured { states, ..timed(steady(1000, 20)) }));
    assert_eq!(with(vec![state(&[]); 20]), [""; 0]);
    let mut states = vec![state(&[]); 20];
    states[7] = state(&["it is hot"]);
    let expected = "the device was throttled in 1 of 20 iterations (it is hot)";
    assert_eq!(with(states), [expected]);
}
