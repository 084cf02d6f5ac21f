use laptime_trace::run::{AxisValue, Case, CaseResult, Measured, Outcome, Traffic, Work};

use super::*;

/// A series of a model with a time and a memory per length; iterations differ by up to 1 %.
fn results(lengths: &[i64], time: impl Fn(f64) -> f64, bytes: impl Fn(f64) -> f64) -> Vec<CaseResult> {
    let result = |&length: &i64| {
        let n = length as f64;
        let noise = |iteration: u64| 1.0 + 0.001 * ((iteration * 7) % 11) as f64;
        let measured = Measured {
            wall_ns: (0..20).map(|iteration| (time(n) * noise(iteration)) as u64).collect(),
            peak_bytes: Some(bytes(n) as u64),
            ..Measured::default()
        };
        CaseResult::new("model", "cpu", case(length), 0, "", Outcome::Measured(measured))
    };
    lengths.iter().map(result).collect()
}

fn case(length: i64) -> Case {
    let values: [(&str, AxisValue); 3] =
        [("model", "tiny".into()), ("attention", "naive".into()), ("seq_len", length.into())];
    Case::new(values.map(|(axis, value)| (axis.to_owned(), value)).to_vec())
}

fn only(results: &[CaseResult]) -> ScalingSeries {
    let answer = scaling(results);
    let [only] = answer.series.as_slice() else { panic!("{answer:?}") };
    only.clone()
}

#[test]
fn a_power_law_has_the_same_exponent_at_all_lengths() {
    let series = only(&results(&[256, 512, 1024, 2048], |n| 1e3 * n.powf(1.5), |n| 1e4 * n));
    let (overall, last) = (series.time.overall.unwrap(), series.time.last.unwrap());
    assert!((overall.value - 1.5).abs() < 1e-3 && (last.value - 1.5).abs() < 1e-3, "{overall:?} {last:?}");
    assert_eq!((overall.from, overall.to, last.from, last.to), (256, 2048, 1024, 2048));
    assert!((series.memory.last.unwrap().value - 1.0).abs() < 1e-3);
    assert_eq!(series.memory.overall.unwrap().interval, None);
    assert_eq!(series.lengths, [256, 512, 1024, 2048]);
}

#[test]
fn the_interval_contains_the_exponent_and_is_wider_for_the_last_doubling() {
    let series = only(&results(&[256, 512, 1024, 2048], |n| 1e3 * n * n, |n| n));
    let (overall, last) = (series.time.overall.unwrap(), series.time.last.unwrap());
    assert!(overall.interval.unwrap().contains(2.0) && last.interval.unwrap().contains(2.0));
    assert!(last.interval.unwrap().width() > overall.interval.unwrap().width());
}

#[test]
fn two_lengths_have_a_last_doubling_but_no_fit() {
    let series = only(&results(&[512, 1024], |n| 1e3 * n, |n| n));
    assert_eq!(series.time.overall, None);
    assert!((series.time.last.unwrap().value - 1.0).abs() < 1e-3);
}

#[test]
fn lengths_without_a_doubling_have_no_row() {
    assert_eq!(scaling(&results(&[512], |n| n, |n| n)), Scaling::default());
    assert_eq!(scaling(&results(&[512, 600, 700], |n| 1e3 * n, |n| n)), Scaling::default());
    assert_eq!(scaling(&[]), Scaling::default());
}

#[test]
fn the_last_doubling_is_the_longest_length_at_most_half_as_long() {
    assert_eq!(last_doubling(&[256, 512, 1000, 1024]), Some([1, 3]));
    assert_eq!(last_doubling(&[3, 5, 7]), Some([0, 2]));
    assert_eq!(last_doubling(&[]), None);
}

#[test]
fn an_unmeasured_length_is_left_out() {
    let mut all = results(&[256, 512, 1024, 2048], |n| 1e3 * n, |n| n);
    all[1].outcome = Outcome::OutOfMemory { needed_bytes: None, available_bytes: None };
    let series = only(&all);
    assert_eq!(series.lengths, [256, 1024, 2048]);
    assert!((series.time.overall.unwrap().value - 1.0).abs() < 1e-3);
}

#[test]
fn few_iterations_give_an_exponent_without_an_interval() {
    let mut all = results(&[256, 512, 1024], |n| 1e3 * n, |n| n);
    if let Outcome::Measured(measured) = &mut all[0].outcome {
        measured.wall_ns.truncate(5);
    }
    let series = only(&all);
    assert!(series.time.overall.unwrap().interval.is_none() && series.time.last.unwrap().interval.is_none());
}

#[test]
fn quadratic_time_of_a_model_is_reported_only_above_the_limit() {
    let rules = |exponent: f64| {
        let answer = scaling(&results(&[512, 1024, 2048], |n| 1e3 * n.powf(exponent), |n| n));
        answer.findings().iter().map(|finding| finding.rule).collect::<Vec<_>>()
    };
    assert_eq!(rules(1.75), ["quadratic-time"]);
    let mut few = results(&[512, 1024, 2048], |n| 1e3 * n * n, |n| n);
    for result in &mut few {
        if let Outcome::Measured(measured) = &mut result.outcome {
            measured.wall_ns.truncate(5);
        }
    }
    assert_eq!(scaling(&few).findings(), [], "without an interval there is no claim");
    assert_eq!(rules(1.65), [""; 0]);
    let answer = scaling(&results(&[512, 1024, 2048], |n| 1e3 * n * n, |n| n));
    let text = answer.findings()[0].to_string();
    let expected = "From 1024 to 2048 tokens, the time of `model=tiny` grew as N^2.00; attention is quadratic; the results do not include its share of the FLOPs. Try: measure a sparse pattern: `laptime bench model … --attention dense,sparse`.";
    assert_eq!(text, expected);
}

#[test]
fn quadratic_memory_is_reported_for_every_workload() {
    let answer = scaling(&results(&[512, 1024], |n| 1e3 * n, |n| n * n));
    let rules: Vec<&str> = answer.findings().iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, ["quadratic-memory"]);
}

#[test]
fn the_advice_never_names_the_measured_attention() {
    for kind in ["naive", "dense", "sparse"] {
        let mut all = results(&[512, 1024, 2048], |n| 1e3 * n * n, |n| n * n);
        all.iter_mut().for_each(|result| result.case = result.case.with("attention", kind));
        let advice: Vec<String> = scaling(&all).findings().into_iter().map(|finding| finding.next).collect();
        assert_eq!(advice.len(), 2, "{kind}");
        let own = format!("`--attention {kind}`");
        assert!(advice.iter().all(|next| !next.contains(&own)), "{kind}: {advice:?}");
        assert_eq!(advice[0].contains("sparse pattern"), kind != "sparse", "{advice:?}");
    }
}

/// Adds operations that grow as N, and as N² so that they are this share at 2048.
fn with_work(mut results: Vec<CaseResult>, share: f64) -> Vec<CaseResult> {
    for result in &mut results {
        let n = result.case.int("seq_len").unwrap() as f64;
        let flops = (1e6 * n * ((1.0 - share) + share * n / 2048.0)) as u64;
        if let Outcome::Measured(measured) = &mut result.outcome {
            measured.work = Some(Work { flops, dtype: "f32".into(), bytes: 1, traffic: Traffic::Read });
        }
    }
    results
}

#[test]
fn attention_is_not_blamed_if_it_has_few_flops() {
    let slow = || results(&[512, 1024, 2048], |n| 1e3 * n * n, |n| n);
    let blamed = scaling(&with_work(slow(), 0.4));
    assert!((blamed.series[0].quadratic_work.unwrap() - 0.4).abs() < 1e-6);
    assert!(blamed.findings()[0].meaning.contains("with 40 % of the FLOPs"), "{:?}", blamed.findings());
    let other = scaling(&with_work(slow(), 0.05));
    assert_eq!(other.findings()[0].rule, "superlinear-time");
}

#[test]
fn several_steep_series_give_one_finding_about_the_steepest() {
    let mut all = results(&[512, 1024], |n| n * n, |n| n);
    let mut steeper = results(&[512, 1024], |n| n * n * n / 1e3, |n| n);
    steeper.iter_mut().for_each(|result| result.case = result.case.with("attention", "dense"));
    all.extend(steeper);
    let text = scaling(&all).findings();
    let [only] = text.as_slice() else { panic!("{text:?}") };
    let expected =
        "From 512 to 1024 tokens, the time of `model=tiny attention=dense` grew as N^3.00 (1 more series too)";
    assert_eq!(only.evidence, expected);
}
