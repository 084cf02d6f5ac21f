use std::f64::consts::SQRT_2;

use laptime_trace::run::{AxisValue, Case, Measured, Outcome};
use proptest::prelude::*;

use super::*;

/// Takes around a time that differ by 1 %.
fn takes(nanos: f64) -> Vec<u64> {
    (0..20).map(|iteration| (nanos * (1.0 + 0.001 * ((iteration * 7) % 11) as f64)) as u64).collect()
}

fn result(kind: &str, length: i64, batch: i64, wall_ns: Vec<u64>, peak_bytes: u64) -> CaseResult {
    let values: [(&str, AxisValue); 4] = [
        ("attention", kind.into()),
        ("seq_len", length.into()),
        ("batch_size", batch.into()),
        ("pattern", "small".into()),
    ];
    let case = Case::new(values.map(|(axis, value)| (axis.to_owned(), value)).to_vec());
    let measured = Measured { wall_ns, peak_bytes: Some(peak_bytes), ..Measured::default() };
    CaseResult::new("attention", "cpu", case, 0, "", Outcome::Measured(measured))
}

/// Dense and sparse attention that iteration these times at 512, 1024, 2048 …
fn both(dense: &[f64], sparse: &[f64]) -> Vec<CaseResult> {
    let of = |kind: &'static str, times: &[f64]| {
        let each = |(at, time): (usize, &f64)| result(kind, 512 << at, 1, takes(1e6 * time), 1 << (20 + at));
        times.iter().enumerate().map(each).collect::<Vec<_>>()
    };
    [of("dense", dense), of("sparse", sparse)].concat()
}

fn only(results: &[CaseResult]) -> Crossover {
    let answer = crossovers(results);
    let [only] = answer.as_slice() else { panic!("{answer:?}") };
    only.clone()
}

#[test]
fn curves_that_meet_between_two_lengths_cross_there() {
    // Dense takes N² and sparse 1448 N: the same at 1448, the middle between 1024 and 2048 on a log scale.
    let sparse = [0.5, 1.0, 2.0, 4.0].map(|time| SQRT_2 * time);
    let crossover = only(&both(&[0.25, 1.0, 4.0, 16.0], &sparse));
    let Some(Answer::From(Crossing { length, ends: Some(Ends { low: Some(low), high: Some(high) }) })) = crossover.time
    else {
        panic!("{crossover:?}")
    };
    assert!((length - 1448.15).abs() < 5.0, "{length}");
    assert!(low < length && length < high && high - low < 40.0, "{low} {high}");
    assert!((crossover.faster[3].ratio - 2.828).abs() < 0.01);
    assert!(crossover.faster[3].interval.unwrap().contains(2.828));
}

#[test]
fn each_answer_is_a_sentence() {
    let said = |dense: &[f64], sparse: &[f64]| only(&both(dense, sparse)).time_sentence().unwrap();
    assert_eq!(
        said(&[1.0, 4.0], &[0.5, 1.0]),
        "`sparse` is faster than `dense` at every measured length (512 to 1024 tokens); at 1024 tokens it takes 0.25 [0.25, 0.25] times as long"
    );
    assert!(
        said(&[1.0, 2.0], &[2.0, 4.0])
            .starts_with("`sparse` is not faster than `dense` at any measured length (512 to 1024 tokens); at")
    );
    let soon = said(&[1.0, 4.0], &[4.0, 8.0]);
    assert!(
        soon.contains("at any measured length (512 to 1024 tokens); extrapolation suggests about 2,050 tokens"),
        "{soon}"
    );
    assert!(said(&[1.0, 2.0], &[0.5, 4.0]).starts_with("`sparse` is faster than `dense` up to 724 ["));
    let twice = said(&[1.0, 1.0, 1.0], &[2.0, 0.5, 2.0]);
    assert!(
        twice.starts_with("`sparse` and `dense` swap as the faster one more than once, at about 724, 1,450 tokens"),
        "{twice}"
    );
    let same = said(&[1.0, 2.0], &[1.0, 2.0]);
    assert!(
        same.starts_with(
            "the difference in time between `sparse` and `dense` is unclear at every measured length (512 to 1024 tokens)"
        ),
        "{same}"
    );
}

#[test]
fn extrapolation_stops_at_four_times_the_longest_length() {
    let answer = |sparse: [f64; 2]| only(&both(&[1.0, 4.0], &sparse)).time;
    // The gap halves with each doubling: 4 at 1024 is gone at 4096, and 5 beyond it.
    assert!(
        matches!(answer([7.9, 15.8]), Some(Answer::Never { extrapolated: Some(length) }) if (length - 4045.0).abs() < 60.0)
    );
    assert_eq!(answer([9.0, 18.0]), Some(Answer::Never { extrapolated: None }));
}

#[test]
fn a_difference_within_the_floor_is_unclear() {
    assert_eq!(only(&both(&[1.0], &[0.995])).time, Some(Answer::Unclear));
    assert_eq!(only(&both(&[1.0], &[0.96])).time, Some(Answer::Always));
}

#[test]
fn lengths_with_unclear_differences_are_excluded_from_claims_about_all_lengths() {
    let mut results = both(&[1.0, 2.0], &[1.005, 1.0]);
    for result in &mut results {
        if let Outcome::Measured(measured) = &mut result.outcome {
            measured.wall_ns =
                measured.wall_ns.iter().enumerate().map(|(at, ns)| ns * (95 + 10 * (at as u64 % 2)) / 100).collect();
        }
    }
    let crossover = only(&results);
    assert_eq!(crossover.time, Some(Answer::AtSome { less: vec![1024], more: Vec::new() }));
    let said = crossover.time_sentence().unwrap();
    assert!(
        said.starts_with("`sparse` is faster than `dense` at 1024 tokens; at the other measured lengths"),
        "{said}"
    );
}

#[test]
fn a_crossover_requires_known_signs_at_all_longer_lengths() {
    let both_known = only(&both(&[1.0, 1.0, 4.0, 8.0], &[2.0, 1.0, 2.0, 4.0]));
    assert!(matches!(both_known.time, Some(Answer::From(_))), "the unknown one is between: {both_known:?}");
    let last_unknown = only(&both(&[1.0, 4.0, 4.0], &[2.0, 2.0, 4.0]));
    assert_eq!(last_unknown.time, Some(Answer::AtSome { less: vec![1024], more: vec![512] }));
    let said = last_unknown.time_sentence().unwrap();
    assert!(said.starts_with("`sparse` is faster than `dense` at 1024, and slower at 512 tokens; at"), "{said}");
}

#[test]
fn times_without_an_interval_are_unclear() {
    let mut results = both(&[1.0, 4.0], &[0.5, 1.0]);
    for result in &mut results {
        if let Outcome::Measured(measured) = &mut result.outcome {
            measured.wall_ns.truncate(5);
        }
    }
    let crossover = only(&results);
    assert_eq!(crossover.time, Some(Answer::Unclear));
    let said = crossover.time_sentence().unwrap();
    assert!(said.ends_with("is unclear at every measured length (512 to 1024 tokens)"), "{said}");
}

#[test]
fn batch_sizes_and_workloads_are_compared_separately() {
    let mut results = both(&[1.0, 4.0], &[2.0, 2.0]);
    results.extend([result("dense", 512, 4, takes(1e6), 1), result("sparse", 512, 4, takes(5e5), 1)]);
    let answer = crossovers(&results);
    assert_eq!(answer.len(), 2);
    assert!(matches!(answer[0].time, Some(Answer::From(_))));
    assert_eq!(answer[1].time, Some(Answer::Always));
}

#[test]
fn kinds_that_keep_all_entries_ignore_the_pattern() {
    let mut results = both(&[1.0, 4.0], &[2.0, 2.0]);
    for result in results.iter_mut().skip(2) {
        result.case = result.case.with("pattern", "tiny");
    }
    assert!(matches!(only(&results).time, Some(Answer::From(_))));
}

#[test]
fn lengths_at_which_only_one_kind_fits_are_listed() {
    let mut results = both(&[1.0, 4.0], &[2.0, 2.0]);
    results[1].outcome = Outcome::OutOfMemory { needed_bytes: None, available_bytes: None };
    let crossover = only(&results);
    assert_eq!(crossover.alone, [1024]);
    assert_eq!(crossover.alone_sentence().unwrap(), "`dense` does not fit at 1024 tokens, `sparse` does");
    assert!(matches!(crossover.time, Some(Answer::Never { .. })));
}

#[test]
fn memory_is_compared_without_an_interval() {
    let mut results = both(&[1.0, 4.0], &[2.0, 2.0]);
    for (result, bytes) in results.iter_mut().zip([100, 400, 200, 200]) {
        if let Outcome::Measured(measured) = &mut result.outcome {
            measured.peak_bytes = Some(bytes);
        }
    }
    let crossover = only(&results);
    let text = crossover.memory_sentence().unwrap();
    assert_eq!(text, "`sparse` is smaller in memory than `dense` from 724 tokens on");
}

#[test]
fn memory_within_the_floor_counts_as_equal() {
    let mut results = both(&[1.0, 4.0], &[2.0, 2.0]);
    for (result, bytes) in results.iter_mut().zip([1000, 4000, 900, 4010]) {
        if let Outcome::Measured(measured) = &mut result.outcome {
            measured.peak_bytes = Some(bytes);
        }
    }
    let crossover = only(&results);
    assert_eq!(crossover.memory, Some(Answer::AtSome { less: vec![512], more: Vec::new() }));
    let expected = "`sparse` is smaller in memory than `dense` at 512 tokens; at the other measured lengths the difference is unclear";
    assert_eq!(crossover.memory_sentence().unwrap(), expected);
}

#[test]
fn a_single_kind_has_no_crossover() {
    assert_eq!(crossovers(&both(&[1.0, 4.0], &[])), []);
    let naive = [result("naive", 512, 1, takes(1e6), 1), result("sparse", 512, 1, takes(5e5), 1)];
    assert_eq!(only(&naive).base, "naive");
}

proptest! {
    #[test]
    fn a_crossing_is_between_measured_lengths_and_inside_its_interval(
        dense in proptest::collection::vec(0.01_f64..100.0, 1..6),
        sparse in proptest::collection::vec(0.01_f64..100.0, 1..6),
    ) {
        let answer = crossovers(&both(&dense, &sparse));
        let longest = 512_u64 << (dense.len().min(sparse.len()) - 1);
        for pair in &answer {
            prop_assert!(pair.time_sentence().is_some() && pair.memory_sentence().is_some());
            if let Some(Answer::From(crossing) | Answer::Until(crossing)) = &pair.time {
                prop_assert!(crossing.length >= 512.0 && crossing.length <= longest as f64);
                let ends = crossing.ends.unwrap();
                prop_assert!(ends.low.is_none_or(|low| low <= crossing.length * 1.001));
                prop_assert!(ends.high.is_none_or(|high| high >= crossing.length * 0.999));
            }
        }
    }

    #[test]
    fn swapping_the_kinds_inverts_every_ratio(
        times in proptest::collection::vec((0.01_f64..100.0, 0.01_f64..100.0), 1..6),
    ) {
        let (dense, sparse): (Vec<f64>, Vec<f64>) = times.into_iter().unzip();
        let (one, other) = (only(&both(&dense, &sparse)), only(&both(&sparse, &dense)));
        for (one, other) in one.faster.iter().zip(&other.faster) {
            prop_assert!((one.ratio * other.ratio - 1.0).abs() < 1e-9);
        }
        prop_assert_eq!(one.time == Some(Answer::Always), matches!(other.time, Some(Answer::Never { .. })));
        if let (Some(Answer::AtSome { less, more }), Some(Answer::AtSome { less: more_of, more: less_of })) = (one.time, other.time) {
            prop_assert_eq!((less, more), (less_of, more_of));
        }
    }
}
