//! The figures of cases with known answers.

use crate::fixture::{measured, processes, result, steady, timed};
use laptime_analyze::{CaseFigures, MeasuredFigures, StateFigures, TroubleKind, cases};
use laptime_stats::{Group, Sorted, Summary};
use laptime_trace::run::{
    Better, CaseResult, DeviceState, Measured, Metric, Outcome, PeakFlops, Peaks, SCHEMA, Steady, StopReason, Traffic,
    Work,
};

fn only(results: &[CaseResult]) -> MeasuredFigures {
    let mut found = cases(results, None).cases;
    assert_eq!(found.len(), 1);
    found.remove(0).measured.expect("the case was measured")
}

#[test]
fn one_process_is_summarised_by_its_iterations() {
    let iterations = steady(1000, 30);
    let wall = only(&[measured(1, 0, iterations.clone())]).wall;
    let sorted = Sorted::<f64>::from_unsorted(iterations.iter().map(|&iteration| iteration as f64).collect()).unwrap();
    let summary = Summary::of(&sorted, 1).unwrap();
    assert_eq!((wall.all.n, wall.processes, wall.median, wall.all.mean), (30, 1, summary.median, summary.mean));
    assert_eq!((wall.all.std, wall.all.min, wall.all.p95, wall.all.p99), (summary.std, summary.min, summary.p95, None));
    assert!(wall.interval.is_some() && wall.between.is_none() && wall.within.is_some());
}

#[test]
fn several_processes_are_summarised_as_a_group() {
    let results = processes(1, 1_000_000, &crate::fixture::QUIET);
    let iterations = results
        .iter()
        .map(|result| result.measured().unwrap().wall_ns.iter().map(|&iteration| iteration as f64).collect::<Vec<_>>());
    let group = Group::new(&iterations.collect::<Vec<_>>()).unwrap();
    let wall = only(&results).wall;
    assert_eq!((wall.all.n, wall.processes, wall.median), (120, 6, group.typical()));
    assert_eq!((wall.between, wall.within), (group.between(), group.within()));
}

#[test]
fn a_case_is_identified_by_workload_device_and_values() {
    let mut results = vec![measured(1, 0, vec![5]), measured(2, 0, vec![5]), measured(1, 1, vec![5])];
    results.push(CaseResult { device: "cuda:0".into(), ..measured(1, 0, vec![5]) });
    results.push(CaseResult { workload: "copy".into(), ..measured(1, 0, vec![5]) });
    let sizes =
        cases(&results, None).cases.iter().map(|case| case.measured.clone().unwrap().wall.all.n).collect::<Vec<_>>();
    assert_eq!(sizes, [2, 1, 1, 1]);
}

#[test]
fn a_case_with_some_failed_processes_is_both_measured_and_failed() {
    let failed = Outcome::Failed { errors: vec!["no".into()], wall_ns: vec![4] };
    let found = cases(&[measured(1, 0, vec![5]), result(1, 1, failed)], None);
    assert!(found.has_failed());
    let CaseFigures { troubles, measured, .. } = &found.cases[0];
    assert_eq!(troubles[0].kind, TroubleKind::Failed { errors: vec!["no".into()], iterations: 1 });
    assert_eq!((found.cases[0].outcome(), measured.as_ref().unwrap().wall.processes), ("measured", 1));
}

#[test]
fn an_unmeasured_case_keeps_its_reason() {
    let none = Outcome::OutOfMemory { needed_bytes: Some(9), available_bytes: None };
    let found = cases(&[result(1, 0, none), result(2, 0, Outcome::Skipped { reason: "odd".into() })], None);
    assert!(!found.has_failed());
    assert_eq!(found.cases.iter().map(CaseFigures::outcome).collect::<Vec<_>>(), ["out_of_memory", "skipped"]);
    assert_eq!(
        found.cases[0].troubles[0].kind,
        TroubleKind::OutOfMemory { needed_bytes: Some(9), available_bytes: None }
    );
}

#[test]
fn metrics_are_summarised_over_iterations_that_have_a_value() {
    let values = vec![Some(3.0), None, Some(5.0), Some(f64::NAN)];
    let metrics = vec![
        Metric { name: "tok_s".into(), better: Better::Higher, values },
        Metric { name: "never_ms".into(), better: Better::Lower, values: vec![None] },
    ];
    let found = only(&[result(1, 0, Outcome::Measured(Measured { metrics, ..timed(vec![1, 2, 3, 4]) }))]);
    assert_eq!(found.metrics.len(), 1);
    assert_eq!((found.metrics[0].figures.all.n, found.metrics[0].figures.median), (2, 4.0));
}

#[test]
fn peaks_apply_only_to_their_device() {
    let work = Work { flops: 500, dtype: "f32".into(), bytes: 0, traffic: Traffic::Read };
    let results = [result(1, 0, Outcome::Measured(Measured { work: Some(work), ..timed(vec![10; 6]) }))];
    let flops = PeakFlops { dtype: "f32".into(), flops_s: 100e9, median: None, size: 1, threads: 1 };
    let peaks = |device: &str| Peaks {
        schema: SCHEMA,
        machine: String::new(),
        device: device.into(),
        measured: String::new(),
        flops: vec![flops.clone()],
        bandwidth: Vec::new(),
        gpu: None,
    };
    let x_limit = |device: &str| {
        let found = cases(&results, Some(&peaks(device)));
        found.cases[0].measured.as_ref().unwrap().limits.unwrap().x_limit
    };
    assert_eq!((x_limit("cpu"), x_limit("cuda:0")), (Some(2.0), None));
}

#[test]
fn memory_is_the_maximum_and_start_up_times_are_medians_of_processes() {
    let process = |run: u32, nanos: u64, peak: u64| {
        let warmup_ns = if run == 0 { vec![] } else { vec![3 * nanos] };
        let measured = Measured {
            prepare_ns: nanos,
            check_ns: 2 * nanos,
            warmup_ns,
            peak_bytes: Some(peak),
            ..timed(vec![nanos])
        };
        result(1, run, Outcome::Measured(measured))
    };
    let found = only(&[process(0, 10, 7), process(1, 20, 9), process(2, 40, 8)]);
    assert_eq!((found.prepare_ns, found.check_ns, found.first_iteration_ns), (20.0, 40.0, 60.0));
    assert_eq!((found.peak_bytes, found.peak_rss_bytes, found.warmup_iterations), (Some(9), None, 1));
}

#[test]
fn the_stop_reason_is_that_of_the_least_certain_process() {
    let process =
        |run, stopped, steady| result(1, run, Outcome::Measured(Measured { stopped, steady, ..timed(vec![5; 6]) }));
    let found = only(&[
        process(0, StopReason::NarrowInterval { half_width: 0.01 }, Steady::Reached),
        process(1, StopReason::MaxTime { half_width: Some(0.04) }, Steady::Unknown),
        process(2, StopReason::MaxTime { half_width: Some(0.03) }, Steady::Reached),
    ]);
    assert_eq!((found.stopped, found.steady), (StopReason::MaxTime { half_width: Some(0.04) }, Steady::Unknown));
}

#[test]
fn device_times_and_states_are_medians_of_iterations_that_have_them() {
    let state = |clock: f64, throttled: &[&str]| DeviceState {
        clock_mhz: Some(clock),
        throttled: throttled.iter().map(|&reason| reason.to_owned()).collect(),
        ..DeviceState::default()
    };
    let process = |run: u32, device_ns, states| {
        result(1, run, Outcome::Measured(Measured { device_ns, states, ..timed(vec![50; 3]) }))
    };
    let found = only(&[
        process(
            0,
            vec![Some(40), None, Some(42)],
            vec![state(1980.0, &[]), state(1500.0, &["hot"]), state(1980.0, &[])],
        ),
        process(1, vec![Some(44)], vec![state(1400.0, &["hot", "weak"])]),
    ]);
    assert_eq!((found.device_ns, found.busy_ns), (Some(42.0), None));
    let StateFigures { clock_mhz, power_watts, throttled, of, reasons, .. } = found.state;
    assert_eq!((clock_mhz, power_watts, throttled, of), (Some(1740.0), None, 2, 4));
    assert_eq!(reasons, ["hot", "weak"]);
}
