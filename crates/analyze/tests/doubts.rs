//! Every doubt from results that give rise to it, as it is told.

mod made;

use laptime_analyze::{Doubt, Told, cases, doubts};
use laptime_trace::run::{
    CaseResult, DeviceState, Measured, Outcome, PeakFlops, Peaks, SCHEMA, Settings, Steady, Stop, StopReason, Traffic,
    WarmUp, Work,
};
use made::{environment, measured, result, settings, steady, took};

fn found(results: &[CaseResult], settings: &Settings) -> Vec<Told> {
    doubts(&cases(results, None), settings, &environment())
}

fn told(results: &[CaseResult]) -> Vec<String> {
    found(results, &settings()).iter().map(Told::to_string).collect()
}

fn one(measured: Measured) -> Vec<CaseResult> {
    vec![result(1, 0, Outcome::Measured(measured))]
}

#[test]
fn steady_takes_in_several_processes_are_not_doubted() {
    assert_eq!(told(&made::processes(1, 1_000_000, &made::QUIET)), [""; 0]);
    assert_eq!(told(&[]), [""; 0]);
}

#[test]
fn a_slow_start_asks_for_more_warm_up_than_there_was() {
    let mut takes = steady(12_400_000, 20);
    (takes[0], takes[1]) = (183_000_000, 20_000_000);
    let expected = "the first 2 takes that count took up to 183 ms, the others 12.5 ms (median; limit: 5 % more); early calls often pay \
                    for allocation and loading. Next: `--warmup 3`.";
    assert_eq!(told(&[measured(1, 0, takes)]), [expected]);
}

#[test]
fn a_slow_start_after_a_warm_up_that_was_found_does_not_ask_to_find_it() {
    let mut takes = steady(12_400_000, 20);
    takes[0] = 183_000_000;
    let settings = Settings { warmup: WarmUp::Found, ..settings() };
    let told = found(&[measured(1, 0, takes)], &settings)[0].to_string();
    assert!(told.starts_with("the first take that counts took 183 ms"), "{told}");
    assert!(told.ends_with("Next: `laptime warmup` shows how the first takes run."), "{told}");
}

#[test]
fn takes_that_never_became_steady_are_doubted() {
    let expected = "the takes never became steady (limit: the last third of them), so their median is of something that moves. Next: `laptime warmup` \
                    shows how they run.";
    assert_eq!(told(&one(Measured { steady: Steady::Never, ..took(steady(1000, 20)) })), [expected]);
    let rising = (0..40).map(|take| 1_000_000 + 20_000 * take).collect();
    assert_eq!(told(&[measured(1, 0, rising)]), [expected]);
}

#[test]
fn unsteady_processes_are_counted() {
    let rising = (0..40).map(|take| 1_000_000 + 20_000 * take).collect();
    let results = [measured(1, 0, rising), measured(1, 1, steady(1_000_000, 20))];
    let doubt = Doubt::NeverSteady { processes: 1, of: 2 };
    assert!(found(&results, &settings()).iter().any(|told| told.doubt == doubt));
}

#[test]
fn takes_that_became_slower_for_good_are_doubted() {
    let takes = [steady(1_000_000, 20), steady(1_100_000, 40)].concat();
    let told = told(&[measured(1, 0, takes)]);
    assert!(told[0].starts_with("the takes became slower by 10.0 % and stayed so"), "{told:?}");
}

#[test]
fn outliers_are_counted_with_the_furthest() {
    let mut takes = steady(1_000_000, 20);
    takes[7] = 3_000_000;
    let told = told(&[measured(1, 0, takes)]);
    assert!(told[0].starts_with("1 of 20 takes stands apart, the furthest at 2.98 x the median"), "{told:?}");
}

#[test]
fn one_outlier_that_is_not_far_is_not_worth_a_word() {
    let mut takes = steady(1_000_000, 20);
    takes[7] = 1_080_000;
    assert_eq!(told(&[measured(1, 0, takes)]), [""; 0]);
}

#[test]
fn time_that_was_up_is_told_with_what_was_asked_for() {
    let stop = Stop::Interval { within: 0.02, at_least: 10, least_ns: 0, at_most_ns: 5_000_000_000 };
    let results = one(Measured { stopped: StopReason::TimeUp { reach: Some(0.061) }, ..took(steady(1000, 20)) });
    let told = found(&results, &Settings { stop, ..settings() })[0].to_string();
    let expected = "after 5.00 s the interval still reached 6.1 % of the median (asked for: 2.0 %); the takes vary or \
                    are long. Next: more time, with `--max-time`.";
    assert_eq!(told, expected);
}

#[test]
fn too_few_iterations_or_processes_for_an_interval_are_told() {
    let expected = "3 iterations are too few for a 95 % interval. Next: use at least 6, with `--takes 6`.";
    assert_eq!(told(&[measured(1, 0, vec![5, 5, 5])]), [expected]);
    assert!(told(&[measured(1, 0, vec![5])])[0].starts_with("1 iteration is too few"));
    let processes = [measured(1, 0, steady(1000, 20)), measured(1, 1, steady(1000, 20))];
    let expected = "2 processes are too few for a 95 % interval. Next: use at least 6, with `--runs 6`.";
    assert_eq!(told(&processes), [expected]);
}

#[test]
fn an_interrupted_case_is_told_and_its_few_takes_are_not() {
    let results = one(Measured { stopped: StopReason::Interrupted, ..took(vec![5, 5]) });
    assert_eq!(told(&results), ["it was interrupted after 2 takes. Next: `--resume` measures it anew."]);
}

#[test]
fn a_case_beyond_a_peak_doubts_the_peak() {
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
    let told = |nanos: u64| {
        let results = one(Measured { work: Some(work.clone()), ..took(vec![nanos; 20]) });
        let found = doubts(&cases(&results, Some(&peaks)), &settings(), &environment());
        found.iter().map(Told::to_string).collect::<Vec<_>>()
    };
    let expected = "it reaches 133.3 % of the measured arithmetic peak, so that peak is too low, or the operations are \
                    counted too high. Next: measure the peaks again on an idle machine, with `laptime peaks`.";
    assert_eq!(told(15), [expected]);
    assert!(told(19)[0].starts_with("it reaches 105.3 % of"));
    assert_eq!(told(20), [""; 0]);
}

#[test]
fn processes_that_differ_more_than_their_takes_ask_for_runs_until_there_are_enough() {
    let results = made::processes(1, 1_000_000, &[-0.1, -0.05, 0.0, 0.0, 0.05, 0.1]);
    let told = |runs| found(&results, &Settings { runs, ..settings() })[0].to_string();
    assert!(
        told(3).starts_with("the medians of 6 processes spread by 7.4 %, the takes within one by 0.4 %"),
        "{}",
        told(3)
    );
    assert!(told(3).ends_with("Next: `--runs 10` for whatever is compared."), "{}", told(3));
    assert!(!told(10).contains("--runs"), "{}", told(10));
}

#[test]
fn a_single_process_is_told_where_no_more_were_asked_for() {
    let results = [measured(1, 0, steady(1_000_000, 20))];
    assert_eq!(found(&results, &settings()), []);
    let one = found(&results, &Settings { runs: 1, ..settings() });
    assert_eq!(one.iter().map(|told| told.doubt.clone()).collect::<Vec<_>>(), [Doubt::OneProcess]);
    assert!(one[0].to_string().ends_with("Next: to compare, `--runs 10`."));
}

#[test]
fn an_unoptimised_build_and_a_busy_machine_are_told_once_and_first() {
    let mut environment = environment();
    (environment.build.opt_level, environment.load) = ("0".into(), Some(2.6));
    let found = cases(&[measured(1, 0, vec![5; 3]), measured(2, 0, vec![5; 3])], None);
    let told: Vec<String> = doubts(&found, &settings(), &environment).iter().map(Told::to_string).collect();
    assert!(told[0].starts_with("the program was built with opt-level 0"), "{told:?}");
    assert!(
        told[1].starts_with("2.6 processes wanted to run on 4 processors when the run began (limit: 2)"),
        "{told:?}"
    );
    assert!(told[2].starts_with("2 of 2 cases, worst `size=1`: 3 iterations are too few"), "{told:?}");
}

#[test]
fn a_doubt_that_cases_share_is_told_of_the_worst() {
    let results = [measured(1, 0, vec![5; 4]), measured(2, 0, vec![5; 2]), measured(3, 0, steady(1000, 20))];
    let told = told(&results);
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("2 of 3 cases, worst `size=2`: 2 iterations are too few"), "{told:?}");
}

#[test]
fn a_doubt_of_one_case_among_many_names_it() {
    let told = told(&[measured(1, 0, vec![5; 4]), measured(3, 0, steady(1000, 20))]);
    assert!(told[0].starts_with("`size=1`: 4 iterations"), "{told:?}");
}

#[test]
fn a_device_that_held_its_clock_down_is_told_with_its_reasons() {
    let state = |throttled: &[&str]| DeviceState {
        clock_mhz: Some(1500.0),
        throttled: throttled.iter().map(|&reason| reason.to_owned()).collect(),
        ..DeviceState::default()
    };
    let with = |states| told(&one(Measured { states, ..took(steady(1000, 20)) }));
    assert_eq!(with(vec![state(&[]); 20]), [""; 0]);
    let mut states = vec![state(&[]); 20];
    states[7] = state(&["it is hot"]);
    let expected = "at the end of 1 of 20 takes the device held its clock down (it is hot; limit: any), so the times are of a \
                    slower device. Next: `laptime doctor` shows its clock, power and temperature; let it rest, or lock a clock \
                    that it can hold.";
    assert_eq!(with(states), [expected]);
}
