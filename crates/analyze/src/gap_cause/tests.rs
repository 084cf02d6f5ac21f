//! One hand-made trace a rule, and that gaps are what work leaves free.

use super::*;
use crate::devices::devices;
use laptime_trace::{Nanos, SYNC, TraceBuilder, activity::category};
use proptest::prelude::*;

/// Micros, for traces that are read by eye.
const fn us(micros: u64) -> Nanos {
    Nanos(1_000 * micros)
}

struct Made {
    builder: TraceBuilder,
    main: TrackId,
    stream: TrackId,
    other: TrackId,
}

impl Made {
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
        let gaps = device_gaps(&trace, &found, &found.devices[0]);
        gaps.iter().map(|gap| (gap.from / 1_000, gap.to / 1_000, gap.cause)).collect()
    }
}

#[test]
fn a_launch_after_the_device_ran_dry_is_a_late_host() {
    let mut made = Made::first();
    made.kernel((190, 195), (200, 300));
    assert_eq!(made.causes(), [(100, 200, Cause::Host)]);
}

#[test]
fn a_launch_that_was_still_under_way_is_a_late_host() {
    let mut made = Made::first();
    made.kernel((99, 104), (106, 200));
    assert_eq!(made.causes(), [(100, 106, Cause::Host)]);
}

#[test]
fn work_that_was_queued_in_time_begins_after_the_turnaround() {
    let mut made = Made::first();
    made.kernel((20, 25), (120, 200));
    made.kernel((30, 35), (221, 300));
    assert_eq!(made.causes(), [(100, 120, Cause::Turnaround), (200, 221, Cause::HeldBack)]);
}

#[test]
fn a_wait_is_no_cause_while_work_is_queued() {
    let mut made = Made::first();
    made.kernel((20, 25), (102, 200));
    made.host(30, 201, "cudaDeviceSynchronize", category::RUNTIME);
    assert_eq!(made.causes(), [(100, 102, Cause::Turnaround)]);
}

#[test]
fn a_wait_is_the_cause_until_it_returns_and_then_the_host_is_late() {
    for (name, category) in [("cudaStreamSynchronize", category::RUNTIME), ("read_token", SYNC)] {
        let mut made = Made::first();
        made.host(20, 105, name, category);
        made.kernel((190, 195), (200, 300));
        assert_eq!(made.causes(), [(100, 105, Cause::Sync), (105, 200, Cause::Host)], "{name}");
    }
}

#[test]
fn a_wait_within_a_gap_is_the_cause_of_its_own_time_alone() {
    let mut made = Made::first();
    made.host(140, 190, "cudaEventSynchronize", category::RUNTIME);
    made.kernel((191, 195), (200, 300));
    assert_eq!(made.causes(), [(100, 140, Cause::Host), (140, 190, Cause::Sync), (190, 200, Cause::Host)]);
}

#[test]
fn the_uncertainty_of_the_clocks_is_given_to_a_launch() {
    let mut made = Made::first();
    made.kernel((190, 195), (200, 300));
    made.kernel((280, 302), (304, 310));
    made.builder.clock_uncertainty = Some(us(3));
    assert_eq!(made.causes(), [(100, 200, Cause::Host), (300, 304, Cause::Turnaround)]);
}

#[test]
fn the_wait_in_which_a_gap_began_is_known_with_the_uncertainty_of_the_clocks() {
    let drained = |wait: (u64, u64), launch: (u64, u64)| {
        let mut made = Made::first();
        made.host(wait.0, wait.1, "cudaStreamSynchronize", category::RUNTIME);
        made.kernel(launch, (200, 300));
        made.builder.clock_uncertainty = Some(us(3));
        let trace = made.builder.build().unwrap();
        let found = devices(&trace);
        let (gaps, judge) = judged_gaps(&trace, &found, &found.devices[0]);
        judge.drained_by(&gaps[0]).map(|wait| trace.span(wait).name.to_owned())
    };
    let wait = Some("cudaStreamSynchronize".to_owned());
    assert_eq!(drained((20, 105), (190, 195)), wait);
    assert_eq!(drained((20, 98), (190, 195)), wait);
    assert_eq!(drained((20, 97), (190, 195)), None);
    assert_eq!(drained((104, 150), (190, 195)), None);
    // The next work was queued before the wait.
    assert_eq!(drained((20, 105), (15, 18)), None);
    // It was launched in the wait.
    assert_eq!(drained((20, 199), (190, 195)), None);
}

#[test]
fn a_copy_that_holds_the_host_is_the_cause_until_its_call_returns() {
    let copies = [
        // Blocking by its name.
        ("cudaMemcpy", (20, 125), (60, 90), "Memcpy DtoH (Device -> Pinned)"),
        // It lasted until its copy was done.
        ("cudaMemcpyAsync", (20, 125), (60, 120), "Memcpy DtoH (Device -> Unknown)"),
    ];
    for (call, times, work, name) in copies {
        let mut made = Made::first();
        made.launched(times, call, made.other, work, name);
        made.kernel((190, 195), (200, 300));
        let from = work.1.max(100);
        assert_eq!(made.causes(), [(from, 125, Cause::Copy), (125, 200, Cause::Host)], "{call} {name}");
    }
}

#[test]
fn a_copy_that_had_ended_is_not_the_cause_of_what_the_host_does_after_it() {
    // `.item()`: a copy of a few bytes behind a kernel, then Python until the next launch.
    let mut made = Made::first();
    made.launched((20, 120), "cudaMemcpyAsync", made.stream, (102, 106), "Memcpy DtoH (Device -> Pageable)");
    made.host(121, 3_000, "sample", category::PYTHON);
    made.kernel((2_990, 2_995), (3_000, 3_100));
    let expected = [(100, 102, Cause::Copy), (106, 120, Cause::Copy), (120, 3_000, Cause::Host)];
    assert_eq!(made.causes(), expected);
}

#[test]
fn a_copy_that_was_only_launched_holds_nobody() {
    let mut made = Made::first();
    made.launched((99, 104), "cudaMemcpyAsync", made.stream, (106, 150), "Memcpy HtoD (Pinned -> Device)");
    assert_eq!(made.causes(), [(100, 106, Cause::Host)]);
}

#[test]
fn filling_the_buffer_of_a_pageable_copy_is_a_copy() {
    let mut made = Made::first();
    made.launched((120, 195), "cudaMemcpyAsync", made.stream, (200, 250), "Memcpy HtoD (Pageable -> Device)");
    assert_eq!(made.causes(), [(100, 120, Cause::Host), (120, 200, Cause::Copy)]);
}

#[test]
fn queued_work_behind_another_stream_waited_for_it() {
    let mut made = Made::first();
    made.launched((20, 25), "cudaLaunchKernel", made.other, (104, 150), "gemm");
    made.launched((30, 35), "cudaMemcpyAsync", made.other, (150, 200), "Memcpy HtoD (Pinned -> Device)");
    made.kernel((40, 45), (205, 300));
    assert_eq!(made.causes(), [(100, 104, Cause::Stream), (200, 205, Cause::Copy)]);
}

#[test]
fn work_that_was_told_to_wait_waited_for_a_stream_only_if_something_ended_there() {
    let made = |wait: (u64, u64), elsewhere: u64| {
        let mut made = Made::first();
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
        assert_eq!(cause((20, 25), elsewhere), (100, 500, Cause::ToldToWait), "{elsewhere}");
    }
    assert_eq!(cause((40, 45), 490), (100, 500, Cause::HeldBack));
    // The wait was for the work before.
    let mut made = made((20, 25), 490);
    made.launched((26, 28), "cudaLaunchKernel", made.stream, (40, 90), "gemm");
    assert_eq!(made.causes(), [(100, 500, Cause::HeldBack)]);
}

#[test]
fn work_that_was_launched_late_and_began_much_later_still_was_held_back_from_then_on() {
    let mut made = Made::first();
    made.kernel((145, 150), (200, 300));
    assert_eq!(made.causes(), [(100, 150, Cause::Host), (150, 200, Cause::HeldBack)]);
    // Up to 20 µs are the launch's own.
    let mut made = Made::first();
    made.kernel((100, 105), (125, 300));
    assert_eq!(made.causes(), [(100, 125, Cause::Host)]);
    let mut made = Made::first();
    made.kernel((100, 105), (126, 300));
    assert_eq!(made.causes(), [(100, 105, Cause::Host), (105, 126, Cause::HeldBack)]);
}

#[test]
fn the_inside_of_a_graph_is_turnaround_unless_its_launch_is_still_under_way() {
    let made = |call_end: u64, gap: u64| {
        let mut made = Made::new();
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
fn work_without_a_launch_is_not_explained() {
    let mut made = Made::first();
    made.builder.span(made.stream, us(102), us(10), "gemm", category::KERNEL);
    assert_eq!(made.causes(), [(100, 102, Cause::NoLaunch)]);
}

proptest! {
    #[test]
    fn gaps_are_exactly_what_work_leaves_free(
        works in prop::collection::vec((0_u64..80, 0_u64..15, any::<bool>(), 0_u64..80), 0..20),
        waits in prop::collection::vec((0_u64..80, 0_u64..30), 0..5),
    ) {
        let mut made = Made::new();
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
            let gaps = device_gaps(&trace, &found, device);
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
