//! The bottlenecks of any run, each with its evidence and its gain.

mod charges;
mod checks;
mod kernels;
mod limits;
pub(crate) mod rules;

use laptime_trace::Trace;
use laptime_trace::run::{CaseResult, Peaks};

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
            let remark = "The trace contains no GPU work. `laptime stages` shows where the host's time goes.";
            self.remarks.push(remark.to_owned());
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
