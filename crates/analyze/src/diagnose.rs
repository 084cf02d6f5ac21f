//! The main bottleneck of any run, from the answers to the other questions.

use laptime_trace::{
    Trace,
    run::{CaseResult, Peaks},
};

use crate::{
    cases::cases,
    devices::devices,
    finding::Finding,
    gap_verdict::VerdictKind,
    gaps::{DeviceGaps, gaps_of},
    host_tree::HostPlace,
    offload::{Bottleneck, Severity},
    overlap::overlap_of,
    overview::Overview,
    profiling::FAR_FROM_LIMIT,
    python_lines::{LineShares, idle_lines},
    syncs::{Syncs, syncs_of},
    timeline::Timeline,
    units::{per_cent, three_figures, time},
};

/// Up to this many times its hardware limit, a case counts as near it.
pub const NEAR_LIMIT: f64 = 1.25;

/// Further causes on the host are findings from this share of the time without kernels on.
const NOTABLE: f64 = 0.1;

/// The bottlenecks of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Diagnosis {
    /// The bottlenecks, the most important first.
    pub findings: Vec<Bottleneck>,
    /// What is fine, and what cannot be diagnosed, in sentences.
    pub remarks: Vec<String>,
    /// The trace as a whole, if there is one.
    pub overview: Option<Overview>,
}

/// Finds the bottlenecks of a trace, of the results of a run, or of both.
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
        let devices = devices(trace);
        let Ok(timeline) = Timeline::of(trace, &devices, None) else { return };
        self.overview = Some(timeline.overview.clone());
        if devices.devices.is_empty() {
            // The overview has a note about an empty trace.
            if trace.span_count() == 0 {
                return;
            }
            self.remarks
                .push("The trace contains no GPU work. `laptime stages` shows where the host's time goes.".into());
            return;
        }
        let found = gaps_of(&timeline, 0);
        let waits = syncs_of(&timeline);
        for device in &found.devices {
            self.add_device(device, &waits);
        }
        let of_copies = overlap_of(trace, &devices, timeline.overview.clone()).findings;
        let notable = |finding| Bottleneck { severity: Severity::Notable, finding, gain_ns: None };
        self.findings.extend(of_copies.into_iter().map(notable));
        self.remarks.extend(idle_lines(trace).iter().flat_map(LineShares::sentences));
    }

    fn add_device(&mut self, device: &DeviceGaps, waits: &Syncs) {
        let verdict = &device.verdict;
        match verdict.kind {
            VerdictKind::Saturated => self.remarks.push(format!(
                "{} is busy: it ran kernels {} of the time. {} [saturated].",
                upper(&device.name),
                per_cent(verdict.busy),
                upper(&verdict.next())
            )),
            VerdictKind::TooLittle => self.remarks.push(format!(
                "Too little GPU work for a verdict on {}: {} in {} of the wall time. Try: {} [too-little].",
                device.name,
                plural(verdict.basis.work, "kernel or copy", "kernels and copies"),
                per_cent(verdict.basis.extent),
                verdict.next()
            )),
            kind => {
                let is_of_host = VerdictKind::OF_HOST.contains(&kind);
                self.findings.push(bottleneck(device, kind, waits, true));
                let least = NOTABLE * verdict.rest as f64;
                let others = VerdictKind::OF_HOST.into_iter().filter(|other| *other != kind);
                let others = others.filter(|other| {
                    let time = verdict.host.time(*other);
                    // If the main cause is not the host, the remaining host time is less important.
                    time as f64 >= least && time > 0 && (is_of_host || *other != VerdictKind::Host)
                });
                self.findings.extend(others.map(|other| bottleneck(device, other, waits, false)));
            }
        }
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
    let finding = Finding {
        rule: "far-from-limit",
        evidence,
        limit: format!("{FAR_FROM_LIMIT} times"),
        meaning: "arithmetic units and memory are idle most of the time".into(),
        next: "record the case with `laptime profile`, then run `laptime diagnose` on the recording".into(),
    };
    Bottleneck { severity: Severity::Notable, finding, gain_ns: Some(gain_ns) }
}

/// One cause of a device's idle time; the first one also states how busy the device was.
fn bottleneck(device: &DeviceGaps, kind: VerdictKind, waits: &Syncs, is_first: bool) -> Bottleneck {
    let verdict = &device.verdict;
    let lost = match verdict.host.time(kind) {
        0 => verdict.rest as f64 * verdict.share.unwrap_or(0.0),
        lost => lost as f64,
    };
    let share = per_cent(lost / verdict.rest.max(1) as f64);
    let busy = format!("{} ran kernels {} of the time", upper(&device.name), per_cent(verdict.busy));
    let of_rest = format!("{} of the {} without kernels", time(lost), time(verdict.rest as f64));
    let seen = format!("{of_rest} ({share}) {}", where_it_went(device, kind));
    let evidence = if is_first { format!("{busy}; {seen}") } else { format!("{}: {seen}", upper(&device.name)) };
    let next = match kind {
        VerdictKind::Sync => next_of_sync(waits),
        _ => verdict.next_of(kind),
    };
    let is_bad = is_first && !matches!(kind, VerdictKind::Unexplained | VerdictKind::ColdStart);
    Bottleneck {
        severity: if is_bad { Severity::Bad } else { Severity::Notable },
        finding: Finding { rule: kind.id(), evidence, limit: String::new(), meaning: meaning(kind).to_owned(), next },
        gain_ns: Some(lost),
    }
}

/// What the time without kernels was spent on: the end of a sentence.
fn where_it_went(device: &DeviceGaps, kind: VerdictKind) -> String {
    let host = &device.verdict.host;
    let place = host.place(kind).map(in_words);
    match (kind, place) {
        (VerdictKind::Host, Some(place)) => format!("is spent waiting for the host: {place}"),
        (VerdictKind::Host, None) => "is spent waiting for the host".to_owned(),
        (VerdictKind::DataLoading, Some(place)) => format!("is spent in data loading: {place}"),
        (VerdictKind::ColdStart, Some(place)) => format!("is one-off initialisation: {place}"),
        (VerdictKind::ColdStart, None) => "is in the first laps or before them".to_owned(),
        (kind, _) => cause(kind).to_owned(),
    }
}

/// A place with what is inside it: `287 ms inside A, of which 213 ms in B`.
fn in_words(place: &HostPlace) -> String {
    let inside = place
        .inside
        .as_ref()
        .map_or_else(String::new, |(name, inside)| format!(", of which {} in `{name}`", time(inside.0 as f64)));
    format!("{} inside `{}`{inside}", time(place.time.0 as f64), place.name)
}

/// Names the sync that costs the most.
fn next_of_sync(waits: &Syncs) -> String {
    let most = waits.groups.iter().filter(|group| group.cost.is_some_and(|cost| cost.0 > 0));
    let Some(most) = most.max_by_key(|group| (group.cost, group.count)) else {
        return "launch the next work before the sync (`laptime syncs`)".to_owned();
    };
    let site = if most.site.is_empty() { String::new() } else { format!(" in `{}`", most.site) };
    let times = plural(most.count, "time", "times");
    format!(
        "launch the next work before the sync, or sync less often, first in `{}`{site} ({times}; see `laptime syncs`)",
        most.call
    )
}

fn plural(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

const fn meaning(kind: VerdictKind) -> &'static str {
    match kind {
        VerdictKind::Host => "the GPU waits for the host to launch work",
        VerdictKind::Sync => "the host waits until the GPU has finished, and launches the next work only then",
        VerdictKind::DataLoading => "the GPU waits for input data",
        VerdictKind::ColdStart => "the recording includes the warm-up, so later laps are faster",
        VerdictKind::Copies => "the GPU waits for copies",
        VerdictKind::Communication => "compute waits for communication",
        VerdictKind::Streams => "GPU streams wait for each other",
        VerdictKind::Turnaround => "kernels are so short that the pauses between them matter",
        VerdictKind::Saturated | VerdictKind::Unexplained | VerdictKind::TooLittle => {
            "the trace does not show why the GPU was idle"
        }
    }
}

/// What the time without kernels was spent on.
const fn cause(kind: VerdictKind) -> &'static str {
    match kind {
        VerdictKind::Host => "is spent waiting for the host",
        VerdictKind::Sync => "follows host syncs",
        VerdictKind::DataLoading => "is spent in data loading",
        VerdictKind::ColdStart => "is one-off initialisation",
        VerdictKind::Copies => "is spent on copies",
        VerdictKind::Communication => "is spent on communication",
        VerdictKind::Streams => "is spent waiting for other streams",
        VerdictKind::Turnaround => "is pauses between kernels",
        VerdictKind::Saturated | VerdictKind::Unexplained | VerdictKind::TooLittle => "is not explained by the trace",
    }
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
        assert_eq!(rules(&found)[0], "host-bound", "{found:?}");
        assert_eq!(found.findings[0].severity, Severity::Bad);
        // Nine gaps of 103 µs.
        assert!((found.findings[0].gain_ns.unwrap() - 927e3).abs() < 1e3, "{found:?}");
    }

    #[test]
    fn waits_that_the_device_stands_idle_after_are_the_bottleneck() {
        let found = diagnose(Some(&launched(50, 100, true)), &[], None);
        assert_eq!(rules(&found)[0], "sync-bound", "{found:?}");
        assert!(found.findings[0].finding.next.contains("`cudaStreamSynchronize`"), "{found:?}");
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
        assert_eq!((rules(&far), far.remarks.len()), (vec!["far-from-limit"], 0));
    }
}
