use super::*;

fn differing(estimate: f64, low: f64, high: f64) -> Differing {
    let interval = Some(Interval { low, high, level: 0.95 });
    Differing { estimate, interval, processes: [10, 10] }
}

fn verdict(estimate: f64, low: f64, high: f64) -> Verdict {
    differing(estimate, low, high).verdict(0.01, 1, true)
}

fn group(typical: f64) -> Group {
    let process = |shift: f64| vec![typical * (1.0 + shift), typical * (1.001 + shift)];
    Group::new(&[-0.002, -0.001, 0.0, 0.001, 0.002, 0.0005].map(process)).unwrap()
}

fn few(typical: f64, processes: usize) -> Group {
    Group::new(&vec![vec![typical]; processes]).unwrap()
}

/// Processes with a spread of about a third.
fn wide(typical: f64, count: usize) -> Group {
    let process = |at: usize| vec![typical * (0.7 + 0.6 * (at * 7 % count) as f64 / (count - 1) as f64)];
    Group::new(&(0..count).map(process).collect::<Vec<_>>()).unwrap()
}

fn judged(a: &Group, b: &Group) -> Judged {
    judge(a, b, None)
}

#[test]
fn an_interval_on_one_side_of_zero_with_the_difference_beyond_the_margin_decides() {
    assert_eq!(verdict(0.03, 0.005, 0.06), Verdict::Slower);
    assert_eq!(verdict(-0.03, -0.06, -0.005), Verdict::Faster);
}

#[test]
fn an_interval_within_the_margin_is_the_same_even_without_zero() {
    assert_eq!(verdict(0.0, -0.01, 0.01), Verdict::Same);
    assert_eq!(verdict(0.005, 0.001, 0.009), Verdict::Same);
}

#[test]
fn a_certain_difference_at_the_margin_is_unclear() {
    assert_eq!(verdict(0.009, 0.002, 0.016), Verdict::Unclear(Reason::AroundMargin));
}

#[test]
fn an_interval_that_contains_zero_and_more_than_the_margin_is_too_wide() {
    let Verdict::Unclear(Reason::TooWide { furthest }) = verdict(0.03, -0.001, 0.06) else { panic!() };
    assert!((furthest - 0.06_f64.exp_m1()).abs() < 1e-12);
}

#[test]
fn twenty_per_cent_more_time_is_slower_and_the_reverse_is_faster() {
    let (short, long) = (group(100.0), group(120.0));
    assert_eq!(judged(&short, &long).verdict, Verdict::Slower);
    assert_eq!(judged(&long, &short).verdict, Verdict::Faster);
    assert!((judged(&short, &long).difference - 0.2).abs() < 1e-9);
}

#[test]
fn equal_iterations_are_the_same() {
    assert_eq!(judged(&group(100.0), &group(100.0)).verdict, Verdict::Same);
}

// An earlier rule used the spread as its margin, and called this "same".
#[test]
fn a_wide_spread_of_processes_does_not_hide_a_difference_beyond_the_interval() {
    let found = judged(&wide(100.0, 100), &wide(115.0, 100));
    assert_eq!((found.verdict, found.margin), (Verdict::Slower, LEAST_MARGIN), "{found:?}");
}

#[test]
fn a_wide_spread_of_processes_alone_is_never_the_same() {
    let found = judged(&wide(100.0, 10), &wide(100.0, 10));
    assert!(matches!(found.verdict, Verdict::Unclear(Reason::TooWide { .. })), "{found:?}");
}

#[test]
fn three_processes_per_side_have_no_interval_however_far_apart() {
    let found = judged(&few(1.0, 3), &few(9.0, 3));
    assert_eq!(found.verdict, Verdict::Unclear(Reason::TooFewProcesses { found: 3 }));
    assert_eq!((found.interval, found.needed), (None, Some(LEAST_PROCESSES)));
    assert_eq!(judged(&few(1.0, 4), &few(9.0, 4)).verdict, Verdict::Slower);
}

#[test]
fn one_process_per_side_has_figures_but_no_interval() {
    let found = compare(&few(1.0, 1), &few(2.0, 1), &Settings::default());
    assert_eq!((found.judged.difference, found.judged.interval, found.a.between), (1.0, None, None));
    assert_eq!((found.a.interval, found.b.interval), (None, None));
}

#[test]
fn a_threshold_raises_the_margin_and_never_lowers_it() {
    let wider = judge(&group(100.0), &group(120.0), Some(0.3));
    assert_eq!((wider.margin, wider.verdict), (0.3, Verdict::Same));
    assert_eq!(judge(&group(100.0), &group(100.0), Some(0.001)).margin, LEAST_MARGIN);
}

#[test]
fn only_an_unclear_verdict_has_a_number_of_needed_processes() {
    assert_eq!(differing(0.03, 0.005, 0.06).judged(0.01, 1, true).needed, None);
    // A half-width of 4 % must shrink to fit within 2 % with some reserve: (1.43 * 2)² times the ten processes.
    assert_eq!(differing(0.02, -0.02, 0.06).judged(0.01, 1, true).needed, Some(82));
    // Between -0.1 % and the margin there is almost no distance to fit into.
    assert_eq!(differing(0.0099, -0.03, 0.05).judged(0.01, 1, true).needed, None);
}

#[test]
fn holm_stops_at_the_first_hypothesis_that_is_not_rejected() {
    assert_eq!(holm(&[0.02, 0.01, 0.5], 0.05), [true, true, false]);
    assert_eq!(holm(&[0.03, 0.03, 0.03], 0.05), [false; 3]);
    assert_eq!(holm(&[0.05], 0.05), [true]);
    assert_eq!(holm(&[], 0.05), [false; 0]);
}

#[test]
fn one_difference_among_many_cases_needs_more_than_its_interval() {
    // Ranks of ten per side that exclude zero at 95 %, but not at 99.9 %.
    let slightly = |by: f64| {
        let side = |by: f64| Group::new(&(0..10).map(|at| vec![100.0 + by + f64::from(at)]).collect::<Vec<_>>());
        (side(0.0).unwrap(), side(by).unwrap())
    };
    let alone = judge_all(&[slightly(5.0)], None);
    assert_eq!(alone[0].verdict, Verdict::Slower, "{alone:?}");
    let mut many: Vec<(Group, Group)> = (0..40).map(|_| slightly(0.0)).collect();
    many[7] = slightly(5.0);
    many[9] = slightly(50.0);
    let found = judge_all(&many, None);
    assert_eq!(found[7].verdict, Verdict::Unclear(Reason::ManyCases { cases: 40 }));
    assert!(found[7].needed.unwrap() > 10 && found[7].interval == alone[0].interval, "{:?}", found[7]);
    assert_eq!(found[9].verdict, Verdict::Slower);
}

#[test]
fn five_processes_per_side_find_large_differences_among_many_cases() {
    let side = |by: f64| Group::new(&[-0.2, -0.1, 0.0, 0.1, 0.2].map(|at| vec![100.0 + by + at])).unwrap();
    let mut pairs: Vec<(Group, Group)> = (0..40).map(|_| (side(0.0), side(0.0))).collect();
    pairs[3].1 = side(20.0);
    assert_eq!(judge_all(&pairs, None)[3].verdict, Verdict::Slower);
    let all: Vec<(Group, Group)> = (0..40).map(|_| (side(0.0), side(20.0))).collect();
    assert!(judge_all(&all, None).iter().all(|judged| judged.verdict == Verdict::Slower));
}

#[test]
fn a_case_with_too_few_processes_does_not_count_in_the_correction() {
    let pairs = [(group(100.0), group(120.0)), (few(1.0, 1), few(9.0, 1))];
    let found = judge_all(&pairs, None);
    assert_eq!(found[0], judge(&pairs[0].0, &pairs[0].1, None));
    assert_eq!(found[1].verdict, Verdict::Unclear(Reason::TooFewProcesses { found: 1 }));
}

#[test]
fn a_reason_reads_as_a_sentence() {
    let reasons = [
        Reason::TooFewProcesses { found: 1 },
        Reason::TooFewProcesses { found: 3 },
        Reason::TooWide { furthest: -0.034 },
        Reason::ManyCases { cases: 40 },
    ];
    assert_eq!(
        reasons.map(|reason| reason.to_string()),
        [
            "1 process on a side is too few for a 95 % interval; use at least 4",
            "3 processes on a side are too few for a 95 % interval; use at least 4",
            "the difference may be zero or as large as -3.4 %",
            "a difference like this is expected by chance among 40 cases",
        ]
    );
}
