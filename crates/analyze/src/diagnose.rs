//! The bottlenecks of any run, each with its evidence and its gain.

mod charges;
mod checks;
mod kernels;
mod limits;
pub(crate) mod rules;

use laptime_trace::run::{CaseResult, Peaks};
use laptime_trace::{Activity, Trace};

use self::charges::Charges;
pub use self::{
    limits::{FindingLimits, NoLimit},
    rules::{RULES, Rule, rule},
};
use crate::bottleneck::{Bottleneck, Severity};
use crate::python_lines::{LineShares, idle_lines};
use crate::timeline::{Prepared, Timeline};
use crate::units::{per_cent, three_figures};
use crate::{
    cases::cases,
    finding::Finding,
    gap_verdict::VerdictKind,
    gaps::parts_and_verdict,
    note::{capital, plural},
    overview::Overview,
    profiling::FAR_FROM_LIMIT,
};

/// Up to this many times its hardware limit, a case counts as near it.
pub const NEAR_LIMIT: f64 = 1.25;

/// The bottlenecks of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Diagnosis {
    /// The bottlenecks: bad ones first, then by gain.
    pub findings: Vec<Bottleneck>,
    /// What fixing all of them would gain, in nanoseconds: time that several findings explain counts once.
    pub together_ns: f64,
    /// The time that gains are shares of, in nanoseconds: from the first to the last work of the devices, or of the
    /// laps.
    pub whole_ns: Option<f64>,
    /// What is fine, and what cannot be diagnosed, in sentences.
    pub remarks: Vec<String>,
    /// The Python lines at which devices were idle; the remarks have them in sentences.
    pub idle_lines: Vec<LineShares>,
    /// The trace as a whole, if there is one.
    pub overview: Option<Overview>,
}

/// Finds the bottlenecks of a trace, of the results of a run, or of both.
pub fn diagnose(trace: Option<&Trace>, results: &[CaseResult], peaks: Option<&Peaks>) -> Diagnosis {
    diagnose_with(trace, results, peaks, &FindingLimits::default())
}

/// The same with other thresholds.
pub fn diagnose_with(
    trace: Option<&Trace>,
    results: &[CaseResult],
    peaks: Option<&Peaks>,
    limits: &FindingLimits,
) -> Diagnosis {
    let prepared = trace.map(Prepared::of);
    let timeline = prepared.as_ref().and_then(|prepared| Timeline::of(prepared, None).ok());
    diagnose_of(timeline.as_ref(), results, peaks, limits)
}

/// The same for a prepared trace.
pub(crate) fn diagnose_of(
    timeline: Option<&Timeline<'_>>,
    results: &[CaseResult],
    peaks: Option<&Peaks>,
    limits: &FindingLimits,
) -> Diagnosis {
    let mut found = Diagnosis::default();
    if let Some(timeline) = timeline {
        found.add_timeline(timeline, peaks, limits);
    }
    found.add_results(results, peaks);
    found.findings.sort_by(Bottleneck::order);
    found
}

impl Diagnosis {
    fn add_timeline(&mut self, timeline: &Timeline<'_>, peaks: Option<&Peaks>, limits: &FindingLimits) {
        let (trace, devices) = (timeline.trace, timeline.devices);
        self.overview = Some(timeline.overview.clone());
        // The overview has a note about an empty trace.
        if trace.span_count() == 0 {
            return;
        }
        if devices.devices.is_empty() {
            let launches = devices.activities.iter().filter(|activity| **activity == Activity::Launch).count() as u64;
            self.remarks.push(no_devices(launches));
        }
        let judged = self.judged_devices(timeline);
        let mut charges = Charges::of(timeline, &judged);
        kernels::charge(timeline, peaks, limits, &mut charges);
        checks::charge(timeline, &mut charges);
        self.findings = charges.findings(limits);
        self.remarks.extend(charges.profiler_remark(&self.findings));
        self.findings.extend(checks::findings(timeline, limits));
        self.together_ns = charges.together(&self.findings);
        self.whole_ns = Some(charges.whole()).filter(|whole| *whole > 0.0);
        self.idle_lines = idle_lines(timeline);
        self.remarks.extend(self.idle_lines.iter().flat_map(LineShares::sentences));
    }

    /// The devices with enough work for findings; the others and busy ones get a remark.
    fn judged_devices(&mut self, timeline: &Timeline<'_>) -> Vec<usize> {
        let mut judged = Vec::new();
        for (at, device) in timeline.devices.devices.iter().enumerate() {
            let (_, verdict) = parts_and_verdict(timeline, device, &timeline.idle[at], &timeline.pieces[at]);
            match verdict.kind {
                VerdictKind::TooLittle => self.remarks.push(format!(
                    "Too little GPU work for a verdict on {}: {} in {} of the wall time. Try: {} [too-little].",
                    device.name,
                    plural(verdict.basis.work, "kernel or copy", "kernels and copies"),
                    per_cent(verdict.basis.extent),
                    verdict.next()
                )),
                kind => {
                    judged.push(at);
                    if kind == VerdictKind::Saturated {
                        self.remarks.push(format!(
                            "{} is busy: it ran kernels {} of the time. {} [saturated].",
                            capital(&device.name),
                            per_cent(verdict.busy),
                            capital(&verdict.next())
                        ));
                    }
                }
            }
        }
        judged
    }

    fn add_results(&mut self, results: &[CaseResult], peaks: Option<&Peaks>) {
        let figures = cases(results, peaks);
        let limited = figures.cases.iter().filter_map(|case| {
            let limits = case.measured.as_ref()?.limits?;
            Some((case, limits.x_limit?, limits.limit_ns?))
        });
        for (case, times, limit) in limited {
            let text = format!("{} takes {} times the hardware limit", case.id.case, three_figures(times));
            if times <= NEAR_LIMIT {
                self.remarks.push(format!("Near the hardware limit: {text}."));
            } else if times > FAR_FROM_LIMIT {
                self.findings.push(far(text, limit * (times - 1.0)));
            }
        }
    }
}

/// The remark on a trace without GPU work.
fn no_devices(launches: u64) -> String {
    if launches == 0 {
        return "The trace contains no GPU work. `laptime stages` shows where the host's time goes.".to_owned();
    }
    format!(
        "The host launched GPU work {}, but the trace contains none of it. Try: make sure that only one profiler uses the \
         GPU, that it records kernels (`ProfilerActivity.CUDA`, `nsys profile --trace=cuda`), and that the recording ends \
         after a sync.",
        plural(launches, "time", "times")
    )
}

fn far(evidence: String, gain_ns: f64) -> Bottleneck {
    Finding {
        rule: "far-from-limit",
        evidence,
        limit: format!("{FAR_FROM_LIMIT} times"),
        meaning: "arithmetic units and memory are idle most of the time".into(),
        next: "record the case with `laptime profile`, then run `laptime diagnose` on the recording".into(),
    }
    .bottleneck(Severity::Notable, Some(gain_ns))
}

#[cfg(test)]
mod tests {
    use laptime_trace::{
        Nanos, TraceBuilder,
        activity::category,
        run::{Case, Measured, Outcome, PeakFlops, SCHEMA, Work},
    };

    use super::*;

    /// Ten kernels of these microseconds, each launched this long after the one before ended, by a call of 2 µs; with a
    /// wait for each or without.
    fn launched(kernel: u64, pause: u64, waits: bool) -> Trace {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let stream = builder.stream(1, 7, "stream 7");
        builder.track_mut(stream).device = Some(0);
        let micros = |time: u64| Nanos(1000 * time);
        let mut at = 0;
        for _ in 0..10 {
            let call = builder.span(main, micros(at), micros(2), "cudaLaunchKernel", category::RUNTIME);
            let work = builder.span(stream, micros(at + 3), micros(kernel), "gemm", category::KERNEL);
            builder.flow(call, work);
            if waits {
                builder.span(main, micros(at + 2), micros(kernel + 2), "cudaStreamSynchronize", category::RUNTIME);
            }
            at += 3 + kernel + pause;
        }
        builder.build().unwrap()
    }

    fn rules(found: &Diagnosis) -> Vec<&'static str> {
        found.findings.iter().map(|found| found.finding.rule).collect()
    }

    #[test]
    fn a_host_that_launches_late_is_the_bottleneck() {
        let found = diagnose(Some(&launched(50, 100, false)), &[], None);
        assert_eq!(rules(&found)[0], "launch-bound", "{found:?}");
        assert_eq!(found.findings[0].severity, Severity::Bad);
        // Nine gaps of 103 µs.
        assert!((found.findings[0].gain_ns.unwrap() - 927e3).abs() < 1e3, "{found:?}");
    }

    #[test]
    fn a_host_that_may_be_slowed_by_the_profiler_is_only_notable() {
        let with_operations = |pause: u64, operations: u64| {
            let mut builder = TraceBuilder::default();
            let (main, stream) = (builder.thread(1, 1, "main"), builder.stream(1, 7, "stream 7"));
            builder.track_mut(stream).device = Some(0);
            let micros = |time: u64| Nanos(1000 * time);
            for kernel in 0..50 {
                let at = kernel * (43 + pause);
                for _ in 0..operations {
                    builder.span(main, micros(at), micros(1), "aten::mm", category::OPERATION);
                }
                let call = builder.span(main, micros(at + 1), micros(2), "cudaLaunchKernel", category::RUNTIME);
                let work = builder.span(stream, micros(at + 3), micros(40), "gemm", category::KERNEL);
                builder.flow(call, work);
            }
            let found = diagnose(Some(&builder.build().unwrap()), &[], None);
            (found.findings[0].severity, found.remarks.iter().any(|remark| remark.contains("without the profiler")))
        };
        assert_eq!(with_operations(6, 0), (Severity::Bad, false));
        // Five events of two microseconds per kernel, and nine microseconds lost.
        assert_eq!(with_operations(6, 4), (Severity::Notable, true));
        assert_eq!(with_operations(20, 4), (Severity::Bad, false));
        // The GPU is idle most of the time: the profiler's time explains it, but is unlikely to be its cause.
        assert_eq!(with_operations(60, 60), (Severity::Bad, false));
    }

    #[test]
    fn syncs_followed_by_idle_time_are_the_bottleneck() {
        let found = diagnose(Some(&launched(50, 100, true)), &[], None);
        assert_eq!(rules(&found)[0], "sync-in-loop", "{found:?}");
        assert!(found.findings[0].finding.evidence.contains("`cudaStreamSynchronize`"), "{found:?}");
    }

    /// Late launches: for each, the Python line around it, the operation in it, and the microseconds of the operation. An
    /// empty name is time in which nothing was recorded.
    fn late(launches: &[(&str, &str, u64)]) -> Trace {
        let mut builder = TraceBuilder::default();
        let (main, stream) = (builder.thread(1, 1, "main"), builder.stream(1, 7, "stream 7"));
        builder.track_mut(stream).device = Some(0);
        let micros = |time: u64| Nanos(1000 * time);
        let mut at = 0;
        for (line, operation, length) in [("", "", 0)].iter().chain(launches) {
            if !line.is_empty() {
                builder.span(main, micros(at), micros(length + 4), line, category::PYTHON);
            }
            if !operation.is_empty() {
                builder.span(main, micros(at), micros(*length), operation, category::OPERATION);
            }
            at += length;
            let call = builder.span(main, micros(at), micros(2), "cudaLaunchKernel", category::RUNTIME);
            let work = builder.span(stream, micros(at + 3), micros(50), "gemm", category::KERNEL);
            builder.flow(call, work);
            at += 53;
        }
        builder.build().unwrap()
    }

    fn summary(trace: &Trace) -> String {
        diagnose(Some(trace), &[], None).findings[0].finding.evidence.clone()
    }

    #[test]
    fn the_line_of_a_finding_is_where_the_named_operation_runs() {
        let mut launches = vec![("other.py(9): once", "aten::sort", 100)];
        let lines = ["a.py(1): f", "a.py(2): f", "a.py(3): f", "a.py(4): f"];
        launches.extend(lines.map(|line| (line, "aten::mm", 40)));
        let text = summary(&late(&launches));
        assert!(text.contains("mostly during `aten::mm` (4 times), at `a.py:1 in f`"), "{text}");
    }

    #[test]
    fn an_operation_with_less_than_half_of_the_time_is_given_with_its_time() {
        let lines = ["a.py(1): f", "a.py(2): f", "a.py(3): f", "a.py(4): f", "a.py(5): f"];
        let names = ["aten::mm", "aten::sort", "aten::cat", "aten::add", "aten::mul"];
        let launches: Vec<_> =
            [80, 70, 60, 70, 75].iter().enumerate().map(|(at, time)| (lines[at], names[at], *time)).collect();
        let text = summary(&late(&launches[..3]));
        assert!(text.ends_with(", of which 80.0 µs during `aten::mm` (1 time), at `a.py:1 in f`"), "{text}");
        let text = summary(&late(&launches));
        assert!(text.ends_with(", spread over many places: at most 80.0 µs during `aten::mm` (1 time)"), "{text}");
    }

    #[test]
    fn a_host_that_recorded_nothing_is_not_blamed_on_an_operation() {
        let text = summary(&late(&[("", "", 150), ("", "aten::mm", 20)]));
        assert!(text.ends_with(", mostly while the host recorded no operation"), "{text}");
        // A step of the profiler is not an operation.
        let text = summary(&late(&[("", "ProfilerStep#3", 150), ("", "aten::mm", 20)]));
        assert!(text.ends_with(", mostly while the host recorded no operation"), "{text}");
    }

    #[test]
    fn a_place_has_no_more_time_than_the_finding_that_it_explains() {
        let launches = vec![("model.py(1): forward", "aten::mm", 150); 6];
        let found =
            diagnose(Some(&late(&[&launches[..], &[("model.py(1): forward", "aten::sort", 900)]].concat())), &[], None);
        let starved = found.findings.iter().find(|found| found.finding.rule == "host-starved").unwrap();
        assert!(starved.finding.evidence.contains("loses 903 µs"), "{found:?}");
        assert!(starved.finding.evidence.contains(": 900 µs inside `aten::sort`"), "{found:?}");
    }

    #[test]
    fn the_line_of_a_place_is_inside_it() {
        let mut builder = TraceBuilder::default();
        let (main, stream) = (builder.thread(1, 1, "main"), builder.stream(1, 7, "stream 7"));
        builder.track_mut(stream).device = Some(0);
        let micros = |time: u64| Nanos(1000 * time);
        builder.span(main, micros(1000), micros(2400), "train.py(9): prepare", category::PYTHON);
        // The longest line is elsewhere; two others together are the place.
        let works =
            [(0, "", 0), (1000, "a.py(1): crop", 1100), (2200, "a.py(2): scale", 1100), (3500, "io.py(3): log", 1200)];
        for (at, line, length) in works {
            if !line.is_empty() {
                builder.span(main, micros(at), micros(length), line, category::PYTHON);
            }
            let call = builder.span(main, micros(at + length), micros(2), "cudaLaunchKernel", category::RUNTIME);
            let kernel = builder.span(stream, micros(at + length + 3), micros(20), "gemm", category::KERNEL);
            builder.flow(call, kernel);
        }
        let text = summary(&builder.build().unwrap());
        assert!(text.contains("inside `train.py(9): prepare`") && !text.contains("io.py"), "{text}");
    }

    #[test]
    fn collectives_longer_than_the_shortest_one_with_their_message_wait_for_other_ranks() {
        let of = |lengths: [u64; 5], elements: fn(usize) -> i64| {
            let mut builder = TraceBuilder::default();
            let stream = builder.stream(1, 7, "stream 7");
            builder.track_mut(stream).device = Some(0);
            let mut at = 0;
            for (number, length) in lengths.into_iter().enumerate() {
                builder.span(stream, Nanos(at), Nanos(5000), "gemm", category::KERNEL);
                let name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)";
                let kernel = builder.span(stream, Nanos(at + 5000), Nanos(length), name, category::KERNEL);
                builder.span_field(kernel, "Collective name", "allreduce");
                builder.span_field(kernel, "In msg nelems", elements(number));
                builder.span_field(kernel, "dtype", "Float");
                at += 5000 + length;
            }
            summary(&builder.build().unwrap())
        };
        let text = of([1000, 9000, 1000, 5000, 2000], |_| 1024);
        assert!(text.contains("; 13.0 µs of it exceeds the shortest call with the same message"), "{text}");
        assert!(!of([3000, 4000, 3000, 3500, 3000], |_| 1024).contains("exceeds"));
        // Messages of other sizes take other times.
        assert!(!of([1000, 9000, 1000, 5000, 2000], |number| 1024 * number as i64).contains("exceeds"));
    }

    #[test]
    fn compiling_and_recording_graphs_is_initialisation() {
        let names = [
            "executor_utils::Nvrtc::CompileProgram",
            "torch/_inductor/compile_fx.py(1201): compile_fx_inner",
            "torch/_inductor/cudagraph_trees.py(815): __init__",
        ];
        for name in names {
            let found = diagnose(Some(&late(&[("", name, 5000), ("", "aten::mm", 5), ("", "aten::mm", 5)])), &[], None);
            assert_eq!(rules(&found)[0], "cold-start", "{name}: {found:?}");
        }
        for name in ["torch/_inductor/cudagraph_trees.py(600): run", "torch/_inductor/compile_fx.py(9): run"] {
            let found = diagnose(Some(&late(&[("", name, 5000)])), &[], None);
            assert_eq!(rules(&found)[0], "host-starved", "{found:?}");
        }
    }

    #[test]
    fn launches_without_their_work_are_reported() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        for at in 0..5 {
            builder.span(main, Nanos(10 * at), Nanos(5), "cudaLaunchKernel", category::RUNTIME);
        }
        builder.span(main, Nanos(50), Nanos(900), "cudaDeviceSynchronize", category::RUNTIME);
        let found = diagnose(Some(&builder.build().unwrap()), &[], None);
        assert_eq!(rules(&found), Vec::<&str>::new());
        assert!(found.remarks[0].starts_with("The host launched GPU work 5 times, but"), "{found:?}");
    }

    #[test]
    fn a_dominant_stage_takes_most_of_the_wall_time() {
        let of = |name: &str, category: &str, end: u64| {
            let mut builder = TraceBuilder::default();
            let (main, stream) = (builder.thread(1, 1, "main"), builder.stream(1, 7, "stream 7"));
            builder.span(main, Nanos(0), Nanos(900), name, category);
            builder.span(main, Nanos(900), Nanos(50), "rest", "");
            builder.span(main, Nanos(end - 50), Nanos(50), "rest", "");
            builder.span(stream, Nanos(0), Nanos(1000), "Stream Sync", category::DEVICE_SYNC);
            let found = diagnose(Some(&builder.build().unwrap()), &[], None).findings;
            found.first().map(|found| (found.finding.evidence.clone(), found.finding.next.clone()))
        };
        let (evidence, next) = of("load", "", 1000).unwrap();
        assert_eq!(evidence, "`load` takes 900 ns of 1.00 µs (90.0 %), its nested stages not included");
        assert!(next.starts_with("mark what is inside the stage"), "{next}");
        assert!(of("aten::mm", category::OPERATION, 1000).unwrap().1.contains("more threads"));
        // Most of what was recorded, but little of the time.
        assert_eq!(of("load", "", 5000), None);
        assert_eq!(of("cudaDeviceSynchronize", category::RUNTIME, 1000), None);
    }

    #[test]
    fn a_busy_device_has_no_bottleneck() {
        let found = diagnose(Some(&launched(500, 0, false)), &[], None);
        assert_eq!(rules(&found), Vec::<&str>::new());
        assert!(found.remarks[0].contains("Device 0 is busy: it ran kernels 99."), "{:?}", found.remarks);
    }

    #[test]
    fn a_trace_without_a_device_gets_a_remark() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        builder.span(main, Nanos(0), Nanos(10), "load", "");
        let found = diagnose(Some(&builder.build().unwrap()), &[], None);
        assert!(found.findings.is_empty() && found.remarks[0].contains("`laptime stages`"), "{found:?}");
    }

    #[test]
    fn a_case_is_reported_as_near_its_limit_or_far_from_it() {
        let flops = PeakFlops { dtype: "f32".into(), flops_s: 1e9, median: None, size: 1, threads: 1 };
        let peaks = Peaks {
            schema: SCHEMA,
            machine: String::new(),
            device: "cpu".into(),
            measured: String::new(),
            flops: vec![flops],
            bandwidth: vec![],
            gpu: None,
        };
        let of = |wall: u64| {
            let traffic = laptime_trace::run::Traffic::Read;
            let work = Some(Work { flops: 1_000_000, dtype: "f32".into(), bytes: 0, traffic });
            let measured = Measured { wall_ns: vec![wall; 3], work, ..Measured::default() };
            let case = Case::new(vec![("size".into(), 3.into())]);
            let result = CaseResult::new("matmul", "cpu", case, 0, "", Outcome::Measured(measured));
            diagnose(None, &[result], Some(&peaks))
        };
        let near = of(1_250_000);
        assert_eq!((rules(&near), near.remarks.len()), (vec![], 1));
        let between = of(3_000_000);
        assert_eq!((rules(&between), between.remarks.len()), (vec![], 0));
        let far = of(3_100_000);
        assert_eq!((rules(&far), far.remarks.len()), (vec!["far-from-limit"], 0));
    }
}
