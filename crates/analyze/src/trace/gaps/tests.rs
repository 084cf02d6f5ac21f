//! How the time of a device divides, on traces made by hand and by chance.

use super::*;
use crate::gap_verdict::VerdictKind;
use laptime_trace::{SYNC, SpanEntry, TraceBuilder, TrackId, activity::category};
use proptest::prelude::*;

struct Fixture {
    builder: TraceBuilder,
    main: TrackId,
    stream: TrackId,
    copies: TrackId,
}

impl Fixture {
    fn new() -> Self {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let stream = builder.stream(1, 7, "stream 7");
        let copies = builder.stream(1, 20, "stream 20");
        Self { builder, main, stream, copies }
    }

    fn host(&mut self, start: u64, end: u64, name: &str, category: &str) -> SpanEntry {
        self.builder.span(self.main, Nanos(start), Nanos(end - start), name, category)
    }

    fn kernel(&mut self, call: u64, start: u64, end: u64) {
        self.on(self.stream, "gemm", call, start, end);
    }

    fn on(&mut self, stream: TrackId, name: &str, call: u64, start: u64, end: u64) {
        let launch = self.host(call, call + 2_000, "cudaLaunchKernel", category::RUNTIME);
        let work = self.builder.span(stream, Nanos(start), Nanos(end - start), name, category::KERNEL);
        self.builder.flow(launch, work);
    }

    fn copy(&mut self, start: u64, end: u64) {
        let name = "Memcpy HtoD (Pinned -> Device)";
        let launch = self.host(0, 1_000, "cudaMemcpyAsync", category::RUNTIME);
        let work = self.builder.span(self.copies, Nanos(start), Nanos(end - start), name, category::COPY);
        self.builder.flow(launch, work);
    }

    fn answer(self, most: usize) -> DeviceGaps {
        gaps(&self.builder.build().unwrap(), None, most).unwrap().devices.remove(0)
    }
}

#[test]
fn host_activities_that_differ_only_in_a_counter_share_a_name() {
    let mut made = Fixture::new();
    for (turn, start) in [(1, 0), (2, 100_000), (3, 200_000)] {
        made.kernel(start, start + 5_000, start + 20_000);
        made.host(start + 20_000, start + 99_000, &format!("aten::linear, op_id = {turn}"), category::NVTX);
    }
    let host: Vec<_> = made.answer(0).host.into_iter().map(|host| (host.name, host.count)).collect();
    assert!(host.contains(&(Some("aten::linear, op_id = *".to_owned()), 2)), "{host:?}");
    let named = host.iter().filter(|(name, _)| name.as_ref().is_some_and(|name| name.contains("op_id")));
    assert_eq!(named.count(), 1, "{host:?}");
}

fn times(answer: &DeviceGaps) -> Vec<(&'static str, u64, u64)> {
    answer.parts.iter().map(|part| (part.kind.key(), part.time.0, part.count)).collect()
}

/// Two kernels with an operation between them that makes the host late.
fn late() -> Fixture {
    let mut made = Fixture::new();
    made.host(0, 200_000, "aten::linear", category::OPERATION);
    made.kernel(0, 10_000, 100_000);
    made.host(120_000, 150_000, "aten::empty", category::OPERATION);
    made.kernel(190_000, 195_000, 205_000);
    made
}

#[test]
fn time_is_split_into_kernels_copies_without_kernels_and_gaps() {
    let mut made = late();
    made.copy(90_000, 110_000);
    made.copy(200_000, 202_000);
    let answer = made.answer(0);
    assert_eq!(answer.window, Nanos(195_000));
    assert_eq!(times(&answer), [("kernels", 100_000, 2), ("copies", 10_000, 1), ("host", 85_000, 1)]);
    assert_eq!(answer.idle(), Nanos(85_000));
}

#[test]
fn paused_recording_is_not_a_gap() {
    let mut made = late();
    made.kernel(250_000, 260_000, 270_000);
    made.builder.metadata.set("notRecorded", r#"[{"process": 1, "start_ns": 120000, "end_ns": 140000}]"#);
    let answer = made.answer(0);
    // Nothing is known of the whole stretch without work that the pause touches.
    assert_eq!(answer.window, Nanos(165_000));
    assert_eq!(times(&answer), [("kernels", 110_000, 3), ("host", 55_000, 1)]);
    assert_eq!(answer.count, 1);
}

#[test]
fn host_activities_add_up_to_the_late_host_time() {
    let answer = late().answer(0);
    let host: Vec<_> = answer.host.iter().map(|did| (did.name.as_deref(), did.is_launched, did.time.0)).collect();
    let expected = [
        (Some("aten::linear"), false, 60_000),
        (Some("aten::empty"), false, 30_000),
        (None, true, 3_000),
        (Some("cudaLaunchKernel"), false, 2_000),
    ];
    assert_eq!(host, expected);
    assert_eq!(answer.verdict.kind, VerdictKind::Launch);
    let place = answer.verdict.host.place.clone().unwrap();
    assert_eq!((place.name.as_str(), place.time), ("aten::linear", Nanos(92_000)), "inclusive");
    assert_eq!(place.inside, Some(("aten::empty".to_owned(), Nanos(30_000))));
    assert_eq!(answer.verdict.share, Some(1.0));
}

#[test]
fn time_outside_all_spans_is_reported_as_nothing_recorded() {
    let mut made = Fixture::new();
    made.kernel(0, 10_000, 100_000);
    made.kernel(190_000, 195_000, 205_000);
    let answer = made.answer(0);
    assert_eq!((answer.host[0].name.as_deref(), answer.host[0].time), (None, Nanos(90_000)));
    assert!(!answer.host[0].is_launched);
}

#[test]
fn a_device_is_saturated_from_ninety_per_cent_of_kernel_time_on() {
    for (end, kind) in [(100_000, VerdictKind::Saturated), (99_990, VerdictKind::Turnaround)] {
        let mut made = Fixture::new();
        made.kernel(0, 10_000, end);
        made.kernel(4_000, 110_000, 190_000);
        made.kernel(8_000, 200_000, 210_000);
        assert_eq!(made.answer(0).verdict.kind, kind, "{end}");
    }
}

#[test]
fn the_largest_share_of_time_without_kernels_decides_the_verdict() {
    let verdict = |make: fn(&mut Fixture)| {
        let mut made = Fixture::new();
        made.kernel(0, 10_000, 20_000);
        make(&mut made);
        made.answer(0).verdict.kind
    };
    assert_eq!(verdict(|made| made.copy(20_000, 90_000)), VerdictKind::Copies);
    assert_eq!(verdict(|made| made.kernel(3_000, 90_000, 99_000)), VerdictKind::Unexplained);
    let text = |made: &mut Fixture| {
        made.host(3_000, 4_000, "cudaStreamWaitEvent", category::RUNTIME);
        made.kernel(5_000, 90_000, 99_000);
    };
    assert_eq!(verdict(text), VerdictKind::Unexplained);
    let streams = |made: &mut Fixture| {
        for at in 0..20 {
            let stream = if at % 2 == 0 { made.copies } else { made.stream };
            made.on(stream, "gemm", 3_000, 30_000 + 20_000 * at, 31_000 + 20_000 * at);
        }
    };
    assert_eq!(verdict(streams), VerdictKind::Streams);
    let communication = |made: &mut Fixture| made.on(made.copies, "ncclDevKernel_AllReduce", 3_000, 15_000, 99_000);
    assert_eq!(verdict(communication), VerdictKind::Communication);
    let sync = |made: &mut Fixture| {
        made.host(3_000, 70_000, "read_token", SYNC);
        made.kernel(80_000, 90_000, 99_000);
    };
    assert_eq!(verdict(sync), VerdictKind::Sync);
}

#[test]
fn communication_without_compute_is_a_separate_part() {
    let mut made = Fixture::new();
    made.kernel(0, 10_000, 20_000);
    made.on(made.copies, "ncclDevKernel_AllReduce", 3_000, 15_000, 99_000);
    let answer = made.answer(0);
    assert_eq!(times(&answer), [("kernels", 10_000, 1), ("communication", 79_000, 1)]);
    let values: Vec<_> = Gaps::FIGURES.iter().map(|figure| figure.key).zip(answer.values()).take(3).collect();
    assert_eq!(values[1], ("communication_share", Some(79_000.0 / 89_000.0)));
    assert!(values[2].1.is_some_and(|share| share == 0.0 && share.is_sign_positive()));
}

#[test]
fn too_little_work_gives_no_verdict() {
    let mut made = Fixture::new();
    made.kernel(0, 10_000, 20_000);
    assert_eq!(made.answer(0).verdict.kind, VerdictKind::TooLittle);
    for (wall, kind) in [(1_000_000, VerdictKind::Saturated), (1_000_001, VerdictKind::TooLittle)] {
        let mut made = Fixture::new();
        made.host(0, wall, "load", "");
        made.kernel(1_000, 10_000, 15_000);
        made.kernel(4_000, 15_000, 20_000);
        assert_eq!(made.answer(0).verdict.kind, kind, "{wall}");
    }
}

#[test]
fn pinning_is_advised_only_if_most_copies_are_pageable() {
    let next = |name: &str| {
        let mut made = Fixture::new();
        made.kernel(0, 10_000, 20_000);
        let work = made.builder.span(made.copies, Nanos(20_000), Nanos(60_000), name, category::COPY);
        let launch = made.host(3_000, 4_000, "cudaMemcpyAsync", category::RUNTIME);
        made.builder.flow(launch, work);
        made.answer(0).verdict.next()
    };
    assert!(next("Memcpy HtoD (Pageable -> Device)").contains("pin the host memory"));
    let pinned = next("Memcpy HtoD (Pinned -> Device)");
    assert!(!pinned.contains("pin") && pinned.contains("copy ahead"), "{pinned}");
    let within = next("Memcpy DtoD (Device -> Device)");
    assert!(within.contains("within the GPU") && !within.contains("separate stream"), "{within}");
}

#[test]
fn the_advice_for_a_late_host_names_only_recorded_activities() {
    let mut made = Fixture::new();
    made.kernel(0, 10_000, 100_000);
    made.kernel(190_000, 195_000, 205_000);
    let verdict = made.answer(0).verdict;
    assert_eq!(verdict.kind, VerdictKind::Launch);
    assert!(!verdict.next().contains("shorten") && !verdict.next().contains("wait less"), "{}", verdict.next());
    assert!(late().answer(0).verdict.next().starts_with("shorten `aten::linear`"));
}

#[test]
fn the_cost_of_a_sync_is_a_finding_and_the_rest_is_a_late_host() {
    let mut made = Fixture::new();
    for step in 0..3_u64 {
        let start = 20_000_000 * step;
        made.kernel(start + 1_000, start + 10_000, start + 10_000_000);
        made.host(start + 20_000, start + 10_001_000, "cudaDeviceSynchronize", category::RUNTIME);
        made.host(start + 10_002_000, start + 19_990_000, "aten::tokenize_slow", category::OPERATION);
    }
    let answer = made.answer(1);
    // Syncs of 9.981 ms; without them launches would come earlier by this much.
    let sync = 2 * 9_981_000;
    assert_eq!(times(&answer), [("kernels", 29_970_000, 3), ("host", 20_020_000 - sync, 2), ("sync", sync, 2)]);
    assert_eq!((answer.count, answer.verdict.kind), (2, VerdictKind::Sync));
    let gap = &answer.longest[0];
    assert_eq!((gap.length, gap.cause), (Nanos(10_010_000), Cause::Sync));
    let text = "20.0 ms of the idle time (99.7 %) follows 2 syncs, mostly `cudaDeviceSynchronize`";
    assert_eq!(answer.findings.iter().map(|finding| finding.evidence.as_str()).collect::<Vec<_>>(), [text]);
}

#[test]
fn syncs_are_a_finding_from_a_tenth_of_the_idle_time_on() {
    let found = |late: u64| {
        let mut made = Fixture::new();
        made.kernel(0, 10_000, 100_000);
        made.host(20_000, 101_000, "read_token", SYNC);
        made.kernel(96_000 + late, 100_000 + late, 2_000_000);
        made.answer(0).findings.len()
    };
    // The sync lasts 81 µs: the gap would shrink by this much.
    assert_eq!([found(810_000), found(810_001)], [1, 0]);
    // And from a hundredth of the window on.
    let found = |end: u64| {
        let mut made = Fixture::new();
        made.kernel(0, 10_000, 100_000);
        made.host(20_000, 101_000, "read_token", SYNC);
        made.kernel(105_000, 110_000, end);
        made.answer(0).findings.len()
    };
    assert_eq!([found(1_010_000), found(1_010_001)], [1, 0]);
}

#[test]
fn the_longest_gaps_name_the_work_before_and_after() {
    let mut made = late();
    made.kernel(191_000, 206_000, 207_000);
    let answer = made.answer(1);
    let gap = &answer.longest[0];
    assert_eq!((answer.longest.len(), answer.count), (1, 2));
    assert_eq!((gap.start, gap.length, gap.cause), (Nanos(100_000), Nanos(95_000), Cause::Host));
    assert_eq!(
        (gap.before.as_deref(), gap.after.as_str(), gap.host.as_deref()),
        (Some("gemm"), "gemm", Some("aten::linear"))
    );
}

#[test]
fn the_lap_with_most_idle_time_is_reported_if_it_is_an_outlier() {
    let answer = |late: u64| {
        let mut made = Fixture::new();
        for lap in 0..4_u64 {
            let start = 100_000 * lap;
            made.host(start, start + 90_000, "token", laptime_trace::LAP);
            let late = if lap == 2 { late } else { 0 };
            made.kernel(start + 1_000 + late, start + 5_000 + late, start + 80_000);
        }
        made.answer(0).idlest
    };
    assert_eq!(answer(1_000), None);
    let idlest = answer(10_000).unwrap();
    assert_eq!((idlest.label.as_str(), idlest.idle, idlest.median), ("token 2", Nanos(25_000), 12_500.0));
}

#[test]
fn idle_time_is_assigned_to_the_laps_that_contain_it() {
    let mut made = Fixture::new();
    let mut start = 0;
    for lap in 0..6_u64 {
        let length = if lap == 3 { 600_000 } else { 100_000 };
        made.host(start, start + length, "iteration", laptime_trace::LAP);
        made.kernel(start + 1_000, start + 5_000, start + 75_000);
        start += length;
    }
    let answer = made.answer(1);
    let idlest = answer.idlest.unwrap();
    assert_eq!((idlest.label.as_str(), idlest.idle, idlest.median), ("iteration 3", Nanos(530_000), 30_000.0));
    assert_eq!(answer.longest[0].lap.as_deref(), Some("iteration 3"));
}

#[test]
fn a_trace_without_devices_has_no_answer() {
    let mut made = Fixture::new();
    made.host(0, 10, "forward", "");
    assert_eq!(gaps(&made.builder.build().unwrap(), None, 0), Err(NoGaps::NoDevices));
}

#[test]
fn an_unknown_lap_unit_is_an_error() {
    let trace = late().builder.build().unwrap();
    assert!(matches!(gaps(&trace, Some("token"), 0), Err(NoGaps::NoLaps(NoLaps::NoSuchName { .. }))));
}

#[test]
fn stages_replace_missing_kernels_and_the_answer_says_so() {
    let mut made = Fixture::new();
    for step in 0..2_u64 {
        let start = 100_000 * step;
        let stage = made.host(start, start + 20_000, "forward", "");
        made.host(start + 20_000, start + 85_000, "read", SYNC);
        let work = made.builder.span(made.stream, Nanos(start + 5_000), Nanos(75_000), "forward", "");
        made.builder.flow(stage, work);
    }
    let answer = made.answer(0);
    assert!(answer.is_stages);
    assert_eq!(times(&answer), [("kernels", 150_000, 2), ("sync", 25_000, 1)]);
}

proptest! {
    #[test]
    fn parts_add_up_to_the_window_and_host_activities_to_the_late_host_time(
        kernels in prop::collection::vec((0_u64..90_000, 0_u64..200_000, 0_u64..30_000), 1..15),
        copies in prop::collection::vec((0_u64..200_000, 0_u64..30_000), 0..8),
        host in prop::collection::vec((0_u64..200_000, 0_u64..60_000, 0..3_usize), 0..10),
    ) {
        let mut made = Fixture::new();
        for (start, length, name) in host {
            let names = ["aten::linear", "cudaStreamSynchronize", "cudaStreamWaitEvent"];
            made.host(start, start + length, names[name], category::RUNTIME);
        }
        for (call, start, length) in kernels {
            made.kernel(call, start, start + length);
        }
        for (start, length) in copies {
            made.copy(start, start + length);
        }
        let answer = made.answer(3);
        prop_assert_eq!(answer.parts.iter().map(|part| part.time.0).sum::<u64>(), answer.window.0);
        let late: u64 =
            answer.parts.iter().filter(|part| part.kind == PartKind::Gap(Cause::Host)).map(|part| part.time.0).sum();
        prop_assert_eq!(answer.host.iter().map(|did| did.time.0).sum::<u64>(), late);
        let gaps: u64 =
            answer.parts.iter().filter(|part| matches!(part.kind, PartKind::Gap(_))).map(|part| part.count).sum();
        prop_assert!(gaps >= answer.count);
        prop_assert!(answer.longest.iter().all(|gap| gap.length.0 > 0));
        prop_assert_eq!(answer.values().len(), Gaps::FIGURES.len());
    }
}
