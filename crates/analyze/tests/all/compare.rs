//! Comparisons of runs with known answers.

use crate::fixture::{QUIET, measured, processes, result, run, with_rate};
use laptime_analyze::{
    CompareOptions, Compared, Difference, NotCompared, RunResults, Which, compare, differences, metrics,
};
use laptime_stats::{Reason, Tally, Verdict};
use laptime_trace::run::{Better, CaseResult, Gpu, Metric, Outcome, Run, Timing, WarmUp};

fn by(a: &[CaseResult], b: &[CaseResult], how: &CompareOptions) -> Compared {
    let side = |results| RunResults { run: None, results };
    compare(&side(a), &side(b), how)
}

fn compared(a: &[CaseResult], b: &[CaseResult]) -> Compared {
    by(a, b, &CompareOptions::default())
}

fn verdicts(compared: &Compared) -> Vec<Verdict> {
    compared.cases.iter().filter_map(|case| case.pair.as_ref().ok()).map(|pair| pair.judged.verdict).collect()
}

fn sizes(sizes: [(i64, u64); 3]) -> Vec<CaseResult> {
    sizes.iter().flat_map(|(size, around)| processes(*size, *around, &QUIET)).collect()
}

#[test]
fn cases_are_matched_and_judged_one_by_one() {
    let a = sizes([(1, 1_000_000), (2, 2_000_000), (3, 3_000_000)]);
    let b = sizes([(3, 3_000_000), (2, 2_400_000), (1, 800_000)]);
    let found = compared(&a, &b);
    assert_eq!(verdicts(&found), [Verdict::Faster, Verdict::Slower, Verdict::Same]);
    assert_eq!(found.tally(), Tally { faster: 1, slower: 1, same: 1, unclear: 0 });
    let slower = found.cases[1].pair.as_ref().unwrap();
    assert!(slower.judged.interval.unwrap().contains(slower.judged.difference));
    assert!((slower.judged.difference - 0.2).abs() < 1e-3);
    assert!((slower.a.median / 2_010_000.0 - 1.0).abs() < 1e-3, "{}", slower.a.median);
    assert!(found.is_regression());
}

#[test]
fn swapping_the_sides_mirrors_every_verdict() {
    let a = sizes([(1, 1_000_000), (2, 2_000_000), (3, 3_000_000)]);
    let b = sizes([(1, 1_300_000), (2, 2_000_000), (3, 2_000_000)]);
    assert_eq!(verdicts(&compared(&a, &b)), [Verdict::Slower, Verdict::Same, Verdict::Faster]);
    assert_eq!(verdicts(&compared(&b, &a)), [Verdict::Faster, Verdict::Same, Verdict::Slower]);
}

#[test]
fn a_difference_within_the_threshold_is_not_a_regression() {
    let (a, b) = (processes(1, 1_000_000, &QUIET), processes(1, 1_200_000, &QUIET));
    assert!(compared(&a, &b).is_regression());
    let found = by(&a, &b, &CompareOptions { threshold: Some(0.3), ..CompareOptions::default() });
    assert!(!found.is_regression());
    assert_eq!(found.cases[0].pair.as_ref().unwrap().judged.margin, 0.3);
}

#[test]
fn two_processes_per_side_are_unclear() {
    let found = compared(&processes(1, 100_000, &[0.0, 0.001]), &processes(1, 900_000, &[0.0, 0.001]));
    assert_eq!(verdicts(&found), [Verdict::Unclear(Reason::TooFewProcesses { found: 2 })]);
    assert!(!found.is_regression());
    let pair = found.cases[0].pair.as_ref().unwrap();
    assert_eq!((pair.judged.interval, pair.a.interval, pair.b.interval), (None, None, None));
}

#[test]
fn one_slower_case_among_many_may_be_chance_and_is_not_a_regression() {
    // Each case slower by about its own spread: on its own that is a difference, among twelve it is not.
    let spread: Vec<f64> = (0..8).map(|at| 0.01 * f64::from(at)).collect();
    let slower: Vec<f64> = spread.iter().map(|share| share + 0.042).collect();
    let alike = |size| processes(size, 1_000_000, &spread);
    assert!(compared(&alike(0), &processes(0, 1_000_000, &slower)).is_regression());
    let a: Vec<CaseResult> = (0..12).flat_map(alike).collect();
    let b: Vec<CaseResult> =
        (0..12).flat_map(|size| if size == 0 { processes(0, 1_000_000, &slower) } else { alike(size) }).collect();
    let found = compared(&a, &b);
    assert_eq!(verdicts(&found)[0], Verdict::Unclear(Reason::ManyCases { cases: 12 }));
    assert!(!found.is_regression());
}

#[test]
fn a_higher_rate_is_faster_and_shown_as_an_increase() {
    let a = with_rate(processes(1, 1_000_000, &QUIET));
    let b = with_rate(processes(1, 800_000, &QUIET));
    let how = CompareOptions { metric: Some("tok_s".into()), ..CompareOptions::default() };
    let found = by(&a, &b, &how);
    let pair = found.cases[0].pair.as_ref().unwrap();
    assert_eq!(
        (found.metric.as_deref(), found.better, pair.judged.verdict),
        (Some("tok_s"), Better::Higher, Verdict::Faster)
    );
    assert!((pair.judged.difference - 0.25).abs() < 1e-3, "{}", pair.judged.difference);
    assert!(pair.judged.interval.unwrap().contains(pair.judged.difference));
    assert!(pair.b.median > pair.a.median);
    assert!(by(&b, &a, &how).is_regression());
}

#[test]
fn cases_that_cannot_be_compared_are_listed_with_the_reason() {
    let failed = |size| result(size, 0, Outcome::Failed { errors: vec!["no".into()], wall_ns: vec![] });
    let a = [measured(1, 0, vec![5]), measured(2, 0, vec![5]), failed(3), failed(4), measured(6, 0, vec![0])];
    let b =
        [measured(2, 0, vec![]), measured(3, 0, vec![5]), failed(4), measured(5, 0, vec![5]), measured(6, 0, vec![5])];
    let found = compared(&a, &b);
    let why: Vec<_> = found.cases.iter().map(|case| case.pair.clone().unwrap_err()).collect();
    let expected = [
        NotCompared::OnlyIn(Which::A),
        NotCompared::NotMeasured(Which::B),
        NotCompared::NotMeasured(Which::A),
        NotCompared::NotMeasuredInBoth,
        NotCompared::NoRatio(Which::A),
        NotCompared::OnlyIn(Which::B),
    ];
    assert_eq!(why, expected);
    assert!(!found.is_regression());
}

#[test]
fn a_metric_missing_on_one_side_is_reported() {
    let (a, b) = (with_rate(processes(1, 1000, &QUIET)), processes(1, 1000, &QUIET));
    let found = by(&a, &b, &CompareOptions { metric: Some("tok_s".into()), ..CompareOptions::default() });
    assert_eq!(found.cases[0].pair, Err(NotCompared::NoMetric(Which::B)));
    assert_eq!((metrics(&a), metrics(&b)), (vec!["tok_s".to_owned()], vec![]));
}

#[test]
fn a_metric_with_a_zero_has_no_ratio() {
    let with_zero = |mut results: Vec<CaseResult>| {
        let Outcome::Measured(measured) = &mut results[0].outcome else { panic!() };
        measured.metrics = vec![Metric { name: "hits".into(), better: Better::Higher, values: vec![Some(0.0)] }];
        results
    };
    let a = with_zero(processes(1, 1000, &QUIET));
    let found = by(&a, &a, &CompareOptions { metric: Some("hits".into()), ..CompareOptions::default() });
    assert_eq!(found.cases[0].pair, Err(NotCompared::NoRatio(Which::A)));
}

#[test]
fn runs_that_differ_only_in_the_commit_have_no_differences() {
    let mut other = run();
    other.environment.build.commit = "another".into();
    other.environment.build.binary = Some("another".into());
    other.environment.load = Some(9.0);
    other.environment.machine.memory_bytes = Some((16 << 30) - (200 << 20));
    assert_eq!(differences(&run(), &other), []);
}

type Change = fn(&mut Run);

fn change(change: Change) -> Vec<Difference> {
    let mut other = run();
    change(&mut other);
    differences(&run(), &other)
}

#[test]
fn decisive_and_minor_differences_are_distinguished() {
    let decisive: [(&str, Change); 7] = [
        ("device", |run| run.device = "cuda:0".into()),
        ("gpus", |run| run.environment.machine.gpus = vec![Gpu { name: "H200".into(), driver: None }]),
        ("cpus", |run| run.environment.machine.cpus = 8),
        ("cpu quota", |run| run.environment.machine.cpu_quota = Some(1.5)),
        ("optimisation", |run| run.environment.build.opt_level = "0".into()),
        ("timing", |run| run.settings.timing = Timing::Sync),
        ("assertions", |run| run.environment.build.debug_assertions = true),
    ];
    let text: [(&str, Change); 5] = [
        ("memory", |run| run.environment.machine.memory_bytes = Some(8 << 30)),
        ("virtual machine", |run| run.environment.machine.virtual_machine = Some("KVM".into())),
        ("build profile", |run| run.environment.build.profile = "ci".into()),
        ("warm-up", |run| run.settings.warmup = WarmUp::Auto),
        ("one process per", |run| run.settings.isolate = true),
    ];
    for (is_decisive, changes) in [(true, &decisive[..]), (false, &text[..])] {
        for (what, changed) in changes {
            let found = change(*changed);
            assert_eq!(found.len(), 1, "{what}: {found:?}");
            assert_eq!((found[0].what, found[0].is_decisive), (*what, is_decisive));
        }
    }
}

#[test]
fn differences_between_machines_are_decisive() {
    let (a, mut b) = (run(), run());
    let fair = |a: &Run, b: &Run| {
        let [a, b] = [a, b].map(|run| RunResults { run: Some(run), results: &[] });
        !compare(&a, &b, &CompareOptions::default()).differences.iter().any(|difference| difference.is_decisive)
    };
    b.settings.isolate = true;
    assert!(fair(&a, &b));
    b.environment.machine.cpus = 8;
    assert!(!fair(&a, &b));
}

#[test]
fn unknown_properties_are_not_differences() {
    assert_eq!(change(|run| run.environment.machine.governor = Some("performance".into())), []);
}

#[test]
fn differences_are_written_in_words() {
    let found = change(|run| run.settings.warmup = WarmUp::Iterations(3));
    let expected =
        Difference { what: "warm-up", a: "1 iteration".into(), b: "3 iterations".into(), is_decisive: false };
    assert_eq!(found, [expected]);
}
