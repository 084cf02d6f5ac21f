//! `laptime compare`, through the program, on results with known answers.

use laptime_trace::run::{
    Case, CaseResult, Depth, Environment, Machine, Measured, Outcome, ResultsWriter, Run, SCHEMA, Settings, Stop,
    StopReason, Timing, WarmUp,
};

use crate::common::{Place, assert_golden};

/// Writes a run of two cases in six processes, whose second case takes so many milliseconds.
fn write(place: &Place, name: &str, second_ms: f64, change: impl FnOnce(&mut Run)) {
    let folder = place.path(name);
    std::fs::create_dir(&folder).unwrap();
    let machine = Machine { cpu: Some("Made Up 1".into()), cpus: 2, os: "Linux".into(), ..Machine::default() };
    let environment = Environment { machine, ..Environment::default() };
    let settings = Settings {
        warmup: WarmUp::Iterations(1),
        stop: Stop::Iterations(4),
        runs: 6,
        isolate: false,
        timeout_ns: None,
        cold: false,
        timing: Timing::Host,
        l2: None,
        depth: Depth::Pipeline,
    };
    let mut run = Run {
        schema: SCHEMA,
        command: vec!["laptime".into(), "bench".into(), "matmul".into()],
        started: "2026-11-15T09:30:00Z".into(),
        workload: "matmul".into(),
        device: "cpu".into(),
        axes: Vec::new(),
        cases: Vec::new(),
        settings,
        environment_fingerprint: environment.fingerprint(),
        environment,
        peaks: None,
    };
    change(&mut run);
    run.write(&folder).unwrap();
    let mut writer = ResultsWriter::open(&folder).unwrap();
    for process in 0..6 {
        for (size, typical_ms) in [(256, 2.0), (512, second_ms)] {
            let wall = |iteration: u32| {
                (typical_ms * 1e6 * (1.0 + 0.002 * f64::from(process % 3) + 0.001 * f64::from(iteration))) as u64
            };
            let wall_ns = (0..4).map(wall).collect();
            let measured = Measured { wall_ns, stopped: StopReason::Iterations(4), ..Measured::default() };
            let case = Case::new(vec![("size".into(), size.into())]);
            let outcome = Outcome::Measured(measured);
            let result = CaseResult::new("matmul", "cpu", case, process, &run.environment_fingerprint, outcome);
            writer.append(&result).unwrap();
        }
    }
}

#[test]
fn a_regression_is_reported_per_case_and_by_the_exit_status() {
    let place = Place::new();
    write(&place, "a", 10.0, |_| ());
    write(&place, "b", 11.0, |_| ());
    let printed = place.laptime(["compare", "a", "b"]);
    assert_eq!((printed.err.as_str(), printed.status), ("", Some(1)));
    assert_golden("compare/slower.txt", &printed.out);
    let back = place.laptime(["compare", "b", "a"]);
    assert_eq!(back.status, Some(0), "what got faster is no regression");
    let coarse = place.laptime(["compare", "a", "b/results.jsonl", "--threshold", "20%"]);
    assert_eq!(coarse.status, Some(0), "{}", coarse.out);
}

#[test]
fn the_same_run_is_the_same() {
    let place = Place::new();
    write(&place, "a", 10.0, |_| ());
    write(&place, "b", 10.0, |_| ());
    let printed = place.laptime(["compare", "a", "b", "--format", "csv"]).done();
    assert_eq!(printed.matches(",same,").count(), 2, "{printed}");
}

#[test]
fn other_machines_and_settings_are_refused_unless_asked_for_anyway() {
    let place = Place::new();
    write(&place, "a", 10.0, |_| ());
    write(&place, "machine", 10.0, |run| run.environment.machine.cpu = Some("Made Up 2".into()));
    write(&place, "settings", 10.0, |run| run.settings.warmup = WarmUp::Auto);
    for (other, expected) in [("machine", "cpu is `Made Up 1` in a and `Made Up 2` in b"), ("settings", "warm-up")] {
        let message = place.laptime(["compare", "a", other]).failed();
        assert!(message.contains("the runs were measured differently") && message.contains(expected), "{message}");
        let printed = place.laptime(["compare", "a", other, "--anyway"]);
        assert_eq!(printed.status, Some(0), "{}", printed.err);
        assert!(printed.out.contains("Made Up 2") || other == "settings", "{}", printed.out);
    }
}

#[test]
fn an_unknown_metric_is_an_error() {
    let place = Place::new();
    write(&place, "a", 10.0, |_| ());
    let message = place.laptime(["compare", "a", "a", "--metric", "tok_s"]).failed();
    assert!(message.contains("neither run has a metric `tok_s`"), "{message}");
}

#[test]
fn a_threshold_of_five_without_its_sign_is_refused() {
    let place = Place::new();
    write(&place, "a", 10.0, |_| ());
    for arguments in [&["compare", "a", "a"][..], &["ab", "--a", "true", "--b", "true"]] {
        let printed = place.laptime(arguments.iter().chain(&["--threshold", "5"]));
        assert!(printed.status == Some(2) && printed.err.contains("write `5%` for a percentage"), "{}", printed.err);
    }
    assert_eq!(place.laptime(["compare", "a", "a", "--threshold", "5%"]).status, Some(0));
}

#[test]
fn a_folder_that_is_not_a_run_is_an_error_with_a_hint() {
    let place = Place::new();
    write(&place, "a", 10.0, |_| ());
    place.write("text.jsonl", "hello\n");
    for (other, expected) in [("none", "cannot read `none`"), ("text.jsonl", "line 1, is not a run record")] {
        let message = place.laptime(["compare", "a", other]).failed();
        assert!(message.contains(expected), "{message}");
    }
}
