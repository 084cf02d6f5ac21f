//! Checks of the assumptions that every answer makes about a trace.
//!
//! A trace that fails a check is still analysed, and the answer has a note about it.

use hashbrown::HashMap;

use laptime_trace::{Activity, SpanId, Trace, TrackId, Value};

use crate::devices::{DeviceWork, Devices, Work, devices, uncertainty};
use crate::finding::Finding;

/// The share of a stream's time in which its kernels may overlap: with dependent launches, a kernel can start before
/// the previous one has finished.
const MOST_OVERLAP: f64 = 0.01;

/// How much earlier than its launch work may start if the trace has no clock uncertainty, in nanoseconds: older files
/// round to microseconds.
const LEAST_SLACK: u64 = 1_000;

/// Checks a trace.
pub fn findings(trace: &Trace) -> Vec<Finding> {
    check(trace, &devices(trace))
}

/// Checks a trace whose devices are known; a valid trace has no findings.
pub fn check(trace: &Trace, devices: &Devices) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(children_outside(trace));
    for device in &devices.devices {
        findings.extend(busy_and_idle(device));
        findings.extend(work_twice(trace, device));
        findings.extend(overlap(trace, device));
        findings.extend(before_launch(trace, devices, device));
    }
    findings
}

/// Busy and idle time must add up to the whole window.
fn busy_and_idle(device: &DeviceWork) -> Option<Finding> {
    let (first, last) = device.window()?;
    let window = last.saturating_sub(first);
    let busy = device.busy();
    let idle = busy.gaps_in(first, last).length();
    let swept = swept_busy(&device.work);
    let is_whole = busy.length() == swept && busy.length().checked_add(idle) == Some(window);
    (!is_whole).then(|| Finding {
        rule: "busy-idle",
        evidence: format!(
            "{}: busy time ({} ns; {swept} ns by another method) and idle time ({idle} ns) do not add up to {window} ns",
            device.name,
            busy.length(),
        ),
        limit: "0 ns".to_owned(),
        meaning: "busy shares and gaps of this trace are wrong".to_owned(),
        next: "report this bug in Laptime, with the trace".to_owned(),
    })
}

/// The busy time, computed from all starts and ends in order.
fn swept_busy(work: &[Work]) -> u64 {
    let mut ends: Vec<u64> = work.iter().map(|work| work.end).collect();
    ends.sort_unstable();
    let (mut busy, mut open, mut since, mut next) = (0_u64, 0_usize, 0, 0);
    for end in ends {
        while let Some(work) = work.get(next).filter(|work| work.start <= end) {
            since = if open == 0 { work.start } else { since };
            open += 1;
            next += 1;
        }
        open = open.saturating_sub(1);
        if open == 0 {
            busy += end.saturating_sub(since);
        }
    }
    busy
}

/// A child must be inside its parent on the same track.
fn children_outside(trace: &Trace) -> Option<Finding> {
    let (mut outside, mut example) = (0_u64, None);
    for span in trace.spans() {
        let Some(parent) = span.parent else { continue };
        let is_inside = trace.span_start(parent) <= span.start && span.end() <= trace.span_end(parent);
        let is_same = trace.span_track(parent) == span.track;
        if !is_inside || !is_same {
            outside += 1;
            example.get_or_insert(span.id);
        }
    }
    let example = trace.span(example?).name;
    Some(Finding {
        rule: "children-outside",
        evidence: match outside {
            1 => format!("1 span (`{example}`) is not inside its parent span"),
            _ => format!("{outside} spans (such as `{example}`) are not inside their parent spans"),
        },
        limit: "0".to_owned(),
        meaning: "self times of this trace are wrong".to_owned(),
        next: "report this bug in Laptime, with the trace".to_owned(),
    })
}

/// The same work must not appear twice: same stream, name, times and launch.
fn work_twice(trace: &Trace, device: &DeviceWork) -> Option<Finding> {
    let is_same = |one: &Work, other: &Work| {
        (one.start, one.end, one.stream) == (other.start, other.end, other.stream)
            && one.start < one.end
            && trace.span_name(one.id) == trace.span_name(other.id)
            && is_one_launch(trace, one, other)
    };
    let at_once = device.work.chunk_by(|one, other| (one.start, one.end) == (other.start, other.end));
    let twice = at_once.filter(|works| works.len() > 1).flat_map(|works| {
        works.iter().enumerate().filter(move |(at, work)| works[..*at].iter().take(8).any(|other| is_same(work, other)))
    });
    let twice: Vec<SpanId> = twice.map(|(_, work)| work.id).collect();
    let first = trace.span(*twice.first()?).name;
    Some(Finding {
        rule: "duplicate-work",
        evidence: match twice.len() {
            1 => format!("{}: 1 kernel or copy (`{first}`) is in the file twice", device.name),
            count => format!("{}: {count} kernels or copies (such as `{first}`) are in the file twice", device.name),
        },
        limit: "0".to_owned(),
        meaning: "counts and sums per name are too high; busy and idle time are correct".to_owned(),
        next: "check whether the file was merged from overlapping files".to_owned(),
    })
}

fn is_one_launch(trace: &Trace, one: &Work, other: &Work) -> bool {
    match (one.launch, other.launch) {
        (Some(one), Some(other)) => one == other,
        (None, None) => {
            let number = |work: &Work| match trace.span(work.id).fields.get("correlation") {
                Some(Value::Int(number)) => Some(number),
                Some(Value::Uint(number)) => i64::try_from(number).ok(),
                _ => None,
            };
            number(one).is_some() && number(one) == number(other)
        }
        _ => false,
    }
}

/// Work on one stream runs in order. Kernels of one graph launch may run in parallel, whatever stream they are shown on.
fn overlap(trace: &Trace, device: &DeviceWork) -> Option<Finding> {
    if device.is_stages {
        return None;
    }
    let mut streams: HashMap<TrackId, (u64, Option<Work>, u64)> = HashMap::new();
    for work in &device.work {
        let (overlapped, last, all) = streams.entry(work.stream).or_default();
        let before = last.filter(|last| last.launch.is_none() || last.launch != work.launch);
        let both = before.map_or(0, |last| last.end.min(work.end).saturating_sub(work.start));
        *overlapped = overlapped.saturating_add(both);
        *all = all.saturating_add(work.length());
        if last.is_none_or(|last| last.end <= work.end) {
            *last = Some(*work);
        }
    }
    let share = |(overlapped, _, all): &(u64, Option<Work>, u64)| *overlapped as f64 / (*all).max(1) as f64;
    let slack = uncertainty(trace);
    let over = streams.iter().filter(|(_, stream)| stream.0 > slack && share(stream) > MOST_OVERLAP);
    let (track, worst) = over.max_by(|a, b| share(a.1).total_cmp(&share(b.1)).then(b.0.cmp(a.0)))?;
    Some(Finding {
        rule: "stream-overlap",
        evidence: format!(
            "{}: kernels on {} overlap for {:.1} % of their time",
            device.name,
            named_stream(trace, *track),
            100.0 * share(worst)
        ),
        limit: format!("{:.0} %", 100.0 * MOST_OVERLAP),
        meaning:
            "kernels start before the previous one has finished, or several streams are shown as one; sums of kernel \
                  times exceed the busy time"
                .to_owned(),
        next: "use busy and idle time, which count overlaps once".to_owned(),
    })
}

fn named_stream(trace: &Trace, track: TrackId) -> String {
    match trace.name(trace.track(track).name) {
        "" => "a stream".to_owned(),
        name => format!("`{name}`"),
    }
}

/// Work cannot start before the call that launches it.
fn before_launch(trace: &Trace, devices: &Devices, device: &DeviceWork) -> Option<Finding> {
    let slack = uncertainty(trace).max(LEAST_SLACK);
    let (mut launched, mut early, mut worst) = (0_u64, 0_u64, 0_u64);
    for work in &device.work {
        let Some(launch) = work.launch.filter(|launch| devices.activities[launch.index()] == Activity::Launch) else {
            continue;
        };
        launched += 1;
        let by = trace.span_start(launch).0.saturating_sub(work.start);
        early += u64::from(by > slack);
        worst = worst.max(by);
    }
    let micros = |nanos: u64| nanos as f64 / 1e3;
    (early > 0).then(|| Finding {
        rule: "before-launch",
        evidence: format!(
            "{}: {early} of {launched} kernels and copies start before their launch, by up to {:.1} µs",
            device.name,
            micros(worst)
        ),
        limit: format!("{:.1} µs", micros(slack)),
        meaning:
            "host and device clocks disagree, or launches are matched wrongly; causes of gaps and launch latencies \
                  are unreliable"
                .to_owned(),
        next: "record again, if necessary with a newer driver or profiler".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intervals::Stretches;
    use laptime_trace::{Nanos, TraceBuilder, activity::category};
    use proptest::prelude::*;

    /// Work of one stream: the start of its call, its start and end; no call where none is given.
    fn rules(works: &[(Option<u64>, u64, u64)], change: fn(&mut TraceBuilder)) -> Vec<&'static str> {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let stream = builder.stream(1, 7, "stream 7");
        for (call, start, end) in works {
            let work = builder.span(stream, Nanos(*start), Nanos(end - start), "gemm", category::KERNEL);
            if let Some(call) = call {
                let launch = builder.span(main, Nanos(*call), Nanos(10), "cudaLaunchKernel", category::RUNTIME);
                builder.flow(launch, work);
            }
        }
        change(&mut builder);
        let trace = builder.build().unwrap();
        check(&trace, &devices(&trace)).iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn a_consistent_trace_has_no_findings() {
        assert!(rules(&[(Some(0), 20, 50), (Some(30), 50, 90), (None, 100, 110)], |_| ()).is_empty());
        assert!(check(&Trace::default(), &devices(&Trace::default())).is_empty());
    }

    #[test]
    fn work_that_starts_before_its_launch_is_a_finding_beyond_clock_uncertainty() {
        let works = [(Some(5_000), 3_999, 6_000), (Some(7_000), 8_000, 9_000)];
        assert_eq!(rules(&works, |_| ()), ["before-launch"]);
        assert!(rules(&works, |builder| builder.clock_uncertainty = Some(Nanos(1_001))).is_empty());
        assert!(rules(&[(Some(5_000), 4_000, 6_000)], |_| ()).is_empty());
    }

    #[test]
    fn overlap_on_a_stream_above_one_per_cent_is_a_finding() {
        assert_eq!(rules(&[(Some(0), 20, 120), (Some(1), 117, 217)], |_| ()), ["stream-overlap"]);
        assert!(rules(&[(Some(0), 20, 120), (Some(1), 118, 218)], |_| ()).is_empty());
        assert!(
            rules(&[(Some(0), 20, 120), (Some(1), 117, 217)], |it| it.clock_uncertainty = Some(Nanos(3))).is_empty()
        );
    }

    fn graph(starts: &[u64]) -> Vec<&'static str> {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let stream = builder.stream(1, 7, "stream 7");
        let launch = builder.span(main, Nanos(0), Nanos(10), "cudaGraphLaunch", category::RUNTIME);
        for start in starts {
            let work = builder.span(stream, Nanos(*start), Nanos(50), "gemm", category::KERNEL);
            builder.flow(launch, work);
        }
        let trace = builder.build().unwrap();
        check(&trace, &devices(&trace)).iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn kernels_of_a_graph_may_overlap_but_not_occur_twice() {
        assert!(graph(&[20, 30, 60]).is_empty());
        assert_eq!(graph(&[20, 20, 100]), ["duplicate-work"]);
    }

    #[test]
    fn work_without_launches_is_a_duplicate_only_with_the_same_correlation() {
        let twice = |one: i64, other: i64| {
            let mut builder = TraceBuilder::default();
            let stream = builder.stream(1, 7, "stream 7");
            for correlation in [one, other] {
                let work = builder.span(stream, Nanos(0), Nanos(50), "gemm", category::KERNEL);
                builder.span_field(work, "correlation", correlation);
            }
            let trace = builder.build().unwrap();
            let found = devices(&trace);
            work_twice(&trace, &found.devices[0]).is_some()
        };
        assert!(twice(3, 3) && !twice(3, 4));
    }

    #[test]
    fn disagreeing_busy_times_are_a_finding() {
        let mut builder = TraceBuilder::default();
        let stream = builder.stream(1, 7, "stream 7");
        builder.span(stream, Nanos(0), Nanos(50), "a", category::KERNEL);
        builder.span(stream, Nanos(60), Nanos(50), "b", category::KERNEL);
        let mut found = devices(&builder.build().unwrap());
        assert_eq!(busy_and_idle(&found.devices[0]), None);
        // Out of order, which it never is.
        found.devices[0].work.swap(0, 1);
        assert_eq!(busy_and_idle(&found.devices[0]).unwrap().rule, "busy-idle");
    }

    proptest! {
        #[test]
        fn both_computations_of_busy_time_agree(works in prop::collection::vec((0_u64..80, 0_u64..15), 0..20)) {
            let stretches: Vec<(u64, u64)> = works.iter().map(|(start, length)| (*start, start + length)).collect();
            let mut builder = TraceBuilder::default();
            let stream = builder.stream(1, 7, "stream 7");
            for (start, length) in works {
                builder.span(stream, Nanos(start), Nanos(length), "gemm", category::KERNEL);
            }
            let trace = builder.build().unwrap();
            let found = devices(&trace);
            let busy = found.devices.first().map_or(0, |device| swept_busy(&device.work));
            prop_assert_eq!(busy, Stretches::union(stretches).length());
            prop_assert!(found.devices.iter().all(|device| busy_and_idle(device).is_none()));
            prop_assert_eq!(children_outside(&trace), None);
        }
    }
}
