//! One hand-made trace a rule, and that gaps are what work leaves free.

use super::*;
use crate::devices::devices;
use crate::waits::waits;
use laptime_trace::{Nanos, SYNC, TraceBuilder, activity::category};
use proptest::prelude::*;

/// Micros, for traces that are read by eye.
const fn us(micros: u64) -> Nanos {
    Nanos(1_000 * micros)
}

struct Fixture {
    builder: TraceBuilder,
    main: TrackId,
    stream: TrackId,
    other: TrackId,
}

impl Fixture {
    fn new() -> Self {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let stream = builder.stream(1, 7, "stream 7");
        let other = builder.stream(1, 20, "stream 20");
        Self { builder, main, stream, other }
    }

    fn host(&mut self, start: u64, end: u64, name: &str, category: &str) {
        self.builder.span(self.main, us(start), us(end - start), name, category);
    }

    /// Work with the call that launched it.
    fn launched(&mut self, call: (u64, u64), name: &str, stream: TrackId, work: (u64, u64), work_name: &str) {
        let launch = self.builder.span(self.main, us(call.0), us(call.1 - call.0), name, category::RUNTIME);
        let category = if work_name.starts_with("Memcpy") { category::COPY } else { category::KERNEL };
        let work = self.builder.span(stream, us(work.0), us(work.1 - work.0), work_name, category);
        self.builder.flow(launch, work);
    }

    fn kernel(&mut self, call: (u64, u64), work: (u64, u64)) {
        self.launched(call, "cudaLaunchKernel", self.stream, work, "gemm");
    }

    /// The first kernel of every trace: it ends at 100.
    fn first() -> Self {
        let mut made = Self::new();
        made.kernel((0, 5), (10, 100));
        made
    }

    fn causes(self) -> Vec<(u64, u64, Cause)> {
        let trace = self.builder.build().unwrap();
        let found = devices(&trace);
        let gaps = device_gaps(&trace, &found, &found.devices[0], &waits(&trace, &found));
        gaps.iter().map(|gap| (gap.from / 1_000, gap.to / 1_000, gap.cause)).collect()
    }
}

#[test]
fn a_launch_after_the_device_went_idle_is_a_late_host() {
    let mut made = Fixture::first();
    made.kernel((190, 195), (200, 300));
    assert_eq!(made.causes(), [(100, 200, Cause::Host)]);
}

#[test]
fn a_launch_call_that_is_still_running_is_a_late_host() {
    let mut made = Fixture::first();
    made.kernel((99, 104), (106, 200));
    assert_eq!(made.causes(), [(100, 106, Cause::Host)]);
}

#[test]
fn work_queued_in_time_starts_after_the_turnaround() {
    let mut made = Fixture::first();
    made.kernel((20, 25), (120, 200));
    made.kernel((30, 35), (221, 300));
    assert_eq!(made.causes(), [(100, 120, Cause::Turnaround), (200, 221, Cause::HeldBack)]);
}

#[test]
fn a_sync_is_not_the_cause_while_work_is_queued() {
    let mut made = Fixture::first();
    made.kernel((20, 25), (102, 200));
    made.host(30, 201, "cudaDeviceSynchronize", category::RUNTIME);
    assert_eq!(made.causes(), [(100, 102, Cause::Turnaround)]);
}

#[test]
fn a_sync_causes_idle_time_up_to_its_length_and_the_rest_is_a_late_host() {
    for (name, category) in [("cudaStreamSynchronize", category::RUNTIME), ("read_token", SYNC)] {
        let mut made = Fixture::first();
        made.host(20, 105, name, category);
        made.kernel((190, 195), (200, 300));
        assert_eq!(made.causes(), [(100, 185, Cause::Sync), (185, 200, Cause::Host)], "{name}");
    }
}

#[test]
fn a_sync_inside_a_gap_causes_only_its_own_time() {
    let mut made = Fixture::first();
    made.host(140, 190, "cudaEventSynchronize", category::RUNTIME);
    made.kernel((191, 195), (200, 300));
    assert_eq!(made.causes(), [(100, 140, Cause::Host), (140, 190, Cause::Sync), (190, 200, Cause::Host)]);
}

#[test]
fn clock_uncertainty_counts_in_favour_of_a_launch() {
    let mut made = Fixture::first();
    made.kernel((190, 195), (200, 300));
    made.kernel((280, 302), (304, 310));
    made.builder.clock_uncertainty = Some(us(3));
    assert_eq!(made.causes(), [(100, 200, Cause::Host), (300, 304, Cause::Turnaround)]);
}

/// Causes of gaps, and what each wait is charged with in all.
fn charged(made: Fixture) -> (Vec<Caused>, Vec<(usize, u64)>) {
    let trace = made.builder.build().unwrap();
    let found = devices(&trace);
    let judged = judged_gaps(&trace, &found, &found.devices[0], &waits(&trace, &found));
    let mut costs = std::collections::BTreeMap::<usize, u64>::new();
    for charge in &judged.charges {
        *costs.entry(charge.wait).or_default() += (charge.to - charge.from) / 1_000;
    }
    let gaps = judged.gaps.iter().map(|gap| (gap.from / 1_000, gap.to / 1_000, gap.cause)).collect();
    (gaps, costs.into_iter().collect())
}

#[test]
fn a_sync_is_charged_at_most_its_length_and_the_rest_goes_to_the_next_host_activity() {
    let mut made = Fixture::first();
    made.host(20, 102, "cudaStreamSynchronize", category::RUNTIME);
    made.host(103, 990, "tokenize", category::PYTHON);
    made.kernel((990, 995), (1_000, 1_100));
    // Without the wait of 82 the launch would have come 82 earlier.
    assert_eq!(charged(made), (vec![(100, 182, Cause::Sync), (182, 1_000, Cause::Host)], vec![(0, 82)]));
}

#[test]
fn a_sync_without_later_work_costs_nothing() {
    let mut made = Fixture::first();
    made.kernel((20, 25), (102, 200));
    made.host(30, 202, "cudaDeviceSynchronize", category::RUNTIME);
    assert_eq!(charged(made), (vec![(100, 102, Cause::Turnaround)], vec![]));
}

#[test]
fn a_lead_is_consumed_only_once() {
    let mut made = Fixture::first();
    made.host(20, 102, "cudaStreamSynchronize", category::RUNTIME);
    made.kernel((150, 155), (160, 170));
    made.kernel((250, 255), (260, 300));
    // 60 of the lead of 82 go to the first gap, 22 to the second.
    let expected = vec![(100, 160, Cause::Sync), (170, 192, Cause::Sync), (192, 260, Cause::Host)];
    assert_eq!(charged(made), (expected, vec![(0, 82)]));
}

#[test]
fn harmless_syncs_do_not_hide_later_host_delays() {
    let mut made = Fixture::new();
    for step in 0..10 {
        let start = 100 * step;
        made.kernel((start, start + 5), (start + 10, start + 100));
        made.host(start + 6, start + 97, "cudaStreamSynchronize", category::RUNTIME);
    }
    made.host(1_001, 4_990, "save", category::PYTHON);
    made.kernel((4_990, 4_995), (5_000, 5_100));
    let (causes, _) = charged(made);
    let late: u64 = causes.iter().filter(|(_, _, cause)| *cause == Cause::Host).map(|(from, to, _)| to - from).sum();
    assert!(late >= 3_900, "one wait of 91 is all that the last gap may be charged with: {causes:?}");
}

#[test]
fn syncs_for_the_same_work_are_counted_together() {
    let mut made = Fixture::first();
    made.host(20, 60, "cudaEventSynchronize", category::RUNTIME);
    made.host(61, 101, "cudaStreamSynchronize", category::RUNTIME);
    made.kernel((290, 295), (300, 400));
    assert_eq!(charged(made).0, [(100, 180, Cause::Sync), (180, 300, Cause::Host)]);
}

#[test]
fn a_thread_blocked_by_another_threads_sync_would_have_launched_earlier() {
    let trace = |is_busy: bool| {
        let mut made = Fixture::first();
        made.host(20, 102, "cudaStreamSynchronize", category::RUNTIME);
        let backward = made.builder.thread(1, 2, "backward");
        if is_busy {
            made.builder.span(backward, us(30), us(20), "work", category::PYTHON);
        }
        let launch = made.builder.span(backward, us(190), us(5), "cudaLaunchKernel", category::RUNTIME);
        let work = made.builder.span(made.stream, us(200), us(50), "gemm", category::KERNEL);
        made.builder.flow(launch, work);
        made
    };
    assert_eq!(charged(trace(false)).0, [(100, 182, Cause::Sync), (182, 200, Cause::Host)]);
    assert_eq!(charged(trace(true)).0, [(100, 200, Cause::Host)]);
}

#[test]
fn a_launch_blocked_by_a_full_queue_is_not_a_sync() {
    let mut made = Fixture::first();
    made.host(20, 90, "Command Buffer Full", category::OVERHEAD);
    made.kernel((190, 195), (200, 300));
    assert_eq!(charged(made), (vec![(100, 200, Cause::Host)], vec![]));
}

#[test]
fn a_blocking_copy_is_the_cause_until_its_call_returns() {
    let copies = [
        // Blocking by its name.
        ("cudaMemcpy", (20, 125), (60, 90), "Memcpy DtoH (Device -> Pinned)"),
        // It lasted until its copy was done.
        ("cudaMemcpyAsync", (20, 125), (60, 120), "Memcpy DtoH (Device -> Unknown)"),
    ];
    for (call, times, work, name) in copies {
        let mut made = Fixture::first();
        made.launched(times, call, made.other, work, name);
        made.kernel((190, 195), (200, 300));
        let from = work.1.max(100);
        // The call lasted 105: without it the launch would have come in time.
        assert_eq!(made.causes(), [(from, 125, Cause::Copy), (125, 200, Cause::Sync)], "{call} {name}");
    }
}

#[test]
fn a_finished_copy_does_not_cause_later_host_delays() {
    // `.item()`: a copy of a few bytes behind a kernel, then Python until the next launch.
    let mut made = Fixture::first();
    made.launched((20, 120), "cudaMemcpyAsync", made.stream, (102, 106), "Memcpy DtoH (Device -> Pageable)");
    made.host(121, 3_000, "sample", category::PYTHON);
    made.kernel((2_990, 2_995), (3_000, 3_100));
    // The call lasted 100, of which 16 lie in the gap.
    let expected =
        [(100, 102, Cause::Copy), (106, 120, Cause::Copy), (120, 206, Cause::Sync), (206, 3_000, Cause::Host)];
    assert_eq!(made.causes(), expected);
}

#[test]
fn an_asynchronous_copy_does_not_block_the_host() {
    let mut made = Fixture::first();
    made.launched((99, 104), "cudaMemcpyAsync", made.stream, (106, 150), "Memcpy HtoD (Pinned -> Device)");
    assert_eq!(made.causes(), [(100, 106, Cause::Host)]);
}

#[test]
fn staging_a_pageable_copy_counts_as_a_copy() {
    let mut made = Fixture::first();
    made.launched((120, 195), "cudaMemcpyAsync", made.stream, (200, 250), "Memcpy HtoD (Pageable -> Device)");
    assert_eq!(made.causes(), [(100, 120, Cause::Host), (120, 200, Cause::Copy)]);
}

#[test]
fn queued_work_after_another_streams_work_waited_for_that_stream() {
    let mut made = Fixture::first();
    made.launched((20, 25), "cudaLaunchKernel", made.other, (104, 150), "gemm");
    made.launched((30, 35), "cudaMemcpyAsync", made.other, (150, 200), "Memcpy HtoD (Pinned -> Device)");
    made.kernel((40, 45), (205, 300));
    assert_eq!(made.causes(), [(100, 104, Cause::Stream), (200, 205, Cause::Copy)]);
}

#[test]
fn a_stream_wait_is_the_cause_only_if_work_ended_on_the_other_stream() {
    let made = |wait: (u64, u64), elsewhere: u64| {
        let mut made = Fixture::first();
        made.host(wait.0, wait.1, "cudaStreamWaitEvent", category::RUNTIME);
        made.kernel((30, 35), (500, 600));
        let other = made.builder.stream(2, 7, "stream 7");
        made.builder.track_mut(other).device = Some(1);
        made.builder.span(other, us(50), us(elsewhere - 50), "gemm", category::KERNEL);
        made
    };
    let cause = |wait, elsewhere| made(wait, elsewhere).causes().remove(0);
    assert_eq!(cause((20, 25), 480), (100, 500, Cause::Stream));
    assert_eq!(cause((20, 25), 500), (100, 500, Cause::Stream));
    for elsewhere in [90, 479, 501] {
        assert_eq!(cause((20, 25), elsewhere), (100, 500, Cause::StreamWait), "{elsewhere}");
    }
    assert_eq!(cause((40, 45), 490), (100, 500, Cause::HeldBack));
    // The wait was for the work before.
    let mut made = made((20, 25), 490);
    made.launched((26, 28), "cudaLaunchKernel", made.stream, (40, 90), "gemm");
    assert_eq!(made.causes(), [(100, 500, Cause::HeldBack)]);
}

#[test]
fn late_launches_that_start_even_later_are_unexplained_from_the_launch_on() {
    let mut made = Fixture::first();
    made.kernel((145, 150), (200, 300));
    assert_eq!(made.causes(), [(100, 150, Cause::Host), (150, 200, Cause::HeldBack)]);
    // Up to 20 µs are the launch's own.
    let mut made = Fixture::first();
    made.kernel((100, 105), (125, 300));
    assert_eq!(made.causes(), [(100, 125, Cause::Host)]);
    let mut made = Fixture::first();
    made.kernel((100, 105), (126, 300));
    assert_eq!(made.causes(), [(100, 105, Cause::Host), (105, 126, Cause::HeldBack)]);
}

#[test]
fn gaps_inside_a_graph_are_turnaround_unless_its_launch_call_still_runs() {
    let made = |call_end: u64, gap: u64| {
        let mut made = Fixture::new();
        let launch = made.builder.span(made.main, us(0), us(call_end), "cudaGraphLaunch", category::RUNTIME);
        for (start, stream) in [(50, made.stream), (100 + gap, made.other)] {
            let work = made.builder.span(stream, us(start), us(50), "gemm", category::KERNEL);
            made.builder.flow(launch, work);
        }
        made.causes()
    };
    assert_eq!(made(20, 20), [(100, 120, Cause::Turnaround)]);
    assert_eq!(made(500, 20), [(100, 120, Cause::Turnaround)]);
    assert_eq!(made(20, 21), [(100, 121, Cause::HeldBack)]);
    assert_eq!(made(500, 300), [(100, 400, Cause::Host)]);
}

#[test]
fn work_without_a_known_launch_is_unexplained() {
    let mut made = Fixture::first();
    made.builder.span(made.stream, us(102), us(10), "gemm", category::KERNEL);
    assert_eq!(made.causes(), [(100, 102, Cause::NoLaunch)]);
}

proptest! {
    #[test]
    fn gaps_are_exactly_the_complement_of_work(
        works in prop::collection::vec((0_u64..80, 0_u64..15, any::<bool>(), 0_u64..80), 0..20),
        waits in prop::collection::vec((0_u64..80, 0_u64..30), 0..5),
    ) {
        let mut made = Fixture::new();
        for (start, length) in waits {
            made.host(start, start + length, "cudaStreamSynchronize", category::RUNTIME);
        }
        for (start, length, is_first, call) in works {
            let stream = if is_first { made.stream } else { made.other };
            made.launched((call, call + 2), "cudaLaunchKernel", stream, (start, start + length), "gemm");
        }
        let trace = made.builder.build().unwrap();
        let found = devices(&trace);
        for device in &found.devices {
            let gaps = device_gaps(&trace, &found, device, &crate::waits::waits(&trace, &found));
            let (from, to) = device.window().unwrap();
            let free = device.busy().gaps_in(from, to);
            prop_assert!(gaps.iter().all(|gap| gap.from < gap.to));
            prop_assert!(gaps.windows(2).all(|pair| pair[0].to <= pair[1].from));
            let wholes = |parts: &[Gap]| (parts[0].from, parts[parts.len() - 1].to);
            prop_assert_eq!(whole_gaps(&gaps).map(wholes).collect::<Vec<_>>(), free.parts());
            let of_parts = gaps.iter().map(|gap| (gap.from, gap.to)).collect();
            prop_assert_eq!(crate::intervals::Stretches::union(of_parts), free);
        }
    }
}
