//! What holds up a run of any kind, from what the other questions answer.

use laptime_trace::{
    Trace,
    run::{CaseResult, Peaks},
};

use crate::{
    cases::cases,
    finding::Finding,
    gap_cause::Cause,
    gap_verdict::VerdictKind,
    gaps::{DeviceGaps, PartKind, gaps},
    offload::{Bottleneck, Severity},
    overlap::overlap,
    overview::{Overview, overview},
    profiling::FAR_FROM_LIMIT,
    python_lines::{LineShares, idle_lines},
    syncs::{Syncs, syncs},
    units::{per_cent, three_figures, time},
};

/// Up to this many times its limit a case is near it.
pub const NEAR_LIMIT: f64 = 1.25;

/// The share of the time lost to the host from which on its waits are the reason.
pub const LEAST_WAITS: f64 = 0.5;

/// What holds up a run of any kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Diagnosis {
    /// What holds it up, the one that matters most first.
    pub findings: Vec<Bottleneck>,
    /// What is as it should be, and what cannot be told, in sentences.
    pub remarks: Vec<String>,
    /// The trace as a whole, if there is one.
    pub overview: Option<Overview>,
}

/// Asks what holds up a trace, the results of its run, or both.
pub fn diagnose(trace: Option<&Trace>, results: &[CaseResult], peaks: Option<&Peaks>) -> Diagnosis {
    let mut found = Diagnosis::default();
    if let Some(trace) = trace {
        found.add_trace(trace);
    }
    found.add_results(results, peaks);
    found.findings.sort_by(|a, b| {
        let gain = |one: &Bottleneck| one.gain_ns.unwrap_or(0.0);
        a.severity.cmp(&b.severity).then(gain(b).total_cmp(&gain(a)))
    });
    found
}

impl Diagnosis {
    fn add_trace(&mut self, trace: &Trace) {
        self.overview = Some(overview(trace));
        let Ok(found) = gaps(trace, None, 0) else {
            self.remarks.push(
                "The trace shows no work of a device: `laptime stages` shows where the time of the host goes.".into(),
            );
            return;
        };
        let waits = syncs(trace, None).ok();
        for device in &found.devices {
            self.add_device(device, waits.as_ref());
        }
        let of_copies = overlap(trace).findings;
        let of_devices = found.devices.into_iter().flat_map(|device| device.findings);
        let notable = |finding| Bottleneck { severity: Severity::Notable, finding, gain_ns: None };
        self.findings.extend(of_copies.into_iter().chain(of_devices).map(notable));
        self.remarks.extend(idle_lines(trace).iter().flat_map(LineShares::sentences));
    }

    fn add_device(&mut self, device: &DeviceGaps, waits: Option<&Syncs>) {
        let busy = format!("{} computed {} of its time", device.name, per_cent(device.verdict.busy));
        match device.verdict.kind {
            VerdictKind::Saturated => self.remarks.push(format!("Kernels are continuous: {busy}.")),
            VerdictKind::TooLittle => {
                self.remarks.push(format!("There is too little work of {} to judge: record longer.", device.name));
            }
            kind => self.findings.push(held_up(device, kind, busy, waits)),
        }
    }

    fn add_results(&mut self, results: &[CaseResult], peaks: Option<&Peaks>) {
        let figures = cases(results, peaks);
        let limited = figures.cases.iter().filter_map(|case| {
            let limits = case.measured.as_ref()?.limits?;
            Some((case, limits.x_limit?, limits.limit_ns?))
        });
        for (case, times, limit) in limited {
            let told = format!("{} takes {} times what the hardware allows", case.id.case, three_figures(times));
            if times <= NEAR_LIMIT {
                self.remarks.push(format!("Near the limit of the hardware: {told}."));
            } else if times > FAR_FROM_LIMIT {
                self.findings.push(far(told, limit * (times - 1.0)));
            }
        }
    }
}

fn far(evidence: String, gain_ns: f64) -> Bottleneck {
    let finding = Finding {
        rule: "far_from_limit",
        evidence,
        limit: format!("{FAR_FROM_LIMIT} times"),
        meaning: "arithmetic and memory are idle most of the time".into(),
        next: "record it (`laptime profile`) and ask again of the trace".into(),
    };
    Bottleneck { severity: Severity::Notable, finding, gain_ns: Some(gain_ns) }
}

fn held_up(device: &DeviceGaps, kind: VerdictKind, busy: String, waits: Option<&Syncs>) -> Bottleneck {
    let idle = (1.0 - device.verdict.busy) * device.window.0 as f64;
    let gain = idle * device.verdict.share.unwrap_or(0.0);
    let waits = waits.filter(|waits| kind == VerdictKind::Host && is_of_waits(device, waits));
    let most = waits.and_then(|waits| waits.groups.first());
    let (rule, meaning, next) = match most {
        Some(most) => {
            let site = if most.site.is_empty() { String::new() } else { format!(" in `{}`", most.site) };
            let next =
                format!("wait less, first of all for `{}`{site} ({} times): `laptime syncs`", most.call, most.count);
            ("sync_bound", "the host waits for the device and launches too late after it".to_owned(), next)
        }
        None => (rule(kind), lower(kind.meaning()), device.verdict.next().to_owned()),
    };
    let share = device
        .verdict
        .share
        .map_or_else(String::new, |share| format!(", and {} took {} of the rest", taker(kind), per_cent(share)));
    Bottleneck {
        severity: if kind == VerdictKind::Unexplained { Severity::Notable } else { Severity::Bad },
        finding: Finding {
            rule,
            evidence: format!(
                "{} ({} of {}){share}",
                upper(&busy),
                time(device.verdict.busy * device.window.0 as f64),
                time(device.window.0 as f64)
            ),
            limit: per_cent(crate::gap_verdict::BUSY),
            meaning,
            next,
        },
        gain_ns: Some(gain),
    }
}

/// Whether waits, and the idle time that follows them, are most of what the host loses.
fn is_of_waits(device: &DeviceGaps, waits: &Syncs) -> bool {
    let part = |cause| {
        let wanted = device.parts.iter().filter(|part| part.kind == PartKind::Gap(cause));
        wanted.map(|part| part.time.0 as f64).sum::<f64>()
    };
    let (late, waited) = (part(Cause::Host), part(Cause::Sync));
    let after = waits.idle_after.map_or(0.0, |idle| idle.0 as f64).min(late);
    let lost = late + waited;
    lost > 0.0 && waited + after >= LEAST_WAITS * lost
}

const fn rule(kind: VerdictKind) -> &'static str {
    match kind {
        VerdictKind::Host => "host_bound",
        VerdictKind::Copies => "copy_bound",
        VerdictKind::Communication => "communication_bound",
        VerdictKind::Streams => "stream_bound",
        VerdictKind::Turnaround => "turnaround_bound",
        VerdictKind::Saturated | VerdictKind::Unexplained | VerdictKind::TooLittle => "unexplained_gaps",
    }
}

/// What took the time without kernels.
const fn taker(kind: VerdictKind) -> &'static str {
    match kind {
        VerdictKind::Host => "the host",
        VerdictKind::Copies => "copies",
        VerdictKind::Communication => "communication",
        VerdictKind::Streams => "waiting for other streams",
        VerdictKind::Turnaround => "the device's own turnaround",
        VerdictKind::Saturated | VerdictKind::Unexplained | VerdictKind::TooLittle => "what the trace does not explain",
    }
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn upper(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
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
        assert_eq!(rules(&found)[0], "host_bound", "{found:?}");
        assert_eq!(found.findings[0].severity, Severity::Bad);
        // Nine gaps of 103 µs.
        assert!((found.findings[0].gain_ns.unwrap() - 927e3).abs() < 1e3, "{found:?}");
    }

    #[test]
    fn waits_that_the_device_stands_idle_after_are_the_bottleneck() {
        let found = diagnose(Some(&launched(50, 100, true)), &[], None);
        assert_eq!(rules(&found)[0], "sync_bound", "{found:?}");
        assert!(found.findings[0].finding.next.contains("`cudaStreamSynchronize`"), "{found:?}");
    }

    #[test]
    fn continuous_kernels_are_as_they_should_be() {
        let found = diagnose(Some(&launched(500, 0, false)), &[], None);
        assert_eq!(rules(&found), Vec::<&str>::new());
        assert!(found.remarks[0].starts_with("Kernels are continuous: device 0 computed 99."), "{:?}", found.remarks);
    }

    #[test]
    fn a_trace_without_a_device_is_told_as_such() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        builder.span(main, Nanos(0), Nanos(10), "load", "");
        let found = diagnose(Some(&builder.build().unwrap()), &[], None);
        assert!(found.findings.is_empty() && found.remarks[0].contains("`laptime stages`"), "{found:?}");
    }

    #[test]
    fn a_case_is_near_its_limit_or_far_from_it() {
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
        assert_eq!((rules(&far), far.remarks.len()), (vec!["far_from_limit"], 0));
    }
}
