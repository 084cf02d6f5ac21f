//! What holds for the tables of any results.

use std::collections::HashSet;

use laptime_analyze::{
    Cases, CompareOptions, ProfiledRun, RunResults, cases, compare, crossovers, doubts, profiling, scaling, warmup,
    warmup_study,
};
use laptime_report::{Format, Table, TextStyle, chart::Theme, profiling as report, tables, write};
use laptime_stats::Verdict;
use laptime_trace::run::{
    AxisValue, Better, Case, CaseResult, Depth, DeviceState, Environment, Fact, Measured, Metric, Outcome, PeakFlops,
    Peaks, SCHEMA, Settings, Steady, Stop, StopReason, Timing, Traffic, WarmUp, Work,
};
use proptest::collection::vec;
use proptest::prelude::*;
use unicode_width::UnicodeWidthStr;

/// Names of axes and metrics; some are also columns of the tables.
const NAMES: [&str; 9] = ["size", "n", "device", "workload", "median_ms", "tok_s", "own_n", "a_n", "\u{1b}[31m|\n"];

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(&NAMES[..]).prop_map(str::to_owned)
}

fn axis_value() -> impl Strategy<Value = AxisValue> {
    let number = prop_oneof![Just(0.5), Just(f64::NAN), Just(-3.0)].prop_map(AxisValue::Float);
    prop_oneof![
        (-2..4_i64).prop_map(AxisValue::Int),
        number,
        any::<bool>().prop_map(AxisValue::Bool),
        name().prop_map(AxisValue::Text)
    ]
}

fn nanos() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 900..1100_u64, 1 => Just(0), 1 => any::<u64>()]
}

fn metric() -> impl Strategy<Value = Metric> {
    let value = prop_oneof![Just(1.5), Just(-2.0), Just(0.0), Just(f64::INFINITY), Just(f64::NAN)];
    let better = prop_oneof![Just(Better::Lower), Just(Better::Higher)];
    (name(), better, vec(prop::option::of(value), 0..4)).prop_map(|(name, better, values)| Metric {
        name,
        better,
        values,
    })
}

fn state() -> impl Strategy<Value = DeviceState> {
    let number = || prop::option::of(prop_oneof![Just(1980.0), Just(0.0), Just(f64::NAN)]);
    (number(), number(), number(), vec(any::<String>(), 0..2)).prop_map(
        |(clock_mhz, power_watts, temperature_c, throttled)| DeviceState {
            clock_mhz,
            power_watts,
            temperature_c,
            throttled,
        },
    )
}

fn measured() -> impl Strategy<Value = Measured> {
    let steady = prop::sample::select(vec![Steady::NotChecked, Steady::Reached, Steady::NotReached, Steady::Unknown]);
    let stopped = prop::sample::select(vec![
        StopReason::Iterations(3),
        StopReason::NarrowInterval { half_width: 0.01 },
        StopReason::MaxTime { half_width: None },
        StopReason::Interrupted,
    ]);
    let work = (any::<u64>(), any::<u64>()).prop_map(|(flops, bytes)| Work {
        flops,
        dtype: "f32".into(),
        bytes,
        traffic: Traffic::Copy,
    });
    let times = (nanos(), nanos(), vec(nanos(), 0..3), vec(nanos(), 0..24));
    let device = (vec(prop::option::of(nanos()), 0..3), vec(prop::option::of(nanos()), 0..3), vec(state(), 0..3));
    let fact = (name(), axis_value()).prop_map(|(name, value)| Fact { name, value });
    let rest =
        (steady, stopped, vec(metric(), 0..3), prop::option::of(work), prop::option::of(any::<u64>()), vec(fact, 0..3));
    (times, device, rest).prop_map(
        |(
            (prepare_ns, check_ns, warmup_ns, wall_ns),
            (device_ns, busy_ns, states),
            (steady, stopped, metrics, work, peak_bytes, facts),
        )| Measured {
            prepare_ns,
            check_ns,
            warmup_ns,
            steady,
            wall_ns,
            device_ns,
            busy_ns,
            states,
            warmup_metrics: metrics.clone(),
            metrics,
            stopped,
            peak_bytes,
            peak_rss_bytes: None,
            work,
            facts,
        },
    )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let memory = (prop::option::of(any::<u64>()), prop::option::of(any::<u64>()));
    prop_oneof![
        6 => measured().prop_map(Outcome::Measured),
        1 => any::<String>().prop_map(|reason| Outcome::Skipped { reason }),
        1 => memory.prop_map(|(needed_bytes, available_bytes)| Outcome::OutOfMemory { needed_bytes, available_bytes }),
        1 => vec(any::<String>(), 0..3).prop_map(|errors| Outcome::Failed { errors, wall_ns: vec![1] }),
    ]
}

fn result() -> impl Strategy<Value = CaseResult> {
    let axes = vec((name(), axis_value()), 0..3);
    (axes, 0..4_u32, outcome())
        .prop_map(|(axes, run, outcome)| CaseResult::new("matmul", "cpu", Case::new(axes), run, "", outcome))
}

fn results() -> impl Strategy<Value = Vec<CaseResult>> {
    vec(result(), 0..8)
}

/// Results of one case in several processes, so that there is something to compare.
fn side() -> impl Strategy<Value = Vec<CaseResult>> {
    vec((vec(900..1100_u64, 1..6), any::<bool>()), 1..6).prop_map(|processes| {
        let result = |(run, (iterations, is_far)): (usize, (Vec<u64>, bool))| {
            let wall_ns =
                iterations.into_iter().map(|iteration| if is_far { iteration * 2 } else { iteration }).collect();
            let measured = Measured { wall_ns, ..Measured::default() };
            CaseResult::new("matmul", "cpu", Case::default(), run as u32, "", Outcome::Measured(measured))
        };
        processes.into_iter().enumerate().map(result).collect()
    })
}

fn peaks() -> Peaks {
    let flops = PeakFlops { dtype: "f32".into(), flops_s: 0.0, median: None, size: 1, threads: 1 };
    let (machine, measured, bandwidth) = (String::new(), String::new(), Vec::new());
    Peaks { schema: SCHEMA, machine, device: "cpu".into(), measured, flops: vec![flops], bandwidth, gpu: None }
}

fn all_doubts(found: &Cases) -> Vec<laptime_analyze::SharedDoubt> {
    let stop = Stop::Interval { within: 0.02, at_least: 10, least_ns: 0, at_most_ns: 1 };
    let settings = Settings {
        warmup: WarmUp::Iterations(0),
        stop,
        runs: 1,
        isolate: false,
        timeout_ns: None,
        cold: false,
        timing: Timing::Host,
        l2: None,
        depth: Depth::Pipeline,
    };
    doubts(found, &settings, &Environment { load: Some(9.0), ..Environment::default() })
}

fn all_tables(a: &[CaseResult], b: &[CaseResult], metric: Option<String>) -> Vec<Table> {
    let found = cases(a, Some(&peaks()));
    let side = |results| RunResults { run: None, results };
    let compared = compare(&side(a), &side(b), &CompareOptions { metric, ..CompareOptions::default() });
    let others = [tables::cases(&found, &all_doubts(&found)), tables::compare(&compared), tables::warmup(&warmup(a))];
    let study = warmup_study(&[(0, a.to_vec()), (5, b.to_vec())], &[]);
    let studied = [tables::warmup_study(&study, &all_doubts(&found)), tables::warmup_laps(&study)];
    others.into_iter().chain(tables::models(&found, &[])).chain(studied).collect()
}

fn written(table: &Table, format: Format, width: usize) -> String {
    let mut out = Vec::new();
    write(table, format, TextStyle::plain(width), &mut out).expect("writing to a vector cannot fail");
    String::from_utf8(out).expect("all formats are text")
}

fn mirrored(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Faster => Verdict::Slower,
        Verdict::Slower => Verdict::Faster,
        verdict => verdict,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn machine_rows_are_flat_with_the_same_keys(
        a in results(), b in results(), metric in prop::option::of(name()),
    ) {
        for table in all_tables(&a, &b, metric) {
            let keys = csv_header(&table);
            prop_assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "{:?}", keys);
            for line in written(&table, Format::Jsonl, 80).lines() {
                let row: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
                prop_assert_eq!(row.keys().collect::<Vec<_>>(), keys.iter().collect::<Vec<_>>());
                prop_assert!(row.values().all(|value| !value.is_object() && !value.is_array()));
            }
        }
    }

    #[test]
    fn any_results_can_be_written_in_every_format_and_fit_the_terminal(
        a in results(), b in results(), metric in prop::option::of(name()), width in 40..160_usize,
    ) {
        for table in all_tables(&a, &b, metric) {
            for format in Format::ALL {
                let text = written(&table, format, width);
                let is_wide = |line: &str| format == Format::Text && line.width() > width;
                prop_assert!(!text.lines().any(is_wide), "{text}");
            }
        }
    }

    #[test]
    fn swapping_the_runs_mirrors_the_verdict(a in side(), b in side()) {
        let side = |results| RunResults { run: None, results };
        let verdict = |a, b| compare(&side(a), &side(b), &CompareOptions::default()).cases[0].pair.as_ref().unwrap().judged.verdict;
        match (verdict(&a, &b), verdict(&b, &a)) {
            (Verdict::Unclear(_), Verdict::Unclear(_)) => {}
            (one, other) => prop_assert_eq!(one, mirrored(other)),
        }
    }
}

fn csv_header(table: &Table) -> Vec<String> {
    let text = written(table, Format::Csv, 80);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.headers().expect("there is a header").iter().map(str::to_owned).collect()
}

/// A case along its length, of attention alone or of a model.
fn along_length() -> impl Strategy<Value = CaseResult> {
    let kind = prop::option::of(prop::sample::select(vec!["dense", "sparse", "naive", "|\n`"]));
    let model = prop::option::of(prop::sample::select(vec!["tiny", "</svg>"]));
    let pass = prop::sample::select(vec!["forward", "forward_backward", "step", "decode"]);
    let length = prop::sample::select(vec![-1, 0, 1, 512, 1024, 2048, 4096, i64::MAX]);
    (kind, model, pass, length, 0..3_u32, outcome()).prop_map(|(kind, model, pass, length, run, outcome)| {
        let axis = |axis: &str, value: AxisValue| (axis.to_owned(), value);
        let mut values = vec![axis("seq_len", length.into()), axis("pass_type", pass.into())];
        values.extend(kind.map(|kind| axis("attention", kind.into())));
        values.extend(model.map(|model| axis("model", model.into())));
        CaseResult::new("model", "cpu", Case::new(values), run, "", outcome)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_runs_become_a_report(runs in vec(vec(along_length(), 0..12), 0..3), width in 40..160_usize) {
        let of_lengths = runs.iter().flat_map(|results| {
            [tables::scaling(&scaling(results)), tables::crossovers(&crossovers(results))]
        });
        let of_lengths: Vec<Table> = of_lengths.flatten().collect();
        let read = |(at, results)| ProfiledRun { folder: format!("run {at}"), run: None, results };
        let answer = profiling(runs.into_iter().enumerate().map(read).collect());
        for chart in report::charts(&answer) {
            prop_assert!(roxmltree::Document::parse(&chart.to_svg(Theme::Light)).is_ok());
        }
        let summaries = [report::attention_summary(&answer), report::model_summary(&answer)];
        for table in of_lengths.iter().chain(summaries.iter().flatten()) {
            prop_assert!(!table.rows.is_empty() || !table.notes.is_empty());
            let text = written(table, Format::Text, width);
            prop_assert!(!text.lines().any(|line| line.width() > width), "{text}");
            Format::ALL.iter().for_each(|format| drop(written(table, *format, width)));
        }
        let told = report::document(&answer, &[], &[]);
        let findings = told.lines().skip_while(|line| *line != "## Key Findings").skip(2);
        for line in findings.take_while(|line| !line.is_empty()) {
            prop_assert!(line.starts_with("- **"), "a finding is one line: {line}");
        }
    }
}
