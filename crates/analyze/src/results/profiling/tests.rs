use laptime_trace::run::{
    Better, Build, Depth, Environment, Fact, Machine, Measured, Metric, Outcome, SCHEMA, Settings, Stop, StopReason,
    Timing, WarmUp,
};

use super::*;

fn result(workload: &str, values: &[(&str, AxisValue)], outcome: Outcome) -> CaseResult {
    let case = Case::new(values.iter().map(|(axis, value)| ((*axis).to_owned(), value.clone())).collect());
    CaseResult::new(workload, "cpu", case, 0, "", outcome)
}

fn timed(nanos: u64) -> Outcome {
    let wall_ns = (0..20).map(|iteration| nanos + nanos * (iteration % 5) / 500).collect();
    let stopped = StopReason::Iterations(20);
    Outcome::Measured(Measured { wall_ns, stopped, peak_bytes: Some(1 << 20), ..Measured::default() })
}

fn attention(kind: &str, length: i64, nanos: u64) -> CaseResult {
    result("attention", &[("attention", kind.into()), ("seq_len", length.into())], timed(nanos))
}

fn model(pass: &str, nanos: u64, losses: &[f64]) -> CaseResult {
    let values = [("model", "tiny".into()), ("pass_type", pass.into()), ("seq_len", 512.into())];
    let mut outcome = timed(nanos);
    if let Outcome::Measured(measured) = &mut outcome {
        let values = losses.iter().copied().map(Some).collect();
        measured.metrics.push(Metric { name: "loss".to_owned(), better: Better::Lower, values });
    }
    result("model", &values, outcome)
}

fn run(workload: &str, commit: &str, started: &str) -> Run {
    let build = Build { commit: commit.to_owned(), opt_level: "3".to_owned(), ..Build::default() };
    Run {
        schema: SCHEMA,
        command: Vec::new(),
        started: started.to_owned(),
        workload: workload.to_owned(),
        device: "cpu".to_owned(),
        axes: Vec::new(),
        cases: Vec::new(),
        settings: Settings {
            warmup: WarmUp::Auto,
            stop: Stop::Iterations(20),
            runs: 5,
            isolate: false,
            timeout_ns: None,
            cold: false,
            timing: Timing::Host,
            l2: None,
            depth: Depth::Pipeline,
        },
        environment_fingerprint: String::new(),
        environment: Environment {
            machine: Machine { cpus: 2, ..Machine::default() },
            build,
            ..Environment::default()
        },
        peaks: None,
    }
}

fn read(folder: &str, run: Option<Run>, results: Vec<CaseResult>) -> ProfiledRun {
    ProfiledRun { folder: folder.to_owned(), run, results }
}

fn names(runs: Vec<ProfiledRun>) -> Vec<Option<String>> {
    profiling(runs).runs.into_iter().map(|run| run.name).collect()
}

#[test]
fn a_single_run_of_a_workload_has_no_name() {
    let both = vec![
        read("a", Some(run("attention", "1", "t")), vec![attention("dense", 512, 5)]),
        read("m", Some(run("model", "2", "u")), vec![model("forward", 5, &[])]),
    ];
    assert_eq!(names(both), [None, None]);
}

#[test]
fn runs_of_one_workload_are_named_by_their_differences() {
    let one = |commit: &str, started: &str| {
        read(started, Some(run("attention", commit, started)), vec![attention("dense", 512, 5)])
    };
    let commits = names(vec![one("0123456789", "t"), one("abcdef0123+changes", "t")]);
    assert_eq!(commits, [Some("commit 0123456".to_owned()), Some("commit abcdef0+changes".to_owned())]);
    let times = names(vec![one("1", "10:00"), one("1", "11:00")]);
    assert_eq!(times, [Some("started 10:00".to_owned()), Some("started 11:00".to_owned())]);
    let folders =
        vec![read("x", None, vec![attention("dense", 512, 5)]), read("y", None, vec![attention("dense", 512, 6)])];
    assert_eq!(names(folders), [Some("x".to_owned()), Some("y".to_owned())]);
}

#[test]
fn equal_runs_without_a_common_case_share_a_name() {
    let one = |kind: &str, nanos| read(kind, Some(run("attention", "1", kind)), vec![attention(kind, 512, nanos)]);
    let answer = profiling(vec![one("dense", 1000), one("sparse", 500)]);
    assert!(answer.runs.iter().all(|run| run.name.is_none()));
    assert_eq!(answer.attention.crossovers.len(), 1, "so that they can be compared");
}

#[test]
fn results_of_runs_with_different_names_are_never_mixed() {
    let one = |commit: &str, kind: &str| {
        read(commit, Some(run("attention", commit, "t")), vec![attention(kind, 512, 5), attention("naive", 512, 6)])
    };
    let answer = profiling(vec![one("1", "dense"), one("2", "sparse")]);
    assert!(answer.attention.crossovers.iter().all(|pair| pair.base != "dense" || pair.kind != "sparse"));
    assert_eq!(answer.attention.cases.len(), 4);
}

fn rules(answer: &Profiling) -> Vec<&'static str> {
    answer.findings().iter().map(|finding| finding.rule).collect()
}

#[test]
fn no_data_gives_no_findings() {
    assert_eq!(profiling(Vec::new()).findings(), []);
    assert_eq!(profiling(vec![read("a", None, Vec::new())]).findings(), []);
}

#[test]
fn attention_findings_report_crossovers_and_growth() {
    let mut results = Vec::new();
    for length in [512, 1024, 2048_i64] {
        let n = length as u64;
        results.extend([attention("dense", length, n * n), attention("sparse", length, 1448 * n)]);
    }
    let answer = profiling(vec![read("a", None, results)]);
    let found = answer.findings();
    assert_eq!(rules(&answer), ["crossover", "crossover-memory", "growth", "peak-memory"]);
    assert!(found[0].text.starts_with("`sparse` is faster than `dense` from 1,450 ["), "{found:?}");
    assert_eq!(found[0].next.as_deref(), Some("For time, use `dense` below about 1448 tokens and `sparse` above."));
    assert!(found[2].text.contains("`attention=sparse` N^1.00 [1.00, 1.00] in time"), "{found:?}");
}

#[test]
fn a_kind_is_recommended_only_at_lengths_with_a_clear_difference() {
    let mut results = Vec::new();
    for (length, dense, sparse) in [(512, 1000, 1000), (1024, 4000, 2000)] {
        results.extend([attention("dense", length, dense), attention("sparse", length, sparse)]);
    }
    let found = profiling(vec![read("a", None, results)]).findings();
    assert_eq!(found[0].rule, "crossover");
    assert_eq!(
        found[0].next.as_deref(),
        Some("For time, use `sparse` at 1024 tokens; at other lengths the difference is unclear.")
    );
}

#[test]
fn growth_without_an_interval_is_not_claimed() {
    let flat = [512, 1024, 2048].map(|length| attention("dense", length, 1000));
    let mut few = [512, 1024, 2048].map(|length| attention("dense", length, 1000 * length as u64));
    for result in &mut few {
        if let Outcome::Measured(measured) = &mut result.outcome {
            measured.wall_ns.truncate(5);
        }
    }
    for results in [flat, few] {
        let found = profiling(vec![read("a", None, results.to_vec())]).findings();
        let growth = found.iter().find(|finding| finding.rule == "growth").unwrap();
        assert!(growth.text.contains("N: unclear in time"), "{growth:?}");
    }
}

#[test]
fn training_is_compared_with_the_forward_pass_of_the_same_case() {
    let results =
        vec![model("forward", 1000, &[]), model("forward_backward", 3000, &[]), model("step", 3500, &[6.0, 5.5, 4.0])];
    let answer = profiling(vec![read("m", None, results)]);
    let costs = answer.models.training_costs();
    assert_eq!(costs.len(), 1, "forward and backward are a part of the step");
    assert!((costs[0].ratio - 3.5).abs() < 0.01 && costs[0].length == 512);
    let found = answer.findings();
    let loss = found.iter().find(|finding| finding.rule == "loss").unwrap();
    assert_eq!(
        (loss.text.as_str(), &loss.next),
        ("The loss of `tiny` fell from 6.000 to 4.000 over 3 steps on one batch.", &None)
    );
}

#[test]
fn a_loss_curve_starts_at_the_first_update() {
    let mut step = model("step", 3500, &[4.0, 3.0]);
    if let Outcome::Measured(measured) = &mut step.outcome {
        measured.facts.push(Fact::new("check_loss", AxisValue::Float(6.0)));
        let early = Metric { name: "loss".to_owned(), better: Better::Lower, values: vec![Some(5.0)] };
        measured.warmup_metrics.push(early);
    }
    let curves = profiling(vec![read("m", None, vec![step])]).models.loss_curves();
    assert_eq!(curves[0].losses, [6.0, 5.0, 4.0, 3.0]);
}

#[test]
fn unmeasured_cases_are_listed_with_their_reason() {
    let no_room = Outcome::OutOfMemory { needed_bytes: Some(4 << 30), available_bytes: Some(1 << 30) };
    let failed = Outcome::Failed { errors: vec!["logit 3 is wrong".to_owned()], wall_ns: Vec::new() };
    let of = |length: i64, outcome| {
        result("attention", &[("attention", "naive".into()), ("seq_len", length.into())], outcome)
    };
    let answer = profiling(vec![read("a", None, vec![of(1, no_room.clone()), of(2, no_room), of(3, failed)])]);
    let found = answer.findings();
    assert_eq!(rules(&answer), ["out-of-memory", "failed"]);
    assert_eq!(
        found[0].text,
        "`seq_len=1` ran out of memory: it needs 4096 MiB, and 1024 MiB are free; 1 more case too."
    );
    assert_eq!(found[1].text, "`seq_len=3` failed: logit 3 is wrong.");
}

#[test]
fn a_doubt_becomes_a_finding_with_a_recommendation() {
    let mut of_run = run("attention", "1", "t");
    of_run.settings.runs = 1;
    let answer = profiling(vec![read("a", Some(of_run), vec![attention("dense", 512, 1000)])]);
    let doubt = answer.findings().into_iter().find(|finding| finding.rule == "one-process").unwrap();
    assert!(doubt.text.starts_with("Run of `attention`: each case ran in one process"), "{doubt:?}");
    assert_eq!(doubt.next.as_deref(), crate::explain::explain("one-process").map(|topic| topic.remedy));
}

#[test]
fn a_cold_run_gives_only_a_warm_up_finding() {
    let mut of_run = run("model", "1", "t");
    of_run.settings.cold = true;
    let mut cold = model("forward", 1000, &[]);
    if let Outcome::Measured(measured) = &mut cold.outcome {
        measured.wall_ns[0] = 9000;
    }
    let answer = profiling(vec![read("w", Some(of_run), vec![cold])]);
    assert_eq!(rules(&answer), ["warm-up"]);
    assert!(answer.models.cases.is_empty());
    assert!(
        answer.findings()[0].text.contains("Leave out the first iteration: `--warmup 1`"),
        "{:?}",
        answer.findings()
    );
}

#[test]
fn a_warm_up_study_is_summarised_once() {
    let cold = |iterations: usize| {
        let mut of_run = run("model", "1", &format!("t{iterations}"));
        of_run.settings = Settings { cold: true, warmup: WarmUp::Iterations(iterations), ..of_run.settings };
        let mut result = model("forward", 1000, &[]);
        if let Outcome::Measured(measured) = &mut result.outcome {
            measured.warmup_ns = vec![9000; iterations];
        }
        read(&format!("warmup-{iterations}"), Some(of_run), vec![result])
    };
    let answer = profiling(vec![cold(0), cold(5), cold(1)]);
    let names: Vec<Option<String>> = answer.runs.iter().map(|run| run.name.clone()).collect();
    assert_eq!(names, [0, 5, 1].map(|iterations| Some(format!("{iterations} warm-up iterations"))));
    let found = answer.findings();
    let [only] = found.as_slice() else { panic!("{found:?}") };
    assert!(
        only.text.starts_with("Run `5 warm-up iterations`: The first iteration in a fresh process took 9.00 µs"),
        "{only:?}"
    );
}
