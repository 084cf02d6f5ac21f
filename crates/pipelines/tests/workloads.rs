//! The workloads through the measuring loop, as a benchmark runs them.

#![allow(clippy::unwrap_used, reason = "a test panics on a surprise")]

use laptime_bench::{AxisSpec, Case, Depth, Outcome, Plan, Settings, Sink, Stop, Timing, ValueKind, WarmUp, measure};
use laptime_pipelines::{CpuDevice, MATMUL_DTYPES, Matmul, workloads};
use laptime_trace::run::{CaseResult, Measured};
use proptest::prelude::*;

struct Unseen;

impl Sink for Unseen {
    fn begin(&mut self, _: &Case, _: u32) {}

    fn iteration(&mut self, _: u64, _: bool) {}

    fn result(&mut self, _: CaseResult) -> anyhow::Result<()> {
        Ok(())
    }
}

const SETTINGS: Settings = Settings {
    warmup: WarmUp::Iterations(1),
    stop: Stop::Iterations(3),
    runs: 1,
    isolate: false,
    timeout_ns: None,
    cold: false,
    timing: Timing::Host,
    l2: None,
    depth: Depth::Pipeline,
};

/// Runs the cases of a workload with these values on its axes.
fn outcomes(workload: &str, given: &[(&str, &str)]) -> Vec<Outcome> {
    let workloads = workloads();
    let workload = workloads.iter().find(|known| known.name() == workload).expect("it is built in");
    let given: Vec<_> = given.iter().map(|(axis, word)| ((*axis).to_owned(), vec![(*word).to_owned()])).collect();
    let plan = Plan::settle(workload.name(), workload.axes(), &given).expect("the axes accept these values");
    let device = CpuDevice::new();
    plan.cases().iter().map(|case| measure(&**workload, case, &device, &SETTINGS, &mut Unseen)).collect()
}

fn measured(outcome: &Outcome) -> &Measured {
    match outcome {
        Outcome::Measured(measured) => measured,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_workloads_are_listed_with_axes_that_have_defaults() {
    let names: Vec<_> = workloads().iter().map(|workload| workload.name()).collect();
    assert_eq!(names, ["matmul", "copy", "chain", "model", "attention", "c2c", "tts", "offload"]);
    // Some numbers are derived from the text, as their descriptions say; a text or file is optional.
    let is_optional = |axis: &AxisSpec| {
        axis.name == "frames" && axis.about.contains("4.5 per word")
            || axis.name == "max_tokens" && axis.about.contains("twice the prompt")
            || axis.name == "sample"
            || matches!(axis.kind, ValueKind::Text(_))
    };
    for axis in workloads().iter().flat_map(|workload| workload.axes()) {
        assert!(!axis.about.is_empty() && (!axis.default.is_empty() || is_optional(&axis)), "{}", axis.name);
    }
}

#[test]
fn a_sweep_over_matmul_measures_every_case() {
    let outcomes = outcomes("matmul", &[("size", "32-128*2"), ("dtype", "f32,f64,bf16,f16"), ("threads", "1,2")]);
    assert_eq!(outcomes.len(), 3 * 4 * 2);
    for outcome in &outcomes {
        assert_eq!(measured(outcome).wall_ns.len(), 3);
        assert!(measured(outcome).work.is_some());
    }
}

#[test]
fn by_default_copy_has_a_case_for_each_op() {
    let outcomes = outcomes("copy", &[("size", "1")]);
    let traffic: Vec<_> = outcomes.iter().map(|outcome| measured(outcome).work.clone().unwrap().traffic).collect();
    assert_eq!(format!("{traffic:?}"), "[Read, Write, Copy]");
}

#[test]
fn a_case_that_can_never_fit_is_an_outcome() {
    for (workload, size) in [("matmul", "10000000"), ("matmul", "9223372036854775807"), ("copy", "9223372036854775807")]
    {
        for outcome in outcomes(workload, &[("size", size)]) {
            assert!(matches!(outcome, Outcome::OutOfMemory { needed_bytes: Some(_), available_bytes: Some(_) }));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_product_of_any_size_dtype_and_threads_is_correct(size in 1_i64..160, dtype in 0..MATMUL_DTYPES.len(), threads in 1_i64..9) {
        let values = [("size", size.into()), ("dtype", MATMUL_DTYPES[dtype].into()), ("threads", threads.into())];
        let case = Case::new(values.map(|(axis, value)| (axis.to_owned(), value)).to_vec());
        let outcome = measure(&Matmul, &case, &CpuDevice::new(), &SETTINGS, &mut Unseen);
        prop_assert!(matches!(outcome, Outcome::Measured(_)), "{outcome:?}");
    }
}
